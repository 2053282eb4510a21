"""The home of the service's user: missing, read-only, or another than it should be."""

from __future__ import annotations

from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check, in_force, stated
from ollamactl.core.facts import Facts, LogEvent
from ollamactl.core.needs import NO_SIGNS, Signs
from ollamactl.core.remedies import edited


def denied(signs: Signs) -> list[LogEvent]:
    """What says that a folder was not to be made or opened."""
    return signs.of("folder_denied")


@check(weight=89, explains=("service_restart_loop", "models_dir_no_access"))
def service_home_missing(signs: Signs, facts: Facts) -> Iterator[Finding]:
    """The home of the service's user does not exist.

    Why: a user of that name from a distribution's package has another home; the server cannot make its key there.
    Seen: `mkdir HOME: permission denied` right after the key was not found.
    Do: make that home, or give the user the installer's.
    """
    events = [e for e in denied(signs) if e.fields.get("call") == "mkdir" and "file exists" not in e.text]
    home = facts.effective.value("HOME") if facts.effective else None
    user = (facts.service.user if facts.service else "") or "ollama"
    keys = signs.of("key_created")
    for event in events:
        path = event.fields.get("path", "")
        homes = [k.fields.get("path", "").partition("/.ollama")[0] for k in keys]
        homes += [home] if home else []
        known = path in ("/var/lib/ollama", "/usr/share/ollama", "/home/ollama")
        if path in homes or (known and "/.ollama" not in path):
            given = other_home(facts, path)
            yield Finding(
                "error",
                f"{path}, the home of the service, is not there",
                (*given, *other_user(facts), *signs.quotes([*keys[-1:], event])),
                without_home(given)
                if given
                else f"sudo install -d -o {user} -g {user} {path} && sudo systemctl restart ollama",
            )
            return


def other_user(facts: Facts) -> tuple[str, ...]:
    """Lines of drop-ins that give the service another user or group than its unit does."""
    found = [pair for key in ("User", "Group") for pair in in_force(facts.unit_files or (), key)[-1:]]
    return tuple(stated(file, one) for file, one in found if file.role == "dropin")


def other_home(facts: Facts, path: str) -> tuple[str, ...]:
    """The line of a unit's file that gives the service a home above that path, if one does."""
    given = facts.effective.variables.get("HOME") if facts.effective else None
    if given is None or given.value is None or given.origin.layer != "environment":
        return ()
    below = f"{path}/".startswith(given.value.rstrip("/") + "/")
    return (f"{given.origin.file}:{given.origin.line}: HOME={given.value}",) if below else ()


def without_home(given: tuple[str, ...]) -> str:
    return edited(given[0].partition(":")[0]) + "    # no HOME=: systemd sets the one of the service's user"


HOME_IN_VAR = (
    "sudo install -d -o ollama -g ollama /var/lib/ollama && sudo usermod -d /var/lib/ollama ollama "
    "&& sudo systemctl restart ollama"
)


@check(weight=89, explains=("service_restart_loop", "models_dir_no_access"))
def service_home_read_only(facts: Facts, signs: Signs = NO_SIGNS) -> Iterator[Finding]:
    """The home of the service's user lies on a read-only file system.

    Why: image-based systems have a read-only /usr; the installer's home /usr/share/ollama cannot be written there.
    Seen: "read-only file system".
    Do: give the user a home in /var/lib, and OLLAMA_MODELS there.
    """
    for event in signs.of("folder_read_only"):
        path = event.fields.get("path", "")
        yield Finding(
            "error",
            f"{path} is on a read-only file system",
            signs.quotes([event]),
            HOME_IN_VAR,
        )
        return
    if signs.has("image_based_system"):
        yield Finding(
            "error",
            "the home of the service's user lies on the read-only /usr of an image-based system",
            signs.lines("image_based_system"),
            HOME_IN_VAR,
        )
        return
    for path, state in (facts.paths or {}).items():
        if state.read_only:
            said = f"the models folder {path} is on a read-only file system: nothing can be pulled"
            yield Finding("warning", said, (f"statvfs {path}: read-only",), f"findmnt -T {path}", weight=62)
