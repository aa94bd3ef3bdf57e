"""Which entry wrote each line of a file.

Rule 1: a line belongs to the oldest entry from which it was passed on unchanged until now.
Rule 2: an entry that brings back older files passes lines on to where it took them from. A merge
passes lines on to the merged branch, an undo to the entry before the undone one, a redo to the
redone one, and a restore to the restored one. So a line that an undo brought back belongs to the
call that wrote it.
Rule 3: a file that appears in an entry in which another one with the same content disappeared is
that file, renamed.

Lines are compared as by the merge of the ledger, which is git's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from typing import Final

from wink_workspace.errors import (
    FileMissingError,
    LedgerError,
    LimitExceededError,
    UsageError,
)
from wink_workspace.filesystem import FileKind, WorkspacePath, parse_path
from wink_workspace.filesystem.diff import changed_lines
from wink_workspace.ledger import (
    Branch,
    EntryKind,
    LogEntry,
    ObjectStore,
    TreeEntry,
    diff,
    entry_at,
    read_entry,
)

_MAX_BYTES: Final = 64 * 1_048_576
_MAX_LINES: Final = 1_000_000  # as in a merge: libgit2 cannot be interrupted


@dataclass(frozen=True, slots=True)
class BlamedLine:
    """One line of a file, and the entry that wrote it.

    Attributes:
        text: The line with its line end, as it is stored.
        entry: The entry that wrote it.
        is_older: Whether it may have been written before *entry*, the oldest that is kept or that
            was looked at.
    """

    text: bytes
    entry: LogEntry
    is_older: bool = False


@dataclass(slots=True)
class _Version:
    """Lines of one file as of one entry, whose writer is not known yet.

    ``lines`` has, by the number of a line in this version, its numbers in the blamed file.
    """

    path: WorkspacePath
    file: TreeEntry
    lines: dict[int, list[int]] = field(default_factory=dict[int, list[int]])

    def add(self, line: int, asked: list[int]) -> None:
        self.lines.setdefault(line, []).extend(asked)


class _Chain:
    """The entries of one branch from *start* backwards, each read once."""

    def __init__(self, branch: Branch, start: LogEntry, limit: int | None) -> None:
        self.start = start
        self._rest = branch.log(start=start, limit=limit)
        self._read: list[LogEntry] = []

    def at(self, number: int) -> LogEntry | None:
        """The entry with *number*, ``None`` if it is newer than the start, not kept or too far."""
        n = self.start.number - number
        if n < 0:
            return None
        while len(self._read) <= n:
            entry = next(self._rest, None)
            if entry is None:
                return None
            self._read.append(entry)
        return self._read[n]


def blame(
    branch: Branch, path: str, *, at: LogEntry, limit: int | None = None
) -> tuple[BlamedLine, ...]:
    """The lines of the file *path* after the entry *at*, each with the entry that wrote it.

    The time follows the number of entries that are kept, and of those that changed the file. With
    *limit*, only as many entries of each branch are looked at.

    Raises:
        FileMissingError: If there is no such file.
        UsageError: If it is a directory or a link.
        LimitExceededError: If it is above 64 MiB or a million lines.
        LedgerError: If the history cannot be read.
    """
    parsed = parse_path(path)
    file = entry_at(branch.store, at.files, parsed)
    if file is None:
        raise FileMissingError(f"{parsed} is not in entry {at.number}")
    if file.kind is not FileKind.FILE:
        raise UsageError(f"{parsed} is not a file", hint="Name a file; a link has no lines.")
    text = _text(branch.store, file)
    return _Blame(branch, text, limit=limit).run(_Version(parsed, file), at)


class _Blame:
    def __init__(self, branch: Branch, text: bytes, *, limit: int | None) -> None:
        self._branch = branch
        self._limit = limit
        self._store = branch.store
        self._lines = BytesIO(text).readlines()
        self._writers: list[tuple[LogEntry, bool] | None] = [None] * len(self._lines)
        self._merged: list[tuple[LogEntry, _Version]] = []

    def run(self, version: _Version, at: LogEntry) -> tuple[BlamedLine, ...]:
        for line in range(len(self._lines)):
            version.add(line, [line])
        self._merged.append((at, version))
        while self._merged:
            entry, version = self._merged.pop()
            self._follow(_Chain(self._branch, entry, self._limit), version)
        return tuple(
            BlamedLine(text, *found)
            for text, found in zip(self._lines, self._writers, strict=True)
            if found is not None
        )

    def _follow(self, chain: _Chain, version: _Version) -> None:
        """Find the writers of the lines of *version*, which is of the start of *chain*."""
        waiting = {chain.start.number: {version.path: version}}
        while waiting:
            number = max(waiting)
            entry = chain.at(number)
            assert entry is not None  # noqa: S101 - only entries that were read are waiting
            for each in waiting.pop(number).values():
                for source, passed in self._passed_on(chain, entry, each):
                    known = waiting.setdefault(source.number, {}).setdefault(passed.path, passed)
                    if known is not passed:
                        for line, asked in passed.lines.items():
                            known.add(line, asked)

    def _passed_on(
        self, chain: _Chain, entry: LogEntry, version: _Version
    ) -> Iterator[tuple[LogEntry, _Version]]:
        """The lines that *entry* did not write, by the entry of this chain that has them."""
        parent = chain.at(entry.number - 1)
        for source in (parent, _source(chain, entry)):
            if source is not None and version.lines:
                passed = self._unchanged(source, entry, version, follows=source is parent)
                if passed.lines:
                    yield source, passed
        if entry.merged and version.lines:
            with suppress(LedgerError):  # it is no longer kept
                other = read_entry(self._store, entry.merged)
                passed = self._unchanged(other, entry, version, follows=False)
                if passed.lines:
                    self._merged.append((other, passed))
        is_older = parent is None and entry.number > 1
        for asked in version.lines.values():
            for line in asked:
                self._writers[line] = (entry, is_older)

    def _unchanged(
        self, source: LogEntry, entry: LogEntry, version: _Version, *, follows: bool
    ) -> _Version:
        """Move the lines that *source* has, too, out of *version*, and return them.

        With *follows*, the file may have another name there.
        """
        path, file = version.path, version.file
        if source.files != entry.files:
            there = entry_at(self._store, source.files, path)
            if there is None and follows:
                path, there = self._renamed(source, entry, version)
            if there is None or there.kind is not FileKind.FILE:
                return _Version(path, version.file)
            file = there
        passed = _Version(path, file)
        if file.id == version.file.id:
            passed.lines, version.lines = version.lines, {}
            return passed
        old, new = _text(self._store, file), _text(self._store, version.file)
        edits, shift = deque(changed_lines(old, new)), 0
        for line in sorted(version.lines):
            while edits and edits[0][1].stop <= line:
                before, after = edits.popleft()
                shift += len(after) - len(before)
            if not edits or line < edits[0][1].start:
                passed.add(line - shift, version.lines.pop(line))
        return passed

    def _renamed(
        self, source: LogEntry, entry: LogEntry, version: _Version
    ) -> tuple[WorkspacePath, TreeEntry | None]:
        """The file of *source* with this content that *entry* removed, and its path."""
        for change in diff(self._store, source.files, entry.files):
            before = change.before
            if change.after is None and before is not None and before.id == version.file.id:
                return change.path, before
        return version.path, None


def _source(chain: _Chain, entry: LogEntry) -> LogEntry | None:
    """The entry from which *entry* brought files back."""
    if entry.target is None:
        return None
    is_undo = entry.kind is EntryKind.UNDO
    return chain.at(entry.target - 1 if is_undo else entry.target)


def _text(store: ObjectStore, file: TreeEntry) -> bytes:
    size = store.size_bytes(file.id)
    if size > _MAX_BYTES:
        raise LimitExceededError(
            f"a version of the file has {size:,} bytes; lines are compared up to {_MAX_BYTES:,}",
            hint="Look at its changes with `log` and `show` instead.",
        )
    text = store.read(file.id)
    if text.count(b"\n") > _MAX_LINES:
        raise LimitExceededError(
            f"a version of the file has more than {_MAX_LINES:,} lines",
            hint="Look at its changes with `log` and `show` instead.",
        )
    return text
