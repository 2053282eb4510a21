"""Models of ollama.com: the sign-in, the limits of an account, and what the server allows of it."""

from __future__ import annotations

from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check, configured
from ollamactl.core.checks.refused import in_a_row
from ollamactl.core.facts import Start
from ollamactl.core.needs import NO_SIGNS, Signs


@check(weight=47)
def cloud_sign_in_missing(signs: Signs = NO_SIGNS, start: Start | None = None) -> Iterator[Finding]:
    """A model of ollama.com is asked for, and this server is not signed in.

    Why: requests for a cloud model go on to ollama.com, signed with the server's key, which an account has to know.
    Seen: 401 on requests that run a model, which this server itself never answers.
    Do: ollama signin, or a model that runs here.
    """
    yield from _refused(
        signs.quotes(signs.of("cloud_unauthorized")),
        start,
        401,
        "ollama.com does not know this server",
        "ollama signin",
    )


@check(weight=47)
def cloud_usage_limit_reached(signs: Signs = NO_SIGNS, start: Start | None = None) -> Iterator[Finding]:
    """The account at ollama.com has used up what its plan allows.

    Why: cloud models are limited by the hour, the session and the week, some to paying accounts.
    Seen: 429 on requests that run a model, or the words of the limit. A queue that is full is 503.
    Do: wait, upgrade, or a model that runs here.
    """
    yield from _refused(
        signs.quotes(signs.of("cloud_limit")),
        start,
        429,
        "ollama.com refuses more requests of this account",
        "ollama list    # a model that runs here; the limits: https://ollama.com/settings",
    )


def _refused(told: tuple[str, ...], start: Start | None, status: int, why: str, fix: str) -> Iterator[Finding]:
    if told:
        yield Finding("warning", why, told, fix)
    elif start is not None and (run := in_a_row(start, status)):
        yield run.finding(f"{why}: {run} answered {status}", fix, 47)


@check(weight=59, explains=("origin_not_allowed_403",))
def cloud_disabled(signs: Signs = NO_SIGNS, start: Start | None = None) -> Iterator[Finding]:
    """A model of ollama.com is asked for, and this server keeps off the cloud.

    Why: OLLAMA_NO_CLOUD, or the app's setting, refuses all that would leave the host.
    Seen: "ollama cloud is disabled" at the client.
    Do: a model that runs here, or unset it.
    """
    found = signs.of("cloud_off")
    if found:
        said = "a cloud model is asked for, and the server is set to keep off the cloud"
        lines = (*signs.quotes(found), configured(start, "OLLAMA_NO_CLOUD"))
        yield Finding(
            "warning", said, lines, "sudo ollamactl apply --unset OLLAMA_NO_CLOUD    # or a model that runs here"
        )


@check(weight=47)
def registry_access_denied(signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """The registry refuses this server: its key belongs to no account, or to one without that right.

    Why: pushes and private models are allowed by the server's own key (~/.ollama/id_ed25519.pub of its user, on Linux
    /usr/share/ollama), not by that of the person at the command.
    Seen: 401 or "unauthorized" to a pull or push, "not authorized to push to this namespace", or a key that is gone.
    Do: ollama signin, or add that key to the account; a namespace of one's own.
    """
    found = signs.of("registry_denied")
    gone = [e for e in signs.of("file_missing") if e.fields.get("path", "").endswith("/.ollama/id_ed25519")]
    if gone and not signs.has("key_created"):
        said = "the server's own key is not there: it is made at a start"
        yield Finding("warning", said, signs.quotes(gone), "sudo systemctl restart ollama")
    elif found:
        push = any("push" in e.text for e in found)
        said = "the registry refuses " + (
            "the push: this server's key has no right there" if push else "this server's key"
        )
        fix = "ollama signin    # or: sudo cat /usr/share/ollama/.ollama/id_ed25519.pub, into https://ollama.com/settings/keys"
        yield Finding("warning", said, signs.quotes(found), fix)
