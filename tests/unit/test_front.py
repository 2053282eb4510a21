"""The front's configuration: what it says, and what is refused before nginx would have to."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ollamactl.cli import history
from ollamactl.cli.front import front
from ollamactl.core.queueing import Service
from ollamactl.errors import Exit, Failure
from ollamactl.host import measured, nginxd
from ollamactl.host.files import Image
from ollamactl.host.journal import Entry, FileUndo
from ollamactl.platforms import nginx
from ollamactl.platforms.nginx import Front
from ollamactl.report.text import Terminal


def made(**more: Any) -> Front:
    return Front(**({"slots": 2, "queue": 2, "per_client": 3} | more))


def test_places_are_slots_and_queue() -> None:
    text = nginx.render(made(slots=4, queue=20, per_client=6))
    assert "limit_conn ollamactl_all 24;" in text
    assert "limit_conn ollamactl_places 6;" in text


def test_only_a_valid_key_is_counted_and_none_is_printed() -> None:
    text = nginx.render(made())
    assert "limit_conn_zone $ollamactl_client" in text and 'default "";' in text
    assert "include /etc/ollamactl/front.keys;" in text
    assert text.index("return 401") < text.index("proxy_pass")
    assert 'proxy_set_header Authorization "";' in text


@pytest.mark.parametrize("auth", ["basic", "none"])
def test_without_keys_addresses_are_counted(auth: str) -> None:
    text = nginx.render(made(auth=auth))
    assert "limit_conn_zone $binary_remote_addr" in text
    assert ("auth_basic_user_file /etc/ollamactl/front.users;" in text) == (auth == "basic")
    assert "front.keys" not in text


@pytest.mark.parametrize("path", ["pull", "push", "create", "copy", "delete", "blobs"])
def test_what_changes_models_has_no_location(path: str) -> None:
    assert not [x for x in nginx.render(made()).splitlines() if "location" in x and path in x]


@pytest.mark.parametrize(
    "more",
    [
        {"listen": "localhost:80"},
        {"listen": "127.0.0.1:0"},
        {"listen": "127.0.0.1:70000"},
        {"listen": "::1:80"},
        {"listen": "127.0.0.1:1; include /etc/passwd"},
        {"keys_file": "/etc/x; return 200"},
        {"keys_file": "relative"},
        {"max_body": "32m; x"},
        {"max_body": "0"},
        {"certificate": "/etc/a.pem"},
        {"queue": 65_534},
        {"per_client": 65_536},
        {"inner": "127.0.0.1:11434"},
        {"inner": "192.0.2.1:11433"},
        {"upstream": "192.0.2.1:11434"},
    ],
)
def test_what_nginx_would_misunderstand_is_usage(more: dict[str, Any]) -> None:
    with pytest.raises(Failure) as failed:
        nginx.check(made(**more))
    assert failed.value.code == Exit.USAGE


def test_the_network_needs_tls_and_clients_that_are_known() -> None:
    tls = {"certificate": "/etc/a.pem", "certificate_key": "/etc/a.key"}
    for more in ({}, tls | {"auth": "none"}):
        with pytest.raises(Failure) as failed:
            nginx.check(made(listen="0.0.0.0:443", **more))
        assert failed.value.code == Exit.REFUSED
        nginx.check(made(listen="0.0.0.0:443", **more), override=True)
    nginx.check(made(listen="0.0.0.0:443", **tls))
    assert "listen [::]:443 ssl;" in nginx.render(made(listen="[::]:443", **tls))


def test_the_queue_follows_from_patience_and_service() -> None:
    assert nginx.queue_for(4, Service(mean=10.0), 60.0) == 20
    assert nginx.queue_for(4, None, 60.0) == 4
    assert 60_000 < nginx.queue_for(600, Service(mean=0.001), 86400.0) + 600 <= 65_535
    assert nginx.retry_after(4, Service(mean=10.0)) == 3
    assert [nginx.fair_share(n, n) for n in (1, 2, 3, 4, 8)] == [1, 3, 4, 6, 12]


@pytest.mark.parametrize(("slots", "queue"), [(2, 0), (4, 1), (4, 2), (8, 0), (2, 2), (1, 1), (16, 100)])
def test_one_client_leaves_a_place_to_others(slots: int, queue: int) -> None:
    assert 1 <= nginx.fair_share(slots, queue) < slots + queue
    assert nginx.fair_share(1, 0) == 1  # the only one


def test_nginx_waits_as_long_as_a_full_queue_takes() -> None:
    assert nginx.silence(4, 20, None, None) == nginx.silence(4, 20, Service(mean=10.0), None) == 600
    assert nginx.silence(4, 20, Service(mean=100.0), None) == 300 + 600  # a load, and six times 100 s
    assert nginx.silence(4, 20, Service(mean=100.0, variation=1.0), None) > 1100
    assert nginx.silence(4, 20, None, 3600.0) == 3600
    assert "proxy_read_timeout 900s;" in nginx.render(made(patience=900.0))


def test_how_many_requests_nginx_has_connections_for() -> None:
    debian = "events {\n\tworker_connections 768;\n\t# multi_accept on;\n}\n"
    assert nginxd.places(debian) == 192
    assert nginxd.places("events {\n # worker_connections 9999;\n}") == nginxd.places("") == 128


# -- what may be secret --


def test_a_key_that_nginx_quotes_is_not_shown(tmp_path: Path) -> None:
    keys, shown = tmp_path / "front.keys", tmp_path / "front.conf"
    for path, mode in ((keys, 0o600), (shown, 0o644)):
        path.touch()
        path.chmod(mode)
    said = '[emerg] conflicting parameter "0123456789abcdef" in '
    assert nginxd._without_keys(f"{said}{keys}:2") == f'[emerg] conflicting parameter "…" in {keys}:2'
    for place in (f"{shown}:2", f"{tmp_path}/gone:2"):
        assert nginxd._without_keys(f"{said}{place}") == f"{said}{place}"


def test_history_does_not_show_a_new_key(tmp_path: Path) -> None:
    new = FileUndo("/etc/ollamactl/front.keys", Image("absent"), Image("file", b"0123456789abcdef first;\n", 0o600))
    conf = FileUndo(nginxd.CONF, Image("absent"), Image("file", b"listen 127.0.0.1:11480;\n", 0o644))
    entry = Entry(id=1, kind="front", command="x", unit="nginx.service", started=0.0, files=(new, conf))
    out = io.StringIO()
    history._one(Terminal(out), entry)
    assert "0123456789abcdef" not in out.getvalue() and "front.keys: not shown" in out.getvalue()
    assert "+listen 127.0.0.1:11480;" in out.getvalue()


def test_the_command_prints_the_configuration_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "last", lambda: None)
    args = ["nginx", "--requests-in-flight", "2", "--queue", "2", "--upstream", "127.0.0.1:11434", "--print"]
    done = CliRunner().invoke(front, args, standalone_mode=False)
    assert done.exception is None
    assert done.output == nginx.render(made())
    data = json.loads(CliRunner().invoke(front, [*args, "--json"], standalone_mode=False).output)["data"]
    assert data["configuration"] == done.output and data["front"]["slots"] == 2
