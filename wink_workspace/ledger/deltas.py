"""Deltas of git's packs: how one content is made from a similar one (gitformat-pack).

``delta_between`` finds what two versions of a file or a tree usually have in common: their
beginning, their end and, for equal sizes, blocks in between. It compares memory and hashes nothing.
"""

from __future__ import annotations

from typing import Final

__all__ = ["delta_between", "delta_sizes"]

_MAX_COPY: Final = 0xFF_FFFF
_MAX_INSERT: Final = 127
_MAX_OFFSET: Final = 0xFFFF_FFFF


def delta_between(base: bytes, content: bytes) -> bytes:
    """The delta that makes *content* from *base*."""
    shorter = min(len(base), len(content))
    prefix = _common_prefix(base, content, shorter)
    suffix = _common_suffix(base, content, shorter - prefix)
    delta = bytearray(_varint(len(base)) + _varint(len(content)))
    _append_copy(delta, 0, prefix)
    _append_insert(delta, content[prefix : len(content) - suffix])
    _append_copy(delta, len(base) - suffix, suffix)
    return bytes(delta)


def delta_sizes(delta: bytes) -> tuple[int, int]:
    """The sizes of the base and of the result that a delta states."""
    at, sizes = 0, [0, 0]
    for n in range(2):
        shift = 0
        while True:
            byte = delta[at]
            sizes[n] |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                break
    return sizes[0], sizes[1]


def _common_prefix(one: bytes, other: bytes, most: int) -> int:
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _common_suffix(one: bytes, other: bytes, most: int) -> int:
    low, high, end, other_end = 0, most, len(one), len(other)
    while low < high:
        middle = (low + high + 1) // 2
        if one[end - middle : end - low] == other[other_end - middle : other_end - low]:
            low = middle
        else:
            high = middle - 1
    return low


def _append_copy(delta: bytearray, offset: int, size_bytes: int) -> None:
    """Append instructions to copy a range of the base."""
    while size_bytes:
        size = min(size_bytes, _MAX_COPY)
        operands = [
            (bit, number >> shift & 255)
            for number, first, n_bytes in ((offset, 1, 4), (size, 16, 3))
            for bit, shift in ((first << n, 8 * n) for n in range(n_bytes))
        ]
        delta += bytes([0x80 | sum([bit for bit, byte in operands if byte])])
        delta += bytes([byte for _, byte in operands if byte])
        offset, size_bytes = offset + size, size_bytes - size


def _append_insert(delta: bytearray, content: bytes) -> None:
    """Append instructions to insert *content*."""
    for start in range(0, len(content), _MAX_INSERT):
        part = content[start : start + _MAX_INSERT]
        delta.append(len(part))
        delta += part


def _varint(number: int) -> bytes:
    groups = bytearray()
    while number > 127:
        groups += b"%c" % (number & 127 | 128)
        number >>= 7
    groups += b"%c" % number
    return bytes(groups)
