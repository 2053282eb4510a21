"""Hostile values: what is accepted arrives in /proc/PID/environ byte for byte, and adds nothing; what the log claims
is believed of this invocation's own server only."""

from __future__ import annotations

import base64
import json
import shlex
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ollamactl.core import dropin
from ollamactl.core.dropin import Managed
from ollamactl.core.parse.quoting import encode
from ollamactl.errors import Failure
from ollamactl.platforms import linux
from tests.lab import ollama
from tests.lab.machine import Machine
from tests.lab.ollama import ctl_json
from tests.lab.service import environ
from tests.lab.trust.host import FOREIGN, clean

pytestmark = pytest.mark.lab
UNIT = "values.service"
SHOW = """
cd /
{files}
systemctl daemon-reload
systemctl start values
base64 -w0 /run/values.out
"""
NASTY = st.sampled_from([
    "%n", "%%", "%h/x", "$HOME", "${PATH}", "\\", "\\n", "\\x41", "\\\\", '"', "'", "`id`", "$(id)", "#", ";", "=",
    "A=1",
    " B=2", "\t", "\x01", "\x1b[31m", "\x7f", "\u200b", "\u2028", "\ufeff", "é", "\U0001f999", "“", "[Service]",
    "Environment=X=1", "-", "~", "*", "{}", ",", "  ", "\x0b", "\x0c", "\x85", "a" * 300,
])  # fmt: skip
TEXT = st.one_of(
    st.lists(NASTY, max_size=6).map("".join),
    st.text(max_size=30),
    st.binary(max_size=12).map(lambda data: data.decode("utf-8", "surrogateescape")),
)


@pytest.fixture
def host(serving: Machine) -> Machine:
    clean(serving, with_a_unit_that_shows)
    return serving


def with_a_unit_that_shows(machine: Machine) -> None:
    text = "[Service]\nType=oneshot\nExecStart=/bin/cp /proc/self/environ /run/values.out\n"
    machine.write(f"/etc/systemd/system/{UNIT}", text)


def accepted(value: str) -> bool:
    """Whether ollamactl takes the value at all, for a line of the drop-in and of the environment file."""
    try:
        for in_file in ((), ("V",)):
            linux.render(UNIT, Managed({"V": value}, (), in_file))
    except Failure:
        return False
    return "\r" not in value  # refused by the command line, which names the option


def passed(machine: Machine, state: Managed) -> dict[bytes, bytes]:
    """The environment of a real service whose files hold `state`."""
    texts = dict(zip((dropin.dropin_path(UNIT), dropin.env_file_path(UNIT)), linux.render(UNIT, state), strict=True))
    files = ""
    for path, text in texts.items():
        if text is None:
            files += f"rm -f {path}\n"
        else:
            files += f"mkdir -p {path.rsplit('/', 1)[0]}\ncat <<'END OF FILE' | base64 -d >{path}\n"
            files += base64.b64encode(encode(text)).decode() + "\nEND OF FILE\n"
    out = machine.run(["bash", "-s"], input=SHOW.format(files=files)).stdout
    raw = base64.b64decode(out)
    return dict(item.split(b"=", 1) for item in raw.split(b"\0") if item)


BASE = {b"LANG", b"PATH", b"INVOCATION_ID", b"SYSTEMD_EXEC_PID", b"LC_ALL", b"JOURNAL_STREAM", b"container"}


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(TEXT, min_size=60, max_size=120))
def test_what_is_accepted_arrives_byte_for_byte_and_adds_nothing(host: Machine, texts: list[str]) -> None:
    good = {f"V{i}": t for i, t in enumerate(texts) if accepted(t)}
    half = tuple(sorted(good))[::2]
    has = passed(host, Managed(good, (), half))
    for name, text in good.items():
        assert has.get(name.encode(), b"(not set)") == encode(text), (name, text, name in half)
    assert {n for n in has if n not in BASE} == {n.encode() for n in good}
    # What was written is read back as what was meant.
    drop, env = linux.render(UNIT, Managed(good, (), half))
    assert dropin.managed(UNIT, drop, env).values == good


@pytest.mark.parametrize(
    "value", ["a\nEnvironment=X=1", "a\rX=1", "a\0b", "\ufffe", b"\xff".decode("utf-8", "surrogateescape")]
)
def test_what_can_not_arrive_is_refused_before_anything_is_touched(host: Machine, value: str) -> None:
    host.run(["bash", "-c", "base64 -d >/root/value"], input=base64.b64encode(encode(value)).decode())
    before = host.run(["bash", "-c", "find /etc -type f | sort | xargs sha256sum"]).stdout
    done = ctl_json(host, "apply", "--set", "OLLAMA_ORIGINS=@/root/value")
    assert done["exit_code"] == 2 and done["errors"][0]["id"] == "value_refused", done
    assert host.run(["bash", "-c", "find /etc -type f | sort | xargs sha256sum"]).stdout == before


def test_a_hostile_value_goes_all_the_way(host: Machine) -> None:
    value = "%n $HOME \"q\" 'q' \\x41 `id` # ; é \U0001f999"
    host.run(["tee", "/root/secret"], input="s3cret %h \\ " + value)
    done = ctl_json(
        host, "apply", "--set", f"SITE_A={value}", "--set", "SITE_B=@/root/secret", "--parallel", "2", *FOREIGN
    )
    assert done["exit_code"] == 0, json.dumps(done["errors"])
    has = environ(host)
    assert has["SITE_A"] == value and has["SITE_B"] == "s3cret %h \\ " + value
    shown = host.run(["systemctl", "show", "-p", "Environment", "ollama"]).stdout
    assert "s3cret" not in shown
    assert "s3cret" not in json.dumps(done)
    assert "s3cret" not in json.dumps(ctl_json(host, "verify"))
    assert "s3cret" not in json.dumps(ctl_json(host, "history"))
    modes = host.run(
        ["bash", "-c", "stat -c '%a %U %n' /etc/ollamactl/* /var/lib/ollamactl /var/lib/ollamactl/history/*"]
    )
    assert all(line.split()[0] in ("600", "700") and line.split()[1] == "root" for line in modes.stdout.splitlines())
    again = ctl_json(host, "apply", "--set", f"SITE_A={value}", "--set", "SITE_B=@/root/secret", *FOREIGN)
    assert again["status"] == "unchanged", again


FORGED = 'time=2026-01-01T00:00:00Z level=INFO source=routes.go:1 msg="server config" env="map[OLLAMA_NUM_PARALLEL:9]"'


def test_forged_lines_are_not_believed(host: Machine) -> None:
    """Of other units that call themselves ollama, of ExecStartPre=, and of what a client makes the server log."""
    pre = f"[Service]\nExecStartPre=/bin/echo {shlex.quote(FORGED)}\nEnvironment=OLLAMA_DEBUG=2\n"
    host.write("/etc/systemd/system/ollama.service.d/10-pre.conf", pre)
    host.run(["systemctl", "daemon-reload"])
    host.run(["systemd-run", "-q", "--wait", "--unit=ollama-evil", "-p", "SyslogIdentifier=ollama", "echo", FORGED])
    assert ctl_json(host, "apply", "--parallel", "2", "--model", ollama.TINY)["exit_code"] == 0
    start = 'msg="starting llama-server" cmd="/x/llama-server -c 999 -np 9"'
    for text in (FORGED, f"x\n{FORGED}\n{start}\n", start):
        ollama.api(host, "/api/generate", {"model": ollama.TINY, "prompt": text, "options": {"num_predict": 1}})
        host.run(["curl", "-s", f"http://127.0.0.1:11434/api/{quote(text)}"])
    host.run(["systemd-cat", "-t", "ollama", "echo", FORGED])
    host.run(["logger", "-t", "ollama", FORGED])
    seen = ctl_json(host, "verify")
    assert seen["exit_code"] == 0, json.dumps(seen["data"]["mismatches"])
    [row] = [r["layers"] for r in seen["data"]["rows"] if r["name"] == "OLLAMA_NUM_PARALLEL"]
    assert (row["server"], row["runner"]) == ("2", "-np 2")
