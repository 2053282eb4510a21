# ruff: noqa: E501 - readings are lines as they are
"""Bundles: what was recorded comes back, redacted, and nothing hostile gets in or out."""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ollamactl.core.source import Missing, Reading, Source, command, file, http, listing, native
from ollamactl.errors import Failure
from ollamactl.host import archive, bundle
from ollamactl.host.bundle import Recorder, Replay
from ollamactl.host.live import LiveHost


class Said:
    """A host that answers what a test has written down."""

    def __init__(self, *readings: tuple[Source, Reading]) -> None:
        self.answers = {source.key: reading for source, reading in readings}

    def read(self, source: Source) -> Reading:
        return self.answers[source.key]


def said(source: Source, body: bytes | None = None, **more: object) -> tuple[Source, Reading]:
    return source, Reading(source.key, body, **more)  # type: ignore[arg-type]


DROPIN = file("/home/alice/units/a b.conf")
SHOW = command("systemctl", "show", "--property=Id,Environment", "ollama.service")
MACHINE = (
    said(native("system"), b'{"os":"linux","hostname":"gpubox"}'),
    said(SHOW, b"Id=ollama.service\nDropInPaths=/home/alice/units/a b.conf\n", status=0),
    said(DROPIN, b"[Service]\nEnvironment=HF_TOKEN=opensesame OLLAMA_HOST=192.168.1.7\n"),
    said(file("/etc/none"), missing=Missing("absent", "/etc/none: No such file of alice"), at=5.0, seconds=0.25),
    said(http("http://192.168.1.7:11434/api/ps"), b'{"error":"busy"}', status=503, missing=Missing("failed", "HTTP 503")),
    said(command("journalctl", "-n", "200", "-o", "json"), b'{"_HOSTNAME":"gpubox","MESSAGE":"hi"}\n'),
    said(native("sockets", "11434", "4711"), b"{}"),
    said(file("/binary"), b"\xff\0\xfe"),
    said(file("/empty"), b""),
)  # fmt: skip


def record(tmp_path: Path) -> tuple[Path, dict[str, int]]:
    recorder = Recorder(Said(*MACHINE))
    for source, _ in MACHINE:
        recorder.read(source)
    return tmp_path / "a.tar.gz", recorder.write(str(tmp_path / "a.tar.gz"))


def unpacked(path: Path) -> Path:
    target = path.parent / "unpacked"
    with tarfile.open(path) as tar:
        for member in tar:
            (target / member.name).parent.mkdir(parents=True, exist_ok=True)
            content = tar.extractfile(member)
            assert content
            (target / member.name).write_bytes(content.read())
    return target


@pytest.mark.parametrize("form", ["archive", "folder", "archive of a folder"])
def test_readings_come_back_redacted_and_lead_to_each_other(tmp_path: Path, form: str) -> None:
    path, removed = record(tmp_path)
    if form != "archive":
        path = unpacked(path)
    if form == "archive of a folder":
        with tarfile.open(tmp_path / "b.tgz", "w:gz") as tar:
            tar.add(path, "machine")
        path = tmp_path / "b.tgz"
    host = Replay(str(path))
    assert host.read(native("system")).body == b'{"os":"linux","hostname":"host1"}'
    shown = host.read(SHOW)
    assert shown.status == 0
    way = shown.text.splitlines()[1].partition("=")[2]  # a path found in one reading names the next
    assert host.read(file(way)).text == "[Service]\nEnvironment=HF_TOKEN=secret1 OLLAMA_HOST=198.18.0.1\n"
    none = host.read(file("/etc/none"))
    assert none.missing == Missing("absent", "/etc/none: No such file of user1") and (none.at, none.seconds) == (
        5.0,
        0.25,
    )
    busy = host.read(http("http://198.18.0.1:11434/api/ps"))
    assert busy.status == 503 and busy.missing == Missing("failed", "HTTP 503") and busy.body == b'{"error":"busy"}'
    assert host.read(file("/binary")).body == b"\xff\0\xfe"
    assert host.read(file("/empty")).body == b"" and host.read(file("/empty")).missing is None
    assert host.read(file("/other")).missing == Missing("unasked", "not in this bundle")
    assert (
        removed == host.index.removed
        and removed["secret"] >= 1
        and removed["host"] >= 2
        and removed["ip address"] >= 2
    )
    raw = b"".join(p.read_bytes() for p in unpacked(tmp_path / "a.tar.gz").rglob("*") if p.is_file())
    names = " ".join(str(p) for p in (tmp_path / "unpacked").rglob("*"))
    for secret in ("alice", "gpubox", "opensesame", "192.168.1.7"):
        assert secret.encode() not in raw and secret not in names


def test_near_sources_answer(tmp_path: Path) -> None:
    host = Replay(str(record(tmp_path)[0]))
    more = command("systemctl", "show", "--property=Id,Environment,MainPID", "ollama.service")
    assert host.read(more).body == host.read(SHOW).body and host.read(more).key == more.key
    assert host.read(command("journalctl", "-n", "4000", "-o", "json", "--output-fields=MESSAGE")).body
    assert host.read(native("sockets", "11434", "1")).body == b"{}"
    assert host.read(native("sockets", "11434")).body == b"{}"
    other = host.read(command("systemctl", "show", "--property=Id", "other.service"))
    assert other.missing and other.missing.kind == "unasked"


def test_limits_of_sources_hold_for_bundles_too(tmp_path: Path) -> None:
    host = Replay(str(record(tmp_path)[0]))
    cut = host.read(Source("native", ("system",), limit=5))
    assert cut.body == b'{"os"' and cut.stderr == "cut: at 5 bytes"
    assert b"".join(host.stream(native("system"))) == host.read(native("system")).body


@pytest.mark.touches("process")
def test_streams_are_recorded(tmp_path: Path) -> None:
    recorder = Recorder(LiveHost())
    source = command("printf", "one\\ntwo\\n")
    stream = recorder.stream(source)
    assert b"".join(stream) == b"one\ntwo\n" and stream.reading.status == 0
    missing = recorder.stream(command("no-such-program-here"))
    assert b"".join(missing) == b"" and missing.reading.missing and missing.reading.missing.kind == "absent"
    recorder.write(str(tmp_path / "a.tar.gz"))
    host = Replay(str(tmp_path / "a.tar.gz"))
    assert host.read(source).body == b"one\ntwo\n" and host.read(source).status == 0
    again = host.read(command("no-such-program-here"))
    assert again.body is None and again.missing and again.missing.kind == "absent"


# -- writing --


def test_private_and_never_through_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "a.tar.gz").symlink_to(victim)
    before = os.umask(0)
    try:
        path, _ = record(tmp_path)
    finally:
        os.umask(before)
    assert victim.read_text() == "precious" and not path.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar.gz", "victim"]  # nothing left beside it


def test_overwriting_is_whole(tmp_path: Path) -> None:
    path, _ = record(tmp_path)
    held = path.open("rb")
    record(tmp_path)
    with held:
        assert gzip.decompress(held.read())  # a reader of the old one keeps it
    Replay(str(path))


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bundle.os, "fsync", full)
    with pytest.raises(Failure, match="No space left"):
        record(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["none/a.tar.gz", "folder"])
def test_where_it_cannot_be_written(tmp_path: Path, where: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(Failure):
        Recorder(Said()).write(str(tmp_path / where))
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


# -- hostile archives --


def pack(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> str:
    with tarfile.open(path, "w:gz") as tar:
        for member, body in members:
            member.size = len(body)
            tar.addfile(member, io.BytesIO(body))
    return str(path)


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


INDEX = json.dumps({"schema": 1, "readings": [{"key": "file:/a", "member": "a"}]}).encode()


def test_the_smallest_bundle(tmp_path: Path) -> None:
    path = pack(tmp_path / "x", (member("index.json"), INDEX), (member("a"), b"A"))
    assert Replay(path).read(file("/a")).body == b"A"


@pytest.mark.parametrize(
    "bad",
    [
        member("/etc/passwd"), member("../a"), member("x/../../a"), member("a", tarfile.SYMTYPE, "/etc/passwd"),
        member("a", tarfile.LNKTYPE, "index.json"), member("a", tarfile.FIFOTYPE), member("a", tarfile.CHRTYPE),
        member("index.json"), member("x\\..\\a"),
    ],
    ids=lambda m: f"{m.name} {m.type!r}",
)  # fmt: skip
def test_refused_whole(tmp_path: Path, bad: tarfile.TarInfo) -> None:
    path = pack(tmp_path / "x", (member("index.json"), INDEX), (member("b"), b"A"), (bad, b""))
    with pytest.raises(Failure, match="not a bundle"):
        Replay(path)


@pytest.mark.parametrize(
    "index",
    [
        b"", b"[]", b"{}", b"nonsense", b'{"schema":2,"readings":[]}', b'{"schema":1,"readings":[{"key":1}]}',
        b'{"schema":1,"readings":[{"key":"x","member":"gone"}]}', b"[" * 100_000, b"\xff", b'{"schema":"1","readings":[]}',
        b'{"schema":1,"readings":[{"key":"x","missing":{"kind":"odd"}}]}',
    ],
)  # fmt: skip
def test_bad_indexes(tmp_path: Path, index: bytes) -> None:
    with pytest.raises(Failure, match="not a bundle"):
        Replay(pack(tmp_path / "x", (member("index.json"), index)))
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "index.json").write_bytes(index)
    with pytest.raises(Failure, match="not a bundle"):
        Replay(str(tmp_path / "f"))


def test_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "TOTAL_BYTES", 1 << 20)
    monkeypatch.setattr(archive, "MEMBER_BYTES", 600 << 10)
    monkeypatch.setattr(archive, "MEMBERS", 8)
    one = pack(tmp_path / "1", (member("index.json"), INDEX), (member("a"), bytes(700 << 10)))
    many = pack(tmp_path / "2", *((member(str(i)), b"") for i in range(20)))
    total = pack(tmp_path / "3", *((member(str(i)), bytes(500 << 10)) for i in range(5)))
    pax = member("a")
    pax.pax_headers = {"comment": "x" * (3 << 20)}
    header = pack(tmp_path / "4", (pax, b""))
    for path, words in ((one, "larger"), (many, "more than"), (total, "larger"), (header, "larger")):
        with pytest.raises(Failure, match=words):
            Replay(path)


def test_a_member_may_not_claim_more_than_there_is(tmp_path: Path) -> None:
    whole = Path(pack(tmp_path / "x", (member("index.json"), INDEX), (member("a"), b"A" * 5000)))
    plain = gzip.decompress(whole.read_bytes())
    (tmp_path / "cut").write_bytes(gzip.compress(plain[:-13000]))
    with pytest.raises(Failure):
        Replay(str(tmp_path / "cut"))


@pytest.mark.parametrize("name", ["a", "sub"])
def test_a_folder_with_links_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x").write_text("secret")
    target = tmp_path / "outside" / "x" if name == "a" else tmp_path / "outside"
    (folder / name).symlink_to(target)
    entry = {"key": "file:/a", "member": "a" if name == "a" else "sub/x"}
    (folder / "index.json").write_text(json.dumps({"schema": 1, "readings": [entry]}))
    with pytest.raises(Failure):
        Replay(str(folder))


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "x/../../outside"])
def test_a_folder_whose_index_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "outside").write_text("secret")
    folder = tmp_path / "f"
    folder.mkdir()
    (folder / "index.json").write_text(json.dumps({"schema": 1, "readings": [{"key": "file:/a", "member": name}]}))
    with pytest.raises(Failure, match="name"):
        Replay(str(folder))


def test_what_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "empty").touch()
    (tmp_path / "gz").write_bytes(gzip.compress(b"hello" * 500))
    os.mkfifo(tmp_path / "fifo")
    for name in ("text", "empty", "gz", "none", "fifo"):
        with pytest.raises(Failure):
            Replay(str(tmp_path / name))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutated_archives_are_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "whole.tgz"
    if not path.exists():
        pack(path, (member("index.json"), INDEX), (member("a"), b"A" * 700), (member("d/b"), b"B"))
    plain = bytearray(gzip.decompress(path.read_bytes()))
    packed = data.draw(st.booleans())
    raw = bytearray(path.read_bytes()) if packed else plain
    for _ in range(data.draw(st.integers(1, 8))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw
    (tmp_path / "mutated").write_bytes(bytes(raw) if packed else gzip.compress(bytes(raw)))
    try:
        host = Replay(str(tmp_path / "mutated"))
    except Failure:
        return
    host.read(file("/a"))
    host.read(listing("/"))
