"""Arguments and results of filesystem operations."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Literal, TypeAlias, TypeVar

from wink_workspace.errors import UsageError

from .paths import WorkspacePath

S = TypeVar("S")

WriteMode = Literal["create", "overwrite", "append"]


class FileKind(StrEnum):
    """The kind of a path. A link is ``SYMLINK``, whatever it points to."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"


@dataclass(frozen=True, slots=True)
class FileStat:
    """The metadata of a path, known without reading its content.

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
    """Everything that a workspace stores for one path.

    ``data`` is a file's content, a link's target as bytes, and empty for a directory.
    """

    kind: FileKind
    data: bytes = b""
    executable: bool = False


@dataclass(frozen=True)  # without slots: Python 3.11 could not call the aliases below
class Change(Generic[S]):
    """One path before and after; ``None`` means it does not exist."""

    path: WorkspacePath
    before: S | None
    after: S | None


FileChange: TypeAlias = Change[FileState]
"""A change with the contents of both sides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesystemLimits:
    """Limits of single operations that a program makes.

    The tools of a model have lower limits: ``FileToolLimits`` and ``AstevalConfig``.

    Attributes:
        read_lines: Most lines that one ``read_text`` returns.
        read_line_chars: Longer lines are cut to this length.
        write_bytes: Largest file that can be written, edited or patched. Its content is held in
            memory, more than once for an edit, so less may fit.
        grep_matches: Most lines that one ``grep`` returns.
        glob_results: Most paths that one ``glob`` returns.
        search_timeout_s: Longest time for one search.
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

    ``lines`` have no line ends, and long ones are cut; ``first_line`` counts from 1. ``more``
    is set if further lines follow. ``n_cut_lines`` counts the lines that were cut, and
    ``n_not_utf_8`` the bytes shown as U+FFFD. ``encoding`` says how the file is encoded, such as
    ``cp1252, guessed``; it is empty for plain UTF-8.
    """

    path: WorkspacePath
    lines: tuple[str, ...]
    first_line: int
    more: bool
    n_cut_lines: int = 0
    n_not_utf_8: int = 0
    encoding: str = ""

    @property
    def text(self) -> str:
        """The lines joined by newlines."""
        return "\n".join(self.lines)


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a write: the bytes written or appended, and the size afterwards.

    ``encoding`` as for ``TextWindow``, also if only CRLF line ends were kept.
    """

    path: WorkspacePath
    written_bytes: int
    size_bytes: int
    created: bool
    encoding: str = ""


@dataclass(frozen=True, slots=True)
class EditResult:
    """The result of an edit: the number of replacements, the first changed line, and the diff.

    The diff is in UTF-8, whatever the encoding of the file.
    """

    path: WorkspacePath
    n_replaced: int
    first_line: int
    diff: str


@dataclass(frozen=True, slots=True)
class LineRange:
    """Consecutive lines, counted from 1; an empty range lies before line ``first``."""

    first: int
    n_lines: int


@dataclass(frozen=True, slots=True)
class PatchedFile:
    """The change of a patch to one path; ``moved_from`` is set for a rename.

    ``lines`` are the lines that each hunk changed, numbered as in the new file; a hunk that
    only removes lines has an empty range. ``offset_lines`` is the largest distance between the
    stated and the actual line of a hunk. ``ignored_lines`` are lines of the patch: context that
    was ignored because the file differs there. ``notes`` list further differences between the
    file and what the patch expected.
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
    """The changes of a patch: one of ``files`` for each path, in the order of the patch."""

    files: tuple[PatchedFile, ...]


@dataclass(frozen=True, slots=True)
class GlobResult:
    """Matching paths, sorted; ``truncated`` if there are more than the limit."""

    paths: tuple[WorkspacePath, ...]
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class GrepMatch:
    """One matching line: its number, from 1, and its text, cut to the limit."""

    path: WorkspacePath
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class GrepResult:
    """The ``matches``, sorted by path and line.

    ``truncated`` is set if there are more than the limit. ``n_files`` were searched,
    ``n_binary`` skipped as binary, and ``n_unreadable`` could not be read (dangling links, say).

    If the time ended before every file was searched, ``timed_out_s`` is the limit in seconds.
    ``stopped_at`` is the last file that was begun, ``None`` if none was: it may have been searched
    only in part, and the files after it, in path order, were not searched.
    """

    matches: tuple[GrepMatch, ...]
    truncated: bool = False
    n_files: int = 0
    n_binary: int = 0
    n_unreadable: int = 0
    timed_out_s: float | None = None
    stopped_at: WorkspacePath | None = None


# ----------------------------------------------------------------------------------- fingerprints

# Content hashes of files, links and directories, the same for every backend.
#
# A fingerprint covers what a workspace stores for a path and nothing else, so equal trees have
# equal fingerprints in every backend. Content of a mount that is not loaded is an exception.


def file_fingerprint(chunks: Iterable[bytes], *, executable: bool) -> str:
    """The hash of a file whose content is *chunks*, joined."""
    digest = hashlib.sha256(b"executable\0" if executable else b"file\0")
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def remote_fingerprint(identity: str) -> str:
    """The hash of content that is not loaded, from the *identity* of its source."""
    return hashlib.sha256(b"remote\0" + _encoded(identity)).hexdigest()


def link_fingerprint(target: str) -> str:
    """The hash of a link."""
    return hashlib.sha256(b"link\0" + _encoded(target)).hexdigest()


def directory_fingerprint(children: Iterable[tuple[str, str]]) -> str:
    """The hash of a directory from its entries' names and fingerprints, in any order."""
    digest = hashlib.sha256(b"directory\0")
    for name, fingerprint in sorted(children):
        digest.update(_encoded(name) + b"\0" + fingerprint.encode() + b"\0")
    return digest.hexdigest()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
