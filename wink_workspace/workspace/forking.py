"""The lines of a workspace beside its main one.

The files of a fork are made from the ledger when it is first opened. One line is no fork: it
ends at the import and never grows, so that no retention takes away what the source was.
"""

from __future__ import annotations

from typing import Final

from wink_workspace.clock import Clock
from wink_workspace.errors import EntryMissingError
from wink_workspace.filesystem.changes.scan import open_tracker
from wink_workspace.filesystem.disk.tree import DiskTree
from wink_workspace.ledger import EMPTY_TREE_ID, Ledger, LogEntry, ObjectStore
from wink_workspace.sandbox.ownership import give_to_sandbox

from .storage import WorkspaceFolder, delete_tree
from .tree_history import TreeHistory

__all__ = ["IMPORTED_LINE", "check_out", "forks_of", "imported_entry"]

IMPORTED_LINE: Final = "imported"
"""The line that keeps the first entry."""


def imported_entry(ledger: Ledger) -> LogEntry:
    """The entry of the import; ``EntryMissingError`` if it was never finished."""
    entry = ledger.line(IMPORTED_LINE).head
    if entry is None:
        raise EntryMissingError("there is no import in this history")
    return entry


def forks_of(ledger: Ledger) -> tuple[str, ...]:
    """The names of all forks, sorted."""
    return tuple(name for name in ledger.forks() if name != IMPORTED_LINE)


def check_out(store: ObjectStore, root: str, folder: WorkspaceFolder, clock: Clock) -> None:
    """Make *folder*'s files be those of *root*, unless they are there already.

    They appear as a whole or not at all; the caller holds the writer lock of the line.

    Raises:
        LedgerError: If something cannot be read.
        FilesystemError: If something cannot be written.
    """
    if folder.files.is_dir():
        return
    unfinished = folder.files.with_name("files.new")
    delete_tree(unfinished)
    unfinished.mkdir(parents=True, mode=0o700)
    give_to_sandbox(unfinished)
    tree = DiskTree(unfinished)
    tracker = open_tracker(unfinished, force_scan=True, clock=clock)
    try:
        history = TreeHistory(tree, tracker, store, root=EMPTY_TREE_ID)
        history.move_to(history.token_of(root))
    finally:
        tracker.close()
        tree.close()
    unfinished.rename(folder.files)
