"""The transaction's journal: private, one open transaction at most, ended by one rename; the lock names its holder."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from ollamactl.errors import Exit, Failure
from ollamactl.host import entryfiles, files
from ollamactl.host.files import Image
from ollamactl.host.journal import Entry, FileUndo, Store


def entry(number: int = 1, *undos: FileUndo) -> Entry:
    return Entry(id=number, kind="apply", command="ollamactl apply", unit="ollama.service", started=1.0, files=undos)


def modes(folder: Path) -> dict[str, int]:
    return {str(p.relative_to(folder)): stat.S_IMODE(p.lstat().st_mode) for p in (folder, *folder.rglob("*"))}


def test_everything_is_for_root_alone(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    store = Store(str(folder))
    with store.lock("x", 0):
        store.begin(entry())
        open_now = modes(folder)
        store.end(entry())
    assert open_now == {".": 0o700, "history": 0o700, "lock": 0o600, "open.json": 0o600}
    assert modes(folder) == {".": 0o700, "history": 0o700, "lock": 0o600, "history/000001.json": 0o600}
    assert store.ids() == [1] and store.next_id() == 2 and store.open_entry() is None


def test_images_survive_bytes_of_any_kind(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    undo = FileUndo("/x", Image("file", bytes(range(256)), 0o640, 7, 8, b"l\0"), Image("link", target="/y"), ("/a",))
    with store.lock("x", 0):
        store.begin(entry(1, undo))
        assert store.open_entry() == entry(1, undo)


def test_a_folder_that_others_may_read_is_closed_and_one_of_others_refused(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    with Store(str(folder)).lock("x", 0):
        assert modes(folder)["."] == 0o700
    planted = tmp_path / "planted"
    planted.symlink_to(folder)
    with pytest.raises(Failure) as raised, Store(str(planted)).lock("x", 0):
        pass
    assert raised.value.code == Exit.REFUSED


def test_every_waiter_is_told_who_holds_it(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    told: list[str] = []
    with store.lock("ollamactl apply --parallel 4", 0):
        for _ in range(2):  # the first one's failure does not take the name away
            with (
                pytest.raises(Failure) as raised,
                Store(str(tmp_path)).lock("me", 0.1, lambda holder: told.append(holder.command)),
            ):
                pass
            assert f"ollamactl apply --parallel 4 (pid {os.getpid()})" in raised.value.text
            assert raised.value.code == Exit.UNSEEN
        assert told == ["ollamactl apply --parallel 4"] * 2


def test_a_damaged_journal_is_said(tmp_path: Path) -> None:
    (tmp_path / "open.json").write_text('{"id": 1')
    with pytest.raises(Failure, match="damaged"):
        Store(str(tmp_path)).open_entry()


def test_an_entry_of_an_older_release_is_read(tmp_path: Path) -> None:
    """What a field was added for later has its default."""
    store = Store(str(tmp_path))
    with store.lock("x", 0):
        store.begin(entry(1, FileUndo("/x", Image("absent"), Image("file", b"a"))))
    path = tmp_path / "open.json"
    old = json.loads(path.read_text())
    for name in ("conflicts", "overrides", "summary"):
        old.pop(name, None)
    old["files"][0] = {k: v for k, v in old["files"][0].items() if k != "emptied"}
    path.write_text(json.dumps(old))
    found = store.open_entry()
    assert found is not None and found.files[0].emptied == ()


def test_what_can_not_be_read_is_told_by_its_number_and_hides_nothing_else(tmp_path: Path) -> None:
    store, history = Store(str(tmp_path)), tmp_path / "history"
    with store.lock("x", 0):
        store.begin(entry(1))
        store.end(entry(1))
    good = (history / "000001.json").read_text()
    (history / "000002.json").write_text(good[:20])
    (history / "000003.json").mkdir()
    (history / "000004.json").write_text(good.replace('"schema":1', '"schema":2').replace('"apply"', '"repair"'))
    (history / "000005.json").write_text(good.replace('"id":1', '"id":77'))
    for name in ("6.json", "00000\u00b2.json", "note.json", "000007.json.bak"):
        (history / name).write_text(good)
    found, damaged = store.entries()
    assert [e.id for e in found] == [1, 5]  # a number is a file's name
    assert list(damaged) == [2, 3, 4] and store.next_id() == 6
    assert "damaged" in damaged[2].text and "directory" in damaged[3].text and "newer ollamactl" in damaged[4].text
    assert all(f"00000{n}.json" in failure.text and "less" in failure.hint for n, failure in damaged.items())
    assert [e.id for e in store.entries(5)[0]] == [5] and store.entries(5)[1] == {}


def test_an_open_change_that_can_not_be_read_says_how_to_go_on(tmp_path: Path) -> None:
    path = tmp_path / "open.json"
    path.write_text("[]")
    with pytest.raises(Failure, match="damaged") as raised:
        Store(str(tmp_path)).open_entry()
    assert f"sudo mv {path} /root/" in raised.value.hint


def test_undo_goes_on_after_a_file_that_fails(tmp_path: Path) -> None:
    good, bad, other = tmp_path / "good", tmp_path / "bad", tmp_path / "other"
    good.write_text("new")
    bad.mkdir()
    other.write_text("theirs")
    new, old = Image("file", b"new"), files.Image("file", b"old", 0o640, os.geteuid(), os.getegid())
    undos = [FileUndo(str(p), old, new) for p in (good, bad, other)]
    conflicts, errors = entryfiles.undo_files(entry(1, *undos))
    assert conflicts == (str(other),) and [e.filename for e in errors] == [str(bad)]
    assert good.read_text() == "old" and stat.S_IMODE(good.stat().st_mode) == 0o640
    assert other.read_text() == "theirs"


def test_folders_that_were_made_or_emptied_are_gone_and_back(tmp_path: Path) -> None:
    path = tmp_path / "unit.d" / "x.conf"
    made = entryfiles.folders_to_make(str(path))
    assert made == (str(path.parent),)
    there = entry(1, FileUndo(str(path), Image("absent"), Image("file", b"new"), made))
    entryfiles.do_files(there)
    assert path.read_text() == "new"
    assert entryfiles.undo_files(there) == ((), ()) and not path.parent.exists()
    entryfiles.do_files(there)
    was = files.image(str(path))
    gone = entry(2, FileUndo(str(path), was, Image("absent"), (), (str(path.parent),)))
    entryfiles.do_files(gone)
    assert not path.parent.exists()
    assert entryfiles.undo_files(gone) == ((), ()) and files.image(str(path)) == was
