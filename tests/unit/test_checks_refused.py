"""What the server refuses of its clients, and pulls that fail: how often and for how long makes it a warning."""

# ruff: noqa: E501 - lines of logs
from __future__ import annotations

import msgspec
import pytest
from check_machines import host
from wording_rows import Row, fires_first, near_miss_is_quiet, report

from ollamactl.core.checks import Finding, run
from ollamactl.core.facts import Facts, InstalledModel, PathState, Process, Start
from ollamactl.core.pasted import facts_of
from ollamactl.core.source import Missing
from tests.system.small import Log, journal, on_cpu, served

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
        ((404,), ""),
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


# -- what a model cannot do, and requests that are none --

COMMANDS: dict[str, Row] = {
    "tools": ("model_lacks_capability", '{"error":"registry.ollama.ai/library/gemma3:1b does not support tools"}\n', '{"error":"server busy"} and it does not support tools of two clients\n'),
    "thinking": ("model_lacks_capability", 'ollama._types.ResponseError: "gemma3:1b" does not support thinking (status code: 400)\n', "The plug-in does not support thinking yet.\n"),
    "a chat with a model that embeds": ("model_lacks_capability", 'Error: "nomic-embed-text" does not support chat\n', "The phone app does not support chat.\n"),
    "images": ("model_lacks_capability", '{"error":"this model is missing data required for image input"}\n', "the image of the model is missing data\n"),
    "JSON of another shape": ("bad_request_400", '{"error":"json: cannot unmarshal array into Go struct field ChatRequest.messages.content of type string"}\n', "ValueError: cannot unmarshal the reply of ollama\n"),
    "an option of the wrong type": ("bad_request_400", '{"error":"option \\"num_ctx\\" must be of type integer"}\n', "the option num_ctx is an integer\n"),
    "a wrong base address": ("client_path_unknown", "openai.NotFoundError: 404 page not found (http://127.0.0.1:11434/chat/completions)\n", "404 pages were found\n"),
    "a tag of Hugging Face": ("model_name_unknown", '$ ollama run hf.co/ann/x:Q9\nError: pull model manifest: 400: {"error":"The specified tag is not available in the repository."}\n', "the tag is not available\n"),
    "not signed in": ("cloud_sign_in_missing", "$ ollama run gpt-oss:120b-cloud\nError: You need to be signed in to Ollama to run Cloud models.\n", "401 for gpt-4o, and no cloud here\n"),
    "a cloud model, 401": ("cloud_sign_in_missing", "Error: gpt-oss:120b-cloud - 401 unauthorized\n", "Error: gpt-oss:120b - 401 unauthorized, says the proxy\n"),
    "an hour's limit": ("cloud_usage_limit_reached", "you've reached your hourly usage limit, please upgrade to continue\n", "you have reached your goal, no usage limit here\n"),
    "a week's limit": ("cloud_usage_limit_reached", '{"error":"you (ann) have reached your weekly usage limit, upgrade for higher limits: https://ollama.com/upgrade"}\n', "read https://ollama.com/upgrading\n"),
    "no cloud": ("cloud_disabled", '{"error":"ollama cloud is disabled: remote model is unavailable"}\n', "the cloud is disabled here\n"),
    "a private model": ("registry_access_denied", "$ ollama pull ann/secret\nError: pull model manifest: 401\n", "$ ollama pull ann/secret\nsuccess\n"),
    "a key that is gone": ("registry_access_denied", "$ ollama push ann/x\nError: open /usr/share/ollama/.ollama/id_ed25519: no such file or directory\n", "Couldn't find '/usr/share/ollama/.ollama/id_ed25519'. Generating new private key.\n"),
    "a namespace of others": ("registry_access_denied", "Error: you are not authorized to push to this namespace, create the model under a namespace you own\n", "pushing manifest\nsuccess\n"),
    "a flag in a shell": ("unknown_command_flag", "$ ollama serve --port 11500\nError: unknown flag: --port\n", "$ docker run --gpuz all ollama/ollama\nunknown flag: --gpuz\n"),
    "a word that is no command": ("unknown_command_flag", '$ ollama server\nError: unknown command "server" for "ollama"\n', 'Error: unknown command "lint" for "helm"\n'),
    "more than serve takes": ("unknown_command_flag", "$ ollama serve 0.0.0.0\nError: accepts 0 arg(s), received 1\n", "$ ollama serve\n"),
    "a pasted unit": ("unknown_command_flag", "[Unit]\nDescription=Ollama Service\n\n[Service]\nExecStart=/usr/local/bin/ollama serve --host 0.0.0.0\nUser=ollama\n", "[Unit]\nDescription=Ollama Service\n\n[Service]\nExecStart=/usr/local/bin/ollama serve $OLLAMA_ARGS\nUser=ollama\n"),
    "TMPDIR of a shell that ended": ("tmp_dir_missing", "Error: stat /tmp/nix-shell-4711-0: no such file or directory\n", "Error: stat /srv/models: no such file or directory\n"),
    "TMPDIR of a job": ("tmp_dir_missing", "Error: unable to initialize llm library failed to generate tmp dir: stat /scratch/77: no such file or directory\n", "stat: cannot statx '/scratch/77': No such file or directory\n"),
    "OLLAMA_TMPDIR of another user": ("tmp_dir_missing", "Error: unable to initialize llm runners failed to generate tmp dir: mkdir /data/tmp/ollama2077712: permission denied\n", "Error: mkdir /data/models: permission denied\n"),
    "a library that is not there": ("invalid_value", served("0.5.7").say("Invalid OLLAMA_LLM_LIBRARY cuda - not found", source="server.go:158").text(), served("0.5.7", OLLAMA_LLM_LIBRARY="cuda_v12").text()),
}  # fmt: skip


@pytest.mark.parametrize("row", COMMANDS)
def test_it_is_told_first_too(row: str) -> None:
    fires_first(COMMANDS[row])


@pytest.mark.parametrize("row", COMMANDS)
def test_its_near_miss_is_quiet_too(row: str) -> None:
    near_miss_is_quiet(COMMANDS[row])


@pytest.mark.parametrize(
    ("check", "status"),
    [("bad_request_400", 400), ("cloud_sign_in_missing", 401), ("cloud_usage_limit_reached", 429)],
)
def test_requests_that_are_refused_in_a_row(check: str, status: int) -> None:
    for statuses, severity in (
        ([status], ""),
        ([status] * 2, "info"),
        ([status] * 3, "warning"),
        ([200, *[status] * 4], "info"),
        ([200, *[status] * 5], "warning"),
        ([*[status] * 9, 200], ""),
    ):
        assert [f.severity for f in found(check, asked(served("0.20.0"), *statuses))] == [severity] * bool(severity)


@pytest.mark.parametrize(
    ("path", "statuses", "severity"),
    [
        ("/v1/api/chat", [404] * 3, "warning"),
        ("/chat/completions", [404], "info"),
        ("/v1/v1/chat/completions", [404, 404], "info"),
        ("/api/chat", [404] * 3, ""),
        ("/favicon.ico", [404] * 9, ""),
    ],
)
def test_a_wrong_base_address(path: str, statuses: list[int], severity: str) -> None:
    log = asked(served("0.20.0"), *statuses, path=path)
    assert [f.severity for f in found("client_path_unknown", log)] == [severity] * bool(severity)


def test_a_path_that_came_later_makes_the_release_too_old() -> None:
    for count, severity in ((1, "info"), (6, "warning")):
        [finding] = found("version_outdated", asked(served("0.12.0"), *[404] * count, path="/v1/responses"))
        assert finding.severity == severity and "/v1/responses" in finding.summary
    assert not found("version_outdated", asked(served("0.20.0"), *[404] * 6, path="/v1/responses"))


def test_inputs_that_are_too_long_are_no_requests_that_are_wrong() -> None:
    log = served("0.15.0")
    for _ in range(6):
        log.say("llm embedding error: the input length exceeds the context length").gin(400, "21ms", "/api/embed")
    checks = {f.check: f for f in report(log.text()).findings}
    assert "bad_request_400" not in checks
    assert "6 times in this log" in checks["prompt_truncated"].consequences[0]


def test_the_refusal_of_an_input_that_is_too_long_is_of_an_embedding() -> None:
    [finding] = report('{"error":"the input length exceeds the context length"}\n').findings
    assert finding.check == "prompt_truncated" and "embedding" in finding.summary
    assert "status 200" not in " ".join(finding.consequences)


# -- what keeps the server from starting --


@pytest.mark.parametrize(
    ("flag", "variable"),
    [
        ("--host", "OLLAMA_HOST"),
        ("--port=11500", "OLLAMA_HOST"),
        ("--num-parallel", "OLLAMA_NUM_PARALLEL"),
        ("--ctx-size", "OLLAMA_CONTEXT_LENGTH"),
        ("--keep-alive", "OLLAMA_KEEP_ALIVE"),
        ("--gpu", ""),
    ],
)
def test_an_option_names_its_variable(flag: str, variable: str) -> None:
    [finding] = [f for f in report(f"$ ollama serve {flag} 1\nError: unknown flag: {flag}\n").findings if f.check == "unknown_command_flag"]  # fmt: skip
    assert variable in finding.summary and ("OLLAMA_" in finding.summary) == bool(variable)


def test_a_unit_that_restarts_for_its_option() -> None:
    text = journal(
        "Started ollama.service - Ollama Service.", "ollama.service: Main process exited, code=exited, status=1/FAILURE",
        "ollama.service: Failed with result 'exit-code'.", "ollama.service: Scheduled restart job, restart counter is at 6.",
    ) + journal("Error: unknown flag: --host", unit="ollama[900]")  # fmt: skip
    first = report(text).findings[0]
    assert first.check == "unknown_command_flag" and "service_restart_loop" in first.consequences[0]


def service(*argv: str, **more: object) -> Facts:
    one = host().service
    assert one is not None
    return host(service=msgspec.structs.replace(one, exec_start=argv), **more)


def test_an_option_on_a_host() -> None:
    start = Start(listening="127.0.0.1:11434", version="0.20.0")
    argv = ("/usr/local/bin/ollama", "serve", "--host", "0.0.0.0")
    assert [f.check for f in run(service(*argv), only=["unknown_command_flag"]).findings] == ["unknown_command_flag"]
    assert not run(service(*argv, start=start), only=["unknown_command_flag"]).findings  # a program of that name
    assert not run(service(*argv[:2]), only=["unknown_command_flag"]).findings


@pytest.mark.parametrize(("release", "severity"), [("0.3.12", "error"), ("0.12.6", "warning")])
def test_tmpdir_on_a_host(release: str, severity: str) -> None:
    gone = PathState(path="/scratch/77", missing=Missing("absent", "No such file or directory"))
    start = Start(listening="127.0.0.1:11434", version=release)
    for state, said in ((gone, [severity]), (PathState(path="/scratch/77", type="folder"), [])):
        facts = host(
            process=Process(pid=900, environ={"TMPDIR": "/scratch/77/"}), start=start, paths={"/scratch/77": state}
        )
        assert [f.severity for f in run(facts, only=["tmp_dir_missing"]).findings] == said


def test_a_library_of_the_cpu_leaves_a_gpu_that_was_found() -> None:
    old = served("0.3.12", OLLAMA_LLM_LIBRARY="cpu_avx2")
    assert [f.severity for f in found("llm_library_forces_cpu", old)] == ["info"]
    old.load(4096, layers=(0, 33), weights_mib=4000, device="CPU")
    first = report(old.text()).findings[0]
    assert first.check == "llm_library_forces_cpu" and "discovery_ok_but_runner_cpu" in first.consequences[0]
    for release in ("0.9.6", "0.20.0"):  # such a name is not known there, or hides the GPU
        assert found("llm_library_forces_cpu", served(release, OLLAMA_LLM_LIBRARY="cpu")) == []
    assert found("llm_library_forces_cpu", served("0.3.12", OLLAMA_LLM_LIBRARY="cuda_v12")) == []
