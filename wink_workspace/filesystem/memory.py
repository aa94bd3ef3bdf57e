"""A filesystem in memory; a snapshot of it is one reference."""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO

from immutables import Map

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.errors import (
    DirectoryExpectedError,
    DirectoryNotEmptyError,
    FileExpectedError,
    FileMissingError,
    LimitExceededError,
    LinkError,
    MountError,
    PathExistsError,
)

from .memory_tree import (
    Directory,
    File,
    Node,
    Symlink,
    TreeCell,
    lookup,
    merged,
    replaced,
    stat_of,
    tree_changes,
    tree_of,
)
from .model import FileChange, FileStat, FilesystemLimits, WriteMode
from .mounts import Mount, MountedTree
from .paths import MAX_PATH_DEPTH, WorkspacePath, parse_path
from .protocol import Filesystem

if TYPE_CHECKING:
    from .fsspec_memory import MemoryFsspec


class MemoryFilesystem(Filesystem):
    """Files in the memory of this process.

    Args:
        files: Content by path; text is encoded as UTF-8.
        mounts: Directories and URLs to mount, in order. Directories are merged; no file is
            replaced.
        limits: Limits of single operations; *files* and *mounts* may exceed them.
        read_only: Refuse every change.
        clock: Measures the time of searches.

    ``mount_reports`` lists what each mount contains and what it skipped.

    Raises:
        MountError: If a mount cannot be loaded, or its path is in use.
        DirectoryExpectedError: If one of *files* would be below another.
    """

    def __init__(
        self,
        files: Mapping[str, bytes | str] | None = None,
        *,
        mounts: Sequence[Mount] = (),
        limits: FilesystemLimits | None = None,
        read_only: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        loaded = [mount.load() for mount in mounts]
        super().__init__(
            limits=limits,
            read_only=read_only,
            read_only_paths=[mounted.at for mounted in loaded if mounted.read_only],
            clock=clock,
        )
        self.mount_reports = tuple(mounted.report for mounted in loaded)
        root = functools.reduce(_with_mount, loaded, Directory())
        self._cell = TreeCell(_with_files(root, files or {}))

    def as_fsspec(self) -> MemoryFsspec:
        """The same files as an fsspec filesystem; changes are visible in both.

        ``limits.write_bytes`` does not apply to it; all other limits and options do.
        """
        from .fsspec_memory import MemoryFsspec

        view = copy.copy(self)
        limits = replace(self.limits, write_bytes=sys.maxsize)
        view._limits = limits  # noqa: SLF001 - an object of this class
        return MemoryFsspec(view)

    # History

    def snapshot(self) -> object:
        """A reference to the current state; the same object while nothing changes."""
        return self._cell.snapshot()

    def restore(self, token: object) -> None:
        """Restore the state of a snapshot of this filesystem."""
        self._cell.restore(token)

    def changes(self, before: object, after: object | None = None) -> tuple[FileChange, ...]:
        """The paths that differ; the cost depends on the differences only."""
        old = self._cell.checked(before).root
        new = self._cell.root if after is None else self._cell.checked(after).root
        return tuple(tree_changes(old, new))

    # Primitives

    def _stat(self, path: WorkspacePath) -> FileStat | None:
        node = lookup(self._cell.root, path)
        return None if node is None else stat_of(node, path)

    def _children(self, path: WorkspacePath) -> Iterable[FileStat]:
        node = _existing(self._cell.root, path)
        if not isinstance(node, Directory):
            raise DirectoryExpectedError(f"{path} is not a directory")
        return [stat_of(child, path / name) for name, child in node.children.items()]

    def _open(self, path: WorkspacePath) -> BinaryIO:
        return _file(self._cell.root, path).open()

    def _fingerprint(self, path: WorkspacePath) -> str:
        return _existing(self._cell.root, path).fingerprint

    def _write(self, path: WorkspacePath, data: bytes, *, mode: WriteMode) -> None:
        def write(root: Directory) -> Directory:
            if lookup(root, path) is None:
                return replaced(root, path, File(data))
            if mode == "create":
                raise PathExistsError(f"{path} exists already")
            before = _file(root, path)
            content = before.data + data if mode == "append" else data
            if content == before.data:
                return root
            return replaced(root, path, File(content, executable=before.executable))

        self._cell.change(write)

    def _delete(self, path: WorkspacePath, *, recursive: bool) -> None:
        def delete(root: Directory) -> Directory:
            node = _existing(root, path)
            if isinstance(node, Directory) and node.children and not recursive:
                raise DirectoryNotEmptyError(f"{path} is not empty")
            return replaced(root, path, None)

        self._cell.change(delete)

    def _mkdir(self, path: WorkspacePath) -> None:
        self._cell.change(_addition(path, Directory()))

    def _symlink(self, path: WorkspacePath, target: str) -> None:
        self._cell.change(_addition(path, Symlink(target)))

    def _move(self, source: WorkspacePath, destination: WorkspacePath) -> None:
        def move(root: Directory) -> Directory:
            node = _existing(root, source)
            _check_depth(node, destination)
            if isinstance(lookup(root, destination), Directory):
                raise PathExistsError(f"{destination} exists already")
            return replaced(replaced(root, source, None), destination, node)

        self._cell.change(move)

    def _set_executable(self, path: WorkspacePath, *, executable: bool) -> None:
        def set_bit(root: Directory) -> Directory:
            before = _file(root, path)
            if before.executable == executable:
                return root
            return replaced(root, path, File(before.data, executable=executable))

        self._cell.change(set_bit)


def _existing(root: Directory, path: WorkspacePath) -> Node:
    node = lookup(root, path)
    if node is None:
        raise FileMissingError(f"{path} does not exist")
    return node


def _file(root: Directory, path: WorkspacePath) -> File:
    node = _existing(root, path)
    if isinstance(node, Directory):
        raise FileExpectedError(f"{path} is a directory")
    if isinstance(node, Symlink):
        raise LinkError(f"{path} is a link")
    return node


def _addition(path: WorkspacePath, node: Node) -> Callable[[Directory], Directory]:
    def add(root: Directory) -> Directory:
        if lookup(root, path) is not None:
            raise PathExistsError(f"{path} exists already")
        return replaced(root, path, node)

    return add


def _check_depth(node: Node, destination: WorkspacePath) -> None:
    height = node.height if isinstance(node, Directory) else 0
    depth = len(destination.parts) + height
    if depth > MAX_PATH_DEPTH:
        raise LimitExceededError(
            f"a path of {depth} segments below {destination}, at most {MAX_PATH_DEPTH} allowed",
            hint="Use fewer nested directories.",
        )


def _with_mount(root: Directory, mounted: MountedTree) -> Directory:
    node = mounted.node
    for name in reversed(mounted.at.parts):
        node = Directory(Map({name: node}))
    try:
        if not isinstance(node, Directory):
            raise FileExpectedError("the root is a directory")
        return merged(root, node)
    except (PathExistsError, FileExpectedError) as error:
        raise MountError(
            f"cannot mount at {mounted.at}: {error.message}", hint="Mount it at another path."
        ) from error


def _with_files(root: Directory, files: Mapping[str, bytes | str]) -> Directory:
    nodes: dict[WorkspacePath, Node] = {}
    for name, content in files.items():
        path = parse_path(name)
        if not path.parts:
            raise FileExpectedError("the root is a directory", hint="Name a file in it.")
        nodes[path] = File(content.encode() if isinstance(content, str) else bytes(content))
    return merged(root, tree_of(nodes))
