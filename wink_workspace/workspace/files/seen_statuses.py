"""The statuses of the files when they were last seen, so that opening need not read all files.

An index of statuses is valid only with the tree of the same moment. With a newer tree, a file that
was created and deleted in between would not be noticed. So the name of an index has the id of the
entry with that tree, and the index is used only while the history keeps this entry.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from wink_workspace.filesystem import WorkspacePath
from wink_workspace.filesystem.changes.index import FileIndex, read_note
from wink_workspace.ledger import Branch, LogEntry, ObjectStore, diff
from wink_workspace.workspace.place.storage import WorkspaceFolder

_MOST_TRIES: Final = 10_000  # some 20 ms


def finish_index(index: FileIndex, directory: Path) -> FileIndex:
    """*index* of files that were just written, and that no other process knows of.

    *directory* is on the same filesystem. Every later change gets another change time, unless the
    filesystem's clock still shows the time of the entry. Such entries count as racily clean.
    """
    try:
        index.doubt(_now_on_disk_ns(directory, after_ns=index.newest_ns()))
    except OSError:
        index.doubt(0)
    return index


def _now_on_disk_ns(directory: Path, *, after_ns: int) -> int:
    """The change time of a change made now, if possible later than *after_ns*.

    Most filesystem clocks tick every few milliseconds, and this waits for the next tick. It does
    not wait for a clock that ticks every two seconds; then the result is not later.
    """
    canary = directory / "canary"
    file = os.open(canary, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        now_ns = 0
        for _ in range(_MOST_TRIES):
            os.utime(file)
            now_ns = os.fstat(file).st_ctime_ns
            if now_ns > after_ns:
                break
        return now_ns
    finally:
        os.close(file)
        canary.unlink()


def save_last_seen(file: Path, index: FileIndex, entry: LogEntry) -> None:
    """Save the index of the files of *entry*. Failures are ignored: the index is only a hint."""
    with suppress(OSError):
        index.save(file.with_name(f"{file.name}-{entry.id}"))
        for other in _stored(file):
            if other != entry.id:
                file.with_name(f"{file.name}-{other}").unlink(missing_ok=True)


def forget_last_seen(file: Path) -> None:
    """Delete every index: the files that they describe are about to be replaced.

    Raises:
        OSError: If one cannot be deleted.
    """
    for entry in _stored(file):
        file.with_name(f"{file.name}-{entry}").unlink(missing_ok=True)


def load_last_seen(file: Path, branch: Branch) -> tuple[FileIndex, str] | None:
    """The newest index of an entry that *branch* keeps, and the tree of that entry.

    The cost does not depend on the number of later entries.
    """
    kept = [entry for stored in _stored(file) if (entry := branch.kept(stored)) is not None]
    for entry in sorted(kept, key=lambda entry: entry.number, reverse=True):
        index = FileIndex.load(file.with_name(f"{file.name}-{entry.id}"))
        if index is not None:
            return index, entry.files
    return None


def _stored(file: Path) -> set[str]:
    """The ids of the entries that have an index."""
    return {path.name.removeprefix(f"{file.name}-") for path in file.parent.glob(f"{file.name}-*")}


# ----------------------------------------------------------------------------------- source times

# The modification times of a source's files, for files that are written from the history.
#
# A build tool takes an output for up to date if it is newer than what it was made of, and git keeps
# no times. So a workspace stores those of its import, in ``ledger.times``.
#
# Rule 1: a file that is as it was imported gets the time of its source; every other one is newer.


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
    def imported(self) -> str:
        """The id of the imported tree; empty if it is not known."""
        return str(self._note.get("tree", ""))

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
