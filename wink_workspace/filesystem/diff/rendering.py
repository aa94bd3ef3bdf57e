"""Changes as a patch that ``git apply`` accepts.

Rule 1: applied to the state before, the patch gives the state after, byte for byte; being
short comes second.
Rule 2: ``patch -p1`` accepts it too, where it can: it knows no binary changes, and no path
that is a file before and a directory after or the other way round.
Rule 3: directories are not in it, for git's form has no word for them: an empty one is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO

from wink_workspace.errors import UsageError
from wink_workspace.filesystem.git_binary import blob_id, encode_lines
from wink_workspace.filesystem.git_names import quote_name
from wink_workspace.filesystem.model import FileChange, FileKind, FileState
from wink_workspace.filesystem.paths import WorkspacePath

from .lines import LineComparer, Span
from .renames import find_renames, is_binary

__all__ = ["render_diff"]


def render_diff(changes: Iterable[FileChange], *, context_lines: int = 3) -> str:
    """The changes as a git-style unified diff, sorted by path; empty if no file changed.

    A file that went away and one that came with the same or similar content are shown as a
    rename. Content with a NUL byte is shown as ``GIT binary patch``. Bytes that are not UTF-8
    are surrogate escapes, so write the text with ``errors="surrogateescape"``, and without
    any translation of line ends.

    Args:
        changes: Each path once at most.
        context_lines: Unchanged lines around each change; with 0, ``git apply`` needs
            ``--unidiff-zero``, and ``parse_patch`` cannot find the place of added lines.

    Raises:
        UsageError: If *context_lines* is negative.
    """
    if context_lines < 0:
        raise UsageError(f"context_lines is {context_lines}", hint="Use 0 or more.")
    comparer = LineComparer()
    return "".join(
        line.decode("utf-8", "surrogateescape")
        for section in _sections(changes)
        for line in section.lines(comparer, context_lines)
    )


@dataclass(frozen=True, slots=True)
class _Section:
    """One file's part; ``percent`` is set for a rename."""

    source: WorkspacePath
    target: WorkspacePath
    before: FileState | None
    after: FileState | None
    percent: int | None = None

    def lines(self, comparer: LineComparer, context_lines: int) -> Iterator[bytes]:
        """The lines of its part of the patch, with their ends."""
        old_data = self.before.data if self.before else b""
        new_data = self.after.data if self.after else b""
        for line in self._header(old_data, new_data):
            yield line.encode("utf-8", "surrogateescape") + b"\n"
        if old_data == new_data:
            return
        if is_binary(old_data) or is_binary(new_data):
            yield from _binary(old_data, new_data)
            return
        for line in self._names():
            yield line.encode("utf-8", "surrogateescape") + b"\n"
        yield from _text(old_data, new_data, comparer, context_lines)

    def _header(self, old_data: bytes, new_data: bytes) -> Iterator[str]:
        yield f"diff --git {_prefixed('a', self.source)} {_prefixed('b', self.target)}"
        yield from self._modes()
        if self.percent is not None:
            yield f"similarity index {self.percent}%"
            yield f"rename from {quote_name(str(self.source))}"
            yield f"rename to {quote_name(str(self.target))}"
        is_link = self.before is not None and self.before.kind is FileKind.SYMLINK
        if old_data != new_data and (is_link or is_binary(old_data) or is_binary(new_data)):
            mode = " 120000" if self.before and self.after and is_link else ""
            yield f"index {_id(self.before)}..{_id(self.after)}{mode}"

    def _modes(self) -> Iterator[str]:
        if self.before is None:
            yield f"new file mode {_mode(self.after)}"
        elif self.after is None:
            yield f"deleted file mode {_mode(self.before)}"
        elif self.before.executable != self.after.executable:
            yield f"old mode {_mode(self.before)}"
            yield f"new mode {_mode(self.after)}"

    def _names(self) -> Iterator[str]:
        yield f"--- {_prefixed('a', self.source) if self.before else '/dev/null'}"
        yield f"+++ {_prefixed('b', self.target) if self.after else '/dev/null'}"


def _sections(changes: Iterable[FileChange]) -> Iterator[_Section]:
    """The parts of the patch, by path; a file that turns into a link is two of them."""
    plain = sorted(filter(_differs, map(_without_directories, changes)), key=lambda c: c.path)
    renames = find_renames(plain)
    by_target = {rename.creation.path: rename for rename in renames}
    moved_away = {rename.deletion.path for rename in renames}
    for path, before, after in ((c.path, c.before, c.after) for c in plain):
        if rename := by_target.get(path):
            yield _Section(
                rename.deletion.path, path, rename.deletion.before, after, rename.percent
            )
        elif before and after and before.kind is not after.kind:
            yield _Section(path, path, before, None)
            yield _Section(path, path, None, after)
        elif path not in moved_away:
            yield _Section(path, path, before, after)


def _without_directories(change: FileChange) -> FileChange:
    before, after = (
        None if state and state.kind is FileKind.DIRECTORY else state
        for state in (change.before, change.after)
    )
    return FileChange(change.path, before, after)


def _differs(change: FileChange) -> bool:
    return change.before != change.after


def _prefixed(prefix: str, path: WorkspacePath) -> str:
    return quote_name(f"{prefix}/{path}")


def _mode(state: FileState | None) -> str:
    if state is not None and state.kind is FileKind.SYMLINK:
        return "120000"
    return "100755" if state is not None and state.executable else "100644"


def _id(state: FileState | None) -> str:
    return "0" * 40 if state is None else blob_id(state.data)


def _binary(old_data: bytes, new_data: bytes) -> Iterator[bytes]:
    """Both contents as a whole: the new one, and the old one for the way back."""
    yield b"GIT binary patch\n"
    for data in (new_data, old_data):
        yield f"literal {len(data)}\n".encode()
        for line in encode_lines(data):
            yield f"{line}\n".encode()
        yield b"\n"


# ----------------------------------------------------------------------------------------- text


def _text(
    old_data: bytes, new_data: bytes, comparer: LineComparer, context_lines: int
) -> Iterator[bytes]:
    old, new = BytesIO(old_data).readlines(), BytesIO(new_data).readlines()
    spans = comparer.changed_spans(old, new)
    for group in _groups(spans, context_lines):
        yield from _hunk(old, new, group, context_lines)


def _groups(spans: Sequence[Span], context_lines: int) -> Iterator[list[Span]]:
    """The spans that share a hunk, because their context touches."""
    group = [spans[0]]
    for span in spans[1:]:
        if span.old_start - group[-1].old_end > 2 * context_lines:
            yield group
            group = []
        group.append(span)
    yield group


def _hunk(
    old: Sequence[bytes], new: Sequence[bytes], group: Sequence[Span], context_lines: int
) -> Iterator[bytes]:
    n_before = min(context_lines, group[0].old_start)
    n_after = min(context_lines, len(old) - group[-1].old_end)
    old_start, old_end = group[0].old_start - n_before, group[-1].old_end + n_after
    new_start, new_end = group[0].new_start - n_before, group[-1].new_end + n_after
    yield f"@@ -{_range(old_start, old_end)} +{_range(new_start, new_end)} @@\n".encode()
    at = old_start
    for span in group:
        yield from _marked(b" ", old[at : span.old_start])
        yield from _marked(b"-", old[span.old_start : span.old_end])
        yield from _marked(b"+", new[span.new_start : span.new_end])
        at = span.old_end
    yield from _marked(b" ", old[at:old_end])


def _range(start: int, end: int) -> str:
    """Lines as a hunk header has them: an empty range stands behind the line it names."""
    n_lines = end - start
    return f"{start + (n_lines > 0)}" + ("" if n_lines == 1 else f",{n_lines}")


def _marked(sign: bytes, lines: Sequence[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield sign + line
        if not line.endswith(b"\n"):
            yield b"\n\\ No newline at end of file\n"
