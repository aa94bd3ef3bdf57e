"""What the file tools take: the parameters' names, limits and words, and the files they touch.

The names are those that models know from other agents' tools. ``file_use`` tells policies
which files a call reads and changes; a listing or a search reads no file in that sense, as it
shows at most single lines of one. It is asked once when the parameters are made, so that what
is no path (or no patch) is refused as a wrong argument, before any policy is asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from wink_workspace.filesystem import WorkspacePath, parse_path, touched_paths
from wink_workspace.prompt import FileUse

__all__ = [
    "ApplyPatchParams",
    "EditFileParams",
    "GlobParams",
    "GrepParams",
    "ListParams",
    "MoveParams",
    "ReadFileParams",
    "RemoveParams",
    "WriteFileParams",
]

_MAX_PATH_CHARS: Final = 4_096
"""Keeps a senseless path out of messages; what a path may be is the filesystem's business."""


def _path(description: str) -> dict[str, object]:
    """The metadata of a field that holds a path."""
    return {"description": description, "max_length": _MAX_PATH_CHARS}


@lru_cache(maxsize=1_024)  # asked for when they are made, and twice by the policy
def _reading(path: str) -> FileUse:
    return FileUse(reads=(parse_path(path),))


@lru_cache(maxsize=1_024)
def _writing(path: str) -> FileUse:
    return FileUse(writes=(parse_path(path),))


@dataclass(frozen=True, slots=True)
class ListParams:
    """Parameters of ``ls``."""

    path: str = field(default=".", metadata=_path("The directory to list; the root by default."))


@dataclass(frozen=True, slots=True)
class ReadFileParams:
    """Parameters of ``read_file``."""

    file_path: str = field(metadata=_path("The file to read."))
    offset: int = field(
        default=1,
        metadata={"description": "Number of the first line to show, counted from 1.", "ge": 1},
    )
    limit: int | None = field(
        default=None,
        metadata={
            "description": "How many lines to show; as many as one result may hold by default.",
            "ge": 1,
        },
    )

    def __post_init__(self) -> None:
        self.file_use()

    def file_use(self) -> FileUse:
        """Reads the file."""
        return _reading(self.file_path)


@dataclass(frozen=True, slots=True)
class WriteFileParams:
    """Parameters of ``write_file``."""

    file_path: str = field(metadata=_path("The file to write; missing directories are made."))
    content: str = field(metadata={"description": "All that the file will hold."})

    def __post_init__(self) -> None:
        self.file_use()

    def file_use(self) -> FileUse:
        """Writes the file."""
        return _writing(self.file_path)


@dataclass(frozen=True, slots=True)
class EditFileParams:
    """Parameters of ``edit_file``."""

    file_path: str = field(metadata=_path("The file to edit."))
    old_string: str = field(
        metadata={
            "description": "The text to replace, exactly as it stands in the file, "
            "without line numbers. It must occur once unless replace_all is true."
        }
    )
    new_string: str = field(
        metadata={"description": "The text to put in its place; empty to delete it."}
    )
    replace_all: bool = field(
        default=False, metadata={"description": "Replace every occurrence, not just the only one."}
    )

    def __post_init__(self) -> None:
        self.file_use()

    def file_use(self) -> FileUse:
        """Writes the file."""
        return _writing(self.file_path)


@dataclass(frozen=True, slots=True)
class ApplyPatchParams:
    """Parameters of ``apply_patch``."""

    patch: str = field(
        metadata={
            "description": "A unified diff (as from `git diff`), or the form that begins with "
            "`*** Begin Patch`. Applied to all of its files or to none. In context and removed "
            "lines U+FFFD stands for a byte that is not UTF-8."
        }
    )

    def __post_init__(self) -> None:
        self.file_use()

    def file_use(self) -> FileUse:
        """Writes every file that the patch names."""
        return FileUse(writes=touched_paths(self.patch), follows_links=False)


@dataclass(frozen=True, slots=True)
class GlobParams:
    """Parameters of ``glob``."""

    pattern: str = field(
        metadata={
            "description": "`*.py` finds names in one directory, `**/*.py` at any depth; "
            "`?`, `[abc]` and `{a,b}` work too."
        }
    )
    path: str = field(default=".", metadata=_path("The directory to search; the root by default."))


@dataclass(frozen=True, slots=True)
class GrepParams:
    """Parameters of ``grep``."""

    pattern: str = field(
        metadata={
            "description": "A regular expression, matched line by line, with case.",
            "min_length": 1,
        }
    )
    path: str = field(
        default=".", metadata=_path("The file or directory to search; the root by default.")
    )
    glob: str | None = field(
        default=None,
        metadata={"description": "Search only files whose name or path matches, such as `*.py`."},
    )


@dataclass(frozen=True, slots=True)
class RemoveParams:
    """Parameters of ``rm``."""

    path: str = field(
        metadata=_path("The file, link or directory to delete; a directory goes with all in it.")
    )

    def __post_init__(self) -> None:
        self.file_use()

    def file_use(self) -> FileUse:
        """Deletes what is there."""
        return FileUse(deletes=(parse_path(self.path),))


@dataclass(frozen=True, slots=True)
class MoveParams:
    """Parameters of ``mv``."""

    source: str = field(metadata=_path("The file, link or directory to move or rename."))
    destination: str = field(
        metadata=_path(
            "Its full new path, name included, where nothing is yet; missing directories are made."
        )
    )

    def __post_init__(self) -> None:
        self.file_use()

    def file_use(self) -> FileUse:
        """Moves what is there."""
        return FileUse(moves=(self._move(),))

    def _move(self) -> tuple[WorkspacePath, WorkspacePath]:
        return parse_path(self.source), parse_path(self.destination)
