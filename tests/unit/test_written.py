"""What transactions wrote, over several of them: where a rollback ends, and what somebody changed between two."""

from __future__ import annotations

from ollamactl.host.files import Image
from ollamactl.host.journal import Entry, FileUndo, Outcome
from ollamactl.host.written import written

ABSENT = Image("absent")


def text(words: str) -> Image:
    return Image("file", words.encode())


def entry(number: int, *files: tuple[str, Image, Image], outcome: Outcome = "applied") -> Entry:
    undos = tuple(FileUndo(path, before, after) for path, before, after in files)
    return Entry(
        id=number, kind="apply", command="x", unit="ollama.service", started=1.0, files=undos, outcome=outcome
    )


def test_each_path_once_from_the_first_before_to_the_last_after() -> None:
    unit = ("/unit", text("a=1\n"), text(""))
    found = written([
        entry(1, ("/drop", ABSENT, text("1"))),
        entry(2, ("/drop", text("1"), text("2")), unit),
        entry(3, ("/drop", text("2"), text("3")), outcome="restored"),
        entry(4, ("/drop", text("2"), text("4"))),
    ])  # fmt: skip
    assert [(w.path, w.before, w.kept, w.after, w.edited) for w in found] == [
        ("/drop", ABSENT, ABSENT, text("4"), False),
        ("/unit", text("a=1\n"), text("a=1\n"), text(""), False),
    ]


def test_what_somebody_made_of_it_between_two_is_kept_apart() -> None:
    [one] = written([
        entry(1, ("/unit", text("a=1\n"), text(""))),
        entry(2, ("/unit", text("b=2\n"), text("b\n"))),
        entry(3, ("/unit", text("b\n"), text(""))),
    ])  # fmt: skip
    assert one.edited and (one.before, one.kept, one.after) == (text("a=1\n"), text("b=2\n"), text(""))


def test_an_owner_alone_is_no_edit() -> None:
    [one] = written([
        entry(1, ("/unit", text("a"), text("b"))),
        entry(2, ("/unit", Image("file", b"b", 0o600, 7, 8), text("c"))),
    ])  # fmt: skip
    assert not one.edited
