"""systemd through pystemd: what changes a service, and the few properties that are polled meanwhile.

pystemd is imported when first needed: everything that only reads works without it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from ollamactl.core.dropin import Managed
from ollamactl.core.parse import quoting
from ollamactl.core.remedies import LISTEN_AGAIN
from ollamactl.errors import Exit, Failure
from ollamactl.host import files, journal
from ollamactl.platforms import templates

_DESTINATION = b"org.freedesktop.systemd1"
_MANAGER = b"/org/freedesktop/systemd1"
_MANAGER_IFACE = b"org.freedesktop.systemd1.Manager"
_UNIT_IFACE = b"org.freedesktop.systemd1.Unit"
_SERVICE_IFACE = b"org.freedesktop.systemd1.Service"


_PRIVATE = b"unix:path=/run/systemd/private"
BOOT = "/etc/systemd/system/ollamactl-recover.service"
_BOOT_LINK = "/etc/systemd/system/default.target.wants/ollamactl-recover.service"


class State(msgspec.Struct, frozen=True):
    """A unit at one moment. A changed invocation, pid or restart count between two of them is flapping."""

    active: str
    sub: str
    invocation: str
    main_pid: int
    n_restarts: int
    job: int = 0
    load: str = "loaded"  # masked, not-found, …

    @property
    def identity(self) -> tuple[str, int, int]:
        return (self.invocation, self.main_pid, self.n_restarts)


class Systemd:
    """The system manager over D-Bus. Every failure is a Failure that names what systemd said."""

    name = "systemd"

    def __init__(self) -> None:
        try:
            from pystemd import dbusexc, dbuslib
        except ImportError:
            raise Failure(
                "changing a systemd service needs pystemd, which is not installed",
                hint=_how_to_install(),
                code=Exit.REFUSED,
                id="pystemd_missing",
            ) from None
        self._lib = dbuslib
        self._error: type[Exception] = dbusexc.DBusBaseError  # dbuslib.DBusError is a function that makes them
        self._bus: Any = None

    def _connected(self) -> Any:
        if self._bus is None:
            problems = []
            for bus in self._ways():
                try:
                    bus.open()
                    self._bus = bus
                    break
                except Exception as error:
                    problems.append(_said(error))
            else:
                raise Failure(
                    f"systemd does not answer: {', '.join(dict.fromkeys(problems))}",
                    hint=f"{LISTEN_AGAIN} makes it listen again" if _is_pid_1() else "is this host run by systemd?",
                    id="dbus",
                )
        return self._bus

    def _ways(self) -> Iterator[Any]:
        """systemd's own socket, as systemctl uses it for root: it needs no message bus. Then the system bus."""
        if os.geteuid() == 0:
            with contextlib.suppress(TypeError):  # a pystemd that can't talk without a bus
                yield self._lib.DBusAddress(_PRIVATE, peer_to_peer=True)
        yield self._lib.DBus()

    def close(self) -> None:
        if self._bus is not None:
            self._bus.close()
            self._bus = None

    def _call(self, path: bytes, iface: bytes, method: bytes, signature: bytes, *values: object) -> Any:
        args = self._lib.apply_signature(signature, list(values)) if signature else []
        return self._asked(lambda bus: bus.call_method(_DESTINATION, path, iface, method, args).body)

    def _property(self, path: bytes, iface: bytes, name: bytes, kind: bytes) -> Any:
        return self._asked(lambda bus: bus.get_property(_DESTINATION, path, iface, name, kind))

    def _asked(self, ask: Callable[[Any], Any]) -> Any:
        """The answer. A connection that has ended meanwhile (systemd or the bus was started anew) is made again,
        once: everything that is asked here may be asked twice."""
        for again in (True, False):
            bus = self._connected()
            try:
                return ask(bus)
            except self._error as error:
                self.close()
                if not (again and _disconnected(error)):
                    raise Failure(f"systemd: {_said(error)}", hint=_hint(error), id="systemd") from None
        raise AssertionError("not reached")

    def _path(self, unit: str) -> bytes:
        found = self._call(_MANAGER, _MANAGER_IFACE, b"LoadUnit", b"s", unit.encode())
        return found if isinstance(found, bytes) else str(found).encode()

    def state(self, unit: str) -> State:
        path = self._path(unit)
        invocation = self._property(path, _UNIT_IFACE, b"InvocationID", b"ay")
        job = self._property(path, _UNIT_IFACE, b"Job", b"(uo)")
        return State(
            active=_text(self._property(path, _UNIT_IFACE, b"ActiveState", b"s")),
            sub=_text(self._property(path, _UNIT_IFACE, b"SubState", b"s")),
            invocation=bytes(invocation).hex() if invocation else "",
            main_pid=int(self._property(path, _SERVICE_IFACE, b"MainPID", b"u")),
            n_restarts=int(self._property(path, _SERVICE_IFACE, b"NRestarts", b"u")),
            job=_job(job),
            load=_text(self._property(path, _UNIT_IFACE, b"LoadState", b"s")),
        )

    def remember(self, unit: str, after: Managed) -> dict[str, str | None]:
        """Everything of ours is in files."""
        return {}

    def reload(self, kept: Mapping[str, str | None] | None = None, unit: str = "") -> str:
        """daemon-reload: returns once systemd has read all its files anew."""
        self._call(_MANAGER, _MANAGER_IFACE, b"Reload", b"")
        return "systemd reloaded"

    def restart_commands(self, unit: str) -> tuple[str, ...]:
        try:
            self._connected()
        except Failure:
            return (LISTEN_AGAIN,) if _is_pid_1() else ()
        return "sudo systemctl daemon-reload", f"sudo systemctl restart {shlex.quote(unit)}"

    def log_command(self, unit: str) -> str:
        return f"journalctl -u {shlex.quote(unit)} -n 50"

    def restart(self, unit: str, timeout: float) -> None:
        self._job(b"RestartUnit", unit, timeout)

    def start(self, unit: str, timeout: float) -> None:
        self._job(b"StartUnit", unit, timeout)

    def stop(self, unit: str, timeout: float) -> None:
        self._job(b"StopUnit", unit, timeout)

    def reset_failed(self, unit: str) -> None:
        """Clears the failed state and the start limit's count, so that a start of ours is never refused by it."""
        # Of the unit's own object: the manager's method refuses a unit that nothing holds in memory.
        self._call(self._path(unit), _UNIT_IFACE, b"ResetFailed", b"")

    def arm(self, unit: str) -> None:
        arm(unit)

    def disarm(self) -> None:
        disarm()

    def _job(self, method: bytes, unit: str, timeout: float) -> None:
        """Queues the job and waits until systemd has finished it."""
        path = self._path(unit)
        self._call(_MANAGER, _MANAGER_IFACE, method, b"ss", unit.encode(), b"replace")
        until = time.monotonic() + timeout
        while _job(self._property(path, _UNIT_IFACE, b"Job", b"(uo)")):
            if time.monotonic() > until:
                what = method.decode().removesuffix("Unit").lower()
                raise Failure(f"systemd did not finish the {what} of {unit} in {timeout:.0f} s", id="job_timeout")
            time.sleep(0.005)


def _is_pid_1() -> bool:
    with contextlib.suppress(OSError), open("/proc/1/comm", encoding="utf-8") as f:
        return f.read().strip() == "systemd"
    return False


def arm(unit: str) -> None:
    """From now on, an interrupted transaction is recovered at the next boot."""
    files.write(BOOT, boot_unit(unit).encode(), 0o644)
    files.make_folders(os.path.dirname(_BOOT_LINK))
    files.link(_BOOT_LINK, f"../{os.path.basename(BOOT)}")


def disarm() -> None:
    """No transaction is open any more. systemd forgets the unit when it next reads its files."""
    for path in (_BOOT_LINK, BOOT):
        files.sweep(*os.path.split(path))
        files.remove(path)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(_BOOT_LINK))  # where there was none, or an empty one


def boot_unit(unit: str) -> str:
    """A unit that runs `ollamactl recover` once the service's own start is over."""
    argv, folder = templates.program(), templates.checkout()
    return f"""\
# Written by ollamactl while it changes {unit}, removed when that ends. After a crash or a power loss it puts the
# host back at the next boot.
[Unit]
Description=Undo a change of ollamactl that was interrupted
ConditionPathExists={journal.FOLDER}/open.json
After={unit} local-fs.target

[Service]
Type=oneshot
{f"WorkingDirectory={quoting.join([folder])}{chr(10)}" if folder else ""}\
ExecStart={quoting.join([*argv, "recover", "--wait", "60"])}
"""


def _job(value: Any) -> int:
    first = value[0] if isinstance(value, (tuple, list)) and value else value
    return int(first[0] if isinstance(first, (tuple, list)) else first or 0)


def _how_to_install() -> str:
    """What brings pystemd to the Python that runs this. In an environment of its own it is compiled."""
    if sys.prefix == sys.base_prefix:
        return "sudo apt-get install python3-pystemd"
    pipx = os.path.exists(os.path.join(sys.prefix, "pipx_metadata.json"))
    into = "pipx inject ollamactl pystemd" if pipx else f"{shlex.quote(sys.executable)} -m pip install pystemd"
    return f"sudo apt-get install libsystemd-dev gcc pkg-config python3-dev && {into}"


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _said(error: Exception) -> str:
    found = getattr(error, "err_message", None) or (error.args[-1] if error.args else error)
    return _text(found).strip().rstrip(".")


def _disconnected(error: Exception) -> bool:
    number = abs(getattr(error, "errno", 0) or 0)
    if not number and error.args and isinstance(error.args[0], int):
        number = abs(error.args[0])
    return number in (errno.ENOTCONN, errno.ECONNRESET, errno.EPIPE, errno.ESTALE)


def _hint(error: Exception) -> str:
    text = " ".join(_text(a) for a in error.args)
    return "run it with sudo" if any(w in text for w in ("AccessDenied", "authentication", "Permission")) else ""
