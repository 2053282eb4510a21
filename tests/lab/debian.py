"""Clean Debian systems for machines that are not the host: what a server's installer puts there, and nothing of ours.

    root = debian.image("trixie")
    with Machine(root=root) as machine: …

Each is made once and kept in the checkout's cache, with the archives of the packages that tests install later, so that
an installation inside needs no network, as the machine has none. The mirror is the one that this host uses.
"""

from __future__ import annotations

import fcntl
import hashlib
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "debian"
SUITES = {"bookworm": "12", "trixie": "13"}
# A server as its installer leaves it: it is booted by systemd, reached by ssh, and Debian's own tools bring Python.
SERVER = (
    "systemd", "systemd-sysv", "dbus", "openssh-server", "iproute2", "procps", "curl", "ca-certificates", "man-db",
    "python3", "python3-apt",
    "libgomp1",  # the engine wants it
)  # fmt: skip
# Archives at hand: what our package needs from Debian.
LATER = ("python3-click", "python3-jinja2", "python3-psutil", "python3-pystemd")
# Ollama's own installer makes this account. Timers of Debian would work while tests look.
SETTLE = """
useradd -r -s /bin/false -U -m -d /usr/share/ollama ollama
systemctl mask -q apt-daily.timer apt-daily-upgrade.timer man-db.timer dpkg-db-backup.timer e2scrub_all.timer \
    systemd-networkd-wait-online.service
systemctl disable -q ssh.service
rm -f /etc/ssh/ssh_host_*
find /var/log -type f -delete
"""


def mirror() -> str:
    """The archive that this host's apt uses, or DEBIAN_MIRROR. Raises RuntimeError where it is no Debian."""
    if given := os.environ.get("DEBIAN_MIRROR"):
        return given
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(SUITE)", "Created-By: Packages"]
    for before in ([], ["apt-get", "update", "-qq"]):  # whose an archive is stands in its lists
        if before:
            subprocess.run(before, check=True, capture_output=True)
        for line in subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines():
            uri, origin, _ = line.split(" ", 2)
            if origin == "Debian" and "security" not in uri:
                return uri
    raise RuntimeError("no Debian archive is configured on this host (DEBIAN_MIRROR=URL)")


def unpacked(suite: str, packages: Sequence[str], kept: Path) -> Path:
    """`kept`, a folder with the files of just these packages of any release; fetched once, nothing is installed."""
    if not kept.is_dir():
        kept.parent.mkdir(parents=True, exist_ok=True)
        archive = mirror().rstrip("/")
        said = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True)
        index = _fetched(f"{archive}/dists/{suite}/main/binary-{said.stdout.strip()}/Packages.xz")
        entries = lzma.decompress(index).decode().split("\n\n")
        with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
            for package in packages:
                entry = next(e for e in entries if e.startswith(f"Package: {package}\n"))
                name = next(line.split()[1] for line in entry.splitlines() if line.startswith("Filename:"))
                Path(f"{scratch}/it.deb").write_bytes(_fetched(f"{archive}/{name}"))
                subprocess.run(["dpkg-deb", "-x", f"{scratch}/it.deb", f"{scratch}/root"], check=True)
            os.replace(f"{scratch}/root", kept)
    return kept


def _fetched(url: str) -> bytes:
    return subprocess.run(["curl", "-sSfL", "--max-time", "120", url], capture_output=True, check=True).stdout


def image(suite: str) -> Path:
    """The folder with a clean system of that release; made when it is not there yet."""
    recipe = repr((suite, SERVER, LATER, SETTLE))
    folder = CACHE / f"{suite}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{suite}.lock", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if folder.is_dir():
            return folder
        for old in CACHE.glob(f"{suite}-*"):
            if subprocess.run(["mountpoint", "-q", old / "proc"]).returncode == 0:
                raise RuntimeError(f"{old}/proc is mounted, so the folder is not removed (umount it)")
            shutil.rmtree(old)
        fresh = CACHE / f"{suite}-new"
        done = subprocess.run(
            [
                "unshare",  # its mounts end with it, however it ends: what is removed below is a folder and no more
                "--mount",
                "--propagation=private",
                "mmdebstrap",
                "--quiet",
                "--mode=root",
                "--variant=minbase",
                f"--include={','.join(SERVER)}",
                "--skip=cleanup/apt",
                f'--customize-hook=chroot "$1" apt-get install -qq -y --no-install-recommends --download-only '
                f"{' '.join(LATER)}",
                f'--customize-hook=chroot "$1" sh -e -c "{SETTLE}"',
                suite,
                str(fresh),
                mirror(),
            ],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            shutil.rmtree(fresh, ignore_errors=True)
            raise RuntimeError(f"no image of Debian {SUITES[suite]}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        fresh.rename(folder)
    return folder


if __name__ == "__main__":
    os.umask(0o022)
    for name in sys.argv[1:] or SUITES:
        print(image(name))
