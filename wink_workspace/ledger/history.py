"""One line of history: a chain of commits in which every call is one.

A commit's tree is ``files/`` (the workspace), ``session/`` (its STATE) and ``call.json`` (the
record). After a sync it also has ``base/`` (the source as it was synced), and a merge has
``merged/`` (the files of the other branch), which keeps them as long as the entry. Moving the
line's ref is the commit point for all of them at once. Entries are only ever appended: undoing is
another entry. They are numbered from 1, and keep their numbers when the oldest are forgotten.

``Branch`` reads; ``writing.py`` adds what only the holder of the line's lock may do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from wink_workspace.errors import EntryMissingError, LedgerDamagedError, LedgerError
from wink_workspace.session import Outcome

from .commits import Commit, parse_commit
from .git_tree import GitTree
from .merge import Merge, SliceMerge, merge_slices, merge_trees
from .objects import ObjectStore
from .records import Record, parse_record

__all__ = [
    "MAIN_BRANCH",
    "Branch",
    "EntryKind",
    "LogEntry",
    "Reverted",
    "entry_of",
    "lost_ref",
    "merge_base",
    "read_entry",
]

MAIN_BRANCH: Final = "main"
_SHORTEST_PREFIX: Final = 4


class EntryKind(StrEnum):
    """What made an entry."""

    IMPORT = "import"
    """The workspace was made of what was there."""
    CALL = "call"
    """A tool call, whatever became of it."""
    EXTERNAL = "external"
    """Somebody else changed the files."""
    UNDO = "undo"
    """What an entry did was taken back."""
    REDO = "redo"
    """What an undo took back was done again."""
    RESTORE = "restore"
    """Paths were brought back from an earlier entry."""
    MERGE = "merge"
    """The changes of another branch were merged."""
    SYNC = "sync"
    """Later changes of the source were merged."""


def _is_undoable(entry: LogEntry) -> bool:
    is_committed = entry.outcome is Outcome.COMMITTED
    return is_committed or entry.kind in (EntryKind.MERGE, EntryKind.SYNC)


def lost_ref(branch: str, consequence: str) -> LedgerDamagedError:
    """What to raise for a line that must have entries, and whose ref is not there."""
    return LedgerDamagedError(
        f"the ref of the line {branch} is missing, so {consequence}",
        hint=f"Write the id that wink/lines/{branch}/spare-1 or spare-2 in the ledger has, "
        f"the one that `git log` knows as newer, into refs/heads/{branch}.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One step of the history.

    Attributes:
        id: The commit's id.
        number: Counted from 1 along the line.
        parent: The id of the commit before it, whether that is still kept or not.
        kind: What made it.
        subject: One line for people.
        at: When, exact to the second.
        tool: The tool's name, of a call.
        call_id: The call's id, of a call.
        outcome: What became of the call.
        target: The number of the entry that was undone or redone.
        merged: The id of the other branch's entry that was merged.
        base: The root of what the changes of the branch are relative to; empty for the import.
        files: The root of the files after it.
        session: The root of the STATE after it.
        record_id: The id of its ``call.json``.
    """

    id: str
    number: int
    parent: str | None
    kind: EntryKind
    subject: str
    at: datetime
    tool: str = ""
    call_id: str = ""
    outcome: Outcome | None = None
    target: int | None = None
    merged: str = ""
    base: str = ""
    files: str
    session: str
    record_id: str


@dataclass(frozen=True, slots=True)
class Reverted:
    """What the files and the STATE would be without one entry."""

    files: Merge
    session: SliceMerge


def read_entry(store: ObjectStore, commit_id: str) -> LogEntry:
    """The entry that a stored commit is.

    Raises:
        LedgerDamagedError: If it is missing or no commit of a ledger.
    """
    commit = parse_commit(commit_id, store.read(commit_id, "commit"))
    return entry_of(commit_id, commit, store.tree(commit.tree))


def entry_of(commit_id: str, commit: Commit, tree: GitTree) -> LogEntry:
    """The entry that *commit*, whose tree is *tree*, is; raises as ``read_entry``."""
    trailers = commit.trailers
    try:
        return LogEntry(
            id=commit_id,
            number=int(trailers["Number"]),
            parent=commit.parent,
            kind=EntryKind(trailers["Kind"]),
            subject=commit.subject,
            at=commit.at,
            tool=trailers.get("Tool", ""),
            call_id=trailers.get("Call", ""),
            outcome=Outcome(trailers["Outcome"]) if "Outcome" in trailers else None,
            target=int(trailers["Target"]) if "Target" in trailers else None,
            merged=trailers.get("Merged", ""),
            base="" if (base := tree.get(b"base")) is None else base.id,
            files=_part(tree, b"files"),
            session=_part(tree, b"session"),
            record_id=_part(tree, b"call.json"),
        )
    except (KeyError, ValueError) as error:
        raise LedgerDamagedError(f"commit {commit_id} is no entry of a ledger: {error}") from error


def _part(tree: GitTree, name: bytes) -> str:
    entry = tree.get(name)
    if entry is None:
        raise KeyError(name.decode())
    return entry.id


def merge_base(store: ObjectStore, one: LogEntry, other: LogEntry) -> LogEntry | None:
    """The newest entry that is part of the history of both, through merges, too.

    A merge that was undone does not count. ``None`` if nothing that both have is kept.
    """
    found = _ancestry(store, one)
    common = {id_: found[id_] for id_ in found.keys() & _ancestry(store, other).keys()}
    older = {link for entry in common.values() for link in (entry.parent, entry.merged)}
    newest = [entry for entry in common.values() if entry.id not in older]
    return max(newest, key=lambda entry: (entry.at, entry.number), default=None)


def _ancestry(store: ObjectStore, head: LogEntry) -> dict[str, LogEntry]:
    """*head* and every entry before it, of merged branches, too, by id."""
    ends = store.repository.boundary()
    found: dict[str, LogEntry] = {}
    heads = [head]
    while heads:
        entry: LogEntry | None = heads.pop()
        undone: dict[int | None, bool] = {}
        while entry is not None and entry.id not in found:
            found[entry.id] = entry
            if entry.kind in (EntryKind.UNDO, EntryKind.REDO):
                undone.setdefault(entry.target, entry.kind is EntryKind.UNDO)
            elif entry.merged and not undone.get(entry.number, False):
                with suppress(LedgerError):  # it is no longer kept
                    heads.append(read_entry(store, entry.merged))
            more = entry.parent is not None and entry.id not in ends
            entry = read_entry(store, entry.parent) if more and entry.parent else None
    return found


class Branch:
    """The history that ends at one ref, as it was when it was last looked at.

    Args:
        store: Where the objects are.
        ref: The whole name of the ref.
    """

    def __init__(self, store: ObjectStore, ref: str) -> None:
        self.store = store
        self.ref = ref
        self._head: LogEntry | None = None
        self.refresh()

    @property
    def head(self) -> LogEntry | None:
        """The newest entry, ``None`` before the first."""
        return self._head

    def refresh(self) -> LogEntry | None:
        """Look where the line ends now; its newest entry."""
        commit_id = self.store.repository.ref(self.ref)
        if commit_id is None:
            self._head = None
        elif self._head is None or self._head.id != commit_id:
            self._head = read_entry(self.store, commit_id)
        return self._head

    def log(self, *, start: LogEntry | None = None, limit: int | None = None) -> Iterator[LogEntry]:
        """The entries from *start* (the head, if left out) backwards, each read when asked for.

        Args:
            start: The first to give.
            limit: Most entries to give; all that are kept, if left out.
        """
        ends = self.store.repository.boundary()
        entry = self._head if start is None else start
        n = 0
        while entry is not None and (limit is None or n < limit):
            yield entry
            n += 1
            more = entry.parent is not None and entry.id not in ends
            entry = read_entry(self.store, entry.parent) if more and entry.parent else None

    def kept(self, entry_id: str) -> LogEntry | None:
        """An entry that was the head of this line once, by its whole id, if it is still kept.

        Costs a few objects; where the history of another line ends later, as much as it is old.
        """
        if self._head is None or self._head.id == entry_id:
            return self._head
        try:
            entry = read_entry(self.store, entry_id)
            ends = [read_entry(self.store, end).number for end in self.store.repository.boundary()]
        except LedgerError:  # it is none, or was deleted
            return None
        if entry.number >= self._head.number:
            return None  # a loss of power took it from the line
        if entry.number >= max(ends, default=0):
            return entry  # no way to it can be cut off
        return entry if any(entry.id == found.id for found in self._back_to(entry.number)) else None

    def before(self, entry: LogEntry) -> LogEntry:
        """The entry before *entry*.

        Raises:
            EntryMissingError: If there is none, or it is no longer kept.
        """
        _, *before = self.log(start=entry, limit=2)
        if not before:
            raise EntryMissingError(f"nothing from before entry {entry.number} is kept")
        return before[0]

    def find(self, which: int | str) -> LogEntry:
        """Find one entry by its number (an ``int``, or digits) or by the beginning of its id.

        Digits are a number if an entry has it; an id can begin with digits only, too. Costs as
        much as the entry is old.

        Raises:
            EntryMissingError: If there is none, it is no longer kept, or several ids begin so.
        """
        found: list[LogEntry] = []
        if isinstance(which, int) or which.isdecimal():
            found = [entry for entry in self._back_to(int(which)) if entry.number == int(which)]
        if not found and isinstance(which, str) and len(which) >= _SHORTEST_PREFIX:
            found = [entry for entry in self.log() if entry.id.startswith(which.lower())]
        if len(found) != 1:
            raise EntryMissingError(
                f"{'several entries have' if found else 'no entry that is kept has'} "
                f"the number or id {str(which)!r}"
            )
        return found[0]

    def _back_to(self, number: int) -> Iterator[LogEntry]:
        for entry in self.log():
            yield entry
            if entry.number <= number:
                return

    def record(self, entry: LogEntry) -> Record:
        """What *entry* says of itself in full.

        Raises:
            LedgerDamagedError: If it cannot be read.
        """
        return parse_record(self.store.read(entry.record_id))

    # Undo and redo

    def reverted(self, entry: LogEntry) -> Reverted:
        """What would be if *entry* had not happened and all else had; nothing is changed.

        Reverting an undo is redoing.

        Raises:
            EntryMissingError: If what was before *entry* is not kept, or the line is empty.
        """
        before = self.before(entry)
        head = self._head or entry
        return Reverted(
            merge_trees(self.store, base=entry.files, ours=head.files, theirs=before.files),
            merge_slices(self.store, base=entry.session, ours=head.session, theirs=before.session),
        )

    def in_force(self) -> Iterator[LogEntry]:
        """The committed calls, merges and syncs that were not undone, newest first."""
        undone: dict[int | None, bool] = {}
        for entry in self.log():
            if entry.kind in (EntryKind.UNDO, EntryKind.REDO):
                undone.setdefault(entry.target, entry.kind is EntryKind.UNDO)
            elif _is_undoable(entry) and not undone.get(entry.number, False):
                yield entry

    def undone(self) -> Iterator[LogEntry]:
        """The undos that were not redone, newest first: what redo is for."""
        seen: set[int | None] = set()
        for entry in self.log():
            if entry.kind in (EntryKind.UNDO, EntryKind.REDO) and entry.target not in seen:
                seen.add(entry.target)
                if entry.kind is EntryKind.UNDO:
                    yield entry
