"""Repairs the history and the bases of a workspace.

Rule 1: what is damaged is read again from wherever the same content is: the files of the bases, the
files and layers of the branches, and the source.
Rule 2: nothing that could still be read is deleted, and no base changes that a process may use. A
damaged base is made again, under its name, from the repaired history.
Rule 3: only paths that cannot be read anywhere are lost. A branch whose newest entry has some gets
an entry without them, so that it can be opened; the entries before stay. A part of STATE is not
lost alone: then STATE begins again, empty.
Rule 4: a branch whose newest entries are lost ends with the newest one that is left: one that no
branch has, if its own older ones are not known. Without any, a fork ends as the main branch, and
that one with the import. The files stay, as an external edit.
Rule 5: each step may be repeated, also after a crash.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.counts import counted
from wink_workspace.errors import FilesystemError, LedgerError, MountError, UsageError
from wink_workspace.filesystem import FileKind, WorkspacePath, parse_path
from wink_workspace.filesystem.disk.tree import DiskTree
from wink_workspace.filesystem.overlay.mounting import FILES
from wink_workspace.ledger import (
    EMPTY_TREE_ID,
    MAIN_BRANCH,
    BranchWriter,
    Draft,
    EntryKind,
    Ledger,
    LogEntry,
    ObjectStore,
    SessionStore,
    TreeEntry,
    build,
)
from wink_workspace.ledger.entries.commits import parse_commit
from wink_workspace.ledger.store.pack_reading import rebuild_indexes
from wink_workspace.ledger.upkeep.damage import (
    LostObject,
    ObjectCheck,
    branch_of,
    give_up_lost,
    rewrite_damaged_packs,
)
from wink_workspace.session import Session
from wink_workspace.session.events import ExternalChange

from .branch.recorded_branch import IMPORTED_BRANCH, forks_of
from .create.bases import BaseStore, hash_files
from .create.importing import open_source
from .create.overlay_branches import base_of, trees_of_bases
from .files.seen_statuses import SourceTimes
from .place.path_rules import NotImported
from .place.storage import WorkspaceFolder, WorkspaceInfo, WorkspaceStorage, storage_or_default
from .place.workspace_config import WorkspaceConfig


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair found and did.

    Attributes:
        n_indexes: How many indexes of packs were missing or broken, and are rebuilt.
        n_packs: How many damaged packs were replaced by what can be read of them.
        n_objects: How many objects were read again from a base, the branches or the source.
        bases: The damaged paths of each damaged base, by its name. It is made again, unless it
            needs what is lost.
        removed: For each branch, the lost paths that a new entry removed, as in ``LostObject``.
            If STATE lost a part, it begins again, empty.
        lost: What cannot be shown or restored any more.
    """

    n_indexes: int
    n_packs: int
    n_objects: int
    bases: Mapping[str, tuple[str, ...]]
    removed: Mapping[str, tuple[str, ...]]
    lost: tuple[LostObject, ...]


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
        LedgerError: If something cannot be written.
        FilesystemError: If a base cannot be written.
    """
    folder = storage_or_default(storage).folder(which)
    info, bases = folder.info(), BaseStore(folder.state_dir, clock, durable=True)
    with Ledger(folder.ledger, durable=True, clock=clock) as ledger:
        n_indexes = rebuild_indexes(ledger.store.packs)
        names = (IMPORTED_BRANCH, MAIN_BRANCH, *forks_of(ledger))
        writers = {name: ledger.write(name, reads_head=False) for name in names}
        folders = [folder.of_branch(name) for name in writers if name != IMPORTED_BRANCH]
        names = {name for each in folders if (name := _base_name(each))}
        check = _check(ledger, folder)
        if n_packs := rewrite_damaged_packs(ledger.store, check.damaged):
            check = _check(ledger, folder)
        done: set[str] = set()  # a directory that is read again may name more
        while new := _read_again(ledger.store, info, folders, check.damaged - done):
            done |= new
            check = _check(ledger, folder)
        left, tree = check.readable_entries(), SourceTimes(folder, ledger.store, "").imported
        gone = _find_heads(writers, left, tree, clock)
        removed = {
            name: paths
            for name, writer in writers.items()
            if folder.of_branch(name).files != folder.in_place
            and (paths := _remove_lost(writer, clock))
        }
        gone += give_up_lost(check, writers.values(), left)
        gone += ObjectCheck(ledger.store).lost()
        verified = bases.verify(contents=True, names=names, store=ledger.store)
        with ExitStack() as used:
            for each in folders:
                if _base_name(each) in verified:
                    base = base_of(each, bases, ledger.store, WorkspaceConfig(durable=True))
                    if base is not None:
                        used.callback(base.release)
    return Repaired(n_indexes, n_packs, len(done), verified, removed, tuple(gone))


def _base_name(folder: WorkspaceFolder) -> str:
    try:
        return folder.base.read_text(errors="replace").strip()
    except OSError:
        return ""


def _check(ledger: Ledger, folder: WorkspaceFolder) -> ObjectCheck:
    """A check that has read the history and the bases' trees."""
    ledger.store.forget()
    check = ObjectCheck(ledger.store)
    check.lost()
    for tree in trees_of_bases(folder):
        check.lost_in(tree)
    return check


def _find_heads(
    writers: Mapping[str, BranchWriter], left: Mapping[str, LogEntry], tree: str, clock: Clock
) -> list[LostObject]:
    """Give each branch a head that can be read; the entries that this gives up.

    *tree* is the imported one, with which a branch begins if nothing else is left.
    """
    gone, last = list[LostObject](), None
    followed = {entry.parent for entry in left.values()}
    heads = {name: writer.store.repository.ref(writer.ref) for name, writer in writers.items()}
    ends = [each for each in left.values() if each.id not in followed.union(heads.values())]
    ends.sort(key=lambda entry: (entry.at, entry.number))
    for name, writer in writers.items():
        commit_id = heads[name]
        with suppress(LedgerError):
            while commit_id and commit_id not in left:
                content = writer.store.read(commit_id, "commit")
                commit_id = parse_commit(commit_id, content).parent
        newest = left.get(commit_id or "") or (ends.pop() if ends and last else last)
        if newest is None:
            gone.append(LostObject(branch_of(writer.ref), "", 1, 0))
            _remove_lost(writer, clock, tree)
        elif newest.id != heads[name]:
            gone.append(LostObject(branch_of(writer.ref), "", newest.number + 1, 0))
            writer.move_to(newest)
        head = writer.refresh()
        last = head if last is None or name == MAIN_BRANCH else last
    return gone


def _remove_lost(writer: BranchWriter, clock: Clock, tree: str = EMPTY_TREE_ID) -> tuple[str, ...]:
    """Append an entry without what the newest one lost; the lost paths, as in ``LostObject``.

    A branch without entries gets one with *tree*.
    """
    head, check = writer.head, ObjectCheck(writer.store)
    files, session = (tree, EMPTY_TREE_ID) if head is None else (head.files, head.session)
    paths, state, at = check.lost_in(files), check.lost_in(session), clock.now()
    if "/" in paths:
        files = EMPTY_TREE_ID
    elif paths:
        files = build(writer.store, files, {parse_path(path): None for path in paths})
    if state or head is None:
        session = SessionStore(writer.store).write(Session(clock=clock))
    if paths or state or head is None:
        writer.append(
            Draft(
                kind=EntryKind.EXTERNAL,
                subject=f"{counted(len(paths) + len(state), 'lost path')} removed by a repair",
                files=files,
                session=session,
                record=ExternalChange(paths=paths, at=at),
                at=at,
            )
        )
    return (*(f"files/{path}" for path in paths), *(f"session/{path}" for path in state))


def _read_again(
    store: ObjectStore,
    info: WorkspaceInfo,
    folders: Collection[WorkspaceFolder],
    damaged: Collection[str],
) -> set[str]:
    """Store the damaged objects that a base, a branch or the source has; their ids."""
    wanted = set(damaged)
    bases = {each.state_dir / "bases" / name for each in folders if (name := _base_name(each))}
    places = [base / "root" / FILES for base in bases]
    places += [path for each in folders for path in (each.upper / FILES, each.files)]
    hidden = NotImported(info.rules.unrecorded())
    with ExitStack() as opened:
        for place in places:
            with suppress(FilesystemError, UsageError):
                _read_files(store, opened.enter_context(DiskTree(place)), wanted)
        with suppress(MountError):
            source = opened.enter_context(open_source(Path(info.source), hidden))
            _read_files(store, source, wanted)
    store.sync()
    return set(damaged) - wanted


def _read_files(store: ObjectStore, files: DiskTree, wanted: set[str]) -> None:
    """Store the *wanted* files and directories that are in *files*, and remove their ids."""

    def keep(path: WorkspacePath, entry: TreeEntry) -> None:
        if entry.id not in wanted:
            return
        if entry.kind is FileKind.SYMLINK:
            there = files.entry(path)
            store.write("blob", os.fsencode((there and there.target) or ""))
        else:
            with files.open(path) as file:
                store.write_blob_from(file.fileno())
        wanted.discard(entry.id)

    def keep_tree(tree_id: str, content: bytes) -> None:
        if tree_id in wanted:
            store.write("tree", content)
            wanted.discard(tree_id)

    with suppress(ValueError):  # a directory that the history cannot have
        if wanted:
            hash_files(files, keep, keep_tree)
