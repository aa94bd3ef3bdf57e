"""Messages on the pipe between host and child: frames of a small JSON header and a binary body.

Rule 1: lengths come first, and are checked before anything else is read or stored.
Rule 2: a header is a JSON object without NaN and infinities; anything else is a ``PipeFrameError``.
Our own code in a child never sends an invalid frame, so the host then ends the child.
Rule 3: ``kind`` says what a frame means. The receiver checks every field that it uses.

A frame is two big-endian 32-bit lengths, then the header, then the body.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

SIZES: Final = struct.Struct(">II")
_HEADER_BYTES_MAX: Final = 4 * 1_048_576


class PipeFrameError(Exception):
    """The data received is not a valid frame."""


@dataclass(frozen=True, slots=True)
class PipeFrame:
    """One message: its kind, its fields, and its body."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    body: bytes = b""

    @classmethod
    def parse(cls, header: bytes, body: bytes) -> PipeFrame:
        """The frame with this *header* and *body*.

        Raises:
            PipeFrameError: If *header* is not a JSON object with a string as ``kind``.
        """
        try:
            fields: object = json.loads(header, parse_constant=_refuse_number, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            raise PipeFrameError(f"its header is not JSON ({error})") from error
        if not isinstance(fields, dict):
            raise PipeFrameError("its header is not an object")
        known = cast("dict[str, object]", fields)
        kind = known.get("kind")
        if not isinstance(kind, str):
            raise PipeFrameError("its header has no kind")
        return cls(kind, known, body)


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_number(text)  # 1e999 is valid JSON


def _refuse_number(text: str) -> float:
    raise ValueError(f"{text} is not a finite number")


def encode_frame(kind: str, fields: Mapping[str, object] | None = None, body: bytes = b"") -> bytes:
    """The bytes of a frame.

    Raises:
        ValueError, TypeError, RecursionError: If *fields* cannot be represented in JSON.
        PipeFrameError: If the header is longer than 4 MiB.
    """
    header = json.dumps({"kind": kind, **(fields or {})}, allow_nan=False).encode("ascii")
    if len(header) > _HEADER_BYTES_MAX:
        raise PipeFrameError(
            f"its header has {len(header)} bytes, at most {_HEADER_BYTES_MAX} are allowed"
        )
    return SIZES.pack(len(header), len(body)) + header + body


def frame_sizes(prefix: bytes, *, body_bytes_max: int) -> tuple[int, int]:
    """The lengths of header and body in the *prefix* of a frame.

    Raises:
        PipeFrameError: If one of them is above its limit.
    """
    header_bytes, body_bytes = SIZES.unpack(prefix)
    if header_bytes > _HEADER_BYTES_MAX or body_bytes > body_bytes_max:
        raise PipeFrameError(f"its lengths, {header_bytes} and {body_bytes} bytes, are too large")
    return header_bytes, body_bytes
