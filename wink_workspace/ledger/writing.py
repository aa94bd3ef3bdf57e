"""Writing to a branch: mark a pending call, append an entry, discard files.

The protocol of a call, in order: ``begin`` writes the pending mark; the call runs; ``append``
writes objects and commit and moves the ref, which is the commit point; ``finish_pending`` removes
the mark. A failed call does the same after its effects are undone, with a record of the failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from wink_workspace._descriptors import ClosedAfterBlock
from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.errors import LedgerError
from wink_workspace.filesystem.model import FileKind
from wink_workspace.processes import OwnProcess
from wink_workspace.session import Outcome

from .entries.commits import MAX_SUBJECT_CHARS, NO_SUBJECT, Commit, format_commit, one_line
from .entries.discards import Discard, Discarded, Dropped, keep_discarded, last_discard_number
from .entries.effects import EffectJournal
from .entries.history import (
    Branch,
    EntryKind,
    LogEntry,
    read_entry,
    skip_number,
    skip_of,
)
from .entries.pending import CallTimes, PendingMark, PendingMarks
from .entries.records import dump_record
from .store.git_tree import EMPTY_TREE, EMPTY_TREE_ID, TreeEntry
from .store.leases import next_number
from .store.lock import WriterLock
from .store.objects import ObjectStore
from .store.refs import RefMover, SpareFiles
from .upkeep.collection import has_lost_objects

_SKIPS_TO_NEXT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An entry to append; the fields are those of ``LogEntry``.

    ``record`` is the content of ``call.json``: an event, or any object with a JSON form. ``base``
    is that of the entry before, if left out. ``merged`` is the other branch's entry.
    ``target`` is the number of the entry that an undo, a redo or a restore is about.
    """

    kind: EntryKind
    subject: str
    files: str
    session: str
    record: object
    at: datetime
    tool: str = ""
    call_id: str = ""
    outcome: Outcome | None = None
    target: int | None = None
    continue_at: str = ""
    base: str | None = None
    merged: LogEntry | None = None


class BranchWriter(Branch, ClosedAfterBlock):
    """A branch with its writer lock; made by ``Ledger.write``.

    Args:
        store: The objects.
        ref: The full name of the branch's ref.
        directory: The branch's own directory, for files that only its writer uses.
        lock: The writer lock; ``close`` releases it.
        refs: Moves the ref.
        reads_head: As in ``Branch``.

    Attributes:
        effects: The effect journal of the call in progress.
    """

    def __init__(
        self,
        store: ObjectStore,
        ref: str,
        *,
        directory: Path,
        lock: WriterLock,
        refs: RefMover,
        reads_head: bool = True,
    ) -> None:
        super().__init__(store, ref, reads_head=reads_head)
        self._spares = SpareFiles(str(directory))
        self._lock = lock
        self._process = OwnProcess(ref)
        self._refs = refs
        self._marks = PendingMarks(directory / "pending", durable=store.durable)
        self._begun: PendingMark | None = None
        self._n_discards: int | None = None
        self._skips: list[tuple[int, str]] = []
        self.effects = EffectJournal(directory / "effects", durable=store.durable)

    def close(self) -> None:
        """Release the writer lock; may be repeated. A pending mark stays."""
        if not self._process.is_present:
            return
        self.effects.close()
        self._marks.close()
        self._lock.release()

    @property
    def is_held(self) -> bool:
        """Whether this object may write: not after ``close``, not in a forked child."""
        return self._lock.is_held

    @property
    def lost_power(self) -> bool:
        """Whether the machine stopped while the last writer had this branch open."""
        return self._lock.lost_power

    def prepare_flush(self) -> None:
        """Let both spare files name the head: the next move renames one before it is written."""
        spare = Path(self._spares.unused(f"{self.store.repository.directory}/{self.ref}"))
        if self.is_held and self._head is not None and spare.exists():
            with spare.open("r+b") as file:
                file.write(self._head.id.encode() + b"\n")

    # Entries

    def append(self, draft: Draft) -> LogEntry:
        """Append an entry after the head; it is the new head.

        Moving the ref is the commit point. On any error the branch is unchanged.

        Raises:
            LedgerMovedError: If the ref is no longer at this object's head.
            LedgerError: If an object or the ref cannot be written.
        """
        self._check()
        head = self._head
        record_id = self.store.write("blob", dump_record(draft.record))
        parts: dict[bytes, TreeEntry | None] = {
            b"call.json": TreeEntry(FileKind.FILE, record_id),
            b"files": TreeEntry(FileKind.DIRECTORY, draft.files),
            b"session": TreeEntry(FileKind.DIRECTORY, draft.session),
        }
        base = draft.base
        if base is None:
            base = "" if head is None else head.base
        if base:
            parts[b"base"] = TreeEntry(FileKind.DIRECTORY, base)
        if draft.merged is not None:
            parts[b"merged"] = TreeEntry(FileKind.DIRECTORY, draft.merged.files)
        tree_id = self.store.write_tree(EMPTY_TREE.changed(parts))
        passed(KillPoint.TREES_WRITTEN)
        parent = None if head is None else head.id
        number = 1 if head is None else head.number + 1
        skips = [] if head is None else self._skips_after(head)
        skip = skips[0][1] if skips and skips[0][0] < number - 1 else ""
        subject = one_line(draft.subject, MAX_SUBJECT_CHARS) or NO_SUBJECT
        tool, call_id = one_line(draft.tool), one_line(draft.call_id)
        merged = "" if draft.merged is None else draft.merged.id
        trailers = {
            "Kind": draft.kind,
            "Number": f"{number}",
            "Tool": tool,
            "Call": call_id,
            "Outcome": draft.outcome or "",
            "Target": "" if draft.target is None else f"{draft.target}",
            "Continue": draft.continue_at,
            "Skip": skip,
            "Merged": merged,
        }
        at = draft.at.astimezone(UTC).replace(microsecond=0)
        content = format_commit(Commit(tree_id, parent, at, subject, trailers))
        commit_id = self.store.write("commit", content)
        # As ``entry_of`` would read it from this commit, in fewer calls
        entry = LogEntry(
            id=commit_id,
            number=number,
            parent=parent,
            kind=draft.kind,
            subject=subject,
            at=at,
            tool=tool,
            call_id=call_id,
            outcome=draft.outcome,
            target=draft.target,
            continue_at=draft.continue_at,
            skip=skip,
            merged=merged,
            base=base,
            files=draft.files,
            session=draft.session,
            record_id=record_id,
        )
        self.store.sync()
        passed(KillPoint.COMMIT_WRITTEN)
        before = parent or self.store.repository.ref(self.ref)  # it may be lost
        self._refs.move(self.ref, expected=before, target=commit_id, spares=self._spares)
        self._head = entry
        self._skips = [(number, commit_id), *skips]
        return entry

    def move_to(self, entry: LogEntry) -> None:
        """Make *entry* the head, whatever is there, which may be lost; raises as ``append``."""
        self._check()
        before = self.store.repository.ref(self.ref)
        self._refs.move(self.ref, expected=before, target=entry.id, spares=self._spares)
        self._head = entry

    def _skips_after(self, head: LogEntry) -> list[tuple[int, str]]:
        """Where the entry after *head* skips to, then where that one does, and so on.

        Only as many as were needed until now: each entry is read once at most. It is empty if one
        is not recorded, or no longer kept.
        """
        known = self._skips
        if not known or known[0][1] != head.id:
            known = [(head.number, head.id)]
        if skip_number(head.number + 1) == head.number:
            return known
        while len(known) < _SKIPS_TO_NEXT:
            number, id_ = known[-1]
            try:
                found = skip_of(head if number == head.number else read_entry(self.store, id_))
            except LedgerError:  # without a skip, entries are found more slowly
                return []
            if found is None:
                return []
            known.append(found)
        return known[2:]

    def discard(
        self,
        files: str,
        *,
        reason: str,
        call_id: str,
        at: datetime,
        found_after: tuple[int, str] | None = None,
        dropped: Dropped | None = None,
    ) -> Discarded:
        """Keep *files*, which are about to be discarded, as a discard.

        Args:
            files: The root of all files at that time.
            reason: Why, in a few words.
            call_id: The call that made them, or any name.
            at: When; for the same time, call and files, the ref is reused.
            found_after: The number and the files of the entry before; those of the head, if left
                out.
            dropped: The files that are not kept.

        Raises:
            LedgerError: If it cannot be written.
        """
        self._check()
        if found_after is None:
            found_after = (0, EMPTY_TREE_ID)
            if self.head is not None:
                found_after = (self.head.number, self.head.files)
        number, base = found_after
        what = Discard(
            files=files,
            base=base,
            number=number,
            reason=reason,
            call_id=call_id,
            at=at,
            dropped=dropped or Dropped(),
        )
        return keep_discarded(self.store, self._refs, what, number=self._new_discard_number)

    def _new_discard_number(self) -> int:
        if self._n_discards is None:
            self._n_discards = last_discard_number(self.store)
        counter = self.store.repository.directory / "wink" / "discards"
        self._n_discards = next_number(counter, self._n_discards)
        return self._n_discards

    def has_lost_objects(self, tree_id: str, known: str) -> bool:
        """Whether another process deleted objects of a tree that the tree *known* does not have.

        If not, and if ``other_trees`` of the ledger returns the tree by now, they stay.
        """
        with self._refs.deletion:
            return has_lost_objects(self.store, tree_id, known)

    # The pending mark

    def begin(self, call_id: str, tool: str, started_at: datetime) -> PendingMark:
        """Write the pending mark of a call, before its first effect.

        Raises:
            LedgerError: If it cannot be written; the call must not begin.
        """
        self._check()
        parent = None if self._head is None else self._head.id
        mark = PendingMark(one_line(call_id), one_line(tool), parent, started_at)
        self._marks.write(mark)
        self._begun = mark
        return mark

    @property
    def has_begun(self) -> bool:
        """Whether this object has written a mark and not removed it."""
        return self._begun is not None

    @property
    def begun(self) -> PendingMark | None:
        """The mark that this object has written and not removed."""
        return self._begun

    def pending(self) -> PendingMark | None:
        """The mark of an unfinished call, by this process or a dead one."""
        return self._marks.read()

    def separate_pending(self) -> None:
        """Let the change time of every file say whether it was changed before ``begin``.

        Raises:
            LedgerError: If the pending mark cannot be written.
        """
        self._marks.separate()

    def pending_times(self) -> CallTimes | None:
        """The times of the unfinished call, if there is one."""
        return self._marks.times()

    def is_recorded(self, mark: PendingMark) -> bool:
        """Whether the head is the entry of the call of *mark*.

        Then its effects were committed, or undone and recorded; only the mark has to be removed.
        """
        head = self.head
        if head is None or not mark.call_id:
            return False
        return (head.parent, head.call_id) == (mark.parent, mark.call_id)

    def finish_pending(self) -> None:
        """Remove the pending mark, if there is one."""
        self._process.check()
        self._marks.remove()
        self._begun = None

    def _check(self) -> None:
        self._process.check()
        if not self._lock.is_held:
            raise LedgerError(
                f"{self.ref} is no longer open for writing", hint="Open the workspace again."
            )
