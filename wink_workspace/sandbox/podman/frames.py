"""What host and container say to one another, as bytes: one framing, bounded and checked.

A frame is a kind (one byte), the number of the command it is about and the length of its
payload (four bytes each, big-endian), then the payload. The container's frames come wrapped in
those of the engine, which tell its standard output from its standard error.

::

    container:  READY  (OUTPUT | ERRORS)*  (ENDED | REFUSED)   for each command
    host:       RUN or PYTHON, INPUT*, then perhaps KILL

No input or output happens here. The container's side is hostile: a frame of an unknown kind,
one longer than ``MOST_PAYLOAD_BYTES``, one with a number other than that of the present
command, or one that is not the next in this grammar raises ``FrameError``, and whoever reads
it ends the container. The parser never holds more than one frame and what it was last fed.

The runner inside has the same constants, as it is a single file that imports nothing of ours.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from wink_workspace.errors import SandboxError

__all__ = [
    "MOST_PAYLOAD_BYTES",
    "PROTOCOL_VERSION",
    "EngineParser",
    "Frame",
    "FrameError",
    "FrameParser",
    "Kind",
    "fields",
    "joined_fields",
    "packed",
    "request_payload",
]

PROTOCOL_VERSION: Final = 2
MOST_PAYLOAD_BYTES: Final = 65_536

_HEADER: Final = struct.Struct("!BII")
_ENGINE_HEADER: Final = struct.Struct("!BxxxI")
_MOST_ENGINE_BYTES: Final = 1_048_576
_LENGTH: Final = struct.Struct("!I")


class FrameError(SandboxError):
    """Bytes from the container that are no frame, or not one that may come now."""

    code = "sandbox-frame"


class Kind(IntEnum):
    """What a frame says; those of the host from 1, those of the container from 64."""

    RUN = 1
    PYTHON = 2
    INPUT = 3
    KILL = 4
    READY = 64
    OUTPUT = 65
    ERRORS = 66
    ENDED = 67
    REFUSED = 68


_FROM_CONTAINER: Final = frozenset(kind for kind in Kind if kind >= Kind.READY)


@dataclass(frozen=True, slots=True)
class Frame:
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
    """What ``joined_fields`` joined.

    Raises:
        FrameError: If it did not.
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
    arguments: Iterable[bytes],
) -> bytes:
    """What a RUN or PYTHON frame holds.

    Args:
        cwd: The directory, as an absolute path of the container.
        env: All variables.
        stdin_bytes: The length of the input, which follows in INPUT frames.
        merge_stderr: Whether standard error goes to standard output.
        arguments: Of the program, or the code.
    """
    variables = [
        f"{name}={value}".encode("utf-8", "surrogateescape") for name, value in env.items()
    ]
    return joined_fields(
        (
            cwd.encode("utf-8", "surrogateescape"),
            joined_fields(variables),
            str(stdin_bytes).encode(),
            b"1" if merge_stderr else b"0",
            *arguments,
        )
    )


class FrameParser:
    """Takes the container's bytes as they come, and gives the frames that they make."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that *data* completes; to be used up before the next call.

        Raises:
            FrameError: At the first byte that cannot belong to a frame of a container.
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
    """Takes what the engine sends of an attached container: its two streams, interleaved.

    The engine is trusted; what it sends too much of is refused all the same.
    """

    def __init__(self) -> None:
        self._header = b""
        self._stream = 0
        self._left = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The pieces of *data*, each with its stream: 1 is standard output, 2 standard error.

        Raises:
            FrameError: If it is neither, or a piece is too long.
        """
        at = 0
        while at < len(data):
            if not self._left:
                taken = data[at : at + _ENGINE_HEADER.size - len(self._header)]
                self._header += taken
                at += len(taken)
                if len(self._header) < _ENGINE_HEADER.size:
                    return
                self._stream, self._left = _ENGINE_HEADER.unpack(self._header)
                self._header = b""
                if self._stream not in (1, 2) or self._left > _MOST_ENGINE_BYTES:
                    raise FrameError(f"the engine sent {self._left} bytes of {self._stream}")
                continue
            piece = data[at : at + self._left]
            at += len(piece)
            self._left -= len(piece)
            yield self._stream, piece
