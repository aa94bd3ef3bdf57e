"""The filesystem contract, run on ``DiskFilesystem`` with a minimal history."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from wink_workspace.errors import SnapshotError
from wink_workspace.filesystem import (
    DiskFilesystem,
    DiskTree,
    FileChange,
    FileKind,
    FileState,
    Filesystem,
    FilesystemLimits,
    WorkspacePath,
    parse_path,
    render_diff,
)
from wink_workspace.testing.filesystem_contract import (
    FilesystemContract,
    FilesystemFactory,
    HistoryContract,
)


@dataclass(frozen=True, eq=False)
class Copy:
    """All entries of a tree at one moment."""

    history: CopyingHistory
    states: dict[WorkspacePath, FileState]


class CopyingHistory:
    """A history that copies the whole tree for each snapshot."""

    def __init__(self, tree: DiskTree) -> None:
        self._tree = tree
        self._copies: list[Copy] = []

    def snapshot(self) -> object:
        states = {entry.path: self._state(entry.path) for entry in self._tree.walk()}
        for copy in self._copies:
            if copy.states == states:
                return copy
        self._copies.append(Copy(self, states))
        return self._copies[-1]

    def restore(self, token: object) -> None:
        wanted = self._own(token).states
        for path in [entry.path for entry in self._tree.walk()]:
            if path not in wanted:
                self._tree.remove(path)
        for path, state in wanted.items():
            if state.kind is FileKind.FILE:
                self._tree.put_file(path, [state.data], executable=state.executable)
            elif state.kind is FileKind.SYMLINK:
                self._tree.put_symlink(path, state.data.decode("utf-8", "surrogateescape"))
            else:
                self._tree.put_directory(path)

    def changes(self, before: object, after: object | None = None) -> tuple[FileChange, ...]:
        old = self._own(before).states
        new = self._own(self.snapshot() if after is None else after).states
        paths = sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path))
        return tuple(FileChange(path, old.get(path), new.get(path)) for path in paths)

    def diff(self, before: object, after: object | None = None) -> str:
        return render_diff(self.changes(before, after))

    def _own(self, token: object) -> Copy:
        if not isinstance(token, Copy) or token.history is not self:
            raise SnapshotError("the snapshot is not one of this history")
        return token

    def _state(self, path: WorkspacePath) -> FileState:
        entry = self._tree.entry(path)
        assert entry is not None
        assert entry.kind is not None
        if entry.kind is FileKind.FILE:
            with self._tree.open(path) as stream:
                return FileState(entry.kind, stream.read(), entry.executable)
        return FileState(entry.kind, (entry.target or "").encode("utf-8", "surrogateescape"))


class TestDiskFilesystem(FilesystemContract, HistoryContract):
    @pytest.fixture
    def new_filesystem(self, tmp_path: Path) -> FilesystemFactory:
        numbers = itertools.count()

        def new(
            files: Mapping[str, bytes] | None = None,
            *,
            limits: FilesystemLimits | None = None,
            read_only: bool = False,
        ) -> Filesystem:
            root = tmp_path / str(next(numbers))
            root.mkdir()
            tree = DiskTree(root)
            for name, content in (files or {}).items():
                tree.put_file(parse_path(name), [content])
            return DiskFilesystem(
                tree, history=CopyingHistory(tree), limits=limits, read_only=read_only
            )

        return new
