# pyright: basic
# fsspec has no types, so a subclass of its classes cannot be checked strictly.
"""The files of a workspace as an fsspec filesystem.

Returned names begin with ``/``, the root of the workspace; arguments may omit it. A file is
written when it is closed, or at the end of an fsspec transaction. A link to a file is shown as
that file; any other link has the type ``"link"`` and is not followed.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, BinaryIO

from fsspec import AbstractFileSystem
from fsspec.utils import tokenize

from wink_workspace.errors import (
    DirectoryExpectedError,
    FileChangedError,
    FileExpectedError,
    FilesystemError,
    PathExistsError,
    UsageError,
)

from .model import FileKind, FileStat, WriteMode
from .protocol import Filesystem

_WRITE_MODES: dict[str, WriteMode] = {"w": "overwrite", "x": "create", "a": "append"}


class MemoryFsspec(AbstractFileSystem):
    """An fsspec filesystem over the files of a workspace; instances are not cached.

    Args:
        filesystem: The files.
    """

    protocol = "wink"
    cachable = False
    root_marker = "/"

    def __init__(self, filesystem: Filesystem, **storage_options: Any) -> None:
        super().__init__(**storage_options)
        self._filesystem = filesystem

    @property
    def _files(self) -> Filesystem:
        """The files to read."""
        return self._filesystem

    @contextmanager
    def _changing(self, what: str, path: str) -> Generator[Filesystem]:
        """The files to change, for the change *what* of *path*; a subclass may commit it."""
        del what, path
        yield self._files

    @property
    def _fs_token(self) -> str:
        return tokenize(id(self._filesystem))

    def __reduce__(self) -> Any:
        raise TypeError("the files are shared with a workspace and cannot be pickled")

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        names = str(super()._strip_protocol(path)).strip("/")
        return f"/{names}" if names else ""

    # Metadata

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Name, size and type of *path*."""
        found = self._files.stat(self._workspace_path(path), follow=False)
        return self._described(found, self._place(path))

    def ls(self, path: str, detail: bool = True, **_: Any) -> Sequence[Any]:
        """The entries of a directory, or the file itself."""
        found = self.info(path)
        entries = [found]
        if found["type"] == "directory":
            entries = [
                self._described(entry, self._place(path))
                for entry in self._files.list(self._workspace_path(path))
            ]
        return entries if detail else [entry["name"] for entry in entries]

    def _workspace_path(self, path: str) -> str:
        """The workspace path of an fsspec name."""
        return self._strip_protocol(path).removeprefix(self._place(path)).removeprefix("/")

    def _place(self, path: str) -> str:
        """What stands before the ``/`` of *path*, and of names below it."""
        del path
        return ""

    def _described(self, entry: FileStat, place: str) -> dict[str, Any]:
        name = "/".join((place, *entry.path.parts))
        described = {"name": name, "size": entry.size_bytes, "type": str(entry.kind)}
        if entry.kind is FileKind.SYMLINK:
            described |= {"type": "link", "islink": True, "destination": entry.target}
            target = self._file_behind(entry)
            if target is not None:
                described |= {"type": "file", "size": target.size_bytes}
        return described

    def _file_behind(self, link: FileStat) -> FileStat | None:
        try:
            target = self._files.stat(link.path)
        except FilesystemError:
            return None
        return target if target.kind is FileKind.FILE else None

    # Reading and writing

    def _open(
        self, path: str, mode: str = "rb", *, autocommit: bool = True, **_: Any
    ) -> BinaryIO | _Writer:
        target = self._workspace_path(path)
        if mode == "rb":
            return self._files.open(target)
        if mode == "r+b":
            content = self._files.read_bytes(target)
            return _Writer(self._changing, target, "overwrite", autocommit, content)
        kind = mode.removesuffix("b").removesuffix("+")
        if kind not in _WRITE_MODES:
            raise UsageError(f"unknown mode {mode!r}", hint="Use rb, wb, xb, ab or r+b.")
        if kind == "x" and self.exists(path):
            raise PathExistsError(f"{path} exists already")
        if self.isdir(path):
            raise FileExpectedError(f"{path} is a directory")
        return _Writer(self._changing, target, _WRITE_MODES[kind], autocommit)

    def pipe_file(self, path: str, value: bytes, mode: WriteMode = "overwrite", **_: Any) -> None:
        """Write a whole file."""
        target = self._workspace_path(path)
        with self._changing("write", target) as files:
            files.write_bytes(target, value, mode=mode)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Copy a file with its executable bit, a link, or a directory without its entries."""
        source, target = self._workspace_path(path1), self._workspace_path(path2)
        with self._changing("copy", source) as files:
            found = self.info(source)
            if found["type"] == "directory":
                files.mkdir(target)
            elif found["type"] == "link":
                files.symlink(target, found["destination"])
            else:
                files.write_bytes(target, files.read_bytes(source))
                files.set_executable(target, files.stat(source).executable)

    # Directories and deleting

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Create a directory that does not exist."""
        target = self._workspace_path(path)
        with self._changing("make directory", target) as files:
            files.mkdir(target, parents=create_parents, exist_ok=False)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Create a directory and its missing parents."""
        target = self._workspace_path(path)
        with self._changing("make directory", target) as files:
            files.mkdir(target, exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        """Delete an empty directory."""
        if not self.isdir(path):
            raise DirectoryExpectedError(f"{path} is not a directory")
        self._rm(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Delete files, links and directories; of the root, only the entries."""
        for target in reversed(self.expand_path(path, recursive=recursive, maxdepth=maxdepth)):
            if self._workspace_path(target):
                self._rm(target)

    def _rm(self, path: str) -> None:
        target = self._workspace_path(path)
        with self._changing("delete", target) as files:
            files.delete(target)


class _Writer(io.BytesIO):
    """A file that is written to the workspace when it is closed or, later, committed."""

    def __init__(
        self,
        changing: Callable[[str, str], AbstractContextManager[Filesystem]],
        path: str,
        mode: WriteMode,
        autocommit: bool,
        content: bytes = b"",
    ) -> None:
        super().__init__(content)
        self._changing = changing
        self._path = path
        self._mode: WriteMode = mode
        self._autocommit = autocommit
        self._before = content
        self._written = b""

    def close(self) -> None:
        """Write the file, unless it belongs to a transaction."""
        if self.closed:
            return
        self._written = self.getvalue()
        super().close()
        if self._autocommit:
            self.commit()

    def commit(self) -> None:
        """Write the file to the workspace."""
        with self._changing("write", self._path) as files:
            if self._before and files.read_bytes(self._path) != self._before:
                raise FileChangedError(
                    f"{self._path} changed since it was opened", hint="Open it again."
                )
            files.write_bytes(self._path, self._written, mode=self._mode)

    def discard(self) -> None:
        """Never write the file, also if it is closed later."""
        self._autocommit = False
