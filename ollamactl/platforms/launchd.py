"""launchd, `brew services` and Ollama.app: what changes a server on a Mac. Acts as the user whose session it is."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping

import msgspec

from ollamactl.core import launchd as rules
from ollamactl.core.dropin import Managed
from ollamactl.core.facts import Brew, Launch, Process, Service, Session
from ollamactl.core.feeds import Collector
from ollamactl.core.feeds.collector import Unknown
from ollamactl.core.feeds.mac import loaded, serving
from ollamactl.core.feeds.mac_service import process_of
from ollamactl.core.parse import launchctl
from ollamactl.core.source import Host, Reading, Source, file
from ollamactl.errors import Failure
from ollamactl.host import files
from ollamactl.platforms import templates
from ollamactl.platforms.systemd import State

RECOVER = "ollamactl.recover"  # label of the agent that recovers at the next login
PATIENCE = 20.0  # s for a process to end, and for launchd to take a job that it has just dropped
PAUSE = 0.05


class Done(msgspec.Struct, frozen=True):
    code: int
    said: str


def run(*argv: str, timeout: float = 60.0, clean: bool = False) -> Done:
    """One program, without Ollama's variables of our shell, which `open` and others would hand on. `clean`: with
    nothing but what a login has."""
    kept = ("HOME", "USER", "LOGNAME", "PATH", "TMPDIR", "SHELL")
    own = {k: v for k, v in os.environ.items() if (k in kept if clean else not k.startswith(("OLLAMA_", "LLAMA_")))}
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, env=own, start_new_session=True
        )
    except FileNotFoundError:
        raise Failure(f"{argv[0]}: not found", id="absent") from None
    except OSError as error:
        raise Failure(f"{argv[0]}: {error.strerror}", id="system_error") from None
    except subprocess.TimeoutExpired:
        raise Failure(f"{shlex.join(argv)} did not end within {timeout:.0f} s", id="job_timeout") from None
    lines = (done.stderr + b"\n" + done.stdout).decode("utf-8", "replace").splitlines()
    return Done(done.returncode, "; ".join(x.strip() for x in lines if x.strip())[:500])


class _Remembering:
    """A host whose programs are asked for their release once: it does not change while a server is restarted."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._known: dict[str, Reading] = {}

    def read(self, source: Source) -> Reading:
        if source.kind != "command" or source.args[1:] not in (("--version",), ("--prefix",)):
            return self._host.read(source)
        if source.key not in self._known:
            self._known[source.key] = self._host.read(source)
        return self._known[source.key]


class Launchd:
    """The manager of one session, or of the system's daemons. Every failure says what launchctl or brew said."""

    name = "launchd"

    def __init__(self, host: Host) -> None:
        self._host = _Remembering(host)
        self._names: dict[str, set[str]] = {}  # of each server: variables of the session that are ours to change
        self._unit = ""
        self._app = ""  # where Ollama.app was when the change began
        self._found: dict[str, Launch] = {}

    # -- what is there --

    def _collector(self, unit: str) -> Collector:
        return Collector(self._host, unit)

    def _launch(self, unit: str) -> Launch:
        self._found.pop(unit, None)  # what is asked for anew may have changed
        collector = self._collector(unit)
        found: Launch | None = collector.get("launch")
        if found is None:
            raise Failure(f"{unit}: {collector.missing['launch']}", id="service_gone")
        return found

    def state(self, unit: str) -> State:
        """Asked often: the job alone, or the app's server."""
        has = self._found.get(unit) or self._found.setdefault(unit, self._launch(unit))
        collector = self._collector(unit)
        if has.kind in ("app", "hand"):
            pid, label, restarts = self._server_pid(has), unit, 0
            active, sub = ("active", "running") if pid else ("inactive", "not running")
        else:
            ours = has.holds == "plist" and self._text(has.own_file) is not None
            label = has.own_label if ours else has.label
            job = self._job(has.domain, label) if label else None
            active, sub = rules.state_of(job)
            pid = serving(collector, job.pid if job else None, has.program)
            restarts = max(0, job.runs - 1) if job else 0
        process = process_of(collector, pid)
        return State(
            active=active,
            sub=sub,
            invocation=rules.invocation(label, pid, process.started if process else None),
            main_pid=pid or 0,
            n_restarts=restarts,
        )

    def _server_pid(self, has: Launch) -> int | None:
        servers: tuple[Process, ...] = self._collector("").get("servers") or ()
        return next((p.pid for p in servers if has.program[0] in (p.exe, *p.argv[:1])), None)

    def restart_commands(self, unit: str) -> tuple[str, ...]:
        """What a person types for it."""
        collector = self._collector(unit)
        has: Launch | None = collector.get("launch")
        service: Service | None = collector.get("service")
        return rules.restart_commands(has, service.label if service else "") if has else ()

    def log_command(self, unit: str) -> str:
        has: Launch | None = self._collector(unit).get("launch")
        return f"tail -n 50 {shlex.quote(has.log)}" if has and has.log else "ollamactl facts"

    # -- what it takes beside files --

    def remember(self, unit: str, after: Managed) -> dict[str, str | None]:
        """What an undo must know: the session's variables that change, and whether the job that we stand in for was
        disabled."""
        self._unit = unit
        has = self._launch(unit)
        kept: dict[str, str | None] = {}
        if has.holds == "session":
            before = rules.managed("session", self._text(has.own_file))
            domain: Mapping[str, str] = self._collector(unit).need("manager_environment")
            for name in sorted({*before.values, *before.unset, *after.values, *after.unset}):
                kept[f"variable {name}"] = domain.get(name)
            kept["app"] = has.app or None  # once it has ended, only its usual places are known
        elif has.holds == "plist" and has.label:
            kept[f"disabled {has.label}"] = "yes" if self._disabled(has.domain, has.label) else None
        self._names[unit] = {k.removeprefix("variable ") for k in kept if k.startswith("variable ")}
        return kept

    def reload(self, kept: Mapping[str, str | None] | None = None, unit: str = "") -> str:
        """The session's variables as our file has them; with `kept`, as they were. What was done, in words."""
        unit = unit or self._unit
        has = self._launch(unit)
        if has.holds != "session":
            return ""
        self._app = (kept or {}).get("app") or self._app
        own = rules.managed("session", self._text(has.own_file)).values
        wanted: dict[str, str | None] = {n: own.get(n) for n in {*self._names.get(unit, ()), *own}}
        if kept is not None:
            wanted = {k.removeprefix("variable "): v for k, v in kept.items() if k.startswith("variable ")}
        for name, value in sorted(wanted.items()):
            argv = ("setenv", name, value) if value is not None else ("unsetenv", name)
            self._must(run("launchctl", *argv), f"launchctl {argv[0]} {name}")
        return "variables of the session set"

    def reset_failed(self, unit: str) -> None:
        """launchd keeps no count that would refuse a start."""

    def restart(self, unit: str, timeout: float) -> None:
        has = self._launch(unit)
        if has.kind == "app":
            self._quit(has)
            self._open(has, timeout)
        elif has.holds == "brew-file":
            self._brew(has, "restart", timeout)
        else:
            self._swap(has, timeout)

    start = restart

    def stop(self, unit: str, timeout: float) -> None:
        has = self._launch(unit)
        if has.kind == "app":
            self._quit(has)
            return
        for label in filter(None, (has.own_label if has.holds == "plist" else "", has.label)):
            self._bootout(has.domain, label)

    # -- jobs --

    def _swap(self, has: Launch, timeout: float) -> None:
        """Our job where our plist is there, else the one that it stood in for; the other one is dropped, and disabled
        or enabled so that the next login does the same."""
        ours = self._text(has.own_file) is not None
        path, label = (has.own_file, has.own_label) if ours else (has.plist, has.label)
        other = has.label if ours else has.own_label
        for old in filter(None, (other, label)):
            self._bootout(has.domain, old)
        if ours and other:
            self._must(run("launchctl", "disable", f"{has.domain}/{other}"), f"launchctl disable {other}")
        if not path:
            return  # nothing of others had started it
        self._must(run("launchctl", "enable", f"{has.domain}/{label}"), f"launchctl enable {label}")
        self._bootstrap(has.domain, path, label, timeout)

    def _bootstrap(self, domain: str, path: str, label: str, timeout: float) -> None:
        """launchd refuses a label for some seconds after it was dropped, in words that tell no cause."""
        until = time.monotonic() + min(timeout, PATIENCE)
        while (done := run("launchctl", "bootstrap", domain, path)).code and self._job(domain, label) is None:
            if time.monotonic() > until or done.code not in (5, 36, 37):
                hint = f"launchctl print-disabled {domain}; plutil -lint {shlex.quote(path)}"
                raise Failure(f"launchctl bootstrap {label}: {done.said} (exit {done.code})", hint=hint, id="launchd")
            time.sleep(0.5)
        job = self._job(domain, label)
        if job is not None and job.state == "not running" and not job.runs:
            run("launchctl", "kickstart", f"{domain}/{label}")
        # One that can't start is told by who asks for its answer.
        self._wait(lambda: (self._job(domain, label) or job_none).pid is not None, min(timeout, PATIENCE / 4))

    def _bootout(self, domain: str, label: str) -> None:
        job = self._job(domain, label)
        if job is None:
            return
        done = run("launchctl", "bootout", f"{domain}/{label}")
        if done.code not in (0, 3, 36, 113):
            raise Failure(f"launchctl bootout {label}: {done.said} (exit {done.code})", id="launchd")
        gone = self._wait(lambda: self._job(domain, label) is None and not _alive(job.pid), PATIENCE)
        if not gone:
            raise Failure(f"{label} does not end", hint=f"launchctl print {domain}/{label}", id="job_timeout")

    def _job(self, domain: str, label: str) -> launchctl.Job | None:
        try:
            return loaded(self._collector(""), domain, label)
        except Unknown as unknown:
            raise Failure(str(unknown.missing), id="launchd") from None

    def _disabled(self, domain: str, label: str) -> bool:
        done = run("launchctl", "print-disabled", domain)
        return launchctl.parse_disabled("\n".join(done.said.split("; "))).get(label, False)

    # -- brew and the app --

    def _brew(self, has: Launch, verb: str, timeout: float) -> None:
        homebrew: Brew = self._collector("").need("brew")
        done = run(homebrew.program, "services", verb, "ollama", timeout=max(timeout, 120.0))
        self._must(done, f"brew services {verb} ollama")
        self._wait(lambda: (self._job(has.domain, has.label) or job_none).pid is not None, PATIENCE)

    def _quit(self, has: Launch) -> None:
        """Asked to quit, the app only hides; it ends at SIGTERM, and its server with it."""
        pids = [p for p in (has.app_pid, has.pid) if p]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            if not self._wait(lambda pid=pid: not _alive(pid), PATIENCE):  # type: ignore[misc]
                raise Failure(f"Ollama.app (pid {pid}) does not end", hint=f"kill -9 {pid}", id="job_timeout")

    def _open(self, has: Launch, timeout: float) -> None:
        """From an environment without ours, since `open` hands its caller's on; hidden, as at login."""
        path = self._app or has.app
        self._must(run("open", "-j", "-a", path, clean=True), f"open -a {path}")
        if not self._wait(lambda: self._launch(has.unit).pid is not None, min(timeout, 60.0)):
            raise Failure(f"{path} was opened, and starts no server", hint=f"tail -n 50 {has.log}", id="no_answer")

    # -- recovery at the next login --

    def arm(self, unit: str) -> None:
        has = self._launch(unit)
        path = self._recover_file(has.domain)
        text = templates.render(
            "launchd/recover.plist.j2", unit=unit, label=RECOVER, folder=templates.checkout(),
            argv=[*templates.program(), "recover", "--wait", "60"],
        )  # fmt: skip
        files.make_folders(os.path.dirname(path))
        files.write(path, text.encode(), 0o644)

    def disarm(self) -> None:
        session: Session = self._collector("").need("session")
        path = self._recover_file("" if session.euid else "system")
        files.sweep(*os.path.split(path))
        files.remove(path)

    def _recover_file(self, domain: str) -> str:
        session: Session = self._collector("").need("session")
        folder = rules.DAEMONS if domain == "system" else f"{session.home}/Library/LaunchAgents"
        return f"{folder}/{RECOVER}.plist"

    # -- helpers --

    def _text(self, path: str) -> str | None:
        reading = self._host.read(file(path, limit=1 << 20))
        return reading.text if reading.missing is None else None

    def _must(self, done: Done, what: str) -> None:
        if done.code:
            raise Failure(f"{what}: {done.said or 'no word'} (exit {done.code})", id="launchd")

    def _wait(self, test: Callable[[], bool], seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not test():
            if time.monotonic() > until:
                return False
            time.sleep(PAUSE)
        return True


job_none = launchctl.Job()


def _alive(pid: int | None) -> bool:
    if not pid:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
