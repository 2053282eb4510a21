"""Tests of this folder are watched: see tests/guard.py."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from guard import pytest_configure, untouched_machine  # noqa: F401
