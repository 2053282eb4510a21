"""Pulls that break off, or ask for what the registry does not give."""

from __future__ import annotations

from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check, seconds, times
from ollamactl.core.facts import LogEvent, Start
from ollamactl.core.needs import NO_SIGNS, Given, Signs

TRIES = 6  # of a part, after which Ollama gives the pull up
MANY = 8  # stalls of one blob, from which on the line does not carry it
LONG = 600  # seconds over which they are spread
SOME = 3  # stalls that are worth a word
AGAIN = "ollama pull MODEL    # again: it goes on where it stopped; a slow or cut line is between, not the server"


@check(weight=56, explains=("model_not_pulled",))
def pull_stalled(signs: Signs, start: Start | None = None) -> Iterator[Finding]:
    """A pull stalls or breaks off: the line to the registry.

    Why: a part without a byte for 30 s is asked for anew, without end; one that fails six times ends the pull. What
    was downloaded is kept, and the next pull goes on from there.
    Seen: "part … stalled; retrying", "max retries exceeded".
    Do: pull again; look at the line, the proxy and the MTU where it stays so.
    """
    failed = [e for e in signs.of("pull_part_failed") if int(e.fields["attempt"]) >= TRIES - 1]
    ended = [*failed, *signs.of("pull_given_up")]
    stalls = _of_the_last_blob(signs)
    if ended and not went_on(ended[-1], signs, start):
        why = ended[-1].fields.get("why", "").removeprefix("max retries exceeded: ")
        said = "a pull was given up: a part of the model failed six times" + (f" ({why})" if why else "")
        yield Finding("warning", said, signs.quotes(ended), AGAIN)
    elif len(stalls) >= SOME and not went_on(stalls[-1], signs, start) and not _pulled(stalls[-1], start):
        moments = [e.at for e in stalls if e.at is not None]
        lasted = max(moments, default=0.0) - min(moments, default=0.0)
        bad = len(stalls) >= MANY and (lasted >= LONG or not moments)
        said = f"a pull stalled {times(len(stalls), 'time')}" + (f" within {seconds(lasted)}" if lasted else "")
        said += " and did not end in this log"
        yield Finding("warning" if bad else "info", said, signs.quotes(stalls), AGAIN, weight=56 if bad else 8)
    elif signs.has("pull_stalls"):
        lines = signs.quotes([*signs.of("pull_stalls"), *signs.of("pull_part_failed")[-1:]])
        yield Finding("warning", "a pull stalls: the line to the registry", lines, AGAIN)


def _of_the_last_blob(signs: Signs) -> list[LogEvent]:
    stalls = signs.of("pull_stalled")
    return [e for e in stalls if e.fields.get("blob") == stalls[-1].fields.get("blob")]


def went_on(event: LogEvent, signs: Signs, start: Start | None = None) -> bool:
    """Whether the next blob was begun, a pull ended well, or a model of this start was at work, after that line."""
    line = event.line or 0
    later = (e.line or 0 for e in signs.of("registry_reached", "pull_done"))
    loads = (x.line or 0 for x in (start.loads if start else ()))
    served = (r.line or 0 for r in (start.recent if start else ()) if r.status == 200)
    return any(n > line for n in (*later, *loads, *served))


def _pulled(event: LogEvent, start: Start | None) -> bool:
    """Whether a pull that was running then has ended."""
    ends = [r.last_at for r in (start.requests if start else ()) if r.path == "/api/pull" and r.status == 200]
    return any(at is not None and event.at is not None and at >= event.at - 1 for at in ends)


@check(weight=59, explains=("proxy_not_in_service", "model_not_pulled"))
def registry_certificate_not_trusted(signs: Signs, given: tuple[Given, ...] = ()) -> Iterator[Finding]:
    """The registry's certificate is not trusted: something in between shows its own, or the clock is wrong.

    Why: a proxy or a scanner that opens https shows a certificate of its own authority; the server trusts what the
    system's store holds, in a container that of the image.
    Seen: "x509: certificate signed by unknown authority", "has expired or is not yet valid".
    Do: put that authority into the store and restart; set the clock.
    """
    found = signs.of("registry_certificate")
    shell = [g for g in given if g.name.upper() == "HTTPS_PROXY" and g.scope in ("shell", "env")]
    if not found or shell or went_on(found[-1], signs):
        return
    if any("not yet valid" in e.text or "has expired" in e.text for e in found):
        said = "the registry's certificate counts as expired or not yet valid: look at the host's clock"
        yield Finding("error", said, signs.quotes(found), "timedatectl; sudo timedatectl set-ntp true")
        return
    said = "the registry's certificate is of an authority that this host does not trust: a proxy opens https"
    fix = (
        "sudo cp PROXY-CA.crt /usr/local/share/ca-certificates/ && sudo update-ca-certificates "
        "&& sudo systemctl restart ollama    # in a container: into the container's store"
    )
    yield Finding("error", said, signs.quotes(found), fix)


@check(weight=46, explains=("model_not_pulled",))
def model_name_unknown(signs: Signs = NO_SIGNS, start: Start | None = None) -> Iterator[Finding]:
    """The registry has no model of that name.

    Why: the name or the tag is mistyped, or it is of another registry (hf.co/…); the server itself works.
    Seen: "pull model manifest: file does not exist".
    Do: look the name and its tags up.
    """
    found = [e for e in signs.of("model_name_unknown") if not went_on(e, signs, start)]
    if found:
        said = "the registry has no model, or no tag, of that name"
        fix = (
            "ollama pull NAME:TAG    # as https://ollama.com/search lists it; hf.co/OWNER/NAME:QUANT from Hugging Face"
        )
        yield Finding("warning", said, signs.quotes(found), fix)
