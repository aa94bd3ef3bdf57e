"""What is kept of a command's output while it comes: a head, a tail, and the whole in a file.

The file lies outside of the workspace, so that it is also there for whoever comes after a
crash; ``last_words`` reads it then. It is gone once the command has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from wink_workspace.sandbox.protocol import CapturedOutput, OutputObserver, StreamName

__all__ = ["Capture", "Publish", "last_words"]

Publish = Callable[[StreamName, Path], str]
"""Puts a finished file where a model can read it; the path in the workspace."""

_STREAMS: Final[tuple[StreamName, ...]] = ("stdout", "stderr")
_LAST_BYTES: Final = 4_096


class Capture:
    """The output of one command.

    Args:
        limit_bytes: What a result holds of each stream.
        file_bytes: What the file of each stream holds: its beginning.
        folder: Where the files are; ``None`` for none.
        observer: Told of each piece.
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
        """Take a piece."""
        self.n_bytes += len(data)
        self._kept[stream].add(data)
        if self._observer is not None:
            self._observer(stream, data)

    def finished(self, publish: Publish | None) -> tuple[CapturedOutput, CapturedOutput]:
        """What was kept of both streams; what a result does not hold is published whole."""
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
    def __init__(self, limit_bytes: int, file_bytes: int, place: Path | None) -> None:
        self.n_bytes = 0
        self._head = bytearray()
        self._tail = bytearray()
        self._n_head = (limit_bytes + 1) // 2
        self._n_tail = limit_bytes // 2
        self._file_left = file_bytes
        self._place = place
        self._file: BinaryIO | None = None
        if place is not None:
            place.unlink(missing_ok=True)

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
        return self._place

    def discard(self) -> None:
        if self._file is not None and self._place is not None:
            self._file.close()
            self._place.unlink(missing_ok=True)

    def _store(self, data: bytes) -> None:
        if self._place is None or not self._file_left:
            return
        if self._file is None:
            self._file = self._place.open("wb", buffering=0)
        piece = data[: self._file_left]
        self._file_left -= len(piece)
        self._file.write(piece)

    def _trim(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._n_tail)]


def last_words(folder: Path) -> str:
    """What a command had written last when its owner was killed; ``""`` if there was none."""
    said: list[str] = []
    for name in _STREAMS:
        with suppress(OSError), (folder / name).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _LAST_BYTES))
            text = file.read(_LAST_BYTES).decode("utf-8", "replace").strip()
            if text:
                said.append(f"{name}: {text}")
    return "\n".join(said)
