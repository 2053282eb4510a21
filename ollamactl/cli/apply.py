"""`ollamactl apply`: the main job."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from ollamactl import platforms
from ollamactl.cli import elsewhere
from ollamactl.cli.common import (
    Number,
    chosen_unit,
    command_line,
    json_option,
    need,
    timeout_option,
    transaction,
    unit_option,
    wait_option,
)
from ollamactl.core import plan as planning
from ollamactl.core import settings
from ollamactl.core.facts import Facts
from ollamactl.core.feeds import Collector
from ollamactl.core.plan import Plan, Request
from ollamactl.errors import Exit, Failure
from ollamactl.host import apply as changing
from ollamactl.host.apply import Context, Result
from ollamactl.host.live import LiveHost
from ollamactl.report import screens
from ollamactl.report.text import Terminal

if TYPE_CHECKING:
    from ollamactl.core.preflight import Preflight


def _setting_options(function: Any) -> Any:
    """One option for each setting of the registry that has a flag."""
    for setting in reversed(settings.FLAGGED):
        name = setting.flag.lstrip("-").replace("-", "_")
        option = click.option(setting.flag, f"setting_{name}", metavar=setting.metavar, help=_sentence(setting.help))
        function = option(function)
    return function


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


@click.command()
@_setting_options
@click.option("--set", "sets", metavar="KEY=VALUE", multiple=True, help="Any other variable; KEY=@FILE for a secret.")
@click.option("--unset", "unsets", metavar="KEY", multiple=True, help="Make a variable absent, whoever sets it.")
@click.option("--release", "releases", metavar="KEY", multiple=True, help="No longer manage a variable.")
@click.option("--adopt", is_flag=True, help="Take over OLLAMA_* lines of the main unit and override.conf.")
@click.option("--model", "models", metavar="NAME", multiple=True, help="Load this model too, as a proof.")
@unit_option
@click.option("--check", is_flag=True, help="Only show what would be done.")
@click.option("--diff", is_flag=True, help="Show the lines of the files that change.")
@timeout_option
@click.option("--drain", metavar="S", type=Number(0, 86400), help="Wait until no request is in flight.")
@click.option("--cut", is_flag=True, help="With --drain: go on when the time is over.")
@click.option("--watch", metavar="S", default=0.0, type=Number(0, 86400), help="Undo if it dies in S after the proof.")
@wait_option
@click.option("--start", is_flag=True, help="Start the service if it does not run.")
@click.option("--override", "overrides", metavar="ID", multiple=True, help="Go ahead in spite of that refusal.")
@json_option
def apply(
    sets: tuple[str, ...],
    unsets: tuple[str, ...],
    releases: tuple[str, ...],
    adopt: bool,
    models: tuple[str, ...],
    unit: str,
    check: bool,
    diff: bool,
    timeout: float,
    drain: float | None,
    cut: bool,
    watch: float,
    wait: float,
    start: bool,
    overrides: tuple[str, ...],
    as_json: bool,
    **flags: str | None,
) -> int:
    """Change settings of an Ollama service, prove layer by layer that they took, or put the host back.

    \b
    sudo ollamactl apply --parallel 4
    sudo ollamactl apply --parallel 2 --context-length 16384 --model qwen3:8b
    sudo ollamactl apply --parallel auto --model qwen3:8b    as many as fit
    sudo ollamactl apply --set OLLAMA_ORIGINS=https://chat.example --check --diff

    Exit codes: 0 applied and verified, or nothing to do · 3 failed, the host is as it was · 4 failed and not put
    back · 5 could not look · 6 refused, nothing touched.
    """
    if cut and drain is None:
        raise Failure("--cut goes with --drain SECONDS", hint="--drain 60 --cut", code=Exit.USAGE, id="usage")
    request = _request(flags, sets, unsets, releases, models, overrides, adopt)
    how = _How(timeout, start, drain, cut, watch, wait)
    screen = screens.Apply(Terminal(), quiet=as_json, diff=diff)
    try:
        return _apply(LiveHost(), unit, request, screen, how, check, as_json)
    except elsewhere.Elsewhere as error:
        found = error.advice
    except Failure as error:
        facts = elsewhere.seen(LiveHost(), unit, error)
        if facts is None or facts.install is None:
            raise
        name = f"compose:{facts.install.name}"
        if facts.install.way == "compose" and not unit and _has_place(name):
            return _apply(LiveHost(), name, request, screen, how, check, as_json)
        found = elsewhere.advised(LiveHost(), unit, request, facts)
    from ollamactl.report.elsewhere import show

    return show(screen.out, found, as_json)


def _has_place(unit: str) -> bool:
    """Whether ollamactl has a file of its own in the project of a container."""
    from ollamactl.platforms import compose

    return compose.supported(LiveHost(), unit)


class _How(NamedTuple):
    timeout: float
    start: bool
    drain: float | None
    cut: bool
    watch: float
    wait: float


def _apply(
    host: LiveHost, unit: str, request: Request, screen: screens.Apply, how: _How, check: bool, as_json: bool
) -> int:
    if not check:
        platforms.of(host, unit).may_change(host, unit, command_line())
    run = _Run(host, unit, request, screen)
    if check:
        return screen.finish(run.plan_now(), None, as_json, check=True)
    with transaction(host, unit, screen, how.wait, how.timeout) as opened:
        context = msgspec.structs.replace(opened, start=how.start, watch=how.watch)
        plan = run.plan_now()
        if plan.refused or (plan.empty and not how.start and not request.models):
            return screen.finish(plan, None, as_json)
        if plan.empty and plan.running:
            proven = changing.prove(context, plan, run.facts, request.models)
            run.remember(proven)
            return screen.finish(plan, proven, as_json)
        screen.plan(plan, run.facts)
        _drain(context, plan, how.drain, how.cut, screen)
        result = changing.change(context, plan, run.facts, request.models)
        run.remember(result)
    return screen.finish(plan, result, as_json)


class _Run:
    """The planning of one call: facts are read anew each time, since the lock may have been waited for."""

    def __init__(self, host: LiveHost, unit: str, request: Request, screen: screens.Apply) -> None:
        self.host, self.unit, self.request, self.screen = host, unit, request, screen
        self.facts = Facts()
        self.sizes: Preflight | None = None

    def remember(self, result: Result) -> None:
        """Prediction and measurement of what was loaded, for later plans. The change is done: no signal undoes it."""
        if self.sizes is not None and result.status in ("applied", "unchanged"):
            from ollamactl.cli import sizes
            from ollamactl.host.context import signals_wait

            with signals_wait():
                for said in sizes.remember(self.sizes, result, Collector(self.host, self.unit)):
                    self.screen.step(said)

    def _sized(self, plan: Plan, request: Request, collector: Collector) -> Plan:
        """The plan with the pre-flight of what is loaded or named, where anything is to be started anew."""
        if plan.refused or not (plan.restart or request.models):
            return plan
        from ollamactl.cli import sizes
        from ollamactl.core.preflight import judged
        from ollamactl.report.plan import forecast_rows
        from ollamactl.report.plan_data import forecast_data

        self.sizes = found = sizes.check(plan, self.facts, request, collector)
        self.screen.memory_rows, self.screen.memory = forecast_rows(found), forecast_data(found)
        self.screen.memory_notes += found.notes
        return judged(plan, found, request)

    def plan_now(self) -> Plan:
        collector = Collector(self.host, self.unit)
        collector.begin("units", "service", "manager_environment", "gpus")
        chosen_unit(collector)
        need(collector, *planning.NEEDS)
        unasked = {"connections"} if self.request.models else {"connections", "installed"}
        wanted = tuple(f for f in (*planning.NEEDS, *planning.NICE) if f not in unasked)
        collector.begin(*wanted)
        if any(collector.get("effective").value(name) != value for name, value in self.request.set.items()):
            _meanwhile()
        self.screen.facts = self.facts = collector.facts(wanted, taken=time.time())
        elsewhere.of_unit(self.request, self.facts, collector)
        ours = platforms.of(self.host, self.unit).ours(collector, self.facts)
        request = self.request
        self.screen.memory_notes = []
        if request.set.get("OLLAMA_NUM_PARALLEL", "").strip().lower() == "auto":
            from ollamactl.cli import sizes

            request, why = sizes.with_auto(request, self.facts, collector)
            self.screen.memory_notes.append(why)
        plan = planning.plan(request, self.facts, ours)
        if plan.reload and not plan.refused:
            collector.begin("inspected")
        if plan.restart and not plan.refused:  # whom it would cut off
            connections = collector.get("connections")
            self.screen.facts = self.facts = msgspec.structs.replace(self.facts, connections=connections)
        plan = self._sized(plan, request, collector)
        if plan.reload and not plan.refused:  # asked only now: an engine of containers takes its time to answer
            self.screen.gpu_containers = collector.get("gpu_containers") or ()
        asked = self.request.set or self.request.unset or self.request.release or self.request.adopt
        if not asked and plan.managed.empty:
            raise Failure(
                "nothing to apply: no setting was named and none is managed yet",
                hint="ollamactl apply --parallel 4; ollamactl apply --help lists the settings",
                code=Exit.USAGE,
                id="usage",
            )
        return plan


def _meanwhile() -> None:
    """What a change takes is imported while the readings that have begun wait for other programs."""
    import jinja2  # noqa: F401

    from ollamactl.cli import sizes  # noqa: F401


def _request(
    flags: dict[str, str | None],
    sets: tuple[str, ...],
    unsets: tuple[str, ...],
    releases: tuple[str, ...],
    models: tuple[str, ...],
    overrides: tuple[str, ...],
    adopt: bool,
) -> Request:
    wanted: dict[str, str] = {}
    secret: list[str] = []
    for setting in settings.FLAGGED:
        value = flags.get("setting_" + setting.flag.lstrip("-").replace("-", "_"))
        if value is not None:
            wanted[setting.name] = value
    for item in sets:
        name, found, value = item.partition("=")
        if not found or not name:
            raise Failure(f"--set {item}: not KEY=VALUE", hint="--set OLLAMA_ORIGINS=…", code=Exit.USAGE, id="usage")
        if name in wanted:
            raise Failure(f"{name} is set twice", hint="say it once", code=Exit.USAGE, id="usage")
        if value.startswith("@"):
            value = _secret(value[1:])
            secret.append(name)
        elif (setting_ := settings.lookup(name)) is not None and setting_.secret and "@" in value:
            secret.append(name)  # a proxy's password would stand in Environment=, which everyone can read
        wanted[name] = value
    from ollamactl.core.dropin import NAME

    for name in (*wanted, *unsets, *releases):
        if not NAME.fullmatch(name):
            raise Failure(
                f"{name!r} is no name of a variable", hint="letters, digits and _ only", code=Exit.USAGE, id="usage"
            )
    both = {*wanted} & {*unsets, *releases} | {*unsets} & {*releases}
    if both:
        raise Failure(f"{', '.join(sorted(both))} can't be set and taken away at once", code=Exit.USAGE, id="usage")
    for name, value in wanted.items():
        if any(c in value for c in "\n\r\0"):
            raise Failure(
                f"{name}: a line end or NUL in a value is refused",
                hint="a value is one line of text",
                code=Exit.USAGE,
                id="value_refused",
            )
        if len(value.encode("utf-8", "surrogateescape")) > 65536:
            raise Failure(f"{name}: a value of more than 64 KiB is refused", code=Exit.USAGE, id="value_refused")
    return Request(
        set=wanted,
        unset=tuple(dict.fromkeys(unsets)),
        release=tuple(dict.fromkeys(releases)),
        secret=tuple(secret),
        models=tuple(dict.fromkeys(models)),
        overrides=overrides,
        adopt=adopt,
    )


def _secret(path: str) -> str:
    try:
        with open(path, "rb") as f:
            data = f.read(65537)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}", code=Exit.USAGE, id="usage") from None
    try:
        return data.decode().removesuffix("\n")
    except UnicodeDecodeError:
        raise Failure(f"{path} is not UTF-8 text", code=Exit.USAGE, id="value_refused") from None


def _drain(context: Context, plan: Plan, drain: float | None, cut: bool, screen: screens.Apply) -> None:
    if drain is None or not plan.restart:
        return
    if not changing.wait_for(context, plan, drain) and not cut:
        raise Failure(
            f"requests are still in flight after {drain:.0f} s; nothing was changed",
            hint="wait longer, or restart anyway: --cut (new requests can't be held back without a front)",
            code=Exit.REFUSED,
            id="still_busy",
        )
