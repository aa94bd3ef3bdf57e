"""The console that prints no control characters except those of its own styles."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from wink_workspace.errors import UsageError

from .display import printable


class SafeConsole(Console):
    """Prints no control characters except those of its own styles.

    Names of tools, paths and the words of a model may hold escape sequences. All printed text
    passes ``render``, so no call of ``print`` can forget to filter it.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """The segments of *renderable* with control characters replaced."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(printable(text), style)


# -------------------------------------------------------------------------------------- questions

# Questions to the person at the terminal; every command asks through this module.
#
# What was typed before a question is shown is discarded: it answers something else.


def ask_line(question: str) -> str:
    """The line that the user types after *question*, on standard error; ``Abort`` on Ctrl-C."""
    _discard_type_ahead()
    return str(typer.prompt(question, default="", show_default=False, prompt_suffix="", err=True))


def ask_yes_no(question: str, *, default: bool = False) -> bool:
    """Whether the user says yes to *question*, on standard error; ``Abort`` on Ctrl-C."""
    _discard_type_ahead()
    return typer.confirm(question, default=default, err=True)


def _discard_type_ahead() -> None:
    with suppress(OSError, termios.error):  # standard input is not a terminal
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


# ------------------------------------------------------------------------------------ output file


_T = TypeVar("_T")


def check_output_file(path: Path, what: str = "the patch") -> None:
    """Raise ``UsageError`` if *path* can obviously not be written; *what* names the content."""
    if path.is_dir():
        raise _not_writable(what, path, "it is a directory")
    if not path.parent.is_dir():
        raise _not_writable(what, path, f"there is no directory {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise _not_writable(what, path, "permission denied")


def write_patch(path: Path, write_to: Callable[[Callable[[bytes], object]], _T]) -> _T:
    """Write the patch that *write_to* writes to *path*, and give its result.

    A regular file is replaced atomically. A pipe, a device, or a file whose directory is not
    writable is written directly, so an error may leave it partly written.

    Raises:
        UsageError: If it cannot be written.
    """
    try:
        target = path.resolve()
        if path.exists() and not (path.is_file() and os.access(target.parent, os.W_OK)):
            with path.open("wb") as file:
                return write_to(file.write)
        unfinished = target.with_name(f".{target.name}.{os.getpid()}.new")
        try:
            with unfinished.open("wb") as file:
                result = write_to(file.write)
            if target.exists():
                unfinished.chmod(target.stat().st_mode & 0o777)
            unfinished.replace(target)
            return result
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise _not_writable("the patch", path, error.strerror or str(error)) from error


def _not_writable(what: str, path: Path, why: str) -> UsageError:
    return UsageError(
        f"{what} cannot be written to {path}: {why}",
        hint="Name a file in a writable directory on a disk with free space.",
    )
