"""`ollamactl front`: limits, keys and time-outs before an Ollama that has none."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from ollamactl.cli.common import (
    Number,
    command_line,
    json_option,
    this_server,
    timeout_option,
    transaction,
    unit_option,
    wait_option,
)
from ollamactl.core.feeds import Collector
from ollamactl.core.queueing import COUNTED, Service
from ollamactl.errors import Exit, Failure
from ollamactl.host.live import LiveHost
from ollamactl.report import envelope

if TYPE_CHECKING:
    from collections.abc import Callable

    from ollamactl.host.journal import Entry
    from ollamactl.platforms.nginx import Front
    from ollamactl.platforms.nginx_install import Login


class CountOrAuto(click.ParamType):  # type: ignore[type-arg]
    """A number, or auto."""

    name = "N|auto"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        if value is None or value == "auto":
            return None
        if isinstance(value, int):
            return value
        text = str(value)
        if not (text.isascii() and text.isdigit() and int(text) <= COUNTED):
            self.fail(f"{value} is neither a number up to {COUNTED:,} nor auto")
        return int(text)


@click.command()
@click.argument("kind", type=click.Choice(["nginx"]))
@click.option("--requests-in-flight", "slots", type=CountOrAuto(), default="auto", help="Served at once. [as slots]")
@click.option("--queue", type=CountOrAuto(), default="auto", help="May wait. [as --client-timeout allows]")
@click.option(
    "--per-client", metavar="N", type=click.IntRange(1, COUNTED), help="Places of one client. [1.5 × the slots]"
)
@click.option(
    "--rate-per-client",
    "rate",
    metavar="N",
    type=click.IntRange(1, 10_000),
    default=10,
    help="Requests a second. [10]",
)
@click.option(
    "--auth", type=click.Choice(["keys", "basic", "none"]), default="keys", help="How clients are known. [keys]"
)
@click.option(
    "--keys-file", metavar="FILE", default="/etc/ollamactl/front.keys", help="Lines KEY NAME; root's, mode 0600."
)
@click.option(
    "--users-file", metavar="FILE", default="/etc/ollamactl/front.users", help="For --auth basic, made by htpasswd."
)
@click.option("--listen", metavar="ADDRESS", default="127.0.0.1:11480",
              help="Other than loopback needs TLS. [127.0.0.1:11480]")  # fmt: skip
@click.option("--inner", metavar="ADDRESS", default="127.0.0.1:11433",
              help="Loopback port of the front's inner server. [127.0.0.1:11433]")  # fmt: skip
@click.option("--upstream", metavar="ADDRESS", help="Ollama's, on loopback. [this host's server]")
@click.option("--tls-certificate", "certificate", metavar="FILE", default="", help="The certificate and its chain.")
@click.option("--tls-key", "certificate_key", metavar="FILE", default="", help="Its key.")
@click.option("--service-time", metavar="S", type=Number(0.001, 86400), help="Seconds in a slot. [as probe saw it]")
@click.option("--client-timeout", metavar="S", type=Number(0.1, 86400), help="Seconds that clients wait for a reply.")
@click.option(
    "--body-timeout", metavar="S", type=Number(1, 3600), default=10.0, help="Seconds of a sender's silence. [10]"
)
@click.option("--max-body", metavar="SIZE", default="32m", help="Largest request. [32m]")
@click.option("--override", type=click.Choice(["plain_http"]), multiple=True, help="Refusals to pass over.")
@click.option("--print", "shown", is_flag=True, help="Print the configuration; so it is without --install.")
@click.option("--install", is_flag=True, help="Put it in place, ask everything through it, or take it back.")
@click.option("--model", metavar="NAME", default="", help="With --install: the model to ask for a token.")
@click.option("--password-file", metavar="FILE", help="For --auth basic: NAME:PASSWORD to try.")
@timeout_option
@wait_option
@unit_option
@json_option
def front(
    kind: str,
    slots: int | None,
    queue: int | None,
    per_client: int | None,
    rate: int,
    auth: Any,
    keys_file: str,
    users_file: str,
    listen: str,
    inner: str,
    upstream: str | None,
    certificate: str,
    certificate_key: str,
    service_time: float | None,
    client_timeout: float | None,
    body_timeout: float,
    max_body: str,
    override: tuple[str, ...],
    shown: bool,
    install: bool,
    model: str,
    password_file: str | None,
    timeout: float,
    wait: float,
    unit: str,
    as_json: bool,
) -> int:
    """Show or install a front for this host's Ollama: inference only, as many requests in flight as there are slots
    and places in a queue, places and a rate for each client, keys, time-outs.

    Without --install nothing is changed. With it nginx is asked first (nginx -t), then its file is written, nginx told
    to read it, and what it should let through and refuse is asked through it; where something is otherwise, all is
    put back. `rollback` undoes it, `reset` takes it away.

    \b
    ollamactl front nginx --client-timeout 60 --service-time 8
    sudo ollamactl front nginx --install
    sudo ollamactl front nginx --install --listen 0.0.0.0:443 \\
        --tls-certificate FILE --tls-key FILE
    """
    if shown and install:
        raise Failure("--print and --install exclude each other", hint="name one", code=Exit.USAGE, id="usage")
    from ollamactl.platforms import nginx

    if slots is None or upstream is None:
        found, address = this_server(LiveHost(), unit)
        slots = _slots(found) if slots is None else slots
        upstream = address.replace("localhost", "127.0.0.1") if upstream is None else upstream
    if slots < 1:
        raise Failure("at least one request at once", hint="--requests-in-flight 1", code=Exit.USAGE, id="usage")
    of = Service(mean=service_time) if service_time else _measured()
    waiting = nginx.queue_for(slots, of, client_timeout) if queue is None else queue
    made = nginx.Front(
        listen=listen,
        upstream=upstream,
        inner=inner,
        slots=slots,
        queue=waiting,
        per_client=per_client or nginx.fair_share(slots, waiting),
        rate=rate,
        auth=auth,
        keys_file=keys_file,
        users_file=users_file,
        certificate=certificate,
        certificate_key=certificate_key,
        patience=nginx.silence(slots, waiting, of, client_timeout),
        body_timeout=body_timeout,
        max_body=max_body,
        retry_after=nginx.retry_after(slots, of),
    )
    nginx.check(made, "plain_http" in override)
    text = nginx.render(made)
    if install:
        return _install(made, text, unit, password_file, model, timeout, wait, as_json)
    if as_json:
        data = {"kind": kind, "front": made, "configuration": text}
        envelope.write(envelope.envelope("front", Exit.OK, data))
    else:
        sys.stdout.write(text)
    return Exit.OK


def _install(
    front: Front,
    text: str,
    unit: str,
    password_file: str | None,
    model: str,
    timeout: float,
    wait: float,
    as_json: bool,
) -> int:
    """Through the transaction; the exit code."""
    from ollamactl.host import nginxd
    from ollamactl.platforms import linux, nginx, nginx_install
    from ollamactl.report import front as report
    from ollamactl.report import screens
    from ollamactl.report.text import Terminal

    linux.must_be_root(command_line())
    _files_are_there(front)
    screen = screens.Apply(Terminal(), quiet=as_json, command="front")
    host = LiveHost()
    with transaction(host, nginxd.UNIT, screen, wait, timeout) as context:
        new = nginx_install.new_keys(front.keys_file) if front.auth == "keys" else None
        asked = model or _loaded(front)
        report.opening(screen, front)
        result = nginx_install.change(
            context,
            text,
            None if new is None else (front.keys_file, new),
            "front",
            lambda: nginx_install.prove(context, front, _login(front, password_file), asked),
        )
        if result.status == "applied" and front.slots + front.queue > (most := nginxd.places(nginxd.main_text())):
            screen.note(f"nginx has connections for about {most} requests, fewer than the places of the front: "
                        f"raise worker_connections in {nginxd.MAIN}")  # fmt: skip
        if nginx.goes_around(_config(host, unit).get("OLLAMA_HOST", "")):
            screen.note("Ollama itself can be reached from outside, around the front: "
                        "sudo ollamactl apply --host 127.0.0.1:11434")  # fmt: skip
    return report.end(screen, front, result, as_json)


def roll_back(entry: Callable[[], Entry], check: bool, timeout: float, wait: float, as_json: bool) -> int:
    """The front as it was before one of its changes; the exit code. `entry` is asked with the lock held."""
    from ollamactl.host import apply as changing
    from ollamactl.host import journal, nginxd
    from ollamactl.platforms import nginx_install
    from ollamactl.report import front as report
    from ollamactl.report import screens
    from ollamactl.report.text import Terminal

    screen = screens.Apply(Terminal(), quiet=as_json, command="rollback")
    if check:
        text = nginx_install.before_of(entry(), journal.Store())
        screen.note(f"{nginxd.CONF} would be {'as it was' if text else 'gone'}; nothing was touched")
        return report.rolled_back(screen, changing.Result(status="unchanged", entry=0), as_json)
    with transaction(LiveHost(), nginxd.UNIT, screen, wait, timeout) as context:
        text = nginx_install.before_of(entry(), context.store)
        result = nginx_install.change(context, text, None, "rollback", lambda: None)
    return report.rolled_back(screen, result, as_json)


def _login(front: Front, password_file: str | None) -> Login:
    from ollamactl.platforms import nginx_install

    if front.auth == "keys":
        return nginx_install.key_login(front.keys_file)
    if front.auth == "basic":
        return nginx_install.password_login(password_file)
    return nginx_install.Login()


def _config(host: LiveHost, unit: str) -> dict[str, str]:
    start = Collector(host, unit).get("start")
    return dict(start.config or {}) if start else {}


def _files_are_there(front: Front) -> None:
    """Files that only the administrator can make. Raises Failure (usage) with how to make them."""
    users = f"sudo htpasswd -c {front.users_file} NAME && sudo chown root:www-data {front.users_file}"
    made = "a certificate and its key are made by certbot, or openssl req -x509"
    wanted = [(front.certificate, made), (front.certificate_key, made)]
    wanted += [(front.users_file, users)] if front.auth == "basic" else []
    for path, hint in wanted:
        if path and not os.path.isfile(path):
            raise Failure(f"{path} is not there", hint=hint, code=Exit.USAGE, id="usage")


def _loaded(front: Front) -> str:
    """A model that is loaded, which can be asked for a token at no cost; empty where none is."""
    from ollamactl.core.parse import api
    from ollamactl.host import http

    answer = http.ask(f"http://{front.upstream}/api/ps")
    found = [m for m in api.loaded(answer.body or b"") if "bert" not in m.family and "embed" not in m.name]
    return found[0].name if found else ""


def _measured() -> Service | None:
    """As probe measured it last on this host."""
    from ollamactl.host import measured

    seen = measured.last()
    return seen.service if seen else None


def _slots(found: Collector) -> int:
    """The slots of the loaded model, else the configured number. Raises Failure where neither can be seen."""
    loaded = [r.props_slots or r.slots for r in found.get("runners") or ()]
    known: list[int] = [n for n in loaded if n]
    if known:
        return max(known)
    start, effective = found.get("start"), found.get("effective")
    texts = [start.config.get("OLLAMA_NUM_PARALLEL") if start and start.config else None]
    texts.append((effective.value("OLLAMA_NUM_PARALLEL") or "1") if effective else None)
    for text in map(str, filter(None, texts)):
        if text.isascii() and text.isdigit():
            return max(1, int(text))
    raise Failure(
        "the number of slots could not be seen here",
        hint="name it: --requests-in-flight 4, or sudo ollamactl front nginx",
        id="no_slots",
    )
