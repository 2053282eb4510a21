"""`docker inspect` (podman prints the same) of running containers: which of them use a GPU."""

from __future__ import annotations

from typing import Any

import msgspec


def with_gpu(body: bytes) -> tuple[str, ...]:
    """Names of the containers that were given a GPU: by a device request, the nvidia runtime or a device node."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return ()
    records = [r for r in found if isinstance(r, dict)] if isinstance(found, list) else []
    return tuple(str(r.get("Name", "")).lstrip("/") for r in records if _has_gpu(r.get("HostConfig")))


def _has_gpu(config: Any) -> bool:
    if not isinstance(config, dict):
        return False
    for request in config.get("DeviceRequests") or ():
        capabilities = request.get("Capabilities") or () if isinstance(request, dict) else ()
        if any("gpu" in group for group in capabilities if isinstance(group, list)):
            return True
    paths = [str(d.get("PathOnHost", "")) for d in config.get("Devices") or () if isinstance(d, dict)]
    gpu = ("/dev/nvidia", "/dev/kfd", "/dev/dri")
    return config.get("Runtime") == "nvidia" or any(p.startswith(gpu) or "gpu=" in p for p in paths)
