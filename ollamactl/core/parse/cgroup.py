"""The cgroup path of a process → who runs it: systemd, a user's systemd, a container engine, a login session."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

Owner = Literal["unit", "user-unit", "docker", "podman", "quadlet", "kubernetes", "lxc", "session", ""]


class Home(msgspec.Struct, frozen=True):
    """Where a process lives. `name` is a unit, the id or the name of a container; empty where the path tells none."""

    owner: Owner
    name: str = ""
    uid: int | None = None  # of the user's systemd, where it is one's


_ID = r"(?P<id>[0-9a-f]{64})"
# The first that fits decides: a container may stand below a unit (quadlet), below a user's systemd (rootless).
_RULES: tuple[tuple[Owner, str], ...] = (
    ("kubernetes", rf"/kubepods.*?{_ID}"),
    ("kubernetes", r"/kubepods\b"),
    ("quadlet", rf"/(?P<name>[^/]+\.service)/libpod-payload-{_ID}"),
    ("podman", rf"/libpod-(?!conmon){_ID}"),
    ("docker", rf"/(?:docker[-/]|nerdctl-|cri-containerd-){_ID}"),
    ("lxc", r"/lxc(?:\.payload\.|/)(?P<name>[^/]+)"),
)
_USER = re.compile(r"/user@(\d+)\.service/")
_SERVICE = re.compile(r"/([^/]+\.service)(?:/|$)")
_SESSION = re.compile(r"/(?:session-[^/]+\.scope|[^/]*(?:vte-spawn|app-[^/]*[Tt]erminal|tmux)[^/]*\.scope)(?:/|$)")


def home(path: str) -> Home:
    """Where the process with this cgroup path lives.

    Samples: `/system.slice/ollama.service`, `/system.slice/docker-<64 hex>.scope`,
    `/user.slice/user-1000.slice/user@1000.service/app.slice/ollama.service`,
    `/user.slice/user-0.slice/session-3.scope`.
    """
    user = _USER.search(path)
    uid = int(user[1]) if user and len(user[1]) < 12 else None
    for owner, pattern in _RULES:
        if found := re.search(pattern, path):
            groups = found.groupdict()
            return Home(owner, groups.get("name") or groups.get("id") or "", uid)
    rest = path[user.end() - 1 :] if user else path
    if _SESSION.search(rest):
        return Home("session", "", uid)
    if found := _SERVICE.search(rest):
        return Home("user-unit" if user else "unit", found[1], uid)
    return Home("session" if user or "/user.slice" in path else "", "", uid)
