"""Which content of a project's file the user has confirmed: one note for each directory.

Rule 1: a note is outside of every project and workspace, in the state directory.
Rule 2: it is bound to the path of the project, to the bytes of its file and of every file that it
names, and to the requests that the user saw. After any change of these, the user is asked again.
Rule 3: a note that cannot be read confirms nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wink_workspace import serde
from wink_workspace.errors import ParseError, UsageError

from .settings_file import ProjectFile

__all__ = ["Confirmations"]

_VERSION: Final = 1
_MOST_BYTES: Final = 4 * 1_048_576


@dataclass(frozen=True, slots=True)
class _Note:
    version: int
    directory: str
    digest: str
    requests: tuple[str, ...]


class Confirmations:
    """The notes below *state_dir*."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / "confirmed"

    def granted(self, file: ProjectFile) -> frozenset[str]:
        """The requests that the user has confirmed for exactly this content."""
        try:
            with self._path(file.source).open("rb") as stored:
                note = serde.parse_json(_Note, stored.read(_MOST_BYTES))
        except (OSError, ParseError):
            return frozenset()
        is_valid = (
            note.version == _VERSION
            and note.directory == _name(file.source)
            and note.digest == file.digest
        )
        return frozenset(note.requests) if is_valid else frozenset()

    def confirm(self, file: ProjectFile, requests: Iterable[str]) -> None:
        """Note that the user has seen *requests* of this content, and wants them.

        Raises:
            UsageError: If the note cannot be written.
        """
        note = _Note(_VERSION, _name(file.source), file.digest, tuple(sorted(set(requests))))
        path = self._path(file.source)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.new")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            unfinished.write_text(serde.dump_json(note), encoding="utf-8")
            unfinished.replace(path)
        except OSError as error:
            raise UsageError(
                f"the confirmation cannot be written to {path}: {error.strerror}",
                hint="Get permission to write there; XDG_STATE_HOME moves it.",
            ) from error

    def revoke(self, source: Path) -> bool:
        """Delete the note of the project in *source*; whether there was one."""
        try:
            self._path(source.resolve()).unlink()
        except FileNotFoundError:
            return False
        return True

    def _path(self, source: Path) -> Path:
        return self._folder / f"{hashlib.sha256(os.fsencode(source)).hexdigest()}.json"


def _name(source: Path) -> str:
    """The path as text that JSON can hold, whatever bytes it has."""
    return json.dumps(str(source))
