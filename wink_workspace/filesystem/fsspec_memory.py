# pyright: basic
# fsspec has no types, so a subclass of its classes cannot be checked strictly.
"""The files of a workspace as an fsspec filesystem, for programs that speak fsspec.

Names begin with ``/``, which means the workspace's root, and may be given without. A file is
written when it is closed, and in an fsspec transaction when that ends. A link to a file is
that file; any other link has the type ``"link"`` and is not descended.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, BinaryIO

from fsspec import AbstractFileSystem
from fsspec.utils import tokenize

from wink_workspace.errors import (
    DirectoryExpectedError,
    FileExpectedError,
    FilesystemError,
    PathExistsError,
    UsageError,
)

from .model import FileKind, FileStat, WriteMode
from .protocol import Filesystem

__all__ = ["MemoryFsspec"]

_WRITE_MODES: dict[str, WriteMode] = {"w": "overwrite", "x": "create", "a": "append"}


class MemoryFsspec(AbstractFileSystem):
    """An fsspec filesystem over a workspace's files; instances share nothing by themselves.

    Args:
        filesystem: What holds the files; ``MemoryFilesystem.as_fsspec`` gives itself.
    """

    protocol = "wink"
    cachable = False
    root_marker = "/"

    def __init__(self, filesystem: Filesystem, **storage_options: Any) -> None:
        super().__init__(**storage_options)
        self._files = filesystem

    @property
    def _fs_token(self) -> str:
        return tokenize(id(self._files))

    def __reduce__(self) -> Any:
        raise TypeError("the files are shared with a workspace and cannot be pickled")

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        names = str(super()._strip_protocol(path)).strip("/")
        return f"/{names}" if names else ""

    # Looking

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Name, size and type of what is at *path*."""
        return self._described(self._files.stat(self._place(path), follow=False))

    def ls(self, path: str, detail: bool = True, **_: Any) -> Sequence[Any]:
        """The entries of a directory, or the file itself."""
        found = self.info(path)
        entries = [found]
        if found["type"] == "directory":
            entries = [self._described(entry) for entry in self._files.list(self._place(path))]
        return entries if detail else [entry["name"] for entry in entries]

    def _place(self, path: str) -> str:
        """A name of fsspec's as a path of the workspace."""
        return self._strip_protocol(path).removeprefix("/")

    def _described(self, there: FileStat) -> dict[str, Any]:
        name = "/".join(("", *there.path.parts))
        described = {"name": name, "size": there.size_bytes, "type": str(there.kind)}
        if there.kind is FileKind.SYMLINK:
            described |= {"type": "link", "islink": True, "destination": there.target}
            target = self._file_behind(there)
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
        place = self._place(path)
        if mode == "rb":
            return self._files.open(place)
        if mode == "r+b":
            content = self._files.read_bytes(place)
            return _Writer(self._files, place, "overwrite", autocommit, content)
        kind = mode.removesuffix("b").removesuffix("+")
        if kind not in _WRITE_MODES:
            raise UsageError(f"unknown mode {mode!r}", hint="Use rb, wb, xb, ab or r+b.")
        if kind == "x" and self.exists(path):
            raise PathExistsError(f"{path} exists already")
        if self.isdir(path):
            raise FileExpectedError(f"{path} is a directory")
        return _Writer(self._files, place, _WRITE_MODES[kind], autocommit)

    def pipe_file(self, path: str, value: bytes, mode: WriteMode = "overwrite", **_: Any) -> None:
        """Write a whole file."""
        self._files.write_bytes(self._place(path), value, mode=mode)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Copy a file with its executable bit, a link, or a directory without its entries."""
        source, target = self._place(path1), self._place(path2)
        found = self.info(source)
        if found["type"] == "directory":
            self._files.mkdir(target)
        elif found["type"] == "link":
            self._files.symlink(target, found["destination"])
        else:
            self._files.write_bytes(target, self._files.read_bytes(source))
            self._files.set_executable(target, self._files.stat(source).executable)

    # Directories and deleting

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Make a directory that does not exist."""
        self._files.mkdir(self._place(path), parents=create_parents, exist_ok=False)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a directory and those above it."""
        self._files.mkdir(self._place(path), exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        """Delete an empty directory."""
        if not self.isdir(path):
            raise DirectoryExpectedError(f"{path} is not a directory")
        self._files.delete(self._place(path))

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Delete files, links and directories; the root stays, what is in it goes."""
        for place in reversed(self.expand_path(path, recursive=recursive, maxdepth=maxdepth)):
            if self._place(place):
                self._rm(place)

    def _rm(self, path: str) -> None:
        self._files.delete(self._place(path))


class _Writer(io.BytesIO):
    """A file being written, which takes effect when it is closed or, later, committed."""

    def __init__(
        self,
        files: Filesystem,
        path: str,
        mode: WriteMode,
        autocommit: bool,
        content: bytes = b"",
    ) -> None:
        super().__init__(content)
        self._files = files
        self._path = path
        self._mode: WriteMode = mode
        self._autocommit = autocommit
        self._written = b""

    def close(self) -> None:
        """Keep what was written, and write it unless a transaction will."""
        if self.closed:
            return
        self._written = self.getvalue()
        super().close()
        if self._autocommit:
            self.commit()

    def commit(self) -> None:
        """Write it."""
        self._files.write_bytes(self._path, self._written, mode=self._mode)

    def discard(self) -> None:
        """Forget it."""
