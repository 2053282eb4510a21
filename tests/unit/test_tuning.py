"""A search for the number of slots: what is predicted, how it is undone, and what is shown of it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import msgspec
import pytest

from ollamactl.core.facts import Facts, LoadedModel, Process, Runner
from ollamactl.core.judge import phase
from ollamactl.core.mismatch import Mismatch
from ollamactl.core.sizing import cell
from ollamactl.core.tune import Try, forecast
from ollamactl.host import entryfiles, files
from ollamactl.host.apply import Result
from ollamactl.host.files import Image
from ollamactl.host.journal import Entry, FileUndo, ModelBefore
from ollamactl.host.trial import Trial, missing, point
from ollamactl.host.tuning import merged
from ollamactl.report import envelope
from ollamactl.report import tune as shown
from ollamactl.report.text import Terminal
from ollamactl.report.tune_html import page
from tests.probes import BASE, burst
from tests.tunings import report, subject, trial
from tests.unit.planned import gpu, model, room, settings

# -- what is predicted --


def test_the_most_that_fit_is_what_plan_says_and_the_needs_are_its_cells() -> None:
    free, qwen = room(gpu()), model()
    wish, cells = forecast(qwen, (), settings(), free, 32)
    assert wish.most == 32 and 1 < wish.first < 32
    assert cells[wish.first - 1].fits and not cells[wish.first].fits
    for slots in (1, wish.first, 32):
        assert cells[slots - 1].need == cell(qwen, settings(), free, slots).need == wish.needs[slots - 1]
    assert wish.fits(4 << 30) < wish.first < wish.fits(-(4 << 30))


def test_what_stays_beside_it_is_counted_with_as_many_slots() -> None:
    free, other = room(gpu()), model("other:8b", blocks=12)
    alone, _ = forecast(model(), (), settings(), free, 16)
    beside, _ = forecast(model(), (other,), settings(), free, 16)
    assert 0 < beside.first < alone.first
    grown = [(b - a) for a, b in zip(alone.needs, beside.needs, strict=True)]
    assert grown == sorted(grown) and grown[-1] > 3 << 30  # more slots are more for the other one too


def test_a_family_with_one_slot_has_one() -> None:
    wish, cells = forecast(model(architecture="qwen3vl"), (), settings(), room(gpu()), 16)
    assert (wish.most, wish.first, len(cells)) == (1, 1, 1)


# -- what counts as a load that stays --

GIB = 1 << 30


def whole(size: int, on_gpu: int, now: tuple[LoadedModel, ...] = ()) -> str:
    """Why a load of Qwen3 on a GPU is not wholly there; another model was wholly on it before."""
    of = subject()
    mine = LoadedModel(name="qwen3:8b", size=size, size_vram=on_gpu)
    other = ModelBefore("other:8b", 300.0, size=4 * GIB, size_vram=4 * GIB)
    entry = Entry(id=1, kind="tune", command="x", unit="u", started=0.0, models=(other,))
    runner = Runner(process=Process(pid=1), name="qwen3:8b")
    return missing(of.cells[3], mine, runner, Facts(loaded=(mine, *now)), entry)


def test_only_what_is_all_on_the_gpu_and_leaves_others_there_is_resident() -> None:
    stays = LoadedModel(name="other:8b", size=4 * GIB, size_vram=4 * GIB)
    spilled = LoadedModel(name="other:8b", size=4 * GIB, size_vram=3 * GIB)
    assert whole(10 * GIB, 10 * GIB, (stays,)) == ""
    assert whole(10 * GIB, 9 * GIB, (stays,)) == "only 90% of it is on the GPU"
    assert whole(1000 * GIB, 1000 * GIB - 1, (stays,)) == "only 99% of it is on the GPU"  # however little is missing
    assert whole(10 * GIB, 10 * GIB) == "other:8b had to make room for it"
    assert whole(10 * GIB, 10 * GIB, (spilled,)) == "it pushes other:8b off the GPU"


def test_requests_that_the_time_limit_cut_have_not_failed() -> None:
    sent, samples = burst(4, 4)
    late = msgspec.structs.replace(sent[3], ended_by="limit", reply=None)
    refused = msgspec.structs.replace(sent[2], status=503, reply=None, ended_by="error")
    found = point(phase("warm", [*sent[:2], refused, late], samples, BASE, clients=4))
    assert (found.at_once, found.failed, found.cut) == (4, 1, True)
    assert not point(phase("warm", sent, samples, BASE, clients=4)).cut


# -- one undo for all loads --


@pytest.mark.parametrize("left", ["none", "two", "four", "three"])
def test_whichever_text_a_kill_leaves_is_undone(tmp_path: Path, left: str) -> None:
    """Before the first write, with the first or second text, and with one that is on the way when the journal
    already names the next."""
    folder = tmp_path / "ollama.service.d"
    path = str(folder / "zz-ollamactl.conf")
    was = Image("absent")

    def entry(text: bytes, before: Image) -> Entry:
        undo = FileUndo(path, before, Image("file", text, 0o644), entryfiles.folders_to_make(path))
        return Entry(id=1, kind="tune", command="x", unit="ollama.service", started=0.0, files=(undo,))

    one = entry(b"two", was)
    entryfiles.do_files(one)
    two = merged(one, entry(b"four", files.image(path)))
    three = merged(two, entry(b"three", Image("file", b"four", 0o644)))
    assert [len(e.files) for e in (two, three)] == [1, 1] and three.files[0].before == was
    files.remove(path) if left == "none" else Path(path).write_bytes(left.encode())
    assert entryfiles.undo_files(three) == ((), ())
    assert not folder.exists()


def test_the_text_of_another_is_left(tmp_path: Path) -> None:
    path = str(tmp_path / "x.conf")
    undo = FileUndo(path, Image("absent"), Image("file", b"two", 0o644))
    one = Entry(id=1, kind="tune", command="x", unit="u", started=0.0, files=(undo,))
    again = FileUndo(path, Image("file", b"two", 0o644), Image("file", b"four", 0o644))
    two = merged(one, msgspec.structs.replace(one, files=(again,)))
    Path(path).write_bytes(b"an admin's")
    assert entryfiles.undo_files(two)[0] == (path,) and Path(path).read_bytes() == b"an admin's"


# -- what is shown --


def text(done: shown.Report) -> str:
    out = io.StringIO()
    shown.screen(Terminal(out), done, object())  # type: ignore[arg-type]
    return out.getvalue()


def test_a_screen_of_80_columns_ends_with_a_command() -> None:
    done = report()
    said = text(done)
    assert max(map(len, said.splitlines())) <= 80
    assert said.splitlines()[-1] == "    sudo ollamactl apply --parallel 4 --model qwen3:8b"
    assert "Knee: 4 at once. 8 at once bring +0 % tokens/s in all against 4." in said
    assert "What was before is back (3 restarts in all)" in said
    assert "+3 MiB" in said and "1.1 GiB" in said  # the prediction's error, the cache of a slot


def test_names_and_contexts_are_quoted_and_carried() -> None:
    done = report(subject(model("my model; rm")), context=8192, unit="ollama@gpu1.service")
    command = shown.recommended(done)
    assert command.endswith("--context-length 8192 --unit ollama@gpu1.service --model 'my model; rm'")


def test_what_runs_already_needs_no_command() -> None:
    done = report(slots_now=4)
    assert shown.recommended(done) == "" and "That is what runs already" in text(done)


def test_nothing_fits_is_a_finding_with_a_way() -> None:
    of = subject(model(blocks=400))
    assert of.wish.first == 0
    done = report(of, ())
    assert shown.exit_code(done) == 1
    [failure] = shown.failures(done)
    assert failure.id == "nothing_fits" and failure.hint == "ollamactl plan qwen3:8b shows what would fit"
    assert "No number of slots is recommended: not even one slot fits" in text(done)


def test_a_load_that_failed_is_shown_with_its_words() -> None:
    of = subject()
    failed = Trial(tried=Try(slots=8, loaded=False, resident=False, why="out of memory"), why="x", predicted=1)
    done = report(of, (failed, trial(of, 4, 8)))
    assert "8 slots: out of memory." in text(done)
    assert "Recommended: 4 slots" in text(done)


def test_stopped_is_told_and_recommends_nothing() -> None:
    done = report()
    result = Result(status="restored", entry=3, mismatches=(Mismatch("interrupted", "", "", "interrupted by SIGINT"),))
    done = msgspec.structs.replace(done, tuned=msgspec.structs.replace(done.tuned, step=None, result=result))
    assert shown.exit_code(done) == 3 and shown.recommended(done) == ""
    assert "Stopped: interrupted by SIGINT." in text(done) and "(exit 3)" in text(done)
    assert "Stopped: interrupted by SIGINT." in page(done)


def test_the_document_has_every_key_always() -> None:
    whole = shown.document(report())
    stopped = msgspec.structs.replace(report().tuned, step=None)
    other = shown.document(msgspec.structs.replace(report(), tuned=stopped))
    assert whole.keys() == other.keys()
    assert whole["recommendation"]["slots"] == whole["knee"] == 4 and other["recommendation"] is None
    assert whole["loads"][0]["points"][-1]["at_once"] == whole["loads"][0]["slots"]
    json.loads(envelope.envelope("tune", 0, whole))


def test_hostile_names_are_text_in_the_page() -> None:
    done = report(subject(model("<script>alert(1)</script>")))
    assert "<script" not in page(done) and "&lt;script&gt;" in page(done)
