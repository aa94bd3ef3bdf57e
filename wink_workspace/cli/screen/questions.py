"""Questions to the person at the terminal; every command asks through this module.

What was typed before a question is shown is discarded: it answers something else.
"""

from __future__ import annotations

import sys
import termios
from contextlib import suppress

import typer

__all__ = ["ask_line", "ask_yes_no"]


def ask_line(question: str) -> str:
    """The line that the user types after *question*, on standard error; ``Abort`` on Ctrl-C."""
    _discard_type_ahead()
    return str(typer.prompt(question, default="", show_default=False, prompt_suffix="", err=True))


def ask_yes_no(question: str) -> bool:
    """Whether the user says yes to *question*, on standard error; ``Abort`` on Ctrl-C."""
    _discard_type_ahead()
    return typer.confirm(question, err=True)


def _discard_type_ahead() -> None:
    with suppress(OSError, termios.error):  # standard input is not a terminal
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
