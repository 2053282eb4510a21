"""What the lab machine's root looks like: an overlay whose lower layer is the host's own root.

Everything that differs from the host is written into the overlay's upper layer before it is mounted. Whole
folders of the host are hidden by marking them opaque there (overlayfs reads `trusted.overlay.opaque`), which is
why none of the host's services, timers, generators or journals exist inside: they are not masked, they are gone.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

Uppers = Mapping[
    str, Path
]  # mount point on the host -> upper layer of the overlay that covers it; "/" is among them

PERSISTENT, VOLATILE, NONE = "persistent", "volatile", "none"  # journald's own words for Storage=

# Folders whose content belongs to the host and not to a freshly installed machine. An opaque folder starts empty.
HIDDEN = (
    "/etc/cron.d",
    "/etc/dbus-1/system.d",
    "/etc/environment.d",
    "/etc/modules-load.d",
    "/etc/nginx",
    "/etc/ollama",
    "/etc/sysctl.d",
    "/etc/systemd",
    "/etc/tmpfiles.d",
    "/usr/local/lib/ollama",
    "/usr/local/lib/systemd",
    "/usr/share/dbus-1/system-services",  # nothing of the host starts because someone calls its name
    "/usr/share/ollama",
    "/var/lib/dbus",
    "/var/lib/ollama",
    "/var/lib/ollamactl",
    "/var/lib/systemd",
    "/var/log",
    "/var/spool/cron",
    "/var/tmp",
)
# Below systemd's own folder: what would start or generate units, or change the manager's defaults.
HIDDEN_BELOW_SYSTEMD = (
    "system-generators",
    "system-environment-generators",
    "system-shutdown",
    "system.conf.d",
    "journald.conf.d",
)

# Units that a boot starts, by the target that wants them.
WANTS = {
    "sockets.target": ("dbus.socket", "systemd-journald.socket", "systemd-journald-dev-log.socket"),
    "sysinit.target": ("systemd-journald.service", "systemd-journal-flush.service"),
    "lab.target": ("dbus.service",),
}

LAB_TARGET = """\
[Unit]
Description=Lab machine
Requires=basic.target
After=basic.target
AllowIsolate=yes
"""

OLLAMA_GROUPS = ("video", "render")  # the installer adds the user to both where they exist


def systemd_folder() -> str:
    """The host's `…/lib/systemd`, with /lib resolved (a link to usr/lib on merged systems)."""
    return os.path.realpath("/lib/systemd")


def build_uppers(uppers: Uppers, *, storage: str = PERSISTENT, journald: Sequence[str] = ()) -> None:
    """Write the upper layers of the machine's root into empty folders (on a filesystem with trusted xattrs).

    `storage` is journald's Storage=; `journald` are further lines for its `[Journal]` section. Raises OSError.
    """
    for folder in HIDDEN:
        opaque(uppers, folder)
    systemd = systemd_folder()
    for name in HIDDEN_BELOW_SYSTEMD:
        opaque(uppers, f"{systemd}/{name}")
    # Every "wants" and "requires" of installed packages goes; the machine has a list of its own.
    for entry in sorted(os.listdir(f"{systemd}/system")):
        if entry.endswith((".wants", ".requires", ".upholds")):
            opaque(uppers, f"{systemd}/system/{entry}")

    for target, units in WANTS.items():
        for unit in units:
            link(uppers, f"/etc/systemd/system/{target}.wants/{unit}", f"{systemd}/system/{unit}")
    put(uppers, "/etc/systemd/system/lab.target", LAB_TARGET)
    link(uppers, "/etc/systemd/system/default.target", "lab.target")
    settle_uppers(uppers, storage=storage, journald=journald)
    add_ollama_user(uppers)


def settle_uppers(uppers: Uppers, *, storage: str = PERSISTENT, journald: Sequence[str] = ()) -> None:
    """Write into the upper layers what makes one machine of a root: its names and its journal."""
    for mount_point, upper in uppers.items():
        _like(Path(mount_point), upper)
    lines = [
        f"Storage={storage}",
        "RateLimitIntervalSec=0",
        "RateLimitBurst=0",
        "ForwardToWall=no",
        *journald,
    ]
    put(uppers, "/etc/systemd/journald.conf.d/lab.conf", "[Journal]\n" + "\n".join(lines) + "\n")

    put(uppers, "/etc/machine-id", secrets.token_hex(16) + "\n", 0o444)
    put(uppers, "/etc/hostname", "lab\n")
    put(uppers, "/etc/hosts", "127.0.0.1 localhost lab\n::1 localhost\n")
    put(uppers, "/etc/resolv.conf", "")
    put(uppers, "/etc/fstab", "")
    put(uppers, "/etc/environment", "")
    if storage == PERSISTENT:
        _mirror(uppers, "/var/log")
        _place(uppers, "/var/log/journal").mkdir(mode=0o755)


def add_ollama_user(uppers: Uppers) -> None:
    """Add user and group `ollama` as Ollama's installer does: system ids, own home, no login."""
    passwd, group, shadow = (_lines(f"/etc/{name}") for name in ("passwd", "group", "shadow"))
    users = {line.split(":")[0]: line.split(":") for line in passwd}
    groups = {line.split(":")[0]: line.split(":") for line in group}
    if "ollama" in users and "ollama" in groups:  # the host has them: keep its numbers
        uid, gid = int(users["ollama"][2]), int(groups["ollama"][2])
    else:
        taken = {
            int(row[2]) for row in (*users.values(), *groups.values()) if len(row) > 2 and row[2].isdigit()
        }
        uid = gid = next(number for number in range(999, 99, -1) if number not in taken)
        members = [
            line + ("ollama" if line.endswith(":") else ",ollama")
            if line.split(":")[0] in OLLAMA_GROUPS
            else line
            for line in _without_ollama(group)
        ]
        account = f"ollama:x:{uid}:{gid}::/usr/share/ollama:/bin/false"
        put(uppers, "/etc/group", "\n".join([*members, f"ollama:x:{gid}:"]) + "\n")
        put(uppers, "/etc/passwd", "\n".join([*_without_ollama(passwd), account]) + "\n")
        put(
            uppers, "/etc/shadow", "\n".join([*_without_ollama(shadow), "ollama:!:19000::::::"]) + "\n", 0o640
        )
        os.chown(_place(uppers, "/etc/shadow"), 0, os.stat("/etc/shadow").st_gid)
    home = _place(uppers, "/usr/share/ollama")
    home.chmod(0o750)
    os.chown(home, uid, gid)


def opaque(uppers: Uppers, folder: str) -> None:
    """Make `folder` start empty inside, whatever the host has there; owner and mode are the host's."""
    os.setxattr(_mirror(uppers, folder), "trusted.overlay.opaque", b"y")


def put(uppers: Uppers, path: str, text: str, mode: int = 0o644) -> None:
    """Write a file of an upper layer."""
    _mirror(uppers, os.path.dirname(path))
    place = _place(uppers, path)
    place.write_text(text, errors="surrogateescape")
    place.chmod(mode)


def link(uppers: Uppers, path: str, target: str) -> None:
    """Make a symbolic link in an upper layer."""
    _mirror(uppers, os.path.dirname(path))
    os.symlink(target, _place(uppers, path))


def _place(uppers: Uppers, path: str) -> Path:
    """Where `path` of the machine lies in the upper layers; a folder that the host reaches by a link is resolved,
    because a folder written over that link would hide all that is behind it."""
    path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    if os.path.isdir(path):
        path = os.path.realpath(path)
    covering = max((point for point in uppers if _within(path, point)), key=len)
    return uppers[covering] / os.path.relpath(path, covering)


def _mirror(uppers: Uppers, folder: str) -> Path:
    """Make `folder` and its parents in the upper layers with the owner and mode that each has on the host."""
    place = _place(uppers, folder)
    if not place.is_dir():
        _mirror(uppers, os.path.dirname(folder))
        place.mkdir(mode=0o755)
        _like(Path(folder), place)
    return place


def _like(host: Path, place: Path) -> None:
    """Give a folder of an upper layer the host's owner and mode: the upper one is what the overlay shows."""
    if host.is_dir():
        seen = host.stat()
        os.chown(place, seen.st_uid, seen.st_gid)
        place.chmod(seen.st_mode & 0o7777)
    else:
        place.chmod(0o755)


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _lines(path: str) -> list[str]:
    return [line for line in Path(path).read_text(errors="surrogateescape").splitlines() if line]


def _without_ollama(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if not line.startswith("ollama:")]
