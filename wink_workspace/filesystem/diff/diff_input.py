"""The input of a diff: a path before and after; content is read only when needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from wink_workspace.filesystem.git_binary import blob_id
from wink_workspace.filesystem.model import Change, FileChange, FileKind, FileState

__all__ = ["NO_CONTENT", "Content", "DiffChange", "Side", "in_memory"]


class Content(Protocol):
    """The content of a file or the target of a link, wherever it is stored."""

    @property
    def id(self) -> str:
        """Its git object id, 40 hexadecimal digits."""
        ...

    @property
    def size_bytes(self) -> int:
        """The length of the content."""
        ...

    def read(self) -> bytes:
        """The whole content."""
        ...

    def chunks(self) -> Iterator[bytes]:
        """The content in pieces, in bounded memory if possible."""
        ...


class _MemoryContent:
    """Content in memory; its id is computed on first use."""

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
"""The content of a path that does not exist."""


@dataclass(frozen=True, slots=True)
class Side:
    """A file or link before or after the change; directories have no side."""

    kind: FileKind
    content: Content
    executable: bool = False

    @property
    def mode(self) -> str:
        """The mode as git writes it."""
        if self.kind is FileKind.SYMLINK:
            return "120000"
        return "100755" if self.executable else "100644"


DiffChange: TypeAlias = Change[Side]
"""A change whose sides are ``None`` also for a directory."""


def in_memory(changes: Iterable[FileChange]) -> Iterator[DiffChange]:
    """Both sides of *changes* whose contents are in memory; equal sides are the same object."""
    for change in changes:
        before = _side(change.before)
        after = before if change.after == change.before else _side(change.after)
        yield Change(change.path, before, after)


def _side(state: FileState | None) -> Side | None:
    if state is None or state.kind is FileKind.DIRECTORY:
        return None
    return Side(state.kind, _MemoryContent(state.data), state.executable)
