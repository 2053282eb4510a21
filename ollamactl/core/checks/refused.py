"""What the server refuses of its clients: models that it does not have, what a model cannot do, bad requests."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from ollamactl.core.checks.base import Finding, check, times
from ollamactl.core.checks.timeouts import shown
from ollamactl.core.facts import Facts, Request, Start
from ollamactl.core.needs import NO_SIGNS, Signs
from ollamactl.core.parse.gin import RUNS_A_MODEL

MAKES_A_MODEL = ("/api/pull", "/api/create", "/api/copy")
IN_A_ROW = 5  # refused requests of one client for one path, from which on it is no slip
NEVER_SERVED = 3  # the same, of a client to which nothing was ever answered
# the release that brought a path; an older one answers 404 whatever the model
PATHS_SINCE: dict[str, tuple[int, ...]] = {
    "/api/chat": (0, 1, 14),
    "/v1/chat/completions": (0, 1, 24),
    "/api/embed": (0, 3),
    "/v1/completions": (0, 3),
    "/v1/embeddings": (0, 3),
    "/v1/responses": (0, 13, 3),
    "/v1/messages": (0, 14),
}


@check(weight=44)
def model_not_pulled(
    facts: Facts, signs: Signs = NO_SIGNS, start: Start | None = None, release: tuple[int, ...] = ()
) -> Iterator[Finding]:
    """Clients ask for a model that this server does not have.

    Why: a name is looked for in the models folder only: nothing but `ollama run` and `ollama pull` downloads a model,
    and a name without a tag means `:latest`.
    Seen: requests answered 404, or "model … not found" at the client. One or two before a pull are usual.
    Do: pull it by the name that the client sends, or correct the client.
    """
    told = [e for e in signs.of("model_absent") if not _cured(e.line or 0, signs, start)]
    if told:
        name = told[-1].fields.get("model", "")
        said = f"the server has no model {name}" if name else "a client asks for a model that the server does not have"
        yield Finding("warning", said, (*signs.quotes(told), *_held(facts)), _pull(name))
        return
    if start is not None and (run := in_a_row(start, 404, release)):
        weight = 44 if any(r.status == 200 for r in start.recent) else 60
        yield run.finding(f"{run} refused with 404: that model is not here", _pull(""), weight, _held(facts))


def older_than(release: tuple[int, ...], path: str) -> bool:
    """Whether a release, where it is known, is older than a path of the API."""
    return () < release < PATHS_SINCE.get(path, ())


class Run(NamedTuple):
    """Requests of one client for one path that were refused in a row, and whether they are more than a slip."""

    requests: list[Request]
    again: bool

    def __str__(self) -> str:
        return f"{times(len(self.requests), 'request')} for {self.requests[0].path} in a row"

    def finding(self, said: str, fix: str, weight: int, more: tuple[str, ...] = ()) -> Finding:
        """A warning of that weight; a slip is a note."""
        lines = (*shown(self.requests), *more)
        return Finding("warning" if self.again else "info", said, lines, fix, weight=weight if self.again else 3)


def in_a_row(start: Start, status: int, release: tuple[int, ...] = ()) -> Run | None:
    """The longest run of requests of a client for a path that were answered so since it was last served, and since a
    model was last made. One alone says nothing. Paths that a release, where it is given, lacks do not count."""
    made = [r.last_at for r in start.requests if r.path in MAKES_A_MODEL and r.status == 200 and r.last_at is not None]
    runs: dict[tuple[str, str], list[Request]] = {}
    for one in start.recent:
        key = (one.client, one.path)
        if one.status == status:
            runs.setdefault(key, []).append(one)
        elif one.status not in (400, 404):
            runs.pop(key, None)
    since = max(made, default=0.0)
    left = [[r for r in run if not made or (r.at is not None and r.at > since)] for run in runs.values()]
    left = [run for run in left if len(run) > 1 and not older_than(release, run[0].path)]
    if not left:
        return None
    longest = max(left, key=len)
    served = any(r.status == 200 and r.client == longest[0].client for r in start.recent)
    return Run(longest, len(longest) >= (IN_A_ROW if served else NEVER_SERVED))


def _cured(line: int, signs: Signs, start: Start | None) -> bool:
    """Whether a model was pulled, or a request answered, after that line."""
    pulls = (e.line or 0 for e in signs.of("pull_done"))
    answers = (r.line or 0 for r in (start.recent if start else ()) if r.status == 200)
    return any(n > line for n in (*pulls, *answers))


def _held(facts: Facts) -> tuple[str, ...]:
    """What the server has, where that is known."""
    if facts.installed is None:
        return ()
    names = ", ".join(m.name for m in facts.installed[:8])
    return (f"ollama list: {names}" if names else "ollama list: no model at all",)


def _pull(name: str) -> str:
    if not name:
        return (
            "ollama list    # then ollama pull MODEL, by the name that the client sends, or correct it in the client"
        )
    return f"ollama pull {shlex.quote(name)}    # or correct the name in the client; ollama list shows what is here"


@check(weight=43)
def model_lacks_capability(signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """A client asks for what the model cannot do: tools, thinking, images, embeddings, a chat.

    Why: what a model can is in its template and its file; Ollama answers 400 and runs nothing.
    Seen: "… does not support tools" and the like at the client.
    Do: another model, or a request without it.
    """
    found = signs.of("capability_missing")
    if found:
        fields = {key.removeprefix("tagged_"): value for key, value in found[-1].fields.items() if value}
        name, what = (fields.get(key, "") for key in ("model", "what"))
        name = name.removeprefix("registry.ollama.ai/").removeprefix("library/")
        said = f"{name or 'the model'} does not support {what or 'images'}: such requests are refused with 400"
        show = f"ollama show {shlex.quote(name)}" if name else "ollama show MODEL"
        without = '"think": false' if what == "thinking" else f"no {what or 'images'}"
        yield Finding("warning", said, signs.quotes(found), f"{show}    # its capabilities; else send {without}")


@check(weight=42)
def bad_request_400(signs: Signs = NO_SIGNS, start: Start | None = None) -> Iterator[Finding]:
    """A client sends requests that the server refuses as wrong.

    Why: JSON that does not parse, an option of the wrong type, no model, more than the model can do, or an input to
    embed that is too long; the reason goes to the client only.
    Seen: requests answered 400, or the reason at the client.
    Do: read the answer's "error" at the client.
    """
    told = signs.of("bad_request")
    if told:
        said = "a client's request is refused with 400: it is not what the API takes"
        yield Finding("warning", said, signs.quotes(told), _asked_by_hand("/api/chat"))
        return
    known = signs.has("context_exceeded", "capability_missing")
    if start is not None and not known and (run := in_a_row(start, 400)):
        fix = _asked_by_hand(run.requests[0].path)
        yield run.finding(f"{run} refused with 400: the request is wrong", fix, 42)


def _asked_by_hand(path: str) -> str:
    return f"curl -s http://127.0.0.1:11434{path} -d 'BODY AS THE CLIENT SENDS IT'    # its error says why"


@check(weight=41)
def client_path_unknown(signs: Signs = NO_SIGNS, start: Start | None = None) -> Iterator[Finding]:
    """A client asks for a path that Ollama does not have: its base address is wrong.

    Why: clients put their own part behind the address that they are given: with /v1 where they add /api/chat, or
    without it where they add /chat/completions.
    Seen: "404 page not found", or 404 on a path like /v1/api/chat.
    Do: http://HOST:11434 for Ollama's own API, http://HOST:11434/v1 for OpenAI's.
    """
    fix = "OLLAMA_BASE_URL=http://HOST:11434    # of a client for OpenAI's API: OPENAI_BASE_URL=http://HOST:11434/v1"
    asked = [r for r in (start.requests if start else ()) if r.status == 404 and _misspelt(r.path)]
    count = sum(r.count for r in asked)
    if told := signs.of("path_unknown"):
        yield Finding("warning", "a client asks for a path that Ollama does not have", signs.quotes(told), fix)
    elif start and asked:
        again = count >= NEVER_SERVED and not any(r.status == 200 for r in start.recent)
        said = f"{times(count, 'request')} for a path that Ollama does not have: {asked[-1].path}"
        yield Finding(
            "warning" if again else "info", said, tuple(r.text for r in asked[-3:]), fix, weight=41 if again else 3
        )


API = re.compile(r"/(?:chat|generate|embed|embeddings|completions|messages|responses|tags|version|models)/?$")


def _misspelt(path: str) -> bool:
    """Whether a path is one of the API's with something before it that does not belong there, or without what does."""
    return API.search(path) is not None and path not in RUNS_A_MODEL | {"/api/tags", "/api/version", "/v1/models"}
