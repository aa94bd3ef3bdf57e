"""The branches of a workspace beside its main branch.

The files of a branch are written from the ledger when they are missing: those of a fork when it is
first opened, those of the main branch if they were deleted. The branch ``imported`` is not a fork.
It ends at the import and never grows, so that retention keeps the original files.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from wink_workspace.errors import EntryMissingError, LedgerDamagedError, UsageError
from wink_workspace.filesystem.disk.tree import DiskTree
from wink_workspace.ledger import MAIN_BRANCH, Ledger, LogEntry, ObjectStore
from wink_workspace.sandbox.ownership import give_to_sandbox
from wink_workspace.workspace.changes.applied_trees import AppliedTrees
from wink_workspace.workspace.files.checkout import write_files
from wink_workspace.workspace.files.derived_paths import copy_checkpoint
from wink_workspace.workspace.files.seen_statuses import save_last_seen
from wink_workspace.workspace.files.source_times import SourceTimes
from wink_workspace.workspace.place.path_rules import Unrecorded
from wink_workspace.workspace.place.shared_folders import delete_tree
from wink_workspace.workspace.place.storage import WorkspaceFolder

__all__ = [
    "IMPORTED_BRANCH",
    "check_out",
    "copy_runs",
    "delete_fork",
    "forks_of",
    "head_of",
    "imported_entry",
    "require_branch",
]

_log = logging.getLogger(__name__)

IMPORTED_BRANCH: Final = "imported"
"""The branch that keeps the first entry."""


def imported_entry(ledger: Ledger) -> LogEntry:
    """The entry of the import; ``EntryMissingError`` if the import did not finish."""
    entry = ledger.branch(IMPORTED_BRANCH).head
    if entry is None:
        raise EntryMissingError("this history has no import")
    return entry


def forks_of(ledger: Ledger) -> tuple[str, ...]:
    """The names of all forks, sorted."""
    return tuple(name for name in ledger.forks() if name != IMPORTED_BRANCH)


def require_branch(ledger: Ledger, name: str) -> None:
    """Raise ``EntryMissingError`` unless *name* is the main branch or a fork."""
    if name != MAIN_BRANCH and (name == IMPORTED_BRANCH or not ledger.has_fork(name)):
        forks = ", ".join(forks_of(ledger)) or "none"
        raise EntryMissingError(f"there is no fork {name!r}", hint=f"The forks are: {forks}.")


def head_of(ledger: Ledger, branch: str) -> LogEntry:
    """The newest entry of a branch.

    Raises:
        EntryMissingError: If there is no such fork, or it has no entry.
    """
    require_branch(ledger, branch)
    head = ledger.branch(branch).head
    if head is None:
        raise EntryMissingError(f"the branch {branch!r} has no entry")
    return head


def delete_fork(
    folder: WorkspaceFolder,
    ledger: Ledger,
    name: str,
    *,
    first: Callable[[], object] = lambda: None,
) -> None:
    """Delete a fork of the workspace in *folder*, and its files.

    *first* is called while no process can open the fork; the fork stays if it raises.

    Raises:
        EntryMissingError: If there is no such fork.
        LedgerBusyError: If another process has it open.
    """
    branch_dir = folder.of_branch(name).branch_dir
    deleted = branch_dir.with_name(f"{name}~")  # not a valid name of a fork

    def delete_files() -> None:
        first()
        delete_tree(deleted)
        with suppress(FileNotFoundError):  # it was never opened
            branch_dir.rename(deleted)  # all at once: missing files would look like deletions
        delete_tree(deleted)
        with suppress(LedgerDamagedError):  # the next apply reports it
            AppliedTrees(folder.applied).forget(name)

    ledger.delete_fork(name, first=delete_files)


def check_out(
    store: ObjectStore,
    entry: LogEntry,
    folder: WorkspaceFolder,
    *,
    unrecorded: Unrecorded | None = None,
    is_new: bool = False,
) -> None:
    """Write the files of *entry* into *folder*, unless they exist already.

    They appear all at once or not at all, with *unrecorded* together with the derived paths of the
    branch's checkpoint. The caller holds the writer lock of the branch. Files of a main branch that
    is not new were lost, which is logged.

    Raises:
        UsageError: If a link is in their place: its target does not belong to the workspace.
        LedgerError: If something cannot be read.
        FilesystemError: If something cannot be written.
    """
    if folder.files.is_symlink():
        raise UsageError(
            f"{folder.files} is a link, and its target does not belong to this workspace",
            hint="Put the directory itself there, or delete the link: then the files of the "
            "newest entry are written again.",
        )
    if folder.files.is_dir():
        return
    if folder.branch == MAIN_BRANCH and not is_new:
        _log.warning("%s is missing; it is written again from the history", folder.files)
    unfinished = folder.files.with_name("files.new")
    delete_tree(unfinished)
    unfinished.mkdir(parents=True)
    unfinished.chmod(0o755)  # whatever the umask is
    give_to_sandbox(unfinished)
    with DiskTree(unfinished) as tree:
        seen = write_files(tree, store, entry.files, SourceTimes(folder, store, entry.files))
        if unrecorded is not None:
            copy_checkpoint(folder.checkpoint, tree, unrecorded)
    save_last_seen(folder.index, seen.finished(folder.branch_dir), entry)
    unfinished.rename(folder.files)


def copy_runs(source: WorkspaceFolder, target: WorkspaceFolder) -> None:
    """Copy the runs of a branch to a fork that nothing has opened."""
    if source.runs.is_dir():
        target.runs.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.copytree(source.runs, target.runs)
