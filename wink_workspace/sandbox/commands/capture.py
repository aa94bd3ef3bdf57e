"""Capture of a command's output: a head and a tail in memory, and the whole stream in a file.

The file is outside of the workspace. After a crash, the next process that opens the workspace
reads the end of it with ``last_output``. It is deleted when the command has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from wink_workspace.sandbox.sandbox_protocol import CapturedOutput, OutputObserver, StreamName

Publish = Callable[[StreamName, Path], str]
"""Stores a finished file where a model can read it; returns its path in the workspace."""

_STREAMS: Final[tuple[StreamName, ...]] = ("stdout", "stderr")
_LAST_BYTES: Final = 4_096


class Capture:
    """The output of one command.

    Args:
        limit_bytes: How much of each stream a result contains.
        file_bytes: How much of each stream its file contains, from the beginning.
        folder: The directory of the files; ``None`` for no files.
        observer: Is called with each piece.
    """

    def __init__(
        self,
        *,
        limit_bytes: int,
        file_bytes: int,
        folder: Path | None,
        observer: OutputObserver | None,
    ) -> None:
        self._kept: Mapping[StreamName, _Stream] = {
            name: _Stream(limit_bytes, file_bytes, None if folder is None else folder / name)
            for name in _STREAMS
        }
        self._observer = observer
        self.n_bytes = 0

    def __call__(self, stream: StreamName, data: bytes) -> None:
        """Add a piece of output."""
        self.n_bytes += len(data)
        self._kept[stream].add(data)
        if self._observer is not None:
            self._observer(stream, data)

    def finished(self, publish: Publish | None) -> tuple[CapturedOutput, CapturedOutput]:
        """What was kept of both streams; a stream that was cut is published as a file."""
        out, errors = (self._finished(name, publish) for name in _STREAMS)
        return out, errors

    def discard(self) -> None:
        """Remove the files."""
        for stream in self._kept.values():
            stream.discard()

    def _finished(self, name: StreamName, publish: Publish | None) -> CapturedOutput:
        stream = self._kept[name]
        head, tail = stream.head_and_tail()
        whole, n_whole = None, 0
        file = stream.file()
        if file is not None and publish is not None and stream.is_cut:
            n_whole = file.stat().st_size
            whole = publish(name, file)
        return CapturedOutput(head, tail, stream.n_bytes, whole, n_whole)


class _Stream:
    def __init__(self, limit_bytes: int, file_bytes: int, path: Path | None) -> None:
        self.n_bytes = 0
        self._head = bytearray()
        self._tail = bytearray()
        self._n_head = (limit_bytes + 1) // 2
        self._n_tail = limit_bytes // 2
        self._file_left = file_bytes
        self._path = path
        self._file: BinaryIO | None = None
        if path is not None:
            path.unlink(missing_ok=True)

    @property
    def is_cut(self) -> bool:
        return self.n_bytes > self._n_head + self._n_tail

    def add(self, data: bytes) -> None:
        self.n_bytes += len(data)
        self._store(data)
        room = self._n_head - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._n_tail + 65_536:
            self._trim()

    def head_and_tail(self) -> tuple[bytes, bytes]:
        self._trim()
        return bytes(self._head), bytes(self._tail)

    def file(self) -> Path | None:
        """The file, closed; ``None`` if there is none."""
        if self._file is None:
            return None
        self._file.close()
        return self._path

    def discard(self) -> None:
        if self._file is not None and self._path is not None:
            self._file.close()
            self._path.unlink(missing_ok=True)

    def _store(self, data: bytes) -> None:
        if self._path is None or not self._file_left:
            return
        if self._file is None:
            self._file = self._path.open("wb", buffering=0)
        piece = data[: self._file_left]
        self._file_left -= len(piece)
        self._file.write(piece)

    def _trim(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._n_tail)]


def last_output(folder: Path) -> str:
    """The last output of a command whose owner was killed; ``""`` if there was none."""
    output: list[str] = []
    for name in _STREAMS:
        with suppress(OSError), (folder / name).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _LAST_BYTES))
            text = file.read(_LAST_BYTES).decode("utf-8", "replace").strip()
            if text:
                output.append(f"{name}: {text}")
    return "\n".join(output)
