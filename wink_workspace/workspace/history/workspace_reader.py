"""Read access to a workspace's history, for open workspaces and for ``WorkspaceReader``.

``WorkspaceReader`` reads a workspace that another process may have open. It takes no lock and
recovers nothing. It writes nothing except a new fork. It sees what was committed: edits without
an entry are not included.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from wink_workspace.errors import (
    EntryMissingError,
    FileMissingError,
    LedgerDamagedError,
    LedgerError,
    LimitExceededError,
    UsageError,
)
from wink_workspace.filesystem import FileChange, FileKind, Filesystem, WorkspacePath, parse_path
from wink_workspace.ledger import (
    EMPTY_TREE_ID,
    MAIN_BRANCH,
    Branch,
    Discarded,
    Documents,
    Forgotten,
    Ledger,
    LogEntry,
    ObjectStore,
    Record,
    TreeChange,
    TreeEntry,
    diff,
    discard_changes,
    entries_at,
    entry_at,
    file_changes,
    find_discarded,
    names_in,
    read_entry,
    tree_diff,
)
from wink_workspace.workspace.branch.recorded_branch import (
    IMPORTED_BRANCH,
    RecordedBranch,
    forks_of,
    head_of,
    require_branch,
)
from wink_workspace.workspace.changes.applied_trees import AppliedTrees
from wink_workspace.workspace.place.shared_folders import delete_tree
from wink_workspace.workspace.place.storage import WorkspaceFolder, WorkspaceInfo

if TYPE_CHECKING:
    from wink_workspace.filesystem import Diff
    from wink_workspace.workspace.changes.changeset import ChangeSet

    from .blame import BlamedLine


# --------------------------------------------------------------------------------------- timeline

# The entries of all branches, newest first, each with the lanes of the branches beside it.
#
# A lane is a column in which the entries of one branch follow each other. Where a fork began, its
# lane joins the other one. A page of a long history continues where the one before ended: the
# cursor names the entry that comes next in each lane, so nothing before it is read again.


_CURSOR: Final = re.compile(r"(?:(?:[0-9a-f]{40}|-)(?:\.(?:[0-9a-f]{40}|-))*)?~(?:[0-9a-f.]*)")
_ID: Final = re.compile("[0-9a-f]{40}")
_MAX_CURSOR_CHARS: Final = 100_000


class TimelineRow(NamedTuple):
    """One entry.

    Attributes:
        entry: The entry.
        lanes: A character for each lane: ``*`` the entry, ``|`` another branch, ``/`` one that
            joins here, a space between branches.
        branches: The branches whose newest entry it is.
        after: The cursor of the rows after this one; ``""`` if it is the last.
    """

    entry: LogEntry
    lanes: str
    branches: tuple[str, ...]
    after: str


class _Lanes:
    """The entry that comes next in each lane, and the heads that have no lane yet."""

    def __init__(self, lanes: Sequence[str | None], heads: Sequence[str]) -> None:
        self.lanes = list(lanes)
        self.heads = list(heads)

    @classmethod
    def parse(cls, cursor: str) -> _Lanes:
        if len(cursor) > _MAX_CURSOR_CHARS or not _CURSOR.fullmatch(cursor):
            raise UsageError("this is not a place in a timeline", hint="Begin with the newest.")
        lanes, _, heads = cursor.partition("~")
        return cls(
            [None if each == "-" else each for each in lanes.split(".") if each],
            _ID.findall(heads),
        )

    @property
    def cursor(self) -> str:
        if not self.waiting:
            return ""
        return f"{'.'.join(each or '-' for each in self.lanes)}~{'.'.join(self.heads)}"

    @property
    def waiting(self) -> set[str]:
        return {*filter(None, self.lanes), *self.heads}

    def take(self, entry_id: str, parent: str | None) -> str:
        """Draw the row of an entry, and let its parent come next in its lane."""
        if entry_id in self.heads:
            self.heads.remove(entry_id)
        mine = [n for n, each in enumerate(self.lanes) if each == entry_id]
        if not mine:
            mine = [self.lanes.index(None) if None in self.lanes else len(self.lanes)]
            self.lanes[mine[0] : mine[0] + 1] = [entry_id]
        lane, *joining = mine
        signs = dict.fromkeys(joining, "/") | {lane: "*"}
        drawn = [" " if each is None else signs.get(n, "|") for n, each in enumerate(self.lanes)]
        self.lanes[lane] = parent
        for n in joining:
            self.lanes[n] = None
        while self.lanes and self.lanes[-1] is None:
            self.lanes.pop()
        return "".join(drawn).rstrip()


def timeline(
    store: ObjectStore, heads: Mapping[str, str], *, after: str = ""
) -> Iterator[TimelineRow]:
    """The rows, newest first: every entry comes before its parent.

    Args:
        store: The objects.
        heads: The id of the newest entry of each branch, by the name of the branch.
        after: The cursor at which to continue.

    Raises:
        UsageError: If *after* is not a cursor.
        LedgerError: If an entry cannot be read.
    """
    ends = store.repository.boundary()
    lanes = _Lanes.parse(after) if after else _Lanes((), list(dict.fromkeys(heads.values())))
    known: dict[str, LogEntry] = {}
    while waiting := lanes.waiting:
        known = {each: known.get(each) or read_entry(store, each) for each in waiting}
        entry = max(known.values(), key=lambda each: (each.number, each.at))
        parent = None if entry.id in ends else entry.parent
        drawn = lanes.take(entry.id, parent)
        names = tuple(name for name, head in heads.items() if head == entry.id)
        yield TimelineRow(entry, drawn, names, lanes.cursor)


# ------------------------------------------------------------------------------- workspace reader


_LARGEST_READ_BYTES = 64 * 1_048_576


class ReadableHistory:
    """One branch of a workspace's history.

    Args:
        info: The id, source and mode of the workspace.
        ledger: The ledger.
        branch: The branch.
        applied: The file of ``AppliedTrees``.
    """

    def __init__(
        self, info: WorkspaceInfo, ledger: Ledger, branch: Branch, *, applied: Path
    ) -> None:
        self.info = info
        self._ledger = ledger
        self._branch = branch
        self._recorded = RecordedBranch(info, ledger, branch, applied)

    def log(self, *, limit: int | None = None) -> Iterator[LogEntry]:
        """The entries, newest first, each read on demand; at most *limit* of them."""
        return self._branch.log(limit=limit)

    def entry(self, which: int | str) -> LogEntry:
        """The entry *which*, a number or the beginning of an id, or ``EntryMissingError``."""
        return self._branch.find(which)

    def record(self, entry: LogEntry) -> Record:
        """The full record of an entry."""
        return self._branch.record(entry)

    def small_record(self, entry: LogEntry, *, limit_bytes: int) -> Record | None:
        """As ``record``; ``None`` if it is larger than *limit_bytes*, without reading it."""
        if self._ledger.store.size_bytes(entry.record_id) > limit_bytes:
            return None
        return self.record(entry)

    def reverted_by(self, move: LogEntry) -> LogEntry | None:
        """The entry that an undo, redo or restore is about, if it is kept."""
        return None if move.target is None else self._branch.at(move.target, start=move)

    def not_undone(self, undo: LogEntry) -> tuple[str, ...]:
        """What the entry of an undo did not take back: effects outside, and uncertain paths."""
        effects = self._recorded.outside_effects(undo.target)
        uncertain = self._recorded.uncertain_paths(undo.target)
        if not uncertain or undo.target is None:
            return effects
        store, done = self._ledger.store, self._recorded.branch.find(undo.target).files
        kept = (
            path
            for path in uncertain
            if entry_at(store, undo.files, parse_path(path))
            == entry_at(store, done, parse_path(path))
        )
        return (*effects, *(f"{path}, which may have been changed by you" for path in kept))

    def changes_of(self, entry: LogEntry) -> tuple[FileChange, ...]:
        """What one entry changed in files, with contents; for the first entry, all files.

        Empty if that is not known any more, see ``lost_changes``.

        Raises:
            LimitExceededError: If a content is above 64 MiB; ``review_of`` has no such limit.
        """
        changed = diff(self._ledger.store, self._root_before(entry), entry.files)
        return self._with_contents(changed)

    def review_of(self, entry: LogEntry) -> Diff:
        """The changes of an entry as a diff; contents are read while this is open.

        Empty if they are not known any more, see ``lost_changes``.
        """
        store = self._ledger.store
        return tree_diff(store, diff(store, self._root_before(entry), entry.files))

    def lost_changes(self, entry: LogEntry) -> str:
        """Why the changes of the oldest entry that is kept are not known; empty if they are."""
        if entry.parent is not None:
            try:
                self._branch.before(entry)
            except EntryMissingError:
                return "Its changes are not known any more: retention deleted the entry before it."
        return ""

    def blame(
        self, path: str, *, at: LogEntry | int | str | None = None, limit: int | None = None
    ) -> tuple[BlamedLine, ...]:
        """A committed file, with the entry that wrote each part of it.

        Text that an undo, a restore or a merge brought back belongs to the call that wrote it.
        An edit outside of calls that has no entry yet is not seen.

        Args:
            path: The file.
            at: Look at the file after this entry, of any branch; by default after the newest one.
            limit: Look back through this many entries at most; what may be older is marked.

        Raises:
            EntryMissingError: If there is no such entry.
            FileMissingError: If there is no such file.
            UsageError: If it is a directory or a link.
            LimitExceededError: If it is above 64 MiB, or too long to compare.
        """
        if not isinstance(at, LogEntry):
            at = self.head if at is None else self.entry(at)
        from .blame import blame

        return blame(self._branch, path, at=at, limit=limit)

    def entry_of_any_branch(self, entry_id: str) -> LogEntry:
        """The entry with a full id; costs the same for old and new ones.

        Raises:
            EntryMissingError: If there is none.
        """
        try:
            return read_entry(self._ledger.store, entry_id)
        except LedgerError as error:
            raise EntryMissingError(f"no entry has the id {entry_id!r}") from error

    def review_between(self, before: LogEntry, after: LogEntry) -> Diff:
        """The differences between the files after two entries, as a diff."""
        store = self._ledger.store
        return tree_diff(store, diff(store, before.files, after.files))

    def listing(self, entry: LogEntry, path: str = "") -> tuple[tuple[str, TreeEntry], ...]:
        """The names in the directory *path* after *entry*, each with its entry, directories first.

        Raises:
            FileMissingError: If there is no such directory.
        """
        store, parsed = self._ledger.store, parse_path(path)
        found = entry_at(store, entry.files, parsed)
        if found is None or found.kind is not FileKind.DIRECTORY:
            raise FileMissingError(f"{path or '.'} is not a directory after entry {entry.number}")
        known = entries_at(store, entry.files, parsed, names_in(store, found)) or {}
        rows = [(name, each) for name, each in known.items() if each is not None]
        return tuple(sorted(rows, key=lambda row: (row[1].kind is not FileKind.DIRECTORY, row[0])))

    def content(self, entry: LogEntry, path: str, *, limit_bytes: int) -> bytes:
        """The content of the file *path* after *entry*; for a link, its target.

        Raises:
            FileMissingError: If there is no such file.
            LimitExceededError: If it is larger than *limit_bytes*.
        """
        store = self._ledger.store
        found = entry_at(store, entry.files, parse_path(path))
        if found is None or found.kind is FileKind.DIRECTORY:
            raise FileMissingError(f"{path} is not a file after entry {entry.number}")
        size_bytes = store.size_bytes(found.id)
        if size_bytes > limit_bytes:
            raise LimitExceededError(
                f"{path} has {size_bytes:,} bytes; {limit_bytes:,} are shown at most"
            )
        return store.read(found.id)

    def files_at(self, which: LogEntry | int | str | None = None) -> Filesystem:
        """The files after the entry *which* (the newest), read-only; each part is read on demand.

        Raises:
            EntryMissingError: If there is no such entry.
        """
        if not isinstance(which, LogEntry):
            which = self.head if which is None else self.entry(which)
        from .entry_files import files_after  # on use: with files in memory, 10 ms to load

        return files_after(self._ledger.store, which)

    def changeset(
        self, *, since: LogEntry | None = None, include_ignored: bool = False
    ) -> ChangeSet:
        """The changes that can be applied to the source: from the base to the present state.

        Args:
            since: Compare with the files after this entry instead of the base.
            include_ignored: Include created files that the source's rules ignore.
        """
        base = self._recorded.base_files() if since is None else since.files
        found = self._recorded.changeset(
            base, self._present_root(), include_ignored=include_ignored
        )
        return replace(found, derived=self.derived_changes())

    def unapplied(self, *, limit: int | None = None) -> ChangeSet:
        """The changes since the newest apply, or since the base if there was none.

        The source is not compared, so what it lost since is not included. With *limit*, only that
        many are looked at, to count them; it cannot be applied.
        """
        base = self._recorded.base_files()
        with suppress(LedgerDamagedError):
            for applied in AppliedTrees(self._recorded.applied).applied_changes(
                self.branch_name, base
            ):
                if applied.tree in self._ledger.store.repository:
                    base = applied.tree
                    break
        return self._recorded.changeset(
            base, self._present_root(), include_ignored=False, limit=limit
        )

    @property
    def was_applied(self) -> bool:
        """Whether something of this branch was applied since its base."""
        with suppress(LedgerDamagedError):
            applied = AppliedTrees(self._recorded.applied)
            return bool(applied.applied_changes(self.branch_name, self._recorded.base_files()))
        return False

    @property
    def branch_name(self) -> str:
        """The name of the branch."""
        return self._recorded.name

    def derived_changes(self) -> tuple[WorkspacePath, ...]:
        """The derived paths that changed since the import; unknown unless the workspace is open.

        They belong neither to the history nor to a diff, an apply or an undo. The time is bounded:
        a very large one is looked at in part.
        """
        return self._derived_changes()

    def _derived_changes(self) -> tuple[WorkspacePath, ...]:
        return ()

    def changes(self) -> tuple[FileChange, ...]:
        """``changeset`` with contents.

        Raises:
            LimitExceededError: If a content is above 64 MiB; ``ChangeSet.review`` has no such
                limit.
        """
        return self._with_contents(self.changeset().reported)

    @property
    def head(self) -> LogEntry:
        """The newest entry; ``LedgerDamagedError`` if there is none."""
        return self._recorded.head

    def forgotten(self) -> Forgotten | None:
        """What retention removed last from this branch; ``None`` if nothing."""
        note = self._ledger.forgotten(self._branch)
        if note is None:
            return None
        newest = min(note.up_to_number, self.head.number)
        # If it is kept, a process died between the note and the deletion
        return None if self._branch.at(newest) is not None else note

    def discarded(self) -> tuple[Discarded, ...]:
        """What rollbacks, recoveries and undos discarded in this workspace, newest first."""
        return self._ledger.discarded()

    def find_discarded(self, which: int | str) -> Discarded:
        """The discard with a number or the beginning of an id.

        Raises:
            EntryMissingError: If there is none, or if several ids begin with *which*.
        """
        return find_discarded(self.discarded(), which)

    def discarded_paths(self, discarded: Discarded) -> tuple[WorkspacePath, ...]:
        """The discarded paths in path order, without those that were deleted at that time."""
        return tuple(
            each.path for each in self._discarded_tree_changes(discarded) if each.after is not None
        )

    def discarded_changes(self, discarded: Discarded) -> tuple[FileChange, ...]:
        """The discarded state compared with the entry after which it was found, with contents.

        Raises:
            LimitExceededError: If a content is above 64 MiB; ``review_of_discarded`` has no such
                limit.
        """
        return self._with_contents(self._discarded_tree_changes(discarded))

    def review_of_discarded(self, discarded: Discarded) -> Diff:
        """``discarded_changes`` as a diff, like ``review_of``."""
        return tree_diff(self._ledger.store, self._discarded_tree_changes(discarded))

    def _discarded_tree_changes(self, discarded: Discarded) -> Iterator[TreeChange]:
        store, base = self._ledger.store, discarded.base
        is_kept = base == EMPTY_TREE_ID or base in store.repository  # else retention removed it
        return discard_changes(store, discarded, base=base if is_kept else None)

    def forks(self) -> tuple[str, ...]:
        """The names of all forks, sorted."""
        return forks_of(self._ledger)

    def timeline(self, *, after: str = "") -> Iterator[TimelineRow]:
        """The entries of all branches, newest first, with their lanes.

        Args:
            after: The cursor of the row after which to continue.

        Raises:
            UsageError: If *after* is not a cursor.
            LedgerError: If an entry cannot be read.
        """
        return timeline(self._ledger.store, self.heads(), after=after)

    def head_of(self, branch: str) -> LogEntry:
        """The newest entry of a branch.

        Raises:
            EntryMissingError: If there is no such fork, or it has no entry.
        """
        return head_of(self._ledger, branch)

    def log_of(self, branch: str) -> Iterator[LogEntry]:
        """The entries of a branch, newest first; raises as ``head_of``."""
        require_branch(self._ledger, branch)
        return self._ledger.branch(branch).log()

    def documents(self, kind: str) -> Documents:
        """JSON documents in the ledger that belong to the workspace and not to its history."""
        return self._ledger.documents(kind)

    def heads(self) -> dict[str, str]:
        """The id of the newest entry of every branch, the main branch first."""
        heads = self._ledger.heads(discards=False)
        named = {ref.rpartition("/")[2]: entry_id for ref, entry_id in heads.items()}
        named.pop(IMPORTED_BRANCH, None)
        return named

    def branch_of(self, entry: LogEntry) -> str:
        """The first branch that has *entry*, the main branch first.

        Raises:
            EntryMissingError: If no branch has it.
        """
        for name in (MAIN_BRANCH, *self.forks()):
            with suppress(EntryMissingError):  # the fork was deleted meanwhile
                found = self._ledger.branch(name).at(entry.number)
                if found is not None and found.id == entry.id:
                    return name
        raise EntryMissingError(f"no branch has entry {entry.number}, {entry.id}")

    def _present_root(self) -> str:
        """The root of the present files."""
        return self.head.files

    def _root_before(self, entry: LogEntry) -> str:
        if entry.parent is None:
            return EMPTY_TREE_ID
        return entry.files if self.lost_changes(entry) else self._branch.before(entry).files

    def _with_contents(self, changes: Iterable[TreeChange]) -> tuple[FileChange, ...]:
        return tuple(file_changes(self._ledger.store, changes, limit_bytes=_LARGEST_READ_BYTES))


class WorkspaceReader(ReadableHistory):
    """The history of a workspace that need not be open; used in a ``with`` block.

    Args:
        folder: The workspace.
        branch: The main branch, or the name of a fork.
        most_cached: The most entries of directories to keep in memory; a default, if left out.

    Raises:
        EntryMissingError: If there is no such fork.
        LedgerError: If it cannot be read, or its ref is missing.
    """

    def __init__(
        self,
        folder: WorkspaceFolder,
        *,
        branch: str = MAIN_BRANCH,
        most_cached: int | None = None,
    ) -> None:
        info, ledger = folder.info(), Ledger(folder.ledger)
        self._folder = folder
        if most_cached is not None:
            ledger.store.most_cached = most_cached
        try:
            super().__init__(info, ledger, ledger.branch(branch), applied=folder.applied)
            _ = self.head  # raises if it is missing
        except BaseException:
            ledger.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ledger.close()

    def refresh(self) -> LogEntry:
        """Read again which entry is the newest; raises as ``head``."""
        self._branch.refresh()
        return self.head

    def fork(self, name: str, *, at: int | str | None = None) -> None:
        """Begin another branch at an entry, by default at the newest.

        Raises:
            UsageError: If *name* is taken, or is not a valid name.
            EntryMissingError: If there is no such entry.
        """
        entry = self.head if at is None else self.entry(at)
        left = self._folder.of_branch(name).branch_dir  # of a process that was killed in ``fork``
        self._ledger.fork(name, entry, first=lambda: delete_tree(left))
