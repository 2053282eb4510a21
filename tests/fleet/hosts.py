"""Several hosts on a bridge: clean Debian systems with a real sshd, each a lab machine, in a network of their own.

The network is a namespace that this process alone holds open: it is gone with the process, and nothing in it reaches
anything else. The controller's commands run in it too (`Fleet.run`).
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from tests.lab import debian, ollama
from tests.lab.machine import Machine

T = TypeVar("T")
_NEWNET = 0x40000000
CONTROLLER = "10.213.0.1"
# How the interface of a host gets its address, at each boot.
NETWORK = """\
[Match]
Name=host0
[Network]
Address={address}/24
LinkLocalAddressing=no
IPv6AcceptRA=no
"""
# A server's own choice of what ssh lets in: keys only, root too.
SSHD = "PermitRootLogin prohibit-password\nPasswordAuthentication no\nUseDNS no\n"


class Network:
    """A network namespace with a bridge in it."""

    def __init__(self) -> None:
        self.fd = in_thread(self._make)

    def _make(self) -> int:
        _called("unshare", _NEWNET)
        script = (
            "ip link set lo up && ip link add fleet type bridge && "
            f"ip addr add {CONTROLLER}/24 dev fleet && ip link set fleet up"
        )
        subprocess.run(["sh", "-c", script], check=True)
        return os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def inside(self, do: Callable[[], T]) -> T:
        """`do`, called by a thread that is in the network; what it starts is in it too."""

        def entered() -> T:
            _called("setns", self.fd, _NEWNET)
            return do()

        return in_thread(entered)

    def close(self) -> None:
        os.close(self.fd)


class Host:
    """One host: its name in the inventory, its address, its machine."""

    def __init__(self, name: str, number: int, suite: str, options: Sequence[str]) -> None:
        self.name, self.suite = name, suite
        self.address = f"10.213.0.{10 + number}"
        own = ["--network-bridge=fleet", f"--hostname={name}"]
        self.machine = Machine(root=debian.image(suite), nspawn=[*own, *options], size=2 << 30)

    def set_up(self, key: str) -> str:
        """Its network, sshd and Ollama, after the first boot; returns its public host key."""
        run, write = self.machine.run, self.machine.write
        write("/etc/systemd/network/10-fleet.network", NETWORK.format(address=self.address))
        write("/etc/ssh/sshd_config.d/fleet.conf", SSHD)
        write("/root/.ssh/authorized_keys", key, 0o600)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/etc/ssh/ssh_host_ed25519_key"])
        run(["systemctl", "enable", "-q", "--now", "systemd-networkd", "ssh"])
        ollama.setup(self.machine)
        # Where a boot finds the models again: the lab's files are mounted, not copied.
        write("/etc/systemd/system/models.service", MODELS.format(source=ollama.stage()[0], target=ollama.MODELS))
        run(["systemctl", "enable", "-q", "models"])
        return self.machine.read("/etc/ssh/ssh_host_ed25519_key.pub")

    def etc(self) -> str:
        """Every file below /etc: path, owner, mode, link, digest."""
        listed = r"find . -printf '%p %U:%G %m %l\n' | sort"
        script = rf"cd /etc && {listed} && find . -type f | sort | xargs -d '\n' sha256sum"
        return self.machine.run(["bash", "-c", script]).stdout

    def invocation(self) -> str:
        """Which start of Ollama this is."""
        return self.machine.run(["systemctl", "show", "-P", "InvocationID", "ollama"]).stdout.strip()

    def environ(self) -> dict[str, str]:
        """The environment of the running server."""
        script = "tr '\\0' '\\n' < /proc/$(systemctl show -P MainPID ollama)/environ"
        lines = self.machine.run(["bash", "-c", script]).stdout.splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def cut_power(self) -> None:
        """Ends at once, nothing is stopped or synced; boots again from what is on its disk."""
        self.machine.run(["systemctl", "reboot", "--force", "--force"], check=False)
        self.machine._await_boot(120)


MODELS = """\
[Unit]
Description=Models of the lab
Before=ollama.service
[Service]
Type=oneshot
ExecStart=mount --bind {source}{target} {target}
[Install]
WantedBy=multi-user.target
"""


class Fleet:
    """Hosts that are up, and a controller beside them."""

    def __init__(
        self, names: Mapping[str, str], folder: Path, options: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """`names`: host → release of Debian. `folder`: the controller's home. `options`: host → words for nspawn."""
        self.folder, options = folder, options or {}
        self.network = Network()
        ollama.stage()
        self.hosts = {
            name: Host(name, number, suite, options.get(name, ()))
            for number, (name, suite) in enumerate(names.items())
        }

    def __enter__(self) -> Fleet:
        try:
            for host in self.hosts.values():
                self.network.inside(host.machine.boot)
            key = self.folder / "id_ed25519"
            key.unlink(missing_ok=True)
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
            public = key.with_suffix(".pub").read_text()
            with ThreadPoolExecutor() as pool:
                keys = pool.map(lambda host: host.set_up(public), self.hosts.values())
                lines = [f"{host.address} {line}" for host, line in zip(self.hosts.values(), keys, strict=True)]
            (self.folder / "known_hosts").write_text("".join(lines))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts.values():
            host.machine.stop()
        self.network.close()

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def popen(self, argv: Sequence[str | Path], env: Mapping[str, str], **more: Any) -> subprocess.Popen[str]:
        """Start a command of the controller, in the network."""
        return self.network.inside(
            lambda: subprocess.Popen(
                [str(word) for word in argv], env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, **more,
            )
        )  # fmt: skip


def in_thread(do: Callable[[], T]) -> T:
    """`do`, called by a thread of its own, which ends with it: a namespace is entered for a thread's whole life."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(do).result()


def _called(name: str, *args: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*args):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
