"""The values that filesystem operations take and give."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from wink_workspace.errors import UsageError
from wink_workspace.filesystem.paths import WorkspacePath

__all__ = [
    "EditResult",
    "FileChange",
    "FileKind",
    "FileStat",
    "FileState",
    "FilesystemLimits",
    "GlobResult",
    "GrepMatch",
    "GrepResult",
    "LineRange",
    "PatchResult",
    "PatchedFile",
    "TextWindow",
    "WriteMode",
    "WriteResult",
]

WriteMode = Literal["create", "overwrite", "append"]


class FileKind(StrEnum):
    """What a path is; a link is a link, whatever it points to."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"


@dataclass(frozen=True, slots=True)
class FileStat:
    """What is known of a path without reading it.

    ``size_bytes`` is 0 for a directory and the target's length for a link; ``target`` is
    set for links only.
    """

    path: WorkspacePath
    kind: FileKind
    size_bytes: int = 0
    executable: bool = False
    target: str | None = None


@dataclass(frozen=True, slots=True)
class FileState:
    """All that a workspace keeps of one path.

    ``data`` is a file's content, a link's target as bytes, and empty for a directory.
    """

    kind: FileKind
    data: bytes = b""
    executable: bool = False


@dataclass(frozen=True, slots=True)
class FileChange:
    """One path before and after; ``None`` means it does not exist."""

    path: WorkspacePath
    before: FileState | None
    after: FileState | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesystemLimits:
    """Bounds on single operations of a program.

    A model's tools bound theirs further, by ``FileToolLimits`` and ``AstevalConfig``.

    Attributes:
        read_lines: Most lines that one ``read_text`` gives.
        read_line_chars: Where a longer line is cut.
        write_bytes: Largest file that can be written, edited or patched. Its content is held in
            memory, more than once for an edit, so memory may end the work earlier.
        grep_matches: Most lines that one ``grep`` gives.
        glob_results: Most paths that one ``glob`` gives.
        search_timeout_s: How long one search may take.
    """

    read_lines: int = 2_000
    read_line_chars: int = 2_000
    write_bytes: int = 1_073_741_824
    grep_matches: int = 1_000
    glob_results: int = 1_000
    search_timeout_s: float = 5.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} is {getattr(self, name)}", hint="Use a positive number.")


@dataclass(frozen=True, slots=True)
class TextWindow:
    """Some lines of a text file.

    ``lines`` come without their line ends, long ones cut; ``first_line`` counts from 1;
    ``more`` tells that lines follow the last one; ``n_cut_lines`` counts the lines cut, and
    ``n_not_utf_8`` the bytes shown as U+FFFD.
    """

    path: WorkspacePath
    lines: tuple[str, ...]
    first_line: int
    more: bool
    n_cut_lines: int = 0
    n_not_utf_8: int = 0

    @property
    def text(self) -> str:
        """The lines joined by newlines."""
        return "\n".join(self.lines)


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a write did: the bytes written (appended, for an append) and the size afterwards."""

    path: WorkspacePath
    written_bytes: int
    size_bytes: int
    created: bool


@dataclass(frozen=True, slots=True)
class EditResult:
    """What an edit did: how many places changed, the first changed line, and a unified diff."""

    path: WorkspacePath
    n_replaced: int
    first_line: int
    diff: str


@dataclass(frozen=True, slots=True)
class LineRange:
    """Consecutive lines, counted from 1; without any lines, the place before line ``first``."""

    first: int
    n_lines: int


@dataclass(frozen=True, slots=True)
class PatchedFile:
    """What a patch did to one path; ``moved_from`` is set for a rename.

    ``lines`` are the lines that each hunk changed, as the file has them now; a hunk that only
    removes lines has a range without lines. ``offset_lines`` is the largest distance at which
    a hunk was found from where it said it would be. ``ignored_lines`` are the lines of the
    patch whose context was ignored because the file has something else there. ``notes`` say
    how else the file differs from what the patch expected.
    """

    path: WorkspacePath
    action: Literal["created", "modified", "deleted", "moved"]
    moved_from: WorkspacePath | None = None
    n_added: int = 0
    n_removed: int = 0
    offset_lines: int = 0
    lines: tuple[LineRange, ...] = ()
    ignored_lines: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PatchResult:
    """Everything a patch did, in the patch's order."""

    files: tuple[PatchedFile, ...]


@dataclass(frozen=True, slots=True)
class GlobResult:
    """Matching paths, sorted; ``truncated`` when the limit cut the list."""

    paths: tuple[WorkspacePath, ...]
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class GrepMatch:
    """One matching line, counted from 1, cut to the limit for lines."""

    path: WorkspacePath
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class GrepResult:
    """Matches by path and line; what was left out is counted.

    ``truncated`` when the limit cut the list; ``n_binary`` files were skipped as binary and
    ``n_unreadable`` because they could not be read (a dangling link, say).
    """

    matches: tuple[GrepMatch, ...]
    truncated: bool = False
    n_files: int = 0
    n_binary: int = 0
    n_unreadable: int = 0
