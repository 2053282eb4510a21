"""A unit of systemd: our drop-in, and our environment file where another one sets a name too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from ollamactl.core import adopt, dropin, environment
from ollamactl.core.dropin import Managed
from ollamactl.core.facts import Effective, Facts
from ollamactl.core.feeds import read_env_files
from ollamactl.core.lint import Lint
from ollamactl.core.ours import FileChange
from ollamactl.core.source import Host, Reading, Source

Render = Callable[[str, Managed], tuple[str | None, str | None]]


class Overlay:
    """A host as it will be when some files hold other text."""

    def __init__(self, read: Callable[[Source], Reading], files: dict[str, str | None]) -> None:
        self._read = read
        self._files = files

    def read(self, source: Source) -> Reading:
        if source.kind == "file" and self._files.get(source.args[0]) is not None:
            return Reading(source.key, (self._files[source.args[0]] or "").encode("utf-8", "surrogateescape"))
        return self._read(source)


class UnitFiles(msgspec.Struct, frozen=True):
    """`own` is the text of our drop-in and of our environment file as they are (None: absent); `render(unit, managed)`
    gives their new texts; `extra` is the feed of that name."""

    facts: Facts
    host: Host
    extra: environment.Extra
    own: tuple[str | None, str | None]
    render: Render

    @property
    def unit(self) -> str:
        assert self.facts.service is not None
        return self.facts.service.id

    @property
    def paths(self) -> tuple[str, str]:
        return dropin.dropin_path(self.unit), dropin.env_file_path(self.unit)

    def without(self) -> dict[str, str | None]:
        return dict.fromkeys(self.paths)

    def managed(self, texts: Mapping[str, str | None] | None = None) -> Managed:
        now = dict(zip(self.paths, self.own, strict=True)) | dict(texts or {})
        return dropin.managed(self.unit, now[self.paths[0]], now[self.paths[1]])

    def adoptable(self, before: Managed, release: str) -> adopt.Adopted:
        assert self.facts.unit_files is not None and self.facts.effective is not None
        return adopt.adoptable(self.unit, self.facts.unit_files, self.facts.effective, before, release)

    def in_file(self, names: Iterable[str]) -> list[str]:
        """Names that an EnvironmentFile= of others sets: an Environment= line can't win against it."""
        assert self.facts.effective is not None
        found = []
        for name in names:
            has = self.facts.effective.variables.get(name)
            origins = [o for _, o in has.shadowed] + [has.origin] if has else []
            if any(o.layer == "environment-file" for o in origins):
                found.append(name)
        return found

    def where(self, name: str, after: Managed) -> str:
        return self.paths[1 if name in after.in_file else 0].rsplit("/", 1)[-1]

    def changes(self, after: Managed) -> tuple[FileChange, ...]:
        if after == self.managed():
            return ()  # other words for the same are no change
        texts = self.render(self.unit, after)
        found = tuple(
            FileChange(path=p, before=b, after=a, mode=0o600 if p.endswith(".env") else 0o644,
                       secret=p.endswith(".env"))
            for p, b, a in zip(self.paths, self.own, texts, strict=True)
            if a != b
        )  # fmt: skip
        # The environment file must be there before the drop-in names it, and must outlive the drop-in's removal.
        return tuple(reversed(found)) if texts[1] is not None else found

    def effective(self, changes: tuple[FileChange, ...], edits: tuple[adopt.Edit, ...] = ()) -> Effective:
        facts = self.facts
        assert facts.service is not None and facts.unit_files is not None
        texts = dict(zip(self.paths, self.own, strict=True)) | {c.path: c.after for c in changes}
        files = adopt.with_edits(dropin.with_file(facts.unit_files, self.paths[0], texts[self.paths[0]]), edits)
        overlay = Overlay(self.host.read, {self.paths[1]: texts[self.paths[1]]})
        env_files = read_env_files(facts.service, files, overlay.read)
        return environment.effective(facts.service, files, env_files, facts.manager_environment, self.extra)

    def lints(self, after: Managed) -> list[Lint]:
        return []
