"""Debian's nginx before Ollama on a real systemd: limits, keys, and clients that keep out of each other's way."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab import ollama
from tests.lab.machine import Machine
from tests.lab.ollama import CHAT, api, ctl, ctl_json

pytestmark = pytest.mark.lab

NGINX = Path("/etc/nginx")
URL = "http://127.0.0.1:11480"
KEYS = {"alice": "0123456789abcdef0123456789abcdef", "bob": "fedcba9876543210fedcba9876543210"}


@pytest.fixture(scope="module")
def lab() -> Iterator[Machine]:
    with Machine() as machine:
        ollama.setup(machine)
        assert ctl(machine, "apply", "--parallel", "2", "--model", CHAT).returncode == 0
        for name in ("nginx.conf", "mime.types"):  # Debian's own; the lab hides what the host has there
            machine.write(f"/etc/nginx/{name}", NGINX.joinpath(name).read_text())
        machine.run(["mkdir", "-p", "/etc/ollamactl", "/var/log/nginx", "/var/lib/nginx"])
        timed = "log_format timed '$status $request_time';\naccess_log /var/log/nginx/timed.log timed;\n"
        machine.write("/etc/nginx/conf.d/0-timed.conf", timed)
        lines = "".join(f"{key} {name};\n" for name, key in KEYS.items())
        machine.write("/etc/ollamactl/front.keys", lines, mode=0o600)
        for name, key in KEYS.items():
            machine.write(f"/root/{name}", key, mode=0o600)
        yield machine


def install(machine: Machine, *args: str) -> str:
    done = ctl(machine, "front", "nginx", "--queue", "2", *args)
    assert done.returncode == 0, done.stderr
    machine.write("/etc/nginx/conf.d/ollama.conf", done.stdout)
    machine.run(["nginx", "-t"])
    machine.run(["systemctl", "restart", "nginx"])
    text: str = done.stdout
    return text


def curl(machine: Machine, path: str, *args: str, key: str = KEYS["alice"]) -> tuple[int, str, str]:
    """(status, headers, body) of one request."""
    auth = ["-H", f"Authorization: Bearer {key}"] if key else []
    out = machine.run(["curl", "-s", "-i", "--max-time", "100", *auth, *args, f"{URL}{path}"], timeout=110).stdout
    head, _, body = out.replace("\r", "").partition("\n\n")
    return int(head.split()[1]), head, body


def ask(tokens: int = 2) -> list[str]:
    return ["-d", json.dumps({"model": CHAT, "prompt": "The sea", "options": {"num_predict": tokens}})]


def gin(machine: Machine) -> int:
    return len([e for e in machine.journal("ollama") if "[GIN]" in str(e["MESSAGE"])])


def test_who_comes_in_and_what_may_be_asked(lab: Machine) -> None:
    text = install(lab)
    assert "limit_conn ollamactl_all 4;" in text  # two slots, seen at the runner, and a queue of two
    assert not [key for key in KEYS.values() if key in text]
    before = gin(lab)
    for key in ("", "wrong", KEYS["alice"][:-1], KEYS["alice"] + " x"):
        status, head, body = curl(lab, "/api/generate", *ask(), key=key)
        assert (status, json.loads(body)) == (401, {"error": "unauthorized"})
        assert "WWW-Authenticate: Bearer" in head
    for path in ("pull", "push", "create", "copy", "delete", "blobs/sha256:0", "generate/", "../api/pull"):
        assert curl(lab, f"/api/{path}", "--path-as-is", *ask())[0] == 403
    assert curl(lab, "/api/generate")[0] == 403  # a GET
    assert gin(lab) == before  # nothing of it has reached Ollama
    assert curl(lab, "/api/tags")[0] == curl(lab, "/api/version")[0] == curl(lab, "/")[0] == 200
    status, head, body = curl(lab, "/api/generate", *ask())
    assert status == 200 and json.loads(body.strip().splitlines()[-1])["done"]
    lab.write("/root/large", "x" * (1 << 20))
    install(lab, "--max-body", "64k")
    status, _, body = curl(lab, "/api/generate", "--data-binary", "@/root/large")
    assert status == 413 and "64k" in json.loads(body)["error"]


def test_64_clients_at_two_slots(lab: Machine) -> None:
    install(lab, "--per-client", "1000", "--rate-per-client", "10000")
    script = "while sleep 0.02; do ss -Htn state established '( sport = :11434 )' | wc -l; done"
    watcher = lab.popen(["sh", "-c", script])
    done = ctl_json(lab, "probe", CHAT, "-n", "64", "--output-tokens", "24", "--url", URL, "--key-file", "/root/alice")
    watcher.kill()
    seen = [int(x) for x in (watcher.communicate()[0] or "").split()]
    (warm,) = done["data"]["phases"]
    assert {r["status"] for r in warm["requests"]} == {200, 503}, warm["requests"]
    assert 3 <= max(seen) <= 4, max(seen)  # never more than slots and queue
    counts = warm["summary"]["counts"]
    assert counts["served"] + counts["queued"] + counts["rejected"] == 64
    assert counts["served"] + counts["queued"] >= 4
    refused = [r for r in warm["requests"] if r["result"] == "rejected"]
    assert {r["why"] for r in refused} == {"server busy, please try again: all places before it are taken"}
    answered = [r for r in warm["requests"] if r["status"] == 200]
    # who is refused learns it before anyone's reply is whole
    assert max(r["seconds"] for r in refused) < min(r["seconds"] for r in answered)
    slowest = max(r["seconds"] - r["connect"] for r in refused)
    logged = [line.split() for line in lab.read("/var/log/nginx/timed.log").splitlines()]
    inside = max(float(seconds) for status, seconds in logged if status == "503")
    print(f"{len(refused)} refused, within {1000 * slowest:.0f} ms of their sending, {1000 * inside:.0f} ms by nginx")
    status, head, _ = curl(lab, "/api/version")
    assert status == 200 and "Retry-After" not in head


def test_a_second_client_beside_a_greedy_one(lab: Machine) -> None:
    install(lab)
    greedy = lab.popen(
        [*ollama.OLLAMACTL, "probe", CHAT, "--rate", "50", "--for", "9", "--output-tokens", "16", "--url", URL,
         "--key-file", "/root/alice", "--json"]
    )  # fmt: skip
    until = "limiting connections by zone|delaying|limiting requests"
    for _ in range(600):  # until the greedy one is being held back
        if re.search(until, lab.run(["cat", "/var/log/nginx/error.log"], check=False).stdout):
            break
        lab.run(["sleep", "0.1"])
    firsts = []
    for _ in range(2):
        took = lab.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code} %{time_starttransfer}", *ask(4), "-H",
                        f"Authorization: Bearer {KEYS['bob']}", f"{URL}/api/generate"]).stdout.split()  # fmt: skip
        assert took[0] == "200"
        firsts.append(float(took[1]))
    out, err = greedy.communicate(timeout=120)
    data: dict[str, Any] = json.loads(out)["data"]
    summary = data["phases"][0]["summary"]
    assert summary["counts"]["rejected"] > summary["counts"]["served"], err
    assert {r["status"] for r in data["phases"][0]["requests"] if r["result"] == "rejected"} == {429}
    idle, service = data["baseline"]["first_max"], summary["service"]
    print(f"second client's first token {firsts}, idle {idle:.2f}, service {service['p50']:.2f}, {service['max']:.2f}")
    assert max(firsts) <= idle + 2 * service["max"]


def test_a_slow_sender_holds_its_own_places_only(lab: Machine) -> None:
    install(lab, "--body-timeout", "3")
    head = (
        "POST /api/generate HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 999\\r\\nAuthorization: Bearer %s\\r\\n\\r\\n{"
    )
    script = f"""
import socket, sys, time
held = []
for _ in range(3):
    s = socket.create_connection(("127.0.0.1", 11480)); s.sendall(b"{head % KEYS["alice"]}"); held.append(s)
time.sleep(0.3); print("held", flush=True)
print([s.recv(4096)[9:12] for s in held], flush=True)
"""
    sender = lab.popen(["/usr/bin/python3", "-c", script])
    assert sender.stdout is not None and sender.stdout.readline() == "held\n"
    status, answer, body = curl(lab, "/api/generate", *ask())
    assert status == 429 and "Retry-After:" in answer and json.loads(body)["error"].startswith("too many requests")
    assert curl(lab, "/api/generate", *ask(), key=KEYS["bob"])[0] == 200
    out, _ = sender.communicate(timeout=60)  # each is let go after the time-out
    assert "b''" in out or "b'408'" in out, out
    assert curl(lab, "/api/generate", *ask())[0] == 200
    assert [m["name"] for m in api(lab, "/api/ps")["models"]] == [CHAT]
