"""What is compared: a path before and after, its content read only where it is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from wink_workspace.filesystem.git_binary import blob_id
from wink_workspace.filesystem.model import FileChange, FileKind, FileState
from wink_workspace.filesystem.paths import WorkspacePath

__all__ = ["NO_CONTENT", "Content", "DiffChange", "Side", "in_memory"]


class Content(Protocol):
    """A file's content or a link's target, wherever it is kept."""

    @property
    def id(self) -> str:
        """Git's name for it, 40 hexadecimal digits."""
        ...

    @property
    def size_bytes(self) -> int:
        """Its length."""
        ...

    def read(self) -> bytes:
        """All of it."""
        ...

    def chunks(self) -> Iterator[bytes]:
        """The same in pieces, in bounded memory where that is possible."""
        ...


class _MemoryContent:
    """A content in memory; its id is computed when it is asked for."""

    def __init__(self, data: bytes) -> None:
        self.size_bytes = len(data)
        self._data = data
        self._id = ""

    @property
    def id(self) -> str:
        if not self._id:
            self._id = blob_id(self._data)
        return self._id

    def read(self) -> bytes:
        return self._data

    def chunks(self) -> Iterator[bytes]:
        yield self._data


NO_CONTENT: Content = _MemoryContent(b"")
"""What a path that does not exist is compared as."""


@dataclass(frozen=True, slots=True)
class Side:
    """A file or link as it is before or after; a directory is none."""

    kind: FileKind
    content: Content
    executable: bool = False

    @property
    def mode(self) -> str:
        """As git writes it."""
        if self.kind is FileKind.SYMLINK:
            return "120000"
        return "100755" if self.executable else "100644"


@dataclass(frozen=True, slots=True)
class DiffChange:
    """One path before and after; ``None`` where it does not exist or is a directory."""

    path: WorkspacePath
    before: Side | None
    after: Side | None


def in_memory(changes: Iterable[FileChange]) -> Iterator[DiffChange]:
    """Changes with contents in memory; a side that did not change is the same object."""
    for change in changes:
        before = _side(change.before)
        after = before if change.after == change.before else _side(change.after)
        yield DiffChange(change.path, before, after)


def _side(state: FileState | None) -> Side | None:
    if state is None or state.kind is FileKind.DIRECTORY:
        return None
    return Side(state.kind, _MemoryContent(state.data), state.executable)
