"""Results of the file tools: values with a ``render`` for models.

Rule 1: the size of a result is limited when it is made, not when it is shown, so that records stay
small, too. If something was left out, the result says how much, and how to get it.
Rule 2: names are shown unchanged. Only a name with characters that can be misread (line ends,
invisible characters, bytes that are not UTF-8) is quoted.
Rule 3: the result's message says what was done; ``render`` adds the details.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, TypeVar

from wink_workspace.counts import counted
from wink_workspace.errors import UsageError, WinkError
from wink_workspace.filesystem import (
    EditResult,
    FileKind,
    FileStat,
    Filesystem,
    GlobResult,
    GrepMatch,
    GrepResult,
    LineRange,
    PatchedFile,
    PatchResult,
    TextWindow,
    WorkspacePath,
    WriteResult,
)
from wink_workspace.filesystem.paths import DERIVED_NAMES
from wink_workspace.prompt import ToolImage

T = TypeVar("T")

_MAX_RANGES_SHOWN: Final = 20
_MAX_FOLDERS_SHOWN: Final = 10
_NUMBER_WIDTH: Final = 6  # as in `cat -n`, which models know


@dataclass(frozen=True, slots=True, kw_only=True)
class FileToolLimits:
    """Limits of one call of a file tool.

    Attributes:
        result_chars: How much of a result the model sees; it can request the rest.
        diff_chars: How much of a diff it sees.
        write_bytes: Largest file that it can write, edit or patch, unless the filesystem's
            ``FilesystemLimits.write_bytes`` is lower.
    """

    result_chars: int = 100_000
    diff_chars: int = 10_000
    write_bytes: int = 8_388_608

    def __post_init__(self) -> None:
        if min(self.result_chars, self.diff_chars, self.write_bytes) <= 0:
            raise UsageError(
                f"{self} has a limit that is not positive", hint="Use positive numbers."
            )


_WHOLE: Final = FileToolLimits(result_chars=8_388_608)
"""For the file with the whole result."""


def shown(path: WorkspacePath | str) -> str:
    """A path or name on one line; one with unprintable characters becomes a quoted literal."""
    text = str(path)
    return text if text.isprintable() else repr(text)


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """One name in a directory; ``target`` is where a link points."""

    name: str
    kind: FileKind
    size_bytes: int = 0
    executable: bool = False
    target: str | None = None

    @classmethod
    def of(cls, stat: FileStat) -> DirectoryEntry:
        """The entry that *stat* describes."""
        target = None if stat.target is None else shown(stat.target)
        return cls(shown(stat.path.name), stat.kind, stat.size_bytes, stat.executable, target)

    def render(self) -> str:
        """Size and name, with the marks of ``ls -F``."""
        size = f"{self.size_bytes:,}" if self.kind is FileKind.FILE else "-"
        mark = "*" if self.executable else ""
        if self.kind is FileKind.DIRECTORY:
            mark = "/"
        elif self.kind is FileKind.SYMLINK:
            mark = f" -> {self.target}"
        return f"{size:>11}  {self.name}{mark}"


@dataclass(frozen=True, slots=True)
class DirectoryListing:
    """The entries of the directory ``path`` by name; ``n_more`` were left out."""

    path: str
    entries: tuple[DirectoryEntry, ...]
    n_more: int = 0

    @classmethod
    def of(
        cls, path: str, stats: Sequence[FileStat], limits: FileToolLimits = _WHOLE
    ) -> DirectoryListing:
        """The entries *stats* of the directory *path*, as many as fit into a result."""
        entries = _fitting(
            map(DirectoryEntry.of, stats), DirectoryEntry.render, limits.result_chars
        )
        return cls(path, entries, len(stats) - len(entries))

    def render(self) -> str:
        """One line for each entry."""
        if not self.entries:
            return "(empty directory)"
        more = f"({self.n_more:,} more; use a glob to see some of them)" if self.n_more else ""
        return _lines(*(entry.render() for entry in self.entries), more)


@dataclass(frozen=True, slots=True)
class FileWindow:
    """Consecutive lines of the file ``path``, and whether ``more`` follow.

    ``n_cut_lines`` of these were cut. ``n_not_utf_8`` bytes are shown as U+FFFD. ``encoding`` is
    empty for plain UTF-8. An ``image`` has no lines.
    """

    path: str
    first_line: int
    lines: tuple[str, ...]
    more: bool = False
    n_cut_lines: int = 0
    n_not_utf_8: int = 0
    encoding: str = ""
    image: ToolImage | None = None

    @classmethod
    def of(cls, window: TextWindow, limits: FileToolLimits) -> FileWindow:
        """As many lines as fit into a result."""
        lines = _fitting(window.lines, str, limits.result_chars)
        more = window.more or len(lines) < len(window.lines)
        return cls(
            shown(window.path),
            window.first_line,
            lines,
            more,
            window.n_cut_lines,
            window.n_not_utf_8,
            window.encoding,
        )

    @property
    def last_line(self) -> int:
        """Number of the last line shown."""
        return self.first_line + len(self.lines) - 1

    def summary(self) -> str:
        """Which part of which file it is."""
        if self.image is not None:
            size = counted(len(self.image.data), "byte")
            return f"{self.path}, an image of type {self.image.media_type}, {size}"
        if self.first_line == 1 and not self.more:
            return f"{self.path}, all {counted(len(self.lines), 'line')}"
        end = "" if self.more else ", the last"
        return f"{self.path}, lines {self.first_line:,} to {self.last_line:,}{end}"

    def render(self) -> str:
        """Each line after its number and a tab, as ``cat -n`` does."""
        if self.image is not None:
            return ""
        if not self.lines:
            return "(empty file)"
        return _lines(
            *[  # in each call that reads; a generator or a nested format takes twice as long
                str(number).rjust(_NUMBER_WIDTH) + "\t" + line
                for number, line in enumerate(self.lines, start=self.first_line)
            ],
            f"(more lines follow; continue with offset={self.last_line + 1})" if self.more else "",
            f"({counted(self.n_cut_lines, 'long line')} cut)" if self.n_cut_lines else "",
            f"(encoding: {self.encoding})" if self.encoding else "",
            f"(bytes that are not UTF-8, shown as U+FFFD: {self.n_not_utf_8:,}; edits keep them)"
            if self.n_not_utf_8
            else "",
        )


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that was written; ``path`` is as the model named it.

    ``encoding`` describes the encoding and the kept line ends; it is empty for plain UTF-8.
    """

    path: str
    created: bool
    size_bytes: int
    n_lines: int
    encoding: str = ""

    @classmethod
    def of(cls, result: WriteResult, content: str) -> WrittenFile:
        """The file after *content* was written."""
        n_lines = content.count("\n") + (not content.endswith("\n") and content != "")
        return cls(shown(result.path), result.created, result.size_bytes, n_lines, result.encoding)

    def render(self) -> str:
        """The size, and how the text is encoded."""
        size = f"{counted(self.size_bytes, 'byte')}, {counted(self.n_lines, 'line')}"
        return f"{size} (encoding: {self.encoding})" if self.encoding else size


@dataclass(frozen=True, slots=True)
class EditedFile:
    """An edit of ``path`` as a diff, of which ``n_more_diff_lines`` were left out."""

    path: str
    n_replaced: int
    first_line: int
    diff: str
    n_more_diff_lines: int = 0

    @classmethod
    def of(cls, result: EditResult, limits: FileToolLimits) -> EditedFile:
        """The edit, with as much of its diff as fits."""
        lines = result.diff.removesuffix("\n").split("\n")
        if len(lines) > 1 and lines[1].startswith("index "):
            del lines[1]  # object ids, which a model does not need
        kept = _fitting(lines, str, limits.diff_chars)
        n_more = len(lines) - len(kept)
        path = shown(result.path)
        return cls(path, result.n_replaced, result.first_line, "\n".join(kept), n_more)

    def render(self) -> str:
        """The diff."""
        n_more = counted(self.n_more_diff_lines, "more line")
        more = f"({n_more} of diff; read the file to see them)" if self.n_more_diff_lines else ""
        return _lines(self.diff, more)


@dataclass(frozen=True, slots=True)
class ChangedPath:
    """What a patch did to one path.

    For ``lines``, ``ignored_lines`` and ``notes`` see ``PatchedFile``.
    """

    path: str
    action: str
    moved_from: str | None = None
    n_added: int = 0
    n_removed: int = 0
    offset_lines: int = 0
    lines: tuple[LineRange, ...] = ()
    ignored_lines: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, file: PatchedFile) -> ChangedPath:
        """The change, with printable names."""
        return cls(
            shown(file.path),
            file.action,
            None if file.moved_from is None else shown(file.moved_from),
            file.n_added,
            file.n_removed,
            file.offset_lines,
            file.lines if file.action in ("modified", "moved") else (),
            file.ignored_lines,
            file.notes,
        )

    def render(self) -> str:
        """Action, path, changed lines, and where the patch did not match exactly."""
        moved = f"{self.moved_from} -> " if self.moved_from else ""
        added = f" +{self.n_added}" if self.n_added else ""
        removed = f" -{self.n_removed}" if self.n_removed else ""
        changed = f"{moved}{self.path}{added}{removed}{self._changed_lines()}"
        return f"{self.action:<8}  {changed}{self._mismatches()}"

    def _changed_lines(self) -> str:
        named = [_range(lines) for lines in self.lines[:_MAX_RANGES_SHOWN]]
        if len(self.lines) > _MAX_RANGES_SHOWN:
            named.append("…")
        one = len(self.lines) == 1 and self.lines[0].n_lines < 2
        return f", {'line' if one else 'lines'} {', '.join(named)}" if named else ""

    def _mismatches(self) -> str:
        inexact = [
            *([f"found {counted(self.offset_lines, 'line')} away"] if self.offset_lines else []),
            *([self._ignored()] if self.ignored_lines else []),
            *self.notes,
        ]
        return f"  ({'; '.join(inexact)}: check the result)" if inexact else ""

    def _ignored(self) -> str:
        n = len(self.ignored_lines)
        numbers = ", ".join(map(str, self.ignored_lines))
        return (
            f"{counted(n, 'context line')} ignored, patch {'line' if n == 1 else 'lines'} {numbers}"
        )


def _range(lines: LineRange) -> str:
    """The numbers of the lines; if lines were only removed, their position."""
    if lines.n_lines == 0:
        return f"after {lines.first - 1}" if lines.first > 1 else "before 1"
    last = lines.first + lines.n_lines - 1
    return str(last) if lines.n_lines == 1 else f"{lines.first}-{last}"


@dataclass(frozen=True, slots=True)
class AppliedPatch:
    """The changes of a patch: one of ``files`` for each path, in its order."""

    files: tuple[ChangedPath, ...]

    @classmethod
    def of(cls, result: PatchResult) -> AppliedPatch:
        """The changes that the filesystem reports."""
        return cls(tuple(map(ChangedPath.of, result.files)))

    def render(self) -> str:
        """One line for each file."""
        return _lines(*(file.render() for file in self.files))


@dataclass(frozen=True, slots=True)
class FoundPaths:
    """The ``paths`` that match a ``pattern``, sorted; ``truncated`` if there were more.

    ``folders`` has a line for each folder with derived files whose paths were only counted.
    """

    pattern: str
    paths: tuple[str, ...]
    truncated: bool = False
    folders: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, pattern: str, result: GlobResult, limits: FileToolLimits, *, asked: str = ""
    ) -> FoundPaths:
        """The paths, as many as fit into a result; those in folders not *asked* for are counted."""
        found, folders = _without_derived(result.paths, lambda path: path, asked)
        paths = _fitting(map(shown, found), str, limits.result_chars)
        truncated = (result.truncated and not folders) or len(paths) < len(found)
        at_least = "at least " if result.truncated else ""
        counts = (
            f"({at_least}{counted(len(each), 'path')} in {folder} not shown)"
            for folder, each in folders.items()
        )
        return cls(pattern, paths, truncated, tuple(counts))

    def render(self) -> str:
        """One path on each line."""
        if self.paths or self.folders:
            more = "(there are more; use a narrower pattern or path)" if self.truncated else ""
            return _lines(*self.paths, more, *self.folders[:_MAX_FOLDERS_SHOWN])
        if "**" in self.pattern:
            return "(no path matches)"
        return f"(no path matches; '**/{self.pattern}' would search all directories below)"


@dataclass(frozen=True, slots=True)
class FoundLine:
    """One matching line of the file ``path``, counted from 1; or one beside it."""

    path: str
    line: int
    text: str
    is_context: bool = False

    @classmethod
    def of(cls, match: GrepMatch) -> FoundLine:
        """The match, with a printable path."""
        return cls(shown(match.path), match.line, match.text)

    def render(self) -> str:
        """Number and text, for a line below the file's name."""
        return f"{self.line:>{_NUMBER_WIDTH}}{'-' if self.is_context else ''}\t{self.text}"


@dataclass(frozen=True, slots=True)
class FoundLines:
    """The ``lines`` that match ``pattern``, by file; ``truncated`` if there were more.

    ``n_files`` files were searched. ``n_binary`` were skipped as binary, and ``n_unreadable``
    could not be read. If the time ended first, ``timed_out_s`` is the limit in seconds, and files
    after ``stopped_at``, in path order, were not searched. ``folders`` has a line for each folder
    with derived files whose matches were only counted.
    """

    pattern: str
    lines: tuple[FoundLine, ...]
    truncated: bool = False
    n_files: int = 0
    n_binary: int = 0
    n_unreadable: int = 0
    timed_out_s: float | None = None
    stopped_at: str = ""
    folders: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        pattern: str,
        result: GrepResult,
        limits: FileToolLimits = _WHOLE,
        *,
        asked: str = "",
    ) -> FoundLines:
        """As many lines as fit into a result; those in folders not *asked* for are counted."""
        found, folders = _without_derived(result.matches, lambda match: match.path, asked)
        lines = _fitting(map(FoundLine.of, found), FoundLine.render, limits.result_chars)
        truncated = (result.truncated and not folders) or len(lines) < len(found)
        at_least = "at least " if result.truncated else ""
        counts = (
            f"({at_least}{counted(len(each), 'line')} in {folder} not shown;"
            f" search there with path={folder!r})"
            for folder, each in folders.items()
        )
        return cls(
            pattern,
            lines,
            truncated,
            result.n_files,
            result.n_binary,
            result.n_unreadable,
            result.timed_out_s,
            "" if result.stopped_at is None else shown(result.stopped_at),
            tuple(counts),
        )

    def summary(self) -> str:
        """How many lines match, in how many files, and whether the time ended."""
        n_paths = len({line.path for line in self.lines})
        found = f"{counted(len(self.lines), 'line')} in {counted(n_paths, 'file')}"
        first = "The first " if self.truncated else ""
        return f"{first}{found} of {self.n_files:,} searched{self._end()}"

    def with_context(self, files: Filesystem, n: int, limits: FileToolLimits) -> FoundLines:
        """The same with *n* lines before and after each, as many as fit into a result."""
        found: list[FoundLine] = []
        for path, group in groupby(self.lines, key=lambda line: line.path):
            matching, done = {line.line: line for line in group}, 0
            for number in matching:
                start, end = max(done, number - 1 - n), number + n
                try:
                    window = files.read_text(path, offset=start, limit=max(0, end - start))
                except WinkError:  # such as a name that is shown in quotes
                    found.append(matching[number])
                    continue
                for at, text in enumerate(window.lines, start + 1):
                    found.append(matching.get(at) or FoundLine(path, at, text, is_context=True))
                done = max(done, end)
        lines = _fitting(found, FoundLine.render, limits.result_chars)
        return replace(self, lines=lines, truncated=self.truncated or len(lines) < len(found))

    def _unfinished(self) -> str:
        if self.timed_out_s is None:
            return ""
        where = f"; files after {self.stopped_at} were not searched" if self.stopped_at else ""
        return (
            f"(the time limit of {self.timed_out_s:g} s ended the search{where}; "
            "use a narrower path or glob, or a simpler expression)"
        )

    def _end(self) -> str:
        if self.timed_out_s is None:
            return ""
        end = f" at {self.stopped_at}" if self.stopped_at else ""
        return f"; stopped{end} after {self.timed_out_s:g} s, before all files were searched"

    def render(self) -> str:
        """The lines, below the name of their file."""
        by_file = groupby(self.lines, key=lambda line: line.path)
        return _lines(
            *(_lines(path, *(line.render() for line in lines)) for path, lines in by_file),
            "" if self.lines or self.folders else "(no line matches)",
            "(there are more; use a narrower expression, path or glob)" if self.truncated else "",
            *self.folders[:_MAX_FOLDERS_SHOWN],
            self._unfinished(),
            f"({counted(self.n_binary, 'binary file')} skipped)" if self.n_binary else "",
            f"({counted(self.n_unreadable, 'unreadable file')} skipped)"
            if self.n_unreadable
            else "",
        )


@dataclass(frozen=True, slots=True)
class DeletedPath:
    """A deleted path; ``n_entries`` entries were in a directory."""

    path: str
    kind: FileKind
    n_entries: int = 0

    def render(self) -> str:
        """The kind of the deleted path."""
        if self.kind is FileKind.DIRECTORY:
            return f"directory with {counted(self.n_entries, 'entry', 'entries')}"
        return "link" if self.kind is FileKind.SYMLINK else "file"


@dataclass(frozen=True, slots=True)
class MovedPath:
    """A path that was moved from ``source`` to ``destination``."""

    source: str
    destination: str
    kind: FileKind

    def render(self) -> str:
        """The kind of the moved path."""
        return "link" if self.kind is FileKind.SYMLINK else self.kind.value


def _without_derived(
    items: Iterable[T], path_of: Callable[[T], WorkspacePath], asked: str
) -> tuple[list[T], dict[str, list[T]]]:
    """The *items* of the project, and the others by the folder with derived files they are in.

    A folder whose name is in *asked* is the project's.
    """
    own: list[T] = []
    folders: dict[str, list[T]] = {}
    for item in items:
        above = path_of(item).parts[:-1]
        n = next((n for n, x in enumerate(above, 1) if x in DERIVED_NAMES and x not in asked), 0)
        (folders.setdefault(shown("/".join(above[:n])), []) if n else own).append(item)
    return own, folders


def _lines(*parts: str) -> str:
    """The parts that are not empty, one below the other."""
    return "\n".join(filter(None, parts))


def _fitting(items: Iterable[T], text: Callable[[T], str], limit_chars: int) -> tuple[T, ...]:
    """The first items whose texts fit into the limit; at least one, so that paging advances."""
    given = tuple(items)
    n_fitting, left = 0, limit_chars
    for n_chars in map(len, map(text, given)):
        left -= n_chars + 1
        if left < 0 and n_fitting:
            break
        n_fitting += 1
    return given[:n_fitting]
