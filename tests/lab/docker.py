"""A real Docker engine in a lab machine: Debian's own packages, unpacked below the checkout's cache and not installed.

Its containers run the lab's Ollama from the machine's own files: the image holds nothing but links.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import time
from pathlib import Path

from . import debian, ollama
from .machine import CHECKOUT, Machine

PACKAGES = ("docker.io", "docker-cli", "containerd", "runc")  # docker-cli is one of its own since Debian 13
IMAGE = "ollama/ollama:lab"
# What makes the image one of Ollama.
CHANGES = ('ENTRYPOINT ["/usr/local/bin/ollama"]', 'CMD ["serve"]', "ENV OLLAMA_HOST=0.0.0.0:11434",
           f"ENV OLLAMA_MODELS={ollama.MODELS}")  # fmt: skip
# runc makes a session keyring, and keeps devices from containers by a BPF program.
NSPAWN = ("--system-call-filter=@keyring bpf", "--capability=all")


def programs() -> Path:
    """Folder with the engine's programs, fetched once."""
    folder = CHECKOUT / ".cache" / "docker"
    if not (folder / "usr/sbin/dockerd").exists():
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            known = [p for p in PACKAGES if _candidate(p)]
            fetch = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", *known]
            done = subprocess.run(fetch, cwd=scratch, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            for package in Path(scratch).glob("*.deb"):
                subprocess.run(["dpkg-deb", "-x", package, f"{scratch}/root"], check=True)
            os.replace(f"{scratch}/root", folder)
    return folder


def plugin() -> Path:
    """Compose of today, which Debian has since 13."""
    files = debian.unpacked("trixie", ["docker-compose"], CHECKOUT / ".cache" / "compose")
    return files / "usr/libexec/docker/cli-plugins/docker-compose"


def _candidate(package: str) -> bool:
    said = subprocess.run(["apt-cache", "policy", package], capture_output=True, text=True).stdout
    return "Candidate:" in said and "Candidate: (none)" not in said


def machine() -> Machine:
    """A machine that an engine can run in, not booted yet."""
    programs(), plugin()  # there before the machine looks
    return Machine(nspawn=NSPAWN)


def setup(machine: Machine) -> None:
    """The engine runs, with an image of Ollama; the unit of Ollama is gone."""
    ollama.setup(machine)
    folder = programs()
    script = f"""
set -e
systemctl disable -q --now ollama
rm /etc/systemd/system/ollama.service
systemctl daemon-reload
for program in {folder}/usr/bin/* {folder}/usr/sbin/*; do ln -sf $program /usr/local/bin/; done
systemd-run -q --unit=docker -E PATH=/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin \\
    dockerd --data-root /var/lib/docker --storage-driver=vfs --iptables=false
mkdir -p /usr/local/lib/docker/cli-plugins
ln -sf {plugin()} /usr/local/lib/docker/cli-plugins/docker-compose
mkdir -p /tmp/image/usr /tmp/image/etc /tmp/image/tmp /tmp/image/root
for link in bin lib lib64 sbin; do ln -sfn usr/$link /tmp/image/$link; done
"""
    machine.run(["bash", "-c", script])
    until = time.monotonic() + 30
    while machine.run(["docker", "version"], check=False).returncode:
        assert time.monotonic() < until, machine.run(["journalctl", "-u", "docker", "-n", "30"]).stdout
        time.sleep(0.1)
    words = " ".join(f"--change {shlex.quote(c)}" for c in CHANGES)
    machine.run(["bash", "-c", f"tar -C /tmp/image -c . | docker import {words} - {IMAGE}"])


def volumes(machine: Machine) -> list[str]:
    """What a container needs of the machine: its programs, the checkout, the interpreter."""
    paths = sorted({"/usr", "/etc/passwd", "/etc/group", *machine.shared})
    return [p for p in paths if not any(p.startswith(f"{other}/") for other in paths)]
