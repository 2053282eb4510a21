"""`ollamactl front`: limits, keys and time-outs before an Ollama that has none."""

from __future__ import annotations

import sys
from typing import Any

import click

from ollamactl.cli.common import json_option, unit_option
from ollamactl.core.feeds import Collector
from ollamactl.core.queueing import Service
from ollamactl.errors import Exit, Failure
from ollamactl.host.live import LiveHost
from ollamactl.report import envelope


class CountOrAuto(click.ParamType):  # type: ignore[type-arg]
    """A number, or auto."""

    name = "N|auto"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        if value is None or value == "auto":
            return None
        if isinstance(value, int):
            return value
        text = str(value)
        if not (text.isascii() and text.isdigit() and int(text) <= 100_000):
            self.fail(f"{value} is neither a number nor auto")
        return int(text)


@click.command(short_help="Show a reverse proxy's configuration that limits, authenticates and refuses early.")
@click.argument("kind", type=click.Choice(["nginx"]))
@click.option("--requests-in-flight", "slots", type=CountOrAuto(), default="auto", help="Served at once (auto: slots)")
@click.option("--queue", type=CountOrAuto(), default="auto", help="May wait (auto: as the clients' patience allows).")
@click.option("--per-client", type=click.IntRange(1, 100_000), help="Places of one client (default 1.5 × the slots).")
@click.option("--rate-per-client", "rate", type=click.IntRange(1, 10_000), default=10, help="Requests a second.")
@click.option("--auth", type=click.Choice(["keys", "basic", "none"]), default="keys", help="How clients are known.")
@click.option("--keys-file", default="/etc/ollamactl/front.keys", help="Lines KEY NAME; root's, mode 0600.")
@click.option("--users-file", default="/etc/ollamactl/front.users", help="For --auth basic, made by htpasswd.")
@click.option("--listen", default="127.0.0.1:11480", help="Address and port; other than loopback needs TLS.")
@click.option("--inner", default="127.0.0.1:11433", help="Loopback port of the front's inner server.")
@click.option("--upstream", help="Ollama's address on loopback (default: this host's server).")
@click.option("--tls-certificate", "certificate", default="", help="File with the certificate and its chain.")
@click.option("--tls-key", "certificate_key", default="", help="File with its key.")
@click.option("--service-time", type=click.FloatRange(0.001, 86400), help="Seconds a request holds its slot (probe).")
@click.option("--client-timeout", type=click.FloatRange(0.1, 86400), help="Seconds that clients wait for a reply.")
@click.option("--body-timeout", type=click.FloatRange(1, 3600), default=10.0, help="Seconds of a sender's silence.")
@click.option("--max-body", default="32m", help="Largest request.")
@click.option("--override", type=click.Choice(["plain_http"]), multiple=True, help="Refusals to pass over.")
@click.option("--print", "shown", is_flag=True, help="Print the configuration, which is what is done anyway.")
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
    unit: str,
    as_json: bool,
) -> int:
    """Show the configuration of a front for this host's Ollama: inference only, as many requests in flight as there
    are slots and places in a queue, places and a rate for each client, keys, time-outs.

    Nothing is changed: write it to /etc/nginx/conf.d/ollama.conf, make the keys, then nginx -t.
    """
    from ollamactl.platforms import nginx

    if slots is None or upstream is None:
        found = Collector(LiveHost(), unit)
        slots = _slots(found) if slots is None else slots
        upstream = str(found.get("address") or "127.0.0.1:11434") if upstream is None else upstream
    if slots < 1:
        raise Failure("at least one request at once", hint="--requests-in-flight 1", code=Exit.USAGE, id="usage")
    of = Service(mean=service_time) if service_time else None
    waiting = nginx.queue_for(slots, of, client_timeout) if queue is None else queue
    made = nginx.Front(
        listen=listen,
        upstream=upstream,
        inner=inner,
        slots=slots,
        queue=waiting,
        per_client=per_client or nginx.fair_share(slots),
        rate=rate,
        auth=auth,
        keys_file=keys_file,
        users_file=users_file,
        certificate=certificate,
        certificate_key=certificate_key,
        patience=max(client_timeout or 0.0, 600.0),
        body_timeout=body_timeout,
        max_body=max_body,
        retry_after=nginx.retry_after(slots, of),
    )
    nginx.check(made, "plain_http" in override)
    text = nginx.render(made)
    if as_json:
        data = {"kind": kind, "front": made, "configuration": text}
        envelope.write(envelope.envelope("front", Exit.OK, data))
    else:
        sys.stdout.write(text)
    return Exit.OK


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
