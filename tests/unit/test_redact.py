# ruff: noqa: E501 - samples are lines as they are
"""Redaction: nothing planted comes through, what parsers need stays, and doing it twice changes nothing."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ollamactl.core import redact_lines, redact_patterns
from ollamactl.core.redact import Redactor


def once(body: bytes | str, *also: bytes) -> str:
    raw = body.encode() if isinstance(body, str) else body
    redactor = Redactor()
    for text in (raw, *also):
        redactor.learn(text)
    return redactor.body(raw).decode("utf-8", "surrogateescape")


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("/home/alice/.ollama/models", "/home/user1/.ollama/models"),
        ("/Users/alice/.ollama and alice's", "/Users/user1/.ollama and user1's"),
        (r"C:\Users\alice\AppData", r"C:\Users\user1\AppData"),
        ("/var/home/alice", "/var/home/user1"),
        ("/home/ollama/x /root/y", "/home/ollama/x /root/y"),
        ("/home/*/.bashrc", "/home/*/.bashrc"),  # of a reading's key, which a bundle has to answer
        ("User=alice\nGroup=ollama", "User=user1\nGroup=ollama"),
        ("[GIN] | 200 | 192.168.1.7 | POST", "[GIN] | 200 | 198.18.0.1 | POST"),
        ("127.0.0.1:11434 0.0.0.0 ::1 [::]:11434", "127.0.0.1:11434 0.0.0.0 ::1 [::]:11434"),
        ("fd00::1:7 and ::ffff:10.0.0.7", "2001:db8::2 and ::ffff:198.18.0.1"),
        ("ether 52:54:00:ab:cd:ef", "ether 02:00:00:00:00:01"),
        ("mail a.b@corp.org now", "mail mail1@example.com now"),
        ("ollama@gpu1.service user@1000.service", "ollama@gpu1.service user@1000.service"),
        ("HTTPS_PROXY=http://bob:pa55word@proxy.corp.org:3128", "HTTPS_PROXY=http://secret1@host1:3128"),
        ("https_proxy=bob:pa55word@10.0.0.1:3128", "https_proxy=secret1@198.18.0.1:3128"),
        ('Environment="HF_TOKEN=a b c" "OLLAMA_NUM_PARALLEL=4"', 'Environment="HF_TOKEN=secret1" "OLLAMA_NUM_PARALLEL=4"'),
        ("Environment=API_KEY=abcdef OLLAMA_DEBUG=1", "Environment=API_KEY=secret1 OLLAMA_DEBUG=1"),
        ("MY_SECRET=two words\nOLLAMA_DEBUG=1", "MY_SECRET=secret1\nOLLAMA_DEBUG=1"),
        ("PATH=/bin\0DB_PASSWORD=x y\0OLLAMA_DEBUG=1\0", "PATH=/bin\0DB_PASSWORD=secret1\0OLLAMA_DEBUG=1\0"),
        ('env="map[A:1 API_KEY:abcdefg OLLAMA_DEBUG:INFO]"', 'env="map[A:1 API_KEY:secret1 OLLAMA_DEBUG:INFO]"'),
        ("llama-server --api-key hunter22 -np 4", "llama-server --api-key secret1 -np 4"),
        ("Authorization: Bearer abcdefghij", "Authorization: Bearer secret1"),
        ("token hf_abcdefghijklmnopqrst here", "token secret1 here"),
        ("Nov 30 06:25:01 gpubox ollama[12]: x on gpubox", "Nov 30 06:25:01 host1 ollama[12]: x on host1"),
        ("http://models.corp.org/x https://registry.ollama.ai/v2", "http://host1/x https://registry.ollama.ai/v2"),
        # what logs are full of, and is nobody's
        ("EOS token = 1 '<eos>', n_tokens = 12, max_tokens: 5", "EOS token = 1 '<eos>', n_tokens = 12, max_tokens: 5"),
        ("num_key_value_heads key_length = 256", "num_key_value_heads key_length = 256"),
        ("10:11:12 std::vector 0000:01:00.0 6.1.0-13", "10:11:12 std::vector 0000:01:00.0 6.1.0-13"),
        ("OLLAMA_KEEP_ALIVE=5m OLLAMA_AUTH:false", "OLLAMA_KEEP_ALIVE=5m OLLAMA_AUTH:false"),
        ("API_KEY=", "API_KEY="),
        ("https_proxy=bob:pa55word@p.corp.org:3128", "https_proxy=secret1@host1:3128"),
    ],
)  # fmt: skip
def test_by_hand(text: str, after: str) -> None:
    assert once(text) == after


LOG = 'time=2026-11-30T06:25:01.000Z level=INFO source=routes.go:1 msg="Listening on 127.0.0.1:11434"\n' * 40


@pytest.mark.parametrize(
    ("secret", "after"),
    [
        ('env API_KEY="one\ntwo\nthree" x', 'env API_KEY="secret1" x'),
        ('password: "one\n\ntwo" x', 'password: "secret1" x'),
        ("KEY=one\\\ntwo\\\nthree", "KEY=secret1"),
        ("password:\n  hunter22", "password:\n  secret1"),
        ("Authorization: Bearer\n abcdefghij", "Authorization: Bearer\n secret1"),
        ("-----BEGIN RSA PRIVATE KEY-----\n" + "MIIE/abc+def\n" * 60 + "-----END RSA PRIVATE KEY-----", "secret1"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE/abc\n-----END PRIVATE KEY-----", "secret1"),
    ],
)
def test_secrets_that_run_across_lines_of_a_log(secret: str, after: str) -> None:
    assert once(f"{LOG}{secret}\n{LOG}") == f"{LOG}{after}\n{LOG}"


def test_a_secret_that_is_found_only_while_another_is_taken_out() -> None:
    done = once('TOKEN="aPart"b"cPart\ndPart" e\nOLLAMA_DEBUG=1')
    assert not any(part in done for part in ("aPart", "cPart", "dPart"))
    assert done.endswith(" e\nOLLAMA_DEBUG=1")


def test_prompts_of_debug_lines() -> None:
    line = r'time=2024-05-01T10:00:00Z level=DEBUG source=routes.go:1374 msg="chat request" images=0 prompt="my \"own\" words" n=3'
    assert once(line) == line.replace(r"my \"own\" words", "<16 characters removed>")
    quiet = 'time=… level=DEBUG source=a.go:1 msg="llama-server completion request" media=0 prompt_len=10 prompt=12'
    assert once(quiet) == quiet
    assert "secret words" not in once('srv  log_server_r: request:  {"prompt": "secret words"}')
    assert "hello" not in once('time=x level=TRACE msg=encoded string="hello you" ids="[1 2]"')


def test_json_stays_json_and_numbers_stay() -> None:
    process = {"pid": 7, "uid": 1000, "user": "alice", "argv": ["x", "--api-key", "hunter22"], "rss": 2**60,
               "environ": {"HF_TOKEN": "hf-x", "HOME": "/home/alice"}}  # fmt: skip
    done = json.loads(once(json.dumps(process)))
    assert done == {"pid": 7, "uid": 1000, "user": "user1", "argv": ["x", "--api-key", "secret2"], "rss": 2**60,
                    "environ": {"HF_TOKEN": "secret1", "HOME": "/home/user1"}} or done["argv"][2].startswith("secret")  # fmt: skip
    assert "hunter22" not in json.dumps(done) and "alice" not in json.dumps(done)


def test_journal_messages_as_text_and_as_bytes() -> None:
    lines = [
        {"_HOSTNAME": "gpubox", "_MACHINE_ID": "ab" * 16, "MESSAGE": 'x prompt of /home/alice "q"'},
        {"_HOSTNAME": "gpubox", "MESSAGE": list(b"\xff alice at 10.0.0.7")},
    ]
    text = "\n".join(map(json.dumps, lines)) + "\n" + '{"MESSAGE":"cut /home/alice'
    one, two, cut = once(text).split("\n")
    assert json.loads(one) == {
        "_HOSTNAME": "host1",
        "_MACHINE_ID": f"{1:032x}",
        "MESSAGE": 'x prompt of /home/user1 "q"',
    }
    assert bytes(json.loads(two)["MESSAGE"]) == b"\xff user1 at 198.18.0.1"
    assert cut == '{"MESSAGE":"cut /home/user1'


def test_what_is_learned_in_one_text_leaves_all() -> None:
    assert once("bob sends opensesame to gpubox", b"/home/bob", b'{"hostname":"gpubox"}', b"API_KEY=opensesame") == (
        "user1 sends secret1 to host1"
    )


def test_counts_by_kind() -> None:
    redactor = Redactor()
    text = b"/home/alice 10.0.0.1 10.0.0.1 API_KEY=abcdef"
    redactor.learn(text)
    redactor.body(text)
    assert redactor.taken == {"user": 1, "ip address": 2, "secret": 1}


def test_bytes_that_are_no_text_survive() -> None:
    assert Redactor().body(b"\xff\xfe\0 x") == b"\xff\xfe\0 x"
    assert json.loads(once('{"a":"\\ud800 /home/alice"}'))["a"].endswith("/home/user1")
    assert once("[" * 100_000) == "[" * 100_000


SECRET = st.text(string.ascii_letters + string.digits, min_size=8, max_size=24).map(lambda s: "Zq" + s)
NAME = st.from_regex(r"zq[a-z]{3,10}", fullmatch=True)
WORDS = st.text(st.characters(codec="utf-8"), max_size=30)
PLANTS = (
    "API_KEY={}", 'Environment="HF_TOKEN={}"', "Environment=OPENAI_API_KEY={} A=1", "export MY_PASSWORD='{}'",
    "\0DB_SECRET={}\0", "http://u:{}@proxy:3128/", "https_proxy=u:{}@p", "--api-key {}", "--token-x --api-key={}",
    "env=\"map[API_KEY:{} B:1]\"", "Authorization: Bearer {}", '{{"password": "{}"}}', '{{"environ":{{"A_TOKEN":"{}"}}}}',
    '{{"argv":["x","--api-key","{}"]}}', "api_key: {}", '{{"MESSAGE":"x \\"API_KEY={}\\" y"}}', "client_secret='{}'",
)  # fmt: skip
HOMES = ("/home/{}/x", "/Users/{}", "USER={}\n", '{{"uid":1001,"user":"{}"}}', "User={}")
BOXES = (
    "Nov 30 06:25:01 {} ollama[1]: x",
    '{{"hostname":"{}"}}',
    '{{"_HOSTNAME":"{}","MESSAGE":"x"}}',
    "HOSTNAME={}\n",
)


@settings(max_examples=400, deadline=None)
@given(
    secret=SECRET, user=NAME, host=NAME, octets=st.tuples(*[st.integers(1, 254)] * 3), before=WORDS, after=WORDS,
    plant=st.sampled_from(PLANTS), home=st.sampled_from(HOMES), box=st.sampled_from(BOXES),
)  # fmt: skip
def test_nothing_planted_leaks(
    secret: str,
    user: str,
    host: str,
    octets: tuple[int, ...],
    before: str,
    after: str,
    plant: str,
    home: str,
    box: str,
) -> None:
    address = "10.{}.{}.{}".format(*octets)
    texts = [
        plant.format(secret),
        home.format(user),
        box.format(host),
        f"from {address} by {user}@{host}.corp.org {secret}",
    ]
    texts.append(f"{before} {texts[-1]} {after}")
    redactor = Redactor()
    bodies = [text.encode("utf-8", "surrogatepass") for text in texts]
    for body in bodies:
        redactor.learn(body)
    for body in bodies:
        done = redactor.body(body).decode("utf-8", "surrogateescape")
        assert secret not in done
        assert user not in done and host not in done
        assert address not in done


LINES = st.lists(
    st.one_of(
        st.text(st.characters(codec="utf-8", exclude_characters="\"'\\"), max_size=30),
        st.sampled_from(PLANTS + HOMES + BOXES).map(lambda p: p.format("abcDEF99")),
        st.sampled_from(
            ('API_KEY="abc\ndef"', "KEY=abc\\\ndef", "password:\n  hunter22", "from 10.1.2.3 and fd00::7")
        ),
        st.sampled_from(LOG.split("\n")[:1]),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=300, deadline=None)
@given(lines=LINES)
def test_line_by_line_finds_what_the_whole_text_holds(lines: list[str]) -> None:
    """A pattern is tried on the lines that can hold it: no other answer than on all of them at once."""
    body = "\n".join(lines).encode()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(redact_lines, "cut", lambda text: ([text], {cue: [0] for cue in redact_patterns.CUE_WORDS}))
        whole = once(body)
    assert once(body) == whole


@settings(max_examples=400, deadline=None)
@given(
    parts=st.lists(
        st.one_of(WORDS, st.sampled_from(PLANTS + HOMES + BOXES).map(lambda p: p.replace("{}", "abcDEF99"))),
        max_size=6,
    )
)
def test_twice_is_once(parts: list[str]) -> None:
    body = "\n".join(parts).encode("utf-8", "surrogatepass")
    first = Redactor()
    first.learn(body)
    done = first.body(body)
    again = Redactor()
    again.learn(done)
    assert again.body(done) == done
