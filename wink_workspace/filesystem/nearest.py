"""Find the lines of a file that are most similar to some other lines, for error messages.

An approximate answer is enough, but it must be quick: at most ``_MAX_LINES`` lines are
searched, and ``difflib`` compares at most ``_MAX_COMPARED`` lines, each cut.
"""

from __future__ import annotations

import difflib
import heapq
import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice

from .lookalikes import plain_text

_MAX_LINES = 200_000
_MAX_WANTED = 40
_MAX_COMPARED = 60
_MAX_CHARS = 200
_MAX_SHOWN = 12
_SIMILAR_ENOUGH = 0.5
_WORD = re.compile(r"\w+")


def nearest_index(lines: Sequence[str], wanted: Sequence[str], *, expected: int = 0) -> int | None:
    """The index at which *lines* are most similar to *wanted*; ``None`` if nothing is similar.

    Ignores white space around a line, and the differences that ``plain_text`` removes. Among
    equally good indexes, the one nearest to *expected* is returned.
    """
    keys = [_key(line) for line in islice(wanted, _MAX_WANTED)]
    best = _index_by_equal_lines(lines, keys, expected)
    if best is None:
        best = _index_by_similar_line(lines, keys)
    return None if best is None else max(0, best)


def excerpt(lines: Sequence[str], first: int, n_lines: int, *, numbered: bool = True) -> str:
    """Up to twelve lines from the index *first*, numbered from 1, long ones cut."""
    last = min(len(lines), first + max(1, n_lines))
    shown = lines[first : min(last, first + _MAX_SHOWN)]
    numbers = range(first + 1, first + 1 + len(shown)) if numbered else [""] * len(shown)
    rows = [f"{n:>6} | {_cut(line)}" for n, line in zip(numbers, shown, strict=True)]
    if last - first > _MAX_SHOWN:
        rows.append(f"       … {last - first - _MAX_SHOWN} more lines")
    return "\n".join(rows)


def _key(line: str) -> str:
    return plain_text(line[: 2 * _MAX_CHARS]).strip()[:_MAX_CHARS]


def _cut(line: str) -> str:
    line = line.rstrip("\r\n")
    return line if len(line) <= _MAX_CHARS else line[:_MAX_CHARS] + "…"


def _index_by_equal_lines(lines: Sequence[str], keys: Sequence[str], expected: int) -> int | None:
    """Each line that is in both adds to the score of the index at which *keys* would begin."""
    offsets = {key: offset for offset, key in reversed(list(enumerate(keys))) if key}
    scores: Counter[int] = Counter()
    for n, line in enumerate(islice(lines, _MAX_LINES)):
        key = _key(line)
        if key in offsets:
            scores[n - offsets[key]] += len(key)
    if not scores:
        return None
    return max(scores, key=lambda index: (scores[index], -abs(index - expected)))


def _index_by_similar_line(lines: Sequence[str], keys: Sequence[str]) -> int | None:
    """Compare the longest wanted line with the lines that share the most words with it."""
    key = max(keys, key=len, default="")
    words = set(_WORD.findall(key))

    def shared_words(n: int) -> int:
        return sum(word in words for word in set(_WORD.findall(lines[n][:_MAX_CHARS])))

    likely = heapq.nlargest(_MAX_COMPARED, range(min(len(lines), _MAX_LINES)), key=shared_words)
    matcher = difflib.SequenceMatcher(None, b=key, autojunk=False)
    best, best_ratio = None, _SIMILAR_ENOUGH
    for n in likely:
        matcher.set_seq1(_key(lines[n]))
        ratio = matcher.ratio() if matcher.quick_ratio() > best_ratio else 0.0
        if ratio > best_ratio:
            best, best_ratio = n, ratio
    return None if best is None else best - keys.index(key)
