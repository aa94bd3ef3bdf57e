"""The ledger of a workspace: one bare git repository, outside the user's tree.

::

    refs/heads/main                 the line of the workspace; plain `git log` reads it
    refs/wink/forks/<name>          the lines of its forks
    refs/wink/discarded/<time>-...  what was thrown away
    wink/lines/<line>/              each line's writer lock and pending mark
    wink/at-work                    locked by every writer, see ``lock.SharedLock``

``Ledger`` opens; ``Branch`` reads one line, without any lock; ``BranchWriter`` adds to it.
"""

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
from .history import MAIN_BRANCH, Branch, LogEntry
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
    """A workspace's history and everything that keeps it in order.

    Args:
        directory: The git directory, made by ``create``.
        durable: Whether what is committed survives a loss of power, not only the death of
            the process; each commit then waits for the device.
        clock: The time, for the names of locks.
        other_trees: Asked, before objects are deleted, for the roots of trees that are to stay
            though no line leads to them.

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
        self._room_bytes: int | None = None
        self._n_unpacked: int | None = None
        self._maintained_at = (0, 0)
        self._tidied_at = 0

    @classmethod
    def create(cls, directory: Path) -> None:
        """Make an empty ledger; *directory* must not exist, its parent must.

        Raises:
            LedgerError: If it cannot be made; then nothing is there.
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
        """Give back every lock and file."""
        for writer in self._writers:
            writer.close()
        if self._shared is not None:
            self._shared.release()
        self.store.repository.close()

    # Lines

    def branch(self, name: str = MAIN_BRANCH) -> Branch:
        """A line of history, to read: the main one or a fork.

        Raises:
            EntryMissingError: If there is no such fork.
        """
        return Branch(self.store, self._known_ref(name))

    def _known_ref(self, name: str) -> str:
        ref = _ref_of(name)
        if name != MAIN_BRANCH and self.store.repository.ref(ref) is None:
            raise EntryMissingError(
                f"there is no fork {name!r}",
                hint=f"There are: {', '.join(self.forks()) or 'none'}.",
            )
        return ref

    def write(self, name: str = MAIN_BRANCH) -> BranchWriter:
        """A line of history, to add to; nobody else can until it is closed.

        Git's locks that a writer left when it died are deleted first. Its pending mark stays;
        see ``BranchWriter.pending``.

        Raises:
            EntryMissingError: If there is no such fork.
            LedgerBusyError: If somebody else has it open; the message says who.
        """
        ref = self._known_ref(name)
        self._at_work()
        place = self._directory / "wink" / "lines" / name
        what = "the workspace" if name == MAIN_BRANCH else f"the fork {name!r}"
        lock = WriterLock(place / "lock", what=what, now=self._clock.now())
        try:
            if lock.owner_died:
                self._delete_stale_locks(ref)
            writer = BranchWriter(
                self.store,
                ref,
                place=place,
                lock=lock,
                refs=self._refs,
            )
        except BaseException:
            lock.abandon()
            raise
        self._writers.append(writer)
        return writer

    def _delete_stale_locks(self, ref: str) -> None:
        with self._at_work().alone() as is_alone:
            delete_stale_locks(self._directory, *([] if is_alone else [ref]))
        self.store.forget()

    def _at_work(self) -> SharedLock:
        """The lock that keeps others from deleting objects, taken when it is first needed."""
        if self._shared is None or not self._shared.is_held:
            self._shared = SharedLock(self._directory / "wink" / "at-work")
        return self._shared

    # Forks

    def forks(self) -> tuple[str, ...]:
        """The names of all forks, sorted."""
        refs = self.store.repository.refs(_FORK_REFS)
        return tuple(sorted(ref.removeprefix(_FORK_REFS) for ref in refs))

    def fork(self, name: str, entry: LogEntry) -> Branch:
        """A new line that has the history up to *entry*, and then its own.

        Raises:
            UsageError: If *name* is taken, or cannot be one.
            LedgerError: If it cannot be written.
        """
        ref = _ref_of(name)
        if name == MAIN_BRANCH or name in self.forks():
            raise UsageError(f"there is a line {name!r} already", hint="Choose another name.")
        self._at_work()
        self._refs.move(ref, expected=None, target=entry.id)
        return Branch(self.store, ref)

    def delete_fork(self, name: str) -> None:
        """Forget a fork that nobody has open; what only it had goes with the next maintenance.

        Raises:
            EntryMissingError: If there is no such fork.
            LedgerBusyError: If somebody has it open.
        """
        if name == MAIN_BRANCH:
            raise UsageError("the main line is no fork", hint="Delete the workspace instead.")
        with self.write(name) as writer:
            self.store.repository.delete_ref(writer.ref)
            writer.finish_pending()

    def discarded(self) -> tuple[Discarded, ...]:
        """What was thrown away and is still kept, newest first."""
        refs = self.store.repository.refs(DISCARDED_REFS)
        found = [discarded_at(self.store, ref, commit_id) for ref, commit_id in refs.items()]
        return tuple(sorted(found, key=lambda discarded: discarded.at, reverse=True))

    def forgotten(self, branch: Branch) -> Forgotten | None:
        """What the retention made *line* forget last, ``None`` if nothing."""
        return forgotten_in(self._directory).get(branch.ref)

    # Room

    def disk_bytes(self) -> int:
        """What all objects together take on the disk; costs their number."""
        with ledger_failures("the room that the ledger takes cannot be told"):
            return disk_bytes(self.store)

    def is_due(self, retention: Retention) -> bool:
        """Whether ``maintain`` has something to do; cheap.

        It is, when the budget is used up, and when thousands of objects were added one by one, by
        whichever process: what they cost the first call of the next would grow without end.
        """
        n_objects = self.store.n_written - self._maintained_at[0]
        if self._n_unpacked is None:
            with ledger_failures("the objects of the ledger cannot be counted"):
                there = n_unpacked(self.store, few=_DUE_AFTER_OBJECTS)
            self._n_unpacked = max(0, there - n_objects)
        return self._n_unpacked + n_objects > _DUE_AFTER_OBJECTS or self.is_over_budget(retention)

    def is_over_budget(self, retention: Retention) -> bool:
        """Whether old history has to go; cheap, for asking after every call."""
        n_bytes = self.store.written_bytes - self._maintained_at[1]
        # The heads alone may be above the budget, which is no reason to do it every time.
        if n_bytes <= retention.budget_bytes // _DUE_AFTER_PART:
            return False
        if self._room_bytes is None:
            self._room_bytes = self.disk_bytes() - n_bytes
        return self._room_bytes + n_bytes > retention.budget_bytes

    def tidy(self, retention: Retention, *, at_end: bool = False) -> None:
        """Do what is due of what ``maintain`` does, and no more; between calls only.

        History is forgotten when there is too much of it. Where thousands of objects were added
        one by one they are packed, at a cost that follows their number, and everything is put in
        order only if that has left many packs, or *retention* keeps no entries that old.

        Args:
            retention: What is kept.
            at_end: Whether time matters less: what earlier processes left to pack counts, too,
                and a few packs are many.

        Raises:
            LedgerError: As ``maintain``.
        """
        is_much = self.store.n_written - self._tidied_at > _DUE_AFTER_OBJECTS
        if self.is_over_budget(retention):
            self.maintain(retention)
            return
        many = (is_much or at_end) and has_many_packs(self.store, at_end=at_end)
        if is_much or many or (at_end and self.is_due(retention)):
            self._tidied_at = self.store.n_written  # also if others are at work
            if many or has_too_old(self.store, retention, self._clock.now()):
                self.maintain(retention)
                return
            try:
                self._pack()
            except LedgerError:  # what is damaged may be of no use to anybody
                self.maintain(retention)

    def _pack(self) -> None:
        try:
            with self._at_work().alone() as is_alone:
                if not is_alone:
                    return
                with ledger_failures("objects cannot be packed"):
                    pack_loose(self.store)
        finally:
            self.store.forget()
        self._n_unpacked, self._maintained_at = 0, (self.store.n_written, self._maintained_at[1])

    def maintain(self, retention: Retention, *, steps: Steps = no_steps) -> Maintenance:
        """Forget what *retention* does not keep, pack the rest; between calls only.

        *steps* is told how far it is.

        Raises:
            LedgerError: If a call is under way, or something cannot be read, written or deleted.
        """
        if any(writer.is_held and writer.pending() is not None for writer in self._writers):
            raise LedgerError("a call is under way", hint="Wait until it is settled.")
        try:
            with self._at_work().alone() as is_alone:
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
        self._room_bytes, self._n_unpacked = done.disk_bytes, 0
        self._maintained_at = (self.store.n_written, self.store.written_bytes)
        return done


def _ref_of(name: str) -> str:
    if name == MAIN_BRANCH:
        return f"refs/heads/{MAIN_BRANCH}"
    if len(name) > _MAX_FORK_NAME_CHARS or not _FORK_NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a fork",
            hint="Use up to 64 letters and digits, with single '.', '_' or '-' between them.",
        )
    return _FORK_REFS + name
