"""The user's own pager and editor, chosen by variables as in git.

They run as the user, on the user's terminal, and get only text that is safe to show there.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess  # noqa: TID251 - the user's own programs; sandboxes have no part in them
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wink_workspace.environment import Environment
from wink_workspace.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console


PAGER_VARIABLE: Final = "WINK_WORKSPACE_PAGER"
_DEFAULT_PAGER: Final = "less"
_NO_PAGER: Final = ("", "cat")
_LESS: Final = "FRX"


@contextmanager
def paged(console: Console, environment: Environment, *, is_wanted: bool) -> Generator[Console]:
    """A console whose output goes through the user's pager; otherwise *console* itself.

    The pager is that of ``WINK_WORKSPACE_PAGER``, ``PAGER``, or ``less`` with the options ``FRX``;
    an empty variable or ``cat`` means none. Only a terminal gets one.
    """
    variables = environment.variables
    command = _pager(variables)
    if not is_wanted or not environment.stdout_is_terminal or command is None:
        yield console
        return
    from .console import SafeConsole

    sys.stdout.flush()
    pager = subprocess.Popen(  # noqa: S602 - the user's own command line, as in git
        command,
        shell=True,
        stdin=subprocess.PIPE,
        env={"LESS": _LESS, **variables},
        cwd="/",
    )
    assert pager.stdin is not None  # noqa: S101 - it is a pipe
    file = TextIOWrapper(pager.stdin, encoding="utf-8", errors="replace")
    through_pager = SafeConsole(
        file=file,
        force_terminal=True,
        width=console.width,
        no_color=console.no_color,
        color_system="standard" if console.color_system else None,
        highlight=False,
        soft_wrap=True,
    )
    try:
        # The user may quit before the end: rich raises SystemExit for a broken pipe
        with suppress(BrokenPipeError), _exit_only_if(pager):
            yield through_pager
            file.flush()
    finally:
        with suppress(BrokenPipeError):
            file.close()
        _wait(pager)


@contextmanager
def _exit_only_if(pager: subprocess.Popen[bytes]) -> Generator[None]:
    """Suppress the ``SystemExit`` of a console whose pager has ended."""
    try:
        yield
    except SystemExit:
        if pager.poll() is None:
            raise


def _wait(program: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a program that handles Ctrl-C itself."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        program.wait()
    finally:
        signal.signal(signal.SIGINT, before)


def _pager(variables: Mapping[str, str]) -> str | None:
    for name in (PAGER_VARIABLE, "PAGER"):
        if name in variables:
            return None if variables[name] in _NO_PAGER else variables[name]
    folders = variables.get("PATH", os.defpath).split(os.pathsep)
    is_found = any(Path(folder, _DEFAULT_PAGER).is_file() for folder in folders if folder)
    return _DEFAULT_PAGER if is_found else None


def edit(text: bytes, environment: Environment, *, suffix: str = ".diff") -> bytes:
    """*text* after the user has changed it in the editor of ``VISUAL`` or ``EDITOR``, or in vi.

    Raises:
        UsageError: If the editor cannot be started or fails.
    """
    variables = environment.variables
    editor = variables.get("VISUAL") or variables.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="wink-workspace-") as folder:
        path = Path(folder, f"edit{suffix}")
        path.write_bytes(text)
        try:
            command = [*shlex.split(editor), str(path)]
            program = subprocess.Popen(command, env=dict(variables), cwd="/")  # noqa: S603 - as the pager
        except (OSError, ValueError) as error:
            raise UsageError(
                f"the editor {editor!r} cannot be started: {error}", hint="Set EDITOR."
            ) from error
        _wait(program)
        if program.returncode:
            raise UsageError(
                f"the editor {editor!r} ended with exit code {program.returncode}",
                hint="Nothing was changed; edit again, or choose y or n.",
            )
        return path.read_bytes()
