"""Git's format for binary content in a patch: deflated, in base 85, whole or as a delta.

Rule 1: the sizes stated in a patch are checked, and nothing is inflated beyond them.
Rule 2: every error is a ``ValueError`` without the position, which the caller adds.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterable, Iterator
from functools import partial

git_hash = partial(hashlib.sha1, usedforsecurity=False)
"""The hash of git's object ids, and of the trailers of packs and their indexes."""

_LINE_BYTES = 52
_BATCH_BYTES = 1_024 * _LINE_BYTES
_LENGTHS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def object_header(kind: str, size_bytes: int) -> bytes:
    """The header that git hashes before the content of an object."""
    return b"%b %d\0" % (kind.encode(), size_bytes)


def blob_id(data: bytes, *, n_digits: int = 40) -> str:
    """Git's object id of a blob: SHA-1, or SHA-256 if ids have 64 digits."""
    algorithm = hashlib.sha256 if n_digits == 64 else hashlib.sha1
    digest = algorithm(b"blob %d\0" % len(data), usedforsecurity=False)
    digest.update(data)
    return digest.hexdigest()


def encode_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines of base 85, each with its length in front, in batches; the content is deflated.

    Memory holds no more than one of *chunks*.
    """
    compressor = zlib.compressobj()
    packed = b""
    for chunk in chunks:
        packed += compressor.compress(chunk)
        n_whole = len(packed) - len(packed) % _LINE_BYTES
        yield from _encoded(packed[:n_whole])
        packed = packed[n_whole:]
    packed += compressor.flush()
    yield from _encoded(packed)


def _encoded(packed: bytes) -> Iterator[bytes]:
    """Lines of base 85 in batches; only the last line may be shorter."""
    for start in range(0, len(packed), _BATCH_BYTES):
        batch = packed[start : start + _BATCH_BYTES]
        digits = base64.b85encode(batch, pad=True)
        yield b"".join(
            b"%c%b\n"
            % (
                _LENGTHS[min(_LINE_BYTES, len(batch) - at) - 1],
                digits[at // 4 * 5 : (at + _LINE_BYTES) // 4 * 5],
            )
            for at in range(0, len(batch), _LINE_BYTES)
        )


def decode_lines(lines: Iterable[bytes]) -> bytes:
    """The deflated content of lines that ``encode_lines`` made.

    Raises:
        ValueError: If a line is not base 85, or has another length than it states.
    """
    return b"".join(map(_decode_line, lines))


def _decode_line(line: bytes) -> bytes:
    n_bytes = _LENGTHS.find(line[:1]) + 1
    if not n_bytes or (len(line) - 1) != -(-n_bytes // 4) * 5:
        raise ValueError("a line of binary data has the wrong length")
    try:
        return base64.b85decode(line[1:])[:n_bytes]
    except ValueError:
        raise ValueError("a line of binary data is not base 85") from None


def inflate(packed: bytes, n_bytes: int) -> bytes:
    """The *n_bytes* of content that were deflated to *packed*.

    Raises:
        ValueError: If the content has another size, or *packed* is damaged.
    """
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(packed, n_bytes + 1)
    except zlib.error:
        raise ValueError("the binary data is damaged") from None
    if len(data) != n_bytes or not inflater.eof or inflater.unused_data:
        raise ValueError(f"the binary data does not inflate to the stated {n_bytes} bytes")
    return data


def apply_delta(delta: bytes, source: bytes, *, max_bytes: int) -> bytes:
    """*source* with *delta* applied; see "Deltified representation" in git's pack format.

    Raises:
        ValueError: If the delta is for content of another size, is damaged, or makes more
            than *max_bytes*.
    """
    n_source, n_result = delta_sizes(delta)
    if n_source != len(source):
        raise ValueError(f"it was made for {n_source} bytes of content, not {len(source)}")
    if n_result > max_bytes:
        raise ValueError(f"it makes {n_result} bytes of content, at most {max_bytes} allowed")
    pieces: list[bytes] = []
    n_made = 0
    for part in delta_instructions(delta):
        if isinstance(part, bytes):
            piece = part
        else:
            offset, n_bytes = part
            piece = source[offset : offset + n_bytes]
            if len(piece) != n_bytes:
                raise ValueError("the binary delta is damaged")
        pieces.append(piece)
        n_made += len(piece)
        if n_made > n_result:
            break
    if n_made != n_result:
        raise ValueError("the binary delta is damaged")
    return b"".join(pieces)


def delta_sizes(delta: bytes) -> tuple[int, int]:
    """The sizes of the content before and after a delta, which it states; raises ``ValueError``."""
    before, at = _read_size(delta, 0)
    return before, _read_size(delta, at)[0]


def delta_instructions(delta: bytes) -> Iterator[tuple[int, int] | bytes]:
    """The parts of the result: a range of the source, as offset and size, or the bytes themselves.

    Raises:
        ValueError: If the delta is damaged.
    """
    _, at = _read_size(delta, 0)
    _, at = _read_size(delta, at)
    while at < len(delta):
        instruction = delta[at]
        at += 1
        if instruction < 0x80:
            piece = delta[at : at + instruction]
            if not instruction or len(piece) != instruction:
                raise ValueError("the binary delta is damaged")
            yield piece
            at += instruction
        else:
            numbers = bytearray(7)
            for bit in range(7):
                if instruction >> bit & 1:
                    numbers[bit] = delta[at] if at < len(delta) else 0
                    at += 1
            size = int.from_bytes(numbers[4:], "little") or 0x10000
            yield int.from_bytes(numbers[:4], "little"), size


def _read_size(delta: bytes, at: int) -> tuple[int, int]:
    size = shift = 0
    for byte in delta[at : at + 9]:
        size |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if byte < 0x80:
            return size, at
    raise ValueError("the binary delta is damaged")
