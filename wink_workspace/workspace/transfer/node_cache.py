"""Work on a workspace at another machine, in the wire form of bundles.

A *node* runs code on forks of a workspace that it does not have. Three messages travel:

1. ``pack_base``: an entry with all of its files, to a node that does not have these files.
2. ``pack_start``: an entry without its files, for each fork. To continue a branch that grew since,
   ``pack_entries`` adds the entries after it.
3. ``pack_result``: what the fork added, back to the origin.

All but the first are thin, so a second fork of the same files needs a few KiB.

``NodeCache`` keeps the bases of a node: each is a workspace, found by the tree of its files, and
each start makes a fork of it. So forks share the objects, and on an overlay the checkout.

Rule 1: a base is complete or absent, and is made by one process at a time.
Rule 2: a base that is in use is not deleted; the others are deleted from the one that was used
least recently, until all of them fit into the budget.
Rule 3: a fork is opened, and deleted, under one lock of its base. So a fork that no process has
open is one whose work is over, or whose process died.
Rule 4: a result is only added to the origin. The caller makes it visible by one new ref, so that a
result that arrives twice, or late, is refused there.
"""

from __future__ import annotations

import io
import os
import re
import secrets
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.errors import BundleError, LedgerBusyError, LedgerError, UsageError
from wink_workspace.filesystem.disk.descriptors import Descriptor
from wink_workspace.ledger import (
    BundleLimits,
    Ledger,
    LogEntry,
    read_bundle,
    read_entry,
    write_bundle,
)
from wink_workspace.workspace.branch.recorded_branch import IMPORTED_BRANCH, delete_fork, forks_of
from wink_workspace.workspace.history.workspace_reader import ReadableHistory
from wink_workspace.workspace.place.shared_folders import lock_file
from wink_workspace.workspace.place.storage import (
    WorkspaceFolder,
    WorkspaceInfo,
    WorkspaceStorage,
    is_temporary,
    leftover_forks,
)
from wink_workspace.workspace.place.workspace_config import WorkspaceConfig
from wink_workspace.workspace.workspace import Workspace

from .bundle_files import manifest_of, new_workspace

W = TypeVar("W", bound=Workspace)

_MAIN: Final = "refs/heads/main"
_IMPORTED: Final = f"refs/wink/forks/{IMPORTED_BRANCH}"
_TREE = re.compile("[0-9a-f]{40}")
_KEEPS_ALL: Final = 1 << 62
"""Retention would change where histories begin, which only ``NodeCache`` may do."""


def pack_base(
    workspace: ReadableHistory,
    file: BinaryIO,
    *,
    entry: LogEntry | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Write an entry with all of its files, by default the newest, for ``NodeCache.add``.

    Raises:
        LedgerError: If an object cannot be read.
    """
    entry = entry or workspace.head
    refs = {_MAIN: entry.id, _IMPORTED: entry.id}
    about = manifest_of(workspace.info)
    store = workspace._ledger.store  # noqa: SLF001 - the same package
    write_bundle(store, file, refs, about=about, at=clock.now(), only_heads=True)


def pack_start(
    workspace: ReadableHistory, *, entry: LogEntry | None = None, clock: Clock = SYSTEM_CLOCK
) -> bytes:
    """An entry for a node that has its files, by default the newest; for ``NodeCache.start``.

    Raises:
        LedgerError: If an object cannot be read.
    """
    entry = entry or workspace.head
    store, file = workspace._ledger.store, io.BytesIO()  # noqa: SLF001 - the same package
    write_bundle(
        store,
        file,
        {_MAIN: entry.id},
        about={},
        at=clock.now(),
        files=entry.files,
        only_heads=True,
    )
    return file.getvalue()


def pack_result(
    workspace: Workspace,
    since: LogEntry,
    *,
    about: Mapping[str, object] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> bytes:
    """The entries after *since*, for ``receive_result``; edits that no call made come with them.

    Args:
        workspace: The fork.
        since: The entry at which it began.
        about: Added to the result; must have a JSON form.
        clock: The time.

    Raises:
        LedgerError: If an object cannot be read, or an edit cannot be committed.
    """
    workspace.commit_edits()
    return pack_entries(workspace, workspace.head, since, about=about, clock=clock)


def pack_entries(
    workspace: ReadableHistory,
    head: LogEntry,
    since: LogEntry,
    *,
    about: Mapping[str, object] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> bytes:
    """The entries after *since* up to *head*, of any branch.

    Raises:
        LedgerError: If an object cannot be read.
    """
    store, file = workspace._ledger.store, io.BytesIO()  # noqa: SLF001 - the same package
    refs = {_MAIN: head.id}
    write_bundle(store, file, refs, about=about or {}, at=clock.now(), since=[since.id])
    return file.getvalue()


def receive_result(
    ledger: Ledger, result: bytes, since: LogEntry, *, limits: BundleLimits | None = None
) -> tuple[LogEntry, Mapping[str, Any]]:
    """Add a result to the ledger of its origin; its newest entry, and what the node added.

    No ref leads to it yet: make one at once, for example with ``place_result``.

    Raises:
        BundleError: If it is damaged, not allowed, or does not follow *since*.
        LedgerError: If it cannot be written.
    """
    found = read_bundle(
        ledger.store, io.BytesIO(result), limits=limits or BundleLimits(), since=[since.id]
    )
    head = read_entry(ledger.store, found.refs.get(_MAIN, since.id))
    if found.boundary or set(found.refs) != {_MAIN} or not _follows(ledger, head, since):
        raise BundleError(
            f"the result does not follow entry {since.number} of this history",
            hint="Send it to the workspace that the fork was made of.",
        )
    return head, found.about


def place_result(
    folder: WorkspaceFolder, ledger: Ledger, branch: str, *, since: LogEntry, head: LogEntry
) -> None:
    """Move the fork *branch* from *since* to *head*, or make it there if it was deleted.

    Raises:
        UsageError: If the fork was opened here, so that it has files.
        LedgerBusyError: If a process has it open.
        LedgerMovedError: If it is not at *since*.
        LedgerError: If it cannot be written.
    """
    files = folder.of_branch(branch)

    def require_no_files() -> None:
        if files.upper.is_dir() or files.files.is_dir():
            raise UsageError(
                f"the fork {branch!r} was opened, so a result cannot be added to it",
                hint="Put the result on another fork.",
            )

    if ledger.has_fork(branch):
        ledger.advance(branch, since=since, to=head, first=require_no_files)
    else:
        ledger.store.sync()
        ledger.fork(branch, head)


def _follows(ledger: Ledger, head: LogEntry, since: LogEntry) -> bool:
    entry = head
    while entry.id != since.id:
        if entry.parent is None or entry.number <= since.number:
            return False
        entry = read_entry(ledger.store, entry.parent)
    return True


def _keeping_all(config: WorkspaceConfig) -> WorkspaceConfig:
    retention = replace(config.retention, max_age_days=36_500, budget_bytes=_KEEPS_ALL)
    return replace(config, retention=retention)


class NodeCache:
    """The bases of a node, each a workspace without a source.

    Args:
        directory: Where they are; the processes of one node share it.
        budget_bytes: How much they may take on the disk, without those that are in use.
        clock: The time.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        budget_bytes: int = 10 * 2**30,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._directory = Path(directory)
        self._budget_bytes = budget_bytes
        self._clock = clock
        self.storage = WorkspaceStorage(self._directory, clock=clock)
        self.config = _keeping_all(WorkspaceConfig())

    def has(self, files: str) -> bool:
        """Whether there is a base with the tree *files*."""
        return self._info(files) is not None

    def add(self, files: str, bundle: BinaryIO, *, limits: BundleLimits | None = None) -> None:
        """Add the base with the tree *files*, unless there is one; then collect old ones.

        Raises:
            BundleError: If the bundle is damaged, not allowed, or has other files.
            LedgerError: If it cannot be written; there is no base then.
        """
        with self._locked(files):
            if self._info(files) is None:
                info = new_workspace(
                    bundle, self.storage, limits=limits or BundleLimits(), clock=self._clock
                )
                self._name(files, info)
            self._collect(keep=files)

    @contextmanager
    def start(
        self,
        files: str,
        start: bytes,
        *,
        more: bytes = b"",
        config: WorkspaceConfig | None = None,
        limits: BundleLimits | None = None,
        workspace_type: type[W] = Workspace,
    ) -> Generator[tuple[W, LogEntry]]:
        """A fork of the base with the tree *files*, open; deleted at the end of the block.

        Yields the fork and the entry at which it begins.

        Args:
            files: The tree.
            start: The entry with this tree, from ``pack_start``.
            more: Entries after it, from ``pack_entries``; the fork then begins at their newest.
            config: The settings of the fork, except for its retention.
            limits: What the messages may have.
            workspace_type: A class derived from ``Workspace``, which opens the fork.

        Raises:
            UsageError: If there is no such base: send it again.
            BundleError: If a message is damaged, not allowed, or belongs to other files.
            LedgerError: If it cannot be written.
        """
        with self._locked(files, shared=True):
            with self._locked(files, suffix=".forks"):
                info = self._info(files)
                if info is None:
                    raise UsageError(
                        f"this node has no base with the files {files}",
                        hint="Send the base again, then start.",
                    )
                folder = self.storage.folder(info.id)
                name = f"work-{secrets.token_hex(6)}"
                with Ledger(folder.ledger, clock=self._clock) as ledger:
                    self._delete_closed_forks(folder, ledger)
                    entry = self._adopt(ledger, files, name, start, more, limits or BundleLimits())
                fork = workspace_type(
                    folder,
                    branch=name,
                    config=self.config if config is None else _keeping_all(config),
                    clock=self._clock,
                )
            os.utime(self._path(files))
            try:
                with fork:
                    yield fork, entry
            finally:
                with self._locked(files, suffix=".forks"), Ledger(folder.ledger) as ledger:
                    self._delete_closed_forks(folder, ledger)

    @staticmethod
    def _adopt(
        ledger: Ledger, files: str, name: str, start: bytes, more: bytes, limits: BundleLimits
    ) -> LogEntry:
        found = read_bundle(ledger.store, io.BytesIO(start), limits=limits, files=files)
        entry = read_entry(ledger.store, found.refs[_MAIN])
        if entry.files != files:
            raise BundleError(
                f"the start is for the files {entry.files}, not {files}",
                hint="Start with the base of the same entry.",
            )
        if more:
            entry, _ = receive_result(ledger, more, entry, limits=limits)
        ledger.adopt({f"refs/wink/forks/{name}": entry.id}, found.boundary)
        return entry

    @staticmethod
    def _delete_closed_forks(folder: WorkspaceFolder, ledger: Ledger) -> None:
        """Delete the forks that no process has open: their work is over, or its process died."""
        forks = forks_of(ledger)
        # A process may be about to open a temporary fork of its own
        closed = [name for name in forks if not is_temporary(name)]
        for name in (*closed, *leftover_forks(forks)):
            with suppress(LedgerBusyError):
                delete_fork(folder, ledger, name)

    # The names of bases

    def _path(self, files: str, suffix: str = "") -> Path:
        if not _TREE.fullmatch(files):
            raise UsageError(f"{files!r} is not the id of a tree", hint="Use `LogEntry.files`.")
        return self._directory / "trees" / f"{files}{suffix}"

    def _info(self, files: str) -> WorkspaceInfo | None:
        with suppress(OSError, UsageError):
            return self.storage.folder(self._path(files).read_text()).info()
        return None

    def _name(self, files: str, info: WorkspaceInfo) -> None:
        with Ledger(self.storage.folder(info.id).ledger) as ledger:
            head = ledger.branch().head
        if head is None or head.files != files:
            Workspace.delete(info.id, storage=self.storage)
            raise BundleError(
                f"the base does not have the files {files}", hint="Send the base of that entry."
            )
        unfinished = self._path(files, ".new")
        unfinished.write_text(info.id)
        unfinished.replace(self._path(files))

    @contextmanager
    def _locked(
        self, files: str, *, shared: bool = False, suffix: str = ".lock", waits: bool = True
    ) -> Generator[None]:
        """Hold the lock of a base: exclusively to make or delete it, shared to use it."""
        path = self._path(files, suffix)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = lock_file(path, shared=shared, waits=waits)
        if lock is None:
            raise LedgerBusyError(f"{path} is in use, or belongs to another user")
        with Descriptor(lock):
            yield

    def _collect(self, *, keep: str) -> None:
        """Delete the bases that were used least recently, as long as all exceed the budget."""
        sizes: dict[Path, int] = {}
        used: dict[Path, int] = {}
        for path in (self._directory / "trees").iterdir():
            if _TREE.fullmatch(path.name):
                with suppress(FileNotFoundError, UsageError, LedgerError):  # just deleted
                    sizes[path] = self._size_bytes(path.name)
                    used[path] = path.stat().st_mtime_ns
        total = sum(map(sizes.__getitem__, used))
        for path in sorted(used, key=used.__getitem__):
            if total <= self._budget_bytes:
                return
            if path.name != keep and self._delete(path):
                total -= sizes[path]

    def _delete(self, path: Path) -> bool:
        """Delete a base; ``False`` if it is in use."""
        with suppress(LedgerBusyError), self._locked(path.name, waits=False):
            info = self._info(path.name)
            if info is not None:
                Workspace.delete(info.id, storage=self.storage)
            path.unlink(missing_ok=True)
            return True
        return False

    def _size_bytes(self, files: str) -> int:
        """The size of the objects of a base; its checkout, if there is one, takes about as much."""
        info = self._info(files)
        if info is None:
            return 0
        with Ledger(self.storage.folder(info.id).ledger) as ledger:
            return ledger.disk_bytes()
