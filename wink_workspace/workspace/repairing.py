"""Repairs the history and the bases of a workspace.

Rule 1: what is damaged is read again from wherever the same content is: the files of the bases, the
files and layers of the branches, and the source.
Rule 2: nothing that could still be read is deleted, and no base changes that a process may use. A
damaged base is made again, under its name, from the repaired history.
Rule 3: only paths that cannot be read anywhere are lost. A branch whose newest entry has some gets
an entry without them, so that it can be opened; the entries before stay.
Rule 4: each step may be repeated, also after a crash.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.counts import counted
from wink_workspace.errors import FilesystemError, MountError, UsageError
from wink_workspace.filesystem import FileKind, WorkspacePath, parse_path
from wink_workspace.filesystem.disk.tree import DiskTree
from wink_workspace.filesystem.git_binary import git_hash, object_header
from wink_workspace.filesystem.overlay.mounting import FILES
from wink_workspace.ledger import (
    EMPTY_TREE_ID,
    MAIN_BRANCH,
    BranchWriter,
    Draft,
    EntryKind,
    Ledger,
    ObjectStore,
    TreeEntry,
    build,
)
from wink_workspace.ledger.store.git_tree import GitTree
from wink_workspace.ledger.store.index_rebuilding import rebuild_indexes
from wink_workspace.ledger.upkeep.damage import (
    Lost,
    ObjectCheck,
    put_again,
    rewrite_damaged_packs,
)
from wink_workspace.session.events import ExternalChange

from .branch.forking import forks_of
from .create.bases import BaseStore, hash_files
from .create.importing import NotImported, open_source
from .create.overlay_branches import base_of, trees_of_bases
from .creating import storage_or_default
from .place.storage import WorkspaceFolder, WorkspaceInfo, WorkspaceStorage
from .place.workspace_config import WorkspaceConfig

__all__ = ["Repaired", "repair_workspace"]


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair found and did.

    Attributes:
        n_indexes: How many indexes of packs were missing or broken, and are rebuilt.
        n_packs: How many damaged packs were replaced by what can be read of them.
        n_objects: How many objects were read again from a base, the branches or the source.
        bases: The damaged paths of each damaged base, by its name. It is made again, unless it
            needs what is lost.
        removed: For each branch, the paths that a new entry removed, as they are lost.
        lost: What cannot be shown or restored any more.
    """

    n_indexes: int
    n_packs: int
    n_objects: int
    bases: Mapping[str, tuple[str, ...]]
    removed: Mapping[str, tuple[str, ...]]
    lost: tuple[Lost, ...]


def repair_workspace(
    which: str, *, storage: WorkspaceStorage | None = None, clock: Clock = SYSTEM_CLOCK
) -> Repaired:
    """Restore what is damaged in a workspace from where it can still be read; say what is lost.

    All files of its bases and all objects of its history are read. It may be repeated.

    Args:
        which: The id of the workspace, or its beginning.
        storage: Where it is stored; the default storage when omitted.
        clock: The time, for new entries.

    Raises:
        UsageError: If there is no such workspace.
        LedgerBusyError: If one of its branches is open elsewhere; nothing was changed.
        LedgerError: If the newest entry itself is lost, or something cannot be written.
        FilesystemError: If a base cannot be written.
    """
    folder = storage_or_default(storage).folder(which)
    info, bases = folder.info(), BaseStore(folder.state_dir, clock, durable=True)
    with Ledger(folder.ledger, durable=True, clock=clock) as ledger:
        n_indexes = rebuild_indexes(ledger.store.packs)
        writers = {name: ledger.write(name) for name in (MAIN_BRANCH, *forks_of(ledger))}
        folders = [folder.of_branch(name) for name in writers]
        names = {name for each in folders if (name := _base_name(each))}
        found, damaged = _check(ledger, folder)
        n_packs = rewrite_damaged_packs(ledger.store, damaged)
        n_objects = 0
        while damaged and (n_new := _read_again(ledger.store, info, folders, damaged)):
            n_objects += n_new
            found, damaged = _check(ledger, folder)
        removed = {
            name: paths
            for name, writer in writers.items()
            if folder.of_branch(name).files != folder.in_place
            and (paths := _remove_lost(writer, clock))
        }
        verified = bases.verify(contents=True, names=names, store=ledger.store)
        with ExitStack() as used:
            for each in folders:
                if _base_name(each) in verified:
                    base = base_of(each, bases, ledger.store, WorkspaceConfig(durable=True))
                    if base is not None:
                        used.callback(base.release)
    return Repaired(n_indexes, n_packs, n_objects, verified, removed, found)


def _base_name(folder: WorkspaceFolder) -> str:
    try:
        return folder.base.read_text(errors="replace").strip()
    except OSError:
        return ""


def _check(ledger: Ledger, folder: WorkspaceFolder) -> tuple[tuple[Lost, ...], set[str]]:
    """What is lost, and the ids of the objects; those of the bases' trees included."""
    ledger.store.forget()
    check = ObjectCheck(ledger.store)
    lost = check.lost()
    for tree in trees_of_bases(folder):
        check.lost_in(tree)
    return lost, check.damaged


def _remove_lost(writer: BranchWriter, clock: Clock) -> tuple[str, ...]:
    """Append an entry without the lost paths of the newest one; these paths."""
    head = writer.head
    paths = () if head is None else ObjectCheck(writer.store).lost_in(head.files)
    if head is None or not paths:
        return ()
    files = EMPTY_TREE_ID
    if "" not in paths:
        files = build(writer.store, head.files, {parse_path(path): None for path in paths})
    at = clock.now()
    writer.append(
        Draft(
            kind=EntryKind.EXTERNAL,
            subject=f"{counted(len(paths), 'path')} removed by a repair: the content is lost",
            files=files,
            session=head.session,
            record=ExternalChange(paths=paths, at=at),
            at=at,
        )
    )
    return paths


class _Wanted:
    """Stores the directories and files that are wanted, once each."""

    def __init__(self, store: ObjectStore, ids: Collection[str]) -> None:
        self._store = store
        self.ids = set(ids)

    def write_tree(self, tree: GitTree) -> str:
        content = b"".join(tree.rows)
        tree_id = git_hash(object_header("tree", len(content)) + content).hexdigest()
        if tree_id in self.ids:
            put_again(self._store, "tree", content, tree_id)
            self.ids.discard(tree_id)
        return tree_id

    def add_files(self, files: DiskTree) -> None:
        """Read everything in a directory, if something is wanted."""
        if not self.ids:
            return

        def keep(path: WorkspacePath, entry: TreeEntry) -> None:
            if entry.id in self.ids:
                self._store.loose.delete(entry.id)
                if entry.kind is FileKind.SYMLINK:
                    there = files.entry(path)
                    target = os.fsencode((there and there.target) or "")
                    self._store.write_blob(target)
                else:
                    with files.open(path) as file:
                        self._store.write_blob_from(file.fileno())
                self.ids.discard(entry.id)

        with suppress(ValueError):  # a directory that the history cannot have
            hash_files(files, self, keep)


def _read_again(
    store: ObjectStore,
    info: WorkspaceInfo,
    folders: Collection[WorkspaceFolder],
    damaged: Collection[str],
) -> int:
    """Store the damaged objects that a base, a branch or the source has; how many."""
    wanted = _Wanted(store, damaged)
    bases = {each.state_dir / "bases" / name for each in folders if (name := _base_name(each))}
    places = [base / "root" / FILES for base in bases]
    places += [each.upper / FILES for each in folders]
    places += [each.files for each in folders]
    for place in places:
        with suppress(FilesystemError, UsageError), DiskTree(place) as files:
            wanted.add_files(files)
    hidden = NotImported(info.rules.unrecorded())
    with suppress(MountError), open_source(Path(info.source), hidden) as files:
        wanted.add_files(files)
    store.sync()
    return len(damaged) - len(wanted.ids)
