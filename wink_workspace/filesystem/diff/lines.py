"""Find the lines that differ between two texts, with libgit2.

libgit2 compares half a million lines a second in a tenth of the memory that Python needs. It
cannot be interrupted, so ``DiffLimits`` excludes inputs that would take long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from wink_workspace.errors import FilesystemError

if TYPE_CHECKING:
    from pygit2.enums import DiffOption


class ChangedLines(NamedTuple):
    """Replaced lines, counted from 0, old and new."""

    old: range
    new: range


def changed_lines(old: bytes, new: bytes, *, by_indent: bool = False) -> list[ChangedLines]:
    """The lines that differ between two texts, in order, with equal lines between any two.

    Args:
        old: The text before.
        new: The text after.
        by_indent: Move a range that could begin at several lines to where its indentation fits
            best, for a diff that people read. A merge needs the ranges of git's merge.

    Raises:
        FilesystemError: If there is not enough memory.
    """
    from pygit2 import Patch  # it takes 60 ms, so only here

    flags = _flags(by_indent=by_indent)
    hunks = Patch.create_from(old, new, flag=flags, context_lines=0, interhunk_lines=0).hunks
    if not hunks and old != new:  # libgit2 returns this when it cannot allocate memory
        raise FilesystemError(
            "two versions of a file cannot be compared: not enough memory",
            hint="Free some memory, or compare smaller files.",
        )
    return [
        ChangedLines(_range(hunk.old_start, hunk.old_lines), _range(hunk.new_start, hunk.new_lines))
        for hunk in hunks
    ]


@cache  # operators of enums cost more than a short comparison
def _flags(*, by_indent: bool) -> DiffOption:
    from pygit2.enums import DiffOption

    return DiffOption.FORCE_TEXT | (DiffOption.INDENT_HEURISTIC if by_indent else 0)


def _range(start: int, n_lines: int) -> range:
    """The lines of one side of a hunk; a side without lines has the number of the line before."""
    first = start - 1 if n_lines else start
    return range(first, first + n_lines)


def joined(edits: Iterable[ChangedLines]) -> list[ChangedLines]:
    """*edits* in order, with adjacent ones joined."""
    found: list[ChangedLines] = []
    for edit in edits:
        last = found[-1] if found else None
        if last and last.old.stop == edit.old.start and last.new.stop == edit.new.start:
            found[-1] = ChangedLines(
                range(last.old.start, edit.old.stop), range(last.new.start, edit.new.stop)
            )
        else:
            found.append(edit)
    return found


# ------------------------------------------------------------------------------------- long texts

# Reduce long texts before their lines are compared.
#
# Equal starts and ends are found by comparing bytes. Between them, the texts are split at lines
# that occur once in both (as in "patience diff"). Only a few such lines, evenly spaced, are used.


_FIRST_STEP_BYTES: Final = 1_048_576
_TRIED_LINES: Final = 4
_BLOCK_LINES: Final = (1, 16)


@dataclass(frozen=True, slots=True)
class Part:
    """A section of two texts that are equal before and after it.

    Attributes:
        old: The lines of the old text, with context at both ends.
        new: The lines of the new text, with the same context.
        n_lines_before: The number of lines before the section, equal in both texts.
        inner: The lines between the contexts, as one replacement.
    """

    old: bytes
    new: bytes
    n_lines_before: int
    inner: ChangedLines


def differing_part(old: bytes, new: bytes, context_lines: int) -> Part:
    """The part of *old* and *new* that differs, with *context_lines* before and after it."""
    start = old.rfind(b"\n", 0, _n_equal_at_start(old, new)) + 1
    old_end, new_end = _ends(old, new, start)
    first = start
    context_lines = min(context_lines, old.count(b"\n") + 1)
    for _ in range(context_lines):
        first = old.rfind(b"\n", 0, max(first - 1, 0)) + 1
    last = old_end
    for _ in range(context_lines):
        last = old.find(b"\n", last) + 1 or len(old)
    n_context = old.count(b"\n", first, start)
    return Part(
        old[first:last],
        new[first : new_end + last - old_end],
        old.count(b"\n", 0, first),
        ChangedLines(
            range(n_context, n_context + count_lines(old, start, old_end)),
            range(n_context, n_context + count_lines(new, start, new_end)),
        ),
    )


def _n_equal_at_start(old: bytes, new: bytes) -> int:
    at, step, limit = 0, _FIRST_STEP_BYTES, min(len(old), len(new))
    while step:
        if at + step <= limit and old[at : at + step] == new[at : at + step]:
            at += step
        else:
            step //= 2
    return at


def _ends(old: bytes, new: bytes, start: int) -> tuple[int, int]:
    """The offsets, not before *start*, after which both texts consist of equal lines."""
    old_end, new_end, step = len(old), len(new), _FIRST_STEP_BYTES
    while step:
        if (
            min(old_end, new_end) - step >= start
            and old[old_end - step : old_end] == new[new_end - step : new_end]
        ):
            old_end, new_end = old_end - step, new_end - step
        else:
            step //= 2
    old_is_whole = old_end == start or old.startswith(b"\n", old_end - 1)
    if old_is_whole and (new_end == start or new.startswith(b"\n", new_end - 1)):
        return old_end, new_end
    next_line = old.find(b"\n", old_end) + 1 or len(old)
    return next_line, new_end + next_line - old_end


def spans_in_pieces(old: bytes, new: bytes, *, piece_lines: int) -> list[ChangedLines]:
    """The differing lines of *old* and *new*, in order.

    At most *piece_lines* of both together are compared at once. A piece that cannot be made short
    enough counts as replaced, except for its equal ends.
    """
    n_lines = count_lines(old) + count_lines(new)
    if n_lines <= piece_lines:
        return changed_lines(old, new, by_indent=True)
    spans: list[ChangedLines] = []
    old_at = new_at = 0
    for old_piece, new_piece in _split(old, new, 2 * n_lines // piece_lines):
        n_old, n_new = count_lines(old_piece), count_lines(new_piece)
        if n_old + n_new <= piece_lines:
            found = changed_lines(old_piece, new_piece, by_indent=True)
            spans += (_moved(span, old_at, new_at) for span in found)
        elif old_piece != new_piece:
            part = differing_part(old_piece, new_piece, 0)
            n_equal = part.n_lines_before
            spans.append(_moved(part.inner, old_at + n_equal, new_at + n_equal))
        old_at, new_at = old_at + n_old, new_at + n_new
    return joined(spans)


def _moved(span: ChangedLines, n_old: int, n_new: int) -> ChangedLines:
    old, new = span
    return ChangedLines(
        range(old.start + n_old, old.stop + n_old), range(new.start + n_new, new.stop + n_new)
    )


def _split(old: bytes, new: bytes, n_pieces: int) -> Iterator[tuple[bytes, bytes]]:
    """Both texts in about *n_pieces* corresponding pieces; fewer if lines repeat."""
    old_at = new_at = 0
    for old_anchor, new_anchor in _increasing(list(_anchors(old, new, n_pieces))):
        yield old[old_at:old_anchor], new[new_at:new_anchor]
        old_at, new_at = old_anchor, new_anchor
    yield old[old_at:], new[new_at:]


def _anchors(old: bytes, new: bytes, n_pieces: int) -> Iterator[tuple[int, int]]:
    """Offsets in both texts of lines that occur once in both, in the order of *old*."""
    for n in range(1, n_pieces):
        at = old.find(b"\n", n * len(old) // n_pieces)
        for _ in range(_TRIED_LINES):
            match = next(filter(None, (_unique_match(old, new, at, n) for n in _BLOCK_LINES)), None)
            if match is not None:
                yield at + 1, match + 1
                break
            at = old.find(b"\n", at + 1)


def _unique_match(old: bytes, new: bytes, at: int, n_lines: int) -> int | None:
    """The offset in *new* of the lines after the newline *at* of *old*, if both have them once."""
    end = at
    for _ in range(n_lines):
        end = old.find(b"\n", end + 1)
        if end < 0:
            return None
    block = old[at : end + 1]
    found = new.find(block)
    if found < 0 or new.find(block, found + 1) >= 0:
        return None
    return found if old.find(block) == at and old.find(block, at + 1) < 0 else None


def _increasing(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest subsequence of *pairs* that increases in both; the first always increases."""
    chains: list[list[tuple[int, int]]] = [[]]
    for pair in pairs:
        before = [c for c in chains if not c or (c[-1][0] < pair[0] and c[-1][1] < pair[1])]
        chains.append([*max(before, key=len), pair])
    return max(chains, key=len)


def count_lines(text: bytes, start: int = 0, end: int | None = None) -> int:
    """The number of lines in a part of *text*; the last one may lack its line end."""
    end = len(text) if end is None else end
    is_cut = end > start and not text.startswith(b"\n", end - 1)
    return text.count(b"\n", start, end) + is_cut
