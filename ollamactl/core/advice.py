"""What a person has to type where ollamactl changes nothing itself, and how a request is written in it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import msgspec

from ollamactl.core import settings
from ollamactl.core.plan import Request

HIDDEN = "SECRET"  # stands for a value that is not shown


class Step(msgspec.Struct, frozen=True):
    """`what` in words, then lines to type (or, with `file`, to put into it)."""

    what: str
    lines: tuple[str, ...] = ()
    file: str = ""


class Advice(msgspec.Struct, frozen=True):
    """`said` is why ollamactl does not do it itself; `undo` are lines that take it back."""

    way: str
    name: str
    said: str
    steps: tuple[Step, ...]
    undo: tuple[str, ...] = ()


def shown(request: Request) -> dict[str, str]:
    """The variables of a request, without what is secret."""
    return {n: HIDDEN if n in request.secret else v for n, v in request.set.items()}


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables of a server that runs, to be given again: a proxy's password is not shown."""
    found = {}
    for name, value in environment.items():
        known = settings.lookup(name)
        found[name] = HIDDEN if known is not None and known.secret and "@" in value else value
    return found


def gone(request: Request) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*request.unset, *request.release)))


def assigned(variables: Mapping[str, str]) -> list[str]:
    """NAME=value as words of a shell."""
    return [shlex.quote(f"{n}={v}") for n, v in variables.items()]


def again(request: Request) -> str:
    """The same change as a command of ollamactl, for where it can be made."""
    words = [w for n, v in request.set.items() for w in ("--set", f"{n}=@FILE" if n in request.secret else f"{n}={v}")]
    for option, names in (("--unset", request.unset), ("--release", request.release), ("--model", request.models)):
        words += [w for n in names for w in (option, n)]
    return shlex.join(["ollamactl", "apply", *words])


def told_of_secrets(found: Advice) -> Advice:
    """The advice with a word on what its lines do not show."""
    if not any(HIDDEN in line for step in found.steps for line in step.lines):
        return found
    step = Step(f"{HIDDEN} stands for a value that is not shown: put it there yourself.")
    return msgspec.structs.replace(found, steps=(*found.steps, step))
