"""A container of a compose project: our file is the one whose values win (see core/compose.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from ollamactl.core import compose, settings
from ollamactl.core.adopt import Adopted, Edit
from ollamactl.core.dropin import Managed
from ollamactl.core.facts import Compose, Container, Effective, Facts, Origin, Variable
from ollamactl.core.lint import Lint
from ollamactl.core.ours import FileChange
from ollamactl.errors import Exit, Failure

INSIDE = Lint(
    "container_address",
    "error",
    "OLLAMA_HOST is the address inside the container: from outside it is reached by the port that is published",
    'leave it, and publish another address: ports: ["127.0.0.1:11434:11434"]',
    "OLLAMA_HOST",
)


class ComposeFile(msgspec.Struct, frozen=True):
    """`text` is our file as it is (None: absent); `image` and `base` are the variables of the image and of the
    project's other files; `hash` is what these files would make of the service today. `render(service, values, unset)`
    gives our file."""

    facts: Facts
    box: Container
    project: Compose
    path: str
    text: str | None
    image: Mapping[str, str]
    base: Mapping[str, str]
    hash: str
    render: Callable[[str, Mapping[str, str], tuple[str, ...]], str]

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path,)

    def without(self) -> dict[str, str | None]:
        return {self.path: None}

    def managed(self, texts: Mapping[str, str | None] | None = None) -> Managed:
        now = compose.managed((texts or {}).get(self.path, self.text))
        return Managed(now.values, now.unset, tuple(n for n in now.values if _is_secret(n)))

    def adoptable(self, before: Managed, release: str) -> Adopted:
        return Adopted(left=(Lint("not_adopted", "warning", "--adopt takes over lines of systemd's files only"),))

    def in_file(self, names: Iterable[str]) -> list[str]:
        return []

    def where(self, name: str, after: Managed) -> str:
        return self.path.rsplit("/", 1)[-1]

    def changes(self, after: Managed) -> tuple[FileChange, ...]:
        before = self.managed()
        if (after.values, after.unset) == (before.values, before.unset):
            return ()
        text = None if after.empty else self._text(after)
        secret = bool(after.in_file or before.in_file)
        mode = 0o600 if after.in_file else 0o644
        return (FileChange(path=self.path, before=self.text, after=text, mode=mode, secret=secret),)

    def _text(self, after: Managed) -> str:
        values = {}
        for name, value in after.values.items():
            try:
                values[name] = compose.quoted(value)
            except ValueError as error:
                said = f"{name}: a compose file can't hold {error}"
                raise Failure(said, hint="a value is one line of text", code=Exit.USAGE, id="value_refused") from None
        return self.render(compose.quoted(self.project.service), values, after.unset)

    def effective(self, changes: tuple[FileChange, ...], edits: tuple[Edit, ...] = ()) -> Effective:
        after = self.managed({c.path: c.after for c in changes})
        variables = {}
        for name, value in compose.together(self.image, self.base, after).items():
            where = self.path if name in after.values else "the project's files" if name in self.base else "the image"
            variables[name] = Variable(name=name, value=value, origin=Origin(layer="container", file=where))
        return Effective(variables=variables)

    def lints(self, after: Managed) -> list[Lint]:
        found = [INSIDE] if "OLLAMA_HOST" in after.values and self.box.network != "host" else []
        known = self.project.hash
        if known and self.hash and known != self.hash and not compose.ours(self.text):
            said = (
                "the project's files would make another container than the one that runs: they were changed since, or "
                "it was started with variables of a shell that are not here"
            )
            up = " ".join(compose.argv(self.project, self.project.files, "up", "-d", self.project.service))
            found.append(Lint("compose_files_changed", "error", said, f"first, as it was started: {up}"))
        return found


def _is_secret(name: str) -> bool:
    setting = settings.lookup(name)
    return setting is not None and setting.secret
