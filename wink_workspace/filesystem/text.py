r"""Read text files piece by piece.

Rule 1: memory holds one piece and one unfinished line, however long the file or its lines.
Rule 2: text is UTF-8, or UTF-16 with a byte order mark, without NUL characters. Other
content is refused, but only the part that is read is checked. On request, single bytes that
are not UTF-8 are shown as U+FFFD, unless there are too many of them.
Rule 3: a line ends with ``\n``; a ``\r`` before it belongs to the line end. A byte order
mark at the start of the file is not part of a line.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from wink_workspace.errors import BinaryFileError

from .model import TextWindow
from .paths import WorkspacePath

__all__ = ["TextPieces", "line_blocks", "read_window"]

_PIECE_BYTES = 65_536
# A window ends after this much text; only lines that are mostly cut off can reach it.
_MAX_WINDOW_CHARS = 16_777_216
_ESCAPE = re.compile("[\udc80-\udcff]")
_MOST_ESCAPES = 0.3
"""Content with a higher share of bytes that are not UTF-8 is binary."""


class TextPieces(Iterator[str]):
    """The text of *stream*, in pieces.

    Set ``budget_chars`` to end the iteration after about this many more characters;
    ``stopped`` is then set. With *lenient*, a byte that is not UTF-8 becomes a surrogate
    escape.

    Raises:
        BinaryFileError: While iterating, on a NUL character or an invalid encoding.
    """

    def __init__(self, stream: BinaryIO, path: WorkspacePath, *, lenient: bool = False) -> None:
        self._errors = "surrogateescape" if lenient else "strict"
        self.budget_chars: int | None = None
        self.stopped = False
        self._stream = stream
        self._path = path
        self._decoder: codecs.IncrementalDecoder | None = None

    def __next__(self) -> str:
        if self.budget_chars is not None and self.budget_chars <= 0:
            self.stopped = True
            raise StopIteration
        data = self._stream.read(_PIECE_BYTES)
        if self._decoder is None:
            utf_16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            name, errors = ("utf-16", "strict") if utf_16 else ("utf-8-sig", self._errors)
            self._decoder = codecs.getincrementaldecoder(name)(errors)
        try:
            piece = self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise BinaryFileError(f"{self._path} is not text: it is not UTF-8") from error
        if "\0" in piece:
            raise BinaryFileError(f"{self._path} is not text: it contains NUL characters")
        if not data:
            raise StopIteration
        if self.budget_chars is not None:
            self.budget_chars -= len(piece)
        return piece


def line_blocks(pieces: Iterable[str], max_chars: int) -> Iterator[str]:
    r"""Blocks of whole lines, joined by ``\n``, without the last line end.

    A line that spans several pieces may be cut after *max_chars* + 2 characters.
    """
    partial = ""  # two characters beyond the limit: a "\r", and one that shows the line is longer
    for piece in pieces:
        whole, newline, rest = piece.rpartition("\n")
        if not newline:
            partial = _extended(partial, rest, max_chars + 2)
            continue
        first, newline, others = whole.partition("\n")
        yield _with_plain_ends(_extended(partial, first, max_chars + 2) + newline + others)
        partial = rest
    if partial:
        yield partial


def _extended(partial: str, more: str, max_chars: int) -> str:
    return partial + more[: max(0, max_chars - len(partial))] if partial else more


def _with_plain_ends(block: str) -> str:
    return block.replace("\r\n", "\n").removesuffix("\r") if "\r" in block else block


def read_window(
    stream: BinaryIO,
    path: WorkspacePath,
    *,
    offset: int,
    limit: int,
    line_chars: int,
    lenient: bool = False,
) -> TextWindow:
    """*limit* lines of *stream* after the first *offset*, each cut to *line_chars*.

    If more than 16 Mi characters were read for it, the window ends early and ``more`` is set.
    With *lenient*, a byte that is not UTF-8 is shown as U+FFFD.

    Raises:
        BinaryFileError: If the part that was read is not text.
    """
    pieces = TextPieces(stream, path, lenient=lenient)
    blocks = line_blocks(pieces, line_chars)
    lines = _lines_after(blocks, offset)
    pieces.budget_chars = _MAX_WINDOW_CHARS
    while len(lines) <= limit and (block := next(blocks, None)) is not None:
        lines += block.split("\n")
    if pieces.stopped and len(lines[-1]) <= line_chars:
        lines.pop()  # it may be incomplete
    shown = tuple(lines[:limit])
    n_cut_lines = sum(map(line_chars.__lt__, map(len, shown)))
    shown = tuple(line[:line_chars] for line in shown) if n_cut_lines else shown
    shown, n_not_utf_8 = _without_escapes(shown, path) if lenient else (shown, 0)
    return TextWindow(
        path=path,
        lines=shown,
        first_line=offset + 1,
        more=len(lines) > limit or pieces.stopped,
        n_cut_lines=n_cut_lines,
        n_not_utf_8=n_not_utf_8,
    )


def _without_escapes(lines: tuple[str, ...], path: WorkspacePath) -> tuple[tuple[str, ...], int]:
    """The lines with U+FFFD for each surrogate escape, and the number of these."""
    n_escapes = sum(len(_ESCAPE.findall(line)) for line in lines if not line.isascii())
    if n_escapes == 0:
        return lines, 0
    if n_escapes > _MOST_ESCAPES * sum(map(len, lines)):
        raise BinaryFileError(f"{path} is not text: much of it is not UTF-8")
    return tuple(_ESCAPE.sub("\ufffd", line) for line in lines), n_escapes


def _lines_after(blocks: Iterator[str], n_lines: int) -> list[str]:
    """The lines after the first *n_lines*, up to the end of their block; reads no further."""
    while n_lines > 0 and (block := next(blocks, None)) is not None:
        n_lines -= block.count("\n") + 1
        if n_lines < 0:
            return block.split("\n")[n_lines:]
    return []
