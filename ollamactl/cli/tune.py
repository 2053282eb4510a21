"""`ollamactl tune`: how many slots, predicted, then measured at the real concurrency, with the host put back after."""

from __future__ import annotations

import secrets
import time

import click
import msgspec

from ollamactl import platforms
from ollamactl.cli import sizes
from ollamactl.cli.common import (
    Number,
    chosen_unit,
    color_option,
    command_line,
    json_option,
    need,
    outputs,
    timeout_option,
    transaction,
    unit_option,
    wait_option,
    write_file,
)
from ollamactl.cli.plan import token_counts
from ollamactl.core import plan as planning
from ollamactl.core.facts import Facts
from ollamactl.core.feeds import Collector
from ollamactl.core.plan import Plan, Request, full_name
from ollamactl.core.settings import MAX_SLOTS, REGISTRY
from ollamactl.core.sizing import AUTO_MOST
from ollamactl.core.tune import Step, counts, forecast
from ollamactl.errors import Exit, Failure
from ollamactl.host import measured, modelfiles, probing, tuning
from ollamactl.host.live import LiveHost
from ollamactl.report import envelope, screens
from ollamactl.report import tune as report
from ollamactl.report.text import Terminal

SLOTS, CONTEXT = "OLLAMA_NUM_PARALLEL", "OLLAMA_CONTEXT_LENGTH"


@click.command()
@click.argument("model")
@click.option("--max", "most", metavar="N", default=AUTO_MOST, type=click.IntRange(1, MAX_SLOTS),
              help=f"The most slots to try. [{AUTO_MOST}]")  # fmt: skip
@click.option("--context-length", metavar="N", help="Tokens of context of each slot: 8192, 8k.")
@click.option("--ttft", metavar="S", type=Number(0.001, 86400), help="Longest time to the first token.")
@click.option("--min-tokens-per-second", "rate", metavar="R", type=Number(0.001, 1e6),
              help="The least that each request may get.")  # fmt: skip
@click.option("--apply", "keep", is_flag=True, help="Apply what is recommended.")
@click.option("--prompt-tokens", metavar="N", type=click.IntRange(1, 10_000_000), help="Length of each prompt.")
@click.option("--output-tokens", metavar="N", type=click.IntRange(2, 100_000), default=64,
              help="Tokens that each request asks for. [64]")  # fmt: skip
@click.option("--rounds", metavar="N", type=click.IntRange(1, 100), default=2,
              help="Requests that each client sends in turn. [2]")  # fmt: skip
@click.option("--time-limit", metavar="S", type=Number(1, 86400), default=600.0,
              help="For measuring one load. [600]")  # fmt: skip
@timeout_option
@wait_option
@click.option("--html", "html_file", type=click.Path(dir_okay=False, writable=True), help="Write a report here.")
@unit_option
@color_option
@json_option
def tune(
    model: str,
    most: int,
    context_length: str | None,
    ttft: float | None,
    rate: float | None,
    keep: bool,
    prompt_tokens: int | None,
    output_tokens: int,
    rounds: int,
    time_limit: float,
    timeout: float,
    wait: float,
    html_file: str | None,
    unit: str,
    no_color: bool,
    as_json: bool,
) -> int:
    """Find how many slots MODEL should have on this host: as many as stay on the GPU (on a host without one: in
    memory) by the prediction are loaded and measured with 1, 2, 4 … requests at once, and other numbers only if the
    measurement says so. The service is restarted three times at most, and its users notice; afterwards everything is
    as it was before, whatever happens, unless --apply is given.

    \b
    sudo ollamactl tune qwen3:8b
    sudo ollamactl tune qwen3:8b --context-length 16k --ttft 2 \\
        --min-tokens-per-second 15 --apply

    Exit codes: 0 a number is recommended · 1 none is · 3 stopped or failed, the host is as it was · 4 not put back
    """
    outputs(html_file)
    contexts = token_counts(context_length)
    if len(contexts) > 1:
        raise Failure("--context-length: one at a time", hint="--context-length 8k", code=Exit.USAGE, id="usage")
    host = LiveHost()
    platforms.of(host, unit).may_change(host, unit, command_line())
    out = Terminal(colour=False if no_color else None)
    screen = screens.Apply(out, quiet=as_json, command="tune")
    run = _Run(host, unit, model, contexts[0] if contexts else None, screen)
    limits = {"first_token": ttft, "rate": rate}
    wanted = probing.Wanted(
        model=full_name(model),
        rounds=rounds,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        time_limit=time_limit,
        seed=secrets.randbelow(2**31),
    )
    with transaction(host, unit, screen, wait, timeout) as context:
        subject = run.subject(most, limits, wanted)
        if not as_json:
            report.opening(out, run.facts, subject, run.slots_now)
        found = tuning.tune(context, subject, run.plan_at, keep, run.begins)
    done = report.Report(
        unit=run.unit_name,
        subject=subject,
        tuned=found,
        slots_now=run.slots_now,
        context_now=run.context_now,
        context=run.context,
        taken=run.facts.taken,
        version=run.facts.version or "",
        kept=keep,
    )
    for trial in found.trials:
        if trial.probe is not None:
            measured.store(trial.probe)
    if html_file:
        from ollamactl.report.tune_html import page

        write_file(html_file, page(done))
    code = report.exit_code(done)
    if as_json:
        data = {**report.document(done), "steps": screen.steps, "notes": screen.notes}
        envelope.write(envelope.envelope("tune", code, data, report.failures(done), found.result.status))
    else:
        report.screen(out, done, screen)
    return code


class _Run:
    """Plans of one call; facts are read anew for each."""

    def __init__(self, host: LiveHost, unit: str, model: str, context: int | None, screen: screens.Apply) -> None:
        self.host, self.unit, self.model, self.context, self.screen = host, unit, model, context, screen
        self.facts = Facts()
        self.unit_name = ""
        self.slots_now: int | None = None
        self.context_now = 0

    def subject(self, most: int, limits: dict[str, float | None], wanted: probing.Wanted) -> tuning.Subject:
        """What is predicted. Raises Failure where the model or the service can't be tuned."""
        facts = self.facts = self._facts()
        if facts.service is None or facts.service.active_state != "active":
            raise Failure(
                f"{self.unit_name} does not run",
                hint=f"sudo systemctl start {self.unit_name}; sudo ollamactl doctor says why it might not",
                id="not_running",
            )
        name = full_name(self.model)
        model = modelfiles.model(modelfiles.find(name, modelfiles.folders(facts)))
        model = msgspec.structs.replace(model, name=name)
        if model.hyper.is_embedding:
            raise Failure(
                f"{name} is an embedding model: Ollama gives it one slot, and it generates no tokens to measure",
                hint="name a model that completes text",
                code=Exit.USAGE,
                id="no_generation",
            )
        if self.context is not None and model.num_ctx:
            raise Failure(
                f"{name} has num_ctx {model.num_ctx} in its Modelfile, which goes before any setting of the server",
                hint="leave --context-length out, or make a model with another num_ctx (ollama create)",
                code=Exit.USAGE,
                id="usage",
            )
        others = [s.model for s in sizes.subjects_of(facts, ())[0] if s.model.name != name]
        settings, room = sizes.ground(facts, {CONTEXT: str(self.context)} if self.context else {})
        wish, cells = forecast(model, others, settings, room, most, limits["first_token"], limits["rate"])
        now = next((r for r in facts.runners or () if r.name == name and r.slots), None)
        configured = planning.running_value(facts, SLOTS) or "1"
        self.slots_now = now.slots if now else max(1, int(configured)) if configured.isdigit() else None
        self.context_now = cells[0].context
        return tuning.Subject(
            model=model,
            wish=wish,
            cells=cells,
            budget=room,
            address=facts.address or "127.0.0.1:11434",
            wanted=lambda slots: msgspec.structs.replace(wanted, clients=counts(slots)),
        )

    def _facts(self) -> Facts:
        collector = Collector(self.host, self.unit)
        self.unit_name = chosen_unit(collector)
        need(collector, *planning.NEEDS)
        return collector.facts((*planning.NEEDS, *planning.NICE, "memory"), taken=time.time())

    def plan_at(self, slots: int, good: bool) -> tuple[Plan, Facts]:
        """One number of slots. A load that is only tried may well leave the GPU: that is what it is tried for."""
        facts = self._facts()
        wanted = {SLOTS: str(slots)} | ({CONTEXT: str(self.context)} if self.context is not None else {})
        wanted = {name: value for name, value in wanted.items() if not _is_so(facts, name, value)}
        request = Request(set=wanted, models=(self.model,), overrides=() if good else ("fit",))
        ours = platforms.of(self.host, self.unit_name).ours(Collector(self.host, self.unit_name), facts)
        plan = planning.plan(request, facts, ours)
        if not good:
            plan = msgspec.structs.replace(plan, overrides=tuple(dict.fromkeys((*plan.overrides, "fit"))))
            self._changed(plan)
        return plan, facts

    def begins(self, step: Step, number: int) -> None:
        if not self.screen.quiet:
            report.load(self.screen.out, step, number)

    def _changed(self, plan: Plan) -> None:
        if not self.screen.quiet:
            report.changed(self.screen.out, plan, (CONTEXT,))


def _is_so(facts: Facts, name: str, value: str) -> bool:
    """Whether the server runs with that value, and would after its next start: then nothing need be written."""
    assert facts.effective is not None
    text = facts.effective.value(name)
    will = REGISTRY[name].read(text or "", facts.version or "").printed
    return planning.running_value(facts, name) == value == will
