"""The environment of a command: the only reader of environment variables and user folders.

Everything that depends on them takes an ``Environment``; tests make one from a dictionary.
Nothing here creates a folder or checks that one exists.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TextIO

from .errors import UsageError

__all__ = ["Environment", "leave_out_programs"]

_FOLDER = "wink-workspace"

_SECRET_ENDINGS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIALS")
_LEAST_SECRET_CHARS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What a program may know of its surroundings, as they were at one moment.

    Args:
        variables: The environment variables; never shown in the ``repr``, as they hold secrets.
        home: The user's home directory, ``None`` if it cannot be found.
        stdin_is_terminal: Whether a user can answer questions.
        stdout_is_terminal: Whether a user reads the output as it comes.
        stderr_is_terminal: The same for errors and progress.
    """

    variables: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    home: Path | None = None
    stdin_is_terminal: bool = False
    stdout_is_terminal: bool = False
    stderr_is_terminal: bool = False

    @classmethod
    def from_os(cls) -> Environment:
        """The surroundings of this process, copied now."""
        return cls(
            variables=MappingProxyType(dict(os.environ)),
            home=_home(),
            stdin_is_terminal=_is_terminal(sys.stdin),
            stdout_is_terminal=_is_terminal(sys.stdout),
            stderr_is_terminal=_is_terminal(sys.stderr),
        )

    @property
    def state_dir(self) -> Path:
        """Where workspaces and their history are stored (``XDG_STATE_HOME``).

        Raises:
            UsageError: If neither the variable nor a home directory is known.
        """
        return self._folder("XDG_STATE_HOME", ".local/state")

    @property
    def config_dir(self) -> Path:
        """The directory of the user's settings (``XDG_CONFIG_HOME``); raises as ``state_dir``."""
        return self._folder("XDG_CONFIG_HOME", ".config")

    @property
    def cache_dir(self) -> Path:
        """The directory for data that may be lost (``XDG_CACHE_HOME``); raises as ``state_dir``."""
        return self._folder("XDG_CACHE_HOME", ".cache")

    def outside(self, directory: Path) -> Environment:
        """The same with a ``PATH`` that finds no program of the project in *directory*.

        Entries that are relative or lead into it are left out.
        """
        tops = {Path(os.path.abspath(directory)), directory.resolve()}  # noqa: PTH100 - as named
        kept: list[str] = []
        for entry in self.variables.get("PATH", os.defpath).split(os.pathsep):
            named = Path(os.path.normpath(entry))
            if Path(entry).is_absolute() and not any(
                path.is_relative_to(top) for path in (named, named.resolve()) for top in tops
            ):
                kept.append(entry)
        return replace(self, variables={**self.variables, "PATH": os.pathsep.join(kept)})

    def redactor(self, also: Collection[str] = ()) -> Callable[[str], str]:
        """A function that redacts the values of secret variables in a text.

        A variable is secret if *also* names it, or if its name ends in ``KEY``, ``TOKEN``,
        ``SECRET``, ``PASSWORD`` or ``CREDENTIALS``. Values of fewer than 8 characters are not
        redacted: they are switches rather than secrets, and would match in ordinary words.
        """
        secrets = [
            (value, f"[{name}]")
            for name, value in self.variables.items()
            if len(value) >= _LEAST_SECRET_CHARS
            and (name in also or name.upper().endswith(_SECRET_ENDINGS))
        ]
        secrets.sort(key=lambda secret: len(secret[0]), reverse=True)  # one may contain another

        def redact(text: str) -> str:
            for value, name in secrets:
                text = text.replace(value, name)
            return text

        return redact

    @property
    def is_ci(self) -> bool:
        """Whether this is an automatic build: ``CI`` is set, and not to ``0`` or ``false``."""
        return self.variables.get("CI", "").lower() not in ("", "0", "false")

    @property
    def stdout_color(self) -> bool:
        """Whether to colour the output.

        ``NO_COLOR`` forbids it and ``FORCE_COLOR`` demands it, in this order, if not empty
        (see no-color.org). Otherwise terminals get colour, except those with ``TERM=dumb``.
        """
        return self._color(self.stdout_is_terminal)

    @property
    def stderr_color(self) -> bool:
        """Whether to colour errors and progress; as ``stdout_color``."""
        return self._color(self.stderr_is_terminal)

    @property
    def shows_progress(self) -> bool:
        """Whether to show a display that redraws itself on standard error."""
        return self.stderr_is_terminal and not self.is_ci and self._can_move_cursor

    @property
    def _can_move_cursor(self) -> bool:
        return self.variables.get("TERM") != "dumb"

    def _color(self, is_terminal: bool) -> bool:
        if self.variables.get("NO_COLOR"):
            return False
        return bool(self.variables.get("FORCE_COLOR")) or (is_terminal and self._can_move_cursor)

    def _folder(self, variable: str, below_home: str) -> Path:
        given = Path(self.variables.get(variable, ""))
        if given.is_absolute():  # the XDG specification: ignore a relative one
            return given / _FOLDER
        if self.home is None:
            raise UsageError(
                "no home directory is known", hint=f"Set HOME or {variable} to an absolute path."
            )
        return self.home / below_home / _FOLDER


def leave_out_programs(directory: Path) -> None:
    """Change this process's own ``PATH`` as ``Environment.outside`` says."""
    os.environ["PATH"] = Environment.from_os().outside(directory).variables["PATH"]


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:  # HOME is not set, and the user database has no entry for the user
        return None


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()
