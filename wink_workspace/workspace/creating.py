"""The creation of a workspace on disk, in one of its forms, and its deletion."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal, get_args

from wink_workspace.clock import Clock
from wink_workspace.errors import (
    EntryMissingError,
    FilesystemError,
    LedgerError,
    MountError,
    UsageError,
)
from wink_workspace.filesystem.changes.scan import open_tracker
from wink_workspace.filesystem.model import FileKind
from wink_workspace.filesystem.paths import PUBLIC_NAMES
from wink_workspace.ledger import (
    EMPTY_TREE_ID,
    Ledger,
    ObjectStore,
    entry_at,
)

from .create.bases import collect_bases
from .create.git_copies import GitCopies, copy_git
from .create.importing import Imported, begin_history, import_copy
from .create.overlay_branches import import_overlay
from .files.seen_statuses import save_last_seen
from .in_place.call_effects import CallEffects
from .in_place.in_place_history import PresentState
from .in_place.in_place_tree import InPlaceTree
from .in_place.private_paths import PrivatePaths
from .in_place.user_repository import UserRepository, refuse_repository
from .place.mode_store import ModeStore
from .place.path_rules import ImportConfig, PathRules, Progress
from .place.reserve import Reserve, is_full
from .place.storage import WorkspaceFolder, WorkspaceInfo, WorkspaceMode, WorkspaceStorage

# -------------------------------------------------------------------------------- in place import


def import_in_place(
    source: Path, folder: WorkspaceFolder, clock: Clock, rules: PathRules | None = None
) -> None:
    """Begin the history with the present files; *source* is only read.

    With *rules*, excluded paths are not seen, and private ones are kept apart.

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
    unrecorded = None if rules is None else replace(rules, derived=()).unrecorded()
    git = UserRepository(source, unrecorded)
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
            if rules is not None and rules.derived:
                private = PrivatePaths(folder.private, source, ledger.store, rules)
                root = private.public_root(root, lambda _: None)
        finally:
            tracker.close()
            tree.close()
        entry = begin_history(ledger, writer, root, record, clock, what="start in place in")
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


# --------------------------------------------------------------------------------------- creating


_log = logging.getLogger(__name__)

_MODES: Final = get_args(WorkspaceMode)


def create_workspace(
    source: str | os.PathLike[str],
    storage: WorkspaceStorage,
    *,
    mode: WorkspaceMode | Literal["auto"],
    config: ImportConfig,
    clock: Clock,
    progress: Progress,
) -> WorkspaceInfo:
    """Import *source* into a new workspace; see ``Workspace.create``."""
    if mode == "auto":
        mode = storage.default_mode()
    if mode not in _MODES:
        raise UsageError(
            f"{mode!r} is not a mode of a workspace", hint=f"Use auto, {' or '.join(_MODES)}."
        )
    if mode == "in_place":
        return _create_in_place(Path(source).resolve(), storage, clock, config)
    directory = Path(source).absolute()
    storage.check_outside(directory)
    if mode == "overlay":
        storage.require_overlays()
    import_files = import_overlay if mode == "overlay" else import_copy

    def fill(folder: WorkspaceFolder) -> WorkspaceInfo:
        rules = import_files(directory, folder, clock, config=config, progress=progress)
        rules = copy_git(directory, folder, rules, config=config, clock=clock)
        return WorkspaceInfo(folder.path.name, str(directory), clock.now(), mode, rules=rules)

    return storage.add(fill)


def _create_in_place(
    source: Path, storage: WorkspaceStorage, clock: Clock, config: ImportConfig
) -> WorkspaceInfo:
    rules = PathRules(excluded=config.exclude, derived=config.derived, content=PUBLIC_NAMES)

    def fill(folder: WorkspaceFolder) -> WorkspaceInfo:
        import_in_place(source, folder, clock, rules)
        inode = source.stat().st_ino
        return WorkspaceInfo(folder.path.name, str(source), clock.now(), "in_place", inode, rules)

    return storage.add(fill, in_place=source)


def delete_workspace(which: str, storage: WorkspaceStorage) -> None:
    """See ``Workspace.delete``."""
    folder = storage.folder(which)
    try:
        _delete(folder, storage)
    except LedgerError as error:
        if not (is_full([error]) and Reserve(folder.reserve).release()):
            raise
        _delete(folder, storage)  # the first attempt had no space for the locks of forks
    try:
        collect_bases(storage.state_dir, checks_statuses=False)
        GitCopies(storage.state_dir).collect()
    except FilesystemError as error:
        _log.warning("Bases that no workspace uses are not deleted: %s", error)


def _delete(folder: WorkspaceFolder, storage: WorkspaceStorage) -> None:
    with Ledger(folder.ledger) as ledger:
        ledger.write()
        for fork in ledger.forks():
            with suppress(EntryMissingError):  # another process has just deleted it
                ledger.write(fork)
        storage.remove(folder)
