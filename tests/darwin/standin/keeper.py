"""Keeps one job of the stand-in launchd running: `keeper.py DOMAIN LABEL`. SIGTERM ends the job and forgets it."""

import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from state import HERE, ROOT, state

THROTTLE = float(os.environ.get("MAC_THROTTLE", "1.0"))  # s between two starts; 10 on a Mac
name, label = sys.argv[1:3]
ended = False
child = None


def end(number, frame):
    global ended
    ended = True
    if child is not None and child.poll() is None:
        child.terminate()


def note(**more):
    with state() as now:
        job = now["domains"][name]["services"].get(label)
        if job is not None:
            job.update(more)


def environment(plist):
    with state() as now:
        inherited = dict(now["domains"][name]["environment"])
    own = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": f"{ROOT}/Users/me", "USER": "me", "LOGNAME": "me"}
    marks = {k: v for k, v in os.environ.items() if k.startswith("MAC_")}
    return own | inherited | plist.get("EnvironmentVariables", {}) | {"XPC_SERVICE_NAME": label} | marks


def words_of(plist):
    words = list(plist["ProgramArguments"])
    if words[0] == "/bin/launchctl":
        words[0] = f"{HERE}/launchctl"
    if words[0].startswith("/usr/local/"):
        words[0] = ROOT + words[0]
    return words


signal.signal(signal.SIGTERM, end)
with state() as now:
    plist = now["domains"][name]["services"][label]["plist"]
runs = 0
while not ended:
    began, runs = time.monotonic(), runs + 1
    streams = [plist.get(key, os.devnull) for key in ("StandardOutPath", "StandardErrorPath")]
    try:
        with open(streams[0], "ab") as out, open(streams[1], "ab") as err:
            child = subprocess.Popen(words_of(plist), stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                     env=environment(plist), cwd=plist.get("WorkingDirectory", "/"))
    except OSError:
        note(pid=None, runs=runs, last_exit=78, state="spawn scheduled")
        time.sleep(THROTTLE)
        continue
    note(pid=child.pid, runs=runs, state="running")
    if ended:
        child.terminate()
    code = child.wait()
    said = "" if code >= 0 else f"{signal.strsignal(-code)}: {-code}"
    again = plist.get("KeepAlive") is True and not ended
    note(pid=None, last_exit=None if said else code, last_signal=said,
         state="spawn scheduled" if again else "not running")
    if not again:
        break
    time.sleep(max(0.0, THROTTLE - (time.monotonic() - began)))
with state() as now:
    if ended:
        now["domains"][name]["services"].pop(label, None)
        now["dropped"][f"{name}/{label}"] = time.time()
