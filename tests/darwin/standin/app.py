"""A stand-in of Ollama.app (the native one, 0.12.10 and later): `app.py PATH`. Its server gets the environment that
the app was started with, and over it what the app's own settings say; it is started again 1 s after it ends."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

path, home = sys.argv[1], Path(os.environ["HOME"])
ended = False
child = None


def end(number, frame):
    global ended
    ended = True
    if child is not None:
        child.terminate()


def settings():
    db = home / "Library/Application Support/Ollama/db.sqlite"
    if not db.exists():
        return {}
    with sqlite3.connect(db) as connection:
        connection.row_factory = sqlite3.Row
        row = dict(connection.execute("SELECT * FROM settings WHERE id = 1").fetchone() or {})
    found = {}
    if row.get("expose"):
        found["OLLAMA_HOST"] = "0.0.0.0"
    if row.get("context_length"):
        found["OLLAMA_CONTEXT_LENGTH"] = str(row["context_length"])
    return found


signal.signal(signal.SIGTERM, end)
logs = home / ".ollama/logs"
logs.mkdir(parents=True, exist_ok=True)
log = logs / "server.log"
if log.exists():
    log.rename(logs / "server-1.log")
while not ended:
    with log.open("ab") as out:
        child = subprocess.Popen([f"{path}/Contents/Resources/ollama", "serve"], env=dict(os.environ) | settings(),
                                 stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        if ended:
            child.terminate()
        child.wait()
    if not ended:
        time.sleep(1.0)
