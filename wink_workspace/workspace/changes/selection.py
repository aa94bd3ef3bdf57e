"""The parts of a ``ChangeSet`` that a user chooses to apply: whole paths, or hunks of a text.

Rule 1: a selection is a tree: the base of the shown changes with the chosen ones. ``apply`` merges
it like any other tree, so the parts that are not chosen can be applied later.
Rule 2: hunks are those of the shown diff. Chosen without an edit, all of them together make the
new text, byte for byte.
Rule 3: an edit may change what a hunk adds, not the lines that it replaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Final

from wink_workspace.errors import ConflictError, UsageError
from wink_workspace.filesystem import FileKind, WorkspacePath
from wink_workspace.ledger import (
    ObjectStore,
    TreeChange,
    TreeEntry,
    build,
    merge_trees,
    tree_diff,
)
from wink_workspace.workspace.files.disk_entries import without_contents

from .changeset import ChangeSet

_HEADER: Final = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@")
_NO_NEWLINE: Final = b"\\ No newline at end of file\n"


@dataclass(frozen=True, slots=True)
class Hunk:
    """A run of changed lines with context, as in a diff.

    Attributes:
        text: The ``@@`` line and the lines below it, each with its sign.
        start: The index of the first old line; the context counts.
        old: The old lines, with the context.
        new: The new lines, with the context.
    """

    text: bytes
    start: int
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]

    @classmethod
    def parse(cls, text: bytes) -> Hunk:
        """The hunk with this *text*.

        Raises:
            UsageError: If it is not a hunk.
        """
        first, *lines = BytesIO(text).readlines() or [b""]
        header = _HEADER.match(first)
        if header is None:
            raise UsageError("the first line is not a @@ line", hint="Keep that line.")
        old: list[bytes] = []
        new: list[bytes] = []
        last: tuple[list[bytes], ...] = ()
        for line in lines:
            sign, content = line[:1], line[1:]
            if line == _NO_NEWLINE:
                for side in last:
                    side[-1] = side[-1].removesuffix(b"\n")
                continue
            if sign == b"\n":  # editors remove the space of an empty line
                sign, content = b" ", b"\n"
            last = {b" ": (old, new), b"-": (old,), b"+": (new,)}.get(sign, ())
            if not last:
                raise UsageError(
                    f"a line begins with {sign.decode('utf-8', 'replace')!r}",
                    hint="Begin each line with a space, '-' or '+'.",
                )
            for side in last:
                side.append(content)
        start = int(header[1]) - (header[2] != b"0")
        return cls(text, start, tuple(old), tuple(new))

    def edited(self, text: bytes) -> Hunk:
        """The hunk with other new lines: those of *text*, the edited hunk.

        Raises:
            UsageError: If *text* is not a hunk, or changes the old lines.
        """
        other = Hunk.parse(text)
        if other.old != self.old or other.start != self.start:
            raise UsageError(
                "the edited hunk has other old lines",
                hint="Keep the @@ line and all lines with '-' and ' ', or turn '-' into ' '.",
            )
        return other


@dataclass(frozen=True, slots=True)
class FileHunks:
    """One changed path with its hunks.

    ``hunks`` is empty for a change that is chosen as a whole: a removed or binary file, a link, a
    directory, a mode, or a text above the limits of a diff.
    """

    change: TreeChange
    hunks: tuple[Hunk, ...] = ()
    _store: ObjectStore = field(repr=False, kw_only=True)

    @classmethod
    def of(cls, changes: ChangeSet) -> Iterator[FileHunks]:
        """Each path of *changes*, in order."""
        for change in changes.reported:
            yield cls(change, tuple(_hunks(changes.store, change)), _store=changes.store)

    def content(self, chosen: Mapping[int, Hunk]) -> bytes:
        """The old text with the *chosen* hunks, by their index; edited ones count as given."""
        before = self.change.before
        old = BytesIO(b"" if before is None else self._store.read(before.id)).readlines()
        lines: list[bytes] = []
        at = 0
        for _, hunk in sorted(chosen.items()):
            lines += (*old[at : hunk.start], *hunk.new)
            at = hunk.start + len(hunk.old)
        return b"".join((*lines, *old[at:]))


def _hunks(store: ObjectStore, change: TreeChange) -> Iterator[Hunk]:
    """The hunks of a text that is added or changed."""
    sides = (change.before, change.after)
    if change.after is None or any(
        side is not None and side.kind is not FileKind.FILE for side in sides
    ):
        return
    pieces: list[bytes] = []
    if tree_diff(store, [change]).write_to(pieces.append):
        return
    lines: list[bytes] = []
    in_hunks = False
    for line in BytesIO(b"".join(pieces)).readlines():
        if line.startswith(b"GIT binary patch"):
            return
        if line.startswith(b"@@ "):
            if in_hunks:
                yield Hunk.parse(b"".join(lines))
            lines, in_hunks = [], True
        lines.append(line)
    if in_hunks:
        yield Hunk.parse(b"".join(lines))


@dataclass(frozen=True, slots=True)
class Selection:
    """What is chosen: ``contents`` has each path with its new content, ``None`` for all of it.

    A chosen content has the new mode of its path.
    """

    contents: Mapping[WorkspacePath, bytes | None]

    @classmethod
    def of(cls, chosen: Iterable[tuple[FileHunks, Mapping[int, Hunk] | None]]) -> Selection:
        """The selection of the hunks of each file, by their index; ``None`` for its whole change.

        A file without chosen hunks is not selected.
        """
        contents: dict[WorkspacePath, bytes | None] = {}
        for file, hunks in chosen:
            if hunks is None or (
                hunks and all(hunks.get(n) is hunk for n, hunk in enumerate(file.hunks))
            ):
                contents[file.change.path] = None
            elif hunks:
                contents[file.change.path] = file.content(hunks)
        return cls(contents)

    def __bool__(self) -> bool:
        return bool(self.contents)

    def root(self, changes: ChangeSet) -> str:
        """The base of *changes* with the chosen ones, written to the ledger.

        Raises:
            UsageError: If a path is not among the changes.
            LedgerError: If it cannot be written.
        """
        known = {change.path: change for change in changes.reported}
        for path in self.contents:
            if path not in known:
                raise UsageError(f"{path} is not among the changes", hint="Look at them again.")
        entries = {path: self._entry(changes.store, known[path]) for path in self.contents}
        entries |= dict.fromkeys(self._removed_directories(changes))
        kept = {path for path, entry in entries.items() if entry is not None}
        return build(
            changes.store,
            changes.base,
            {
                path: entry
                for path, entry in entries.items()
                if entry is not None or kept.isdisjoint(path.ancestors())
            },
        )

    def _entry(self, store: ObjectStore, change: TreeChange) -> TreeEntry | None:
        content, after = self.contents[change.path], change.after
        if content is None or after is None:
            return without_contents(after)
        return TreeEntry(after.kind, store.write_blob(content), after.executable)

    def _removed_directories(self, changes: ChangeSet) -> Iterator[WorkspacePath]:
        """The removed directories of which every removed path is chosen."""
        left = {
            above
            for change in changes.reported
            if change.path not in self.contents
            for above in change.path.ancestors()
        }
        chosen = {above for path in self.contents for above in path.ancestors()}
        for change in changes.trees:
            is_removed = change.after is None and change.path not in self.contents
            if is_removed and change.path in chosen and change.path not in left:
                yield change.path


def selected_changes(shown: ChangeSet, root: str, base: str) -> ChangeSet:
    """The selection *root* of *shown* as changes from *base*, the base of a merge.

    Raises:
        ConflictError: If *base* differs from the base of *shown* in the chosen lines: the target
            changed meanwhile.
    """
    if base == shown.base:
        return ChangeSet.between(shown.store, base, root)
    merged = merge_trees(shown.store, base=shown.base, ours=base, theirs=root)
    if merged.tree is None:
        names: Sequence[str] = [conflict.path for conflict in merged.conflicts]
        raise ConflictError(
            f"the source changed since the changes were shown, in: {', '.join(names)}",
            hint="Look at them again, then choose.",
            conflicts=merged.conflicts,
        )
    return ChangeSet.between(shown.store, base, merged.tree)
