"""Three-way merges of files and of STATE, for all operations.

Undo merges the tree before an entry into the present tree, with the tree after the entry as the
base. That removes the entry's changes and keeps later ones. Redo is the undo of an undo. Apply,
merge and sync use the same merge with other trees.

A path that only one side changed takes that side's state. A text file that both changed is merged
line by line, as in git, also with its attribute ``merge=union``. Any other path that both changed
is a conflict. Then there is no result, so that no caller writes half of one, unless the caller asks
for conflict markers. A directory in which one side made or changed something is not deleted or
replaced for the other side.

STATE is merged slice by slice: a slice has no general way to merge. A slice that both sides
changed keeps our state, and is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from wink_workspace.errors import Conflict, ConflictHunk
from wink_workspace.filesystem.diff import changed_lines
from wink_workspace.filesystem.ignoring import path_patterns
from wink_workspace.filesystem.model import FileKind
from wink_workspace.filesystem.paths import WorkspacePath

from .names import workspace_name
from .objects import LARGE_BYTES, ObjectStore
from .trees import (
    EMPTY_TREE_ID,
    SOME_DIRECTORY,
    TreeChange,
    TreeEntry,
    build,
    diff,
    entry_at,
)

_TEXT_SAMPLE_BYTES: Final = 8_000  # git's own measure of what is binary
_MAX_LINES: Final = 1_000_000
_MAX_HUNKS: Final = 20
_MAX_HUNK_CHARS: Final = 2_000


@dataclass(frozen=True, slots=True)
class SideNames:
    """The names of the two sides in conflict markers."""

    ours: str
    theirs: str


@dataclass(frozen=True, slots=True)
class Merge:
    """The merged tree, or the conflicts in path order.

    With conflict markers, the result has both: the tree has each conflict with hunks between
    markers, and our side's state of every other one.
    """

    tree: str | None
    conflicts: tuple[Conflict, ...] = ()


class _ConflictFound(Exception):  # noqa: N818 - it never leaves this module
    """Why one path cannot be merged; with the contents, if all are text."""

    def __init__(self, reason: str, texts: _Texts | None = None) -> None:
        super().__init__(reason)
        self.texts = texts


def merge_trees(
    store: ObjectStore, *, base: str, ours: str, theirs: str, markers: SideNames | None = None
) -> Merge:
    """Merge the changes from *base* to *theirs* into *ours*; the cost follows their number.

    With *markers*, conflicting texts are in the result, between conflict markers.

    Raises:
        LedgerError: If an object cannot be read or written.
    """
    changes: dict[WorkspacePath, TreeEntry | None] = {}
    conflicts: dict[WorkspacePath, Conflict] = {}
    merger = _Merger(store, base, ours)
    for change in diff(store, base, theirs):
        if any(above in conflicts for above in change.path.ancestors()):
            continue  # a conflict in a directory keeps all of it
        try:
            changes.update(merger.merge(change))
        except _ConflictFound as found:
            present = entry_at(store, ours, change.path)
            if found.texts is not None and present is not None and merger.wants_union(change.path):
                blob = store.write_blob(found.texts.union(store))
                changes[change.path] = replace(present, id=blob)
                continue
            conflicts[change.path] = _conflict(store, change.path, found)
            if markers is not None and found.texts is not None and present is not None:
                blob = store.write_blob(found.texts.with_markers(store, markers))
                changes[change.path] = TreeEntry(FileKind.FILE, blob, present.executable)
    if conflicts and markers is None:
        return Merge(None, tuple(conflicts.values()))
    return Merge(build(store, ours, changes), tuple(conflicts.values()))


@dataclass(frozen=True, slots=True)
class AppliedChange:
    """A change that was applied to a tree earlier.

    Attributes:
        change: The change.
        is_there: Whether the tree still has all of it.
        edited: If the changed lines were edited since: the base with the part of the change that
            the tree still has.
    """

    change: TreeChange
    is_there: bool
    edited: TreeEntry | None = None


def applied_changes(
    store: ObjectStore, *, base: str, ours: str, theirs: str
) -> Iterator[AppliedChange]:
    """Each change from *base* to *theirs*, and whether *ours* still has it.

    *ours* has it if merging it changes nothing. If the merge is a conflict, the same lines were
    edited, with or without the change applied. It was applied if fewer lines of *ours* differ from
    *theirs* than from *base*.
    """
    merger = _Merger(store, base, ours)
    for change in diff(store, base, theirs):
        present = entry_at(store, ours, change.path)
        try:
            merged = dict(merger.merge(change))
        except _ConflictFound as found:
            text = None if found.texts is None else found.texts.still_there(store)
            edited = None
            if text is not None and change.after is not None:
                blob = store.write_blob(text)
                edited = TreeEntry(FileKind.FILE, blob, change.after.executable)
            yield AppliedChange(change, is_there=False, edited=edited)
        else:
            is_there = all(_same(present, entry) for entry in merged.values())
            yield AppliedChange(change, is_there)


def without_lines(
    store: ObjectStore,
    base: TreeEntry | None,
    applied: TreeEntry | None,
    present: TreeEntry | None,
) -> TreeEntry | None:
    """The text *present* without the lines that *applied* added to *base*.

    Lines of *base* that they replaced are restored. Other changes in *present* stay, also in the
    same lines. A *present* that is not text is returned unchanged.
    """
    if applied is None or present is None:
        return present
    if not all(_is_text(store, entry) for entry in (base, applied, present) if entry is not None):
        return present
    texts = [b"" if entry is None else store.read(entry.id) for entry in (base, applied, present)]
    edits = changed_lines(texts[1], texts[2])
    base_lines, _, result = map(_lines, texts)
    for old, new in reversed(changed_lines(texts[0], texts[1])):
        edited = {n for edit, _ in edits for n in edit}
        remaining = [_line_in(edits, n) for n in new if n not in edited]
        position = remaining[0] if remaining else _line_in(edits, new.start)
        for n in reversed(remaining):
            del result[n]
        if remaining or not new:
            result[position:position] = base_lines[old.start : old.stop]
    return replace(present, id=store.write_blob(b"".join(result)))


@dataclass(frozen=True, slots=True)
class _Merger:
    store: ObjectStore
    base: str
    ours: str

    def merge(self, change: TreeChange) -> Iterator[tuple[WorkspacePath, TreeEntry | None]]:
        """The paths to change and their new entries; none if the change is there already."""
        present = entry_at(self.store, self.ours, change.path)
        if _same(present, change.after):
            return
        if not _same(present, change.before):
            yield change.path, self._merge_files(change, present)
        elif not _is_directory(change.before):
            self._check_parents(change)
            yield change.path, _without_content(change.after)
        elif not self._has_new_states(change.path):
            yield change.path, change.after
        elif change.after is not None:
            raise _ConflictFound("holds files that were made or changed since")

    def _check_parents(self, change: TreeChange) -> None:
        """Raise a conflict if a directory would replace a file that was made since."""
        if change.after is None:
            return
        for ancestor in change.path.ancestors():
            there = entry_at(self.store, self.ours, ancestor)
            known = entry_at(self.store, self.base, ancestor)
            if there not in (None, known) and not _is_directory(there):
                raise _ConflictFound(f"cannot be inside {ancestor}, which is a file now")

    def _has_new_states(self, path: WorkspacePath) -> bool:
        """Whether our directory has something that the base does not have there."""
        ours, base = (entry_at(self.store, root, path) for root in (self.ours, self.base))
        changed = diff(self.store, _tree_id(base), _tree_id(ours))
        return any(change.after is not None for change in changed)

    def _merge_files(self, change: TreeChange, present: TreeEntry | None) -> TreeEntry:
        before, after = change.before, change.after
        if present is None:
            raise _ConflictFound("was deleted since")
        if after is None:
            raise _ConflictFound("was changed since, and would be deleted")
        if before is None:
            raise _ConflictFound(
                "was made since, with another content", self._texts(None, present, after)
            )
        if {before.kind, after.kind, present.kind} != {FileKind.FILE}:
            raise _ConflictFound("was changed since, and is not a file on all sides")
        executable = (after if present.executable == before.executable else present).executable
        return TreeEntry(FileKind.FILE, self._merge_blobs(before, present, after), executable)

    def _merge_blobs(self, before: TreeEntry, present: TreeEntry, after: TreeEntry) -> str:
        if present.id in (before.id, after.id):
            return after.id
        if after.id == before.id:
            return present.id
        texts = self._texts(before, present, after)
        if texts is None:
            raise _ConflictFound("was changed since, and is not text that could be merged")
        contents = (self.store.read(each.id) for each in (before, present, after))
        merged = self.store.repository.merge_contents(*contents)
        if merged is None:
            raise _ConflictFound("was changed since, in the same lines", texts)
        return self.store.write_blob(merged)

    def wants_union(self, path: WorkspacePath) -> bool:
        """Whether our ``.gitattributes`` set ``merge=union`` for *path*; the last pattern wins."""
        for above in reversed(list(path.ancestors())):
            there = entry_at(self.store, self.ours, above / ".gitattributes")
            if there is None or not _is_text(self.store, there):
                continue
            rules = self.store.read(there.id).decode("utf-8", "surrogateescape").splitlines()
            for pattern, *attributes in filter(None, map(str.split, reversed(rules))):
                found = [each for each in attributes if each.lstrip("-!").split("=")[0] == "merge"]
                if not found or pattern[0] in '#!"[' or pattern.endswith("/"):
                    continue
                with suppress(ValueError):  # it matches nothing
                    if path_patterns((pattern,)).match(path.parts[len(above.parts) :]):
                        return found[-1] == "merge=union"
        return False

    def _texts(
        self, before: TreeEntry | None, present: TreeEntry, after: TreeEntry
    ) -> _Texts | None:
        """The three contents, if all are texts and small enough to merge."""
        sides = (before, present, after)
        if any(side is not None and not _is_text(self.store, side) for side in sides):
            return None
        return _Texts("" if before is None else before.id, present.id, after.id)


def _is_text(store: ObjectStore, entry: TreeEntry) -> bool:
    """Whether *entry* is a file that can be merged line by line."""
    if entry.kind is not FileKind.FILE or store.size_bytes(entry.id) >= LARGE_BYTES:
        return False
    content = store.read(entry.id)
    # libgit2 takes seconds and gigabytes for millions of short lines.
    return b"\0" not in content[:_TEXT_SAMPLE_BYTES] and content.count(b"\n") <= _MAX_LINES


def _is_directory(entry: TreeEntry | None) -> bool:
    return entry is not None and entry.kind is FileKind.DIRECTORY


def _same(one: TreeEntry | None, other: TreeEntry | None) -> bool:
    """Whether two entries are equal; the contents of directories are not compared."""
    return one == other or (_is_directory(one) and _is_directory(other))


def _without_content(entry: TreeEntry | None) -> TreeEntry | None:
    """*entry*, a directory without its content, which is merged path by path."""
    return SOME_DIRECTORY if _is_directory(entry) else entry


def _tree_id(entry: TreeEntry | None) -> str:
    return EMPTY_TREE_ID if entry is None else entry.id


# Conflicts in texts


@dataclass(frozen=True, slots=True)
class _Texts:
    """The ids of three texts; *base* is empty where there was no file."""

    base: str
    ours: str
    theirs: str

    def contents(self, store: ObjectStore) -> tuple[bytes, bytes, bytes]:
        base = store.read(self.base) if self.base else b""
        return base, store.read(self.ours), store.read(self.theirs)

    def still_there(self, store: ObjectStore) -> bytes | None:
        """The base with those of their changes that our side still has; ``None`` if it has none.

        Our side has lost a change if it has the base's lines there.
        """
        base, ours, theirs = self.contents(store)
        edits, changes = changed_lines(theirs, ours), changed_lines(base, theirs)
        if _n_changed(edits) >= _n_changed(changed_lines(base, ours)):
            return None
        back = [(new, old) for old, new in changes]
        base_lines, our_lines, their_lines = _lines(base), _lines(ours), _lines(theirs)
        result = list(their_lines)
        for old, new in reversed(changes):
            touching = [edit for edit, _ in edits if _touch(edit, new)]
            start = min([new.start, *(edit.start for edit in touching)])
            stop = max([new.stop, *(edit.stop for edit in touching)])
            now, before = _range_in(edits, start, stop), _range_in(back, start, stop)
            if our_lines[now.start : now.stop] == base_lines[before.start : before.stop]:
                result[new.start : new.stop] = base_lines[old.start : old.stop]
        return b"".join(result)

    def with_markers(self, store: ObjectStore, names: SideNames) -> bytes:
        """The merge as git leaves it in a working tree."""
        return b"".join(_remove_prefix(line, names) for line in self._merged(store))

    def union(self, store: ObjectStore) -> bytes:
        """The merge with the lines of both sides where they conflict."""
        return b"".join(line[1:] for line in self._merged(store) if line.startswith(b"|"))

    def _merged(self, store: ObjectStore) -> list[bytes]:
        """The lines of the merge with conflict markers.

        Every line of the texts has a prefix, so that none can look like a marker.
        """
        sides = (_add_prefixes(content) for content in self.contents(store))
        return _lines(store.repository.merge_contents(*sides, with_markers=True) or b"")


def _n_changed(changed: Sequence[tuple[range, range]]) -> int:
    return sum(len(old) + len(new) for old, new in changed)


def _touch(one: range, other: range) -> bool:
    return one.start <= other.stop and other.start <= one.stop


def _lines(content: bytes) -> list[bytes]:
    """The lines with their line ends; only a line feed ends a line."""
    lines = [line + b"\n" for line in content.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _add_prefixes(content: bytes) -> bytes:
    return b"".join(b"|" + line for line in _lines(content))


def _remove_prefix(line: bytes, names: SideNames) -> bytes:
    if line.startswith(b"|"):
        return line[1:]
    end = b"\r\n" if line.endswith(b"\r\n") else b"\n"
    if line.startswith(b"="):
        return b"=======" + end
    name = names.ours if line.startswith(b"<") else names.theirs
    return line[:7] + b" " + name.encode() + end


def _conflict(store: ObjectStore, path: WorkspacePath, found: _ConflictFound) -> Conflict:
    if found.texts is None:
        return Conflict(str(path), str(found))
    hunks = _hunks(store, found.texts)
    return Conflict(
        str(path), str(found), tuple(hunks[:_MAX_HUNKS]), max(0, len(hunks) - _MAX_HUNKS)
    )


@dataclass(slots=True)
class _Group:
    """A range of lines of the base in which changes of the two sides overlap or touch."""

    start: int
    end: int
    is_changed_by: set[int]


def _hunks(store: ObjectStore, texts: _Texts) -> list[ConflictHunk]:
    """Where both sides changed the same or adjacent lines differently."""
    base, *sides = texts.contents(store)
    changed = [changed_lines(base, side) for side in sides]
    groups: list[_Group] = []
    found = [(old, side) for side, changes in enumerate(changed) for old, _ in changes]
    for old, side in sorted(found, key=lambda item: (item[0].start, item[0].stop)):
        if groups and old.start <= groups[-1].end:
            groups[-1].end = max(groups[-1].end, old.stop)
            groups[-1].is_changed_by.add(side)
        else:
            groups.append(_Group(old.start, old.stop, {side}))
    base_lines = _lines(base)
    side_lines = [_lines(side) for side in sides]
    hunks: list[ConflictHunk] = []
    for group in groups:
        if len(group.is_changed_by) < len(sides):
            continue
        ours, theirs = (_range_in(changes, group.start, group.end) for changes in changed)
        our_text = side_lines[0][ours.start : ours.stop]
        their_text = side_lines[1][theirs.start : theirs.stop]
        if our_text != their_text:
            hunks.append(
                ConflictHunk(
                    group.start + 1,
                    _hunk_text(base_lines[group.start : group.end]),
                    ours.start + 1,
                    _hunk_text(our_text),
                    theirs.start + 1,
                    _hunk_text(their_text),
                )
            )
    return hunks


def _range_in(changes: Sequence[tuple[range, range]], start: int, end: int) -> range:
    """The lines of a side that correspond to the lines from *start* to *end* of the base."""
    before = sum(len(new) - len(old) for old, new in changes if old.stop < start)
    inside = sum(
        len(new) - len(old) for old, new in changes if old.start <= end and old.stop >= start
    )
    return range(start + before, end + before + inside)


def _line_in(changes: Sequence[tuple[range, range]], line: int) -> int:
    """The number, in a side, of an unchanged line of the base."""
    return line + sum(len(new) - len(old) for old, new in changes if old.stop <= line)


def _hunk_text(lines: Sequence[bytes]) -> str:
    text = b"".join(lines).decode("utf-8", "backslashreplace")
    return text if len(text) <= _MAX_HUNK_CHARS else text[: _MAX_HUNK_CHARS - 1] + "…"


# STATE


@dataclass(frozen=True, slots=True)
class SliceMerge:
    """The merged STATE, and in ``conflicts`` the names of slices that could not be merged."""

    tree: str
    conflicts: tuple[str, ...] = ()


def merge_slices(store: ObjectStore, *, base: str, ours: str, theirs: str) -> SliceMerge:
    """Merge the slices that changed from *base* to *theirs* into the STATE *ours*.

    Raises:
        LedgerError: If an object cannot be read or written.
    """
    before, present, after = store.tree(base), store.tree(ours), store.tree(theirs)
    moved = {name for name, _ in before.rows_not_in(after)}
    moved |= {name for name, _ in after.rows_not_in(before)}
    free = {name for name in moved if present.get(name) == before.get(name)}
    merged = present.changed({name: after.get(name) for name in free})
    conflicts = sorted(
        workspace_name(name) for name in moved - free if present.get(name) != after.get(name)
    )
    return SliceMerge(store.write_tree(merged), tuple(conflicts))
