"""What cured it tells what it was: the kind that a remedy answers. Only in a sentence that says that it did.

Patterns are without case.
"""

# ruff: noqa: E501 - a pattern is read more easily whole
from __future__ import annotations

from typing import NamedTuple

CURED = r"\b(?:works? (?:again|now|after|once|only|without)|(?:GPU|card|it|all|that) (?:works?|worked|is used|is found|is detected)|now works?|fixed|solved|resolved|helped|did the trick|(?:solution|fix|cure) (?:was|is))\b"
UNCURED = r"\b(?:not|never|neither|still|no|nothing|without success)\b|n't\b"


class Cure(NamedTuple):
    """`remedy` in a sentence that says that it helped says `kind`. Where nothing else is told, nothing is wrong any
    more; but what did harm until it was taken away is worth its finding (`alone`)."""

    kind: str
    remedy: str
    alone: bool = False


CURES: tuple[Cure, ...] = (
    Cure("igpu_unused", r"\bOLLAMA_IGPU_ENABLE\b"),
    Cure("gfx_override_told", r"\b(?:remov\w*|unset\w*|delet\w*|without|clear\w*|drop\w*|comment\w*)\b[^.;]{0,60}\bHSA_OVERRIDE_GFX_VERSION\b", alone=True),
    Cure("http_proxy_told", r"\b(?:remov\w*|unset\w*|delet\w*|without|clear\w*|drop\w*|comment\w*)\b[^.;]{0,60}\bHTTPS?_PROXY\b", alone=True),
    Cure("http_proxy_told", r"\bNO_PROXY\b"),
    Cure("not_reloaded_told", r"\bdaemon-reload\b"),
    Cure("package_variant", r"\bollama-(?:cuda|rocm|vulkan)\b"),
    Cure("kfd_denied", r"\b(?:render|video) (?:group|and video)|\bgroup(?:s)? (?:render|video)\b|\busermod\b[^.;]{0,20}\b(?:render|video)\b"),
    Cure("uvm_missing", r"\bmodprobe nvidia[_-]uvm\b|\bnvidia-modprobe\b"),
    Cure("nvidia_driver_too_old", r"\b(?:updat|upgrad|install)\w*\b[^.;]{0,24}\b(?:NVIDIA |newer |new |latest )(?:\w+ )?drivers?\b"),
    Cure("protect_home", r"\bProtectHome ?= ?(?:no|false|read-only)\b"),
    Cure("origin_silent", r"\bOLLAMA_ORIGINS\b"),
    Cure("gateway_timeout", r"\bproxy_(?:read|send)_timeout\b"),
    Cure("one_model_only", r"\bOLLAMA_MAX_LOADED_MODELS\b"),
    Cure("registry_timeout", r"\bHTTPS_PROXY\b"),
)
