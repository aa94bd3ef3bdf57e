r"""Find the positions of the hunks of one file, and apply them.

A hunk is applied at the intended position, or refused. It *matches* at a place where all its old
lines (context and removed lines) follow each other. The rules, in this order:

1. Exact. If there is only one match in the file, it is used, whatever the ``@@`` line states.
2. Several exact matches. Exactly one must remain after these conditions: hunks are in the order
   of the file, and none has a line that another one changes; a stated scope
   (``@@ class Reader:``) contains the match; the match is at the stated line, or is shifted from
   it by as much as both neighbouring hunks. If only one neighbour is shifted, or both
   differently, the number is not enough. The nearest match is never chosen for being near: it is
   often a copy of the intended lines. If not exactly one remains, the hunk is refused and the
   error lists the matches.
3. Loose. If some hunk has no exact match, all hunks of the file are compared again by rules 1
   and 2, ignoring byte order mark, kind of line end and a missing final newline. The file keeps
   its own; added lines get the line end of the line before. A hunk with both kinds of line end
   is only compared exactly.
4. Plain. A hunk that still has no match may differ from the file in trailing white space,
   Unicode punctuation and no-break spaces (``lookalikes``). It must have only one such match in
   the whole file. Indentation, tabs and the number of spaces always count.
5. Fuzz. A hunk without a plain match may ignore up to two of the outermost context lines on each
   side. All possible choices together must give only one match. Removed lines and lines between
   changes are never ignored. At least one context line with text must remain, and at least as
   many as were ignored. A stated scope must contain the match. The match must be evident:
   - At least two old lines are evidence, and one more for each missing line. Evidence is a
     remaining line that is unique in the file, or an ignored line that is within six lines on its
     side. All other ignored lines are missing. Blank lines do not count. A match at the stated line
     counts as two lines of evidence. A match more than 20 lines from it needs two lines more, and
     at most one line may be missing: the intended lines may be gone, and these be similar ones.
   - There is no rival: nowhere else in the file are as many old lines close together, whatever
     their white space and order, as remain here. If more than one line is missing, the number of
     missing lines is subtracted from that limit.
   - No two or more consecutive added lines are within six lines of it already.

Refused even if there is a match:

6. Already applied. The new lines (context and added lines) are where the hunk would insert them,
   unless all of them are equal and the hunk matches at the stated line (if it matches there, equal
   lines further up do not count: it would not have put them there);
   or there is no exact match and the new lines are in the file; or the new lines are in the scope
   and the match is not; or the new lines are as near to the stated line as the match.
7. Ends of the file. A hunk that only inserts, states line numbers and has no context after
   (before) its lines belongs at the end (start) of the file, as in git. If it matches at the
   stated line and not at that end, it contradicts itself and is refused. A hunk that also removes
   lines, and has three or more lines of context on the other side, belongs there or at the stated
   line. ``*** End of File`` and ``\ No newline at end of file`` mean the end for every hunk. A
   hunk without numbers and without marker may insert below its context anywhere.
8. Two hunks that change the same lines, and hunks that match in another order than they are sent,
   unless their line numbers state that order.
9. A hunk without old lines, unless the file is empty, a scope is stated or the end is marked.
   A hunk whose old lines are all blank, unless they match at the stated line or the marked end.

Context lines of the file are kept as they are. ``Placed`` reports everything that was not exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise, product

from wink_workspace.counts import listed
from wink_workspace.filesystem.lookalikes import (
    kinds_of_difference,
    named_differences,
    plain_line,
)
from wink_workspace.filesystem.model import LineRange
from wink_workspace.filesystem.nearest import excerpt, nearest_index

from .parsed_patch import PatchHunk
from .views import Effort, FileView, loose_line

_MAX_FUZZ = 2
_MIN_EVIDENCE = 2
_NEARBY_LINES = 6
_FAR_LINES = 20
_USUAL_CONTEXT = 3
_MAX_PLACES_NAMED = 8
_LINE_ENDINGS = "line endings"
_SINGULAR = ("trailing white space", "Unicode punctuation")


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A hunk that does not match: its number in the file, from 1, and the problem."""

    number: int
    hunk: PatchHunk
    problem: str


@dataclass(frozen=True, slots=True)
class Placed:
    """The content of a file with all hunks applied; other attributes as in ``PatchedFile``."""

    data: bytes
    offset_lines: int = 0
    lines: tuple[LineRange, ...] = ()
    ignored_lines: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


def place_hunks(
    data: bytes, hunks: Sequence[PatchHunk], effort: Effort
) -> Placed | tuple[Mismatch, ...]:
    """Apply *hunks* to *data*, or explain each hunk that does not match.

    Raises:
        PatchError: If the search exceeds *effort*.
    """
    exact = _Attempt(FileView.exact(data, effort), [_Shape.of(hunk, hunk.body) for hunk in hunks])
    if exact.place():
        return exact.result()
    loose = _Attempt(exact.view.loose(), [shape.compared(loose_line) for shape in exact.shapes])
    if loose.place() or loose.place_inexactly():
        return loose.result(final_newline=exact.view.ends_with_newline)
    return tuple(
        failure.explained(loose.view, effort) for _, failure in sorted(loose.failures.items())
    )


@dataclass(frozen=True)
class _Shape:
    """A hunk with its old and new lines, and the number of context lines around its changes.

    ``at_end``: the last old line must be the last line of the file.
    """

    hunk: PatchHunk
    body: Sequence[bytes]
    old: Sequence[bytes]
    new: Sequence[bytes]
    n_before: int
    n_after: int
    at_end: bool

    @classmethod
    def of(cls, hunk: PatchHunk, body: Sequence[bytes]) -> _Shape:
        n_before = next(n for n, line in enumerate(body) if not line.startswith(b" "))
        n_after = next(n for n, line in enumerate(reversed(body)) if not line.startswith(b" "))
        old = [line[1:] for line in body if not line.startswith(b"+")]
        new = [line[1:] for line in body if not line.startswith(b"-")]
        at_end = hunk.at_end or _lacks_newline(hunk, b" -")
        return cls(hunk, body, old, new, n_before, n_after, at_end)

    def compared(self, key: Callable[[bytes], bytes]) -> _Shape:
        """The same hunk with *key* applied to each line."""
        return _Shape.of(self.hunk, [line[:1] + key(line[1:]) for line in self.body])

    @property
    def changes(self) -> Sequence[bytes]:
        """The body without the context around all changes."""
        return self.body[self.n_before : len(self.body) - self.n_after]

    @cached_property
    def only_inserts(self) -> bool:
        return self.hunk.n_lines(b"-") == 0

    @cached_property
    def has_text(self) -> bool:
        """Whether an old line is not blank."""
        return any(line.strip() for line in self.old)

    @cached_property
    def adds(self) -> bool:
        return any(line.startswith(b"+") for line in self.body)

    @property
    def added_runs(self) -> list[list[bytes]]:
        """The added lines, grouped into consecutive runs."""
        groups = groupby(self.body, key=lambda line: line[:1])
        return [[line[1:] for line in lines] for sign, lines in groups if sign == b"+"]

    @cached_property
    def mixes_line_ends(self) -> bool:
        """Whether only some lines end with CRLF, so that line ends count."""
        return len({line.endswith(b"\r\n") for line in self.hunk.body if line.endswith(b"\n")}) > 1

    def is_lost(self, *, is_loose: bool) -> bool:
        """Whether a view that is not exact would hide the change."""
        return is_loose and (self.mixes_line_ends or self.old == self.new)

    @cached_property
    def states_line(self) -> bool:
        return self.hunk.old_start is not None and not self.hunk.scopes

    @property
    def stated(self) -> int:
        """The index of the first old line as stated."""
        return max(0, (self.hunk.old_start or 0) - 1)

    @property
    def belongs_at_start(self) -> bool:
        return (
            self.n_before == 0
            and self._is_one_sided(self.n_after)
            and self.hunk.old_start in (0, 1)
        )

    @property
    def belongs_at_end(self) -> bool:
        return self.n_after == 0 and self._is_one_sided(self.n_before)

    def _is_one_sided(self, n_context: int) -> bool:
        """Whether the context is on one side only because the file ends there: rule 7."""
        least = 1 if self.only_inserts else _USUAL_CONTEXT
        return self.hunk.is_unified and self.states_line and n_context >= least

    @property
    def may_stand_as_stated(self) -> bool:
        """Whether the stated line is accepted instead of the end of the file."""
        return not self.only_inserts

    def final_newline(self) -> bool | None:
        """Whether it adds (``True``) or removes (``False``) the final newline; else ``None``."""
        old_lacks = _lacks_newline(self.hunk, b" -")
        return None if old_lacks == _lacks_newline(self.hunk, b" +") else old_lacks

    def trims(self) -> list[tuple[int, int]]:
        """The numbers of context lines to ignore at start and end with fuzz, the fewest first."""
        last_before, last_after = min(_MAX_FUZZ, self.n_before), min(_MAX_FUZZ, self.n_after)
        trims = product(range(last_before + 1), range(last_after + 1))
        return sorted((trim for trim in trims if self._allows(*trim)), key=sum)

    def _allows(self, n_top: int, n_bottom: int) -> bool:
        kept = self.body[n_top : len(self.body) - n_bottom]
        context = sum(1 for line in kept if line.startswith(b" ") and line.strip())
        n_ignored = n_top + n_bottom
        return 0 < n_ignored <= context


def _lacks_newline(hunk: PatchHunk, signs: bytes) -> bool:
    return any(line[:1] in signs and not line.endswith(b"\n") for line in hunk.body)


@dataclass(frozen=True, slots=True)
class _Position:
    """The position of a hunk: the index of its first old line, also if that is ignored.

    ``ignored`` counts the context lines ignored at the start and at the end.
    """

    shape: _Shape
    at: int
    ignored: tuple[int, int] = (0, 0)

    @property
    def shift(self) -> int:
        return self.at - self.shape.stated if self.shape.hunk.old_start is not None else 0

    @property
    def start(self) -> int:
        """The index of the first line that may change."""
        return self.at + self.shape.n_before

    @property
    def end(self) -> int:
        """The index after the last line that may change."""
        return self.at + len(self.shape.old) - self.shape.n_after

    def ignored_lines(self) -> list[int]:
        """The line numbers in the patch that were ignored."""
        n_top, n_bottom = self.ignored
        first = self.shape.hunk.body_line
        end = first + len(self.shape.body)
        return [*range(first, first + n_top), *range(end - n_bottom, end)]


@dataclass(frozen=True, slots=True)
class _Failure:
    """A hunk that does not match; without a ``problem``, its old lines were not found."""

    number: int
    shape: _Shape
    problem: str = ""

    def explained(self, view: FileView, effort: Effort) -> Mismatch:
        problem = self.problem
        if not problem and effort.affords(200 * (view.n + len(self.shape.old))):
            problem = self._comparison(view)
        return Mismatch(self.number, self.shape.hunk, problem or "does not match")

    def _comparison(self, view: FileView) -> str:
        lines = [_shown(line) for line in view.lines]
        wanted = [_shown(line[1:]) for line in self.shape.hunk.body if line[:1] != b"+"]
        if not self.shape.mixes_line_ends:
            lines = [line.removesuffix("\r") for line in lines]
            wanted = [line.removesuffix("\r") for line in wanted]
        text = excerpt(wanted, 0, len(wanted), numbered=False)
        problem = f"expected {_expected_place(self.shape)}\n{text}\n"
        at = nearest_index(lines, wanted, expected=self.shape.stated)
        if at is None:
            return f"{problem}  but the file has nothing similar"
        found = f"{problem}  but the file has\n{excerpt(lines, at, len(wanted))}"
        named = named_differences(wanted, lines[at:], first_line=at + 1, sender="the patch")
        return "\n  ".join([found, *named])


def _shown(line: bytes) -> str:
    return line.removesuffix(b"\n").decode("utf-8", "surrogateescape")


def _expected_place(shape: _Shape) -> str:
    if shape.hunk.scopes:
        return f"below {_quoted(shape.hunk.scopes)}"
    if shape.hunk.old_start is not None:
        return f"near line {max(1, shape.hunk.old_start)}"
    return "at the end of the file" if shape.hunk.at_end else "somewhere"


class _Attempt:
    """The positions of all hunks of a file, found with one view of it."""

    def __init__(self, view: FileView, shapes: Sequence[_Shape]) -> None:
        self.view = view
        self.shapes = shapes
        self.positions: dict[int, _Position] = {}
        self.failures: dict[int, _Failure] = {}
        self._not_found: list[int] = []

    # ------------------------------------------------------------------- rules 1, 2, 6 and 8

    def place(self) -> bool:
        """Find the matches of all hunks in this view; whether each hunk has one."""
        if not self._place_as_stated():
            self._place_anywhere()
        self._check_places()
        return not self.failures

    def _place_as_stated(self) -> bool:
        """Try all stated line numbers first, which avoids a search if no line has moved."""
        for number, shape in enumerate(self.shapes, 1):
            if not (shape.states_line and shape.old and self._fits(shape, shape.stated)):
                self.positions.clear()
                return False
            self.positions[number] = _Position(shape, shape.stated)
        return True

    def _place_anywhere(self) -> None:
        several: dict[int, list[int]] = {}
        for number, shape in enumerate(self.shapes, 1):
            places = self._places(shape)
            if len(places) == 1:
                self.positions[number] = _Position(shape, places[0])
            elif places:
                several[number] = places
            else:
                self._fail(number, self._reason_for_none(shape))
                self._not_found.append(number)
        for number, places in several.items():
            left = self._narrowed(number, places)
            if len(left) == 1:
                self.positions[number] = _Position(self.shapes[number - 1], left[0])
            else:
                self._fail(number, _several(left or places))

    def _fits(self, shape: _Shape, at: int) -> bool:
        if shape.is_lost(is_loose=self.view.is_loose):
            return False
        return self._is_allowed_by_ends(shape, at) and self.view.fits(shape.old, at)

    def _is_allowed_by_ends(self, shape: _Shape, at: int) -> bool:
        """Rule 7."""
        is_at_end = at + len(shape.old) == self.view.n
        if shape.at_end or shape.belongs_at_end:
            return is_at_end or (
                at == shape.stated and not shape.at_end and shape.may_stand_as_stated
            )
        if shape.belongs_at_start:
            return at == 0 or (at == shape.stated and shape.may_stand_as_stated)
        return True

    def _places(self, shape: _Shape) -> list[int]:
        if not shape.old:
            return self._insertion_places(shape.hunk)
        if shape.is_lost(is_loose=self.view.is_loose):
            return []
        if shape.at_end:  # its last line may lack the newline, so a search would not find it
            at = self.view.n - len(shape.old)
            return [at] if self._fits(shape, at) else []
        places = self._allowed_by_ends(shape, self.view.places(shape.old))
        if shape.has_text:
            return places
        return [at for at in places if shape.states_line and at == shape.stated]

    def _allowed_by_ends(self, shape: _Shape, places: Sequence[int]) -> list[int]:
        """The *places* that rule 7 allows."""
        left = [at for at in places if self._is_allowed_by_ends(shape, at)]
        contradicts = shape.states_line and shape.stated in places and shape.stated not in left
        return [] if contradicts else left

    def _insertion_places(self, hunk: PatchHunk) -> list[int]:
        """Where lines without context may be inserted: rule 9."""
        if self.view.n == 0:
            return [0]
        if not self.view.takes_any_line:
            return []  # the loose view accepts it
        if hunk.scopes:
            return [at + 1 for at in self.view.scope_lines(hunk.scopes, 0)]
        return [self.view.n] if hunk.at_end else []

    def _narrowed(self, number: int, places: list[int]) -> list[int]:
        """Rule 2."""
        shape = self.shapes[number - 1]
        before = max((n for n in self.positions if n < number), default=0)
        after = min((n for n in self.positions if n > number), default=0)
        start = self.positions[before].end if before else 0
        end = self.positions[after].start if after else self.view.n
        left = [at for at in places if start <= at and at + len(shape.old) <= end]
        if shape.hunk.scopes:
            at = 0 if shape.old else -1
            return [place for place in left if self.view.is_inside(place + at, shape.hunk.scopes)]
        if not shape.states_line:
            return left
        shifts = {self.positions[n].shift for n in (before, after) if n} or {0}
        if len(shifts) > 1 or (shifts != {0} and not (before and after)):
            return []  # lines were added or removed nearby, but the side is not known
        return [at for at in left if at - shape.stated in shifts]

    def _check_places(self) -> None:
        """Refuse hunks that are already applied, and those that change the same lines."""
        for number, position in list(self.positions.items()):
            applied = self._applied_at(position)
            if applied is None:
                applied = self._applied_elsewhere(number, position)
            if applied is not None:
                self._fail(number, _already_applied(position.shape, applied))
        self._check_order()

    def _check_order(self) -> None:
        """Rule 8: refuse hunks that overlap or are in another order than stated."""
        ordered = sorted(self.positions.items(), key=_by_position)
        for (one, position), (other, next_position) in pairwise(ordered):
            if position.end > next_position.start:
                later, earlier = max(one, other), min(one, other)
                self._fail(later, f"changes the same lines as hunk {earlier}; make them one hunk")
            elif one > other and not position.shape.stated < next_position.shape.stated:
                self._fail(one, _out_of_order(position, other))

    def _fail(self, number: int, problem: str) -> None:
        self.positions.pop(number, None)
        self.failures[number] = _Failure(number, self.shapes[number - 1], problem)

    def _reason_for_none(self, shape: _Shape) -> str:
        if not shape.old:
            return "has no line of context and no '@@' line that is in the file exactly once"
        places = self.view.places(shape.old)
        if shape.is_lost(is_loose=self.view.is_loose) or not places:
            return ""
        where = _lines_named(places)
        if shape.at_end:
            return f"is marked as the end of the file, but its lines are at {where}"
        side, end = ("before", "start") if shape.n_before == 0 else ("after", "end")
        return (
            f"has no context {side} its changes, so it belongs at the {end} of the file, but its"
            f" lines are at {where}; if that is intended, add the lines {side} them as context"
        )

    # -------------------------------------------------------------------- rule 6 in particular

    def _applied_at(self, position: _Position) -> int | None:
        """The index of the new lines of an insertion, if they are already at its position."""
        shape = position.shape
        if not shape.only_inserts or self.view.n == 0:
            return None
        if shape.states_line and position.at == shape.stated and len(set(shape.new)) == 1:
            return None  # equal lines are always there; the stated line is the only evidence
        n_top, n_bottom = position.ignored
        new = shape.new[n_top : len(shape.new) - n_bottom]
        from_start = position.at + n_top
        from_end = position.at + len(shape.old) - n_bottom - len(new)
        places = (from_start, from_end)
        if shape.states_line and position.at == shape.stated:
            places = (from_start,)  # it puts no line above the stated one
        at = next((at for at in places if self.view.fits(new, at)), None)
        return None if at is None else at - n_top

    def _applied_elsewhere(self, number: int, position: _Position) -> int | None:
        """The index of the new lines, if it is closer to what the ``@@`` lines state."""
        shape, hunk = position.shape, position.shape.hunk
        if not shape.new or not shape.old or position.ignored != (0, 0):
            return None
        if hunk.scopes and not self.view.is_inside(position.at, hunk.scopes):
            inside = (
                at for at in self._applied_places(shape) if self.view.is_inside(at, hunk.scopes)
            )
            return next(inside, None)
        if not shape.states_line:
            return None
        before = max((n for n in self.positions if n < number), default=0)
        shifts = {0, self.positions[before].shift if before else 0}
        distance = min(abs(position.at - shape.stated - shift) for shift in shifts)
        if distance == 0:
            return None
        stated = {shape.stated + shift for shift in shifts}
        if hunk.new_start is not None:
            stated.add(max(0, hunk.new_start - 1))
        for at in self._applied_places(shape):
            overlaps = at < position.at + len(shape.old) and position.at < at + len(shape.new)
            if not overlaps and min(abs(at - place) for place in stated) <= (
                distance if _is_distinctive(shape) else 0
            ):
                return at
        return None

    def _applied_places(self, shape: _Shape) -> list[int]:
        """The indexes of the new lines, if these are distinctive."""
        if not shape.new or not (shape.adds or min(shape.n_before, shape.n_after) > 0):
            return []
        if shape.at_end:
            at = self.view.n - len(shape.new)
            return [at] if self.view.fits(shape.new, at) else []
        return self.view.places(shape.new)

    # -------------------------------------------------------------------------- rules 4 and 5

    def place_inexactly(self) -> bool:
        """Match the hunks that have no exact match; whether all hunks match then."""
        plain = _Attempt(self.view.plain(), [shape.compared(plain_line) for shape in self.shapes])
        for number in self._not_found:
            shape = self.shapes[number - 1]
            position, problem = plain.inexact_position(number) if shape.old else (None, "")
            if position is not None and not shape.mixes_line_ends:
                self.positions[number] = _Position(shape, position.at, position.ignored)
                del self.failures[number]
            elif problem:
                self._fail(number, problem)
        self._check_order()
        return not self.failures

    def inexact_position(self, number: int) -> tuple[_Position | None, str]:
        """The only match of a hunk in this view, the plain one; otherwise the problem."""
        shape = self.shapes[number - 1]
        if shape.old == shape.new:
            return None, ""  # its change is not visible in this view
        if applied := self._applied_places(shape):
            return None, _already_applied(shape, applied[0])
        found = dict.fromkeys(self._places(shape), (0, 0)) or self._fuzzy_places(shape)
        if len(found) > 1:
            return None, _several([at + n_top for at, (n_top, _) in sorted(found.items())])
        for at, ignored in found.items():
            position = _Position(shape, at, ignored)
            if (applied_at := self._applied_at(position)) is not None:
                return None, _already_applied(shape, applied_at)
            if ignored != (0, 0) and not self._is_evident(position):
                return None, ""
            first = at + ignored[0]
            if ignored == (0, 0) or self.view.is_inside(first, shape.hunk.scopes):
                return position, ""
        return None, ""

    def _fuzzy_places(self, shape: _Shape) -> dict[int, tuple[int, int]]:
        """Every match that is possible with fuzz, with the fewest ignored lines."""
        found: dict[int, tuple[int, int]] = {}
        for n_top, n_bottom in shape.trims():
            kept = shape.old[n_top : len(shape.old) - n_bottom]
            places = [at - n_top for at in self.view.places(kept)]
            for at in self._allowed_by_ends(shape, places):
                found.setdefault(at, (n_top, n_bottom))
        return found

    def _is_evident(self, position: _Position) -> bool:
        """Whether the remaining lines of a fuzzy match make it evident: rule 5."""
        shape = position.shape
        n_top, n_end = position.ignored[0], len(shape.old) - position.ignored[1]
        kept = [line for line in shape.old[n_top:n_end] if line.strip()]
        above = self.view.between(position.at + n_top - _NEARBY_LINES, position.at + n_top)
        below = self.view.between(position.at + n_end, position.at + n_end + _NEARBY_LINES)
        if any(_holds(above, run) or _holds(below, run) for run in shape.added_runs):
            return False  # the edit is already applied, at least in part
        ignored_above = [line for line in shape.old[:n_top] if line.strip()]
        ignored_below = [line for line in shape.old[n_end:] if line.strip()]
        n_nearby = sum(line in above for line in ignored_above)
        n_nearby += sum(line in below for line in ignored_below)
        n_missing = len(ignored_above) + len(ignored_below) - n_nearby
        n_evidence = n_nearby + sum(self.view.is_unique(line) for line in kept)
        n_needed = _MIN_EVIDENCE + n_missing
        if shape.states_line and position.shift == 0:
            n_evidence += _MIN_EVIDENCE
        elif shape.states_line and abs(position.shift) > _FAR_LINES:
            if n_missing > 1:
                return False
            n_needed += _MIN_EVIDENCE
        n_elsewhere = self.view.n_alike_elsewhere(shape.old, position.at)
        n_allowed = len(kept) - max(1, n_missing)
        return n_evidence >= n_needed and n_elsewhere <= n_allowed

    # ------------------------------------------------------------------------------ the result

    def result(self, *, final_newline: bool | None = None) -> Placed:
        """The content with all hunks applied.

        Args:
            final_newline: Whether the old content ended with a newline; ``None``: as in the
                view.
        """
        ordered = [position for _, position in sorted(self.positions.items(), key=_by_position)]
        lines: list[bytes] = []
        ranges: list[LineRange] = []
        at = 0
        for position in ordered:
            lines += self.view.lines[at : position.start]
            replaced, at = _replaced(self.view, position.shape.changes, position.start)
            ranges.append(LineRange(len(lines) + 1, len(replaced)))
            lines += replaced
        lines += self.view.lines[at:]
        last = ordered[-1]
        is_last = last.at + len(last.shape.old) == self.view.n
        changed = last.shape.final_newline() if is_last else None
        if final_newline is None:
            final_newline = self.view.ends_with_newline
        return Placed(
            self.view.compose(lines, final_newline=final_newline if changed is None else changed),
            max(abs(position.shift) for position in ordered),
            tuple(ranges),
            tuple(number for position in ordered for number in position.ignored_lines()),
            tuple(self._notes(ordered)),
        )

    def _notes(self, positions: Sequence[_Position]) -> Iterable[str]:
        """The differences between the file and what the patch expected, without fuzz."""
        differing: dict[str, list[int]] = {}
        for position in positions if self.view.is_loose else ():
            at = position.at
            n_top, n_bottom = position.ignored
            body = position.shape.hunk.body
            for n, line in enumerate(body):
                if line.startswith(b"+"):
                    continue
                if n_top <= n < len(body) - n_bottom:
                    for kind in kinds_of_difference(line[1:], self.view.lines[at]):
                        differing.setdefault(kind, []).append(position.shape.hunk.body_line + n)
                at += 1
        for kind, numbers in differing.items():
            where = "" if kind == _LINE_ENDINGS else f" ({_numbers('patch line', numbers)})"
            verb = "differs" if kind in _SINGULAR else "differ"
            yield f"matched although {kind} {verb}{where}"
        for position in positions:
            scopes = position.shape.hunk.scopes
            if scopes and position.shape.old and not self.view.is_inside(position.at, scopes):
                yield f"not below {_quoted(scopes)}: the only match is elsewhere"


def _by_position(item: tuple[int, _Position]) -> tuple[int, int]:
    return item[1].start, item[0]


def _replaced(view: FileView, changes: Sequence[bytes], at: int) -> tuple[list[bytes], int]:
    """The new lines for those from *at* on, and the index after the last replaced line."""
    lines: list[bytes] = []
    for line in changes:
        if line.startswith(b"+"):
            lines.append(view.added(line[1:], at))
            continue
        if line.startswith(b" "):
            lines.append(view.lines[at])
        at += 1
    return lines, at


def _holds(lines: Sequence[bytes], run: Sequence[bytes]) -> bool:
    """Whether *lines* contain *run*, which counts only if it has more than one line."""
    n = len(run)
    return (
        n > 1
        and any(map(bytes.strip, run))
        and any(lines[at : at + n] == run for at in range(len(lines) - n + 1))
    )


def _is_distinctive(shape: _Shape) -> bool:
    """Whether the new lines have context with text."""
    context = (*shape.body[: shape.n_before], *shape.body[len(shape.body) - shape.n_after :])
    return any(line.strip() for line in context)


# ---------------------------------------------------------------------------------- messages


def _several(places: Sequence[int]) -> str:
    return f"fits equally well at {_lines_named(places)}; add context to distinguish them"


def _out_of_order(position: _Position, other: int) -> str:
    return (
        f"fits at line {position.at + position.ignored[0] + 1} only, which is above hunk {other};"
        " put the hunks in the order of the file"
    )


def _already_applied(shape: _Shape, at: int) -> str:
    first, last = at + shape.n_before + 1, at + len(shape.new) - shape.n_after
    where = f"line {first}" if first >= last else f"lines {first} to {last}"
    return f"already applied: its result is at {where}; if another place is intended, add context"


def _lines_named(places: Sequence[int]) -> str:
    return _numbers("line", [at + 1 for at in places])


def _numbers(noun: str, numbers: Sequence[int]) -> str:
    return f"{noun}{'s' if len(numbers) > 1 else ''} {listed(numbers, _MAX_PLACES_NAMED)}"


def _quoted(scopes: Sequence[bytes]) -> str:
    return " and ".join(repr(scope.decode("utf-8", "replace")) for scope in scopes)
