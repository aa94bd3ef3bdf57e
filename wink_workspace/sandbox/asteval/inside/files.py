"""The workspace's files as the code sees them: every operation is a request to the host.

A file is fetched whole when it is opened for reading. A file opened for writing is sent whole when
it is flushed or closed, or at the end of the evaluation. The host decides what may be read and
written; its refusals are raised as the corresponding Python exceptions.
"""

from __future__ import annotations

import builtins
import io
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TextIO, cast

__all__ = ["Ask", "WorkspaceFiles"]

_MODES: Final = {"r": None, "w": "overwrite", "x": "create", "a": "append"}
_ERRORS: Final = (
    "FileNotFoundError",
    "FileExistsError",
    "IsADirectoryError",
    "NotADirectoryError",
    "PermissionError",
    "ValueError",
)


class Ask(Protocol):
    """Sends a request to the host and waits for the answer; raises the host's refusal."""

    def __call__(self, kind: str, fields: Mapping[str, object], body: bytes = b"") -> bytes:
        """The body of the answer."""
        ...


def refusal(fields: Mapping[str, Any]) -> Exception:
    """The exception for a refusal of the host."""
    name = fields.get("error")
    kind = getattr(builtins, name) if name in _ERRORS else OSError
    return cast("Exception", kind(str(fields.get("message", "refused"))))


class WorkspaceFiles:
    """``open``, ``read_text`` and ``write_text`` over the host's files.

    Args:
        ask: Asks the host.
        write_bytes: The longest write that the host accepts.
    """

    def __init__(self, ask: Ask, *, write_bytes: int) -> None:
        self._ask = ask
        self._write_bytes = write_bytes
        self._unsent: list[_SentBytes] = []

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
        file: str,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> io.BytesIO | TextIO:
        """A file as a stream. *mode* is one of ``r w x a``, with ``b`` for bytes."""
        del buffering
        letters = mode.replace("t", "", 1)
        is_binary = "b" in letters
        kind = letters.replace("b", "", 1)
        if kind not in _MODES:
            raise ValueError(f"mode {mode!r}: use 'r', 'w', 'x' or 'a', optionally with 'b'")
        write_mode = _MODES[kind]
        data: io.BytesIO
        if write_mode is None:
            data = io.BytesIO(self._read(file))
        else:
            data = self._sent_bytes(file, write_mode)
        if is_binary:
            return data
        return io.TextIOWrapper(data, encoding or "utf-8", errors, newline, write_through=True)

    def send_all(self) -> None:
        """Send what was written to streams that the code did not close."""
        for stream in tuple(self._unsent):
            stream.flush()

    def _sent_bytes(self, path: str, mode: str) -> _SentBytes:
        self._write(path, b"", mode)  # open creates or truncates the file at once

        def send(data: bytes) -> None:
            # The whole content each time; when appending, only the new part
            self._write(path, data, "append" if mode == "append" else "overwrite")

        stream = _SentBytes(send, sends_all=mode != "append")
        self._unsent.append(stream)
        return stream

    def _read(self, path: str) -> bytes:
        return self._ask("read", {"path": _text(path)})

    def _write(self, path: str, data: bytes, mode: str) -> None:
        if len(data) > self._write_bytes:
            raise OSError(
                f"cannot write {len(data):,} bytes to {path}: at most {self._write_bytes:,} at once"
            )
        self._ask("write", {"path": _text(path), "mode": mode}, data)


def _text(path: object) -> str:
    if not isinstance(path, str):
        raise TypeError(f"a path is a str, not a {type(path).__name__}")
    return path


class _SentBytes(io.BytesIO):
    """Bytes that are sent when they are flushed or closed."""

    def __init__(self, send: Callable[[bytes], None], *, sends_all: bool) -> None:
        super().__init__()
        self._send = send
        self._sends_all = sends_all
        self._n_sent = 0

    def readable(self) -> bool:
        return False

    def flush(self) -> None:
        if self.closed:
            return
        data = self.getvalue()
        new = data if self._sends_all else data[self._n_sent :]
        if len(data) != self._n_sent:
            self._n_sent = len(data)
            self._send(new)

    def close(self) -> None:
        if not self.closed:
            self.flush()
        super().close()
