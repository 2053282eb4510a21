"""Clients: what they send, how long they wait, whom they reach."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core import govalues, settings
from ollamactl.core.checks.base import Finding, check, quote, seconds, times
from ollamactl.core.checks.timeouts import clusters, shown
from ollamactl.core.facts import Facts, Start, Stray
from ollamactl.core.inflight import is_work
from ollamactl.core.needs import NO_SIGNS, Given, Gone, Signs


@check(weight=50)
def request_running_invisible_in_log(start: Start, facts: Facts) -> Iterator[Finding]:
    """A request ran for very long before it was written down.

    Why: access lines are written when a request ends; an endless generation is not in the log until then.
    Seen: a single failed request of ten minutes and more, at the end of a start.
    Do: bound the answers: num_predict.
    """
    long = [r for r in start.failed if r.status in (499, 500) and r.seconds >= 630 and is_work(r.path)]
    if long and not clusters(tuple(long)):
        yield Finding(
            "warning",
            f"a request ran for {seconds(long[-1].seconds)} and was in no log before its end",
            shown(long),
            'send "options": {"num_predict": 2048} with requests',
        )


@check(weight=60)
def request_never_reaches_slot(
    signs: Signs, facts: Facts, release: tuple[int, ...] = (), start: Start | None = None
) -> Iterator[Finding]:
    """A request was accepted and never given to a runner.

    Why: it hung in the server before a slot was launched; the error is the client's time-out.
    Seen: a long failed request, and no line of a slot meanwhile, though this release prints one for each.
    Do: restart the server; upgrade.
    """
    fix = "sudo systemctl restart ollama    # and upgrade"
    if signs.has("never_begun"):
        yield Finding("warning", "a request never reached a slot", signs.lines("never_begun"), fix)
        return
    if start is None:
        raise Gone(facts.why("start"), "start")
    long = [
        r for r in start.failed if r.status in (499, 500) and r.seconds >= 120 and is_work(r.path) and r.at is not None
    ]
    if not long or (release and release < (0, 30)) or signs.has("client_gone_during_load"):
        return
    if not release and not any("llama-server" in x.text for x in start.loads) and not signs.has("slot_launched"):
        return
    for request in long:
        begun = (request.at or 0) - request.seconds
        slots = [e for e in signs.of("slot_launched") if e.at is not None]
        loads = [x for x in start.loads if x.at is not None and begun - 1 <= x.at <= (request.at or 0)]
        served = [
            r for r in start.recent if r.status == 200 and r.at is not None and begun <= r.at <= (request.at or 0)
        ]
        between = [e for e in slots if begun - 1 <= (e.at or 0) <= (request.at or 0)]
        seen = signs.count("slot_launched") <= len(slots) or not signs.count("slot_launched")
        if not between and not loads and not served and seen and start.loads[-1:] != ():
            yield Finding(
                "warning",
                f"a request of {seconds(request.seconds)} never reached a slot",
                shown([request]),
                fix,
            )
            return


def _one_address(value: str) -> bool:
    """Whether it is an address of one interface that is not the loopback's."""
    found = re.match(r"(?:https?://)?(\d+\.\d+\.\d+\.\d+)(?::\d+)?/?$", value)
    return found is not None and not found[1].startswith(("127.", "0."))


@check(weight=58, explains=("server_not_reachable", "wildcard_bind_shown_as_ipv6"))
def client_host_differs_from_server(
    facts: Facts,
    signs: Signs = NO_SIGNS,
    start: Start | None = None,
    given: tuple[Given, ...] = (),
    strays: tuple[Stray, ...] = (),
) -> Iterator[Finding]:
    """The `ollama` command asks another address than the server listens on.

    Why: the command reads OLLAMA_HOST of its own shell; the server's setting does not reach it.
    Seen: the server's address, and a client that cannot connect.
    Do: export OLLAMA_HOST in the shell.
    """
    hosts = [g for g in given if g.name == "OLLAMA_HOST"]
    ports = {m[1] for g in hosts if (m := re.search(r":(\d+)", g.value))}
    sockets = [govalues.joined(x.address, x.port) for x in facts.listeners or () if x.name == "ollama"]
    listening = (start.listening if start else "") or (sockets[0] if len(sockets) == 1 else "")
    port = listening.rsplit(":", 1)[-1] if listening else next(iter(ports), "")
    for one in strays:
        asked = settings.REGISTRY["OLLAMA_HOST"].read(one.value).printed if one.name == "OLLAMA_HOST" else ""
        asks = re.search(r"//(?:127\.\S*|localhost|0\.0\.0\.0|\[::1?\]):(\d+)$", asked)
        if one.kind == "shell" and asks and listening and asks[1] != port:
            said = f"the server listens on port {port}, the command asks {asks[1]} in shells that read {one.path}"
            places = (f"{one.path}:{one.line}: {one.text.strip()}", quote(start.listening_line if start else None))
            yield Finding("warning", said, places, f"sudoedit {one.path}    # OLLAMA_HOST=127.0.0.1:{port}")
    elsewhere = [g for g in hosts if g.scope == "client" and re.search(rf":(?!{port}\b)\d", g.value)]
    if listening and elsewhere and signs.has("client_cannot_connect", "connection_refused"):
        said = f"the server listens on {listening}, the command asks {elsewhere[0].value}"
        listens = quote(start.listening_line if start else None)
        lines = (elsewhere[0].place, listens, *signs.lines("client_cannot_connect"))
        fix = "unset OLLAMA_HOST    # and take it out of the shell's profile"
        yield Finding("warning", said, lines, fix, explains=("env_set_in_shell_not_service",))
        return
    if signs.has("host_for_server_only"):
        said = "the server was given an address that the command does not know: it asks 127.0.0.1:11434"
        fix = f"export OLLAMA_HOST=127.0.0.1:{port or 'PORT'}    # in the shell of the command too"
        lines = signs.lines("host_for_server_only", "client_cannot_connect")
        yield Finding("warning", said, lines, fix, explains=("port_in_use", "api_exposed_without_auth"))
        return
    cannot = signs.has("client_cannot_connect", "connection_refused")
    single = [g for g in hosts if g.scope in ("service", "docker", "compose", "told") and _one_address(g.value)]
    if cannot and single and not signs.has("remote_refused"):
        said = f"the server listens on {single[0].value} only, the command asks 127.0.0.1"
        lines = (single[0].place, *signs.lines("client_cannot_connect", "connection_refused"))
        so = ("bind_loopback_only", "bind_refused")
        fix = f"export OLLAMA_HOST={single[0].value}    # in the shells that run ollama; or 0.0.0.0 for the service"
        yield Finding("warning", said, lines, fix, explains=so)
        return
    if cannot and port and port != "11434" and not signs.has("unit:main_exited"):
        lines = signs.lines("client_cannot_connect", "connection_refused")
        told = " ".join(lines)
        if port in told:
            return
        said = f"the server listens on port {port}, the command asks 11434"
        yield Finding(
            "warning",
            said,
            (quote(start.listening_line) if start else hosts[0].place, *lines),
            f"export OLLAMA_HOST=127.0.0.1:{port}",
        )
    elif facts.service is not None and port and port != "11434" and not any(s.name == "OLLAMA_HOST" for s in strays):
        said = f"the server listens on port {port}: a command that is not told so asks 11434"
        shown = (quote(start.listening_line if start else None), *(g.place for g in hosts[:1]))
        fix = f"export OLLAMA_HOST=127.0.0.1:{port}    # in the shells that run ollama; or --unset OLLAMA_HOST"
        yield Finding("info", said, shown, fix, weight=45)


@check(weight=42)
def server_not_reachable(signs: Signs, facts: Facts, start: Start | None = None) -> Iterator[Finding]:
    """A client could not connect.

    Why: no server runs, it listens elsewhere, or a firewall is between.
    Seen: "connection refused", "could not connect to ollama app".
    Do: look whether it runs: systemctl status ollama; ollamactl doctor on that host.
    """
    if signs.has("container_asks_itself"):
        said = "a client in a container calls localhost, which is the container, not the host"
        fix = "OLLAMA_BASE_URL=http://host.docker.internal:11434    # or the name of its service"
        lines = signs.lines("container_asks_itself")
        yield Finding("warning", said, lines, fix, explains=("bind_loopback_only",))
    refused = [e for e in signs.of("client_cannot_connect", "connection_refused") if "proxyconnect" not in e.text]
    if refused and not (start and start.listening) and facts.service is None:
        yield Finding(
            "error",
            "a client could not connect to the server",
            signs.quotes(refused[:3]),
            "systemctl status ollama; sudo ollamactl doctor",
        )


@check(weight=62, explains=("prompt_truncated",))
def client_num_ctx_not_sent(signs: Signs, start: Start | None = None) -> Iterator[Finding]:
    """A client's context length does not reach the server.

    Why: only Ollama's native API carries num_ctx; the OpenAI form (/v1/…) has no such field.
    Seen: requests on /v1 that are cut at the default context, or the client's own words.
    Do: OLLAMA_CONTEXT_LENGTH, or a model made with PARAMETER num_ctx.
    """
    fix = "sudo ollamactl apply --context-length 32768"
    if signs.has("num_ctx_on_v1"):
        yield Finding("warning", "num_ctx is sent where the API has no such field", signs.lines("num_ctx_on_v1"), fix)
    elif signs.has("num_ctx_withheld"):
        said = "the client's context length is not sent as num_ctx"
        yield Finding("warning", said, signs.lines("num_ctx_withheld"), fix)
    elif signs.has("num_ctx_not_in_modelfile") and signs.has("num_ctx_expected"):
        yield Finding(
            "warning",
            "the client's context length is not sent as num_ctx",
            signs.lines("num_ctx_expected", "num_ctx_not_in_modelfile"),
            fix,
        )


FLOOD = 50  # lines of refused options, from which on they hide what else a log says


@check(weight=12)
def invalid_option_flood(signs: Signs) -> Iterator[Finding]:
    """A client sends options that Ollama does not know.

    Why: they are dropped with a line each; max_tokens for instance is num_predict here.
    Seen: "invalid option provided" with the names.
    Do: correct the client.
    """
    count = signs.count("invalid_option")
    if count:
        names = sorted({e.fields.get("option", "") for e in signs.of("invalid_option")} - {""})
        said = f"{times(count, 'time')} a client sent options that Ollama does not know"
        said += f": {', '.join(names[:5])}" if names else ""
        remedy = f"no {', '.join(names[:5]) or 'such option'} in the client's options"
        if "max_tokens" in names:
            remedy += "; num_predict is what bounds an answer"
        weight = 30 if count >= FLOOD else 12
        yield Finding("info", said, signs.lines("invalid_option", most=2), remedy, weight=weight)
    elif signs.has("invalid_option_flood"):
        said = "each request of a client carries options that Ollama does not know"
        yield Finding("info", said, signs.lines("invalid_option_flood"), "send num_predict for max_tokens")


@check(weight=58, explains=("server_not_reachable",))
def origin_not_allowed_403(signs: Signs = NO_SIGNS, start: Start | None = None) -> Iterator[Finding]:
    """A web page or browser extension is refused.

    Why: a request with an Origin that is not allowed gets 403 at once; curl sends none and works.
    Seen: 403 within a millisecond on API paths.
    Do: OLLAMA_ORIGINS with that origin.
    """
    refused = [
        r for r in (start.requests if start else ()) if r.status == 403 and r.seconds_min < 0.05 and r.path != "/"
    ]
    lines = signs.lines("forbidden_origin")
    if not lines and signs.has("status_403") and signs.has("browser_origin"):
        lines = signs.lines("status_403", "browser_origin")
    lines = lines or signs.lines("origin_silent")
    if refused or lines:
        count = sum(r.count for r in refused)
        said = (
            f"{times(count, 'request')} refused with 403: the web origin is not allowed"
            if count
            else "the web origin is not allowed (403)"
        )
        origin = "chrome-extension://*,moz-extension://*"
        yield Finding(
            "warning",
            said,
            (*(r.text for r in refused[:3]), *lines),
            f"sudo ollamactl apply --set 'OLLAMA_ORIGINS={origin}'",
        )
