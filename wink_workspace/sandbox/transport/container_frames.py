"""Messages between host and container: framing with limits and checks. It does no input or output.

A frame is a kind (one byte), the number of its command and the length of its payload (four bytes
each, big-endian), then the payload. The engine wraps the container's frames in its own, which
separate standard output from standard error.

::

    container:  READY  (OUTPUT | ERRORS | TAKEN)*  (ENDED | REFUSED)   for each command
    host:       RUN or PYTHON, INPUT*, then perhaps KILL

The input of an interactive command comes while it runs: the host sends a piece, and the next one
after TAKEN; an empty one is the end. RESIZE changes the size of its terminal.

With a network allow-list, the connections of a command to its proxy are carried as frames between
these, in both directions; the module ``network.channels`` has their grammar.

The container's side is hostile. A frame of an unknown kind, longer than ``MOST_PAYLOAD_BYTES``,
with another number than the present command's, or not next in this grammar raises ``FrameError``,
and the caller ends the container. The parser holds at most one frame and the data last fed to it.

The runner in the container has a copy of the constants, because it is a single file that imports
nothing of this package.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from wink_workspace.errors import SandboxError

PROTOCOL_VERSION: Final = 4
MOST_PAYLOAD_BYTES: Final = 65_536
COMPILED: Final = "# compiled\n"
"""The first line of a program that an interpreter of the same version has compiled."""

_HEADER: Final = struct.Struct("!BII")
_ENGINE_HEADER: Final = struct.Struct("!BxxxI")
_MOST_ENGINE_BYTES: Final = 1_048_576
_LENGTH: Final = struct.Struct("!I")


class FrameError(SandboxError):
    """Bytes from the container that are not a valid frame, or not an allowed one at this point."""

    code = "sandbox-frame"


class Kind(IntEnum):
    """The kind of a frame: from 1 those of the host, from 64 those of the container."""

    RUN = 1
    PYTHON = 2
    INPUT = 3
    KILL = 4
    TO_CONNECTION = 5
    END_CONNECTION = 6
    ACK_CONNECTION = 7
    DROP_CONNECTION = 8
    RESIZE = 9
    READY = 64
    OUTPUT = 65
    ERRORS = 66
    ENDED = 67
    REFUSED = 68
    CONNECTION = 69
    FROM_CONNECTION = 70
    CONNECTION_ENDED = 71
    CONNECTION_ACKED = 72
    CONNECTION_CLOSED = 73
    TAKEN = 74


_FROM_CONTAINER: Final = frozenset(kind for kind in Kind if kind >= Kind.READY)


class Frame(NamedTuple):
    """One frame, about the command *number*."""

    kind: Kind
    number: int
    payload: bytes


def packed(kind: Kind, number: int, payload: bytes = b"") -> bytes:
    """A frame as bytes."""
    return _HEADER.pack(kind, number, len(payload)) + payload


def joined_fields(parts: Iterable[bytes]) -> bytes:
    """Several byte strings as one."""
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def fields(payload: bytes) -> list[bytes]:
    """The byte strings that ``joined_fields`` joined.

    Raises:
        FrameError: If *payload* is not in that format.
    """
    found: list[bytes] = []
    at = 0
    while at < len(payload):
        if at + _LENGTH.size > len(payload):
            raise FrameError("a field has no length")
        (length,) = _LENGTH.unpack_from(payload, at)
        at += _LENGTH.size
        if at + length > len(payload):
            raise FrameError("a field is cut off")
        found.append(payload[at : at + length])
        at += length
    return found


def request_payload(
    *,
    cwd: str,
    env: Mapping[str, str],
    stdin_bytes: int,
    merge_stderr: bool,
    terminal: bool = False,
    size: tuple[int, int] | None = None,
    arguments: Iterable[bytes],
) -> bytes:
    """The payload of a RUN or PYTHON frame.

    Args:
        cwd: The working directory, an absolute path in the container.
        env: All environment variables.
        stdin_bytes: The length of the input, which follows in INPUT frames.
        merge_stderr: Whether standard error goes to standard output.
        terminal: Whether both go to a terminal, whose output is the standard output.
        size: Of an interactive one, whose input comes while it runs: the lines and columns of its
            terminal. A program may write back the size that it had at its start.
        arguments: The program and its arguments, or the code.
    """
    variables = [
        f"{name}={value}".encode("utf-8", "surrogateescape") for name, value in env.items()
    ]
    return joined_fields(
        (
            cwd.encode("utf-8", "surrogateescape"),
            joined_fields(variables),
            str(stdin_bytes).encode(),
            " ".join(map(str, (merge_stderr | 2 * terminal, *(size or ())))).encode(),
            *arguments,
        )
    )


class FrameParser:
    """Parses the container's bytes into frames."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that *data* completes. Exhaust the iterator before the next call.

        Raises:
            FrameError: At the first byte that cannot belong to a container's frame.
        """
        self._rest += data
        at = 0
        try:
            while len(self._rest) - at >= _HEADER.size:
                kind, number, length = _HEADER.unpack_from(self._rest, at)
                if kind not in _FROM_CONTAINER:
                    raise FrameError(f"the sandbox sent a frame of the unknown kind {kind}")
                if length > MOST_PAYLOAD_BYTES:
                    raise FrameError(f"the sandbox sent a frame of {length} bytes")
                end = at + _HEADER.size + length
                if end > len(self._rest):
                    return
                payload = bytes(self._rest[at + _HEADER.size : end])
                at = end
                yield Frame(Kind(kind), number, payload)
        finally:
            del self._rest[:at]


class EngineParser:
    """Separates the two streams of an attached container, which the engine interleaves.

    The engine is trusted, but a piece that is too long is refused.
    """

    def __init__(self) -> None:
        self._header = b""
        self._stream = 0
        self._left = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The pieces of *data*, each with its stream: 1 is standard output, 2 is standard error.

        Raises:
            FrameError: If a stream is neither, or a piece is too long.
        """
        at = 0
        while at < len(data):
            if not self._left:
                part = data[at : at + _ENGINE_HEADER.size - len(self._header)]
                self._header += part
                at += len(part)
                if len(self._header) < _ENGINE_HEADER.size:
                    return
                self._stream, self._left = _ENGINE_HEADER.unpack(self._header)
                self._header = b""
                if self._stream not in (1, 2) or self._left > _MOST_ENGINE_BYTES:
                    raise FrameError(f"the engine sent {self._left} bytes of stream {self._stream}")
                continue
            piece = data[at : at + self._left]
            at += len(piece)
            self._left -= len(piece)
            yield self._stream, piece
