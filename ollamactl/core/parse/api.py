"""Replies of the server's API and of a runner's own port, as facts."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import msgspec

from ollamactl.core.facts import InstalledModel, LoadedModel, Slot
from ollamactl.core.source import Reading


def _json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: object) -> list[dict[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def version(body: bytes) -> str:
    """`{"version":"0.33.0"}`; empty for anything else."""
    return _text(_dict(_json(body)).get("version"))


def loaded(body: bytes) -> tuple[LoadedModel, ...]:
    """/api/ps. `context_length` is per slot; releases before 0.10 do not send it."""
    found = []
    for model in _dicts(_dict(_json(body)).get("models")):
        details = _dict(model.get("details"))
        families = details.get("families")
        found.append(
            LoadedModel(
                name=_text(model.get("name")),
                digest=_text(model.get("digest")),
                size=_int(model.get("size")) or 0,
                size_vram=_int(model.get("size_vram")) or 0,
                context=_int(model.get("context_length")),
                expires=_text(model.get("expires_at")),
                family=_text(details.get("family")),
                families=tuple(_text(f) for f in families) if isinstance(families, list) else (),
                parameters=_text(details.get("parameter_size")),
                quantization=_text(details.get("quantization_level")),
            )
        )
    return tuple(found)


def installed(body: bytes) -> tuple[InstalledModel, ...]:
    """/api/tags."""
    found = []
    for model in _dicts(_dict(_json(body)).get("models")):
        details = _dict(model.get("details"))
        capabilities = model.get("capabilities")
        found.append(
            InstalledModel(
                name=_text(model.get("name")),
                digest=_text(model.get("digest")),
                size=_int(model.get("size")) or 0,
                family=_text(details.get("family")),
                parameters=_text(details.get("parameter_size")),
                quantization=_text(details.get("quantization_level")),
                capabilities=tuple(_text(x) for x in capabilities) if isinstance(capabilities, list) else (),
            )
        )
    return tuple(found)


def props_slots(reading: Reading) -> int | None:
    """`total_slots` of a runner's /props, None where it did not answer."""
    return None if reading.missing else _int(_dict(_json(reading.body or b"")).get("total_slots"))


def slots(reading: Reading) -> tuple[Slot, ...] | None:
    """A runner's /slots, None where it did not answer. Unused slots lack most keys, never these three."""
    if reading.missing:
        return None
    return tuple(
        Slot(id=_int(s.get("id")) or 0, context=_int(s.get("n_ctx")) or 0, busy=s.get("is_processing") is True)
        for s in _dicts(_json(reading.body or b""))
    )


def error_text(body: bytes) -> str:
    """The server's own words in an error reply, or the first line of the body."""
    found = _text(_dict(_json(body)).get("error"))
    return found or body.decode("utf-8", "replace").strip().split("\n", 1)[0][:300]


def parameters(body: bytes) -> dict[str, str]:
    """The `parameters` text of /api/show (a Modelfile's PARAMETER lines), e.g. {"num_ctx": "8192"}."""
    pairs = (line.split(None, 1) for line in _text(_dict(_json(body)).get("parameters")).splitlines())
    return {p[0]: p[1].strip().strip('"') for p in pairs if len(p) == 2}


def model_file(body: bytes) -> str:
    """The file of the model itself, from the `modelfile` of /api/show: its first FROM line that is a path."""
    found = re.search(r"(?m)^FROM (/\S.*)$", _text(_dict(_json(body)).get("modelfile")))
    return found[1].strip() if found else ""


def capabilities(body: bytes) -> tuple[str, ...]:
    """`capabilities` of /api/show: completion, embedding, vision, tools, …"""
    found = _dict(_json(body)).get("capabilities")
    return tuple(_text(c) for c in found) if isinstance(found, list) else ()


def model_layers(manifest: bytes) -> tuple[str, ...]:
    """Digests (`sha256:…`) of the layers of a manifest that hold the model itself."""
    layers = _dicts(_dict(_json(manifest)).get("layers"))
    return tuple(_text(x.get("digest")) for x in layers if _text(x.get("mediaType")).endswith("image.model"))


def moment(text: str) -> float | None:
    """RFC 3339 as Go prints it, with nanoseconds → seconds since the epoch; None for what is none."""
    head, dot, rest = text.replace("Z", "+00:00").partition(".")
    digits = len(rest) - len(rest.lstrip("0123456789"))
    fraction = f".{rest[:digits][:6].ljust(6, '0')}" if dot else ""  # Python reads microseconds
    try:
        return datetime.fromisoformat(f"{head}{fraction}{rest[digits:]}").timestamp()
    except (ValueError, OverflowError):
        return None
