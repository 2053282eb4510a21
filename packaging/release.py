"""Builds all that is released into dist/, with SHA256SUMS: `python packaging/release.py`.

One version stands in the program, the Debian package, the Ansible collection and the changelog; where they disagree,
or where the changelog has no section of that version, nothing is built.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
DIST = TOP / "dist"


def versions(top: Path) -> dict[str, str]:
    """The version in each place that has one."""
    places = {
        "ollamactl/__init__.py": r'^__version__ = "([^"]+)"$',
        "packaging/ansible/galaxy.yml": r"^version: (\S+)$",
    }
    found = {}
    for place, pattern in places.items():
        seen = re.search(pattern, (top / place).read_text(), re.M)
        found[place] = seen[1] if seen else "none"
    return found


def disagreements(top: Path) -> list[str]:
    """What keeps this tree from being released; empty where nothing does."""
    found = versions(top)
    version = found["ollamactl/__init__.py"]
    said = [f"{place} says {other}, the program {version}" for place, other in found.items() if other != version]
    text = (top / "packaging/CHANGELOG.md").read_text()
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", text, re.M):
        said.append(f"packaging/CHANGELOG.md has no section `## [{version}] - YYYY-MM-DD`")
    return said


def epoch() -> int:
    sys.path.insert(0, str(TOP / "packaging/deb"))
    import build

    return build.epoch()


def collection(output: Path) -> Path:
    """The Ansible collection as ansible-galaxy installs it, from what is committed or new and not ignored."""
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-galaxy", "collection", "build", "--force", "--output-path", output,
         TOP / "packaging/ansible"], capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"ansible-galaxy: {done.stderr}")
    return next(output.glob("ollamactl-*.tar.gz"))


def main() -> None:
    if said := disagreements(TOP):
        sys.exit("not released:\n" + "\n".join(f"  {line}" for line in said))
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", DIST], check=True, cwd=TOP)
    for architecture in ("amd64", "arm64"):
        deb = [sys.executable, TOP / "packaging/deb/build.py", "--architecture", architecture, "--output", DIST]
        subprocess.run(deb, check=True)
    collection(DIST)
    files = sorted(path for path in DIST.iterdir())
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    (DIST / "SHA256SUMS").write_text(sums)
    print(sums, end="")


if __name__ == "__main__":
    main()
