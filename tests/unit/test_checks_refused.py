"""What the server refuses of its clients, and pulls that fail: how often and for how long makes it a warning."""

# ruff: noqa: E501 - lines of logs
from __future__ import annotations

import msgspec
import pytest
from check_machines import host
from wording_rows import Row, fires_first, near_miss_is_quiet, report

from ollamactl.core.checks import Finding, run
from ollamactl.core.facts import Facts, InstalledModel, PathState
from ollamactl.core.pasted import facts_of
from tests.system.small import Log, on_cpu, served

NOT_HERE = "model 'qwen3:8b' not found"
REGISTRY = 'pull model manifest: Get "https://registry.ollama.ai/v2/library/qwen3/manifests/8b": '

ROWS: dict[str, Row] = {
    "the command": ("model_not_pulled", f"$ ollama show qwen3:8b\nError: {NOT_HERE}\n", f"Error: {NOT_HERE}\n$ ollama pull qwen3:8b\npulling manifest\nsuccess\n"),
    "older words": ("model_not_pulled", '{"error":"model \\"qwen3:8b\\" not found, try pulling it first"}\n', "the model was not found to be slow, try pulling it first\n"),
    "litellm": ("model_not_pulled", 'litellm.APIConnectionError: OllamaException - {"error":"' + NOT_HERE + '"}\n', "litellm.APIConnectionError: OllamaException - Timeout\n"),
    "langchain": ("model_not_pulled", "ValueError: Ollama call failed with status code 404. Maybe your model is not found and you should pull the model with `ollama pull qwen3:8b`.\n", "ValueError: Ollama call failed with status code 500.\n"),
    "httpx": ("model_not_pulled", "httpx.HTTPStatusError: Client error '404 Not Found' for url 'http://10.1.2.3:11434/api/chat'\n", "httpx.HTTPStatusError: Client error '404 Not Found' for url 'http://10.1.2.3:11434/api/version/x'\n"),
    "a name without a model": ("model_name_unknown", "$ ollama run qwenn3\npulling manifest\nError: pull model manifest: file does not exist\n", "$ ollama run qwenn3\npulling manifest\nError: pull model manifest: file does not exist\n$ ollama run qwen3\npulling manifest\nsuccess\n"),
    "given up": ("pull_stalled", "$ ollama pull qwen3:8b\nError: max retries exceeded: unexpected EOF\n", "$ ollama pull qwen3:8b\nError: max retries exceeded: unexpected EOF\n$ ollama pull qwen3:8b\nsuccess\n"),
    "another program's retries": ("pull_stalled", "$ ollama pull qwen3:8b\nError: max retries exceeded: EOF\n", "requests.exceptions.ConnectionError: HTTPConnectionPool(host='localhost', port=11434): Max retries exceeded with url: /api/chat\n"),
    "a proxy's certificate": ("registry_certificate_not_trusted", f"Error: {REGISTRY}tls: failed to verify certificate: x509: certificate signed by unknown authority\n", f"Error: {REGISTRY}tls: failed to verify certificate: x509: certificate signed by unknown authority\nexport HTTPS_PROXY=http://10.0.0.1:3128\n"),
    "a clock": ("registry_certificate_not_trusted", f"Error: {REGISTRY}tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2020-01-01T00:00:00Z is before 2026-01-01T00:00:00Z\n", 'Error: Get "https://intranet/x": x509: certificate has expired or is not yet valid\n'),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_it_is_told_first(row: str) -> None:
    fires_first(ROWS[row])


@pytest.mark.parametrize("row", ROWS)
def test_its_near_miss_is_quiet(row: str) -> None:
    near_miss_is_quiet(ROWS[row])


def found(check: str, log: Log) -> list[Finding]:
    return [f for f in report(log.text()).findings if f.check == check]


def asked(log: Log, *statuses: int, path: str = "/api/chat") -> Log:
    for status in statuses:
        log.later(20).gin(status, "2.1s" if status == 200 else "210.3µs", path)
    return log


@pytest.mark.parametrize(
    ("statuses", "severity"),
    [
        ((404,), "info"),
        ((404, 404), "info"),
        ((404, 404, 404), "warning"),  # to this client nothing was ever answered
        ((200, 404, 404, 404, 404), "info"),
        ((200, 404, 404, 404, 404, 404), "warning"),
        ((404, 404, 404, 404, 404, 404, 200), ""),
        ((404, 404, 404, 404, 404, 404, 500), ""),  # the model was there, and failed
        ((500, 403, 200), ""),
    ],
)
def test_requests_for_a_model_that_is_not_here(statuses: tuple[int, ...], severity: str) -> None:
    assert [f.severity for f in found("model_not_pulled", asked(served(), *statuses))] == [severity] * bool(severity)


def test_another_path_of_the_same_client_does_not_hide_it() -> None:
    log = served()
    for _ in range(6):
        asked(asked(log, 404, path="/api/embed"), 200)
    [finding] = found("model_not_pulled", log)
    assert finding.severity == "warning" and "/api/embed" in finding.summary


def test_a_pull_after_it_cures_it_and_show_before_a_pull_is_ordinary() -> None:
    log = asked(served(), 404, 404, 404, 404, 404)
    asked(log, 404, path="/api/show").later(60).gin(200, "1m0s", "/api/pull")
    assert found("model_not_pulled", log) == []
    [finding] = found("model_not_pulled", asked(log, 404, 404, 404))
    assert finding.severity == "warning"


def test_a_path_that_the_release_does_not_have_says_nothing_of_models() -> None:
    assert found("model_not_pulled", asked(served("0.12.0"), *[404] * 9, path="/v1/responses")) == []
    assert found("model_not_pulled", asked(served("0.20.0"), *[404] * 9, path="/v1/responses"))


def refused(**more: object) -> Facts:
    pasted = facts_of(asked(served(), 404, 404, 404).text().encode(), "log")
    assert pasted is not None
    return msgspec.structs.replace(host(**more), start=pasted.start, log=pasted.log)


def test_models_in_the_folder_of_another_user_are_the_cause() -> None:
    other = "/home/a/.ollama/models/manifests"
    facts = refused(installed=(), paths={other: PathState(path=other, type="folder")})
    [first, *_] = run(facts, only=["model_not_pulled", "models_in_two_dirs"]).findings
    assert first.check == "models_in_two_dirs" and first.consequences


def test_what_the_server_has_is_the_evidence() -> None:
    [finding] = run(refused(installed=(InstalledModel(name="gemma3:4b"),)), only=["model_not_pulled"]).findings
    assert "ollama list: gemma3:4b" in finding.evidence


def test_a_name_from_a_paste_cannot_become_a_command() -> None:
    [finding] = [f for f in report("Error: model 'a;reboot' not found\n").findings if f.check == "model_not_pulled"]
    assert "ollama pull 'a;reboot'" in finding.remedy


# -- pulls --

BLOB = "4f659a1e86d7"


def stalls(count: int, apart: float, log: Log | None = None) -> Log:
    log = log or served()
    log.say(f"downloading {BLOB} in 16 561 MB part(s)", source="download.go:179")
    for n in range(count):
        log.later(apart).say(
            f"{BLOB} part {n % 16} stalled; retrying. If this persists, press ctrl-c to exit.",
            source="download.go:376",
        )
    return log


def attempts(*numbers: int, why: str = "unexpected EOF") -> Log:
    log = stalls(0, 0)
    for n in numbers:
        log.later(2**n).say(f"{BLOB} part 3 attempt {n} failed: {why}, retrying in {2**n}s", source="download.go:297")
    return log


@pytest.mark.parametrize(
    ("log", "severity"),
    [
        (stalls(1, 60), ""),
        (stalls(4, 60), "info"),
        (stalls(16, 0.1), "info"),  # all parts at once: one hitch of the line
        (stalls(12, 120), "warning"),
        (stalls(12, 120).gin(200, "40m0s", "/api/pull"), ""),
        (stalls(12, 120).load(4096).gin(200, "2s"), ""),
        (attempts(0, 1, 2), ""),
        (attempts(0, 1, 2, 3, 4, 5), "warning"),
        (
            attempts(0, 1, 2, 3, 4, 5).gin(200, "2m0s", "/api/pull"),
            "warning",
        ),  # a stream that ends in an error has 200
        (attempts(0, 1, 2, 3, 4, 5).say("downloading 0123456789ab in 1 12 KB part(s)", source="download.go:179"), ""),
    ],
)
def test_a_pull_that_does_not_get_on(log: Log, severity: str) -> None:
    assert [f.severity for f in found("pull_stalled", log)] == [severity] * bool(severity)


def test_stalls_of_blobs_that_were_downloaded_since_do_not_count() -> None:
    log = stalls(12, 120)
    log.say("downloading 0123456789ab in 1 12 KB part(s)", source="download.go:179")
    assert found("pull_stalled", log) == []


def test_the_reason_of_the_last_try_is_said() -> None:
    [finding] = found(
        "pull_stalled", attempts(5, why="read tcp 10.0.0.2:40000->1.2.3.4:443: read: connection reset by peer")
    )
    assert "connection reset by peer" in finding.summary


def test_a_certificate_in_the_log() -> None:
    failure = 'request failed: Get "https://registry.ollama.ai/v2/library/a/manifests/b": tls: failed to verify certificate: x509: certificate signed by unknown authority'
    log = on_cpu("0.12.6").say(failure, source="images.go:846")
    assert [f.severity for f in found("registry_certificate_not_trusted", log)] == ["error"]
    log.say(f"downloading {BLOB} in 16 561 MB part(s)", source="download.go:179")
    assert found("registry_certificate_not_trusted", log) == []


def test_a_pull_that_was_cut_leaves_no_damaged_file() -> None:
    checks = [f.check for f in report("$ ollama pull a\nError: max retries exceeded: unexpected EOF\n").findings]
    assert "model_blob_truncated" not in checks
