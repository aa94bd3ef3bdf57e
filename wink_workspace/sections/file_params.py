"""Parameters of the file tools: their names, limits and descriptions, and the files they use.

The names are those that models know from other agents' tools. Policies call ``file_use`` to learn
which files a call reads and changes. Listings and searches do not count as reads, because they show
at most single lines of a file. The constructors call it, too, so that an invalid path or patch is
refused as a wrong argument before any policy is asked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, Final

from wink_workspace.filesystem import parse_path, touched_paths
from wink_workspace.prompt import FileUse

_MAX_PATH_CHARS: Final = 4_096
"""Keeps very long paths out of messages; the filesystem has its own limits."""
_ENCODING: Final = {"description": "If not known."}


def _path(description: str) -> dict[str, object]:
    """The metadata of a field that holds a path."""
    return {"description": description, "max_length": _MAX_PATH_CHARS}


@lru_cache(maxsize=1_024)  # called by the constructor, and twice by the policy
def _reading(path: str) -> FileUse:
    return FileUse(reads=(parse_path(path),))


@lru_cache(maxsize=1_024)
def _writing(path: str) -> FileUse:
    return FileUse(writes=(parse_path(path),))


class _UsesFiles(ABC):
    """Parameters whose paths are checked when they are made."""

    __slots__ = ()

    def __post_init__(self) -> None:
        self.file_use()

    @abstractmethod
    def file_use(self) -> FileUse:
        """The files that a call with these parameters uses."""


@dataclass(frozen=True, slots=True)
class ListParams:
    """Parameters of ``ls``."""

    path_params: ClassVar[tuple[str, ...]] = ("path",)

    path: str = field(default=".", metadata=_path("The directory to list."))


@dataclass(frozen=True, slots=True)
class ReadFileParams(_UsesFiles):
    """Parameters of ``read_file``."""

    path_params: ClassVar[tuple[str, ...]] = ("file_path",)

    file_path: str = field(metadata=_path("The file to read."))
    offset: int = field(
        default=1,
        metadata={"description": "Number of the first line to show, counted from 1.", "ge": 1},
    )
    limit: int | None = field(
        default=None,
        metadata={
            "description": "How many lines to show; by default as many as fit into a result.",
            "ge": 1,
        },
    )

    def file_use(self) -> FileUse:
        """The file that is read."""
        return _reading(self.file_path)


@dataclass(frozen=True, slots=True)
class WriteFileParams(_UsesFiles):
    """Parameters of ``write_file``."""

    path_params: ClassVar[tuple[str, ...]] = ("file_path",)

    file_path: str = field(metadata=_path("The file to write; missing directories are created."))
    content: str = field(metadata={"description": "The complete new content of the file."})
    encoding: str = field(default="", metadata=_ENCODING)

    def file_use(self) -> FileUse:
        """The file that is written."""
        return _writing(self.file_path)


@dataclass(frozen=True, slots=True)
class EditFileParams(_UsesFiles):
    """Parameters of ``edit_file``."""

    path_params: ClassVar[tuple[str, ...]] = ("file_path",)

    file_path: str = field(metadata=_path("The file to edit."))
    old_string: str = field(
        metadata={
            "description": "The text to replace, exactly as it is in the file, "
            "without line numbers."
        }
    )
    new_string: str = field(metadata={"description": "The replacement; empty to delete the text."})
    replace_all: bool = field(default=False, metadata={"description": "Replace every occurrence."})
    encoding: str = field(default="", metadata=_ENCODING)

    def file_use(self) -> FileUse:
        """The file that is written."""
        return _writing(self.file_path)


@dataclass(frozen=True, slots=True)
class ApplyPatchParams(_UsesFiles):
    """Parameters of ``apply_patch``."""

    patch: str = field(
        metadata={
            "description": "A unified diff (as from `git diff`), or the format that begins with "
            "`*** Begin Patch`."
        }
    )
    encoding: str = field(default="", metadata=_ENCODING)

    def file_use(self) -> FileUse:
        """The files that the patch names."""
        return FileUse(writes=touched_paths(self.patch), follows_links=False)


@dataclass(frozen=True, slots=True)
class GlobParams:
    """Parameters of ``glob``."""

    path_params: ClassVar[tuple[str, ...]] = ("pattern", "path")

    pattern: str = field(
        metadata={
            "description": "`*.py` finds names in one directory, `**/*.py` at any depth; "
            "`?`, `[abc]` and `{a,b}` are supported, too."
        }
    )
    path: str = field(default=".", metadata=_path("The directory to search."))


@dataclass(frozen=True, slots=True)
class GrepParams:
    """Parameters of ``grep``."""

    path_params: ClassVar[tuple[str, ...]] = ("path", "glob")

    pattern: str = field(
        metadata={
            "description": "A regular expression, matched line by line.",
            "min_length": 1,
        }
    )
    path: str = field(default=".", metadata=_path("The file or directory to search."))
    glob: str | None = field(
        default=None,
        metadata={"description": "Search only files whose name or path matches, such as `*.py`."},
    )
    ignore_case: bool = field(default=False, metadata={"description": "Ignore case."})
    context: int = field(
        default=0,
        metadata={"description": "Context lines.", "ge": 0, "le": 20},
    )


@dataclass(frozen=True, slots=True)
class RemoveParams(_UsesFiles):
    """Parameters of ``rm``."""

    path_params: ClassVar[tuple[str, ...]] = ("path",)

    path: str = field(metadata=_path("The file, link or directory to delete."))

    def file_use(self) -> FileUse:
        """The path that is deleted."""
        return FileUse(deletes=(parse_path(self.path),))


@dataclass(frozen=True, slots=True)
class MoveParams(_UsesFiles):
    """Parameters of ``mv``."""

    path_params: ClassVar[tuple[str, ...]] = ("source", "destination")

    source: str = field(metadata=_path("The file, link or directory to move or rename."))
    destination: str = field(
        metadata=_path(
            "The full new path, with the name. It must not exist; missing directories are created."
        )
    )

    def file_use(self) -> FileUse:
        """The move."""
        return FileUse(moves=((parse_path(self.source), parse_path(self.destination)),))
