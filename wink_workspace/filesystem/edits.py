r"""Replace a piece of text in a file and nothing else.

Rule 1: bytes outside of the changed text stay as they are: byte order mark, encoding, line
ends, and whether there is a final newline.
Rule 2: ``\n`` in the caller's text matches any line end of the file. If the text has a
``\r``, both are taken literally.
Rule 3: a text that occurs more than once is refused, unless all occurrences are meant.
"""

from __future__ import annotations

import codecs
import difflib
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from wink_workspace.errors import BinaryFileError, EditError

from .lookalikes import named_difference, plain_text
from .nearest import excerpt, nearest_index

__all__ = ["Replacement", "replace_text"]

_MAX_LINES_NAMED = 10
_MAX_DIFFERENCES = 3
_MAX_CHARS = 200
_ENCODINGS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True, slots=True)
class Replacement:
    """The new content ``data``, the number of replacements, and the first changed line, from 1."""

    data: bytes
    n_replaced: int
    first_line: int


def replace_text(
    data: bytes, old: str, new: str, *, replace_all: bool = False, path: str = "the file"
) -> Replacement:
    r"""Replace *old* by *new* in a text file's content.

    Line ends: ``\n`` in *old* matches ``\n`` and ``\r\n``. A replaced line keeps its line end.
    Further lines get that of the line in which the replaced text ends. In a file without a
    final newline, an *old* that ends in ``\n`` also matches at the end. The file still has no
    final newline afterwards.

    Args:
        data: The whole content, in UTF-8, or in UTF-16 with a byte order mark.
        old: The text to replace; not empty.
        new: The replacement; different from *old*.
        replace_all: Replace every occurrence (from the start, without overlap) instead of
            refusing more than one.
        path: The file's name, for messages.

    Raises:
        EditError: If *old* is empty, equal to *new*, missing (the nearest text is shown) or
            not unique (the lines are named), or if *new* is not valid Unicode.
        BinaryFileError: If the content is not text in one of these encodings.
    """
    if not old:
        raise EditError(
            "the text to replace is empty",
            hint="Give the text that is in the file now. To create or fill a file, write it.",
        )
    if old == new:
        raise EditError(
            "the old and the new text are the same",
            hint="Give a different new text, or leave the file alone.",
        )
    mark, encoding, text = _decode(data, path)
    view = _View.of(text, literal="\r" in old or "\r" in new)
    offsets = view.find(old, replace_all=replace_all)
    if not offsets:
        raise _missing(view, old, path)
    if len(offsets) > 1 and not replace_all:
        raise _not_unique(view, offsets, path)
    core = _Core.of(old, new)
    changed = _encode(view.replace(offsets, core), encoding)
    return Replacement(mark + changed, len(offsets), view.line_number(offsets[0] + core.start))


def _decode(data: bytes, path: str) -> tuple[bytes, str, str]:
    mark, encoding = b"", "utf-8"
    for known_mark, known_encoding in _ENCODINGS:
        if data.startswith(known_mark):
            mark, encoding = known_mark, known_encoding
            break
    try:
        text = data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        raise BinaryFileError(f"{path} is not text: it is not {encoding.upper()}") from error
    if "\0" in text:
        raise BinaryFileError(f"{path} is not text: it contains NUL characters")
    return mark, encoding, text


def _encode(text: str, encoding: str) -> bytes:
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        raise EditError(
            "the new text contains a lone surrogate, which is not a character",
            hint="Correct the escape sequence in the new text.",
        ) from error


@dataclass(frozen=True, slots=True)
class _Core:
    """The difference between an old and a new text, without their common start and end.

    ``start`` counts from the start of the old text, ``n_old`` is the length in it.
    """

    start: int
    n_old: int
    new: str

    @classmethod
    def of(cls, old: str, new: str) -> _Core:
        start = _n_same_at_start(old, new)
        old, new = old[start:], new[start:]
        n_end = _n_same_at_start(old[::-1], new[::-1])
        return cls(start, len(old) - n_end, new[: len(new) - n_end])


def _n_same_at_start(one: str, other: str) -> int:
    for n, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return n
    return min(len(one), len(other))


@dataclass(frozen=True, slots=True)
class _View:
    r"""A text with uniform line ends, and the mapping of offsets to the actual text.

    ``seen`` has ``\n`` for each line end; ``crlf`` lists the offsets in it that are ``\r\n``
    in ``actual``. If the last line had no line end, both have one and ``end_added`` is set.
    In a literal view, both are the text itself.
    """

    actual: str
    seen: str
    crlf: list[int]
    end_added: bool

    @classmethod
    def of(cls, text: str, *, literal: bool) -> _View:
        if literal:
            return cls(text, text, [], end_added=False)
        end_added = bool(text) and not text.endswith("\n")
        if end_added:
            last = text.rfind("\n")
            text += "\r\n" if last > 0 and text[last - 1] == "\r" else "\n"
        crlf: list[int] = []
        at = text.find("\r\n")
        while at != -1:
            crlf.append(at - len(crlf))
            at = text.find("\r\n", at + 2)
        return cls(text, text.replace("\r\n", "\n"), crlf, end_added)

    def line_number(self, offset: int) -> int:
        return 1 + self.seen.count("\n", 0, offset)

    def find(self, old: str, *, replace_all: bool) -> list[int]:
        """The offsets of *old*, without overlap; an overlap with the only other one counts, too."""
        offsets: list[int] = []
        at = self.seen.find(old)
        while at != -1:
            offsets.append(at)
            at = self.seen.find(old, at + len(old))
        if len(offsets) == 1 and not replace_all:
            overlapping = self.seen.find(old, offsets[0] + 1)
            offsets += [overlapping] * (overlapping != -1)
        return offsets

    def replace(self, offsets: list[int], core: _Core) -> str:
        """The actual text with the core replaced at each offset."""
        pieces: list[str] = []
        done = 0
        for offset in offsets:
            start = offset + core.start
            end = start + core.n_old
            pieces += [self.actual[done : self._actual(start)], self._with_line_ends(core, start)]
            done = self._actual(end)
        result = "".join([*pieces, self.actual[done:]])
        if self.end_added and result.endswith("\n"):
            return result[: -2 if result.endswith("\r\n") else -1]
        return result

    def _actual(self, offset: int) -> int:
        return offset + bisect_left(self.crlf, offset)

    def _with_line_ends(self, core: _Core, start: int) -> str:
        """The new text of *core*, with the line ends that ``replace_text`` describes."""
        if "\n" not in core.new or not self.crlf:
            return core.new
        end = start + core.n_old
        replaced = [n for n in range(start, end) if self.seen[n] == "\n"]
        ends = [self._line_end(at) for at in (*replaced, self.seen.find("\n", end))]
        *lines, last = core.new.split("\n")
        with_ends = [line + ends[min(n, len(ends) - 1)] for n, line in enumerate(lines)]
        return "".join([*with_ends, last])

    def _line_end(self, at: int) -> str:
        if at == -1:  # after the last line end: use the last one
            at = len(self.seen) - 1
        n = bisect_left(self.crlf, at)
        return "\r\n" if n < len(self.crlf) and self.crlf[n] == at else "\n"


def _missing(view: _View, old: str, path: str) -> EditError:
    lines, wanted = view.seen.split("\n"), old.removesuffix("\n").split("\n")
    index = nearest_index(lines, wanted)
    if index is None:
        return EditError(
            f"the text to replace is not in {path}, and nothing in it is similar",
            hint="Read the file and copy the text from it.",
        )
    shown = excerpt(lines, index, len(wanted))
    named = "".join(f"\n{difference}" for difference in _differences(wanted, lines[index:], index))
    return EditError(
        f"the text to replace is not in {path}; the most similar text begins at line "
        f"{index + 1}:\n{shown}{named}",
        hint="Copy the text exactly, white space included, and without line numbers.",
    )


def _differences(wanted: list[str], lines: list[str], index: int) -> Iterator[str]:
    """The first difference in each of the first lines; the first may begin within a line."""
    n_named = 0
    for n, (sent, there) in enumerate(zip(wanted, lines, strict=False)):
        start = _start_in(there, sent) if n == 0 else 0
        there = there[start:]
        if n == len(wanted) - 1 and there.startswith(sent):
            continue
        difference = named_difference(sent, there, "the text to replace")
        if difference is not None and n_named < _MAX_DIFFERENCES:
            n_named += 1
            column, text = difference
            yield f"line {index + n + 1}, column {start + column}: {text}"


def _start_in(line: str, sent: str) -> int:
    """The index in *line* at which *sent* begins, which may be only part of it."""
    line, sent = plain_text(line[:_MAX_CHARS]), plain_text(sent[:_MAX_CHARS])
    same = difflib.SequenceMatcher(None, line, sent, autojunk=False).find_longest_match()
    return max(0, same.a - same.b) if line[: same.a - same.b].strip() else 0


def _not_unique(view: _View, offsets: list[int], path: str) -> EditError:
    named = ", ".join(str(view.line_number(index)) for index in offsets[:_MAX_LINES_NAMED])
    more = ", …" if len(offsets) > _MAX_LINES_NAMED else ""
    return EditError(
        f"the text to replace occurs {len(offsets)} times in {path}, in lines {named}{more}",
        hint="Add lines around it until it is unique, or replace all of them.",
    )
