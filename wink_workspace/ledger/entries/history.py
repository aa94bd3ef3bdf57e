"""One branch: a chain of commits, one for each call.

A commit's tree has ``files/`` (the workspace), ``session/`` (its STATE) and ``call.json`` (the
record). After a sync it also has ``base/`` (the source as it was synced). A merge has ``merged/``
(the files of the other branch), which keeps them as long as the entry. Moving the branch's ref is
the commit point for all of them. Entries are only appended: an undo is another entry. They are
numbered from 1 without gaps, and keep their numbers when retention removes the oldest.

An entry also names an older one, at a distance that follows from its number (``skip_number``). So
one of a million entries is found by its number after reading at most 44 of them.

``Branch`` reads; ``writing.py`` has what only the holder of the writer lock may do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from wink_workspace.errors import EntryMissingError, LedgerDamagedError, LedgerError
from wink_workspace.ledger.store.git_tree import GitTree
from wink_workspace.ledger.store.objects import ObjectStore
from wink_workspace.session import Outcome

from .commits import Commit, is_number, parse_commit
from .records import Record, parse_record

if TYPE_CHECKING:
    from wink_workspace.ledger.store.merge import Merge, SliceMerge


BRANCH_FILES: Final = "wink/lines"
"""The directory, in the ledger, with a directory for the files of each branch."""
_SHORTEST_PREFIX: Final = 4
_ID: Final = re.compile("[0-9a-f]{40}")


class EntryKind(StrEnum):
    """What made an entry."""

    IMPORT = "import"
    """The source was imported when the workspace was created."""
    CALL = "call"
    """A call, committed or rolled back."""
    EXTERNAL = "external"
    """The files were edited outside of any call."""
    UNDO = "undo"
    """An earlier entry was undone."""
    REDO = "redo"
    """An undo was undone."""
    RESTORE = "restore"
    """Paths were restored from an earlier entry."""
    MERGE = "merge"
    """The changes of another branch were merged."""
    SYNC = "sync"
    """Later changes of the source were merged."""


def _is_undoable(entry: LogEntry) -> bool:
    is_committed = entry.outcome is Outcome.COMMITTED
    return is_committed or entry.kind in (EntryKind.MERGE, EntryKind.SYNC, EntryKind.RESTORE)


def lost_ref(branch: str, consequence: str) -> LedgerDamagedError:
    """The error to raise if the ref of a branch that has entries is missing."""
    return LedgerDamagedError(
        f"the ref of the branch {branch} is missing, so {consequence}",
        hint=f"Find the newer id of {BRANCH_FILES}/{branch}/spare-1 and spare-2 in the ledger "
        f"with `git log`, and write it to refs/heads/{branch}.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One entry of the history.

    Attributes:
        id: The commit's id.
        number: Counted from 1 along the branch.
        parent: The id of the commit before it, which may no longer be kept.
        kind: What made it.
        subject: One line for people.
        at: When, exact to the second.
        tool: The tool's name, if it is a call.
        call_id: The call's id, if it is a call.
        outcome: The call's outcome.
        target: The number of the entry that was undone or redone.
        continue_at: The id of the entry that an undo or redo reverted, if the search for the next
            one may continue there.
        skip: The id of the entry with the number ``skip_number``, unless it is the parent.
        merged: The id of the other branch's entry that was merged.
        base: The root of the files that the branch's changes are relative to; empty for the import.
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
    continue_at: str = ""
    skip: str = ""
    merged: str = ""
    base: str = ""
    files: str
    session: str
    record_id: str


@dataclass(frozen=True, slots=True)
class Revertible:
    """An entry to undo, or an undo to redo.

    ``continue_at`` is its id if the search for the next one may continue there.
    """

    entry: LogEntry
    continue_at: str


@dataclass(frozen=True, slots=True)
class Reverted:
    """The files and the STATE as they would be without one entry."""

    files: Merge
    session: SliceMerge


def read_entry(store: ObjectStore, commit_id: str) -> LogEntry:
    """Read the entry of a stored commit.

    Raises:
        LedgerDamagedError: If it is missing or not a commit of a ledger.
    """
    commit = parse_commit(commit_id, store.read(commit_id, "commit"))
    return entry_of(commit_id, commit, store.read_tree(commit.tree))  # each entry has its own root


def entry_of(commit_id: str, commit: Commit, tree: GitTree) -> LogEntry:
    """The entry of *commit*, whose tree is *tree*; raises as ``read_entry``."""
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
            continue_at=_id(trailers, "Continue"),
            skip=_id(trailers, "Skip"),
            merged=_id(trailers, "Merged"),
            base="" if (base := tree.get(b"base")) is None else base.id,
            files=_part(tree, b"files"),
            session=_part(tree, b"session"),
            record_id=_part(tree, b"call.json"),
        )
    except (KeyError, ValueError) as error:
        raise LedgerDamagedError(
            f"commit {commit_id} is not an entry of a ledger: {error}"
        ) from error


def _id(trailers: Mapping[str, str], name: str) -> str:
    found = trailers.get(name, "")
    if found and not _ID.fullmatch(found):
        raise ValueError(f"{name} is not an id: {found!r}")
    return found


def _part(tree: GitTree, name: bytes) -> str:
    entry = tree.get(name)
    if entry is None:
        raise KeyError(name.decode())
    return entry.id


def skip_number(number: int) -> int:
    """The number of the entry to which the entry *number* skips; 0 for the first one.

    *number* - 1 is a sum of numbers 2^k - 1, of which only the two smallest may be equal, and the
    distance is the smallest one. So a skip to an entry is the skip of the skip of its parent, or
    the parent. E. W. Myers describes this list in "An applicative random-access stack" (1983).
    """
    rest, distance = number - 1, 1
    while rest:
        distance = (1 << (rest + 1).bit_length() - 1) - 1
        rest -= distance
    return number - distance


def skip_of(entry: LogEntry) -> tuple[int, str] | None:
    """The number and the id of the entry to which *entry* skips; ``None`` if it is not recorded."""
    number = skip_number(entry.number)
    skip = entry.parent if number == entry.number - 1 else entry.skip
    return (number, skip) if skip else None


def merge_base(store: ObjectStore, one: LogEntry, other: LogEntry) -> LogEntry | None:
    """The newest entry in the history of both, merged branches included.

    An undone merge does not count. ``None`` if no common entry is kept.
    """
    found = _ancestry(store, one)
    common = {id_: found[id_] for id_ in found.keys() & _ancestry(store, other).keys()}
    older = {id_ for entry in common.values() for id_ in (entry.parent, entry.merged)}
    newest = [entry for entry in common.values() if entry.id not in older]
    return max(newest, key=lambda entry: (entry.at, entry.number), default=None)


def _ancestry(store: ObjectStore, head: LogEntry) -> dict[str, LogEntry]:
    """*head* and all its ancestors by id, merged branches included."""
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
    """The history that ends at one ref, as of the last ``refresh``.

    Args:
        store: The objects.
        ref: The full name of the ref.
        reads_head: Whether to ``refresh`` at once.
    """

    def __init__(self, store: ObjectStore, ref: str, *, reads_head: bool = True) -> None:
        self.store = store
        self.ref = ref
        self._head: LogEntry | None = None
        self._end_numbers = (frozenset[str](), tuple[int, ...]())  # of a boundary
        if reads_head:
            self.refresh()

    @property
    def head(self) -> LogEntry | None:
        """The newest entry, ``None`` before the first."""
        return self._head

    def refresh(self) -> LogEntry | None:
        """Read the ref again; return the newest entry."""
        commit_id = self.store.repository.ref(self.ref)
        if commit_id is None:
            self._head = None
        elif self._head is None or self._head.id != commit_id:
            self._head = read_entry(self.store, commit_id)
        return self._head

    def log(self, *, start: LogEntry | None = None, limit: int | None = None) -> Iterator[LogEntry]:
        """The entries from *start* backwards, each read on demand.

        Args:
            start: The first entry; the head, if left out.
            limit: Most entries to return; all that are kept, if left out.
        """
        ends = self.store.repository.boundary()
        entry = self._head if start is None else start
        n = 0
        while entry is not None and (limit is None or n < limit):
            yield entry
            n += 1
            entry = self._previous(entry, ends)

    def at(self, number: int, *, start: LogEntry | None = None) -> LogEntry | None:
        """The entry with *number*, ``None`` if there is none that is kept.

        Reads a number of entries that grows with the logarithm of the distance.

        Args:
            number: The number.
            start: Look at this entry and those before it; at all, if left out.

        Raises:
            LedgerDamagedError: If an entry cannot be read.
        """
        entry = self._head if start is None else start
        if entry is None or not 0 < number <= entry.number:
            return None
        ends = self.store.repository.boundary()
        newest_first = sorted(self._numbers_of(ends), reverse=True)
        while entry is not None and entry.number > number:
            skip = skip_of(entry)
            end = next((each for each in newest_first if each <= entry.number), 0)
            if skip is None or skip[0] < max(number, end):  # it may skip the end of the branch
                entry = self._previous(entry, ends)
                continue
            entry = read_entry(self.store, skip[1])
            if entry.number != skip[0]:
                raise LedgerDamagedError(f"entry {entry.id} is not number {skip[0]}")
        return entry

    def kept(self, entry_id: str) -> LogEntry | None:
        """The entry with the full id *entry_id*, if it belongs to this branch and is still kept.

        Reads a few objects, or some more where another branch's history ends later.
        """
        if self._head is None or self._head.id == entry_id:
            return self._head
        try:
            entry = read_entry(self.store, entry_id)
            ends = self._numbers_of(self.store.repository.boundary())
        except LedgerError:  # it is not an entry, or was deleted
            return None
        if entry.number >= self._head.number:
            return None  # a loss of power removed it from the branch
        if entry.number >= max(ends, default=0):
            return entry  # it is after every boundary, so it is reachable
        found = self.at(entry.number)
        return entry if found is not None and found.id == entry.id else None

    def before(self, entry: LogEntry) -> LogEntry:
        """The entry before *entry*.

        Raises:
            EntryMissingError: If there is none, or it is no longer kept.
        """
        _, *before = self.log(start=entry, limit=2)
        if not before:
            raise EntryMissingError(f"no entry before entry {entry.number} is kept")
        return before[0]

    def find(self, which: int | str) -> LogEntry:
        """Find one entry; *which* is its number (an ``int``, or digits) or the beginning of its id.

        The whole id of a call finds its entry, too.
        Digits mean a number if an entry has it, otherwise the beginning of an id. Reads every
        entry, unless it is named by its number.

        Raises:
            EntryMissingError: If none that is kept matches, or several ids do.
        """
        found: list[LogEntry] = []
        if isinstance(which, int) or is_number(which):
            numbered = self.at(int(which))
            found = [] if numbered is None else [numbered]
        if not found and isinstance(which, str) and len(which) >= _SHORTEST_PREFIX:
            found = [entry for entry in self.log() if entry.id.startswith(which.lower())]
        if not found:
            found = [entry for entry in self.log() if which and entry.call_id == which]
        if len(found) != 1:
            raise EntryMissingError(
                f"{'several entries have' if found else 'no entry that is kept has'} "
                f"the number or id {str(which)!r}"
            )
        return found[0]

    def record(self, entry: LogEntry) -> Record:
        """The record of *entry*.

        Raises:
            LedgerDamagedError: If it cannot be read.
        """
        return parse_record(self.store.read(entry.record_id))

    # Undo and redo

    def reverted(self, entry: LogEntry, *, session: str = "") -> Reverted:
        """Compute the files and the STATE without *entry*; nothing is changed.

        *session* is the root of the present STATE; that of the head, if left out. Reverting an
        undo is a redo.

        Raises:
            EntryMissingError: If the entry before *entry* is not kept.
        """
        from wink_workspace.ledger.store.merge import merge_slices, merge_trees

        before = self.before(entry)
        head = self._head or entry
        return Reverted(
            merge_trees(self.store, base=entry.files, ours=head.files, theirs=before.files),
            merge_slices(
                self.store, base=entry.session, ours=session or head.session, theirs=before.session
            ),
        )

    def undone(self) -> Iterator[LogEntry]:
        """The undos that were not redone, newest first: the candidates for redo."""
        seen: set[int | None] = set()
        ends = self.store.repository.boundary()
        entry = self._head
        while entry is not None:
            if entry.kind in (EntryKind.UNDO, EntryKind.REDO) and entry.target not in seen:
                seen.add(entry.target)
                if entry.kind is EntryKind.UNDO:
                    yield entry
            # Every undo between a redo and the undo that it reverted had been redone
            known = self._continuation(entry, ends) if entry.kind is EntryKind.REDO else None
            entry = self._previous(known or entry, ends)

    def to_undo(self, accept: Callable[[LogEntry], bool]) -> Revertible | None:
        """The newest entry in force that *accept* takes.

        *accept* must always give the same answer for an entry. In a chain of undos, this costs
        the same for the first and for the last one.
        """
        return next((found for found in self._in_force() if accept(found.entry)), None)

    def to_undo_named(self, entry: LogEntry) -> Revertible:
        """*entry*, if it is one that can be undone.

        Raises:
            EntryMissingError: If it was undone already, or is of a kind that cannot be undone.
        """
        hint = "List the history to see its entries."
        moves = (EntryKind.UNDO, EntryKind.REDO)
        newer = takewhile(lambda each: each.number > entry.number, self.log())
        last = next(
            (each.kind for each in newer if each.target == entry.number and each.kind in moves),
            None,
        )
        if entry.kind in moves:
            problem, hint = f"reverted entry {entry.target}", f"Undo or redo entry {entry.target}."
        elif entry.kind is EntryKind.IMPORT:
            problem = "is the import"
        elif not _is_undoable(entry) and entry.kind is not EntryKind.EXTERNAL:
            problem = "changed nothing: it was rolled back"
        elif last is EntryKind.UNDO:
            problem = "is undone already"
        else:
            return Revertible(entry, "")  # newer entries may be in force
        raise EntryMissingError(f"entry {entry.number} cannot be undone: it {problem}", hint=hint)

    def to_redo(self) -> Revertible | None:
        """The newest undo that was not redone; costs the same along a chain of redos."""
        found = next(self.undone(), None)
        return None if found is None else Revertible(found, found.id)

    def _in_force(self) -> Iterator[Revertible]:
        """The committed calls, merges, syncs and restores that were not undone, newest first.

        Those that ``to_undo`` refused for a later undo may be left out.
        """
        newest: dict[int | None, EntryKind] = {}  # by target: the newest undo or redo, the oldest
        oldest: dict[int | None, EntryKind] = {}
        ends = self.store.repository.boundary()
        entry = self._head
        while entry is not None:
            known: LogEntry | None = None
            if entry.kind in (EntryKind.UNDO, EntryKind.REDO):
                newest.setdefault(entry.target, entry.kind)
                oldest[entry.target] = entry.kind
                if entry.kind is EntryKind.UNDO and not _redone_between(newest, entry):
                    known = self._continuation(entry, ends)
            elif _is_undoable(entry) and newest.get(entry.number) is not EntryKind.UNDO:
                # Undos and redos of one target alternate. So an older target is undone, or in
                # force, as it was before this entry, if its oldest and newest step differ.
                keeps_older = all(
                    target is None or target >= entry.number or oldest[target] is not kind
                    for target, kind in newest.items()
                )
                yield Revertible(entry, entry.id if keeps_older else "")
            entry = known or self._previous(entry, ends)

    def _continuation(self, entry: LogEntry, ends: frozenset[str]) -> LogEntry | None:
        """The entry at which the search for the next undo or redo may continue, if it is kept."""
        if not entry.continue_at or entry.target is None:
            return None
        if entry.target <= max(self._numbers_of(ends), default=0):
            return None  # it may be older than the boundary
        found = read_entry(self.store, entry.continue_at)
        return found if found.number < entry.number else None

    def _numbers_of(self, ends: frozenset[str]) -> tuple[int, ...]:
        """The numbers of the entries of a boundary."""
        if ends != self._end_numbers[0]:
            self._end_numbers = ends, tuple(read_entry(self.store, end).number for end in ends)
        return self._end_numbers[1]

    def _previous(self, entry: LogEntry, ends: frozenset[str]) -> LogEntry | None:
        if entry.parent is None or entry.id in ends:
            return None
        return read_entry(self.store, entry.parent)


def _redone_between(newest: dict[int | None, EntryKind], undo: LogEntry) -> bool:
    """Whether an entry between *undo* and its target is in force again."""
    first, last = undo.target or 0, undo.number
    return any(
        kind is EntryKind.REDO and target is not None and first < target < last
        for target, kind in newest.items()
    )
