"""A program of a sandbox with the standard streams of this process.

If all of them are a terminal, the program has one of its own, so it cannot type into ours. What is
typed here goes there byte by byte, with the size of the window.
"""

from __future__ import annotations

import os
import select
import struct
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from wink_workspace.sandbox.sandbox_protocol import StreamName
from wink_workspace.sandbox.transport.container_frames import MOST_PAYLOAD_BYTES, FrameError, Kind

_SIZE: Final = struct.Struct("HHHH")


class Interaction:
    """Passes on the input of this process, and writes the output of the program.

    Attributes:
        has_terminal: Whether all three streams are a terminal.
        size: Its lines and columns.
    """

    kinds = (Kind.TAKEN,)

    def __init__(self) -> None:
        self.has_terminal = all(os.isatty(fd) for fd in (0, 1, 2))
        self._may_send = True
        self.size = self._size()

    @contextmanager
    def terminal(self) -> Generator[None]:
        """A block in which the terminal passes on every key and echoes none."""
        if not self.has_terminal:
            yield
            return
        import termios
        import tty

        settings = termios.tcgetattr(0)
        try:
            tty.setraw(0, termios.TCSADRAIN)  # keeps what was typed early
            yield
        finally:
            termios.tcsetattr(0, termios.TCSADRAIN, settings)

    def fileno(self) -> int:
        """Standard input, while the program takes some."""
        return 0 if self._may_send else -1

    def receive(self, kind: Kind, payload: bytes) -> None:
        """The last piece was taken."""
        if self._may_send or payload:
            raise FrameError(f"an invalid {kind.name}")
        self._may_send = True

    def waiting(self) -> list[tuple[Kind, bytes]]:
        """The new size of the window, and what can be read now."""
        frames: list[tuple[Kind, bytes]] = []
        if (size := self._size()) != self.size:
            self.size = size
            frames.append((Kind.RESIZE, _SIZE.pack(*size, 0, 0)))
        if self._may_send and select.select([0], [], [], 0)[0]:
            self._may_send = False  # after an empty piece, the end, nothing is taken
            frames.append((Kind.INPUT, os.read(0, MOST_PAYLOAD_BYTES)))
        return frames

    def _size(self) -> tuple[int, int]:
        columns, lines = os.get_terminal_size(1) if self.has_terminal else (0, 0)
        return lines, columns

    def __call__(self, stream: StreamName, data: bytes) -> None:
        """Write output of the program."""
        left = memoryview(data)
        while left:
            left = left[os.write(1 if stream == "stdout" else 2, left) :]
