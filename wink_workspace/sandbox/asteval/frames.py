"""The pipe between host and child: frames of a small JSON header and a body of bytes.

Rule 1: sizes come first and are checked before anything is read or kept.
Rule 2: a header is a JSON object, without NaN and infinities; whatever else comes is
``FrameError``. The host ends a child that sends such a thing, since its own code never does.
Rule 3: what names a frame's meaning is ``kind``; who reads it checks every field that it uses.

A frame is two big-endian 32-bit lengths, then the header, then the body.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

__all__ = ["HEADER_BYTES_MAX", "SIZES", "Frame", "FrameError", "encode_frame", "frame_sizes"]

SIZES: Final = struct.Struct(">II")
HEADER_BYTES_MAX: Final = 4 * 1_048_576


class FrameError(Exception):
    """What came is no frame."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message: what it is, its fields, and the bytes that it carries."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    body: bytes = b""

    @classmethod
    def parse(cls, header: bytes, body: bytes) -> Frame:
        """The frame that *header* and *body* make.

        Raises:
            FrameError: If *header* is not a JSON object with a text as ``kind``.
        """
        try:
            fields: object = json.loads(header, parse_constant=_no_constant, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            raise FrameError(f"its header is no JSON ({error})") from error
        if not isinstance(fields, dict):
            raise FrameError("its header is no object")
        known = cast("dict[str, object]", fields)
        kind = known.get("kind")
        if not isinstance(kind, str):
            raise FrameError("its header names no kind")
        return cls(kind, known, body)


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_constant(text)  # 1e999 is written as JSON


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def encode_frame(kind: str, fields: Mapping[str, object] | None = None, body: bytes = b"") -> bytes:
    """A frame as it goes over the pipe.

    Raises:
        ValueError: If *fields* hold what JSON cannot; ``TypeError`` and ``RecursionError``, too.
        FrameError: If the header would be longer than anybody reads.
    """
    header = json.dumps({"kind": kind, **(fields or {})}, allow_nan=False).encode("ascii")
    if len(header) > HEADER_BYTES_MAX:
        raise FrameError(f"its header has {len(header)} bytes")
    return SIZES.pack(len(header), len(body)) + header + body


def frame_sizes(prefix: bytes, *, body_bytes_max: int) -> tuple[int, int]:
    """The lengths of header and body that a frame begins with.

    Raises:
        FrameError: If either is more than may come.
    """
    header_bytes, body_bytes = SIZES.unpack(prefix)
    if header_bytes > HEADER_BYTES_MAX or body_bytes > body_bytes_max:
        raise FrameError(f"it claims {header_bytes} and {body_bytes} bytes")
    return header_bytes, body_bytes
