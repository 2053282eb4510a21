"""Models on the disk, without a server: a name's manifest and blobs in Ollama's folder, and the headers of GGUF files.

    MODELS/manifests/registry.ollama.ai/library/qwen3/8b     JSON: layers with media type and digest
    MODELS/blobs/sha256-…                                    the layers
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from math import prod

import msgspec

from ollamactl.core.facts import Facts
from ollamactl.core.memory.reading import from_header
from ollamactl.core.sizing import Model
from ollamactl.errors import Exit, Failure
from ollamactl.host import headers
from ollamactl.host.headers import SPLIT, EndsOf, nowhere

_SMALL = 1 << 20  # bytes of a manifest or a params layer at most
MAX_PARTS = 1000


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A model's files. `parts`: all files of the weights, in order; `projectors`: separate vision or audio files.
    `params`: the Modelfile's PARAMETER lines (num_ctx, num_gpu, …); `capabilities` of the config, where it tells."""

    name: str
    parts: tuple[str, ...]
    projectors: tuple[str, ...] = ()
    params: dict[str, object] = {}
    digest: str = ""
    folder: str = ""


class _Layer(msgspec.Struct):
    mediaType: str = ""
    digest: str = ""
    size: int = 0


class _Manifest(msgspec.Struct):
    layers: list[_Layer] = []


def find(model: str, folders: Iterable[str]) -> Found:
    """The files of an installed name, a blob's digest, or a path. Raises Failure with what was looked at."""
    folders = tuple(dict.fromkeys(f for f in folders if f))
    if _is_path(model):
        return Found(name=_short(model), parts=_parts(model))
    if re.fullmatch(r"(sha256[:-])?[0-9a-f]{64}", model):
        blob = "sha256-" + model[-64:]
        for folder in folders:
            path = os.path.join(folder, "blobs", blob)
            if os.path.exists(path):
                return Found(name=blob[:19], parts=(path,), digest=blob.replace("-", ":"), folder=folder)
    denied = []
    for folder in folders:
        try:
            data = _manifest(folder, model)
        except PermissionError:
            denied.append(folder)
            continue
        if data is not None:
            return _of_manifest(model, folder, data)
    if os.path.isfile(model):
        return Found(name=_short(model), parts=_parts(model))
    if denied:
        raise Failure(f"{denied[0]}: permission denied", hint="sudo shows it", code=Exit.UNSEEN, id="denied")
    raise _not_found(model, folders)


def _short(path: str) -> str:
    """A file's name; that of a blob cut as Ollama cuts digests."""
    name = os.path.basename(path)
    return name[:19] if re.fullmatch(r"sha256-[0-9a-f]{64}", name) else name


def _is_path(model: str) -> bool:
    """Something on the disk, or written as a path: names hold one colon at most and no leading dot or slash."""
    return model.startswith(("/", "./", "../", "~")) or model.lower().endswith(".gguf")


def _not_found(model: str, folders: tuple[str, ...]) -> Failure:
    names = [n for folder in folders for n in names_in(folder)]
    near = difflib.get_close_matches(_full(model), names, 1, 0.5)
    hint = f"did you mean {near[0]}?" if near else f"installed: {', '.join(sorted(names)[:6]) or 'none'}"
    where = f" in {', '.join(folders)}" if folders else ""
    text = f"the model {model} is not installed{where}"
    return Failure(text, hint=f"{hint}; or name a GGUF file", code=Exit.UNSEEN, id="model_not_found")


def _full(model: str) -> str:
    return model if ":" in model.rsplit("/", 1)[-1] else f"{model}:latest"


def path_of(model: str) -> tuple[str, ...] | None:
    """registry, namespace, model, tag of a name; None for what can't be a name."""
    base, _, tag = _full(model.removeprefix("https://").removeprefix("http://")).rpartition(":")
    pieces = base.split("/")
    full = (*("registry.ollama.ai", "library")[: max(0, 3 - len(pieces))], *pieces, tag)
    well = len(full) == 4 and all(re.fullmatch(r"[\w][\w.:-]*", piece) for piece in full)
    return full if well else None


def _manifest(folder: str, model: str) -> bytes | None:
    """The manifest of a name. Ollama takes names whatever their case."""
    pieces = path_of(model)
    if pieces is None:
        return None
    at = os.path.join(folder, "manifests")
    for piece in pieces:
        exact = os.path.join(at, piece)
        if not os.path.lexists(exact):
            try:
                names = os.listdir(at)
            except (FileNotFoundError, NotADirectoryError):
                return None
            same = [n for n in names if n.lower() == piece.lower()]
            if not same:
                return None
            exact = os.path.join(at, same[0])
        at = exact
    return _small(at)


def _small(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as f:
        return f.read(_SMALL)


def _of_manifest(model: str, folder: str, data: bytes) -> Found:
    try:
        layers = msgspec.json.decode(data, type=_Manifest).layers
    except msgspec.MsgspecError as error:
        hint = f"ollama pull {model} writes it again"
        raise Failure(f"the manifest of {model} is damaged: {error}", hint=hint, id="manifest_unreadable") from None

    def blobs(kind: str) -> list[str]:
        found = [x for x in layers if x.mediaType == f"application/vnd.ollama.image.{kind}"]
        return [os.path.join(folder, "blobs", x.digest.replace(":", "-")) for x in found if _digest(x.digest)]

    weights = blobs("model")
    if not weights:
        text = f"{model} holds no GGUF weights (its manifest names none)"
        raise Failure(text, hint="a remote or safetensors model can't be planned", id="no_weights")
    projectors = blobs("projector")
    for path in (*weights, *projectors):
        if _gone(path):
            text = f"{model} is not whole: {path} is missing"
            raise Failure(text, hint=f"ollama pull {model}", code=Exit.UNSEEN, id="model_incomplete")
    params: dict[str, object] = {}
    for path in blobs("params"):
        try:
            params |= msgspec.json.decode(_small(path), type=dict[str, object])
        except (OSError, msgspec.MsgspecError):
            continue  # Ollama itself will say so at the load; for the plan its defaults count
    digest = next(x.digest for x in layers if x.mediaType == "application/vnd.ollama.image.model")
    return Found(
        name=_full(model), parts=tuple(weights), projectors=tuple(projectors), params=params, digest=digest,
        folder=folder,
    )  # fmt: skip


def _gone(path: str) -> bool:
    try:
        os.stat(path)
    except FileNotFoundError:
        return True
    except OSError:
        pass  # whoever opens it says why
    return False


def _digest(text: str) -> bool:
    return re.fullmatch(r"sha256[:-][0-9a-f]{64}", text) is not None


def names_in(folder: str) -> list[str]:
    """Names of the models in a folder as Ollama prints them; what can't be read is left out."""
    root = os.path.join(folder, "manifests")
    found = []
    for at, _, files in os.walk(root):
        for tag in files:
            pieces = [*os.path.relpath(at, root).split(os.sep), tag]
            if len(pieces) == 4 and not tag.startswith("."):
                short = "/".join(pieces[:3]).removeprefix("registry.ollama.ai/").removeprefix("library/")
                found.append(f"{short}:{tag}")
    return found


def _parts(path: str) -> tuple[str, ...]:
    path = os.path.expanduser(path)
    match = SPLIT.fullmatch(path)
    if match is None:
        return (path,)
    base, count = match[1], int(match[3])
    if not 0 < count <= MAX_PARTS:
        raise Failure(f"{path}: {count} parts are no split model", code=Exit.USAGE, id="usage")
    return tuple(f"{base}-{n:05d}-of-{count:05d}.gguf" for n in range(1, count + 1))


def size(paths: Iterable[str]) -> int:
    """Bytes of files; those that are gone count nothing."""
    total = 0
    for path in paths:
        try:
            total += os.stat(path).st_size
        except OSError:
            continue
    return total


def mapped(facts: Facts) -> dict[str, int]:
    """Bytes of the files that runners map, by path."""
    return {r.model: size((r.model,)) for r in facts.runners or ()}


# -- as the memory model takes them --


def folders(facts: Facts) -> tuple[str, ...]:
    """Where models may be, the likeliest first: what the service is told, where its runners read, its user's home,
    then this user's own."""
    found = []
    process = facts.process.environ if facts.process else None
    found.append((process or {}).get("OLLAMA_MODELS", ""))
    if facts.effective is not None:
        found.append(facts.effective.value("OLLAMA_MODELS") or "")
    if facts.start is not None and facts.start.config is not None:
        found.append(facts.start.config.get("OLLAMA_MODELS", ""))
    found += [r.model.rpartition("/blobs/")[0] for r in facts.runners or ()]
    home = (process or {}).get("HOME") or (facts.effective.value("HOME") if facts.effective else None)
    if home:
        found.append(os.path.join(home, ".ollama/models"))
    if facts.service is not None and facts.service.user:
        try:
            import pwd

            found.append(os.path.join(pwd.getpwnam(facts.service.user).pw_dir, ".ollama/models"))
        except (KeyError, ImportError):
            pass
    elif facts.service is not None:
        found.append("/root/.ollama/models")
    found.append(os.environ.get("OLLAMA_MODELS", ""))
    found.append(os.path.expanduser("~/.ollama/models"))
    found.append("/usr/share/ollama/.ollama/models")
    return tuple(dict.fromkeys(os.path.normpath(f.strip(" \t\"'")) for f in found if f.strip(" \t\"'")))


def model(found: Found, ends: EndsOf = nowhere) -> Model:
    """The model of some files: its header read, its Modelfile's values taken. Raises Failure."""
    head = headers.read(found.parts, ends)
    headers.sane(head, found.name)
    hyper = from_header(head)
    headers.planned(head, hyper, found.name)
    num_gpu = _number(found, "num_gpu")
    return Model(
        name=found.name,
        hyper=hyper,
        path=found.parts[0],
        size=head.size,
        parameters=sum(prod(t.dims) for t in head.tensors),
        quantization=headers.FILE_TYPES.get(hyper.quantization, ""),
        projector=size(found.projectors),
        num_ctx=_number(found, "num_ctx"),
        num_batch=_number(found, "num_batch"),
        num_gpu=num_gpu if num_gpu is None or num_gpu >= 0 else None,
        digest=found.digest,
        lacking=headers.lacking(head, len(found.parts)),
    )


def _number(found: Found, name: str) -> int | None:
    value = found.params.get(name)
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def smaller_builds(found: Found) -> list[Found]:
    """Installed models of the same name with less in their files."""
    if not found.folder or ":" not in found.name:
        return []
    base, own = found.name.rpartition(":")[0], size(found.parts)
    others = []
    for name in names_in(found.folder):
        if name.rpartition(":")[0] != base or name == found.name:
            continue
        try:
            data = _manifest(found.folder, name)
            other = _of_manifest(name, found.folder, data) if data is not None else None
        except (OSError, Failure):
            continue
        if other is not None and 0 < size(other.parts) < own:
            others.append(other)
    return others[:8]
