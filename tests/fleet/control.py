"""The controller: ansible-core with the collection, as `ansible-galaxy` builds and installs it, over ssh."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from .hosts import Fleet

TOP = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
CONFIG = """\
[defaults]
inventory = {folder}/inventory.yml
collections_path = {folder}/collections
callback_plugins = {plugins}
callbacks_enabled = record
private_key_file = {folder}/id_ed25519
remote_user = root
retry_files_enabled = false
interpreter_python = /usr/bin/python3
local_tmp = {folder}/tmp
timeout = 60
[connection]
pipelining = true
[ssh_connection]
control_path_dir = {sockets}
ssh_args = -o UserKnownHostsFile={folder}/known_hosts -o ControlMaster=auto -o ControlPersist=120s
"""


class Run(NamedTuple):
    """What a playbook did: exit code, output, results in order, the summary by host."""

    code: int
    output: str
    results: list[dict[str, Any]]
    stats: dict[str, dict[str, int]]

    def of(self, host: str, action: str = "ollamactl.host.config") -> dict[str, Any]:
        """The last result of that module on that host."""
        found = [r for r in self.results if r["host"] == host and r["action"] == action]
        assert found, f"{host} has no result of {action}:\n{self.output}"
        return {**found[-1]["result"], "failed": found[-1]["kind"] in ("failed", "ignored")}

    @property
    def changed(self) -> dict[str, int]:
        return {host: row["changed"] for host, row in self.stats.items()}


def environment(folder: Path) -> dict[str, str]:
    """What a login has on the controller; nothing of the caller's Ansible."""
    return {
        "PATH": f"{BIN}:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
    }


def install_collection(folder: Path) -> Path:
    """Builds the collection and installs it below `folder`, both by ansible-galaxy; returns where it is."""
    env = environment(folder)
    galaxy = [BIN / "ansible-galaxy", "collection"]
    built = folder / "built"
    quiet = {"check": True, "capture_output": True, "env": env}
    subprocess.run([*galaxy, "build", "--force", "--output-path", built, TOP / "packaging/ansible"], **quiet)  # type: ignore[call-overload]
    (archive,) = built.glob("*.tar.gz")
    subprocess.run([*galaxy, "install", "--force", "--offline", "-p", folder / "collections", archive], **quiet)  # type: ignore[call-overload]
    return folder / "collections/ansible_collections/ollamactl/host"


class Controller:
    """Runs playbooks on the hosts of a fleet."""

    name = "play"  # of its files
    bin = BIN  # where its Ansible is

    def __init__(self, fleet: Fleet, variables: Mapping[str, Any]) -> None:
        self.fleet, self.folder = fleet, fleet.folder
        self.sockets = tempfile.mkdtemp(prefix="of-")  # a socket's path has 108 bytes at most
        plugins = Path(__file__).with_name("plugins")
        text = CONFIG.format(folder=self.folder, plugins=plugins, sockets=self.sockets)
        (self.folder / "ansible.cfg").write_text(text)
        hosts = {host.name: {"ansible_host": host.address} for host in fleet.hosts.values()}
        # Where nobody is: a host of the inventory that was taken down.
        lost = {"delta": {"ansible_host": "10.213.0.99"}}
        inventory = {
            "ollama": {"hosts": hosts, "vars": dict(variables)},
            "with_lost": {"hosts": lost, "children": {"ollama": {}}},
        }
        (self.folder / "inventory.yml").write_text(yaml.safe_dump(inventory))
        install_collection(self.folder)

    def close(self) -> None:
        for socket in Path(self.sockets).iterdir():  # masters of ssh live on for a while
            end = ["ssh", "-O", "exit", "-o", f"ControlPath={socket}", "host"]
            subprocess.run(end, capture_output=True, check=False)
        shutil.rmtree(self.sockets, ignore_errors=True)

    def start(self, playbook: str | list[dict[str, Any]], *args: str, **variables: Any) -> subprocess.Popen[str]:
        """Starts a playbook: of the collection by its name, or given as plays."""
        if not isinstance(playbook, str):
            path = self.folder / f"{self.name}.yml"
            path.write_text(yaml.safe_dump(playbook, sort_keys=False))
            playbook = str(path)
        record = self.folder / f"{self.name}.record"
        record.unlink(missing_ok=True)
        argv = [str(self.bin / "ansible-playbook"), playbook, *args]
        argv += ["-e", json.dumps(variables)] if variables else []
        return self.fleet.popen(argv, {**environment(self.folder), "FLEET_RECORD": str(record)}, cwd=self.folder)

    def end(self, process: subprocess.Popen[str], timeout: float = 600) -> Run:
        """Waits for a playbook."""
        try:
            output, _ = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
        record = self.folder / f"{self.name}.record"
        lines = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
        stats = next((line["stats"] for line in lines if line["kind"] == "stats"), {})
        return Run(process.returncode, output, [line for line in lines if line["kind"] != "stats"], stats)

    def play(self, playbook: str | list[dict[str, Any]], *args: str, **variables: Any) -> Run:
        """Runs a playbook to its end."""
        return self.end(self.start(playbook, *args, **variables))


def tasks(*found: dict[str, Any], hosts: str = "ollama", **more: Any) -> list[dict[str, Any]]:
    """One play of tasks."""
    return [{"hosts": hosts, "gather_facts": False, "tasks": list(found), **more}]


