"""Cases told in a line or two: what each kind of statement leads to, and what the like of it must not."""

# ruff: noqa: E501 - a statement is read more easily whole
from __future__ import annotations

import random

import pytest
from told_rows import KINDS

from ollamactl.core import pasted
from ollamactl.core.checks import run
from ollamactl.core.parse import gin
from ollamactl.core.paste import cells, claims, fragments, told
from ollamactl.core.paste.variables import mentioned


def checks(text: str) -> list[tuple[str, str]]:
    facts = pasted.facts_of(text.encode(), "case")
    report = run(facts) if facts else None
    assert report is None or not report.crashed
    return [(f.check, f.severity) for f in report.findings] if report else []


@pytest.mark.parametrize("kind", KINDS)
def test_a_told_fault_comes_first(kind: str) -> None:
    text, check, _ = KINDS[kind]
    assert [c for c, _ in checks(text)][:1] == [check]


@pytest.mark.parametrize("kind", KINDS)
def test_the_like_of_it_without_the_fault_is_quiet(kind: str) -> None:
    assert [(c, s) for c, s in checks(KINDS[kind][2]) if s != "info"] == []


# questions, and what people say of a host on which all is well
QUIET = [
    "The extension works after I set OLLAMA_ORIGINS as the README says.",
    "HTTPS_PROXY is set in the drop-in and pulls work.",
    "ollama list shows nothing yet since no model was pulled.",
    "We have 20 slots on an H100 and the memory is full to 80 percent, as planned.",
    "Bazzite runs Ollama in a container without problems.",
    "My docker container on a Mac answers quickly enough for tests.",
    "I compared vLLM and Ollama on the same GPU: 40 tok/s and 38 tok/s.",
    "We mount the models folder from the host into the container and loads are fast.",
    '"State": { "Status": "running", "OOMKilled": false, "ExitCode": 0 }, the container is up',
    "Stopping any existing servers...",
    "DGX Spark: 'skipping CUDA device' at each start, yet the GPU works.",
    "key not found: is something missing in the models folder?",
    "The prompt has 9,120 tokens and the answer 300.",
    "A keep_alive of 0 means that the model goes at once, -1 means that it stays.",
    "The docs say: systemctl edit ollama, then Environment=OLLAMA_HOST=0.0.0.0 below [Service], then a restart.",
    "Proposal: requests that wait should be served one after another by their age.",
    'How do I change the folder where Ollama keeps its models?',
    'Is there a way to see which models are loaded and how much VRAM they take?',
    'What does OLLAMA_NUM_PARALLEL do, and what is its default?',
    'Does Ollama support AMD GPUs on Windows?',
    'I would like to use Ollama from another machine. Which variable do I have to set?',
    'How can I keep a model in memory forever?',
    'Can I run two models at the same time on one GPU?',
    'What is the difference between num_ctx and OLLAMA_CONTEXT_LENGTH?',
    'Which quantisation should I choose for a 12 GB card?',
    'How do I update Ollama on Ubuntu without losing my models?',
    'Feature request: an option to bound the queue per model.',
    'Feature request: support for embedding batching on the CPU.',
    'Please add the qwen3.5 family.',
    'The documentation says that OLLAMA_HOST can be set with systemctl edit. Is daemon-reload needed afterwards?',
    'We run Ollama in Kubernetes with two replicas and a load balancer, and are happy with it.',
    'After the update to 0.30 everything is faster: 41 tok/s instead of 30 tok/s.',
    'I set OLLAMA_KEEP_ALIVE=-1 in the drop-in and it works.',
    'ollama run llama3.2 prints a good answer in 2 s.',
    'My server has two RTX 3090 and 128 GB of RAM.',
    'ollama ps shows llama3.1:8b 6.7 GB 100% GPU 8192 4 minutes from now',
    'With num_ctx 32768 the model takes 14 GB of the 24 GB card.',
    'I exported OLLAMA_HOST=http://gpu.lan:11434 in .bashrc so that the CLI talks to the server.',
    'Does a restart of the service unload all models?',
    'The model answers in English although I ask in German.',
    'Which license do the models have?',
    'docker run -d --gpus=all -v ollama:/root/.ollama -p 127.0.0.1:11434:11434 --name ollama ollama/ollama',
    'Thanks, after installing nvidia-container-toolkit it works.',
    'Solved: the unit had a typo. It works now.',
    'Is it normal that the first request takes longer? The model has to be loaded.',
    'How much memory does the KV cache of a 128k context need?',
    'On macOS the app starts at login, is that right?',
    'Could somebody explain what "100% GPU" means in ollama ps?',
    'We use nginx in front with proxy_read_timeout 600s and proxy_buffering off.',
    'ollama --version: ollama version is 0.30.4',
    'systemctl is-active ollama: active',
    "I'm comparing vLLM and Ollama: which one has more throughput with 8 parallel users?",
    'How do I quantise the KV cache? I read about q8_0 and flash attention.',
    'Where are the logs on Linux?',
    'The context length of gemma3 is 131072 according to ollama show.',
    'ollama show: context length 131072, embedding length 5376, quantization Q4_K_M',
    'Can I limit Ollama to one GPU? I have three.',
    'What happens if more requests arrive than OLLAMA_MAX_QUEUE?',
    'curl http://localhost:11434/api/version → {"version":"0.30.4"}',
    'The prompt has 812 tokens and the answer 240.',
    'total duration: 4.1s load duration: 31ms prompt eval count: 812 token(s) eval count: 240 token(s) eval rate: 61.2 tokens/s',
    'Our CI starts a fresh container for each test run and pulls the model from a cache.',
    'Tesla T4, driver 550.90, CUDA 12.4, Ubuntu 22.04, ollama 0.12.3',
    'Ryzen 9 7950X with 64 GB, no GPU, models run on the CPU as intended.',
    'Two users chat at the same time, both get their tokens at once.',
    'NUM_PARALLEL=4; /slots: 1 of 4 is_processing true',
    'The download of llama3.3 takes an hour with my line.',
    'I stopped the server with Ctrl-C and started it again with systemctl.',
    'What is the meaning of "server config" in the log?',
    'After a reboot the service starts by itself, and the GPU is found.',
    'The laptop was suspended over night; the model answered in the morning as before.',
    'I changed the port to 8080: OLLAMA_HOST=127.0.0.1:8080 for server and client.',
    'Models lie under /data/models, which belongs to ollama:ollama.',
    'The unit has MemoryMax=64G, the largest model takes 40 GB.',
]


@pytest.mark.parametrize("sentence", QUIET)
def test_a_question_or_a_host_that_is_well_is_quiet(sentence: str) -> None:
    assert [(c, s) for c, s in checks(sentence) if s != "info"] == []


def test_pieces_keep_the_line_that_they_stood_on() -> None:
    text = "first line\nsecond; third (with; brackets); fourth\nlast"
    apart = fragments.apart(text)
    assert apart is not None
    assert apart.text.split("\n") == ["first line", "second", "third (with; brackets)", "fourth", "last"]
    assert apart.places == (1, 2, 2, 2, 3)


def test_a_log_and_code_are_not_taken_apart() -> None:
    assert fragments.apart('time=2026-05-04T10:00:00Z level=INFO msg="a; b"\nfor i in 1 2; do echo $i; done\n') is None
    assert fragments.apart("line; line\n" * 100) is None


def test_evidence_names_the_line_of_the_paste() -> None:
    facts = pasted.facts_of(b"Answers are wrong.\nlog: all fine; truncating input prompt limit=4096 prompt=9000", "x")
    assert facts is not None
    found = run(facts).findings[0]
    assert found.check == "prompt_truncated" and found.evidence[0].startswith("x:2:")


def test_requests_of_a_sentence_have_the_durations_that_it_names() -> None:
    rows = [gin.parse(line) for line in told.requests("GIN 500 | 59.794 s between 200s of 45 s and 51 s")]
    assert [(row[1], row[2]) for row in rows if row] == [(500, 59.794), (500, 45.0), (500, 51.0)]
    assert told.requests("it took 5 s at 10:15:30") == []


def test_slots_and_contexts_are_paired_by_their_place() -> None:
    lines = told.lines("Parallel:1 / Parallel:4 KvSize:131072")
    assert [line.partition("(unnamed)")[2].strip(' "') for line in lines] == ["--ctx-size 131072 --parallel 4", "--parallel 1"]


def test_states_of_ollama_ps() -> None:
    before, after = cells.states("ollama ps 9.4 GB → 14 GB, CONTEXT 16384 both")
    assert (before.size, after.size) == (9_400_000_000, 14_000_000_000)
    assert before.context == after.context == 16384
    assert cells.states("a 10 GB model with 32 GB of memory") == []


def test_settings_of_a_sentence_and_where_they_are_set() -> None:
    assert mentioned("drop-in: NUM_PARALLEL=4, KEEP_ALIVE=-1") == [
        ("OLLAMA_NUM_PARALLEL", "4", "service"), ("OLLAMA_KEEP_ALIVE", "-1", "service"),
    ]  # fmt: skip
    assert mentioned("~/.zshrc exports OLLAMA_HOST=0.0.0.0") == [("OLLAMA_HOST", "0.0.0.0", "shell")]
    assert mentioned("~/.zshrc exports OLLAMA_HOST=http://box.lan:11434") == [("OLLAMA_HOST", "http://box.lan:11434", "client")]
    assert mentioned("setting OLLAMA_IGPU_ENABLE=1 fixed it") == []
    assert mentioned("HSA_OVERRIDE_GFX_VERSION: empty") == []


@pytest.mark.parametrize(
    "row",
    [
        "May 04 10:00:00 box systemd[1]: Stopping ollama.service - Ollama Service...",
        "LISTEN 0      4096       127.0.0.1:11434      0.0.0.0:*    users:((\"ollama\",pid=902,fd=3))",
        "ollama started anna ~/Library/LaunchAgents/homebrew.mxcl.ollama.plist",
    ],
)  # fmt: skip
def test_rows_of_programs_are_no_sentences(row: str) -> None:
    assert [kind for kind, _ in claims.find(row) if kind not in ("brew_service", "launchagent", "service_file_told")] == []


def test_mutated_statements_crash_no_check() -> None:
    chance = random.Random(41)
    texts = [text for row in KINDS.values() for text in (row[0], row[2])]
    for _ in range(150):
        a, b = chance.choice(texts), chance.choice(texts)
        at, to = chance.randrange(len(a)), chance.randrange(len(b))
        noise = chance.choice(["; ", " → ", "(", '"', "=", "\x1b[31m", "�", "9" * 30, " - ", "\t"])
        checks(a[:at] + noise + b[to:])
