"""What `ollamactl probe` refuses before it sends anything."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ollamactl.cli.probe import probe
from ollamactl.errors import Exit, Failure


@pytest.mark.parametrize(
    "args",
    [
        ["-n", "4", "--sweep", "1,2"],
        ["-n", "4", "--rate", "1"],
        ["--sweep", "4096,4096", "--rounds", "1000"],
        ["--rate", "10000", "--for", "3600"],
        ["--url", "ftp://127.0.0.1"],
        ["--csv", "/nowhere/at/all.csv", "--url", "http://127.0.0.1:9"],
        ["--html", "/nowhere/at/all.html", "--url", "http://127.0.0.1:9"],
    ],
)
def test_usage_is_said_at_once(args: list[str]) -> None:
    with pytest.raises(Failure) as failed:
        CliRunner().invoke(probe, ["m", *args], standalone_mode=False, catch_exceptions=False)
    assert failed.value.code == Exit.USAGE


@pytest.mark.parametrize(
    "args",
    [["-n", "0"], ["-n", "100000"], ["--sweep", "1,x"], ["--sweep", "0"], ["--rate", "0"], ["--rate", "nan"], []],
)
def test_counts_are_bounded(args: list[str]) -> None:
    with pytest.raises(click.UsageError):
        CliRunner().invoke(probe, args and ["m", *args], standalone_mode=False, catch_exceptions=False)


@pytest.mark.parametrize("content", [b"", b"two words\n", b"\xff\xfe", b"a\nb\n"])
def test_a_key_file_holds_one_key(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(Failure) as failed:
        args = ["m", "--key-file", str(path), "--url", "http://127.0.0.1:9"]
        CliRunner().invoke(probe, args, standalone_mode=False, catch_exceptions=False)
    assert failed.value.code == Exit.USAGE and "key" in failed.value.text
