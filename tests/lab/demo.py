"""`make demo`: the main job, on a machine with a real systemd and a real llama.cpp that exists for a minute."""

from __future__ import annotations

import json
import os
import sys
import threading
import time

from . import ollama
from .machine import Machine, missing

PROMPT = "Write three sentences about the sea."


def ask(machine: Machine, number: int, rows: list[str]) -> None:
    body = {"model": ollama.CHAT, "prompt": f"{number}. {PROMPT}", "options": {"num_predict": 48, "seed": number}}
    argv = ["curl", "-sN", "-w", "\\n%{time_starttransfer} %{time_total}", "--max-time", "120",
            "http://127.0.0.1:11434/api/generate", "-d", json.dumps(body)]  # fmt: skip
    lines = [x for x in machine.run(argv, timeout=130).stdout.splitlines() if x.strip()]
    first, total = (float(x) for x in lines[-1].split())
    done = json.loads(lines[-2])
    rows.append(f"  {number}  first token {first:5.2f} s   done {total:5.2f} s   {done.get('eval_count', 0)} tokens")


def show(machine: Machine, *args: str) -> int:
    """`ollamactl …` inside the machine, on our own terminal."""
    terminal = {"TERM": os.environ.get("TERM", "dumb")}
    return machine.popen([*ollama.OLLAMACTL, *args], env=terminal, stdout=None, stderr=None).wait(timeout=180)


def main() -> None:
    if why := missing():
        sys.exit(f"the lab can't run here: {why}")
    with Machine("demo") as machine:
        print("booting a machine with systemd, Ollama's stand-in and a real llama.cpp …", flush=True)
        ollama.setup(machine)
        ollama.api(machine, "/api/generate", {"model": ollama.CHAT})
        print("\n# ollamactl apply --parallel 4", flush=True)
        if show(machine, "apply", "--parallel", "4"):
            sys.exit("apply failed")
        print("\n# four requests at once", flush=True)
        rows: list[str] = []
        threads = [threading.Thread(target=ask, args=(machine, n, rows)) for n in range(1, 5)]
        for thread in threads:
            thread.start()
        busy = 0
        while any(t.is_alive() for t in threads):
            seen = ollama.ctl_json(machine, "verify")
            if seen["data"] is None:
                sys.exit(f"verify failed: {seen['errors']}")
            busy = max(busy, seen["data"]["running"] or 0)
            time.sleep(0.1)
        print("\n".join(sorted(rows)))
        print(f"  slots busy at the same time: {busy} of 4")
        print("\n# ollamactl verify", flush=True)
        sys.exit(show(machine, "verify") or (0 if busy == 4 else 1))


if __name__ == "__main__":
    main()
