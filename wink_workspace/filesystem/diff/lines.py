"""Find the lines that differ between two texts, in bounded time.

The shortest difference is searched first (Myers, "An O(ND) Difference Algorithm and Its
Variations", 1986). If it has more than ``_MAX_EDITS`` edits, the text is split at lines that
occur once in both (as in "patience diff"), and each part is searched again. A part that still
has too many edits counts as replaced, which is correct but not short.

``difflib`` is not used: it can take many seconds for a few hundred lines.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Protocol

__all__ = ["Comparer", "LineComparer", "Span", "joined"]

_MAX_EDITS = 256


@dataclass(frozen=True, slots=True)
class Span:
    """Replaced lines: the index of the first and that after the last, old and new."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


class Comparer(Protocol):
    """Finds the lines in which two texts differ."""

    def spans(self, old: bytes, new: bytes) -> list[Span]:
        """The differing lines of *old* and *new*, both with line ends, in order.

        There are equal lines between any two spans.
        """
        ...


class LineComparer:
    """Compares texts, with one limit on the work for all of them together.

    Args:
        max_steps: After this many steps (a few million a second), differing parts count as
            replaced without a search.
    """

    def __init__(self, max_steps: int = 10_000_000) -> None:
        self._steps_left = max_steps

    def spans(self, old: bytes, new: bytes) -> list[Span]:
        """``changed_spans`` of the lines of two texts."""
        return self.changed_spans(BytesIO(old).readlines(), BytesIO(new).readlines())

    def changed_spans(self, old: Sequence[object], new: Sequence[object]) -> list[Span]:
        """The differing lines in order; there are equal lines between any two spans."""
        part = _trimmed(old, new, Span(0, len(old), 0, len(new)))
        if max(part.old_end - part.old_start, part.new_end - part.new_start) <= 1:
            return _whole(part)
        numbers: dict[object, int] = {}
        a = [numbers.setdefault(line, len(numbers)) for line in old]
        b = [numbers.setdefault(line, len(numbers)) for line in new]
        edits = self._shortest(a, b, part)
        if edits is None:
            parts = (_trimmed(a, b, between) for between in _split(a, b, part))
            edits = [
                edit
                for between in parts
                for edit in self._shortest(a, b, between) or _whole(between)
            ]
        return joined(edits)

    def _shortest(self, a: Sequence[int], b: Sequence[int], part: Span) -> list[Span] | None:
        """The shortest edits from *a* to *b* within *part*; ``None`` if there are too many."""
        if part.old_start == part.old_end or part.new_start == part.new_end:
            return _whole(part)
        a, b = a[part.old_start : part.old_end], b[part.new_start : part.new_end]
        reached = self._reached(a, b)
        return None if reached is None else _backtrack(reached, part)

    def _reached(self, a: Sequence[int], b: Sequence[int]) -> list[dict[int, int]] | None:
        """For each number of edits, the furthest index in *a* on each diagonal, up to the end.

        On the diagonal ``k``, the index in *a* is the index in *b* plus *k*.
        """
        furthest = {1: 0}
        reached: list[dict[int, int]] = []
        for n_edits in range(min(_MAX_EDITS, len(a) + len(b)) + 1):
            here: dict[int, int] = {}
            for k in range(-n_edits, n_edits + 1, 2):
                x, _ = _entered(furthest, k, n_edits)
                start = x
                while x < len(a) and x - k < len(b) and a[x] == b[x - k]:
                    x += 1
                here[k] = x
                self._steps_left -= 1 + x - start
            reached.append(here)
            if here.get(len(a) - len(b), -1) >= len(a):
                return reached
            if self._steps_left <= 0:
                return None
            furthest = here
        return None


def _entered(furthest: dict[int, int], k: int, n_edits: int) -> tuple[int, bool]:
    """The index in *a* at which the diagonal *k* is entered, and whether by an insertion."""
    by_insertion = furthest.get(k + 1, -1)
    by_deletion = furthest.get(k - 1, -2) + 1
    if k == -n_edits or (k != n_edits and by_deletion <= by_insertion):
        return by_insertion, True
    return by_deletion, False


def _backtrack(reached: list[dict[int, int]], part: Span) -> list[Span]:
    """The edits on the path to the end, in order, one line each."""
    k = (part.old_end - part.old_start) - (part.new_end - part.new_start)
    edits: list[Span] = []
    for n_edits in range(len(reached) - 1, 0, -1):
        x, is_insertion = _entered(reached[n_edits - 1], k, n_edits)
        old, new = part.old_start + x, part.new_start + x - k
        if is_insertion:
            edits.append(Span(old, old, new - 1, new))
        else:
            edits.append(Span(old - 1, old, new, new))
        k += 1 if is_insertion else -1
    return edits[::-1]


def _trimmed(a: Sequence[object], b: Sequence[object], part: Span) -> Span:
    """*part* without the equal lines at its start and its end."""
    x, x_end, y, y_end = part.old_start, part.old_end, part.new_start, part.new_end
    while x < x_end and y < y_end and a[x] == b[y]:
        x, y = x + 1, y + 1
    while x < x_end and y < y_end and a[x_end - 1] == b[y_end - 1]:
        x_end, y_end = x_end - 1, y_end - 1
    return Span(x, x_end, y, y_end)


def _split(a: Sequence[int], b: Sequence[int], part: Span) -> Iterator[Span]:
    """The parts between the lines that occur once in both, in the same order."""
    x, y = part.old_start, part.new_start
    for anchor_x, anchor_y in _anchors(a, b, part):
        yield Span(x, anchor_x, y, anchor_y)
        x, y = anchor_x + 1, anchor_y + 1
    yield Span(x, part.old_end, y, part.new_end)


def _anchors(a: Sequence[int], b: Sequence[int], part: Span) -> list[tuple[int, int]]:
    """The longest increasing sequence of pairs of indexes of such lines."""
    counts_a = Counter(a[part.old_start : part.old_end])
    counts_b = Counter(b[part.new_start : part.new_end])
    index_in_b = {b[y]: y for y in range(part.new_start, part.new_end) if counts_b[b[y]] == 1}
    tails: list[int] = []  # the last index in b of the best sequence of each length
    best: list[tuple[int, int, int]] = []  # a pair, and the index in `best` of its predecessor
    ends: list[int] = []
    for x in range(part.old_start, part.old_end):
        if counts_a[a[x]] == 1 and (y := index_in_b.get(a[x])) is not None:
            length = bisect_left(tails, y)
            best.append((x, y, ends[length - 1] if length else -1))
            tails[length : length + 1] = [y]
            ends[length : length + 1] = [len(best) - 1]
    pairs: list[tuple[int, int]] = []
    at = ends[-1] if ends else -1
    while at >= 0:
        x, y, at = best[at]
        pairs.append((x, y))
    return pairs[::-1]


def _whole(part: Span) -> list[Span]:
    is_empty = part.old_start == part.old_end and part.new_start == part.new_end
    return [] if is_empty else [part]


def joined(edits: Iterable[Span]) -> list[Span]:
    """*edits* in order, with adjacent ones joined."""
    spans: list[Span] = []
    for edit in edits:
        last = spans[-1] if spans else None
        if last and last.old_end == edit.old_start and last.new_end == edit.new_start:
            spans[-1] = Span(last.old_start, edit.old_end, last.new_start, edit.new_end)
        else:
            spans.append(edit)
    return spans
