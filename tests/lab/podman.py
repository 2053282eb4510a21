"""A real podman in a lab machine of Debian 13, whose quadlets systemd runs. Its files are of Debian's own packages,
unpacked below the checkout's cache and copied in. Its containers run the lab's Ollama from the machine's own files."""

from __future__ import annotations

import shlex

from . import debian, docker, ollama
from .machine import CHECKOUT, Machine

SUITE = "trixie"  # Debian 12 has a podman that knows no quadlets
PACKAGES = (
    "podman", "crun", "conmon", "netavark", "golang-github-containers-common", "golang-github-containers-image",
    "libgpgme11t64", "libassuan9", "libatomic1", "libgpg-error0", "libsubid5", "libyajl2", "libglib2.0-0t64",
)  # fmt: skip
IMAGE = "localhost/ollama/ollama:lab"


def machine() -> Machine:
    """A machine that podman can run in, not booted yet."""
    programs()
    return Machine(root=debian.image(SUITE), nspawn=docker.NSPAWN)


def programs() -> str:
    return str(debian.unpacked(SUITE, PACKAGES, CHECKOUT / ".cache" / "podman"))


def setup(machine: Machine) -> None:
    """podman works, with an image of Ollama; the unit of Ollama is gone."""
    ollama.setup(machine)
    changes = " ".join(f"--change {shlex.quote(c)}" for c in docker.CHANGES)
    script = f"""
set -e
systemctl disable -q --now ollama
rm /etc/systemd/system/ollama.service
cp -a {programs()}/. /
ldconfig
mkdir -p /etc/containers
printf '[storage]\\ndriver="vfs"\\nrunroot="/run/containers/storage"\\ngraphroot="/var/lib/containers/storage"\\n' \\
    > /etc/containers/storage.conf
printf '[containers]\\npids_limit=0\\n[engine]\\nevents_logger="file"\\n' > /etc/containers/containers.conf
systemctl daemon-reload
mkdir -p /tmp/image/usr /tmp/image/etc /tmp/image/tmp /tmp/image/root
for link in bin lib lib64 sbin; do ln -sfn usr/$link /tmp/image/$link; done
tar -C /tmp/image -c . | podman import {changes} - {IMAGE}
"""
    machine.run(["bash", "-c", script], timeout=120)
