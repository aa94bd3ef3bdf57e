"""Files that a rollback, a recovery or an undo discarded, kept until retention deletes them.

A discard is one commit without parents, so it keeps only its own files alive, under the ref
``refs/wink/discarded/<time>-<call>``. Its tree has ``files`` (all files at that time), ``changed``
(the discarded paths only) and ``about.json`` (the paths that were deleted then, and the files that
were too large to keep).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final, cast

from wink_workspace.counts import counted
from wink_workspace.errors import EntryMissingError, LedgerDamagedError
from wink_workspace.filesystem import Change, FileKind, WorkspacePath
from wink_workspace.ledger.store.git_tree import EMPTY_TREE_ID, GitTree
from wink_workspace.ledger.store.objects import ObjectStore
from wink_workspace.ledger.store.refs import RefMover
from wink_workspace.ledger.store.trees import TreeChange, TreeEntry, additions, entry_at, walk

from .commits import MAX_SUBJECT_CHARS, Commit, format_commit, is_number, one_line, parse_commit

DISCARDED_REFS: Final = "refs/wink/discarded/"
_MAX_CALL_CHARS: Final = 100
_MAX_NAMED: Final = 1_000
_MAX_SHOWN: Final = 5
_SHORTEST_PREFIX: Final = 4
_NOT_IN_REFS = re.compile(rb"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class DroppedFile:
    """A discarded file that was not kept: its path in the workspace, its size and the reason."""

    path: str
    size_bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """The files of one discard that were not kept; ``named`` has at most the first 1,000."""

    n_files: int = 0
    n_bytes: int = 0
    named: tuple[DroppedFile, ...] = ()

    @classmethod
    def of(cls, files: Sequence[DroppedFile]) -> Dropped:
        """The summary of *files*."""
        n_bytes = sum(each.size_bytes for each in files)
        return cls(len(files), n_bytes, tuple(files[:_MAX_NAMED]))

    def __bool__(self) -> bool:
        return self.n_files > 0

    def __str__(self) -> str:
        shown = "; ".join(
            f"{each.path} ({each.size_bytes:,} bytes, {each.reason})"
            for each in self.named[:_MAX_SHOWN]
        )
        more = "; …" if self.n_files > _MAX_SHOWN else ""
        return f"{counted(self.n_files, 'discarded file')} not kept: {shown}{more}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    """A discard to write.

    Attributes:
        files: The root of all files at that time.
        base: The root of the files of the entry before.
        number: The number of that entry, 0 for none.
        reason: Why the files are discarded, in a few words.
        call_id: The call that made them, or any name.
        at: When; for the same time, call and files, the ref is reused.
        dropped: The files that are not kept.
    """

    files: str
    base: str
    number: int
    reason: str
    call_id: str
    at: datetime
    dropped: Dropped = Dropped()


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """A stored discard.

    Attributes:
        ref: The ref that keeps it.
        id: The id of its commit.
        discard: Its number, for users.
        at: When, exact to the second.
        call_id: The call that made them.
        reason: ``rolled back``, ``interrupted`` (by a crash) or ``replaced`` (by an undo).
        number: The entry before it, 0 for none.
        files: The root of all files at that time.
        base: The root of that entry's files.
        changed: The root of the discarded paths only.
        removed: The paths that were deleted then.
        dropped: The files that were not kept.
    """

    ref: str
    id: str
    discard: int
    at: datetime
    call_id: str
    reason: str
    number: int
    files: str
    base: str
    changed: str
    removed: tuple[WorkspacePath, ...]
    dropped: Dropped


def keep_discarded(
    store: ObjectStore, refs: RefMover, what: Discard, *, number: Callable[[], int]
) -> Discarded:
    """Keep *what* under a ref, with a new *number*; what is kept already is not kept twice.

    Raises:
        LedgerError: If it cannot be written.
    """
    for ref in _ref_names(what.call_id, what.at):
        commit_id = store.repository.ref(ref)
        if commit_id is None:
            commit_id = _write_discard(store, what, number())
            store.sync()
            refs.move(ref, expected=None, target=commit_id)
            return discarded_at(store, ref, commit_id)
        found = discarded_at(store, ref, commit_id)
        if (found.files, found.reason, found.number) == (what.files, what.reason, what.number):
            return found
    raise AssertionError("names do not end")


def _write_discard(store: ObjectStore, what: Discard, discard: int) -> str:
    changed, removed = additions(store, what.base, what.files)
    dropped = [[each.path, each.size_bytes, each.reason] for each in what.dropped.named]
    about = {
        "removed": [path.parts for path in removed],
        "dropped": {
            "n_files": what.dropped.n_files,
            "n_bytes": what.dropped.n_bytes,
            "named": dropped,
        },
    }
    parts = {
        b"about.json": TreeEntry(FileKind.FILE, store.write_blob(json.dumps(about).encode())),
        b"changed": TreeEntry(FileKind.DIRECTORY, changed),
        b"files": TreeEntry(FileKind.DIRECTORY, what.files),
    }
    tree = store.write_tree(GitTree.of(parts))
    trailers = {
        "Reason": one_line(what.reason),
        "Call": one_line(what.call_id),
        "Number": str(what.number),
        "Discard": str(discard),
        "Base": what.base,
    }
    subject = one_line(f"discarded: {what.reason}", MAX_SUBJECT_CHARS)
    commit = Commit(tree, None, what.at, subject, trailers)
    return store.write("commit", format_commit(commit))


def _ref_names(call_id: str, at: datetime) -> Iterator[str]:
    """The ref name for a discard, then alternatives for when it is taken."""
    time = at.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    call = _NOT_IN_REFS.sub(
        lambda found: b"%%%02X" % found[0][0], one_line(call_id, _MAX_CALL_CHARS).encode()
    )
    name = f"{DISCARDED_REFS}{time}-{call.decode() or 'unknown'}"
    yield name
    yield from (f"{name}-{n}" for n in count(2))


def discarded_at(store: ObjectStore, ref: str, commit_id: str) -> Discarded:
    """Read the discard that *ref* points to.

    Raises:
        LedgerDamagedError: If ``keep_discarded`` did not make it.
    """
    commit = parse_commit(commit_id, store.read(commit_id, "commit"))
    tree, trailers = store.tree(commit.tree), commit.trailers
    files, changed = tree.get(b"files"), tree.get(b"changed")
    about = tree.get(b"about.json")
    if files is None or changed is None or about is None:
        raise LedgerDamagedError(f"{ref} is not a discard: its commit lacks some of its files")
    removed, dropped = _read_about(store, ref, about)
    return Discarded(
        ref=ref,
        id=commit_id,
        discard=int(trailers.get("Discard", "0")),
        at=commit.at,
        call_id=trailers.get("Call", ""),
        reason=trailers.get("Reason", ""),
        number=int(trailers.get("Number", "0")),
        files=files.id,
        base=trailers.get("Base", EMPTY_TREE_ID),
        changed=changed.id,
        removed=removed,
        dropped=dropped,
    )


def _read_about(
    store: ObjectStore, ref: str, entry: TreeEntry
) -> tuple[tuple[WorkspacePath, ...], Dropped]:
    try:
        about = cast("Mapping[str, Any]", json.loads(store.read(entry.id)))
        dropped = about["dropped"]
        named = tuple(DroppedFile(*each) for each in dropped["named"])
        removed = tuple(WorkspacePath(tuple(parts)) for parts in about["removed"])
        return removed, Dropped(dropped["n_files"], dropped["n_bytes"], named)
    except (ValueError, TypeError, KeyError) as error:
        raise LedgerDamagedError(f"about.json of {ref} cannot be read: {error!r}") from error


def discard_changes(
    store: ObjectStore, discarded: Discarded, *, base: str | None
) -> Iterator[TreeChange]:
    """Every discarded path, in path order, with its state before and at the discard.

    *base* is the root of the files of the entry before, if it is still kept. Without it, every
    ``before`` is ``None``.
    """
    found: dict[WorkspacePath, TreeEntry | None] = dict.fromkeys(discarded.removed)
    found.update(walk(store, discarded.changed))
    for path, after in sorted(found.items(), key=lambda item: item[0]):
        before = None if base is None else entry_at(store, base, path)
        if not _is_only_a_parent(before, after, is_known=base is not None):
            yield Change(path, before, after)


def _is_only_a_parent(before: TreeEntry | None, after: TreeEntry | None, *, is_known: bool) -> bool:
    """Whether a path is a directory that is listed only because a path below it changed."""
    if after is None or after.kind is not FileKind.DIRECTORY:
        return False
    if before is not None:
        return before.kind is FileKind.DIRECTORY
    return not is_known and after.id != EMPTY_TREE_ID


def find_discarded(all_of: Sequence[Discarded], which: int | str) -> Discarded:
    """Find one discard among *all_of*, by its number or by the beginning of its id.

    *which* is a number (an ``int``, or digits) or text.

    Digits mean a number if a discard has it, otherwise the beginning of an id.

    Raises:
        EntryMissingError: If none matches, or several ids do.
    """
    found: list[Discarded] = []
    if isinstance(which, int) or is_number(which):
        found = [each for each in all_of if each.discard == int(which) > 0]
    if not found and isinstance(which, str) and len(which) >= _SHORTEST_PREFIX:
        found = [each for each in all_of if each.id.startswith(which.lower())]
    if len(found) != 1:
        raise EntryMissingError(
            f"{'several discards have' if found else 'no discard that is kept has'} "
            f"the number or id {str(which)!r}",
            hint="List the discards of the workspace.",
        )
    return found[0]


def last_discard_number(store: ObjectStore) -> int:
    """The highest number of a kept discard, 0 for none; reads every discard."""
    refs = store.repository.refs(DISCARDED_REFS).values()
    commits = (parse_commit(commit_id, store.read(commit_id, "commit")) for commit_id in refs)
    return max((int(commit.trailers.get("Discard", "0")) for commit in commits), default=0)
