r"""Replace a piece of text in a file and nothing else.

Rule 1: bytes outside of the changed text stay as they are (``text``): byte order mark, line
ends, and whether there is a final newline.
Rule 2: ``\n`` in the caller's text matches any line end of the file. If the text has a
``\r``, both are taken literally.
Rule 3: a text that occurs more than once is refused, unless all occurrences are meant.
"""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from wink_workspace.errors import EditError

from .lookalikes import named_difference, plain_text
from .nearest import excerpt, nearest_index
from .text import TextChange, TextContent, differing_parts

_MAX_LINES_NAMED = 10
_MAX_DIFFERENCES = 3
_MAX_CHARS = 200


@dataclass(frozen=True, slots=True)
class Replacement:
    """The new content ``data``, the number of replacements, and the first changed line, from 1.

    ``before`` is the text of the old content, and ``after`` that of the new one.
    """

    data: bytes
    n_replaced: int
    first_line: int
    before: str
    after: str


def replace_text(
    data: bytes,
    old: str,
    new: str,
    *,
    replace_all: bool = False,
    path: str = "the file",
    encoding: str | None = None,
) -> Replacement:
    r"""Replace *old* by *new* in a text file's content.

    Line ends: ``\n`` in *old* matches ``\n`` and ``\r\n``. A replaced line keeps its line end.
    Further lines get that of the line in which the replaced text ends. In a file without a
    final newline, an *old* that ends in ``\n`` also matches at the end. The file still has no
    final newline afterwards.

    Args:
        data: The whole content, in any encoding. U+FFFD in *old* matches a byte that is not UTF-8.
        old: The text to replace; not empty.
        new: The replacement; different from *old*.
        replace_all: Replace every occurrence (from the start, without overlap) instead of
            refusing more than one.
        path: The file's name, for messages.
        encoding: The encoding, if it would be a guess.

    Raises:
        EditError: If *old* is empty, equal to *new*, missing (the nearest text is shown) or
            not unique (the lines are named), or if *new* has a character that the encoding
            cannot hold, or that is not ASCII while the encoding is a guess.
        BinaryFileError: If the content is not text.
        UsageError: If no encoding has this name.
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
    content = given = TextContent.of(data, path, encoding, quoted=old)
    is_literal = "\r" in old or "\r" in new
    text, codec, added_end = content.text, content.encoding.codec, ""
    if text and not is_literal and not text.endswith(("\n", "\r")):  # the end of the line before
        added_end = "\r\n" if text[: text.rfind("\n") + 1].endswith("\r\n") else "\n"
        content = TextContent(data + added_end.encode(codec), path, content.encoding)
    view = _View.of(content.shown, literal=is_literal)
    offsets = view.find(old, replace_all=replace_all)
    if not offsets:
        raise _missing(view, old, path)
    if len(offsets) > 1 and not replace_all:
        raise _not_unique(view, offsets, path)
    parts = differing_parts(old, new)
    changed = content.spliced(view.changes(offsets, parts))
    after = TextContent(changed, path, content.encoding).shown
    if added_end and after.endswith("\n"):
        end = "\r\n" if after.endswith("\r\n") else "\n"
        changed, after = changed.removesuffix(end.encode(codec)), after.removesuffix(end)
    first_line = view.line_number(offsets[0] + parts[0][0])
    return Replacement(changed, len(offsets), first_line, given.shown, after)


@dataclass(frozen=True, slots=True)
class _View:
    r"""A text with uniform line ends, and the mapping of offsets to the actual text.

    ``seen`` has ``\n`` for each line end; ``crlf`` lists the offsets in it that are ``\r\n``
    in the actual text. In a literal view, it is the text itself.
    """

    seen: str
    crlf: list[int]

    @classmethod
    def of(cls, text: str, *, literal: bool) -> _View:
        if literal:
            return cls(text, [])
        crlf: list[int] = []
        at = text.find("\r\n")
        while at != -1:
            crlf.append(at - len(crlf))
            at = text.find("\r\n", at + 2)
        return cls(text.replace("\r\n", "\n"), crlf)

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

    def changes(self, offsets: list[int], parts: list[TextChange]) -> list[TextChange]:
        """The changes of *parts* at each offset, in the actual text."""
        spans = [(at + start, at + end, new) for at in offsets for start, end, new in parts]
        return [
            (self._actual(start), self._actual(end), self._with_line_ends(new, start, end))
            for start, end, new in spans
        ]

    def _actual(self, offset: int) -> int:
        return offset + bisect_left(self.crlf, offset)

    def _with_line_ends(self, new: str, start: int, end: int) -> str:
        """*new*, with the line ends that ``replace_text`` describes."""
        if "\n" not in new or not self.crlf:
            return new
        replaced = [n for n in range(start, end) if self.seen[n] == "\n"]
        ends = [self._line_end(at) for at in (*replaced, self.seen.find("\n", end))]
        *lines, last = new.split("\n")
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
