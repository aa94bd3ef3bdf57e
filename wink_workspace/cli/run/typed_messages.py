"""What the user types while a run works: each line is a message, sent at the model's next turn.

Rule 1: the terminal does not echo meanwhile, because lines on the screen change; the live area
shows what is typed. Its settings are restored at the end of the block, before anything is asked.
Rule 2: only a terminal in the foreground is read. Ctrl-C keeps its meaning.
"""

from __future__ import annotations

import codecs
import os
import re
import select
import sys
import termios
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

_KEYS: Final = re.compile("\x1b(?:[\\[O][0-9;]*[A-Za-z~]|.)?")
_ERASE, _ERASE_ALL, _ENTER = "\x7f\b", "\x15", "\r\n"
_READ_BYTES: Final = 4_096
_WAIT_S: Final = 0.1


class TypedMessages:
    """The lines that were typed, and the one that is being typed.

    Attributes:
        line: What was typed since the last Enter.
        queued: Lines that the model has not got yet, oldest first.
    """

    def __init__(self) -> None:
        self.line = ""
        self.queued: list[str] = []

    def take(self) -> list[str]:
        """The queued lines, which are no longer queued."""
        n = len(self.queued)
        taken, self.queued[:n] = self.queued[:n], []
        return taken

    def type(self, text: str) -> None:
        """Add what was typed."""
        for char in _KEYS.sub("", text):
            if char in _ENTER:
                self.queued += [self.line.strip()] if self.line.strip() else []
                self.line = ""
            elif char in _ERASE:
                self.line = self.line[:-1]
            elif char == _ERASE_ALL:
                self.line = ""
            elif char.isprintable():
                self.line += char

    @contextmanager
    def reading(self) -> Generator[None]:
        """Read the terminal while the block runs."""
        descriptor = sys.stdin.fileno()
        if not _is_in_foreground(descriptor):
            yield
            return
        before = termios.tcgetattr(descriptor)
        silent = list(before)
        silent[3] &= ~(termios.ICANON | termios.ECHO)
        ended = threading.Event()
        reader = threading.Thread(target=self._read, args=(descriptor, ended), daemon=True)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, silent)
        try:
            reader.start()
            yield
        finally:
            ended.set()
            reader.join()
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)

    def _read(self, descriptor: int, ended: threading.Event) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while not ended.is_set():
            if not select.select([descriptor], [], [], _WAIT_S)[0]:
                continue
            try:
                data = os.read(descriptor, _READ_BYTES)
            except OSError:  # the terminal is gone
                return
            if not data:
                return
            self.type(decoder.decode(data))


def _is_in_foreground(descriptor: int) -> bool:
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:  # it is not the terminal that controls this process
        return False
