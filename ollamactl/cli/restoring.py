"""Plans that put files back to what they were: since one change, or before all of them."""

from __future__ import annotations

import os
import time

import msgspec

from ollamactl import platforms
from ollamactl.cli.common import need
from ollamactl.core import adopt, dropin
from ollamactl.core import plan as planning
from ollamactl.core.dropin import Managed
from ollamactl.core.facts import Facts
from ollamactl.core.feeds import Collector, uninstalled
from ollamactl.core.lint import Lint
from ollamactl.core.ours import FileChange, Ours
from ollamactl.core.plan import Plan
from ollamactl.core.source import Host, listing
from ollamactl.errors import Exit, Failure
from ollamactl.host import files
from ollamactl.host.files import Image
from ollamactl.host.journal import FRONT, Entry, Store
from ollamactl.host.written import all_since, written

Planned = tuple[Plan, Facts, dict[str, Image]]


def since(entry: Entry, store: Store, host: Host) -> Planned:
    """Everything back to what it was before a change: what that one and all later ones of its unit have written.
    Raises Failure (refused) where somebody else has changed one of these files since."""
    facts, ours = _now(entry.unit, host)
    todo: list[tuple[str, Image, Image]] = []
    for one in reversed(written(e for e in all_since(store, entry.id) if e.unit == entry.unit)):
        now = files.image(one.path)
        own = one.path in ours.paths
        if now.digest not in (one.before.digest, one.after.digest) or (one.edited and not own):
            raise _changed(one.path, own)
        todo.append((one.path, now, one.before))
    return _plan(todo, facts, ours)


def everything(unit: str, store: Store, host: Host) -> Planned:
    """All that we ever wrote for a unit taken away: our files, whatever they hold and also where the history is lost;
    in files of others the lines that we took over. Of these files, those that somebody has changed since stay."""
    facts, ours = _now(unit, host)
    todo: list[tuple[str, Image, Image]] = []
    left: list[Lint] = []
    entries, damaged = store.entries()
    found = written(e for e in entries if e.unit == unit)
    left += [Lint("history_damaged", "warning", f"{e.text}; what only it knows of stays") for e in damaged.values()]
    clean = ours.without()
    for one in reversed(found):
        now = files.image(one.path)
        if one.path in clean or one.before.kind == "absent":
            todo.append((one.path, now, _image(clean.get(one.path), now)))
        elif now.digest == one.after.digest:
            todo.append((one.path, now, one.kept))
        elif lines := adopt.taken(_text(one.kept) or "", _text(now) or ""):
            stays = "was changed by someone else since and stays as it is"
            how = "is no longer there" if now.kind == "absent" else stays
            text = f"{one.path} {how}, without {', '.join(lines)}"
            left.append(Lint("changed_by_others", "warning", text))
    known = {one.path for one in found}
    todo = [(p, now := files.image(p), _image(clean[p], now)) for p in clean if p not in known] + todo
    plan, facts, images = _plan(todo, facts, ours)
    assert facts.service is not None
    if facts.service.load_state == "not-found" and plan.empty and not found:
        raise Failure(f"systemd knows no unit {unit}, and nothing of ollamactl is here for it", id="absent")
    return msgspec.structs.replace(plan, lints=tuple(left)), facts, images


def left_behind(store: Store, host: Host) -> str:
    """The unit that is no longer installed and that has something of ours: by the history, and by our drop-ins.
    Empty where there is none. Raises Failure (usage) with the list of several."""
    places = host.read(listing(dropin.dropin_path("*.service")))
    paths = msgspec.json.decode(places.body or b"[]", type=list[str])
    names = {os.path.basename(os.path.dirname(p)).removesuffix(".d") for p in paths}
    entries, _ = store.entries()
    names |= {e.unit for e in entries if e.unit.endswith(".service") and e.unit != FRONT}
    if len(names) > 1:
        said = f"ollamactl has changed several units: {', '.join(sorted(names))}"
        raise Failure(said, hint="name one: --unit NAME", code=Exit.USAGE, id="several_units")
    return "".join(names)


def _now(unit: str, host: Host) -> tuple[Facts, Ours]:
    collector = Collector(host, unit)
    if collector.get("service") is None and (gone := uninstalled(collector)) is not None:
        collector.take(service=gone, unit_files=(), env_files=())
    need(collector, *planning.NEEDS)
    facts = collector.facts((*planning.NEEDS, *planning.NICE), taken=time.time())
    return facts, platforms.of(host, unit).ours(collector, facts)


def _plan(todo: list[tuple[str, Image, Image]], facts: Facts, ours: Ours) -> Planned:
    """The plan of (path, as it is, as it is to be); those that stay are left out."""
    changes = tuple(
        FileChange(
            path=path,
            before=_text(now),
            after=_text(then),
            mode=then.mode if then.kind == "file" else 0o644,
            secret=path.endswith(".env"),
        )
        for path, now, then in todo
        if now.digest != then.digest
    )
    before, after = ours.managed(), ours.managed({c.path: c.after for c in changes})
    names = dict.fromkeys((*before.values, *before.unset, *after.values, *after.unset))
    other = tuple(n for n in names if _how(n, before) != _how(n, after))
    images = {path: then for path, now, then in todo if now.digest != then.digest}
    return planning.plan_of_files(changes, other, facts, ours), facts, images


def _image(text: str | None, now: Image) -> Image:
    """What is left of a file that holds lines of ours; its owner and mode stay."""
    data = (text or "").encode("utf-8", "surrogateescape")
    return Image("absent") if text is None else msgspec.structs.replace(now, data=data)


def _how(name: str, managed: Managed) -> tuple[str | None, bool]:
    return managed.values.get(name), name in managed.unset


def _text(image: Image) -> str | None:
    return None if image.kind == "absent" else image.data.decode("utf-8", "surrogateescape")


def as_text(image: Image) -> str | None:
    """What a path holds, to be shown; None where it was not there."""
    return f"(a link to {image.target})" if image.kind == "link" else _text(image)


def _changed(path: str, own: bool) -> Failure:
    return Failure(
        f"{path} was changed by someone else since; nothing was touched",
        hint=f"sudo ollamactl reset takes {'it' if own else 'our own files'} away all the same",
        code=Exit.REFUSED,
        id="changed_by_others",
    )
