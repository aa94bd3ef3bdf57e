"""The page: a template with escaped values.

Jinja escapes every value; the templates mark none as safe. A policy in the page forbids scripts and
requests, so that even a mistake there could not run or load anything.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from .reported import ReportedHistory

__all__ = ["write_page"]

_TEMPLATES = Path(__file__).with_name("templates")


def write_page(history: ReportedHistory, write: Callable[[str], object]) -> None:
    """Call *write* with the page of *history* in pieces; entries are read one run at a time."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for piece in environment.get_template("report.html").generate(report=history):
        write(piece)
