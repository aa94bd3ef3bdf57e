"""The modification times of a source's files, for files that are written from the history.

A build tool takes an output for up to date if it is newer than what it was made of, and git keeps
no times. So a workspace stores those of its import, in ``ledger.times``.

Rule 1: a file that is as it was imported gets the time of its source; every other one is newer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from wink_workspace.filesystem import WorkspacePath
from wink_workspace.filesystem.changes import FileIndex
from wink_workspace.filesystem.changes.index_file import read_note
from wink_workspace.ledger import ObjectStore, diff
from wink_workspace.workspace.place.storage import WorkspaceFolder

__all__ = ["SourceTimes", "save_source_times"]


def save_source_times(
    ledger: Path, index: FileIndex, tree: str, differing: Iterable[WorkspacePath] = ()
) -> None:
    """Store the times in *index*, the statuses of the imported *tree*, beside its *ledger*.

    The *differing* paths are not as in the base of the workspace, or have another time.
    """
    note = {"tree": tree, "differing": [path.parts for path in differing]}
    index.save(_file_of(ledger), note=note)


def _file_of(ledger: Path) -> Path:
    return ledger.with_suffix(".times")


class SourceTimes:
    """The times for files of *tree* in a branch of the workspace in *folder*.

    They are read when they are needed: most forks write no file.
    """

    def __init__(self, folder: WorkspaceFolder, store: ObjectStore, tree: str) -> None:
        self._file = _file_of(folder.ledger)
        self._store = store
        self._tree = tree

    @property
    def are_known(self) -> bool:
        """Whether there are any; a bundle has none."""
        return self._file.exists()

    @property
    def differing(self) -> Iterator[WorkspacePath]:
        """The imported paths that are not as in the base, or have another time."""
        for parts in self._note.get("differing", ()):
            if (path := WorkspacePath(tuple(parts))) not in self._changed:
                yield path

    def at(self, path: WorkspacePath) -> int | None:
        """The time of a file; ``None`` for the present one."""
        if not self._note or path in self._changed:
            return None
        seen = self._index.get(path.parts[:-1], path.name)
        return None if seen is None else seen.modified_ns

    @cached_property
    def _note(self) -> dict[str, Any]:
        try:
            return read_note(self._file)
        except (OSError, ValueError):
            return {}

    @cached_property
    def _changed(self) -> set[WorkspacePath]:
        return {change.path for change in diff(self._store, self._note["tree"], self._tree)}

    @cached_property
    def _index(self) -> FileIndex:
        return FileIndex.load(self._file) or FileIndex()
