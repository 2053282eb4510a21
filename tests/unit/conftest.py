"""Tests of this folder are watched: see tests/guard.py."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from guard import pytest_configure, untouched_machine  # noqa: F401

settings.register_profile("untimed", deadline=None)  # a busy machine fails no example
settings.load_profile("untimed")
