"""What several outputs of one paste say together: speeds of two releases, folders of models, libraries of a package."""

# ruff: noqa: E501 - a pattern is read more easily whole
from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

from ollamactl.core import settings
from ollamactl.core.paste import screens
from ollamactl.core.paste.screens import Lines

ABSENT = "path_absent"
KINDS = {"twin_names", "gateway_timeout", "slower_now", "models_gone", "gpu_libraries_absent", "ssh_session", "runner_cpu_busy", ABSENT}

_VERSION = re.compile(r"(?:\bollama version is |^\W{0,3}(?:with |on |release )?v?)(?P<version>\d{1,9}\.\d{1,9}\.\d{1,9})(?=[:,]? |$)")
_RATE = re.compile(r"(?<!prompt )\beval rate:?\s+(?P<rate>\d+(?:\.\d+)?) tok(?:ens?)?/s")
_TOLD_RATE = re.compile(r"\bv?(?P<version>0\.\d{1,3}(?:\.\d{1,3})?)\b[^;\n]{0,30}?(?P<rate>\d+(?:\.\d+)?) ?(?:tok(?:en)?s?/s|t/s|tps)\b")
SLOWER = 0.75  # of the speed before: less is no noise
_USAGE = re.compile(r"^(?P<size>[\d.]+)(?P<unit>[KMGT]?)\s+(?P<path>/\S*/models)/?\s*$")
_UNITS = {"": 1 << 10, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_LIBRARY = re.compile(r"\blibggml-(?:cpu|base)[\w-]*\.so\b")
_GPU_LIBRARY = re.compile(r"libggml-(?:cuda|hip|vulkan)|\b(?:cuda|rocm)_v\d|\b(?:cuda|rocm|vulkan|mlx_\w+)(?:/|\s|$)", re.I)
_TOP = re.compile(r"^\s*\d+ \S+\s+\S+\s+-?\d+\s+\S+\s+\S+\s+\S+ [RSD]\s+(?P<cpu>\d+(?:\.\d+)?)\s+[\d.]+\s+[\d:.]+ (?:ollama|llama-server)")
BUSY = 300.0  # per cent of one core: sampling and a runner's own thread take less
_ABSENT = re.compile(r"(?:ls|stat|du|df): (?:cannot (?:access|statx?|open)(?: directory)? )?['\"‘]?/[^'\"’:\n]+['\"’]?: No such file or directory")
_BLOB = re.compile(r"FROM \S*sha256[-:](?P<hash>[0-9a-f]{12,64})\s*$")
_PARAMETER = re.compile(r"PARAMETER (?P<name>num_ctx|num_batch|num_gpu|num_thread|use_mmap)\s+(?P<value>\S+)")
_TIMED = re.compile(r"\bcurl\b.*(?:-w|--write-out)\b.*%\{(?:http_code|response_code|time_\w+)\}")
_GAVE_UP = re.compile(r"(?<![.\d])(?:502|504|524)(?![.\d])")  # a gateway's status
_SECONDS_OF = re.compile(r"(?<![\d.])(?P<took>\d{1,5}\.\d{3,6})(?!\d)")
PATIENT = 5.0  # seconds: what a gateway waits for at least; less is a server that is down
_PACKAGES = re.compile(r"\bpacman -Q")
_PACKAGE = re.compile(r"^(?:local/)?(?P<name>ollama(?:-cuda|-rocm|-vulkan)?) \d[\w.:+]*-\d")


def read(lines: Lines) -> Iterable[tuple[str, int, str]]:
    """(kind, number of the line, text) of what these numbered lines say together."""
    yield from _rates(lines)
    yield from _model_folders(lines)
    yield from _libraries(lines)
    yield from _session(lines)
    yield from _busy(lines)
    yield from _twins(lines)
    yield from _timings(lines)
    yield from ((ABSENT, n, found[0]) for n, text in lines if (found := _ABSENT.match(text)))


def _rates(lines: Lines) -> Iterable[tuple[str, int, str]]:
    """The best speed of each release; a release is slower than the one before it in the paste."""
    release = ""
    best: dict[str, tuple[float, int]] = {}
    for n, text in lines:
        if found := _VERSION.search(text):
            release = found["version"]
        for told in _TOLD_RATE.finditer(text):
            best[told["version"]] = (float(told["rate"]), n)
        if release and (found := _RATE.search(text)):
            best[release] = max(best.get(release, (0.0, n)), (float(found["rate"]), n))
    for (old, (before, _)), (new, (after, n)) in itertools.pairwise(best.items()):
        if settings.version(new) > settings.version(old) and after < before * SLOWER:
            yield "slower_now", n, f"eval rate: {before} tokens/s with {old} → {after} tokens/s with {new}"


def _twins(lines: Lines) -> Iterable[tuple[str, int, str]]:
    """Two models of one file whose parameters for the runner differ, as `ollama show --modelfile` prints them."""
    models: dict[str, list[dict[str, str]]] = {}  # by the file: the parameters of each
    places: dict[str, tuple[int, str]] = {}
    own: dict[str, str] = {}
    for n, text in lines:
        if file := _BLOB.match(text.strip()):
            own = {}
            models.setdefault(file["hash"][:12], []).append(own)
            places[file["hash"][:12]] = (n, text.strip())
        elif named := _PARAMETER.match(text.strip()):
            own[named["name"]] = named["value"]
    for blob, parameters in models.items():
        if any(a != b for a, b in itertools.pairwise(parameters)):
            yield "twin_names", *places[blob]


def _timings(lines: Lines) -> Iterable[tuple[str, int, str]]:
    """Replies of a gateway that gave up, as `curl -w '%{http_code} %{time_total}'` prints them."""
    timed = False
    for n, text in lines:
        if (command := screens.prompt(text)) is not None:
            timed = _TIMED.search(command) is not None
        elif timed and (took := _SECONDS_OF.search(text)) and _GAVE_UP.search(text) and float(took["took"]) >= PATIENT:
            yield "gateway_timeout", n, f"curl: {text.strip()}"


def _model_folders(lines: Lines) -> Iterable[tuple[str, int, str]]:
    """`du` of two folders of models, of which one is as good as empty and the other is not."""
    sizes: dict[str, tuple[float, int, str]] = {}
    for n, text in lines:
        if found := _USAGE.match(text.strip()):
            size = float(found["size"]) * _UNITS[found["unit"]] if found["size"].count(".") < 2 else 0.0
            sizes[found["path"]] = (size, n, text.strip())
    ordered = sorted(sizes.values())
    if len(ordered) > 1 and ordered[0][0] < 1 << 20 and ordered[-1][0] > 100 << 20:
        for _, n, text in (ordered[-1], ordered[0]):
            yield "models_gone", n, f"du: {text}"


def _libraries(lines: Lines) -> Iterable[tuple[str, int, str]]:
    """A listing of the engine's libraries, or of packages, that has those for the CPU only."""
    shown = [(n, text) for n, text in lines if _LIBRARY.search(text) and "load_backend" not in text]  # the log's own
    if shown and not any(_GPU_LIBRARY.search(text) for _, text in lines if screens.prompt(text) is None):
        yield "gpu_libraries_absent", shown[0][0], shown[0][1]
    if any(_PACKAGES.search(text) for _, text in lines):
        packages = {found["name"]: (n, text) for n, text in lines if (found := _PACKAGE.match(text.strip()))}
        if set(packages) == {"ollama"}:
            yield "gpu_libraries_absent", *packages["ollama"]


def _session(lines: Lines) -> Iterable[tuple[str, int, str]]:
    """launchd's own word for a session that is not the desktop's."""
    for (_, asked), (n, text) in itertools.pairwise(lines):
        if "launchctl managername" in asked and text.strip() in ("Background", "System", "StandardIO"):
            yield "ssh_session", n, f"launchctl managername: {text.strip()}"


def _busy(lines: Lines) -> Iterable[tuple[str, int, str]]:
    """`top` of a runner that computes on several cores."""
    for n, text in lines:
        if (found := _TOP.match(text)) and float(found["cpu"]) > BUSY:
            yield "runner_cpu_busy", n, text
