"""Debian's nginx before Ollama on a real systemd: limits, keys, and clients that keep out of each other's way."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab import ollama
from tests.lab.machine import Machine
from tests.lab.ollama import CHAT, api, ctl, ctl_json
from tests.lab.trust.host import until

pytestmark = pytest.mark.lab

NGINX = Path("/etc/nginx")
CONF = "/etc/nginx/conf.d/ollamactl-front.conf"
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


def install(machine: Machine, *args: str) -> dict[str, Any]:
    done = ctl_json(machine, "front", "nginx", "--install", "--queue", "2", *args)
    assert done["exit_code"] == 0, done
    found: dict[str, Any] = done["data"]
    return found


def attempt(machine: Machine, *args: str) -> Any:
    return ctl_json(machine, "front", "nginx", "--install", "--queue", "2", *args)


def files(machine: Machine) -> str:
    """All that nginx and we have in /etc, but keys and users."""
    script = "cd /etc && find nginx ollamactl | sort && sha256sum $(find nginx -type f | sort)"
    return machine.run(["bash", "-c", script]).stdout


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
    done = install(lab)
    assert [f"{s['text']} {s['ok']}" for s in done["steps"] if "tokens" in s["text"]] == [
        f"Ollama 0.33.0-rc2 answers through it, {CHAT} with tokens True"
    ]
    assert "limit_conn ollamactl_all 4;" in lab.read(CONF)  # two slots, seen at the runner, and a queue of two
    text = ctl(lab, "front", "nginx").stdout + str(done) + lab.read(CONF)
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
    install(lab, "--max-body", "64k", "--requests-in-flight", "1", "--queue", "0")
    status, _, body = curl(lab, "/api/generate", "--data-binary", "@/root/large")
    assert status == 413 and "64k" in json.loads(body)["error"]
    streaming = lab.popen(["curl", "-sN", *ask(2000), "-H", f"Authorization: Bearer {KEYS['bob']}",
                           f"{URL}/api/generate"])  # fmt: skip
    assert streaming.stdout is not None and "response" in streaming.stdout.readline()  # token by token
    status, head, body = curl(lab, "/api/generate", *ask())
    assert status == 503 and "Retry-After:" in head and "application/json" in head
    assert json.loads(body)["error"].startswith("server busy, please try again")
    streaming.kill()  # who goes away gives the place back
    until(lambda: curl(lab, "/api/generate", *ask())[0] == 200, 120)


# The most connections that Ollama has had, looked at 200 times a second
CONNECTIONS = """
import time
most = 0
while True:
    with open("/proc/net/tcp") as f:
        rows = [line.split() for line in f][1:]
    now = sum(row[1].endswith(":2CAA") and row[3] == "01" for row in rows)
    if now > most:
        most = now
        print(most, flush=True)
    time.sleep(0.005)
"""


def test_64_clients_at_two_slots(lab: Machine) -> None:
    install(lab, "--per-client", "1000", "--rate-per-client", "10000")
    watcher = lab.popen(["/usr/bin/python3", "-c", CONNECTIONS])
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


GREEDY = """
import http.client, json, sys, threading, time
body, headers = sys.argv[1], {"Authorization": "Bearer " + sys.argv[2]}
over, times, refused = threading.Event(), [], []

def client():
    while not over.is_set():
        connection = http.client.HTTPConnection("127.0.0.1", 11480, timeout=120)
        connection.request("POST", "/api/generate", body, headers)
        answer = connection.getresponse()
        last = json.loads(answer.read().strip().splitlines()[-1])
        connection.close()
        if answer.status == 200:
            times.append((last["prompt_eval_duration"] + last["eval_duration"]) / 1e9)
        else:
            refused.append(answer.status)
            over.wait(0.5)

threads = [threading.Thread(target=client) for _ in range(50)]
for thread in threads:
    thread.start()
sys.stdin.read()
over.set()
for thread in threads:
    thread.join()
print(json.dumps({"times": times, "refused": refused}))
"""


def test_a_second_client_beside_a_greedy_one(lab: Machine) -> None:
    install(lab)
    log = "/var/log/nginx/error.log"

    def first_token() -> float:
        took = lab.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code} %{time_starttransfer}", *ask(4), "-H",
                        f"Authorization: Bearer {KEYS['bob']}", f"{URL}/api/generate"]).stdout.split()  # fmt: skip
        assert took[0] == "200"
        return float(took[1])

    idle = max(first_token() for _ in range(2))
    lab.run(["truncate", "-s", "0", log])
    greedy = lab.popen(["/usr/bin/python3", "-c", GREEDY, ask(16)[1], KEYS["alice"]], stdin=subprocess.PIPE)
    until(lambda: "limiting connections by zone" in lab.read(log), 120)
    firsts = [first_token() for _ in range(2)]
    out, err = greedy.communicate("", timeout=120)
    found = json.loads(out)
    assert len(found["refused"]) > len(found["times"]) > 0 and set(found["refused"]) == {429}, err
    service = statistics.median(found["times"])
    print(f"second client's first token {firsts}, idle {idle:.2f}, service {service:.2f}")
    assert max(firsts) <= idle + 2 * service


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


# -- put in place, and taken away --


def test_a_first_front_makes_its_key_and_all_of_it_can_be_taken_back(lab: Machine) -> None:
    assert ctl(lab, "reset").returncode == 0  # the one of the tests before, and the slots
    before = files(lab)
    done = install(lab, "--keys-file", "/etc/ollamactl/new.keys")
    assert any("one key" in s["text"] for s in done["steps"])
    assert lab.run(["stat", "-c", "%a %U", "/etc/ollamactl/new.keys"]).stdout.strip() == "600 root"
    key = lab.read("/etc/ollamactl/new.keys").splitlines()[1].split()[0]
    assert len(key) == 32 and curl(lab, "/api/version", key=key)[0] == 200
    assert curl(lab, "/api/version", key=KEYS["alice"])[0] == 401
    entry = ctl_json(lab, "history")["data"]["entries"][-1]
    assert (entry["kind"], entry["unit"], entry["outcome"]) == ("front", "nginx.service", "applied")
    assert key not in str(entry)
    install(lab, "--max-body", "1m")  # another takes its place
    assert ctl_json(lab, "rollback")["exit_code"] == 0
    assert "client_max_body_size 32m" in lab.read(CONF) and curl(lab, "/api/version", key=key)[0] == 200
    assert ctl_json(lab, "rollback", str(entry["id"]))["exit_code"] == 0
    lab.run(["rm", "/etc/ollamactl/new.keys"])  # an admin may have added keys: they stay
    assert files(lab) == before
    assert lab.run(["curl", "-s", URL], check=False).returncode == 7  # nothing listens there any more


def test_what_nginx_refuses_replaces_nothing(lab: Machine) -> None:
    install(lab)
    before = files(lab)
    lab.write("/etc/ollamactl/bad.keys", "no semicolon\n", mode=0o600)
    done = attempt(lab, "--keys-file", "/etc/ollamactl/bad.keys")
    assert done["exit_code"] == 3 and done["errors"][0]["id"] == "nginx_refuses", done
    assert "/etc/ollamactl/bad.keys" in done["errors"][0]["text"]
    lab.run(["rm", "/etc/ollamactl/bad.keys"])
    assert files(lab) == before and curl(lab, "/api/version")[0] == 200


def test_a_port_that_is_taken_is_seen_and_all_put_back(lab: Machine) -> None:
    """nginx -t does not see it; a reload says nothing, and goes on with the old file."""
    install(lab)
    before = files(lab)
    script = "import socket, time; s = socket.create_server(('127.0.0.1', 11490)); print(flush=True); time.sleep(600)"
    holder = lab.popen(["/usr/bin/python3", "-c", script])
    assert holder.stdout is not None and holder.stdout.readline()
    done = attempt(lab, "--listen", "127.0.0.1:11490")
    assert done["exit_code"] == 3 and done["errors"][0]["id"] == "not_reloaded", done
    assert files(lab) == before and curl(lab, "/api/version")[0] == 200
    # Killed while it waits for nginx: the next change, or recover, puts it back.
    process = lab.popen([*ollama.OLLAMACTL, "front", "nginx", "--install", "--listen", "127.0.0.1:11490"])
    until(lambda: "11490" in lab.read(CONF))
    process.kill()
    process.wait()
    assert ctl_json(lab, "recover")["data"]["recovered"]
    assert files(lab) == before and curl(lab, "/api/version")[0] == 200
    holder.kill()


def test_an_answer_that_is_not_as_it_should_be_undoes_it(lab: Machine) -> None:
    """Another server block of the same name and address is asked in the place of ours."""
    assert ctl(lab, "reset").returncode == 0
    shadow = "server { listen 127.0.0.1:11480 default_server; location / { return 200; } }\n"
    lab.write("/etc/nginx/conf.d/a-shadow.conf", shadow)
    lab.run(["systemctl", "restart", "nginx"])
    before = files(lab)
    done = attempt(lab)
    assert done["exit_code"] == 3 and done["errors"][0]["id"] == "front_unproven", done
    assert "answered with 200, not 401" in done["errors"][0]["text"]
    assert files(lab) == before
    lab.run(["rm", "/etc/nginx/conf.d/a-shadow.conf"])
    lab.run(["systemctl", "restart", "nginx"])


def test_passwords_over_tls(lab: Machine) -> None:
    make = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=front -keyout /etc/ollamactl/tls.key "
        "-out /etc/ollamactl/tls.pem 2>/dev/null; "
        "printf 'carol:%s\\n' $(openssl passwd -apr1 secret) | install -m 640 -g www-data /dev/stdin "
        "/etc/ollamactl/front.users; echo carol:secret >/root/carol"
    )
    refused = attempt(lab, "--listen", "0.0.0.0:11443")
    assert refused["exit_code"] == 6 and refused["errors"][0]["id"] == "plain_http"
    assert attempt(lab, "--auth", "basic")["errors"][0]["id"] == "usage"  # no users yet
    lab.run(["bash", "-c", make])
    tls = ("--tls-certificate", "/etc/ollamactl/tls.pem", "--tls-key", "/etc/ollamactl/tls.key")
    done = install(lab, "--auth", "basic", "--listen", "0.0.0.0:11443", *tls, "--password-file", "/root/carol")
    assert any("answers through it" in s["text"] for s in done["steps"])
    url = "https://127.0.0.1:11443/api/version"

    def asked(*args: str) -> str:
        return lab.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", *args, url], check=False).stdout

    trust = ("--cacert", "/etc/ollamactl/tls.pem", "--connect-to", "front:11443:127.0.0.1:11443")
    assert asked("-k", "-u", "carol:secret") == "200" and asked("-k", "-u", "carol:wrong") == asked("-k") == "401"
    named = ["curl", "-s", "-u", "carol:secret", *trust, "https://front:11443/api/version"]
    assert "version" in lab.run(named).stdout
    assert asked("--tls-max", "1.1", "-k") == "000"
    done = install(lab, "--auth", "basic", "--listen", "0.0.0.0:11443", *tls)
    assert any("not tried with a login" in note for note in done["notes"])
    assert ctl_json(lab, "reset", "--check")["data"]["notes"] == [f"the front before it would go: {CONF}"]
    assert ctl(lab, "reset").returncode == 0
    assert lab.run(["test", "-e", CONF], check=False).returncode == 1 and asked("-k") == "000"
