"""Render changes as a patch that ``git apply`` accepts.

Rule 1: the patch turns the old state into the new one, byte for byte; it need not be short. A
path above a limit is named in one line instead, and returned.
Rule 2: ``patch -p1`` accepts it, too, except for binary changes and for a path that changes from
a file to a directory or back.
Rule 3: git's format cannot express directories, so empty ones are lost.
Rule 4: memory holds the contents of one path at a time, each of at most
``DiffLimits.path_bytes``, and none of the output.
Rule 5: every change of content has both full ids, so that ``git apply --3way`` works.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from operator import attrgetter
from typing import Final

from wink_workspace.counts import sized
from wink_workspace.errors import UsageError
from wink_workspace.filesystem.git_binary import encode_lines
from wink_workspace.filesystem.git_names import quote_name
from wink_workspace.filesystem.model import FileChange
from wink_workspace.filesystem.paths import WorkspacePath

from .diff_input import (
    DEFAULT_DIFF_LIMITS,
    NO_CONTENT,
    Content,
    DiffChange,
    DiffLimits,
    Side,
    in_memory,
)
from .lines import ChangedLines, Part, count_lines, differing_part, spans_in_pieces
from .renames import find_renames, is_binary

_NO_ID: Final = "0" * 40
_ID_DIGITS: Final = 7  # as git shows them
_BATCH_LINES: Final = 1_024


def render_diff(changes: Iterable[FileChange], *, context_lines: int = 3) -> str:
    """The changes as a git-style unified diff, sorted by path; empty if no file changed.

    Same as ``Diff.text`` with contents in memory and the default limits.

    Args:
        changes: Each path at most once.
        context_lines: As for ``Diff``.

    Raises:
        UsageError: If *context_lines* is negative.
    """
    return Diff(in_memory(changes), context_lines=context_lines).text()


@dataclass(frozen=True, slots=True)
class LineCounts:
    """The numbers of added and removed lines; 0 if binary, or if only the mode differs."""

    n_added: int = 0
    n_removed: int = 0
    is_binary: bool = False


class Diff:
    """The difference between two states of files, in git's format.

    A deleted and a created file with the same or similar content are shown as a rename. Content
    with a NUL byte is shown as ``GIT binary patch``. Bytes that are not UTF-8 are written
    unchanged; in ``text`` they are surrogate escapes. Write such text with
    ``errors="surrogateescape"`` and without translation of line ends.

    Args:
        changes: Each path at most once.
        limits: What is too large to be shown.
        context_lines: Unchanged lines around each change. With 0, ``git apply`` needs
            ``--unidiff-zero``, and ``apply_patch`` cannot locate added lines.

    Raises:
        UsageError: If *context_lines* is negative.
    """

    def __init__(
        self,
        changes: Iterable[DiffChange],
        *,
        limits: DiffLimits = DEFAULT_DIFF_LIMITS,
        context_lines: int = 3,
    ) -> None:
        if context_lines < 0:
            raise UsageError(f"context_lines is {context_lines}", hint="Use 0 or more.")
        self._changes = tuple(sorted(changes, key=attrgetter("path")))
        self._limits = limits
        self._context_lines = context_lines

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that differs, also directories, in path order."""
        return tuple(str(change.path) for change in self._changes)

    def write_to(self, write: Callable[[bytes], object], *, full: bool = False) -> tuple[str, ...]:
        """Write the diff in pieces; returns the paths that were above a limit.

        Args:
            write: Called with each piece, which may end within a line.
            full: Include every path. A text that is too large to be compared is written as
                all old lines removed and all new lines added.
        """
        rendering = _Rendering(self._limits, self._context_lines, full=full)
        for section in self._sections():
            rendering.write_to(write, section)
        return tuple(rendering.left_out)

    def text(self, *, full: bool = False) -> str:
        """The whole diff in memory; ``write_to`` streams it."""
        pieces: list[bytes] = []
        self.write_to(pieces.append, full=full)
        return b"".join(pieces).decode("utf-8", "surrogateescape")

    def head(self, max_chars: int) -> tuple[str, int]:
        """The first *max_chars* characters of the text, and how many more there are.

        Memory use does not depend on the length of the diff.
        """
        decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        kept: list[str] = []
        n_chars = 0

        def take(piece: bytes) -> None:
            nonlocal n_chars
            text = decoder.decode(piece)
            if n_chars < max_chars:
                kept.append(text[: max_chars - n_chars])
            n_chars += len(text)

        self.write_to(take)
        return "".join(kept), max(n_chars - max_chars, 0)

    def line_counts(self) -> Iterator[LineCounts | None]:
        """The numbers of lines for each of ``paths``; ``None`` for one above a limit.

        A rename counts as all lines of one path removed, and all of the other added.
        """
        rendering = _Rendering(self._limits, 0, full=False)
        for change in self._changes:
            section = _Section(change.path, change.path, change.before, change.after)
            yield rendering.counts(section)

    def _sections(self) -> Iterator[_Section]:
        """The sections of the diff, by path; a file that becomes a link has two."""
        plain = list(filter(_differs, self._changes))
        renames = find_renames(plain, self._limits)
        by_target = {rename.creation.path: rename for rename in renames} if renames else {}
        moved_away = {rename.deletion.path for rename in renames} if renames else ()
        for change in plain:
            path, before, after = change.path, change.before, change.after
            if not renames and before and after and before.kind is after.kind:
                yield _Section(path, path, before, after)
            elif rename := by_target.get(path):
                yield _Section(
                    rename.deletion.path, path, rename.deletion.before, after, rename.percent
                )
            elif before and after and before.kind is not after.kind:
                yield _Section(path, path, before, None)
                yield _Section(path, path, None, after)
            elif path not in moved_away:
                yield _Section(path, path, before, after)


def _differs(change: DiffChange) -> bool:
    before, after = change.before, change.after
    if before is None or after is None:
        return before is not after
    return before is not after and (
        before.mode != after.mode or before.content.id != after.content.id
    )


@dataclass(frozen=True, slots=True)
class _Section:
    """The section of one file; ``percent`` is set for a rename."""

    source: WorkspacePath
    target: WorkspacePath
    before: Side | None
    after: Side | None
    percent: int | None = None

    @property
    def old(self) -> Content:
        return self.before.content if self.before else NO_CONTENT

    @property
    def new(self) -> Content:
        return self.after.content if self.after else NO_CONTENT

    def header(self, *, has_hunks: bool, is_binary: bool = False) -> bytes:
        """The lines before the content; with *has_hunks*, also ``---`` and ``+++``.

        Only a binary patch needs whole ids.
        """
        before, after = self.before, self.after
        source = quote_name(f"a/{self.source}")
        target = quote_name(f"b/{self.target}")
        lines = [f"diff --git {source} {target}"]
        old_mode, new_mode = before and before.mode, after and after.mode
        if before is None:
            lines.append(f"new file mode {new_mode or ''}")
        elif after is None:
            lines.append(f"deleted file mode {old_mode}")
        elif old_mode != new_mode:
            lines += (f"old mode {old_mode}", f"new mode {new_mode}")
        if self.percent is not None:
            lines.append(f"similarity index {self.percent}%")
            lines.append(f"rename from {quote_name(str(self.source))}")
            lines.append(f"rename to {quote_name(str(self.target))}")
        old_id = before.content.id if before else _NO_ID
        new_id = after.content.id if after else _NO_ID
        if old_id != new_id:
            if not is_binary:
                old_id, new_id = old_id[:_ID_DIGITS], new_id[:_ID_DIGITS]
            is_kept = before is not None and old_mode == new_mode
            lines.append(f"index {old_id}..{new_id}" + (f" {new_mode}" if is_kept else ""))
        if has_hunks:
            lines.append(f"--- {source if before else '/dev/null'}")
            lines.append(f"+++ {target if after else '/dev/null'}")
        lines.append("")
        return "\n".join(lines).encode("utf-8", "surrogateescape")

    def note(self, n_lines: int) -> bytes:
        """The one line for a path above a limit."""
        size = sized(max(self.old.size_bytes, self.new.size_bytes))
        lines = f", {n_lines:,} lines" if n_lines else ""
        gone = "" if self.after else ", deleted"
        name = quote_name(str(self.target))
        return f"{name}: {size}{lines}{gone}, not shown\n".encode("utf-8", "surrogateescape")


class _TooLarge(Exception):  # noqa: N818 - never raised to callers
    """A path is above a limit; *n_lines* is set if it has too many lines."""

    def __init__(self, n_lines: int = 0) -> None:
        super().__init__(n_lines)
        self.n_lines = n_lines


@dataclass(frozen=True, slots=True)
class _Text:
    """Two texts, and the differing lines."""

    part: Part
    spans: Sequence[ChangedLines]


@dataclass(frozen=True, slots=True)
class _Binary:
    """Two contents, at least one of them binary."""


@dataclass(frozen=True, slots=True)
class _Unread:
    """Two contents, too large for memory."""


class _Rendering:
    """Renders the sections of one diff, with one limit on the work for all of them.

    With *full*, there are limits for each path, but none for all of them together.
    """

    def __init__(self, limits: DiffLimits, context_lines: int, *, full: bool) -> None:
        self._limits = limits
        self._context_lines = context_lines
        self._full = full
        self._bytes_left = limits.total_bytes
        self._lines_left = limits.total_lines
        self.left_out: list[str] = []

    def write_to(self, write: Callable[[bytes], object], section: _Section) -> None:
        """Write the section, or one line with the reason why it is omitted."""
        if section.old.id == section.new.id:
            write(section.header(has_hunks=False))
            return
        try:
            compared = self._compared(section)
        except _TooLarge as large:
            self.left_out.append(str(section.target))
            write(section.note(large.n_lines))
            return
        match compared:
            case _Text(part, spans):
                write(section.header(has_hunks=True))
                _write_hunks(write, part, spans, self._context_lines)
            case _Binary():
                write(section.header(has_hunks=False, is_binary=True))
                for piece in _binary(section):
                    write(piece)
            case _Unread():
                for piece in _unread(section):
                    write(piece)

    def counts(self, section: _Section) -> LineCounts | None:
        """The numbers of added and removed lines; ``None`` above a limit."""
        if section.old.id == section.new.id:
            return LineCounts()
        try:
            compared = self._compared(section)
        except _TooLarge:
            return None
        match compared:
            case _Text(spans=spans):
                return LineCounts(
                    sum(len(span.new) for span in spans),
                    sum(len(span.old) for span in spans),
                )
            case _Binary():
                return LineCounts(is_binary=True)
            case _Unread():
                return None

    def _compared(self, section: _Section) -> _Text | _Binary | _Unread:
        """The difference of the contents, in the form in which it is shown."""
        old_content, new_content = section.old, section.new
        sizes_bytes = (old_content.size_bytes, new_content.size_bytes)
        if max(sizes_bytes) > self._limits.path_bytes:
            self._refuse_unless_full()
            return _Unread()
        if not self._full and sum(sizes_bytes) > self._bytes_left:
            raise _TooLarge
        self._bytes_left -= sum(sizes_bytes)
        old, new = old_content.read(), new_content.read()
        if b"\0" in old or b"\0" in new:  # the test of ``is_binary``
            if max(sizes_bytes) > self._limits.path_binary_bytes:
                self._refuse_unless_full()
            return _Binary()
        part = differing_part(old, new, self._context_lines)
        del old, new  # free memory: the part may be much smaller
        return _Text(part, self._spans(part))

    def _spans(self, part: Part) -> list[ChangedLines]:
        inner = part.inner
        n_old, n_new = len(inner.old), len(inner.new)
        if max(n_old, n_new) > self._limits.path_lines:
            self._refuse_unless_full(max(n_old, n_new))
            return [inner]
        if not n_old or not n_new:
            return [inner]
        if not self._full and n_old + n_new > self._lines_left:
            raise _TooLarge(max(n_old, n_new))
        self._lines_left -= n_old + n_new
        return spans_in_pieces(part.old, part.new, piece_lines=self._limits.piece_lines)

    def _refuse_unless_full(self, n_lines: int = 0) -> None:
        if not self._full:
            raise _TooLarge(n_lines)


# --------------------------------------------------------------------------------------- binary


def _binary(section: _Section) -> Iterator[bytes]:
    """Both whole contents: the new one, and the old one for the inverse patch."""
    yield b"GIT binary patch\n"
    for content in (section.new, section.old):
        yield b"literal %d\n" % content.size_bytes
        yield from encode_lines(content.chunks())
        yield b"\n"


# ----------------------------------------------------------------------------------------- text


def _unread(section: _Section) -> Iterator[bytes]:
    """Contents of any size: every line removed, and every line added."""
    counts = [_count_lines(content) for content in (section.old, section.new)]
    yield section.header(has_hunks=None not in counts, is_binary=None in counts)
    if None in counts:
        yield from _binary(section)
        return
    n_old, n_new = (n or 0 for n in counts)
    yield f"@@ -{_range(0, n_old)} +{_range(0, n_new)} @@\n".encode()
    yield from _marked_chunks(b"-", section.old.chunks())
    yield from _marked_chunks(b"+", section.new.chunks())


def _count_lines(content: Content) -> int | None:
    """The number of lines; ``None`` if the content is binary."""
    n_lines, last = 0, b"\n"
    for chunk in content.chunks():
        if is_binary(chunk):
            return None
        n_lines += chunk.count(b"\n")
        last = chunk[-1:] or last
    return n_lines + (last != b"\n")


def _marked_chunks(sign: bytes, chunks: Iterable[bytes]) -> Iterator[bytes]:
    is_line_start, is_empty = True, True
    for chunk in filter(None, chunks):
        marked = chunk[:-1].replace(b"\n", b"\n" + sign) + chunk[-1:]
        yield sign + marked if is_line_start else marked
        is_line_start, is_empty = chunk.endswith(b"\n"), False
    if not is_line_start and not is_empty:
        yield b"\n\\ No newline at end of file\n"


class _Lines:
    """Reads the lines of a text in order."""

    def __init__(self, text: bytes) -> None:
        self._lines = BytesIO(text)
        self._at = 0

    def skip_to(self, line: int) -> None:
        """Skip the lines before the index *line*."""
        deque(islice(self._lines, line - self._at), maxlen=0)
        self._at = line

    def take_to(self, line: int, sign: bytes, write: Callable[[bytes], object]) -> None:
        """Write the lines before the index *line* in batches, each with *sign* in front."""
        while self._at < line:
            batch = list(islice(self._lines, min(_BATCH_LINES, line - self._at)))
            self._at += len(batch)
            write(sign + sign.join(batch))
            if not batch[-1].endswith(b"\n"):
                write(b"\n\\ No newline at end of file\n")


def _write_hunks(
    write: Callable[[bytes], object], part: Part, spans: Sequence[ChangedLines], context_lines: int
) -> None:
    old, new = _Lines(part.old), _Lines(part.new)
    n_old = count_lines(part.old)
    for group in _groups(spans, context_lines):
        n_before = min(context_lines, group[0].old.start)
        n_after = min(context_lines, n_old - group[-1].old.stop)
        old_start, old_end = group[0].old.start - n_before, group[-1].old.stop + n_after
        new_start, new_end = group[0].new.start - n_before, group[-1].new.stop + n_after
        first = part.n_lines_before
        old_range = _range(first + old_start, first + old_end)
        new_range = _range(first + new_start, first + new_end)
        write(f"@@ -{old_range} +{new_range} @@\n".encode())
        old.skip_to(old_start)
        for span in group:
            old.take_to(span.old.start, b" ", write)
            old.take_to(span.old.stop, b"-", write)
            new.skip_to(span.new.start)
            new.take_to(span.new.stop, b"+", write)
        old.take_to(old_end, b" ", write)


def _groups(spans: Sequence[ChangedLines], context_lines: int) -> Iterator[list[ChangedLines]]:
    """The spans of each hunk: those whose context touches."""
    group = [spans[0]]
    for span in spans[1:]:
        if span.old.start - group[-1].old.stop > 2 * context_lines:
            yield group
            group = []
        group.append(span)
    yield group


def _range(start: int, end: int) -> str:
    """A range in a hunk header; an empty one names the line before it."""
    n_lines = end - start
    return f"{start + (n_lines > 0)}" + ("" if n_lines == 1 else f",{n_lines}")
