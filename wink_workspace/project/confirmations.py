"""What the user has confirmed: the content of a project's file, and repositories outside of it.

Rule 1: a note is outside of every project and workspace, in the state directory.
Rule 2: it is bound to the path of the project, to the bytes of its file and of every file that it
names, and to the requests that the user saw. After any change of these, the user is asked again.
Rule 3: a note that cannot be read confirms nothing.
Rule 4: a second note of a project lists the directories to which its ``.git`` may lead.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wink_workspace import serde
from wink_workspace.errors import ParseError, UsageError

from .settings_file import ProjectFile

__all__ = ["Confirmations"]

_VERSION: Final = 1
_FILE: Final = ".json"
_GIT: Final = ".git.json"
_MOST_BYTES: Final = 4 * 1_048_576


@dataclass(frozen=True, slots=True)
class _Note:
    version: int
    directory: str
    digest: str
    requests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _GitNote:
    version: int
    source: str
    directories: tuple[str, ...]


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
        self._write(self._path(file.source), note)

    def _write(self, path: Path, note: _Note | _GitNote) -> None:
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

    def git_links(self) -> dict[Path, tuple[Path, ...]]:
        """By project: the directories outside of it to which its ``.git`` may lead."""
        found: dict[Path, tuple[Path, ...]] = {}
        for path in self._folder.glob(f"*{_GIT}"):
            with suppress(OSError, ParseError, ValueError), path.open("rb") as stored:
                note = serde.parse_json(_GitNote, stored.read(_MOST_BYTES))
                source = Path(json.loads(note.source))
                if note.version == _VERSION and path == self._path(source, _GIT):
                    found[source] = tuple(Path(json.loads(each)) for each in note.directories)
        return found

    def confirm_git(self, source: Path, directories: Iterable[Path]) -> None:
        """Note that the ``.git`` of *source* may lead to *directories*; raises as ``confirm``."""
        source = source.resolve()
        note = _GitNote(_VERSION, _name(source), tuple(map(_name, directories)))
        self._write(self._path(source, _GIT), note)

    def revoke(self, source: Path) -> bool:
        """Delete the notes of the project in *source*; whether there was one."""
        paths = [self._path(source.resolve(), kind) for kind in (_FILE, _GIT)]
        there = [path for path in paths if path.exists()]
        for path in there:
            path.unlink(missing_ok=True)
        return bool(there)

    def _path(self, source: Path, kind: str = _FILE) -> Path:
        return self._folder / f"{hashlib.sha256(os.fsencode(source)).hexdigest()}{kind}"


def _name(source: Path) -> str:
    """The path as text that JSON can hold, whatever bytes it has."""
    return json.dumps(str(source))
