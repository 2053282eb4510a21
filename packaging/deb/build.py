"""Builds the Debian package: `python packaging/deb/build.py [--architecture arm64] [--output dist]`.

No build farm's tools are needed, only dpkg-deb. The program's files are those of the wheel; what Debian does not have
in every release (vendor.txt) comes from wheels pinned by their hashes, so that no host compiles anything. The same
commit gives the same bytes: SOURCE_DATE_EPOCH, or the time of the last commit, is the time of every file.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
# Where each file of files/ goes, and which of the package's other files come from where.
PLACES = {
    "files/ollamactl": "usr/bin/ollamactl",
    "files/ollamactl-doctor.service": "usr/lib/systemd/system/ollamactl-doctor.service",
    "files/ollamactl-doctor.timer": "usr/lib/systemd/system/ollamactl-doctor.timer",
    "files/doctor.env": "etc/ollamactl/doctor.env",
    "files/lintian-overrides": "usr/share/lintian/overrides/ollamactl",
    "../completions/ollamactl.bash": "usr/share/bash-completion/completions/ollamactl",
    "../completions/_ollamactl": "usr/share/zsh/vendor-completions/_ollamactl",
    "../completions/ollamactl.fish": "usr/share/fish/vendor_completions.d/ollamactl.fish",
}
EXECUTABLE = {"usr/bin/ollamactl", "DEBIAN/postinst", "DEBIAN/prerm", "DEBIAN/postrm"}


def version() -> str:
    """The one version: that of the program."""
    found = re.search(r'^__version__ = "([^"]+)"$', (TOP / "ollamactl/__init__.py").read_text(), re.M)
    assert found, "ollamactl/__init__.py has no version"
    return found[1]


def epoch() -> int:
    """Seconds since 1970 that stand on every file: SOURCE_DATE_EPOCH, or the last commit's, or the changelog's."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    done = subprocess.run(["git", "-C", TOP, "log", "-1", "--format=%ct"], capture_output=True, text=True)
    if done.returncode == 0 and done.stdout.strip():
        return int(done.stdout)
    return int((TOP / "packaging/CHANGELOG.md").stat().st_mtime)


def run(*argv: str | Path, **more: object) -> None:
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, **more)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"{' '.join(map(str, argv))}:\n{done.stdout}{done.stderr}")


def wheels(architecture: str, cache: Path) -> list[Path]:
    """Wheels of vendor.txt for every Python; downloaded once, each checked against its hash."""
    pins = (HERE / "vendor.txt").read_bytes()
    folder = cache / f"{architecture}-{hashlib.sha256(pins).hexdigest()[:12]}"
    if not folder.is_dir():
        fresh = Path(tempfile.mkdtemp(dir=cache, prefix=".new-"))
        for python in PYTHONS:
            run(
                sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps",
                "--require-hashes", "--only-binary=:all:", "--implementation=cp", f"--python-version={python}",
                f"--platform=manylinux_2_17_{MACHINES[architecture]}",
                f"--platform=manylinux2014_{MACHINES[architecture]}", "--dest", fresh, "-r", HERE / "vendor.txt",
            )  # fmt: skip
        fresh.replace(folder)
    return sorted(folder.glob("*.whl"))


def lay_program(stage: Path, scratch: Path) -> None:
    """The program's own files: what the wheel carries."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", scratch, cwd=TOP)
    (wheel,) = scratch.glob("ollamactl-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith("ollamactl/") and not name.endswith("/"):
                archive.extract(name, stage / "usr/lib/ollamactl")


def lay_vendored(stage: Path, found: list[Path]) -> str:
    """The vendored modules, without tests and stubs of theirs; returns their licences."""
    folder = stage / "usr/lib/ollamactl/vendor"
    licences: dict[str, str] = {}
    for wheel in found:
        project = wheel.name.split("-")[0]
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if re.fullmatch(r"(msgspec/.+|pynvml)\.(py|so)", name):
                    archive.extract(name, folder)
                elif name.endswith(".dist-info/licenses/LICENSE"):
                    licences[project] = archive.read(name).decode()
    head = (folder / "pynvml.py").read_text().split("#####")[1]
    licences["nvidia_ml_py"] = re.sub(r"^# ?", "", head.strip("\n"), flags=re.M)
    assert set(licences) == {"msgspec", "nvidia_ml_py"}, "a vendored module without its licence"
    return "".join(
        f"\nFiles: {files}\nCopyright: {owner}\nLicense: BSD-3-clause-{project}\n"
        + "".join(f" {line or '.'}\n" for line in licences[project].strip().splitlines())
        for project, files, owner in (
            ("msgspec", "usr/lib/ollamactl/vendor/msgspec/*", "2021, Jim Crist-Harif"),
            ("nvidia_ml_py", "usr/lib/ollamactl/vendor/pynvml.py", "2011-2025, NVIDIA Corporation"),
        )
    )


def lay_documents(stage: Path, licences: str, at: int) -> None:
    """Copyright, changelog and manual page."""
    docs = stage / "usr/share/doc/ollamactl"
    docs.mkdir(parents=True)
    own = (HERE / "debian/copyright").read_text()
    (docs / "copyright").write_text(own + licences)
    day = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(at))
    maintainer = re.search(r"^Maintainer: (.+)$", (HERE / "debian/control").read_text(), re.M)
    assert maintainer
    entry = f"""\
ollamactl ({version()}) unstable; urgency=medium

  * What is new: /usr/share/doc/ollamactl/CHANGELOG.md.gz

 -- {maintainer[1]}  {day}
"""
    compressed(docs / "changelog.gz", entry.encode())
    compressed(docs / "CHANGELOG.md.gz", (TOP / "packaging/CHANGELOG.md").read_bytes())
    done = subprocess.run(
        [sys.executable, TOP / "packaging/man/manpage.py"], capture_output=True, text=True, check=True, cwd=TOP,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(at), "PYTHONPATH": str(stage / "usr/lib/ollamactl"),
             "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    compressed(stage / "usr/share/man/man1/ollamactl.1.gz", done.stdout.encode())


def compressed(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data, 9, mtime=0))


def lay_control(stage: Path, architecture: str) -> None:
    """DEBIAN/: the control fields, the scripts, the list of configuration files and the sums."""
    debian = stage / "DEBIAN"
    debian.mkdir()
    files = sorted(path for path in stage.rglob("*") if path.is_file())
    sums = [f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(stage)}\n" for path in files]
    size = sum(-(-path.stat().st_size // 1024) for path in files)
    text = (HERE / "debian/control").read_text()
    for name, value in {"VERSION": version(), "ARCHITECTURE": architecture, "SIZE": str(size)}.items():
        text = text.replace(f"@{name}@", value)
    (debian / "control").write_text(text)
    (debian / "md5sums").write_text("".join(line for line in sums if "  etc/" not in line))
    configuration = [path.relative_to(stage) for path in files if stage / "etc" in path.parents]
    (debian / "conffiles").write_text("".join(f"/{path}\n" for path in configuration))
    for script in ("postinst", "prerm", "postrm"):
        shutil.copyfile(HERE / "debian" / script, debian / script)


def settle(stage: Path, at: int) -> None:
    """Modes and times that depend on nobody's umask and clock."""
    for path in [*stage.rglob("*"), stage]:
        executable = path.is_dir() or str(path.relative_to(stage)) in EXECUTABLE
        path.chmod(0o755 if executable else 0o644)
        os.utime(path, (at, at))


def build(architecture: str, output: Path) -> Path:
    """Builds the package into `output`; returns its path."""
    cache = TOP / ".cache/deb"
    cache.mkdir(parents=True, exist_ok=True)
    output.mkdir(parents=True, exist_ok=True)
    at = epoch()
    os.environ["SOURCE_DATE_EPOCH"] = str(at)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        stage = Path(folder) / "stage"
        stage.mkdir()
        lay_program(stage, Path(folder) / "wheel")
        licences = lay_vendored(stage, wheels(architecture, cache))
        for source, target in PLACES.items():
            (stage / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(HERE / source, stage / target)
        lay_documents(stage, licences, at)
        lay_control(stage, architecture)
        settle(stage, at)
        made = output / f"ollamactl_{version()}_{architecture}.deb"
        run("dpkg-deb", "--build", "--root-owner-group", "-Zxz", stage, made)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the Debian package.")
    own = {machine: architecture for architecture, machine in MACHINES.items()}.get(os.uname().machine, "amd64")
    parser.add_argument("--architecture", choices=sorted(MACHINES), default=own)
    parser.add_argument("--output", type=Path, default=TOP / "dist")
    options = parser.parse_args()
    print(build(options.architecture, options.output))


if __name__ == "__main__":
    main()
