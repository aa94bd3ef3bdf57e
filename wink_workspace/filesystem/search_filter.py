"""Says which files cannot match a search, so that a search uses more than one processor.

A program of its own, because threads of one interpreter take turns. It is started as
``python -I -S search_filter.py FD``; FD is one end of a ``SOCK_SEQPACKET`` pair. It ends when the
other end is closed. It knows no paths: it opens names in the directories that it is given.

The first packet is a JSON object: ``literals`` are texts of which each match has one; ``pattern``
is an expression that matches a whole text if it matches one of its lines, or ``null``; ``library``
is the directory that has the ``regex`` package; ``timeout_s`` limits one search with it;
``open_flags`` are those for opening a file.

Every other packet has descriptors of directories and, for each, names of files in it, separated by
NUL; two NUL characters separate directories. The answer has one byte for each file: ``NO_MATCH``,
or ``LOOK`` for all others, also for those that cannot be read.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

HEAD_BYTES = 65_536
"""How much of a file is read first."""
MAX_DIRECTORIES = 64
MAX_PACKET_BYTES = 131_072
NO_MATCH, LOOK = 0, 1

_Search = Callable[[str], bool]


def cannot_match(head: bytes, literals: Sequence[bytes], search: _Search | None) -> bool:
    """Whether a file with this *head* is text without a matching line; ``True`` is certain.

    Args:
        head: The first ``HEAD_BYTES``; a shorter one is the whole content.
        literals: Each match has at least one of them; empty if they are not known.
        search: Whether an expression matches anywhere in a text. ``None`` if it may match a line
            without matching a text with that line.
    """
    if len(head) >= HEAD_BYTES or b"\0" in head:
        return False
    may_match = not literals
    for literal in literals:
        if literal in head:
            may_match = True
            break
    if not head.isascii():
        return not may_match and _is_utf_8(head)
    if not may_match:
        return True
    return search is not None and b"\r" not in head and not search(head.decode("ascii"))


def _is_utf_8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


class _Filter:
    """What the first packet asked for."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._literals = [literal.encode() for literal in settings["literals"]]
        self._pattern = settings["pattern"]
        self._library = settings["library"]
        self._timeout_s = settings["timeout_s"]
        self._open_flags = settings["open_flags"]
        self._search: _Search | None = None if self._pattern is None else self._search_first

    def _search_first(self, text: str) -> bool:
        """Load the library when it is first needed: that takes 20 ms."""
        sys.path.append(self._library)
        import regex

        compiled = regex.compile(self._pattern, regex.MULTILINE)

        def search(text: str) -> bool:
            return compiled.search(text, timeout=self._timeout_s) is not None

        self._search = search
        return search(text)

    def answer(self, name: bytes, directory: int) -> int:
        """``NO_MATCH`` or ``LOOK`` for a file."""
        try:
            file = os.open(name, self._open_flags, dir_fd=directory)
            try:
                head = os.pread(file, HEAD_BYTES, 0)
            finally:
                os.close(file)
            return NO_MATCH if cannot_match(head, self._literals, self._search) else LOOK
        except (OSError, TimeoutError):
            return LOOK


def main() -> None:
    """Answer until the other end is closed."""
    flags = socket.MSG_CMSG_CLOEXEC
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        asked = _Filter(json.loads(channel.recv(MAX_PACKET_BYTES)))
        while True:
            packet, opened, *_ = socket.recv_fds(channel, MAX_PACKET_BYTES, MAX_DIRECTORIES, flags)
            if not packet:
                return
            answers = bytearray()
            for directory, names in zip(opened, packet.split(b"\0\0"), strict=True):
                answers += bytes([asked.answer(name, directory) for name in names.split(b"\0")])
                os.close(directory)
            channel.send(answers)


if __name__ == "__main__":
    main()
