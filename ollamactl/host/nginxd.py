"""nginx on this host: whether it would take a file, and which of our files it runs with.

Our file ends with a mark, which the front's inner server tells on loopback: so a reload is proven, not believed.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import secrets
import signal
import time

import msgspec

from ollamactl.core.plan import RUNS
from ollamactl.core.source import Host, command
from ollamactl.errors import Exit, Failure
from ollamactl.host import files, http
from ollamactl.host.files import Image
from ollamactl.host.journal import FRONT, Entry
from ollamactl.host.serving import Manager

UNIT = FRONT
MAIN = "/etc/nginx/nginx.conf"
CONF = "/etc/nginx/conf.d/ollamactl-front.conf"
MARK = "/.ollamactl"
_INCLUDE = re.compile(r"^(?P<before>[^#\n]*?)\binclude\s+(?P<what>[^;\s]*\*\.conf)\s*;", re.M)
_SERVES = re.compile(
    r"listen (?P<inner>[0-9.:\[\]a-f]+);\s[^}]*?location = " + re.escape(MARK) + r" \{\s*return 200 \"(?P<mark>\w+)\";"
)


class Mark(msgspec.Struct, frozen=True):
    """Where a text of ours tells which one it is, and what it says there."""

    inner: str
    text: str


def mark(conf: str) -> Mark | None:
    found = _SERVES.search(conf)
    return Mark(found["inner"], found["mark"]) if found else None


def told(inner: str) -> str | None:
    """The mark of the file that nginx runs with; None where no front answers there."""
    found = http.ask(f"http://{inner}{MARK}", timeout=2.0, limit=4096)
    return found.body.decode("ascii", "replace") if found.missing is None and found.body is not None else None


def would_take(host: Host, conf: str) -> None:
    """`nginx -t` with `conf` in the place of our file, before it is there: the whole configuration otherwise as it
    is. Raises Failure in nginx's words."""
    folder, name = os.path.split(CONF)
    main = main_text()
    token = secrets.token_hex(6)
    candidate = os.path.join(folder, f".{name}.{token}.ollamactl")
    whole = os.path.join(os.path.dirname(MAIN), f".nginx.conf.{token}.ollamactl")
    others = [path for path in sorted(glob.glob(f"{folder}/*.conf")) if path != CONF]
    text = _INCLUDE.sub(lambda m: _instead(m, folder, [*others, candidate]), main)
    if f"include {candidate};" not in text:
        raise Failure(
            f"{MAIN} includes no {folder}/*.conf, so a file there would do nothing",
            hint=f"add to its http block: include {folder}/*.conf;",
            code=Exit.REFUSED,
            id="not_included",
        )
    try:
        for path, data in ((candidate, conf), (whole, text)):
            files.write(path, data.encode("utf-8", "surrogateescape"), 0o600)
        reading = host.read(command("nginx", "-t", "-q", "-c", whole, merge=True, any_exit=True))
    finally:
        for path in (candidate, whole):
            with contextlib.suppress(OSError):
                os.unlink(path)
    if reading.missing is not None:
        raise Failure(str(reading.missing.detail), hint="sudo apt-get install nginx-light", id="no_nginx")
    if reading.status:
        said = reading.text.replace(candidate, CONF).replace(whole, MAIN)
        lines = [line.removeprefix("nginx: ") for line in said.splitlines() if "[emerg]" in line or "[alert]" in line]
        line = lines[0] if lines else said.strip()[:300]
        raise Failure(f"nginx -t refuses it: {_without_keys(line)}", id="nginx_refuses")


def _without_keys(line: str) -> str:
    """nginx quotes what it does not understand: of a file that only root may read, that may be a client's key."""
    place = re.search(r" in (/\S+):\d+$", line.strip())
    try:
        private = place is not None and not os.stat(place[1]).st_mode & 0o077
    except OSError:
        private = False
    return re.sub(r'"[^"]*"', '"…"', line) if private else line


def _instead(found: re.Match[str], folder: str, paths: list[str]) -> str:
    pattern = found["what"]
    if not pattern.startswith("/"):
        pattern = os.path.join(os.path.dirname(MAIN), pattern)
    if os.path.dirname(os.path.realpath(os.path.dirname(pattern) + "/x")) != os.path.realpath(folder):
        return found[0]
    return found["before"] + " ".join(f"include {path};" for path in paths)


def places(main: str) -> int:
    """Requests that nginx can have in flight by the text of its main file. Each takes four connections (of the client
    and of both our servers, and to Ollama), which may all be of one worker."""
    found = re.search(r"^\s*worker_connections\s+(\d{1,9})\s*;", main, re.M)
    return int(found[1] if found else 512) // 4


def main_text() -> str:
    """nginx's main file. Raises Failure where there is none."""
    try:
        with open(MAIN, encoding="utf-8", errors="surrogateescape") as f:
            return f.read()
    except OSError as error:
        hint = "sudo apt-get install nginx-light"
        raise Failure(f"{MAIN}: {error.strerror}", hint=hint, code=Exit.REFUSED, id="no_nginx") from None


def sweep() -> None:
    """Files of a test that was killed."""
    for path in (CONF, MAIN):
        files.sweep(*os.path.split(path))


def follow(manager: Manager, conf: str | None, before: str | None, timeout: float = 10.0) -> None:
    """nginx, which runs, with the files as they are now, seen by the mark of `conf` (None: ours is gone; `before` is
    the text that was). Raises Failure where it stays with what it had."""
    state = manager.state(UNIT)
    if state.active not in RUNS or not state.main_pid:
        raise Failure(f"{UNIT} does not run ({state.active})", hint=f"systemctl status {UNIT}", id="nginx_down")
    os.kill(state.main_pid, signal.SIGHUP)
    wait_mark(conf, before, timeout)


def wait_mark(conf: str | None, before: str | None, timeout: float = 10.0) -> None:
    wanted = mark(conf) if conf is not None else None
    asked = wanted or (mark(before) if before is not None else None)
    until, seen = time.monotonic() + timeout, 0
    while asked is not None:
        # Twice in a row: workers of before may still take a connection in the moment of the change.
        seen = seen + 1 if told(asked.inner) == (wanted.text if wanted else None) else 0
        if seen >= 2:
            return
        if time.monotonic() > until:
            raise Failure(
                "nginx was told to read its files anew, and does not run with ours",
                hint="sudo tail /var/log/nginx/error.log",
                id="not_reloaded",
            )
        time.sleep(0.05)


def restore(manager: Manager, entry: Entry, timeout: float) -> None:
    """nginx in the state that it had before a change of our file, and with the files as they are again."""
    now = manager.state(UNIT)
    if entry.service.active not in RUNS:
        if now.active in RUNS:
            manager.stop(UNIT, timeout)
        return
    conf = next((f for f in entry.files if f.path == CONF), None)
    before = _text(conf.before) if conf else None
    if now.active in RUNS:
        follow(manager, before, _text(conf.after) if conf else None)
        return
    manager.reset_failed(UNIT)
    manager.restart(UNIT, timeout)
    wait_mark(before, None)


def _text(image: Image) -> str | None:
    return image.data.decode("utf-8", "replace") if image.kind == "file" else None
