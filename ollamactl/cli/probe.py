"""`ollamactl probe`: what concurrent requests experience, and why."""

from __future__ import annotations

import secrets
import sys

import click

from ollamactl.cli.common import Number, color_option, json_option, outputs, this_server, unit_option, write_file
from ollamactl.core.facts import Process
from ollamactl.errors import Exit, Failure
from ollamactl.host import measured, probing, wire
from ollamactl.host.live import LiveHost
from ollamactl.host.slots import Slots, is_here
from ollamactl.report import envelope
from ollamactl.report import probe as report
from ollamactl.report.text import Terminal


class Counts(click.ParamType):  # type: ignore[type-arg]
    """1,2,4,8"""

    name = "N,N,…"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            found = tuple(int(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value} is no list of numbers such as 1,2,4,8")
        if not all(0 < n <= probing.MOST_CLIENTS for n in found):
            self.fail(f"from 1 to {probing.MOST_CLIENTS} requests at once")
        return found


@click.command()
@click.argument("model")
@click.option("-n", "clients", metavar="N", type=click.IntRange(1, probing.MOST_CLIENTS), help="Requests at once. [8]")
@click.option("--sweep", type=Counts(), help="Several numbers of requests at once, one after the other.")
@click.option(
    "--rounds", metavar="N", type=click.IntRange(1, 1000), default=1, help="Requests each client sends in turn. [1]"
)
@click.option(
    "--rate", metavar="R", type=Number(0.001, 10_000), help="Arrivals a second, at random (Poisson), instead."
)
@click.option(
    "--for",
    "seconds",
    metavar="S",
    type=Number(0.1, 3600),
    default=30.0,
    help="With --rate: seconds of arrivals. [30]",
)
@click.option("--prompt-tokens", metavar="N", type=click.IntRange(1, 10_000_000), help="Length of each prompt.")
@click.option(
    "--output-tokens",
    metavar="N",
    type=click.IntRange(1, 100_000),
    default=64,
    help="Tokens to ask for, at most. [64]",
)
@click.option("--cold", is_flag=True, help="Unload the model first: also what happens while it loads.")
@click.option("--client-timeout", metavar="S", type=Number(0.01, 86400), help="Seconds after which a client gives up.")
@click.option("--time-limit", metavar="S", type=Number(1, 86400), default=600.0, help="Seconds for all. [600]")
@click.option("--url", metavar="URL", help="Another server than this host's, or a front before it.")
@click.option("--key-file", type=click.Path(dir_okay=False), help="File with the key that a front wants.")
@click.option(
    "--seed", metavar="N", type=click.IntRange(0, 2**31), help="Prompts and arrivals of an earlier measurement."
)
@click.option("--csv", "csv_file", type=click.Path(dir_okay=False, writable=True), help="Write each request here.")
@click.option("--html", "html_file", type=click.Path(dir_okay=False, writable=True), help="Write a report here.")
@unit_option
@color_option
@json_option
def probe(
    model: str,
    clients: int | None,
    sweep: tuple[int, ...] | None,
    rounds: int,
    rate: float | None,
    seconds: float,
    prompt_tokens: int | None,
    output_tokens: int,
    cold: bool,
    client_timeout: float | None,
    time_limit: float,
    url: str | None,
    key_file: str | None,
    seed: int | None,
    csv_file: str | None,
    html_file: str | None,
    unit: str,
    no_color: bool,
    as_json: bool,
) -> int:
    """Send concurrent requests to MODEL and show for each whether it was served at once, queued or refused (from the
    runner's slots where they can be seen), when its first token came and how fast the others followed.

    Nothing is changed on the host; the model is loaded where it isn't, and --cold unloads it first. How long requests
    held a slot is remembered for `plan --client-timeout`.
    """
    if sum(x is not None for x in (clients, sweep, rate)) > 1:
        raise Failure("-n, --sweep and --rate exclude each other", hint="name one", code=Exit.USAGE, id="usage")
    counts = sweep or (clients or 8,)
    if sum(counts) * rounds > probing.MOST_REQUESTS or (rate or 0) * seconds > probing.MOST_REQUESTS:
        raise Failure(
            f"more than {probing.MOST_REQUESTS:,} requests", hint="fewer rounds", code=Exit.USAGE, id="usage"
        )
    outputs(csv_file, html_file)
    host = LiveHost()
    server: Process | None = None
    if url is None:
        found_there, address = this_server(host, unit)
        url = f"http://{address}"
        server = found_there.get("process") if found_there.get("unit") else None
    where = wire.target(url, _key(key_file))
    wanted = probing.Wanted(
        model=model,
        clients=counts,
        rounds=rounds,
        rate=rate,
        seconds=seconds,
        cold=cold,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        client_timeout=client_timeout,
        time_limit=time_limit,
        seed=secrets.randbelow(2**31) if seed is None else seed,
    )
    out = Terminal(colour=False if no_color else None)
    busy = Terminal(sys.stderr) if as_json else out
    found = probing.measure(where, wanted, Slots(host, where, model, server), busy.working)
    busy.working("")
    if is_here(where):
        measured.store(found)
    if csv_file:
        write_file(csv_file, report.table(found))
    if html_file:
        from ollamactl.report.probe_html import page

        write_file(html_file, page(found))
    code = Exit.OK if found.phases and not found.interrupted else Exit.UNSEEN
    if as_json:
        status = "interrupted" if found.interrupted else "limited" if found.limited else ""
        envelope.write(envelope.envelope("probe", code, report.document(found), status=status))
        return code
    report.screen(out, found)
    return code


def _key(path: str | None) -> str:
    if path is None:
        return ""
    try:
        with open(path, encoding="ascii") as file:
            key = file.read(4096).strip()
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}", code=Exit.USAGE, id="usage") from None
    except UnicodeDecodeError:
        key = ""
    if not key or not key.isprintable() or " " in key:
        raise Failure(f"{path} does not hold one key", hint="one line, no blanks", code=Exit.USAGE, id="usage")
    return key
