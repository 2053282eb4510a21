"""Files as root writes them: by rename, never through a link, with owner, mode and label; as they were, again."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ollamactl.cli import common
from ollamactl.errors import Failure
from ollamactl.host import files
from ollamactl.host.files import Image


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_link_is_replaced_and_what_it_names_is_left(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("theirs")
    path = tmp_path / "ours"
    path.symlink_to(secret)
    files.write(str(path), b"new", 0o600)
    assert not path.is_symlink() and path.read_text() == "new" and secret.read_text() == "theirs"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names(tmp_path) == ["ours", "secret"]


def test_a_link_planted_under_the_temporary_name_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.urandom", bytes)
    planted = tmp_path / ".ours.000000000000.ollamactl"
    planted.symlink_to(tmp_path / "victim")
    with pytest.raises(FileExistsError) as raised:
        files.write(str(tmp_path / "ours"), b"new")
    assert raised.value.filename == str(tmp_path / "ours")
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_what_is_no_file_is_never_replaced(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    os.mkfifo(path) if kind == "fifo" else path.mkdir()
    before = path.lstat()
    with pytest.raises(OSError) as raised:
        files.write(str(path), b"new")
    assert raised.value.filename == str(path) and path.lstat() == before and names(tmp_path) == ["x"]


def test_reports_are_private_and_never_written_through_a_link(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "report.html"
    victim.write_text("precious")
    path.symlink_to(victim)
    before = os.umask(0)
    try:
        common.write_file(str(path), "text \udcff")
    finally:
        os.umask(before)
    assert victim.read_text() == "precious" and path.read_bytes() == b"text \xff"
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600 and names(tmp_path) == ["report.html", "victim"]
    for special in ("/dev/null", "/dev/stdout", "/proc/self/fd/1"):
        with pytest.raises(Failure, match="no folder to write into"):
            common.outputs(special)


def test_a_reader_sees_the_old_or_the_new(tmp_path: Path) -> None:
    path = tmp_path / "x"
    files.write(str(path), b"old")
    with path.open("rb") as held:
        files.write(str(path), b"new")
        assert held.read() == b"old" and path.read_bytes() == b"new"


def test_an_error_names_the_file_that_was_meant_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(OSError) as raised:
        files.write(str(tmp_path / "x"), b"new")
    assert raised.value.filename == str(tmp_path / "x")
    assert names(tmp_path) == ["x"]
    with pytest.raises(OSError) as raised:
        files.write(str(tmp_path / "no" / "x"), b"new")
    assert raised.value.filename == str(tmp_path / "no" / "x")


@pytest.mark.parametrize("kind", ["absent", "file", "link"])
def test_an_image_is_restored_whatever_stands_there_now(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "file":
        path.write_bytes(b"\xff\x00old")
        path.chmod(0o640)
    elif kind == "link":
        path.symlink_to("../elsewhere")
    was = files.image(str(path))
    assert was.kind == kind
    for now in ("absent", "file", "link"):
        files.remove(str(path))
        if now == "file":
            path.write_text("other")
        elif now == "link":
            path.symlink_to("/nowhere")
        files.restore(str(path), was)
        assert files.image(str(path)) == was
    assert names(tmp_path) == ([] if kind == "absent" else ["x"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives owners")
def test_the_owner_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    os.chown(path, 1234, 4321)
    was = files.image(str(path))
    files.remove(str(path))
    files.restore(str(path), was)
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 4321)


def labelled(path: Path) -> bool:
    """Whether the file could be given a label here; the lab's test of it can't be left out."""
    try:
        os.setxattr(path, "security.selinux", LABEL)
    except OSError:
        return False
    return True


LABEL = b"system_u:object_r:systemd_unit_file_t:s0\0"


def test_the_label_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    if not labelled(path):
        pytest.skip(f"{tmp_path} takes no security label from this user")
    was = files.image(str(path))
    assert was.label == LABEL
    files.write(str(path), b"new")
    assert files.image(str(path)).label is None
    files.restore(str(path), was)
    assert os.getxattr(path, "security.selinux") == LABEL and files.image(str(path)) == was


def test_what_is_neither_file_nor_link_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x")
    with pytest.raises(OSError, match="not a regular file"):
        files.image(str(tmp_path / "x"))


def test_only_our_own_temporary_files_are_swept(tmp_path: Path) -> None:
    for name in (".x.0123456789ab.ollamactl", ".x.conf", ".y.0123456789ab.ollamactl", "x"):
        (tmp_path / name).write_text("")
    files.sweep(str(tmp_path), "x")
    assert names(tmp_path) == [".x.conf", ".y.0123456789ab.ollamactl", "x"]


def test_folders_are_made_and_told(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    assert files.make_folders(str(deep), 0o700) == (str(tmp_path / "a"), str(deep))
    assert files.make_folders(str(deep)) == ()
    assert stat.S_IMODE(deep.stat().st_mode) == 0o700


def test_two_images_differ_by_content_alone() -> None:
    assert Image("file", b"a", 0o600).digest == Image("file", b"a", 0o644, 5).digest
    assert len({Image("file", b"a").digest, Image("absent").digest, Image("link", target="a").digest}) == 3
