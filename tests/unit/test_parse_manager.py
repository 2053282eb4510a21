"""Lines of systemd and the kernel."""
# ruff: noqa: E501  (log lines stand as they are printed)

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollamactl.core.parse.manager import read_complaint, read_manager


@pytest.mark.parametrize(
    ("text", "kind", "fields"),
    [
        ("ollama.service: Main process exited, code=exited, status=203/EXEC", "main_exited", {"code": "exited", "status": "203/EXEC"}),
        ("ollama.service: Main process exited, code=dumped, status=11/SEGV", "main_exited", {"code": "dumped", "status": "11/SEGV"}),
        ("ollama.service: Main process exited, code=exited, status=2/INVALIDARGUMENT", "main_exited", {"code": "exited", "status": "2/INVALIDARGUMENT"}),
        ("ollama.service: Control process exited, code=exited, status=1/FAILURE", "control_exited", {"code": "exited", "status": "1/FAILURE"}),
        ("ollama.service: Failed with result 'oom-kill'.", "failed", {"result": "oom-kill"}),
        ("ollama.service: A process of this unit has been killed by the OOM killer.", "oom_killed", {}),
        ("ollama.service: Scheduled restart job, restart counter is at 41.", "restart_scheduled", {"counter": "41"}),
        ("ollama.service: Start request repeated too quickly.", "start_limit", {}),
        ("ollama.service: Unable to locate executable '/usr/bin/ollama serve': No such file or directory", "exec_missing", {"program": "/usr/bin/ollama serve", "why": "No such file or directory"}),
        ("ollama.service: Failed to locate executable /usr/bin/ollama: No such file or directory", "exec_missing", {"program": "/usr/bin/ollama", "why": "No such file or directory"}),
        ("ollama.service: Failed at step EXEC spawning /usr/bin/ollama: No such file or directory", "exec_failed", {"step": "EXEC", "program": "/usr/bin/ollama", "why": "No such file or directory"}),
        ("ollama.service: Failed to load environment files: No such file or directory", "environment_file_failed", {"why": "No such file or directory"}),
        ("ollama.service: State 'stop-sigterm' timed out. Killing.", "timeout", {"what": "ollama.service: State 'stop-sigterm'"}),
        ("ollama.service: Killing process 11799 (llama-server) with signal SIGKILL.", "killing", {"pid": "11799", "name": "llama-server", "signal": "SIGKILL"}),
        ("ollama.service: Consumed 21.102s CPU time, 5.1G memory peak, 0B memory swap peak.", "consumed", {"cpu": "21.102s", "memory": "5.1G"}),
        ("Started ollama.service - Ollama Service.", "started", {}),
        ("ollama.service: Deactivated successfully.", "deactivated", {}),
        ("ollama.service: Succeeded.", "deactivated", {}),
    ],
)  # fmt: skip
def test_systemd(text: str, kind: str, fields: dict[str, str]) -> None:
    found = read_manager(text)
    assert found is not None
    assert (found[0].kind, found[1]) == (kind, fields)


@pytest.mark.parametrize(
    ("text", "file", "line"),
    [
        ("/etc/systemd/system/ollama.service.d/o.conf:3: Assignment outside of section. Ignoring.", "/etc/systemd/system/ollama.service.d/o.conf", 3),
        ("/run/systemd/system/ollama.service:12: Unknown key name 'Enviroment' in section 'Service', ignoring.", "/run/systemd/system/ollama.service", 12),
        ("/etc/systemd/system/ollama.service.d/my file.conf:1: Missing '='.", "", None),
        ("[/etc/systemd/system/ollama.service:5] Unknown lvalue 'X' in section 'Service'", "/etc/systemd/system/ollama.service", 5),
        ("ollama.service: Invalid environment variable name: A B, ignoring", "", None),
    ],
)  # fmt: skip
def test_complaints(text: str, file: str, line: int | None) -> None:
    complaint = read_complaint(text, 7.0)
    if file or "ollama.service:" in text[:16]:
        assert complaint is not None
        assert (complaint.file, complaint.line, complaint.text, complaint.at) == (file, line, text, 7.0)
    else:
        assert complaint is None or complaint.line == 1


def test_other_lines_are_no_complaints() -> None:
    assert read_complaint("Started ollama.service - Ollama Service.") is None
    assert read_complaint("ollama.service: Main process exited, code=exited, status=1/FAILURE") is None


@given(st.text(max_size=150))
def test_never_raises(text: str) -> None:
    read_manager(text)
    read_manager("x Killed process " + text, kernel=True)
    read_manager("Main process exited" + text)
    read_complaint(text)
