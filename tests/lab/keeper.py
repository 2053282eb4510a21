"""The process that keeps one lab machine: it makes the namespaces, starts systemd-nspawn and cleans up.

    owner (a test run) ── keeper ── init of a pid namespace ── systemd-nspawn ── systemd of the machine

- The init lives in its own mount, pid and cgroup namespaces. All mounts (a tmpfs with the upper layers, the
  overlays, what nspawn mounts) are made there, so they vanish with the last process, and no process outlives the
  init: the kernel kills all of a pid namespace with its first.
- The keeper watches its owner by a pidfd and a pipe. When the owner ends in whatever way, SIGKILL included, or
  closes the pipe, the keeper kills the init and removes the machine's cgroups and state folder.
- When the keeper itself is killed, the init gets SIGKILL from the kernel. Two empty things are left then, the state
  folder and the cgroup folders, and the next keeper sweeps them (an unlocked state folder has a dead keeper).

Run as `python keeper.py JSON`; tells its owner one JSON line per boot on stdout. Needs root.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import kernel
import rootfs

CGROUPS = "/sys/fs/cgroup"  # in the keeper's mount namespace always a v2 hierarchy of our own mount
RESTART = 133  # nspawn's exit status when the machine asks for a reboot
OF_THE_KERNEL = ("proc", "sysfs", "devpts", "mqueue", "cgroup", "cgroup2")  # no overlay covers such a filesystem
FRESH_INSIDE = ("/tmp", "/run", "/dev", "/proc", "/sys")  # nspawn mounts its own there, over the overlay
NOT_OF_THE_ROOT = (*FRESH_INSIDE, "/mnt", "/media")
ON_DISK = (
    "ext2",
    "ext3",
    "ext4",
    "xfs",
    "btrfs",
    "f2fs",
    "bcachefs",
    "zfs",
    "overlay",
    "tmpfs",
    "virtiofs",
    "9p",
)


def main(config: dict[str, Any]) -> int:
    """Keep one machine until its owner ends, asks for the end, or the machine powers off."""
    state = Path(config["state"])
    stop_read, stop_write = os.pipe()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: os.write(stop_write, b"x") and None)
    watched = [stop_read]
    if config["owner"]:
        try:
            watched += [os.pidfd_open(config["owner"]), sys.stdin.fileno()]
        except ProcessLookupError:  # the owner has ended already
            shutil.rmtree(state, ignore_errors=True)
            return 1

    kernel.unshare(kernel.NEWNS)
    kernel.mount(
        "none", "/", flags=kernel.REC | kernel.SLAVE
    )  # nothing of ours gets out, nothing of theirs is held
    mount_cgroups()
    sweep(state.parent)

    group, own = make_cgroup(config, state)
    try:
        return keep(config, state, group, watched)
    finally:
        if group != own:  # a scope ends with its last process, and systemd clears it away
            (own / "cgroup.procs").write_text(str(os.getpid()))
            remove_cgroup(group)
        shutil.rmtree(state, ignore_errors=True)


def keep(config: dict[str, Any], state: Path, group: Path, watched: list[int]) -> int:
    """Start the init and serve it until one of `watched` becomes readable or it ends by itself."""
    report_read, report_write = os.pipe()
    go_read, go_write = os.pipe()
    kernel.unshare(kernel.NEWPID)
    init = os.fork()
    if init == 0:
        kernel.die_with_parent()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        os.close(report_read)
        os.close(go_write)
        if not os.read(go_read, 1):  # the keeper died before it put us into the cgroup
            os._exit(1)
        status = 1
        try:
            status = run_init(config, state, report_write)
        except Exception as problem:
            print(f"lab: {problem!r}", file=sys.stderr, flush=True)
        os._exit(status)

    os.close(report_write)
    ended = os.pidfd_open(init)
    try:
        (group / "machine/cgroup.procs").write_text(str(init))
        os.write(go_write, b"x")
        while True:
            readable, _, _ = select.select([report_read, ended, *watched], [], [])
            if report_read in readable and os.read(report_read, 4096):
                announce(config, state, init, group)
            elif report_read not in readable or ended in readable or any(one in readable for one in watched):
                return 0
            else:  # end of file: the init is about to end
                time.sleep(0.01)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(init, signal.SIGKILL)
        os.waitpid(init, 0)  # returns when every process of the pid namespace is gone


def announce(config: dict[str, Any], state: Path, init: int, group: Path) -> None:
    """Write down and tell the owner what it needs to enter the machine that has just come up."""
    leader = next(
        pid
        for nspawn in kernel.children(init)
        for pid in kernel.children(nspawn)
        if kernel.namespace_pids(pid)[-1] == 1
    )
    payload = Path(CGROUPS + os.path.dirname(kernel.cgroup(leader)))
    entry = payload / "lab"  # commands that are run inside live here, beside systemd's own cgroups
    entry.mkdir(exist_ok=True)
    facts = {
        "name": config["name"],
        "keeper": os.getpid(),
        "started": kernel.started(os.getpid()),
        "leader": leader,
        "cgroup": str(group),
        "entry": f"/proc/{os.getpid()}/root{entry}/cgroup.procs",
    }
    fresh = state / "state.json.new"
    fresh.write_text(json.dumps(facts))
    fresh.rename(state / "state.json")
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(facts), flush=True)


# The init of the pid namespace


def run_init(config: dict[str, Any], state: Path, report: int) -> int:
    """Mount the machine's root and run systemd-nspawn on it, again after each reboot. Returns its exit status."""
    kernel.unshare(kernel.NEWNS | kernel.NEWCGROUP)
    mount_cgroups()
    kernel.mount("proc", "/proc", "proc", kernel.NOSUID | kernel.NODEV | kernel.NOEXEC)
    base = state / "fs"
    base.mkdir()
    kernel.mount("lab", str(base), "tmpfs", kernel.NODEV, f"size={config['size']},mode=0700")
    binds = mount_root(base, config)
    # nspawn keeps locks and sockets below /run: give it a /run that nobody else sees.
    kept = os.open(base, os.O_PATH | os.O_DIRECTORY)
    kernel.mount("run", "/run", "tmpfs", kernel.NOSUID | kernel.NODEV, "mode=0755")
    os.mkdir("/run/lab")
    kernel.mount(f"/proc/self/fd/{kept}", "/run/lab", flags=kernel.BIND | kernel.REC)
    os.close(kept)

    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind("/run/notify")
    argv = [
        "systemd-nspawn",
        "--boot",
        "--quiet",
        "--register=no",
        "--keep-unit",
        "--settings=no",
        "--notify-ready=yes",
        "--directory=/run/lab/root",
        f"--machine={config['name']}",
        "--hostname=lab",
        "--private-network",
        "--resolv-conf=off",
        "--timezone=off",
        "--link-journal=no",
        "--console=pipe",
        "--capability=CAP_SYS_RESOURCE,CAP_IPC_LOCK",  # units may raise limits and lock memory, as on a server
        *(f"--bind=/run/lab/{source}:{_colons(target)}" for source, target in binds),
        *config["nspawn"],
    ]
    environment = {
        "PATH": os.environ["PATH"],
        "NOTIFY_SOCKET": "/run/notify",
        "SYSTEMD_NSPAWN_LOCK": "0",
        "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
        "SYSTEMD_LOG_TARGET": "console",
    }
    while True:
        nspawn = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno())
        ended = os.pidfd_open(nspawn.pid)
        while True:
            readable, _, _ = select.select([notify.fileno(), ended], [], [])
            if notify.fileno() in readable:
                if b"READY=1" in notify.recv(4096).splitlines():
                    os.write(report, b"ready\n")
            elif ended in readable:
                break
        os.close(ended)
        if nspawn.wait() != RESTART:
            return nspawn.returncode


def mount_root(base: Path, config: dict[str, Any]) -> list[tuple[str, str]]:
    """Mount the overlays at `base`/root. Returns (folder below base, path inside) of what nspawn must bind itself.

    Upper layers are in the tmpfs `base`: gone with the machine, and never on the filesystem of the lower layer.
    """
    root = config["root"]
    points = covered(config["share"]) if root == "/" else ["/", *apart(config["share"])]
    uppers = {point: base / "upper" / str(number) for number, point in enumerate(points)}
    for upper in uppers.values():
        upper.mkdir(parents=True)
    prepare = rootfs.build_uppers if root == "/" else rootfs.settle_uppers
    prepare(uppers, storage=config["storage"], journald=config["journald"])
    binds = []
    for number, (point, upper) in enumerate(uppers.items()):
        work = base / "work" / str(number)
        work.mkdir(parents=True)
        target = base / "root" / point.strip("/")
        if point.startswith(tuple(f"{one}/" for one in FRESH_INSIDE)):
            target = base / "bind" / str(number)
            binds.append((f"bind/{number}", point))
        target.mkdir(parents=True, exist_ok=True)
        lower = root if point == "/" else point
        kernel.mount(
            "lab",
            str(target),
            "overlay",
            0,
            ",".join(
                f"{key}={_escaped(str(path))}"
                for key, path in (("lowerdir", lower), ("upperdir", upper), ("workdir", work))
            ),
        )
    return binds


def covered(share: list[str]) -> list[str]:
    """Folders of the host that need an overlay each, outermost first: the root, every filesystem of its own that is
    mounted below it (an overlay doesn't cross into it), and shared folders that lie where the machine has a fresh
    filesystem."""
    points = {"/"}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        point = before.split()[4].encode().decode("unicode_escape")
        holds_shared = any(_within(folder, point) for folder in share)
        in_shared = any(_within(point, folder) for folder in share)
        visible = after.split()[0] in ON_DISK and not any(_within(point, one) for one in NOT_OF_THE_ROOT)
        if after.split()[0] in OF_THE_KERNEL:
            continue  # a debootstrap in the cache that is still under way
        if os.path.isdir(point) and (holds_shared or in_shared or visible):
            points.add(point)
    points -= set(FRESH_INSIDE)
    points |= {folder for folder in share if any(_within(folder, one) for one in (*FRESH_INSIDE, "/var/tmp"))}
    return sorted(points)


def apart(share: list[str]) -> list[str]:
    """Shared folders for a root that is not the host's, without those that another one holds."""
    return sorted(one for one in set(share) if not any(one != other and _within(one, other) for other in share))


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _colons(path: str) -> str:
    return path.replace("\\", "\\\\").replace(":", "\\:")


def _escaped(path: str) -> str:
    return _colons(path).replace(",", "\\,")


# cgroups and leftovers


def mount_cgroups() -> None:
    """Put the v2 hierarchy at its place in this mount namespace, whatever the host has there (v2 already, or the
    folders of v1), writable, and beginning at the root of this cgroup namespace."""
    with contextlib.suppress(OSError):  # not a mount point; the same filesystem can't cover itself
        kernel.umount(CGROUPS)
    kernel.mount("cgroup2", CGROUPS, "cgroup2", kernel.NOSUID | kernel.NODEV | kernel.NOEXEC)


def make_cgroup(config: dict[str, Any], state: Path) -> tuple[Path, Path]:
    """Make the machine's cgroup; returns it and the one that the keeper came from.

    Where systemd runs the host, the owner started us in a delegated scope, and that is the machine's cgroup."""
    own = Path(CGROUPS + kernel.cgroup(os.getpid()))
    group = own if config["scope"] else own / f"ollamactl-lab-{config['name']}"
    (state / "cgroup").write_text("" if config["scope"] else str(group))
    for folder in (group, group / "keeper", group / "machine"):
        folder.mkdir(exist_ok=True)
    (group / "keeper/cgroup.procs").write_text(
        str(os.getpid())
    )  # controllers are for groups without processes
    for folder in (group, group / "machine"):
        for controller in (folder / "cgroup.controllers").read_text().split():
            with contextlib.suppress(OSError):  # some need what this host doesn't have
                (folder / "cgroup.subtree_control").write_text(f"+{controller}")
    return group, own


def remove_cgroup(group: Path) -> None:
    """Kill what is left in a machine's cgroup and remove it, depth first."""
    deadline = time.monotonic() + 5
    while group.is_dir():
        with contextlib.suppress(OSError):
            (group / "machine/cgroup.kill").write_text("1")
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):  # a process in it is still ending
                os.rmdir(folder)
        if time.monotonic() > deadline:
            print(f"lab: could not remove {group}", file=sys.stderr)
            return
        time.sleep(0.005)


def sweep(states: Path) -> None:
    """Remove what machines left whose keeper was killed: a state folder that nobody holds locked, and its cgroup."""
    with open(states / ".lock", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # an owner holds it from making the folder to locking it
        for state in (one for one in states.iterdir() if one.is_dir()):
            with open(state / "lock", "w") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:  # alive
                    continue
                with contextlib.suppress(FileNotFoundError):
                    group = (state / "cgroup").read_text()
                    if group.startswith(CGROUPS + "/") and os.path.basename(group).startswith(
                        "ollamactl-lab-"
                    ):
                        remove_cgroup(Path(group))
                shutil.rmtree(state, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
