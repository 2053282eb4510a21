"""Prompts in a paste: what a command prints, and that its own words are no evidence."""

from __future__ import annotations

import pytest

from ollamactl.core import pasted
from ollamactl.core.checks import run
from ollamactl.core.paste.screens import evidence, prompt


def found(text: str) -> list[str]:
    facts = pasted.facts_of(text.encode(), "paste")
    return [] if facts is None else [f.check for f in run(facts).findings if f.severity != "info"]


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("ann@box:~$ ollama ps", "ollama ps"),
        ("[root@srv ollama]# systemctl status ollama", "systemctl status ollama"),
        ("root@srv:/etc# ls", "ls"),
        ("ann@mini ~ % launchctl managername", "launchctl managername"),
        ("$ free -h", "free -h"),
        ("srv$ df -h", "df -h"),
        ("(venv) ann@box:~/x$ env", "env"),
        (r"PS C:\Users\ann> ollama ps", "ollama ps"),
        ("# a comment", None),
        ("# journalctl -k -b | grep -ci oom", "journalctl -k -b | grep -ci oom"),
        ("=== systemctl show ollama ===", "systemctl show ollama"),
        ("### ollama ps", "ollama ps"),
        ("--- cat /etc/environment ---", "cat /etc/environment"),
        ("➜  ~ ollama list", "ollama list"),
        ("cat /etc/default/ollama", "cat /etc/default/ollama"),
        ("sudo dmesg -T | grep -i killed", "sudo dmesg -T | grep -i killed"),
        ("# ollama list of models that we serve", None),
        ("# ollama needs a restart after -1, see /etc", None),
        ("ollama ps says 100% GPU", None),
        ("pacman -Q | grep ollama shows one package only", None),
        ("journalctl -u ollama shows nothing", None),
        ("# /etc/systemd/system/ollama.service", None),
        ("costs 5 $ more", None),
        ('Environment="A=$ b"', None),
        ("100 % GPU", None),
    ],
)
def test_prompts(line: str, command: str | None) -> None:
    assert prompt(line) == command


@pytest.mark.parametrize(
    ("command", "left"),
    [
        ("journalctl -k | grep -i 'out of memory'", "journalctl -k | "),
        ("dmesg | egrep -c oom && ollama ps", "dmesg | && ollama ps"),
        ("journalctl -u ollama --grep=killed -b", "journalctl -u ollama  -b"),
        ("cat /tmp/gpu-not-found.txt", ""),
        ("echo 'export OLLAMA_DEBUG=1' >> ~/.bashrc", "echo 'export OLLAMA_DEBUG=1' >> ~/.bashrc"),
        ("docker run -p 11434:11434 ollama/ollama", "docker run -p 11434:11434 ollama/ollama"),
    ],
)
def test_what_is_searched_for_is_no_evidence(command: str, left: str) -> None:
    assert evidence(command).split() == left.split()


@pytest.mark.parametrize(
    "search", ["dmesg | grep -ci oom", "journalctl -k -g 'out of memory'", "rg -i 'illegal instruction' app.log"]
)
def test_a_search_that_found_nothing_says_nothing(search: str) -> None:
    shown = "ann@box:~$ ollama ps\nNAME    ID    SIZE    PROCESSOR    UNTIL\n"
    assert found(f"{shown}ann@box:~$ {search}\n0\n") == []


def test_what_a_search_found_is_evidence() -> None:
    line = "Jan 03 10:00:00 box kernel: Out of memory: Killed process 77 (ollama) total-vm:9kB, anon-rss:8kB"
    assert "oom_killed" in found(f"ann@box:~$ journalctl -k | grep -i 'killed process'\n{line}\n")


UNIT = '[Service]\nEnvironment="OLLAMA_NUM_PARALLEL=3"\n'


@pytest.mark.parametrize(
    "after",
    [
        "ann@box:~$ systemctl show ollama -p Environment | grep OLLAMA\n",
        "ann@box:~$ OLLAMA_HOST=0.0.0.0 ollama --version\n",
        "\nMainPID=12\nResult=success\nNRestarts=0\nActiveState=active\n",
        "\nResult=success\nRestart=always\nMainPID=12\n",
    ],
)
def test_a_unit_file_ends_where_another_command_begins(after: str) -> None:
    path = "/etc/systemd/system/ollama.service.d/ours.conf"
    facts = pasted.facts_of(f"ann@box:~$ cat {path}\n{UNIT}{after}".encode(), "paste")
    assert facts is not None and facts.unit_files is not None
    (file,) = facts.unit_files
    assert (file.path, file.problems) == (path, ())
    assert [a.value for a in file.assignments] == ['"OLLAMA_NUM_PARALLEL=3"']


def test_a_broken_line_within_a_unit_file_is_still_told() -> None:
    text = f"ann@box:~$ systemctl cat ollama\n# /etc/systemd/system/ollama.service.d/a.conf\n{UNIT}OLLAMA_DEBUG : 1\n"
    facts = pasted.facts_of(text.encode(), "paste")
    assert facts is not None and facts.unit_files is not None and facts.unit_files[0].problems
