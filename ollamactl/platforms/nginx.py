"""A front made of nginx: limits, keys and time-outs that Ollama does not have, as one file of its http context."""

from __future__ import annotations

import hashlib
import ipaddress
import math
import re
from typing import Literal

import msgspec

from ollamactl.core.queueing import COUNTED, Service, done_behind, room
from ollamactl.errors import Exit, Failure
from ollamactl.platforms import templates

Auth = Literal["keys", "basic", "none"]
LOAD = 300.0  # seconds: OLLAMA_LOAD_TIMEOUT's default
SILENCE = 600.0
_PATH = re.compile(r"/[A-Za-z0-9._@/+=-]+")
_SIZE = re.compile(r"[1-9][0-9]{0,8}[kmg]?")


class Front(msgspec.Struct, frozen=True, kw_only=True):
    """What a front does. Times are seconds."""

    listen: str = "127.0.0.1:11480"
    upstream: str = "127.0.0.1:11434"
    inner: str = "127.0.0.1:11433"
    slots: int
    queue: int
    per_client: int
    rate: int = 10  # requests a second of one client
    auth: Auth = "keys"
    keys_file: str = "/etc/ollamactl/front.keys"
    users_file: str = "/etc/ollamactl/front.users"
    certificate: str = ""
    certificate_key: str = ""
    patience: float = SILENCE  # the longest silence of the server
    body_timeout: float = 10.0
    max_body: str = "32m"
    retry_after: int = 5


def fair_share(slots: int, queue: int) -> int:
    """Places of one client, so that another one's first token is at most two service times away behind it: those
    that it may have waiting are served within one, and one more is under way. One place at least is left to others."""
    return max(1, min(slots + slots // 2, slots + queue - 1))


def queue_for(slots: int, of: Service | None, patience: float | None) -> int:
    """How many may wait: what the patience allows, or one for each slot where nothing is known."""
    if of is None or patience is None:
        return slots
    return min(room(patience, slots, of).queue, COUNTED - slots)


def silence(slots: int, queue: int, of: Service | None, patience: float | None) -> float:
    """The longest that the server may say nothing, for which nginx has to wait: as long as clients do, or a load and
    then, for a reply that comes in one piece, a full queue and its own time (99 %). Never less than SILENCE: replies
    that were measured may be shorter than those that are asked for."""
    served = done_behind(math.ceil(queue / slots), slots, of, 0.99) if of is not None else 0.0
    return max(SILENCE, LOAD + served, patience or 0.0)


def retry_after(slots: int, of: Service | None) -> int:
    """Whole seconds until a place is likely to be free."""
    return 5 if of is None else max(1, math.ceil(of.mean / slots))


def check(front: Front, override: bool = False) -> None:
    """Raises Failure: usage for what nginx would not understand, refused for what would lay the API open."""
    for name in ("listen", "upstream", "inner"):
        _address(getattr(front, name), name)
    for path in (front.keys_file, front.users_file, front.certificate, front.certificate_key):
        if path and not _PATH.fullmatch(path):
            raise _usage(f"{path} is no plain absolute path")
    if not _SIZE.fullmatch(front.max_body):
        raise _usage(f"{front.max_body} is no size such as 32m")
    if max(front.slots + front.queue, front.per_client) > COUNTED:
        raise _usage(f"nginx counts {COUNTED:,} requests at most")
    if bool(front.certificate) != bool(front.certificate_key):
        raise _usage("a certificate and its key belong together")
    ports = [front.listen.rsplit(":", 1)[1], front.upstream.rsplit(":", 1)[1], front.inner.rsplit(":", 1)[1]]
    if len(set(ports)) < 3:
        raise _usage("the front, its inner server and Ollama need three ports")
    if not _loopback(front.inner):
        raise _usage(f"the inner server belongs on loopback: whoever reaches {front.inner} goes around the front")
    if not _loopback(front.upstream):
        raise _usage(
            f"Ollama at {front.upstream} can be reached without the front",
            hint="sudo ollamactl apply --host 127.0.0.1:11434, then the front before it",
        )
    if not _loopback(front.listen) and not front.certificate and not override:
        raise Failure(
            f"{front.listen} is open to the network, and keys would cross it unencrypted",
            hint="--tls-certificate FILE --tls-key FILE, or --override plain_http (behind a VPN or a TLS proxy)",
            code=Exit.REFUSED,
            id="plain_http",
        )
    if not _loopback(front.listen) and front.auth == "none" and not override:
        raise Failure(
            f"{front.listen} is open to the network, and --auth none lets everyone in",
            hint="--auth keys, or --override plain_http",
            code=Exit.REFUSED,
            id="no_auth",
        )


def _usage(text: str, hint: str = "ollamactl front --help") -> Failure:
    return Failure(text, hint=hint, code=Exit.USAGE, id="usage")


def _address(text: str, name: str) -> None:
    host, _, port = text.rpartition(":")
    try:
        ipaddress.ip_address(host[1:-1] if host.startswith("[") else host)
        good = port.isascii() and port.isdigit() and 0 < int(port) < 65536
        good = good and (":" in host) == host.startswith("[")
    except ValueError:
        good = False
    if not good:
        raise _usage(f"{name}: {text} is no address and port such as 127.0.0.1:11480 or [::1]:11480")


def _loopback(text: str) -> bool:
    return ipaddress.ip_address(text.rpartition(":")[0].strip("[]")).is_loopback


def goes_around(ollama_host: str) -> bool:
    """Whether OLLAMA_HOST, as `server config` prints it (http://0.0.0.0:11434), lets others reach Ollama itself."""
    name = ollama_host.partition("://")[2].rpartition(":")[0].strip("[]")
    try:
        return not ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def render(front: Front) -> str:
    """The configuration. It never holds a key or a password: those stay in files of their own."""
    values = msgspec.structs.asdict(front)
    values |= {"patience": math.ceil(front.patience), "body_timeout": math.ceil(front.body_timeout)}
    values |= {"burst": 2 * front.per_client}
    without = templates.render("nginx/front.conf.j2", **values, mark="")
    return templates.render("nginx/front.conf.j2", **values, mark=hashlib.sha256(without.encode()).hexdigest()[:16])
