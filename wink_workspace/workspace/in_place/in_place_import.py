"""The import of a workspace in place: the first entry for the user's own directory."""

from __future__ import annotations

from pathlib import Path

from wink_workspace.clock import Clock
from wink_workspace.errors import FilesystemError, MountError, UsageError
from wink_workspace.filesystem.changes.scan import open_tracker
from wink_workspace.filesystem.model import FileKind
from wink_workspace.ledger import (
    EMPTY_TREE_ID,
    Draft,
    EntryKind,
    Ledger,
    ObjectStore,
    SessionStore,
    entry_at,
)
from wink_workspace.session import Session
from wink_workspace.workspace.branch.forking import IMPORTED_BRANCH
from wink_workspace.workspace.create.importing import Imported
from wink_workspace.workspace.files.seen_statuses import save_last_seen
from wink_workspace.workspace.place.mode_store import ModeStore
from wink_workspace.workspace.place.storage import WorkspaceFolder

from .call_effects import CallEffects
from .in_place_history import PresentState
from .in_place_tree import InPlaceTree
from .user_repository import UserRepository, refuse_repository

__all__ = ["import_in_place"]


def import_in_place(source: Path, folder: WorkspaceFolder, clock: Clock) -> None:
    """Begin the history with the present files; *source* is only read.

    Raises:
        MountError: If *source* is not a readable directory.
        UsageError: If it is a git repository itself, or lies in one.
        LedgerError: If the history cannot be written.
    """
    if not source.is_dir():
        raise MountError(
            f"{source} is not a directory", hint="Name a directory that exists and can be read."
        )
    refuse_repository(source)
    git = UserRepository(source)
    Ledger.create(folder.ledger)
    with Ledger(folder.ledger, clock=clock) as ledger, ledger.write() as writer:
        try:
            tracker = open_tracker(source, force_scan=True, hidden=git, clock=clock)
        except (FilesystemError, UsageError) as error:
            raise MountError(
                f"cannot work in {source}: {error.message}",
                hint="Name a directory that exists and can be read.",
            ) from error
        effects = CallEffects(ledger.store, writer.effects, base=EMPTY_TREE_ID)
        tree = InPlaceTree(source, effects=effects, store=ledger.store, git=git)
        try:
            modes = ModeStore(folder.modes)
            present = PresentState(tree, tracker, ledger.store, root=EMPTY_TREE_ID, modes=modes)
            root = present.snapshot().root
            index = tracker.index
            record = _imported(source, tree, ledger.store, root)
        finally:
            tracker.close()
            tree.close()
        entry = writer.append(
            Draft(
                kind=EntryKind.IMPORT,
                subject=f"start in place in {source}",
                files=root,
                session=SessionStore(ledger.store).write(Session(clock=clock)),
                record=record,
                at=clock.now(),
            )
        )
        ledger.fork(IMPORTED_BRANCH, entry)
        if index is not None:
            save_last_seen(folder.index, index, entry)


def _imported(source: Path, tree: InPlaceTree, store: ObjectStore, root: str) -> Imported:
    n_files = n_bytes = 0
    skipped: list[str] = []
    for entry in tree.walk():
        if entry_at(store, root, entry.path) is None:
            skipped.append(str(entry.path))
        elif entry.kind is FileKind.FILE:
            n_files += 1
            n_bytes += entry.size_bytes
    return Imported(str(source), n_files, n_bytes, tuple(skipped))
