"""Texts of our files from `templates/`, and how this very program is started again."""

from __future__ import annotations

import os
import sys
from typing import Any


def folder() -> str:
    """Where the templates are: in an installed package beside this one, in a checkout at its top."""
    package = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    inside = os.path.join(package, "templates")
    return inside if os.path.isdir(inside) else os.path.join(os.path.dirname(package), "templates")


def render(name: str, **values: Any) -> str:
    return _rendered(name, values, html=False)


def page(name: str, **values: Any) -> str:
    """An HTML file: all values are escaped."""
    return _rendered(name, values, html=True)


def _rendered(name: str, values: dict[str, Any], html: bool) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(folder()),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=html,
    )
    return templates.get_template(name).render(**values)


def program() -> list[str]:
    """The words that start this program again, from any folder but for a checkout: that one must be the folder."""
    own = os.path.realpath(sys.argv[0])
    if os.path.basename(own) == "ollamactl" and os.access(own, os.X_OK):
        return [own]
    return [sys.executable, "-m", "ollamactl"]


def checkout() -> str:
    """The folder in which `program()` is found by Python; empty where it is found anywhere."""
    if len(program()) == 1:
        return ""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
