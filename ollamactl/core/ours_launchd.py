"""A server that launchd starts: our file is a plist, lines in brew's environment file, or an agent that sets variables
at login (see core/launchd.py)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import msgspec

from ollamactl.core import launchd
from ollamactl.core.adopt import Adopted, Edit
from ollamactl.core.dropin import Managed
from ollamactl.core.facts import AppSettings, Effective, EnvFile, Facts, Launch, Service, UnitFile
from ollamactl.core.lint import Lint
from ollamactl.core.ours import FileChange
from ollamactl.core.parse import plist
from ollamactl.errors import Exit, Failure

UNPROVEN = Lint(
    "unproven_on_macos",
    "warning",
    "changing a server of launchd is not yet proven on a real Mac: look at `ollamactl verify` afterwards",
)


_NO_XML = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")


class LaunchdFiles(msgspec.Struct, frozen=True):
    """`text` is our file as it is (None: absent), `base` the bytes of the plist that we stand in for, `registered` the
    variables of the plist that brew wrote at its last start. `render(launch, managed, base)` gives our plist."""

    facts: Facts
    launch: Launch
    text: str | None
    base: bytes | None
    render: Callable[[Launch, Managed, bytes | None], str]
    app: AppSettings | None = None
    registered: Mapping[str, str] | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.launch.own_file,)

    def without(self) -> dict[str, str | None]:
        """brew's environment file is the user's: what is not ours stays in it."""
        text = self.text
        kept = launchd.with_block(text, Managed()) if self.launch.holds == "brew-file" and text is not None else None
        return {self.launch.own_file: kept}

    def managed(self, texts: Mapping[str, str | None] | None = None) -> Managed:
        text = (texts or {}).get(self.launch.own_file, self.text)
        return launchd.managed(self.launch.holds, text)

    def adoptable(self, before: Managed, release: str) -> Adopted:
        return Adopted(left=(Lint("not_adopted", "warning", "--adopt takes over lines of systemd's files only"),))

    def in_file(self, names: Iterable[str]) -> list[str]:
        return []

    def where(self, name: str, after: Managed) -> str:
        return self.launch.own_file.rsplit("/", 1)[-1]

    def changes(self, after: Managed) -> tuple[FileChange, ...]:
        if after == self.managed():
            return ()
        text = self._text(after)
        if text == self.text:
            return ()
        mode: int | None = 0o600 if after.in_file else 0o644
        if self.launch.holds == "brew-file":  # the file is the user's, with lines of ours in it
            mode = 0o600 if self.text is None else None
        path, secret = self.launch.own_file, bool(after.in_file or self.managed().in_file)
        return (FileChange(path=path, before=self.text, after=text, mode=mode, secret=secret),)

    def _text(self, after: Managed) -> str | None:
        try:
            if self.launch.holds == "brew-file":
                return launchd.with_block(self.text, after)
        except ValueError as error:
            raise _refused(str(error)) from None
        for name, value in after.values.items():
            if _NO_XML.search(value):
                raise _refused(f"{name}: a property list can't hold a control character or bytes that are no text")
        return None if after.empty else self.render(self.launch, after, self.base)

    def effective(self, changes: tuple[FileChange, ...], edits: tuple[Edit, ...] = ()) -> Effective:
        facts, launch = self.facts, self.launch
        text = next((c.after for c in changes if c.path == launch.own_file), self.text)
        files: list[UnitFile] = [f for f in facts.unit_files or () if f.path != launch.own_file]
        env_files: tuple[EnvFile, ...] = facts.env_files or ()
        domain = facts.manager_environment
        if launch.holds == "brew-file":
            unread = [f for f in env_files if f.missing is not None]
            env_files = tuple(unread) or (() if text is None else (launchd.brew_file(launch.own_file, text),))
        elif text is not None:
            files.append(launchd.unit_file(launch.own_file, text, ours=True))
        if launch.holds == "session" and domain is not None and changes:
            before, after = self.managed(), launchd.managed("session", text)
            gone = {*before.values, *after.unset} - {*after.values}
            domain = {n: v for n, v in ({**domain, **after.values}).items() if n not in gone}
        return launchd.effective(launch, domain, files, env_files, self.app)

    def lints(self, after: Managed) -> list[Lint]:
        found = [UNPROVEN]
        service = self.facts.service
        if self.launch.kind == "app":
            found.append(
                Lint("session_race", "warning",
                     "at login launchd starts agents and apps in no order: Ollama.app may start before its variables "
                     "are set, and runs without them until it is started again", "ollamactl verify tells"),
            )  # fmt: skip
        if self.launch.kind == "hand":
            pid = self.launch.pid
            found.append(
                Lint("started_by_hand", "error", f"pid {pid} was started by hand: nothing starts it anew",
                     f"end it (kill {pid}), then the same with --start: an agent of ours runs it from then on"),
            )  # fmt: skip
        if self.launch.holds == "brew-file" and service is not None:
            found += self._of_brew(service, after)
        return found

    def _of_brew(self, service: Service, after: Managed) -> list[Lint]:
        """What `brew services restart` would do beside: the plist that it writes anew loses what stands only there."""
        found = []
        if service.active_state == "active" and "/LaunchAgents/" not in self.launch.plist:
            found.append(
                Lint("brew_run", "error",
                     "the server was started by `brew services run`, which reads no environment file",
                     "brew services stop ollama && brew services start ollama, then again"),
            )  # fmt: skip
        will = self.effective(())
        for name, value in (self.registered or {}).items():
            if will.value(name) != value and name not in after.values:
                found.append(
                    Lint("hand_edited_plist", "error",
                         f"{name} stands only in {self.launch.plist}, which brew writes anew at each start",
                         f"keep it: --set {name}=…, as it is there", name),
                )  # fmt: skip
        unread = next((f.missing for f in self.facts.env_files or () if f.missing is not None), None)
        if unread is not None:
            found.append(Lint("brew_env_file_unread", "error", f"{self.launch.own_file}: {unread.detail}"))
        return found


def registered(body: bytes | None) -> Mapping[str, str] | None:
    """Variables of the plist that brew registered."""
    return plist.parse(body).environment if body is not None else None


def _refused(text: str) -> Failure:
    return Failure(text, hint="a value is one line of text", code=Exit.USAGE, id="value_refused")
