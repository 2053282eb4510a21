"""Ollama.app's settings, as JSON of `{"schema": N, "row": {...}}`: one row of its SQLite file, opened to read only."""

from __future__ import annotations

import os
import sqlite3
from urllib.parse import quote

import msgspec

_KNOWN = ("expose", "browser", "models", "context_length", "schema_version")


def settings(path: str) -> bytes:
    """Columns differ between schemas: those that are there. OSError where the file can't be opened."""
    os.stat(path)
    try:
        with sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=2.0) as db:
            columns = [str(row[1]) for row in db.execute("PRAGMA table_info(settings)")]
            wanted = [name for name in _KNOWN if name in columns]
            if not wanted:
                raise OSError(22, "no table of settings", path)
            found = db.execute(f"SELECT {', '.join(wanted)} FROM settings WHERE id = 1").fetchone() or ()
    except sqlite3.Error as error:
        raise OSError(5, str(error), path) from None
    row = dict(zip(wanted, found, strict=False))
    return msgspec.json.encode({"schema": int(row.pop("schema_version", 0) or 0), "row": row})
