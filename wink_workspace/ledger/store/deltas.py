"""Deltas of git's packs: how one content is made from a similar one (gitformat-pack).

``delta_between`` finds what two versions of a file or a tree usually have in common: their
beginning, their end and, for equal sizes, blocks in between. It compares memory and hashes nothing.
"""

from __future__ import annotations

from typing import Final

_MAX_COPY: Final = 0xFF_FFFF
_MAX_INSERT: Final = 127
_MAX_OFFSET: Final = 0xFFFF_FFFF


def delta_between(base: bytes, content: bytes) -> bytes:
    """The delta that makes *content* from *base*."""
    shorter = min(len(base), len(content))
    prefix = common_prefix(base, content, shorter)
    suffix = common_suffix(base, content, shorter - prefix)
    delta = DeltaBuilder(len(base), len(content))
    delta.copy(0, prefix)
    delta.insert(content[prefix : len(content) - suffix])
    delta.copy(len(base) - suffix, suffix)
    return delta.finished()


class DeltaBuilder:
    """A delta that is made from the beginning to the end.

    Args:
        base_bytes: The size of the base.
        size_bytes: The size of the result.
    """

    def __init__(self, base_bytes: int, size_bytes: int) -> None:
        self._delta = bytearray(_varint(base_bytes) + _varint(size_bytes))
        self._inserted = bytearray()
        self._offset = self._n_copied = 0

    def __len__(self) -> int:
        return len(self._delta) + len(self._inserted)

    def copy(self, offset: int, size_bytes: int) -> None:
        """Continue with a range of the base."""
        if not size_bytes:
            return
        if self._offset + self._n_copied != offset:
            self._end_copy()
            self._offset = offset
        if self._inserted:
            _append_insert(self._delta, bytes(self._inserted))
            self._inserted.clear()
        self._n_copied += size_bytes

    def insert(self, content: bytes) -> None:
        """Continue with *content*."""
        if content:
            self._end_copy()
            self._inserted += content

    def finished(self) -> bytes:
        """The whole delta."""
        self._end_copy()
        _append_insert(self._delta, bytes(self._inserted))
        self._inserted.clear()
        return bytes(self._delta)

    def _end_copy(self) -> None:
        if self._n_copied:
            _append_copy(self._delta, self._offset, self._n_copied)
        self._offset, self._n_copied = self._offset + self._n_copied, 0


def common_prefix(one: bytes, other: bytes, most: int) -> int:
    """How many of the first *most* bytes are the same."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def common_suffix(one: bytes, other: bytes, most: int) -> int:
    """How many of the last *most* bytes are the same."""
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
