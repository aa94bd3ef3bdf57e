"""The ledger of a workspace: one bare git repository, outside the user's tree.

::

    refs/heads/main                 the main branch; plain `git log` reads it
    refs/wink/forks/<name>          the forks
    refs/wink/discarded/<time>-...  the discards
    wink/lines/<branch>/            the writer lock and pending mark of a branch
    wink/at-work                    locked by every writer, see ``lock.SharedLock``

``Ledger`` opens them. ``Branch`` reads without a lock, ``BranchWriter`` appends.
"""  # language: allow, wink/lines is a name on disk

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import Final

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.errors import EntryMissingError, LedgerError, UsageError

from .collection import (
    Steps,
    disk_bytes,
    has_many_packs,
    n_unpacked,
    no_steps,
    pack_loose,
)
from .discards import DISCARDED_REFS, Discarded, discarded_at
from .disk import ledger_failures
from .history import BRANCH_FILES, MAIN_BRANCH, Branch, LogEntry
from .lock import SharedLock, WriterLock
from .objects import ObjectStore
from .refs import RefMover, delete_stale_locks
from .retention import (
    Forgotten,
    Maintenance,
    Retention,
    forgotten_in,
    has_too_old,
    maintain,
)
from .writing import BranchWriter

__all__ = ["Ledger"]

_log = logging.getLogger(__name__)

_FORK_REFS: Final = "refs/wink/forks/"
_FORK_NAME = re.compile(r"(?!main$)[A-Za-z0-9](?:[._-]?[A-Za-z0-9])*(?<!\.lock)")
_MAX_FORK_NAME_CHARS: Final = 64
_DUE_AFTER_PART: Final = 8
_DUE_AFTER_OBJECTS: Final = 5_000


class Ledger:
    """A workspace's history and its maintenance.

    Args:
        directory: The git directory, made by ``create``.
        durable: Whether commits survive a loss of power, not only the death of the process;
            each commit then waits for the device.
        clock: The time, for the text of locks and the retention.
        other_trees: Called before objects are deleted; returns the roots of trees to keep though
            no ref leads to them.

    Attributes:
        store: The objects.

    Raises:
        LedgerError: If there is no ledger, or it cannot be opened.
    """

    def __init__(
        self,
        directory: Path,
        *,
        durable: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        other_trees: Callable[[], Collection[str]] = tuple,
    ) -> None:
        from .repository import GitRepository  # pygit2 takes 60 ms, so only here

        self._directory = directory
        self._clock = clock
        self._other_trees = other_trees
        self.store = ObjectStore(GitRepository(directory, durable=durable))
        self._refs = RefMover(self.store.repository, durable=durable)
        self._shared: SharedLock | None = None
        self._writers: list[BranchWriter] = []
        self._disk_bytes: int | None = None
        self._n_unpacked: int | None = None
        self._maintained_at = (0, 0)
        self._n_written_at_last_pack = 0

    @classmethod
    def create(cls, directory: Path) -> None:
        """Create an empty ledger; *directory* must not exist, its parent must.

        Raises:
            LedgerError: If it cannot be created; *directory* does not exist then.
        """
        from .repository import GitRepository

        GitRepository.create(directory)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release every lock and close every file."""
        for writer in self._writers:
            writer.close()
        if self._shared is not None:
            self._shared.release()
        self.store.repository.close()

    # Branches

    def branch(self, name: str = MAIN_BRANCH) -> Branch:
        """Open the main branch or a fork for reading.

        Raises:
            EntryMissingError: If there is no such fork.
        """
        return Branch(self.store, self._known_ref(name))

    def _known_ref(self, name: str) -> str:
        ref = _ref_of(name)
        if name != MAIN_BRANCH and self.store.repository.ref(ref) is None:
            raise EntryMissingError(
                f"there is no fork {name!r}",
                hint=f"The forks are: {', '.join(self.forks()) or 'none'}.",
            )
        return ref

    def write(self, name: str = MAIN_BRANCH) -> BranchWriter:
        """Open a branch for writing; no other process can until it is closed.

        Git's locks that a dead writer left are deleted first. Its pending mark stays; see
        ``BranchWriter.pending``.

        Raises:
            EntryMissingError: If there is no such fork.
            LedgerBusyError: If another process has it open; the message names it.
        """
        ref = self._known_ref(name)
        self._shared_lock()
        directory = self._directory / BRANCH_FILES / name
        what = "the workspace" if name == MAIN_BRANCH else f"the fork {name!r}"
        lock = WriterLock(directory / "lock", what=what, now=self._clock.now())
        try:
            if lock.owner_died:
                self._delete_stale_locks(ref)
            writer = BranchWriter(
                self.store,
                ref,
                directory=directory,
                lock=lock,
                refs=self._refs,
            )
        except BaseException:
            lock.abandon()
            raise
        self._writers.append(writer)
        return writer

    def _delete_stale_locks(self, ref: str) -> None:
        with self._shared_lock().alone() as is_alone:
            delete_stale_locks(self._directory, *([] if is_alone else [ref]))
        self.store.forget()

    def _shared_lock(self) -> SharedLock:
        """The lock that stops others from deleting objects; taken when it is first needed."""
        if self._shared is None or not self._shared.is_held:
            self._shared = SharedLock(self._directory / "wink" / "at-work")
        return self._shared

    # Forks

    def forks(self) -> tuple[str, ...]:
        """The names of all forks, sorted."""
        refs = self.store.repository.refs(_FORK_REFS)
        return tuple(sorted(ref.removeprefix(_FORK_REFS) for ref in refs))

    def fork(self, name: str, entry: LogEntry) -> Branch:
        """Create a branch at *entry*.

        Raises:
            UsageError: If *name* is taken or invalid.
            LedgerError: If it cannot be written.
        """
        ref = _ref_of(name)
        if name == MAIN_BRANCH or name in self.forks():
            raise UsageError(f"the branch {name!r} exists already", hint="Choose another name.")
        self._shared_lock()
        self._refs.move(ref, expected=None, target=entry.id)
        return Branch(self.store, ref)

    def delete_fork(self, name: str) -> None:
        """Delete a fork; the next maintenance deletes objects that only it had.

        Raises:
            EntryMissingError: If there is no such fork.
            LedgerBusyError: If a process has it open.
        """
        if name == MAIN_BRANCH:
            raise UsageError(
                "the main branch cannot be deleted", hint="Delete the workspace instead."
            )
        with self.write(name) as writer:
            self.store.repository.delete_ref(writer.ref)
            writer.finish_pending()

    def discarded(self) -> tuple[Discarded, ...]:
        """The discards that are still kept, newest first."""
        refs = self.store.repository.refs(DISCARDED_REFS)
        found = [discarded_at(self.store, ref, commit_id) for ref, commit_id in refs.items()]
        return tuple(sorted(found, key=lambda discarded: discarded.at, reverse=True))

    def forgotten(self, branch: Branch) -> Forgotten | None:
        """What retention last removed from *branch*, ``None`` if nothing."""
        return forgotten_in(self._directory).get(branch.ref)

    # Maintenance

    def disk_bytes(self) -> int:
        """The size of all objects on disk; costs the number of loose objects."""
        with ledger_failures("the size of the ledger cannot be read"):
            return disk_bytes(self.store)

    def is_due(self, retention: Retention) -> bool:
        """Whether ``maintain`` has something to do; cheap.

        It has if the budget is used up, or if any process added thousands of loose objects: their
        cost at the first call of the next process would grow without limit.
        """
        n_objects = self.store.n_written_loose - self._maintained_at[0]
        if self._n_unpacked is None:
            with ledger_failures("the objects of the ledger cannot be counted"):
                n_present = n_unpacked(self.store, few=_DUE_AFTER_OBJECTS)
            self._n_unpacked = max(0, n_present - n_objects)
        return self._n_unpacked + n_objects > _DUE_AFTER_OBJECTS or self.is_over_budget(retention)

    def is_over_budget(self, retention: Retention) -> bool:
        """Whether old history must be deleted; cheap enough to call after every call."""
        n_bytes = self.store.written_bytes - self._maintained_at[1]
        # The heads alone may exceed the budget; do not try again after every call.
        if n_bytes <= retention.budget_bytes // _DUE_AFTER_PART:
            return False
        if self._disk_bytes is None:
            self._disk_bytes = self.disk_bytes() - n_bytes
        return self._disk_bytes + n_bytes > retention.budget_bytes

    def maintain_if_due(self, retention: Retention, *, at_end: bool = False) -> None:
        """Do only the part of ``maintain`` that is due; between calls only.

        Runs ``maintain`` if the history is over budget. If thousands of loose objects were added,
        packs them, which costs their number; or runs ``maintain`` if there are many packs or
        entries older than *retention* keeps.

        Args:
            retention: What is kept.
            at_end: Whether the workspace is closing and time matters less: objects that earlier
                processes left unpacked count too, and the limit on packs is lower.

        Raises:
            LedgerError: As ``maintain``.
        """
        is_much = self.store.n_written_loose - self._n_written_at_last_pack > _DUE_AFTER_OBJECTS
        if self.is_over_budget(retention):
            self.maintain(retention)
            return
        many = (is_much or at_end) and has_many_packs(self.store, at_end=at_end)
        if is_much or many or (at_end and self.is_due(retention)):
            self._n_written_at_last_pack = (
                self.store.n_written_loose
            )  # also if other processes are writing
            if many or has_too_old(self.store, retention, self._clock.now()):
                self.maintain(retention)
                return
            try:
                self._pack()
            except LedgerError:  # a damaged object may be unreachable
                self.maintain(retention)

    def _pack(self) -> None:
        try:
            with self._shared_lock().alone() as is_alone:
                if not is_alone:
                    return
                with ledger_failures("objects cannot be packed"):
                    pack_loose(self.store)
        finally:
            self.store.forget()
        self._n_unpacked, self._maintained_at = (
            0,
            (self.store.n_written_loose, self._maintained_at[1]),
        )

    def maintain(self, retention: Retention, *, steps: Steps = no_steps) -> Maintenance:
        """Delete history that *retention* does not keep, pack the rest; between calls only.

        *steps* receives the progress.

        Raises:
            LedgerError: If a call is in progress, or an object cannot be read, written or deleted.
        """
        if any(writer.is_held and writer.pending() is not None for writer in self._writers):
            raise LedgerError("a call is in progress", hint="Wait until it is finished.")
        try:
            with self._shared_lock().alone() as is_alone:
                if not is_alone:
                    return Maintenance(ran=False)
                with ledger_failures("old history cannot be deleted"):
                    done = maintain(
                        self.store,
                        retention,
                        self._clock.now(),
                        trees=self._other_trees(),
                        steps=steps,
                    )
        finally:
            self.store.forget()
        if done.forgotten:
            _log.warning("%s", done.forgotten)
        self._disk_bytes, self._n_unpacked = done.disk_bytes, 0
        self._maintained_at = (self.store.n_written_loose, self.store.written_bytes)
        return done


def _ref_of(name: str) -> str:
    if name == MAIN_BRANCH:
        return f"refs/heads/{MAIN_BRANCH}"
    if len(name) > _MAX_FORK_NAME_CHARS or not _FORK_NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a valid name for a fork",
            hint="Use up to 64 letters and digits, with single '.', '_' or '-' between them.",
        )
    return _FORK_REFS + name
