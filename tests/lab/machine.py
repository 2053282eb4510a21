"""The lab machine: a real systemd with journald and D-Bus, booted by systemd-nspawn over an overlay of the host.

    with Machine() as machine:
        machine.write("/etc/systemd/system/hello.service", "[Service]\\nExecStart=/bin/echo hello\\n")
        machine.run(["systemctl", "daemon-reload"])
        machine.run(["systemctl", "start", "hello"])
        assert machine.journal("hello")[0]["MESSAGE"]

Inside, the host's files are seen at their places (the checkout, its virtual environment, the interpreter) and
can be changed, but every write goes to a tmpfs that ends with the machine. None of the host's services, sockets
or networks exist there; /tmp, /run and /dev are fresh. keeper.py says how it is held together and why nothing is
left behind, rootfs.py what differs from the host.

An overlay may go on showing the old content of a host file that was replaced after it was first looked up. Each
boot has fresh overlays; `refresh()` makes a running machine look again.

By hand, as root:  python -m tests.lab.machine boot|shell|run|stop [NAME] [-- COMMAND…]
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from . import kernel

STATES = Path("/run/ollamactl-lab")
CHECKOUT = Path(__file__).resolve().parents[2]
NEEDED = {  # command -> Debian package
    "systemd-nspawn": "systemd-container",
    "dbus-daemon": "dbus",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
}
# What a root shell on a Debian server has; the caller's own variables never get inside.
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "HOME": "/root",
    "USER": "root",
    "LOGNAME": "root",
    "SHELL": "/bin/bash",
}
_numbers = itertools.count(1)


class LabError(RuntimeError):
    """The lab could not be booted or entered; the text says why."""


def missing() -> str | None:
    """Why the lab can't run here, in words that say what to do; None when it can."""
    if os.geteuid() != 0:
        return "the lab boots a real systemd, which takes root (run it with sudo)"
    wanted = sorted(
        {package for command, package in NEEDED.items() if not shutil.which(command, path=_path())}
    )
    return f"the lab needs: apt-get install {' '.join(wanted)}" if wanted else None


class Process(subprocess.Popen[str]):
    """A command running inside. Signals go to the command itself, not to the nsenter that stands before it."""

    def guest(self) -> int | None:
        """The command's pid as the host counts, once it runs; None when it has ended."""
        while self.poll() is None:
            if found := kernel.children(self.pid):
                return found[0]
            time.sleep(0.001)
        return None

    def send_signal(self, sig: int) -> None:
        """Send `sig` to the command."""
        if (pid := self.guest()) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)


class Machine:
    """One lab machine; boots on `with` or `boot()`, is gone after the block, `stop()`, or the end of this process.

    name     -- unique on the host; made up when not given
    storage  -- journald's Storage=: "persistent" (in the machine's own tmpfs), "volatile" or "none"
    journald -- further lines for journald.conf's [Journal]; there is no rate limit unless one is set here
    size     -- limit of all that is written inside, in bytes of a tmpfs (memory is taken as it is written)
    share    -- further folders of the host that must be visible; the checkout and this interpreter always are
    root     -- folder whose system is booted instead of the host's own (tests/lab/debian.py makes such)
    nspawn   -- further arguments for systemd-nspawn
    detached -- the machine outlives this process, until `stop`
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        storage: str = "persistent",
        journald: Sequence[str] = (),
        size: int = 4 << 30,
        share: Sequence[str | Path] = (),
        root: str | Path = "/",
        nspawn: Sequence[str] = (),
        detached: bool = False,
    ) -> None:
        self.name = name or f"test-{os.getpid()}-{next(_numbers)}"
        self._console = -1
        self._keeper: subprocess.Popen[str] | None = None
        self._facts: dict[str, Any] = {}
        self._detached = detached
        needed = [CHECKOUT, Path(sys.prefix), *share]
        if str(root) != "/" and sys.base_prefix == "/usr":  # that folder is the other system's own
            nspawn = [*nspawn, *_interpreter(Path(root))]
        else:
            needed += [Path(sys.base_prefix), Path(sys.executable).resolve().parent]
        self._config = {
            "name": self.name,
            "state": str(STATES / self.name),
            "owner": None if detached else os.getpid(),
            "storage": storage,
            "journald": list(journald),
            "size": size,
            "root": str(root),
            "nspawn": list(nspawn),
            "share": sorted({os.path.realpath(folder) for folder in needed}),
        }

    @property
    def shared(self) -> tuple[str, ...]:
        """Folders of the host that are visible at their places beside those of the root."""
        return tuple(self._config["share"])

    # Life

    def boot(self, timeout: float = 60) -> Machine:
        """Boot and wait until the default target is reached. Raises LabError with the console's last lines."""
        if why := missing():
            raise LabError(why)
        state = STATES / self.name
        lock = _claim(state)
        scope = os.path.isdir("/run/systemd/system")
        keeper = [
            sys.executable,
            "-E",
            "-S",
            str(Path(__file__).with_name("keeper.py")),
            json.dumps({**self._config, "scope": scope}),
        ]
        if scope:  # systemd runs the host and owns its cgroups: ask it for one that is ours to divide
            keeper = [
                "systemd-run",
                "--scope",
                "--quiet",
                "--collect",
                "--property=Delegate=yes",
                f"--unit=ollamactl-lab-{self.name}.scope",
                *keeper,
            ]
        try:
            self._console = os.open(
                state / "console", os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
            self._keeper = subprocess.Popen(
                keeper,
                stdin=subprocess.DEVNULL if self._detached else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._console,
                text=True,
                start_new_session=True,
                cwd="/",
                env={"PATH": _path()},
                pass_fds=(lock,),
            )
            self._await_boot(timeout)
        except BaseException:
            self.stop()
            shutil.rmtree(state, ignore_errors=True)  # where the keeper didn't even start
            raise
        finally:
            os.close(lock)
        return self

    def reboot(self, timeout: float = 60) -> None:
        """Reboot as `systemctl reboot` does: services are stopped, what is on disk stays, /run and /tmp are new."""
        if self._keeper is None:
            raise LabError("only the process that booted the machine can wait for its reboot")
        self.run(["systemctl", "--no-block", "reboot"])
        self._await_boot(timeout)

    def stop(self) -> None:
        """End the machine at once, as if its power was cut; returns when nothing of it is left."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        if keeper.stdin:
            keeper.stdin.close()
        else:
            keeper.terminate()
        keeper.wait(30)
        if keeper.stdout:
            keeper.stdout.close()
        os.close(self._console)

    def __enter__(self) -> Machine:
        return self.boot()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def leader(self) -> int:
        """Pid of the machine's PID 1, as the host counts."""
        return int(self._facts["leader"])

    # Work inside

    def popen(
        self,
        argv: Sequence[str | Path],
        *,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        stdin: int | IO[Any] | None = subprocess.DEVNULL,
        stdout: int | IO[Any] | None = subprocess.PIPE,
        stderr: int | IO[Any] | None = subprocess.PIPE,
    ) -> Process:
        """Start a command inside, in all of the machine's namespaces and in a cgroup of its own beside the services.

        `user` drops to that user and its groups, `env` adds to a plain root environment, `cwd` is a folder inside.
        The command gets SIGKILL when the nsenter before it ends; its own children don't, as on any machine.
        """
        home = {} if user in (None, "root") else self._account(str(user))
        credentials = [f"--reuid={user}", f"--regid={user}", "--init-groups"] if home else []
        # A process that is moved by someone else may already have forked: the shell moves itself, then enters.
        return Process(
            [
                "/bin/sh",
                "-c",
                'echo 0 >"$1" || exit 125; shift; exec "$@"',
                "sh",
                self._facts["entry"],
                shutil.which("nsenter", path=_path()) or "nsenter",
                "--target",
                str(self.leader),
                "--mount",
                "--uts",
                "--ipc",
                "--net",
                "--pid",
                "--cgroup",
                "--root",
                "--wd",
                "--",
                "setpriv",
                "--pdeathsig=KILL",
                f"--bounding-set=-all,{self._capabilities()}",
                *credentials,
                "--",
                "env",
                "--default-signal=HUP,INT,QUIT,PIPE",
                f"--chdir={cwd or home.get('HOME', '/root')}",
                *map(str, argv),
            ],
            env={**ENVIRONMENT, **home, **(env or {})},
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            text=True,
            errors="surrogateescape",
        )

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        check: bool = True,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        timeout: float = 60,
        input: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside and wait. With `check` a failure raises CalledProcessError that shows its output."""
        given = subprocess.DEVNULL if input is None else subprocess.PIPE
        with self.popen(argv, user=user, env=env, cwd=cwd, stdin=given) as process:
            try:
                output, errors = process.communicate(input, timeout)
            except BaseException:
                process.kill()
                raise
        done = subprocess.CompletedProcess(list(map(str, argv)), process.returncode, output, errors)
        if check and done.returncode:
            problem = subprocess.CalledProcessError(done.returncode, done.args, output, errors)
            raise CommandError(problem) from None
        return done

    def write(self, path: str | Path, text: str, mode: int = 0o644) -> None:
        """Write a file inside, with the folders it needs; replaced by rename, as an editor does."""
        # From the host's side a link inside would lead to the host's files, so it is written from within.
        script = 'mkdir -p "${1%/*}/" && cat >"$1.new" && chmod "$2" "$1.new" && mv -f "$1.new" "$1"'
        self.run(["sh", "-c", script, "sh", path, f"{mode:o}"], input=text)

    def read(self, path: str | Path) -> str:
        """Text of a file inside. Raises FileNotFoundError."""
        done = self.run(["cat", "--", path], check=False)
        if done.returncode:
            raise FileNotFoundError(f"{path} in the lab: {done.stderr.strip()}")
        return done.stdout

    def journal(self, unit: str | None = None, *arguments: str) -> list[dict[str, Any]]:
        """Journal entries, oldest first, after all that was logged until now is written."""
        self.run(["journalctl", "--sync"])
        chosen = [] if unit is None else [f"--unit={unit}"]
        lines = self.run(["journalctl", "--output=json", "--all", "--no-pager", *chosen, *arguments]).stdout
        return [json.loads(line) for line in lines.splitlines()]

    def refresh(self) -> None:
        """Look at the host's files again: a remount drops the overlays' caches of names that nobody holds open."""
        for point in self.run(
            ["findmnt", "-n", "-r", "-t", "overlay", "-O", "rw", "-o", "TARGET"]
        ).stdout.split():
            # mount(2): overlays refuse a remount by the newer calls
            self.run(["mount", "-o", "remount", point], env={"LIBMOUNT_FORCE_MOUNT2": "always"})

    # Parts

    def _await_boot(self, timeout: float) -> None:
        keeper = self._keeper
        assert keeper is not None and keeper.stdout is not None
        ready, _, _ = select.select([keeper.stdout], [], [], timeout)
        line = keeper.stdout.readline() if ready else ""
        if line:
            self._facts = json.loads(line)
            return
        said = os.pread(self._console, 1 << 20, 0).decode(
            errors="replace"
        )  # kept open: the keeper clears the folder
        why = f"did not come up within {timeout:g} s" if not ready else "ended while it booted"
        raise LabError(f"the lab machine {self.name} {why}:\n" + "\n".join(said.splitlines()[-30:]))

    def _capabilities(self) -> str:
        """What the machine's PID 1 may do, for setpriv: nsenter as root would keep more (set the host's clock…)."""
        return ",".join(f"+cap_{number}" for number in kernel.bounding_set(self.leader))

    def _account(self, user: str) -> dict[str, str]:
        row = self.run(["getent", "passwd", user]).stdout.strip().split(":")
        return {"HOME": row[5], "USER": user, "LOGNAME": user, "SHELL": row[6]}


class CommandError(subprocess.CalledProcessError):
    """A command inside failed; unlike its base it shows what the command said."""

    def __init__(self, problem: subprocess.CalledProcessError) -> None:
        super().__init__(problem.returncode, problem.cmd, problem.output, problem.stderr)

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.stdout}{self.stderr}".rstrip()


def attach(name: str) -> Machine:
    """A machine that another process booted, to work inside it; stopping it is `stop_detached`."""
    try:
        facts = json.loads((STATES / name / "state.json").read_text())
    except FileNotFoundError:
        raise LabError(f"no lab machine {name} is up") from None
    if kernel.started(facts["keeper"]) != facts["started"]:
        raise LabError(f"the lab machine {name} is gone (its keeper was killed)")
    machine = Machine(name, detached=True)
    machine._facts = facts
    return machine


def stop_detached(name: str) -> None:
    """End a machine that another process booted; returns when nothing of it is left."""
    facts = attach(name)._facts
    keeper = os.pidfd_open(facts["keeper"])
    try:
        if (
            kernel.started(facts["keeper"]) == facts["started"]
        ):  # asked again: the pidfd now pins that process
            signal.pidfd_send_signal(keeper, signal.SIGTERM)  # type: ignore[attr-defined,unused-ignore]
            select.select([keeper], [], [], 30)
    finally:
        os.close(keeper)


def _claim(state: Path) -> int:
    """Make the state folder of a new machine and lock it; the lock is held by whoever has the descriptor open."""
    STATES.mkdir(mode=0o700, exist_ok=True)
    seen = STATES.lstat()
    if seen.st_uid != 0 or seen.st_mode & 0o077 or STATES.is_symlink():
        raise LabError(f"{STATES} must be a folder of root with mode 0700")
    with open(STATES / ".lock", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        state.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise LabError(f"a lab machine {state.name} is up already") from None
        return lock


def _interpreter(root: Path) -> list[str]:
    """Arguments for nspawn that show this system's Python, where it is the distribution's, inside another system that
    does not have the same one."""
    parts = [Path(sys.executable).resolve(), Path(os.__file__).parent]
    parts.append(Path(str(sysconfig.get_config_var("LIBDIR"))) / str(sysconfig.get_config_var("INSTSONAME")))
    if not parts[-1].exists():  # Debian says /usr/lib and has it in a folder for the architecture
        parts[-1] = parts[-1].parent / str(sysconfig.get_config_var("MULTIARCH")) / parts[-1].name
    return [f"--bind-ro={part}" for part in parts if not (root / str(part).strip("/")).exists()]


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin:/sbin:/bin"


# By hand


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m tests.lab.machine`: keep one machine up across commands, and enter it."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.machine", description=main.__doc__)
    parser.add_argument("action", choices=("boot", "shell", "run", "stop"))
    parser.add_argument("name", nargs="?", default="lab")
    parser.add_argument("--user")
    parser.add_argument("command", nargs="*", help="after --, for run")
    words = list(sys.argv[1:] if argv is None else argv)
    own, command = (
        (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    )
    options = parser.parse_args(own)
    try:
        if options.action == "boot":
            started = time.monotonic()
            machine = Machine(options.name, detached=True).boot()
            print(
                f"lab machine {machine.name} is up after {time.monotonic() - started:.1f} s (pid {machine.leader})"
            )
            return 0
        if options.action == "stop":
            stop_detached(options.name)
            return 0
        return _enter(attach(options.name), command or ["bash", "--login"], options.user)
    except LabError as problem:
        print(f"lab: {problem}", file=sys.stderr)
        return 5


def _enter(machine: Machine, command: Sequence[str], user: str | None) -> int:
    """Run a command inside on this terminal; ^C is for the command alone."""
    with _ignored(signal.SIGINT, signal.SIGQUIT):
        process = machine.popen(
            command,
            user=user,
            env={"TERM": os.environ.get("TERM", "dumb")},
            stdin=None,
            stdout=None,
            stderr=None,
        )
        code = process.wait()
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _ignored(*numbers: signal.Signals) -> Iterator[None]:
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
