"""Who may ask: Ollama's checks of the Host and Origin headers."""

from __future__ import annotations

import fnmatch
import ipaddress
import socket

from . import envconfig
from .httpd import Exchange


def allowed(x: Exchange, loopback: bool) -> bool:
    """Also sets the CORS header of an allowed origin. A server that listens beyond this machine accepts every name."""
    origin = x.headers.get("origin", "")
    if origin and origin.partition("://")[2] != x.headers.get("host"):
        if not any(fnmatch.fnmatchcase(origin, pattern) for pattern in envconfig.origins()):
            return False
        x.extra["Access-Control-Allow-Origin"] = origin
    return not loopback or host_allowed(x.headers.get("host", ""))


def host_allowed(header: str) -> bool:
    """Ollama's guard against DNS rebinding on a loopback listener."""
    name = header
    if header.startswith("["):
        name = header[1:].partition("]")[0]
    elif header.count(":") == 1:
        name = header.partition(":")[0]
    try:
        address = ipaddress.ip_address(name)
        return address.is_loopback or address.is_private or address.is_unspecified
    except ValueError:
        pass
    name = name.lower()
    return name in ("", "localhost", socket.gethostname().lower()) or name.endswith(
        (".localhost", ".local", ".internal")
    )
