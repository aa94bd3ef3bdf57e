r"""Replacing a piece of text in a file and nothing else.

Rule 1: bytes outside the changed text stay as they are: byte order mark, encoding, every
line end, the final newline or its absence.
Rule 2: ``\n`` in the caller's text means "a line end, whatever the file uses"; ``\r`` in it
is taken literally and switches that off.
Rule 3: a text that occurs more than once is refused unless all are meant.
"""

from __future__ import annotations

import codecs
import difflib
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from wink_workspace.errors import BinaryFileError, EditError

from .lookalikes import named_difference, plain_text
from .nearest import excerpt, nearest_place

__all__ = ["Replacement", "replace_text"]

_MAX_PLACES_NAMED = 10
_MAX_DIFFERENCES = 3
_MAX_CHARS = 200
_ENCODINGS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True, slots=True)
class Replacement:
    """A file's new content, how many places changed, and the first line (from 1) that did."""

    data: bytes
    n_replaced: int
    first_line: int


def replace_text(
    data: bytes, old: str, new: str, *, replace_all: bool = False, path: str = "the file"
) -> Replacement:
    r"""Replace *old* by *new* in a text file's content.

    Line ends: ``\n`` in *old* matches ``\n`` and ``\r\n``. A replaced line keeps its own line
    end; lines beyond those replaced take that of the line where the replaced text ends. In a
    file without a final newline, an *old* that ends in ``\n`` matches at the end as if there
    were one, and the file still ends without.

    Args:
        data: The whole content, in UTF-8, or in UTF-16 with a byte order mark.
        old: What to replace; not empty.
        new: What to put there; different from *old*.
        replace_all: Replace every place (from the start, without overlap) instead of
            refusing more than one.
        path: The file's name, for messages.

    Raises:
        EditError: If *old* is empty, equal to *new*, missing (the nearest text is shown) or
            not unique (the lines are named), or if *new* is no valid Unicode.
        BinaryFileError: If the content is not text in one of these encodings.
    """
    if not old:
        raise EditError(
            "the text to replace is empty",
            hint="Give the text that stands there now; to make or fill a file, write it.",
        )
    if old == new:
        raise EditError(
            "the old and the new text are the same",
            hint="Give a different new text, or leave the file alone.",
        )
    mark, encoding, text = _decode(data, path)
    view = _View.of(text, literal="\r" in old or "\r" in new)
    places = view.find(old, replace_all=replace_all)
    if not places:
        raise _missing(view, old, path)
    if len(places) > 1 and not replace_all:
        raise _not_unique(view, places, path)
    core = _Core.of(old, new)
    changed = _encode(view.replace(places, core), encoding)
    return Replacement(mark + changed, len(places), view.branch_of(places[0] + core.start))


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
        raise BinaryFileError(f"{path} is not text: it holds NUL characters")
    return mark, encoding, text


def _encode(text: str, encoding: str) -> bytes:
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        raise EditError(
            "the new text holds a lone surrogate, which is no character",
            hint="Correct the escape sequence in the new text.",
        ) from error


@dataclass(frozen=True, slots=True)
class _Core:
    """What really differs between an old and a new text, common ends taken off.

    ``start`` counts from where the old text begins, ``n_old`` is the length in it.
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
    r"""A text as the caller sees it, with the way back to the text as it is.

    ``seen`` has ``\n`` for each line end; ``crlf`` lists the indexes in it that stand for
    ``\r\n`` in ``actual``. Where the last line had no line end, ``end_added`` is set and
    both have one. A literal view shows the text itself.
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

    def branch_of(self, place: int) -> int:
        return 1 + self.seen.count("\n", 0, place)

    def find(self, old: str, *, replace_all: bool) -> list[int]:
        """Where *old* begins, without overlap; one that overlaps the only other one counts too."""
        places: list[int] = []
        at = self.seen.find(old)
        while at != -1:
            places.append(at)
            at = self.seen.find(old, at + len(old))
        if len(places) == 1 and not replace_all:
            overlapping = self.seen.find(old, places[0] + 1)
            places += [overlapping] * (overlapping != -1)
        return places

    def replace(self, places: list[int], core: _Core) -> str:
        """The actual text with the core of the old text replaced at each place."""
        pieces: list[str] = []
        done = 0
        for place in places:
            start = place + core.start
            end = start + core.n_old
            pieces += [self.actual[done : self._actual(start)], self._with_line_ends(core, start)]
            done = self._actual(end)
        result = "".join([*pieces, self.actual[done:]])
        if self.end_added and result.endswith("\n"):
            return result[: -2 if result.endswith("\r\n") else -1]
        return result

    def _actual(self, place: int) -> int:
        return place + bisect_left(self.crlf, place)

    def _with_line_ends(self, core: _Core, start: int) -> str:
        """The new text with the line ends of the lines that it replaces and of where it ends."""
        if "\n" not in core.new or not self.crlf:
            return core.new
        end = start + core.n_old
        replaced = [n for n in range(start, end) if self.seen[n] == "\n"]
        ends = [self._line_end(at) for at in (*replaced, self.seen.find("\n", end))]
        *lines, last = core.new.split("\n")
        with_ends = [line + ends[min(n, len(ends) - 1)] for n, line in enumerate(lines)]
        return "".join([*with_ends, last])

    def _line_end(self, at: int) -> str:
        if at == -1:  # after the last line end: as the last one
            at = len(self.seen) - 1
        n = bisect_left(self.crlf, at)
        return "\r\n" if n < len(self.crlf) and self.crlf[n] == at else "\n"


def _missing(view: _View, old: str, path: str) -> EditError:
    lines, wanted = view.seen.split("\n"), old.removesuffix("\n").split("\n")
    place = nearest_place(lines, wanted)
    if place is None:
        return EditError(
            f"the text to replace is not in {path}, nor anything like it",
            hint="Read the file and copy the text from it.",
        )
    shown = excerpt(lines, place, len(wanted))
    named = "".join(f"\n{difference}" for difference in _differences(wanted, lines[place:], place))
    return EditError(
        f"the text to replace is not in {path}; from line {place + 1} stands\n{shown}\n"
        f"which is the nearest to it{named}",
        hint="Copy the text exactly, white space included, and without line numbers.",
    )


def _differences(wanted: list[str], lines: list[str], place: int) -> Iterator[str]:
    """The first difference of each of the first lines; the text may be only part of a line."""
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
            yield f"line {place + n + 1}, column {start + column}: {text}"


def _start_in(line: str, sent: str) -> int:
    """Where in *line* a text begins that may be only part of it."""
    line, sent = plain_text(line[:_MAX_CHARS]), plain_text(sent[:_MAX_CHARS])
    same = difflib.SequenceMatcher(None, line, sent, autojunk=False).find_longest_match()
    return max(0, same.a - same.b) if line[: same.a - same.b].strip() else 0


def _not_unique(view: _View, places: list[int], path: str) -> EditError:
    named = ", ".join(str(view.branch_of(place)) for place in places[:_MAX_PLACES_NAMED])
    more = ", …" if len(places) > _MAX_PLACES_NAMED else ""
    return EditError(
        f"the text to replace occurs {len(places)} times in {path}, in lines {named}{more}",
        hint="Add lines around it until it is unique, or replace all of them.",
    )
