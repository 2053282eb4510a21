"""Taking over OLLAMA_* lines of an admin's files: exactly those assignments go, every other byte stays."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ollamactl.core import adopt
from ollamactl.core.adopt import Adopted
from ollamactl.core.dropin import Managed
from ollamactl.core.environment import effective
from ollamactl.core.facts import Service, UnitFile
from ollamactl.core.parse import unitfile

UNIT = "ollama.service"
MAIN, OVERRIDE = adopt.paths(UNIT)
PACKAGED = "/usr/lib/systemd/system/ollama.service"


def file(text: str, path: str = MAIN) -> UnitFile:
    return unitfile.parse(path, text, "dropin" if path.endswith(".conf") else "main")


def adopted(*files: UnitFile, ours: Managed | None = None, unit: str = UNIT) -> Adopted:
    service = Service(id=unit, fragment_path=files[0].path, exec_start=("/usr/local/bin/ollama", "serve"))
    now = effective(service, files, (), {})
    return adopt.adoptable(unit, files, now, ours or Managed(), "0.33.0")


def after(found: Adopted, path: str = MAIN) -> str:
    return next(e.after for e in found.edits if e.path == path)


HEAD = "[Unit]\nDescription=Ollama\n\n[Service]\nExecStart=/usr/local/bin/ollama serve\n"


@pytest.mark.parametrize(
    ("lines", "left", "values"),
    [
        ('Environment="OLLAMA_NUM_PARALLEL=4"\n', "", {"OLLAMA_NUM_PARALLEL": "4"}),
        ("Environment=OLLAMA_NUM_PARALLEL=4", "", {"OLLAMA_NUM_PARALLEL": "4"}),
        ("Environment = OLLAMA_NUM_PARALLEL=4 OLLAMA_MAX_QUEUE=9\n", "",
         {"OLLAMA_NUM_PARALLEL": "4", "OLLAMA_MAX_QUEUE": "9"}),
        ('Environment="PATH=/bin" "OLLAMA_MAX_QUEUE=9"  \n', 'Environment="PATH=/bin"  \n', {"OLLAMA_MAX_QUEUE": "9"}),
        ('Environment="OLLAMA_MAX_QUEUE=9"  A=1\n', "Environment=A=1\n", {"OLLAMA_MAX_QUEUE": "9"}),
        ('Environment=A=1 "OLLAMA_MAX_QUEUE=9" B=2\n', "Environment=A=1 B=2\n", {"OLLAMA_MAX_QUEUE": "9"}),
        ("Environment=OLLAMA_MAX_QUEUE=9 \\\n# why\n  OLLAMA_NUM_PARALLEL=2\nUser=x\n", "# why\nUser=x\n",
         {"OLLAMA_MAX_QUEUE": "9", "OLLAMA_NUM_PARALLEL": "2"}),
        ("Environment=OLLAMA_MAX_QUEUE=1\nEnvironment=OLLAMA_MAX_QUEUE=2\n", "", {"OLLAMA_MAX_QUEUE": "2"}),
        ("Environment=OLLAMA_MAX_QUEUE=9\r\nUser=x\r\n", "User=x\r\n", {"OLLAMA_MAX_QUEUE": "9"}),
        ("Environment=OLLAMA_MODELS=/m/100%%\n", "", {"OLLAMA_MODELS": "/m/100%"}),
        ("Environment='OLLAMA_MODELS=/a b' C=%n\n", "Environment=C=%n\n", {"OLLAMA_MODELS": "/a b"}),
        ("Environment=OLLAMA_HOST=0.0.0.0\n", "", {"OLLAMA_HOST": "0.0.0.0"}),
    ],
)  # fmt: skip
def test_exactly_those_assignments_go(lines: str, left: str, values: dict[str, str]) -> None:
    found = adopted(file(HEAD + lines))
    assert after(found) == HEAD + left
    assert found.values == values
    assert not found.left


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("Environment=OLLAMA_NUM_PARALEL=4\n", "did its author mean OLLAMA_NUM_PARALLEL?"),
        ("Environment=OLLAMA_NUM_PARALLEL=four\n", "OLLAMA_NUM_PARALLEL=four"),
        ("Environment=OLLAMA_FLASH_ATTENTION=maybe\n", "OLLAMA_FLASH_ATTENTION=maybe"),
        ("Environment=OLLAMA_MODELS=%E/x%H\n", "specifier"),
        ("Environment=OLLAMA_MAX_QUEUE=4\nUnsetEnvironment=OLLAMA_MAX_QUEUE\n", "wins over it"),
        ("Environment=OLLAMA_MAX_QUEUE=4\nEnvironment=\n", "wins over it"),
    ],
)
def test_what_would_not_be_the_same_afterwards_stays_and_is_named(lines: str, why: str) -> None:
    found = adopted(file(HEAD + lines))
    assert not found.values and not found.edits
    assert len(found.left) == 1 and why in found.left[0].text


def test_lines_of_others_stay() -> None:
    """A package's unit, a template that instances share, and drop-ins that a tool wrote are not edited."""
    line = "Environment=OLLAMA_MAX_QUEUE=4\n"
    override = file("[Service]\nEnvironment=OLLAMA_NUM_PARALLEL=2\n", OVERRIDE)
    site = file(f"[Service]\n{line}", f"{MAIN}.d/10-site.conf")
    found = adopted(file(HEAD + line, PACKAGED), site, override)
    assert found.values == {"OLLAMA_NUM_PARALLEL": "2"}
    assert [e.path for e in found.edits] == [OVERRIDE] and after(found, OVERRIDE) == "[Service]\n"
    assert len(found.left) == 2 and all("stays" in x.text for x in found.left)
    shared = "/etc/systemd/system/ollama@.service"
    assert not adopted(file(HEAD + line, shared), unit="ollama@1.service").values


def test_a_shadowed_line_goes_and_our_value_stays() -> None:
    ours = Managed({"OLLAMA_MAX_QUEUE": "9"})
    mine = file('[Service]\nEnvironment="OLLAMA_MAX_QUEUE=9"\n', f"{MAIN}.d/zz-ollamactl.conf")
    found = adopted(file(HEAD + "Environment=OLLAMA_MAX_QUEUE=4\n"), mine, ours=ours)
    assert found.values == {} and after(found) == HEAD


NAMES = st.sampled_from(["OLLAMA_MAX_QUEUE", "OLLAMA_NUM_PARALLEL", "OLLAMA_KEEP_ALIVE", "PATH", "A", "Z_1"])
WORDS = st.builds(
    lambda name, value, form: form.format(f"{name}={value}"),
    NAMES, st.integers(1, 9).map(str), st.sampled_from(["{}", '"{}"', "'{}'"]),
)  # fmt: skip
LINES = st.one_of(
    st.lists(WORDS, min_size=1, max_size=4).flatmap(
        lambda words: st.sampled_from([" ", "  ", "\t", " \\\n  "]).map(lambda gap: "Environment=" + gap.join(words))
    ),
    st.sampled_from(
        ["Environment=", "# Environment=OLLAMA_MAX_QUEUE=3", "", "User=x", "Environment = A=1", "[Service]"]
    ),
)


@settings(deadline=None, max_examples=150)
@given(st.lists(LINES, max_size=8), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_the_environment_stays_the_same(lines: list[str], end: str, last: bool) -> None:
    """Whatever stands there: the service is passed the same variables, and what is left is a part of what was."""
    text = HEAD + end.join(lines) + (end if last else "")
    before = (file(text),)
    found = adopted(*before)
    service = Service(id=UNIT, fragment_path=MAIN)
    ours = "[Service]\n" + "".join(f'Environment="{n}={v}"\n' for n, v in found.values.items())
    files = (*adopt.with_edits(before, found.edits), file(ours, f"{MAIN}.d/zz-ollamactl.conf"))

    def passed(of: tuple[UnitFile, ...]) -> dict[str, str]:
        made = effective(service, of, (), {}).variables
        return {n: v.value for n, v in made.items() if v.value is not None}

    assert passed(files) == passed(before)
    for edit in found.edits:
        rest = iter(edit.before)
        assert all(c in rest for c in edit.after)  # nothing was added or moved


def test_what_an_edit_took_is_told() -> None:
    rest = "Environment=OLLAMA_HOST=::\n"
    before = '[Service]\n# x\nEnvironment="SITE=a b" OLLAMA_DEBUG=1 "OLLAMA_ORIGINS=http://a b"\n' + rest
    after = '[Service]\nEnvironment="SITE=a b"\n' + rest
    assert adopt.taken(before, after) == ["OLLAMA_DEBUG=1", "OLLAMA_ORIGINS=http://a b"]
    assert adopt.taken(before, before) == adopt.taken("", before) == []
