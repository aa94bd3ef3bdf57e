"""Text is read in chunks, and only as far as the caller needs."""

from __future__ import annotations

import io
import tracemalloc
from typing import BinaryIO

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wink_workspace.errors import BinaryFileError
from wink_workspace.filesystem import (
    FilesystemLimits,
    MemoryFilesystem,
    MountedTree,
    MountReport,
    TextWindow,
    parse_path,
)
from wink_workspace.filesystem.memory_tree import RemoteFile
from wink_workspace.filesystem.text import read_window

GIBIBYTE = 2**30
MEBIBYTE = 2**20
PATH = parse_path("a.txt")


class EndlessLines(io.RawIOBase):
    """A file of 1 GiB that repeats *pattern* and counts the bytes read."""

    def __init__(self, pattern: bytes) -> None:
        self.block = pattern * (MEBIBYTE // len(pattern))
        self.n_read = 0

    def read(self, size: int = -1) -> bytes:
        assert size >= 0, "it must not be read as a whole"
        data = self.block[: min(size, GIBIBYTE - self.n_read)]
        self.n_read += len(data)
        return data


class GibibyteMount:
    """Mounts one such file as ``big.txt`` and remembers the streams that were opened."""

    identity = "big"
    size_bytes = GIBIBYTE

    def __init__(self, pattern: bytes) -> None:
        self.pattern = pattern
        self.streams: list[EndlessLines] = []

    def open(self) -> BinaryIO:
        self.streams.append(EndlessLines(self.pattern))
        return self.streams[-1]  # type: ignore[return-value] - read-only is enough here

    def load(self) -> MountedTree:
        at = parse_path("big.txt")
        return MountedTree(at, RemoteFile(self), read_only=True, report=MountReport(at, "test"))


class ShortReads(io.BytesIO):
    """A stream that gives at most *size* bytes at once, as sockets do."""

    def __init__(self, data: bytes, size: int) -> None:
        super().__init__(data)
        self.size = size

    def read(self, size: int | None = -1) -> bytes:
        return super().read(self.size)


def window(data: bytes, *, offset: int = 0, limit: int = 100, line_chars: int = 10) -> TextWindow:
    stream = io.BytesIO(data)
    return read_window(stream, PATH, offset=offset, limit=limit, line_chars=line_chars)


@pytest.mark.behaviour(54)
@pytest.mark.parametrize("pattern", [b"0123456789abcde\n", b"x"], ids=["many lines", "one line"])
def test_reading_ten_lines_of_a_gibibyte_reads_and_holds_a_few_mebibytes(pattern: bytes) -> None:
    mount = GibibyteMount(pattern)
    files = MemoryFilesystem(mounts=[mount])
    tracemalloc.start()
    try:
        read = files.read_text("big.txt", limit=10)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert read.more
    assert read.lines[0].startswith(pattern.decode().rstrip())
    assert sum(stream.n_read for stream in mount.streams) <= 17 * MEBIBYTE
    assert peak_bytes < 4 * MEBIBYTE


@pytest.mark.behaviour(54)
def test_reading_at_an_offset_reads_no_further_than_the_last_line() -> None:
    mount = GibibyteMount(b"0123456789abcde\n")
    files = MemoryFilesystem(mounts=[mount])
    read = files.read_text("big.txt", offset=100_000, limit=10)
    assert (read.first_line, len(read.lines), read.more) == (100_001, 10, True)
    assert mount.streams[0].n_read < 100_010 * 16 + 2 * 65_536


@pytest.mark.behaviour(54)
def test_window_that_ends_early_never_shows_part_of_a_line_as_a_whole_one() -> None:
    long_line = b"x" * (5 * MEBIBYTE) + b"\n"
    read = window(long_line * 3 + b"short\n" * MEBIBYTE, limit=10)
    assert (read.lines[:3], read.n_cut_lines) == (("x" * 10,) * 3, 3)
    mixed = b"x" * (16 * MEBIBYTE - 9) + b"\n" + b"short\n" * MEBIBYTE
    read = window(mixed, limit=100_000)
    assert set(read.lines[1:]) <= {"short"}
    assert read.more


@pytest.mark.behaviour(47)
def test_binary_data_after_the_window_is_not_checked() -> None:
    data = b"line\n" * 100_000 + b"\0\xff"
    assert window(data, limit=2).lines == ("line", "line")
    with pytest.raises(BinaryFileError):
        window(data, offset=99_999)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_byte_order_mark_selects_the_encoding_and_is_not_shown(encoding: str) -> None:
    mark = "\ufeff" if encoding.endswith(("le", "be")) else ""
    assert window((mark + "é\r\nb\n").encode(encoding)).lines == ("é", "b")


def test_text_that_ends_inside_a_character_is_shown_with_u_fffd_in_its_place() -> None:
    read = window("éèê\n".encode() + "é".encode()[:1])
    assert (read.lines, read.n_not_utf_8) == (("éèê", "\ufffd"), 1)


@given(
    text=st.text(alphabet="ab\r\n\u00e9\U0001f600", max_size=60),
    mark=st.sampled_from(["", "\ufeff"]),
    offset=st.integers(0, 8),
    limit=st.integers(0, 8),
    piece=st.integers(1, 9),
)
@example(text="abab\rb\n", mark="", offset=0, limit=1, piece=1)
@example(text="abab\r\nb", mark="", offset=0, limit=1, piece=1)
def test_window_is_a_slice_of_the_lines(
    text: str, mark: str, offset: int, limit: int, piece: int
) -> None:
    stream = ShortReads((mark + text).encode(), piece)
    read = read_window(stream, PATH, offset=offset, limit=limit, line_chars=4)
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    assert read.lines == tuple(line[:4] for line in lines[offset : offset + limit])
    assert read.n_cut_lines == sum(len(line) > 4 for line in lines[offset : offset + limit])
    assert read.more == (len(lines) > offset + limit)


def test_default_limits_are_as_documented() -> None:
    limits = FilesystemLimits()
    files = MemoryFilesystem({"a": "x" * 2_001 + "\n" + "\n" * 2_000})
    read = files.read_text("a")
    assert (len(read.lines), len(read.lines[0]), read.more) == (2_000, 2_000, True)
    assert (limits.write_bytes, limits.search_timeout_s) == (1_024 * MEBIBYTE, 5.0)
