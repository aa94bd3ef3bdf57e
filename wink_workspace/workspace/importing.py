"""How a workspace begins: a copy of a directory, and the first entry of its history."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wink_workspace.clock import Clock
from wink_workspace.errors import FilesystemError, MountError, UsageError
from wink_workspace.filesystem import FileKind, WorkspacePath
from wink_workspace.filesystem.changes.scan import open_tracker
from wink_workspace.filesystem.disk.tree import DiskEntry, DiskTree
from wink_workspace.ledger import EMPTY_TREE_ID, Draft, EntryKind, Ledger, SessionStore
from wink_workspace.session import Session

from .forking import IMPORTED_LINE
from .last_seen import save_last_seen
from .storage import WorkspaceFolder
from .tree_history import TreeHistory

__all__ = ["Imported", "import_copy"]


@dataclass(frozen=True, slots=True)
class Imported:
    """The record of a workspace's first entry.

    ``skipped`` are the paths that could not be read, or are no file, directory or link. The
    source's own ``.git`` stays behind and is not among them.
    """

    source: str
    n_files: int
    n_bytes: int
    skipped: tuple[str, ...] = ()


def import_copy(source: Path, folder: WorkspaceFolder, clock: Clock) -> None:
    """Copy the files and begin the history with them."""
    folder.files.mkdir()
    copy, original = DiskTree(folder.files), _source_tree(source)
    try:
        copied = _Copy(original, copy)
        copied.add_all()
        Ledger.create(folder.ledger)
        with Ledger(folder.ledger, clock=clock) as ledger, ledger.write() as writer:
            tracker = open_tracker(folder.files, force_scan=True, clock=clock)
            history = TreeHistory(copy, tracker, ledger.store, root=EMPTY_TREE_ID)
            root = history.snapshot().root
            if tracker.index is not None:
                save_last_seen(folder.index, tracker.index, root)
            tracker.close()
            entry = writer.append(
                Draft(
                    kind=EntryKind.IMPORT,
                    subject=f"import of {source}",
                    files=root,
                    session=SessionStore(ledger.store).write(Session(clock=clock)),
                    record=copied.report(str(source)),
                    at=clock.now(),
                )
            )
            ledger.fork(IMPORTED_LINE, entry)
    finally:
        original.close()
        copy.close()


def _source_tree(source: Path) -> DiskTree:
    try:
        return DiskTree(source)
    except (FilesystemError, UsageError) as error:
        raise MountError(
            f"{source} cannot be copied: {error.message}",
            hint="Name a directory that exists and can be read.",
        ) from error


class _Copy:
    """Copies one tree into another, entry by entry."""

    def __init__(self, original: DiskTree, copy: DiskTree) -> None:
        self._original = original
        self._copy = copy
        self._skipped: list[str] = []
        self._n_files = 0
        self._n_bytes = 0

    def add_all(self) -> None:
        """Copy everything but the ``.git`` at the top."""
        for entry in self._original.walk():
            if entry.path.parts[0] == ".git":
                continue
            try:
                self._add(entry)
            except FilesystemError:
                self._skipped.append(str(entry.path))

    def report(self, source: str) -> Imported:
        """What was copied."""
        return Imported(source, self._n_files, self._n_bytes, tuple(self._skipped))

    def _add(self, entry: DiskEntry) -> None:
        match entry.kind:
            case FileKind.DIRECTORY:
                self._copy.put_directory(entry.path)
            case FileKind.SYMLINK:
                self._copy.put_symlink(entry.path, entry.target or "")
            case FileKind.FILE:
                self._add_file(entry.path, executable=entry.executable)
                self._n_files += 1
                self._n_bytes += entry.size_bytes
            case None:
                self._skipped.append(str(entry.path))

    def _add_file(self, path: WorkspacePath, *, executable: bool) -> None:
        with self._original.open(path) as file:
            chunks = iter(lambda: file.read(1_048_576), b"")
            self._copy.put_file(path, chunks, executable=executable)
