"""The input of a diff: a path before and after; content is read only when needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from wink_workspace.errors import UsageError
from wink_workspace.filesystem.git_binary import blob_id
from wink_workspace.filesystem.model import Change, FileChange, FileKind, FileState


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


# ------------------------------------------------------------------------------------ diff limits


_MIB: Final = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLimits:
    """Limits on the work and the memory for one diff, which also bound the time.

    A path above a limit is named in one line; the others are shown. All limits count work, not
    time, so that the same diff is always shown in the same way.

    Attributes:
        path_bytes: Largest content, before or after, that is read into memory.
        path_binary_bytes: Largest binary content that is shown.
        path_lines: Most lines, before or after, between the first and the last difference.
        total_bytes: Most bytes read for all paths.
        total_lines: Most lines compared for all paths, both sides together.
        piece_lines: Most lines that are compared at once, both sides together. A longer part is
            split at lines that occur once in both. A piece that is still longer counts as
            replaced.
        rename_bytes: Most bytes read, for all paths, to find files that were renamed and changed.
        rename_lines: Most lines read for that.
    """

    path_bytes: int = 64 * _MIB
    path_binary_bytes: int = 4 * _MIB
    path_lines: int = 1_000_000
    total_bytes: int = 256 * _MIB
    total_lines: int = 2_000_000
    piece_lines: int = 524_288
    rename_bytes: int = 16 * _MIB
    rename_lines: int = 500_000

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} is {getattr(self, name)}", hint="Use a positive number.")


DEFAULT_DIFF_LIMITS: Final = DiffLimits()
