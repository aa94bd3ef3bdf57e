"""Directories and URLs whose files a ``MemoryFilesystem`` contains from the start.

A ``HostMount`` is copied when the filesystem is made, within limits. A ``UrlMount`` is read on
demand; writes to it stay in the workspace. Neither follows links on the host: a link becomes
a link of the workspace, which is followed only inside of the workspace.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module  # noqa: TID251 - fsspec has no types
from pathlib import Path
from typing import BinaryIO, Literal, Protocol, cast

from wink_workspace.errors import InvalidPathError, LimitExceededError, MountError, UsageError

from .disk.descriptors import (
    Descriptor,
    Parts,
    enter,
    open_listing,
    open_regular,
    open_root,
    status_and_target,
)
from .memory_tree import Directory, File, Node, RemoteDirectory, RemoteFile, Symlink, tree_of
from .model import FileKind, FileStat
from .paths import MAX_PATH_DEPTH, ROOT, WorkspacePath, parse_path
from .search import GlobPattern, compile_filter

# -------------------------------------------------------------------------------------- host tree

# Read a host directory that other processes may be changing, without leaving it.
#
# Every access opens the directories of the path one by one and refuses links among them. So
# everything read lies below the directory that was resolved at the start, whatever other
# processes rename or link.


class HostTree:
    """The files below a host directory; methods raise ``OSError`` as the system does.

    Args:
        path: The directory. Links in this path are resolved once, here.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.realpath(path)

    def names(self, directory: WorkspacePath) -> list[str]:
        """The names in a directory, in order; bytes that are not UTF-8 as surrogates."""
        with self._entered(directory.parts) as entered, Descriptor(open_listing(entered)) as listed:
            return sorted(os.listdir(listed))  # noqa: PTH208 - pathlib takes no descriptor

    def stat(self, path: WorkspacePath) -> FileStat | None:
        """The entry at *path*; ``None`` for pipes, sockets and devices."""
        with self._entered(path.parts[:-1]) as directory:
            status, target = status_and_target(path.name, directory)
        if target is not None:
            return FileStat(path, FileKind.SYMLINK, status.st_size, target=target)
        if stat.S_ISDIR(status.st_mode):
            return FileStat(path, FileKind.DIRECTORY)
        if stat.S_ISREG(status.st_mode):
            executable = bool(status.st_mode & stat.S_IXUSR)
            return FileStat(path, FileKind.FILE, status.st_size, executable)
        return None

    def open(self, path: WorkspacePath) -> BinaryIO:
        """The regular file at *path*, for reading."""
        with self._entered(path.parts[:-1]) as directory:
            return os.fdopen(open_regular(path.name, directory), "rb")

    def _entered(self, parts: Parts) -> Descriptor:
        with Descriptor(open_root(Path("/"))) as top:
            names = tuple(name for name in self.path.split("/") if name)
            return Descriptor(enter(top, (*names, *parts)))


# ----------------------------------------------------------------------------------------- mounts


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A path that could not be mounted, and the reason."""

    path: WorkspacePath
    reason: str


@dataclass(frozen=True, slots=True)
class MountReport:
    """What a mount contains; counts and ``skipped`` stay empty for one that is read on demand.

    ``source`` is the directory or the URL of it. Paths in ``skipped`` are relative to it.
    """

    at: WorkspacePath
    source: str
    n_files: int = 0
    n_bytes: int = 0
    skipped: tuple[SkippedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class MountedTree:
    """A loaded tree, and the path at which it is mounted."""

    at: WorkspacePath
    node: Directory | File
    read_only: bool
    report: MountReport


class Mount(Protocol):
    """A tree that can be mounted."""

    def load(self) -> MountedTree:
        """Load the tree; ``MountError`` if that is not possible."""
        ...


# Host directories


@dataclass(frozen=True, slots=True)
class HostMount:
    """A copy of a host directory.

    Args:
        host_path: The directory.
        at: Where it is mounted.
        include: Globs, relative to *host_path*. If any are given, only matching paths are
            mounted, and everything below a matching directory. Without a ``/``, a glob
            matches names at any depth.
        exclude: Globs of paths that are not mounted, nor anything below them.
        max_bytes: Most bytes in all files together (default 256 MiB).
        max_files: Most files, links and directories together (default 50,000).
        allowed_roots: *host_path* must be one of these directories or inside of one; ``None``
            allows any path.

    Files that cannot be read, and pipes, sockets and devices, are skipped and listed in the
    report.
    """

    host_path: str | os.PathLike[str]
    at: str | WorkspacePath = ROOT
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    max_bytes: int = 268_435_456
    max_files: int = 50_000
    allowed_roots: Sequence[str | os.PathLike[str]] | None = None

    def load(self) -> MountedTree:
        """Copy the directory.

        Raises:
            MountError: If it is missing, not a directory, outside of the allowed roots, or above
                one of the limits.
        """
        tree = HostTree(self.host_path)
        self._check_allowed(tree.path)
        copy = _HostCopy(self, tree)
        try:
            copy.add_directory(ROOT, included=not self.include)
        except OSError as error:
            raise MountError(
                f"cannot mount {os.fspath(self.host_path)}: {error.strerror}",
                hint="Name a directory that exists and can be read.",
            ) from error
        report = MountReport(copy.at, tree.path, copy.n_files, copy.n_bytes, tuple(copy.skipped))
        return MountedTree(copy.at, tree_of(copy.nodes), read_only=False, report=report)

    def _check_allowed(self, path: str) -> None:
        if self.allowed_roots is None:
            return
        roots = [os.path.realpath(root) for root in self.allowed_roots]
        if not any(os.path.commonpath((path, root)) == root for root in roots):
            raise MountError(
                f"{path} lies outside the directories that may be mounted",
                hint=f"Mount something in: {', '.join(roots) or 'nothing is allowed'}.",
            )


class _HostCopy:
    """An unfinished copy of a host directory."""

    def __init__(self, mount: HostMount, tree: HostTree) -> None:
        self.at = parse_path(mount.at)
        self.nodes: dict[WorkspacePath, Node] = {}
        self.skipped: list[SkippedFile] = []
        self.n_files = 0
        self.n_bytes = 0
        self._mount = mount
        self._tree = tree
        self._include = [compile_filter(pattern) for pattern in mount.include]
        self._exclude = [compile_filter(pattern) for pattern in mount.exclude]

    def add_directory(self, path: WorkspacePath, *, included: bool) -> None:
        """Add the entries of a directory; all of them if it is *included* as a whole."""
        for name in self._tree.names(path):
            try:
                self._add(path / name, included=included)
            except OSError as error:
                self._skip(path / name, error.strerror or str(error))

    def _add(self, path: WorkspacePath, *, included: bool) -> None:
        if len(self.at.parts) + len(path.parts) > MAX_PATH_DEPTH:
            self._skip(path, f"its path has more than {MAX_PATH_DEPTH} segments")
            return
        entry = self._tree.stat(path)
        kind = FileKind.FILE if entry is None else entry.kind
        if _matches_any(self._exclude, path, kind):
            return
        included = included or _matches_any(self._include, path, kind)
        if kind is FileKind.DIRECTORY:
            if included:
                self._add_node(path, Directory())
            self.add_directory(path, included=included)
        elif included:
            self._add_leaf(path, entry)

    def _add_leaf(self, path: WorkspacePath, entry: FileStat | None) -> None:
        if entry is None:
            self._skip(path, "neither a file nor a directory nor a link")
        elif entry.target is not None:
            self._add_node(path, Symlink(entry.target))
        else:
            data = self._content(entry)
            self._add_node(path, File(data, executable=entry.executable))
            self.n_files += 1
            self.n_bytes += len(data)

    def _content(self, file: FileStat) -> bytes:
        remaining_bytes = self._mount.max_bytes - self.n_bytes
        if file.size_bytes <= remaining_bytes:
            with self._tree.open(file.path) as stream:
                data = stream.read(remaining_bytes + 1)
            if len(data) <= remaining_bytes:
                return data
        n_bytes = self.n_bytes + max(file.size_bytes, remaining_bytes + 1)
        raise self._limit_exceeded(f"{n_bytes} or more bytes", self._mount.max_bytes)

    def _add_node(self, path: WorkspacePath, node: Node) -> None:
        self.nodes[path] = node
        if len(self.nodes) > self._mount.max_files:
            raise self._limit_exceeded(f"{len(self.nodes)} or more files", self._mount.max_files)

    def _skip(self, path: WorkspacePath, reason: str) -> None:
        self.skipped.append(SkippedFile(path, reason))

    def _limit_exceeded(self, found: str, limit: int) -> MountError:
        return MountError(
            f"{found} in {self._tree.path}, at most {limit} allowed",
            hint="Exclude files that are not needed, or raise the limit of the mount.",
        )


def _matches_any(patterns: Sequence[GlobPattern], path: WorkspacePath, kind: FileKind) -> bool:
    return any(pattern.matches(path.parts, kind) for pattern in patterns)


# URLs


class _Fsspec(Protocol):
    """The part of an fsspec filesystem that mounts use."""

    def info(self, path: str) -> dict[str, object]: ...
    def ls(self, path: str, detail: bool = True) -> list[dict[str, object]]: ...
    def open(self, path: str, mode: str = "rb") -> BinaryIO: ...
    def cat_file(self, path: str) -> bytes: ...


@dataclass(frozen=True, slots=True)
class UrlMount:
    """A file or directory at any URL that fsspec supports, read on demand.

    The first listing of a directory is kept, and so is a file of up to 1 MiB after it is first
    read. Nothing is ever written to the URL.

    Args:
        url: Such as ``s3://bucket/data``, ``zip://::file:///tmp/a.zip``; a link in a local
            directory is a link in the workspace, too.
        at: Where it is mounted.
        mode: ``"read-only"`` refuses changes at and below *at*; ``"copy-on-write"`` keeps
            them in the workspace.
        storage_options: Options of the fsspec filesystem, by name.
    """

    url: str
    at: str | WorkspacePath
    mode: Literal["read-only", "copy-on-write"] = "read-only"
    storage_options: Mapping[str, object] = field(default_factory=dict[str, object])

    def __post_init__(self) -> None:
        if self.mode not in ("read-only", "copy-on-write"):
            raise UsageError(
                f"unknown mode {self.mode!r} for a mount", hint="Use read-only or copy-on-write."
            )

    def load(self) -> MountedTree:
        """Query what the URL names, without reading content.

        Raises:
            MountError: If it is missing, or fsspec cannot open it.
        """
        at = parse_path(self.at)
        report = MountReport(at, self._shown)
        return MountedTree(at, self._node(), self.mode == "read-only", report)

    def _node(self) -> Directory | File:
        with _as_mount_error(f"cannot mount {self._shown}"):
            filesystem, path, is_local = _opened(self.url, self.storage_options)
            info = filesystem.info(path)
        source = _UrlPath(filesystem, path, self._shown)
        if info["type"] != "directory":
            return source.file_node(info)
        if is_local:
            return RemoteDirectory(_HostPath(HostTree(path), ROOT))
        return RemoteDirectory(source)

    @property
    def _shown(self) -> str:
        """The URL without user name and password."""
        return re.sub(r"//[^/@]*@", "//", self.url)


@dataclass(frozen=True, slots=True)
class _UrlPath:
    """A path in an fsspec filesystem."""

    filesystem: _Fsspec
    path: str
    url: str
    info: dict[str, object] = field(default_factory=dict[str, object])

    @property
    def identity(self) -> str:
        return f"{self.url} {self.path} {sorted(map(str, self.info.items()))}"

    @property
    def size_bytes(self) -> int:
        return cast("int", self.info["size"])

    def open(self) -> BinaryIO:
        with _as_mount_error(f"cannot read {self.path} of {self.url}"):
            return self.filesystem.open(self.path)

    def load(self) -> Mapping[str, Node]:
        with _as_mount_error(f"cannot list {self.path} of {self.url}"):
            infos = self.filesystem.ls(self.path)
        return {_last_name(info): self._child(info) for info in infos if self._is_child(info)}

    def file_node(self, info: dict[str, object]) -> File:
        """The file that *info* describes; it is loaded now if its size is not known."""
        source = _UrlPath(self.filesystem, cast("str", info["name"]), self.url, info)
        if isinstance(info.get("size"), int):
            return RemoteFile(source)
        with _as_mount_error(f"cannot read {source.path} of {self.url}"):
            return File(self.filesystem.cat_file(source.path))

    def _child(self, info: dict[str, object]) -> Node:
        if info["type"] == "directory":
            path = cast("str", info["name"])
            return RemoteDirectory(_UrlPath(self.filesystem, path, self.url))
        if isinstance(target := info.get("destination"), str):
            return Symlink(target)
        return self.file_node(info)

    def _is_child(self, info: dict[str, object]) -> bool:
        """Whether an entry has a valid name and is not the listed directory itself."""
        try:
            name = parse_path(_last_name(info)).name
        except (InvalidPathError, LimitExceededError):
            return False
        return bool(name) and cast("str", info["name"]).strip("/") != self.path.strip("/")


def _opened(url: str, storage_options: Mapping[str, object]) -> tuple[_Fsspec, str, bool]:
    """The filesystem, the path in it, and whether it is the local filesystem."""
    fsspec = import_module("fsspec")  # heavy, and untyped
    local = import_module("fsspec.implementations.local")
    filesystem, path = fsspec.url_to_fs(url, **storage_options)
    return filesystem, path, isinstance(filesystem, local.LocalFileSystem)


def _last_name(info: dict[str, object]) -> str:
    return cast("str", info["name"]).rstrip("/").rpartition("/")[2]


@contextmanager
def _as_mount_error(what: str) -> Generator[None]:
    """Raise a ``MountError`` for any exception of an fsspec filesystem."""
    try:
        yield
    except Exception as error:
        raise MountError(f"{what}: {error}", hint="Check the URL and its options.") from error


@dataclass(frozen=True, slots=True)
class _HostPath:
    """A path in a host directory; not read by fsspec, which would follow links out of it."""

    tree: HostTree
    path: WorkspacePath
    size_bytes: int = 0

    @property
    def identity(self) -> str:
        return f"{self.tree.path} {self.path} {self.size_bytes}"

    def open(self) -> BinaryIO:
        with _as_mount_error(f"cannot read {self.path} in {self.tree.path}"):
            return self.tree.open(self.path)

    def load(self) -> Mapping[str, Node]:
        with _as_mount_error(f"cannot list {self.path} in {self.tree.path}"):
            names = self.tree.names(self.path)
            nodes = {name: self._child(self.path / name) for name in names}
        return {name: node for name, node in nodes.items() if node is not None}

    def _child(self, path: WorkspacePath) -> Node | None:
        entry = self.tree.stat(path)
        if entry is None:
            return None
        if entry.target is not None:
            return Symlink(entry.target)
        source = _HostPath(self.tree, path, entry.size_bytes)
        if entry.kind is FileKind.DIRECTORY:
            return RemoteDirectory(source)
        return RemoteFile(source, executable=entry.executable)
