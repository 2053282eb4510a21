"""systemd through pystemd: what changes a service, and the few properties that are polled meanwhile.

pystemd is imported when first needed: everything that only reads works without it.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from ollamactl.errors import Exit, Failure

_DESTINATION = b"org.freedesktop.systemd1"
_MANAGER = b"/org/freedesktop/systemd1"
_MANAGER_IFACE = b"org.freedesktop.systemd1.Manager"
_UNIT_IFACE = b"org.freedesktop.systemd1.Unit"
_SERVICE_IFACE = b"org.freedesktop.systemd1.Service"


class State(msgspec.Struct, frozen=True):
    """A unit at one moment. A changed invocation, pid or restart count between two of them is flapping."""

    active: str
    sub: str
    invocation: str
    main_pid: int
    n_restarts: int
    job: int = 0
    need_reload: bool = False

    @property
    def identity(self) -> tuple[str, int, int]:
        return (self.invocation, self.main_pid, self.n_restarts)


class Systemd:
    """The system manager over D-Bus. Every failure is a Failure that names what systemd said."""

    def __init__(self) -> None:
        try:
            from pystemd import dbuslib
        except ImportError:
            raise Failure(
                "changing a systemd service needs pystemd, which is not installed",
                hint="sudo apt-get install python3-pystemd, or pip install 'ollamactl[systemd]'",
                code=Exit.REFUSED,
                id="pystemd_missing",
            ) from None
        self._lib = dbuslib
        self._bus: Any = None

    def _connected(self) -> Any:
        if self._bus is None:
            bus = self._lib.DBus()
            try:
                bus.open()
            except Exception as error:
                raise Failure(
                    f"systemd's message bus does not answer: {_said(error)}",
                    hint="is this host run by systemd? systemctl status",
                    id="dbus",
                ) from None
            self._bus = bus
        return self._bus

    def close(self) -> None:
        if self._bus is not None:
            self._bus.close()
            self._bus = None

    def _call(self, path: bytes, iface: bytes, method: bytes, signature: bytes, *values: object) -> Any:
        args = self._lib.apply_signature(signature, list(values)) if signature else []
        try:
            return self._connected().call_method(_DESTINATION, path, iface, method, args).body
        except self._lib.DBusError as error:
            self.close()
            raise Failure(f"systemd: {_said(error)}", hint=_hint(error), id="systemd") from None

    def _property(self, path: bytes, iface: bytes, name: bytes, kind: bytes) -> Any:
        try:
            return self._connected().get_property(_DESTINATION, path, iface, name, kind)
        except self._lib.DBusError as error:
            self.close()
            raise Failure(f"systemd: {_said(error)}", hint=_hint(error), id="systemd") from None

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
            need_reload=bool(self._property(path, _UNIT_IFACE, b"NeedDaemonReload", b"b")),
        )

    def reload(self) -> None:
        """daemon-reload: returns once systemd has read all its files anew."""
        self._call(_MANAGER, _MANAGER_IFACE, b"Reload", b"")

    def restart(self, unit: str, timeout: float) -> None:
        self._job(b"RestartUnit", unit, timeout)

    def start(self, unit: str, timeout: float) -> None:
        self._job(b"StartUnit", unit, timeout)

    def stop(self, unit: str, timeout: float) -> None:
        self._job(b"StopUnit", unit, timeout)

    def reset_failed(self, unit: str) -> None:
        """Clears the failed state and the start limit's count, so that a start of ours is never refused by it."""
        self._call(_MANAGER, _MANAGER_IFACE, b"ResetFailedUnit", b"s", unit.encode())

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


def _job(value: Any) -> int:
    first = value[0] if isinstance(value, (tuple, list)) and value else value
    return int(first[0] if isinstance(first, (tuple, list)) else first or 0)


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _said(error: Exception) -> str:
    found = getattr(error, "message", None) or (error.args[-1] if error.args else error)
    return _text(found).strip()


def _hint(error: Exception) -> str:
    text = " ".join(_text(a) for a in error.args)
    return "run it with sudo" if any(w in text for w in ("AccessDenied", "authentication", "Permission")) else ""
