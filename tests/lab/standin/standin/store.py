"""The models folder: manifests by name, blobs by digest."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, NamedTuple

from . import envconfig, gguf
from .gofmt import human_number, rfc3339nano

REGISTRY, NAMESPACE = "registry.ollama.ai", "library"


class NotFound(Exception):
    """No manifest of that name."""


class Model(NamedTuple):
    name: str  # as people write it: gemma3:270m
    full_name: str
    path: str  # of the blob
    digest: str
    size: int
    modified_ns: int
    params: dict[str, Any]  # a Modelfile's PARAMETER lines

    def gguf(self) -> gguf.Gguf:
        return gguf.read(self.path)

    def details(self, extra: bool = False) -> dict[str, Any]:
        try:
            file = self.gguf()
        except gguf.Broken:
            return {"parent_model": "", "format": "gguf", "family": "", "families": None, "parameter_size": "",
                    "quantization_level": ""}  # fmt: skip
        out: dict[str, Any] = {
            "parent_model": "", "format": "gguf", "family": file.arch, "families": [file.arch],
            "parameter_size": human_number(file.parameters), "quantization_level": file.quantization,
        }  # fmt: skip
        if extra:
            out |= {"context_length": file.key("context_length"), "embedding_length": file.key("embedding_length")}
        return out

    def tag(self) -> dict[str, Any]:
        return {
            "name": self.name, "model": self.name, "modified_at": rfc3339nano(self.modified_ns), "size": self.size,
            "digest": self.digest, "details": self.details(extra=True), "capabilities": ["completion"],
        }  # fmt: skip


def _parts(name: str) -> tuple[str, str, str, str]:
    base, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        base, tag = name, "latest"
    pieces = base.split("/")
    registry = pieces[-3] if len(pieces) > 2 else REGISTRY
    return registry, pieces[-2] if len(pieces) > 1 else NAMESPACE, pieces[-1], tag


def _load(path: str, full_name: str) -> Model:
    with open(path, "rb") as file:
        text = file.read()
    manifest = json.loads(text)
    root, blob, params = envconfig.models(), "", {}
    for layer in manifest["layers"]:
        at = os.path.join(root, "blobs", layer["digest"].replace(":", "-"))
        if layer["mediaType"] == "application/vnd.ollama.image.model":
            blob = at
        elif layer["mediaType"] == "application/vnd.ollama.image.params":
            with open(at, "rb") as file:
                params = json.load(file)
    short = full_name.removeprefix(f"{REGISTRY}/{NAMESPACE}/").removeprefix(f"{REGISTRY}/")
    size = manifest["config"]["size"] + sum(layer["size"] for layer in manifest["layers"])
    digest = hashlib.sha256(text).hexdigest()
    return Model(short, full_name, blob, digest, size, os.stat(path).st_mtime_ns, params)


def find(name: str) -> Model:
    """Raises NotFound for a name without a manifest, and for a name that can't be one."""
    pieces = _parts(name)
    if not all(pieces) or any(piece in (".", "..") for piece in pieces):
        raise NotFound(name)
    path = os.path.join(envconfig.models(), "manifests", *pieces)
    try:
        return _load(path, "/".join(pieces[:3]) + ":" + pieces[3])
    except (OSError, KeyError, ValueError) as error:
        raise NotFound(name) from error


def all_models() -> list[Model]:
    """Newest first, as /api/tags lists them."""
    root = os.path.join(envconfig.models(), "manifests")
    out = []
    for folder, _, files in os.walk(root):
        for tag in files:
            pieces = [*os.path.relpath(folder, root).split(os.sep), tag]
            if len(pieces) == 4:
                out.append(find("/".join(pieces[:3]) + ":" + tag))
    return sorted(out, key=lambda model: -model.modified_ns)


def count_blobs() -> int:
    folder = os.path.join(envconfig.models(), "blobs")
    return len([name for name in os.listdir(folder) if name.startswith("sha256-")]) if os.path.isdir(folder) else 0
