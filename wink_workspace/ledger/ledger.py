"""The ledger of a workspace: one bare git repository, outside the user's tree.

::

    refs/heads/main                 the main branch; plain `git log` reads it
    refs/wink/forks/<name>          the forks
    refs/wink/discarded/<time>-...  the discards
    refs/wink/documents/<kind>/...  documents that are not history, see ``documents``
    wink/lines/<branch>/            the writer lock and pending mark of a branch
    wink/open/                      new objects, see ``open_packs``
    wink/at-work                    locked by every writer, see ``lock.SharedLock``
    wink/deletion, maintenance      see ``leases``
    wink/discards                   see ``leases``

``Ledger`` opens them. ``Branch`` reads without a lock, ``BranchWriter`` appends.
"""  # language: allow, wink/lines is a name on disk

from __future__ import annotations

import logging
import math
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wink_workspace._descriptors import ClosedAfterBlock
from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.errors import (
    EntryMissingError,
    LedgerBusyError,
    LedgerDamagedError,
    LedgerError,
    UsageError,
)
from wink_workspace.processes import OwnProcess

from .entries.discards import DISCARDED_REFS, Discarded, discarded_at
from .entries.documents import Documents
from .entries.history import BRANCH_FILES, Branch, LogEntry, read_entry
from .store.compression import run_steps
from .store.disk import is_disk_full, ledger_failures, sync_filesystem, write_whole
from .store.leases import DeletionLock, MaintenanceLease
from .store.lock import MAX_LOCK_TRIES, SharedLock, WriterLock, never_in_place
from .store.objects import ObjectStore
from .store.refs import MAIN_BRANCH, RefMover, delete_stale_locks
from .upkeep.collection import (
    GarbageCollection,
    Steps,
    check_complete,
    disk_bytes,
    has_many_packs,
    joining,
    no_steps,
)
from .upkeep.retention import (
    Forgotten,
    Maintenance,
    Retention,
    forgotten_in,
    has_too_old,
    maintaining,
)

if TYPE_CHECKING:
    from .writing import BranchWriter


_log = logging.getLogger(__name__)

_FORK_REFS: Final = "refs/wink/forks/"
_FORK_NAME = re.compile(r"(?!main$)[A-Za-z0-9](?:[._-]?[A-Za-z0-9])*(?<!\.lock)")
_MAX_FORK_NAME_CHARS: Final = 64
STEP_SECONDS: Final = 0.005
"""How long a step of maintenance between two calls takes."""
_MEASURED_AFTER_PART: Final = 4_096
_GROWTH_PART: Final = 256
_EXCESS_PART: Final = 16
_PAUSES_PER_LOOK: Final = 16
_BEHIND: Final = 3
_LOOKED_AFTER: Final = timedelta(hours=1)


class Ledger(ClosedAfterBlock):
    """A workspace's history and its maintenance.

    Args:
        directory: The git directory, made by ``create``.
        durable: Whether commits survive a loss of power, not only the death of the process;
            each commit then waits for the device.
        clock: The time, for the text of locks and the retention.
        other_trees: Called whenever objects are about to be deleted; returns the roots of trees to
            keep though no ref leads to them.

    Attributes:
        store: The objects.
        is_kept: Whether ``close`` waits for the device; not if the ledger is about to be deleted.

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
        from .store.repository import GitRepository

        self._directory = directory
        self._clock = clock
        self._other_trees = other_trees
        self._deletion = DeletionLock(directory / "wink" / "deletion")
        self.store = ObjectStore(
            GitRepository(
                directory,
                durable=durable,
                have_others_deleted=self._deletion.have_others_deleted,
            )
        )
        self._refs = RefMover(
            self.store.repository,
            lock=self._deletion,
            check=self._check_new_commit,
            durable=durable,
        )
        self._shared: SharedLock | None = None
        self._writers: list[BranchWriter] = []
        self._lease = MaintenanceLease(directory / "wink" / "maintenance")
        self._sealing: Iterator[None] | None = None
        self._job: Generator[None, None, object] | None = None
        self._maybe_due = True
        self._looked_at: datetime | None = None
        self._process = OwnProcess(f"the ledger {directory}")
        self.is_kept = True
        self._n_flushed = 0
        self._disk_bytes = self._unavoidable_bytes = 0
        self._measured_at = 0  # what this process had written

    @classmethod
    def create(cls, directory: Path) -> None:
        """Create an empty ledger; *directory* must not exist, its parent must.

        Raises:
            LedgerError: If it cannot be created; *directory* does not exist then.
        """
        from .store.repository import GitRepository

        GitRepository.create(directory)

    def close(self) -> None:
        """Release every lock and close every file.

        Raises:
            LedgerError: If the file of a lock cannot be written; everything is released anyway.
        """
        with ExitStack() as closing:  # each step runs though another one fails; the last is first
            closing.callback(self.store.close)
            closing.callback(self._deletion.close)
            if self._shared is not None:
                closing.callback(self._shared.release)
            for writer in reversed(self._writers):
                closing.callback(writer.close)
            closing.callback(self.flush)
            closing.callback(self._end_job)

    def _end_job(self) -> None:
        if self._job is not None:
            self._abandon_job()
            if self._shared is not None and self._shared.is_held:  # not in a forked child
                with suppress(LedgerError):  # it expires
                    self._lease.end()

    def flush(self) -> None:
        """Pack new objects; wait until what was written would survive a loss of power.

        That is everything on the filesystem, so also the files of the workspace. A failure is
        logged, as the next writer packs the objects.
        """
        if not self.is_kept or self._n_flushed == self.store.n_written:
            return
        synced: list[Path] = []

        def flush(path: Path) -> None:
            sync_filesystem(path)
            synced.append(path)

        try:
            with ledger_failures("what was written cannot be synced"):
                for writer in self._writers:
                    writer.prepare_flush()
                self.store.open_packs.seal(flush=flush)
                if not synced and self._process.is_present:
                    flush(self._directory)
            self._n_flushed = self.store.n_written
        except LedgerError as error:
            _log.warning("New objects cannot be packed: %s", error)

    def _check_new_commit(self, commit_id: str, before: str | None) -> None:
        """Check a commit after another process deleted objects that it may have used."""
        self.store.forget()
        try:
            check_complete(self.store, commit_id, before)
        except (LedgerDamagedError, EntryMissingError) as error:
            raise LedgerError(
                f"old history that this change uses was deleted meanwhile: {error.message}",
                hint="Close the workspace, open it again, and repeat the change.",
            ) from error

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
            raise self._missing_fork(name)
        return ref

    def _missing_fork(self, name: str) -> EntryMissingError:
        return EntryMissingError(
            f"there is no fork {name!r}",
            hint=f"The forks are: {', '.join(self.forks()) or 'none'}.",
        )

    def write(self, name: str = MAIN_BRANCH, *, reads_head: bool = True) -> BranchWriter:
        """Open a branch for writing; no other process can until it is closed.

        Git's locks that a dead writer left are deleted first. Its pending mark stays; see
        ``BranchWriter.pending``. Without *reads_head*, the newest entry may be lost.

        Raises:
            EntryMissingError: If there is no such fork.
            LedgerBusyError: If another process has it open; the message names it.
        """
        from .store.pack_reading import rebuild_indexes  # on use: readers write nothing
        from .writing import BranchWriter

        ref = self._known_ref(name)
        self._shared_lock()
        directory, lock = self._locked(name)
        try:
            if name != MAIN_BRANCH and not self.has_fork(name):  # deleted since it was looked up
                _delete_branch_files(directory)
                raise self._missing_fork(name)
            if lock.owner_died:
                self._delete_stale_locks(ref)
            with _full_disk_delays_packing():
                self.store.open_packs.seal_dead()
            if rebuild_indexes(self.store.packs):
                self.store.forget()
            if lock.lost_power:
                self._forget_lost(ref, directory)
            writer = BranchWriter(
                self.store,
                ref,
                directory=directory,
                lock=lock,
                refs=self._refs,
                reads_head=reads_head,
            )
        except BaseException:
            lock.abandon()
            raise
        self._writers = [*(each for each in self._writers if each.is_held), writer]
        return writer

    def _forget_lost(self, ref: str, directory: Path) -> None:
        """Move a branch to the newest entry that a loss of power left, and forget lost discards."""
        repository = self.store.repository
        with ledger_failures("what a loss of power left cannot be read"):
            for name, commit_id in repository.refs(DISCARDED_REFS).items():
                if commit_id not in repository:
                    repository.delete_ref(name)
            head = repository.ref(ref) or ""
            names = [head, *(path.read_text().strip() for path in directory.glob("spare-*"))]
            found = [each for each in names if each and self._is_whole(each)]
            if found and head not in found:
                newest = max(found, key=lambda each: read_entry(self.store, each).number)
                write_whole(self._directory / ref, f"{newest}\n".encode(), durable=True)
                _log.warning("Entry %s was lost with the power; %s counts.", head, newest)

    def _is_whole(self, commit_id: str) -> bool:
        try:
            check_complete(self.store, commit_id, None)
        except LedgerError:
            return False
        return True

    def _locked(self, name: str) -> tuple[Path, WriterLock]:
        """The directory of a branch, and its writer lock, which is taken."""
        directory = self._directory / BRANCH_FILES / name
        what = "the workspace" if name == MAIN_BRANCH else f"the fork {name!r}"
        for _ in range(MAX_LOCK_TRIES):
            lock = WriterLock(directory / "lock", what=what, now=self._clock.now())
            if lock.is_in_place:
                return directory, lock
            lock.abandon()  # the fork was deleted meanwhile, with this file
        raise never_in_place(directory)

    def _delete_stale_locks(self, ref: str) -> None:
        with self._shared_lock().alone() as is_alone:
            delete_stale_locks(self._directory, *([] if is_alone else [ref]))
        self.store.forget()

    def _shared_lock(self) -> SharedLock:
        """The lock that stops others from deleting objects; taken when it is first needed."""
        if self._shared is None or not self._shared.is_held:
            self._shared = SharedLock(self._directory / "wink" / "at-work")
            self._deletion.prepare()
        return self._shared

    # Forks

    def has_fork(self, name: str) -> bool:
        """Whether there is this fork; does not look at the others."""
        return _is_fork_name(name) and self.store.repository.ref(_ref_of(name)) is not None

    def forks(self) -> tuple[str, ...]:
        """The names of all forks, sorted."""
        refs = self.store.repository.refs(_FORK_REFS)
        return tuple(sorted(ref.removeprefix(_FORK_REFS) for ref in refs))

    def check_new_fork(self, name: str) -> None:
        """Raise ``UsageError`` if *name* is taken or invalid."""
        _ref_of(name)
        if name == MAIN_BRANCH or self.has_fork(name):
            raise UsageError(f"the branch {name!r} exists already", hint="Choose another name.")

    def fork(
        self,
        name: str,
        entry: LogEntry,
        *,
        first: Callable[[], object] = lambda: None,
        undo: Callable[[], object] = lambda: None,
    ) -> Branch:
        """Create a branch at *entry*.

        *first* is called while no other process can make a fork of this name; there is none if it
        raises. If there is none in the end, *undo* is called before another process can make one.

        Raises:
            UsageError: If *name* is taken or invalid.
            LedgerBusyError: If another process is making or deleting a fork of this name.
            LedgerError: If it cannot be written.
        """
        self.check_new_fork(name)
        ref = _ref_of(name)
        self._shared_lock()
        self._delete_files_of_deleted(name)
        directory, lock = self._locked(name)
        try:
            self.check_new_fork(name)  # another process may have been faster
            try:
                first()
                with ledger_failures("the fork cannot be synced"):
                    sync_filesystem(self._directory)  # its ref is on the device at once
                self._refs.move(ref, expected=None, target=entry.id)
            except BaseException:
                _delete_branch_files(directory)
                if not self.has_fork(name):
                    undo()
                raise
        finally:
            lock.release()
        return Branch(self.store, ref)

    def advance(
        self,
        name: str,
        *,
        since: LogEntry,
        to: LogEntry,
        first: Callable[[], object] = lambda: None,
    ) -> None:
        """Move a fork from *since* to *to*, whose objects were added.

        *first* is called while no process can open the fork; the fork stays if it raises.

        Raises:
            EntryMissingError: If there is no such fork.
            LedgerBusyError: If a process has it open.
            LedgerMovedError: If it is not at *since*.
            LedgerError: If it cannot be written.
        """
        self.store.sync()
        with self.write(name) as writer:
            first()
            self._refs.move(writer.ref, expected=since.id, target=to.id)

    def delete_fork(self, name: str, *, first: Callable[[], object] = lambda: None) -> None:
        """Delete a fork; the next maintenance deletes objects that only it had.

        *first* is called while no process can open the fork; the fork stays if it raises.

        Raises:
            EntryMissingError: If there is no such fork.
            LedgerBusyError: If a process has it open.
            UsageError: If *name* is the main branch.
        """
        if name == MAIN_BRANCH:
            raise UsageError(
                "the main branch cannot be deleted", hint="Delete the workspace instead."
            )
        with self.write(name) as writer:
            first()
            self.store.repository.delete_ref(writer.ref)
            passed(KillPoint.FORK_DELETED)
            _delete_branch_files(self._directory / BRANCH_FILES / name)
        self.store.repository.reopen()  # else libgit2 keeps the packs open that were read for it

    def _delete_files_of_deleted(self, name: str) -> None:
        """Delete what a process that was killed left of the fork *name*, which does not exist."""
        if (self._directory / BRANCH_FILES / name).exists():
            directory, lock = self._locked(name)
            try:
                if not self.has_fork(name):
                    _delete_branch_files(directory)
            finally:
                lock.release()

    def documents(self, kind: str) -> Documents:
        """The documents of one kind."""
        return Documents(self.store, self._refs, kind)

    def discarded(self) -> tuple[Discarded, ...]:
        """The discards that are still kept, newest first."""
        refs = self.store.repository.refs(DISCARDED_REFS)
        found = [discarded_at(self.store, ref, commit_id) for ref, commit_id in refs.items()]
        return tuple(sorted(found, key=lambda discarded: discarded.at, reverse=True))

    def heads(self, branches: Collection[str] | None = None, *, discards: bool) -> dict[str, str]:
        """The newest commit of each branch, and perhaps each discard, by the name of its ref.

        *branches* are the wanted ones; all when omitted, the main branch first, as of one moment.

        Raises:
            EntryMissingError: If there is no such branch.
        """
        repository = self.store.repository
        wanted = (MAIN_BRANCH,) if branches is None else branches
        found = {ref: repository.ref(ref) for ref in map(self._known_ref, wanted)}
        if branches is None:  # listed with their commits: each may be deleted meanwhile
            found |= repository.refs(_FORK_REFS)
        if discards:
            found |= repository.refs(DISCARDED_REFS)
        return {ref: commit_id for ref, commit_id in found.items() if commit_id is not None}

    def adopt(self, refs: Mapping[str, str], boundary: Collection[str]) -> None:
        """Make the refs of a history whose objects were added; the main branch is the last.

        *refs* maps each ref to the id of its commit. *boundary* has the ids of the commits whose
        parents the history lacks.

        No other process may adopt another history at the same time.

        Raises:
            LedgerError: If a ref exists, or cannot be written.
        """
        self.store.sync()
        if boundary:
            self.store.repository.set_boundary(self.store.repository.boundary().union(boundary))
        main = _ref_of(MAIN_BRANCH)
        for ref in sorted(refs, key=lambda ref: ref == main):
            self._refs.move(ref, expected=None, target=refs[ref])

    def forgotten(self, branch: Branch) -> Forgotten | None:
        """What retention last removed from *branch*, ``None`` if nothing."""
        return forgotten_in(self._directory).get(branch.ref)

    # Maintenance

    def disk_bytes(self) -> int:
        """The size of all objects on disk."""
        with ledger_failures("the size of the ledger cannot be read"):
            return disk_bytes(self.store)

    def is_over_budget(self, retention: Retention, *, most_excess: int = 0) -> bool:
        """Whether old history must be deleted; by more than *most_excess* bytes."""
        self._measured_at, self._disk_bytes = self.store.written_bytes, self.disk_bytes()
        return self._is_over(retention, most_excess=most_excess)

    def _is_over(self, retention: Retention, *, most_excess: int = 0) -> bool:
        """As ``is_over_budget``, from the last measured size."""
        return self._disk_bytes > max(retention.budget_bytes + most_excess, self._unavoidable_bytes)

    def maintain_if_due(self, retention: Retention, *, seconds: float = STEP_SECONDS) -> None:
        """Do a step of maintenance, if any is due; between calls only.

        A step ends after about *seconds*, and the next one continues. Due are: making a pack of
        this writer's new objects when there are many, measuring the size, joining packs, and
        deleting history that *retention* does not keep. While the history exceeds the budget by
        a 16th, a step has no limit, and waits for one of another process. Nor has a process's
        first step a limit if three times as many packs as usual wait to be joined: processes that
        make one call each never finish this in steps.

        Raises:
            LedgerError: As ``maintain``.
        """
        if self._sealing is None and self.store.open_packs.is_full(_excess_bytes(retention)):
            is_idle = not self._has_call_in_progress()
            self._sealing = self.store.open_packs.sealing(is_idle=is_idle)
        n_bytes = self.store.written_bytes - self._measured_at
        is_due = self._maybe_due or n_bytes > retention.budget_bytes // _MEASURED_AFTER_PART
        if not is_due and self._sealing is self._job is None:
            return
        ends = self._clock.monotonic_s() + seconds
        if self._sealing is not None and self._has_sealed(ends):
            self._sealing = None
            self._maybe_due = True
        is_over = self.is_over_budget(retention) if is_due else self._is_over(retention)
        if self._job is None and not is_over and not self._maybe_due:
            return
        now = self._clock.now()
        most_excess, lease = _excess_bytes(retention), self._lease
        is_urgent = self._is_over(retention, most_excess=most_excess)
        with lease.step(now, is_urgent=is_urgent) as may:
            if not may:
                self._abandon_job()
                return
            if not lease.was_mine and (is_urgent or self._job is not None):
                self._abandon_job()  # it knows files that another process has deleted since
                is_over = self.is_over_budget(retention)
            if self._job is None:
                if is_over:  # what is in an open pack cannot be deleted
                    self._sealing = None
                    with _full_disk_delays_packing():
                        self.store.open_packs.seal()
                self._job = self._doing(retention, now, is_over=is_over)
                if has_many_packs(self.store, times=_BEHIND):  # each process made few calls
                    ends = math.inf
            while not self._continue(self._job, math.inf if is_urgent else ends):
                # New packs are beside those that they replace
                is_urgent = self.is_over_budget(retention, most_excess=most_excess)
                if not is_urgent:
                    return
        self._job, self._maybe_due = None, False
        lease.end()

    def _has_call_in_progress(self) -> bool:
        return any(writer.is_held and writer.pending() is not None for writer in self._writers)

    def _has_sealed(self, ends: float) -> bool:
        """Seal the open pack until *ends*; return whether that is done, or has to wait."""
        with _full_disk_delays_packing():
            return self._continue(self._sealing or iter(()), ends)
        return True

    def _doing(self, retention: Retention, now: datetime, *, is_over: bool) -> Generator[None]:
        """What is due: deleting history, or joining packs."""
        looks = self._looked_at is None or abs(now - self._looked_at) > _LOOKED_AFTER
        if looks:  # a gap in the history may keep old entries, so the answer would be the same
            self._looked_at = now
        if is_over or (looks and has_too_old(self.store, retention, now)):
            yield from self._deleting(retention, now)
        elif has_many_packs(self.store):
            now_s = self._deletion.filesystem_time()
            yield from joining(self.store, now_s, most_bytes=_excess_bytes(retention))

    def _deleting(
        self,
        retention: Retention,
        now: datetime,
        *,
        with_deltas: bool = False,
        steps: Steps = no_steps,
    ) -> Generator[None, None, Maintenance]:
        with self._shared_lock().alone() as is_alone:  # no writer may begin before ``started``
            if with_deltas:  # otherwise the newest objects are not garbage yet
                self._deletion.wait_for_next_tick()
            started = self._deletion.filesystem_time()
        collection = GarbageCollection(
            store=self.store,
            lock=self._deletion,
            is_alone=is_alone,
            alone=lambda: self._shared_lock().alone(),
            started=started,
            with_deltas=with_deltas,
            most_copied=math.inf if with_deltas else _excess_bytes(retention),
            other_trees=self._other_trees,
            steps=steps,
        )
        done = yield from maintaining(retention, now, collection)
        self.store.forget()
        if done.forgotten:
            _log.warning("%s", done.forgotten)
        self._disk_bytes = done.disk_bytes
        # The heads alone may exceed the budget; do not try again before they have grown.
        self._unavoidable_bytes = 0
        if done.disk_bytes > retention.budget_bytes:
            growth = retention.budget_bytes // _GROWTH_PART
            self._unavoidable_bytes = done.disk_bytes + max(growth, done.disk_bytes // 8)
        return done

    def _continue(self, job: Iterator[None], ends: float) -> bool:
        """Run *job* until *ends*; return whether it is done."""
        try:
            with ledger_failures("old history cannot be packed or deleted"):
                for n_done, _ in enumerate(job):
                    if n_done % _PAUSES_PER_LOOK == 0 and self._clock.monotonic_s() >= ends:
                        return False
        except BaseException:
            self._job = self._sealing = None
            raise
        return True

    def _abandon_job(self) -> None:
        job, self._job = self._job, None
        if job is not None:
            job.close()
            self._looked_at = None  # what it found too old may still be there

    def maintain(self, retention: Retention, *, steps: Steps = no_steps) -> Maintenance:
        """Delete history that *retention* does not keep, pack the rest; between calls only.

        *steps* receives the progress.

        Raises:
            LedgerError: If a call is in progress, or an object cannot be read, written or deleted.
        """
        if self._has_call_in_progress():
            raise LedgerError("a call is in progress", hint="Wait until it is finished.")
        self._abandon_job()
        for directory in list((self._directory / BRANCH_FILES).glob("*")):
            if _is_fork_name(directory.name):
                with suppress(LedgerBusyError):
                    if not self.has_fork(directory.name):
                        self._delete_files_of_deleted(directory.name)
            elif directory.name != MAIN_BRANCH:
                shutil.rmtree(directory, ignore_errors=True)
        self._sealing = None
        for seal in (self.store.open_packs.seal, self.store.open_packs.seal_dead):
            with _full_disk_delays_packing():
                seal()
        now = self._clock.now()
        try:
            with (
                self._lease.step(now, is_urgent=True) as may,
                ledger_failures("old history cannot be deleted"),
            ):
                if not may:
                    return Maintenance(ran=False)
                return run_steps(self._deleting(retention, now, with_deltas=True, steps=steps))
        finally:
            self._lease.end()
            self.store.forget()


def _excess_bytes(retention: Retention) -> int:
    """The most bytes in all open packs, and in packs beside those that they replace.

    Twice this and the contents of a few calls is the most by which the history may exceed its
    budget, unless one pack is larger.
    """
    return retention.budget_bytes // _EXCESS_PART


@contextmanager
def _full_disk_delays_packing() -> Generator[None]:
    """Log a full disk: deleting history may make room, and the next sealing does the rest."""
    try:
        yield
    except LedgerError as error:
        if not is_disk_full(error):
            raise
        _log.warning("New objects cannot be packed yet: %s", error)


def _delete_branch_files(directory: Path) -> None:
    """Delete the directory of a branch, all at once; the caller has its lock."""
    # Not a valid name of a fork, so `gc` deletes it if this process is killed
    deleted = directory.with_name(f"{directory.name}~{secrets.token_hex(4)}")
    with ledger_failures(f"{directory} cannot be deleted"):
        directory.rename(deleted)
    shutil.rmtree(deleted, ignore_errors=True)


def _is_fork_name(name: str) -> bool:
    return len(name) <= _MAX_FORK_NAME_CHARS and _FORK_NAME.fullmatch(name) is not None


def _ref_of(name: str) -> str:
    if name == MAIN_BRANCH:
        return f"refs/heads/{MAIN_BRANCH}"
    if not _is_fork_name(name):
        raise UsageError(
            f"{name!r} is not a valid name for a fork",
            hint="Use up to 64 letters and digits, with single '.', '_' or '-' between them.",
        )
    return _FORK_REFS + name
