"""The lines of a workspace beside its main one.

The files of a fork are made from the ledger when it is first opened, and so are those of the main
line if they are gone. One line is no fork: it ends at the import and never grows, so that no
retention takes away what the source was.
"""

from __future__ import annotations

import logging
from typing import Final

from wink_workspace.errors import EntryMissingError, UsageError
from wink_workspace.filesystem import FileKind
from wink_workspace.filesystem.disk.descriptors import translate_os_error
from wink_workspace.filesystem.disk.filling import NewTree
from wink_workspace.filesystem.disk.tree import DiskTree
from wink_workspace.ledger import MAIN_BRANCH, Ledger, LogEntry, ObjectStore, walk
from wink_workspace.sandbox.ownership import give_to_sandbox

from .last_seen import SeenWhenMade
from .storage import WorkspaceFolder, delete_tree

__all__ = ["IMPORTED_BRANCH", "check_out", "forks_of", "imported_entry", "require_branch"]

_log = logging.getLogger(__name__)

IMPORTED_BRANCH: Final = "imported"
"""The line that keeps the first entry."""


def imported_entry(ledger: Ledger) -> LogEntry:
    """The entry of the import; ``EntryMissingError`` if it was never finished."""
    entry = ledger.branch(IMPORTED_BRANCH).head
    if entry is None:
        raise EntryMissingError("there is no import in this history")
    return entry


def forks_of(ledger: Ledger) -> tuple[str, ...]:
    """The names of all forks, sorted."""
    return tuple(name for name in ledger.forks() if name != IMPORTED_BRANCH)


def require_branch(ledger: Ledger, name: str) -> None:
    """Raise ``EntryMissingError`` unless *name* is the main line or a fork."""
    if name != MAIN_BRANCH and name not in (forks := forks_of(ledger)):
        raise EntryMissingError(
            f"there is no fork {name!r}", hint=f"There are: {', '.join(forks) or 'none'}."
        )


def check_out(store: ObjectStore, entry: LogEntry, folder: WorkspaceFolder) -> None:
    """Make *folder*'s files be those of *entry*, unless they are there already.

    They appear as a whole or not at all; the caller holds the writer lock of the line.

    Raises:
        UsageError: If a link is in their place: what it leads to is not ours to put back.
        LedgerError: If something cannot be read.
        FilesystemError: If something cannot be written.
    """
    if folder.files.is_symlink():
        raise UsageError(
            f"{folder.files} is a link, and what it leads to is not this workspace's to change",
            hint="Put the directory itself there, or delete the link: then its files, as they "
            "were after the newest entry, are made again.",
        )
    if folder.files.is_dir():
        return
    if folder.branch == MAIN_BRANCH:
        _log.warning("%s is gone; it is made again as the history has it", folder.files)
    unfinished = folder.files.with_name("files.new")
    delete_tree(unfinished)
    unfinished.mkdir(parents=True, mode=0o700)
    give_to_sandbox(unfinished)
    with DiskTree(unfinished) as tree:
        seen = _filled(NewTree(tree), store, entry.files)
    seen.save(folder.index, entry)
    unfinished.rename(folder.files)


def _filled(tree: NewTree, store: ObjectStore, root: str) -> SeenWhenMade:
    """What everything looks like once all of *root* is in *tree*."""
    seen = SeenWhenMade()
    for path, entry in walk(store, root):
        above = path.parts[:-1]
        with translate_os_error(path), tree.entered(above) as directory:
            match entry.kind:
                case FileKind.DIRECTORY:
                    status = tree.make_directory(path.name, directory)
                    seen.add_directory(path.parts)
                case FileKind.SYMLINK:
                    target = store.read(entry.id).decode("utf-8", "surrogateescape")
                    status = tree.make_symlink(path.name, target, directory)
                case FileKind.FILE:
                    content = store.chunks(entry.id)
                    status = tree.write_file(
                        path.name, content, directory, executable=entry.executable
                    )
        seen.add(above, path.name, status)
    return seen
