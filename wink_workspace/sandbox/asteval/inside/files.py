"""The workspace's files as the code sees them: every operation is a request to the host.

A file is fetched whole when it is opened for reading. A file opened for writing is sent whole when
it is flushed or closed, or at the end of the evaluation. The host decides what may be read and
written; its refusals are raised as the corresponding Python exceptions.

Paths are relative to the workspace's root, which code also sees as the directory ``HOME``.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import json
import os
import posixpath
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TextIO, cast

HOME: Final = "/workspace"
SOURCE: Final = "<code>"
"""The file name of the code in tracebacks."""

_MODES: Final = {"r": None, "w": "overwrite", "x": "create", "a": "append"}
_ERRORS: Final = {
    "FileNotFoundError": errno.ENOENT,
    "FileExistsError": errno.EEXIST,
    "IsADirectoryError": errno.EISDIR,
    "NotADirectoryError": errno.ENOTDIR,
    "PermissionError": errno.EACCES,
    "ValueError": None,
}


class Ask(Protocol):
    """Sends a request to the host and waits for the answer; raises the host's refusal."""

    def __call__(self, kind: str, fields: Mapping[str, object], body: bytes = b"") -> bytes:
        """The body of the answer."""
        ...


def refusal(fields: Mapping[str, Any]) -> Exception:
    """The exception for a refusal of the host."""
    name = fields.get("error")
    kind = getattr(builtins, name) if name in _ERRORS else OSError
    error = cast("Exception", kind(str(fields.get("message", "refused"))))
    if isinstance(error, OSError):  # as with two arguments, but without "[Errno 2]" in its text
        error.errno = _ERRORS.get(str(name)) or errno.EIO
    return error


class WorkspaceFiles:
    """``open``, ``read_text`` and ``write_text`` over the host's files, and their metadata.

    Args:
        ask: Asks the host.
        write_bytes: The longest write that the host accepts.
    """

    def __init__(self, ask: Ask, *, write_bytes: int) -> None:
        self._ask = ask
        self._write_bytes = write_bytes
        self._unsent: list[_File] = []

    def read_text(self, path: str) -> str:
        """The content of a text file, with its line endings unchanged."""
        return self._read(path).decode("utf-8")

    def write_text(self, path: str, text: str) -> int:
        """Create a file or replace its content; returns the number of characters written."""
        if not isinstance(cast("object", text), str):
            raise TypeError(f"the text to write is a {type(text).__name__}, not a str")
        self._write(path, text.encode("utf-8"), "overwrite")
        return len(text)

    def open(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: object = None,
    ) -> io.BytesIO | TextIO:
        """A file as a stream. *mode* is one of ``r w x a``, with ``b`` for bytes and ``+``."""
        del buffering, closefd, opener
        letters = mode.replace("t", "", 1)
        is_binary = "b" in letters
        is_both = "+" in letters
        kind = letters.replace("b", "", 1).replace("+", "", 1)
        if kind not in _MODES:
            raise ValueError(f"mode {mode!r}: use 'r', 'w', 'x' or 'a', with 'b' and '+' if needed")
        data = self._opened(file, kind, is_both=is_both)
        if is_binary:
            return data
        encoding = "utf-8" if encoding in (None, "locale") else encoding
        return io.TextIOWrapper(data, encoding, errors, newline, write_through=True)

    def send_all(self) -> None:
        """Send what was written to streams that the code did not close."""
        for stream in tuple(self._unsent):
            stream.flush()

    def stat(self, path: Any) -> tuple[str, int, bool]:
        """``file`` or ``directory``, the size in bytes, and whether *path* is executable."""
        kind, size_bytes, executable = json.loads(self._ask("stat", {"path": _text(path)}))
        return kind, size_bytes, executable

    def list(self, path: Any) -> list[tuple[str, str, int, bool]]:
        """The entries of a directory: the name of each, and the fields of its ``stat``."""
        return [tuple(row) for row in json.loads(self._ask("list", {"path": _text(path)}))]

    def mkdir(self, path: Any) -> None:
        """Make a directory, which must be one above a declared write."""
        self._ask("mkdir", {"path": _text(path)})

    def _opened(self, path: Any, kind: str, *, is_both: bool) -> _File:
        write_mode = _MODES[kind]
        if write_mode is None and not is_both:
            return _File(path, self._read(path))
        data = b""
        if kind == "r":
            data = self._read(path)
        elif kind == "a" and is_both:
            with contextlib.suppress(FileNotFoundError):
                data = self._read(path)
        if write_mode is not None:
            self._write(path, b"", write_mode)  # open creates or truncates the file at once

        def send(changed: bytes) -> None:
            # The whole content each time; when appending, only the new part
            self._write(path, changed, "append" if kind == "a" else "overwrite")

        stream = _File(path, data, send, reads=is_both, appends=kind == "a")
        self._unsent.append(stream)
        return stream

    def _read(self, path: Any) -> bytes:
        return self._ask("read", {"path": _text(path)})

    def _write(self, path: Any, data: bytes, mode: str) -> None:
        if len(data) > self._write_bytes:
            raise OSError(
                f"cannot write {len(data):,} bytes to {path}: at most {self._write_bytes:,} at once"
            )
        self._ask("write", {"path": _text(path), "mode": mode}, data)


def _text(path: object) -> str:
    """*path* as the host gets it: relative to ``HOME``, without ``..`` if that stays inside."""
    if not isinstance(path, str | bytes | os.PathLike):
        raise TypeError(f"a path is a str, bytes or os.PathLike, not a {type(path).__name__}")
    text = os.fsdecode(cast("str | bytes | os.PathLike[str]", path))
    if ".." in text.split("/"):
        text = posixpath.normpath(text)
    return text.removeprefix(f"{HOME}/") if text != HOME else "."


class _File(io.BytesIO):
    """A file's bytes. Those of a stream for writing are sent when it is flushed or closed."""

    def __init__(
        self,
        path: object,
        data: bytes,
        send: Callable[[bytes], None] | None = None,
        *,
        reads: bool = True,
        appends: bool = False,
    ) -> None:
        super().__init__(data)
        self.name = path
        self._send = send
        self._sent = data
        self._reads = reads
        self._appends = appends
        if appends:
            self.seek(0, io.SEEK_END)

    def readable(self) -> bool:
        return self._reads

    def writable(self) -> bool:
        return self._send is not None

    def write(self, data: Any, /) -> int:
        if self._send is None:
            raise io.UnsupportedOperation("not writable")
        if self._appends:
            self.seek(0, io.SEEK_END)
        return super().write(data)

    def writelines(self, lines: Any, /) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if self.closed or self._send is None:
            return
        data = self.getvalue()
        if data != self._sent:
            new, self._sent = data[len(self._sent) :] if self._appends else data, data
            self._send(new)

    def close(self) -> None:
        if not self.closed:
            self.flush()
        super().close()
