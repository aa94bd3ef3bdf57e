"""The command ``wink-workspace``.

Exit codes: 0 done; 1 failed (a run that ended early, a conflict, a workspace in use); 2 wrong
usage, also a file or directory that cannot be used; 130 interrupted by Ctrl-C. ``exec`` returns
the exit code of its command.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from pathlib import Path

__all__ = ["main"]

_N_LOADED = 400_000


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code.

    Args:
        arguments: The arguments after the command's name; those of the process when omitted.
    """
    is_process = arguments is None  # the process is this command
    if is_process:
        _delay_collection()
    given = sys.argv[1:] if arguments is None else arguments
    try:
        _make_streams_writable()
        if given == ["--version"]:
            from importlib.metadata import version

            sys.stdout.write(version("wink-workspace") + "\n")
            return 0
        if given == ["--help"]:
            from .command_list import print_list

            print_list()
            return 0
        from .app import run_command  # here, so that importing the package loads no typer
    except KeyboardInterrupt:  # nothing has started yet
        return 130
    code = run_command(arguments)
    if is_process:
        gc.freeze()  # the interpreter's end would search all objects for cycles
    return code


def _make_streams_writable() -> None:
    """Open the null device for each closed standard stream, and replace unknown characters.

    Otherwise the next opened file would get the descriptor, and output would be written to it; and
    a character that the terminal's encoding lacks would end the command.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            # Gets the lowest free descriptor, which is the stream's own.
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - stays open
        elif mode == "w" and isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def _delay_collection() -> None:
    """Delay the first garbage collection until a command has loaded its modules.

    They make many objects and almost no garbage; to search them takes a fifth of the start. After
    the first collection, or ``_N_LOADED`` objects, the thresholds are as before.
    """
    thresholds = gc.get_threshold()

    def restore(phase: str, info: dict[str, int]) -> None:
        del phase, info
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(restore)

    gc.callbacks.append(restore)
    gc.set_threshold(_N_LOADED, *thresholds[1:])
