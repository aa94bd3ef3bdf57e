r"""Finding where the hunks of one file belong, and putting them in.

A hunk is applied where it was meant, or refused. A *place* is where all its old lines
(context and removed lines) stand one after the other. The rules, in this order:

1. Exact. A place that is the only one in the file is taken, whatever the ``@@`` line says.
2. Several exact places. Exactly one must be left when all of these are applied: hunks come in
   the order of the file; a scope (``@@ class Reader:``) must contain the place; a stated line
   number must be met exactly, or moved by as much as both neighbouring hunks were. Where only
   one neighbour was moved, or both differently, the number says too little. The nearest place
   is never taken as such: it is often that of a copy. If not exactly one is left, the hunk is
   refused and the places are named.
3. Loose. If some hunk has no exact place, all hunks of the file are compared again without
   byte order mark, kind of line end and missing final newline, by rules 1 and 2. The file
   keeps its own; added lines get the line end of the line before. A hunk with both kinds of
   line end means them, and is compared exactly only.
4. Plain. A hunk that still has no place may differ from the file in trailing white space,
   Unicode punctuation and no-break spaces (``lookalikes``). It must fit in one place only,
   counted in the whole file. Indentation, tabs and the number of spaces always count.
5. Fuzz. A hunk that has no plain place may ignore up to two of the outermost context lines on
   each side. One place only must be possible with any such choice. Removed lines and lines
   between changes are never ignored. At least one context line with text must be left, and
   no fewer than were ignored. A stated scope must contain the place. The place must be evident:
   - Two of the old lines show it, and one more for each that is missing. Those show it that are
     left and stand only once in the file, or are ignored and stand within six lines, on their
     side; the others that are ignored are missing. Blank lines do not count.
   - It has no rival: no other stretch of the file holds as many of the old lines, whatever their
     white space and order, as are left; less those that are missing, if these are more than one.
   - No two or more added lines that follow each other stand within six lines of it already.

What is refused, even where a place was found:

6. Already applied. The new lines (context and added lines) stand where the hunk would insert;
   or no exact place exists and the new lines stand in the file; or the new lines stand in the
   scope, or as near to the stated line as the place, and the place does not.
7. Ends of the file. A hunk that only inserts, states line numbers and has no context after
   (before) its lines belongs at the end (start) of the file, as in git. If its lines stand at
   the stated line and not at that end, it contradicts itself and is refused. One that also
   removes lines, and has three or more lines of context on the other side, belongs there or at
   the stated line. ``*** End of File`` and ``\ No newline at end of file`` mean the end for
   every hunk. A hunk without numbers and without marker may insert below its context anywhere.
8. Two hunks that change the same lines, and hunks that are found in another order than they
   are sent, unless their line numbers say so.
9. A hunk without old lines, unless the file is empty, a scope is stated or the end is marked.
   A hunk whose old lines are all blank, unless they stand at the stated line or the marked end.

Context is compared and then left alone, never rewritten. Everything that was not exact is
reported in ``Placed``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise, product

from wink_workspace.filesystem.lookalikes import (
    kinds_of_difference,
    named_differences,
    plain_line,
)
from wink_workspace.filesystem.model import LineRange
from wink_workspace.filesystem.nearest import excerpt, nearest_index

from .parts import Hunk
from .reading import Effort, Reading, loose_line

__all__ = ["Misfit", "Placed", "place_hunks"]

_MAX_FUZZ = 2
_MIN_TELLING = 2
_NEARBY = 6
_USUAL_CONTEXT = 3
_MAX_PLACES_NAMED = 8
_LINE_ENDINGS = "line endings"
_SINGULAR = ("trailing white space", "Unicode punctuation")


@dataclass(frozen=True, slots=True)
class Misfit:
    """A hunk without a place: its number in the file (from 1) and what is wrong with it."""

    number: int
    hunk: Hunk
    problem: str


@dataclass(frozen=True, slots=True)
class Placed:
    """A file's content with all hunks in; the rest is as in ``PatchedFile``."""

    data: bytes
    offset_lines: int = 0
    lines: tuple[LineRange, ...] = ()
    ignored_lines: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


def place_hunks(data: bytes, hunks: Sequence[Hunk], effort: Effort) -> Placed | tuple[Misfit, ...]:
    """Put *hunks* into *data*, or explain each that does not fit.

    Raises:
        PatchError: If it takes more than *effort* allows.
    """
    exact = _Attempt(Reading.exact(data, effort), [_Shape.of(hunk, hunk.body) for hunk in hunks])
    if exact.place():
        return exact.result()
    loose = _Attempt(exact.reading.loose(), [shape.compared(loose_line) for shape in exact.shapes])
    if loose.place() or loose.place_inexactly():
        return loose.result(final_newline=exact.reading.ends_with_newline)
    return tuple(
        failure.explained(loose.reading, effort) for _, failure in sorted(loose.failures.items())
    )


@dataclass(frozen=True)
class _Shape:
    """A hunk taken apart: its old and new lines, and how much context is around all changes.

    ``at_end``: the last old line is the last one of the file.
    """

    hunk: Hunk
    body: Sequence[bytes]
    old: Sequence[bytes]
    new: Sequence[bytes]
    n_before: int
    n_after: int
    at_end: bool

    @classmethod
    def of(cls, hunk: Hunk, body: Sequence[bytes]) -> _Shape:
        n_before = next(n for n, line in enumerate(body) if not line.startswith(b" "))
        n_after = next(n for n, line in enumerate(reversed(body)) if not line.startswith(b" "))
        old = [line[1:] for line in body if not line.startswith(b"+")]
        new = [line[1:] for line in body if not line.startswith(b"-")]
        at_end = hunk.at_end or _lacks_newline(hunk, b" -")
        return cls(hunk, body, old, new, n_before, n_after, at_end)

    def compared(self, key: Callable[[bytes], bytes]) -> _Shape:
        """The same with each line as *key* makes it."""
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
        """The lines that it adds, those that follow each other together."""
        groups = groupby(self.body, key=lambda line: line[:1])
        return [[line[1:] for line in lines] for sign, lines in groups if sign == b"+"]

    @cached_property
    def mixes_line_ends(self) -> bool:
        """Whether some lines end with CRLF and some do not, so that the patch means them."""
        return len({line.endswith(b"\r\n") for line in self.hunk.body if line.endswith(b"\n")}) > 1

    def is_lost(self, *, is_loose: bool) -> bool:
        """Whether a reading that is not exact would lose what it means to change."""
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
        """Whether it has no context on the other side since the file has none: rule 7."""
        least = 1 if self.only_inserts else _USUAL_CONTEXT
        return self.hunk.is_unified and self.states_line and n_context >= least

    @property
    def may_stand_as_stated(self) -> bool:
        """Whether the stated line is as good a place as the end of the file that it misses."""
        return not self.only_inserts

    def final_newline(self) -> bool | None:
        """Whether it adds (or else removes) the file's final newline; ``None``: neither."""
        old_lacks = _lacks_newline(self.hunk, b" -")
        return None if old_lacks == _lacks_newline(self.hunk, b" +") else old_lacks

    def trims(self) -> list[tuple[int, int]]:
        """How many context lines fuzz may ignore at the start and the end, the fewest first."""
        last_before, last_after = min(_MAX_FUZZ, self.n_before), min(_MAX_FUZZ, self.n_after)
        trims = product(range(last_before + 1), range(last_after + 1))
        return sorted((trim for trim in trims if self._allows(*trim)), key=sum)

    def _allows(self, n_top: int, n_bottom: int) -> bool:
        kept = self.body[n_top : len(self.body) - n_bottom]
        context = sum(1 for line in kept if line.startswith(b" ") and line.strip())
        n_ignored = n_top + n_bottom
        return 0 < n_ignored <= context


def _lacks_newline(hunk: Hunk, signs: bytes) -> bool:
    return any(line[:1] in signs and not line.endswith(b"\n") for line in hunk.body)


@dataclass(frozen=True, slots=True)
class _Spot:
    """A hunk's place: the index at which its first old line is or, if ignored, would be.

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
        """The index behind the last line that may change."""
        return self.at + len(self.shape.old) - self.shape.n_after

    def ignored_lines(self) -> list[int]:
        """The lines of the patch that were ignored."""
        n_top, n_bottom = self.ignored
        first = self.shape.hunk.body_line
        end = first + len(self.shape.body)
        return [*range(first, first + n_top), *range(end - n_bottom, end)]


@dataclass(frozen=True, slots=True)
class _Failure:
    """A hunk that has no place: ``problem`` says why, or else nothing like it was found."""

    number: int
    shape: _Shape
    problem: str = ""

    def explained(self, reading: Reading, effort: Effort) -> Misfit:
        problem = self.problem
        if not problem and effort.affords(200 * (reading.n + len(self.shape.old))):
            problem = self._comparison(reading)
        return Misfit(self.number, self.shape.hunk, problem or "does not match")

    def _comparison(self, reading: Reading) -> str:
        lines = [_shown(line) for line in reading.lines]
        wanted = [_shown(line[1:]) for line in self.shape.hunk.body if line[:1] != b"+"]
        if not self.shape.mixes_line_ends:
            lines = [line.removesuffix("\r") for line in lines]
            wanted = [line.removesuffix("\r") for line in wanted]
        text = excerpt(wanted, 0, len(wanted), numbered=False)
        problem = f"expected {_place_meant(self.shape)}\n{text}\n"
        at = nearest_index(lines, wanted, expected=self.shape.stated)
        if at is None:
            return f"{problem}  but nothing like it is in the file"
        found = f"{problem}  but there stands\n{excerpt(lines, at, len(wanted))}"
        named = named_differences(wanted, lines[at:], first_line=at + 1, sender="the patch")
        return "\n  ".join([found, *named])


def _shown(line: bytes) -> str:
    return line.removesuffix(b"\n").decode("utf-8", "surrogateescape")


def _place_meant(shape: _Shape) -> str:
    if shape.hunk.scopes:
        return f"below {_quoted(shape.hunk.scopes)}"
    if shape.hunk.old_start is not None:
        return f"near line {max(1, shape.hunk.old_start)}"
    return "at the end of the file" if shape.hunk.at_end else "somewhere"


class _Attempt:
    """All hunks of a file under one reading of it."""

    def __init__(self, reading: Reading, shapes: Sequence[_Shape]) -> None:
        self.reading = reading
        self.shapes = shapes
        self.spots: dict[int, _Spot] = {}
        self.failures: dict[int, _Failure] = {}
        self._not_found: list[int] = []

    # ------------------------------------------------------------------- rules 1, 2, 6 and 8

    def place(self) -> bool:
        """Find the exact places of all hunks under this reading; whether each has one."""
        if not self._place_as_stated():
            self._place_anywhere()
        self._check_places()
        return not self.failures

    def _place_as_stated(self) -> bool:
        """Try all line numbers as stated, which spares searching where nothing has moved."""
        for number, shape in enumerate(self.shapes, 1):
            if not (shape.states_line and shape.old and self._fits(shape, shape.stated)):
                self.spots.clear()
                return False
            self.spots[number] = _Spot(shape, shape.stated)
        return True

    def _place_anywhere(self) -> None:
        several: dict[int, list[int]] = {}
        for number, shape in enumerate(self.shapes, 1):
            places = self._places(shape)
            if len(places) == 1:
                self.spots[number] = _Spot(shape, places[0])
            elif places:
                several[number] = places
            else:
                self._fail(number, self._reason_for_none(shape))
                self._not_found.append(number)
        for number, places in several.items():
            left = self._narrowed(number, places)
            if len(left) == 1:
                self.spots[number] = _Spot(self.shapes[number - 1], left[0])
            else:
                self._fail(number, _several(left or places))

    def _fits(self, shape: _Shape, at: int) -> bool:
        if shape.is_lost(is_loose=self.reading.is_loose):
            return False
        return self._is_at_its_end(shape, at) and self.reading.fits(shape.old, at)

    def _is_at_its_end(self, shape: _Shape, at: int) -> bool:
        """Rule 7."""
        is_at_end = at + len(shape.old) == self.reading.n
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
        if shape.is_lost(is_loose=self.reading.is_loose):
            return []
        if shape.at_end:  # its last line may lack the newline, so that it can be found there only
            at = self.reading.n - len(shape.old)
            return [at] if self._fits(shape, at) else []
        places = self._at_their_end(shape, self.reading.places(shape.old))
        if shape.has_text:
            return places
        return [at for at in places if shape.states_line and at == shape.stated]

    def _at_their_end(self, shape: _Shape, places: Sequence[int]) -> list[int]:
        """Those of *places* that rule 7 allows."""
        left = [at for at in places if self._is_at_its_end(shape, at)]
        contradicts = shape.states_line and shape.stated in places and shape.stated not in left
        return [] if contradicts else left

    def _insertion_places(self, hunk: Hunk) -> list[int]:
        """Where lines may go that have no context: rule 9."""
        if self.reading.n == 0:
            return [0]
        if not self.reading.takes_any_line:
            return []  # the loose reading will take it
        if hunk.scopes:
            return [at + 1 for at in self.reading.scope_lines(hunk.scopes, 0)]
        return [self.reading.n] if hunk.at_end else []

    def _narrowed(self, number: int, places: list[int]) -> list[int]:
        """Rule 2."""
        shape = self.shapes[number - 1]
        before = max((n for n in self.spots if n < number), default=0)
        after = min((n for n in self.spots if n > number), default=0)
        start = self.spots[before].end if before else 0
        end = self.spots[after].start if after else self.reading.n
        size = len(shape.old) - shape.n_after
        left = [at for at in places if at + shape.n_before >= start and at + size <= end]
        if shape.hunk.scopes:
            at = 0 if shape.old else -1
            return [
                place for place in left if self.reading.is_inside(place + at, shape.hunk.scopes)
            ]
        if not shape.states_line:
            return left
        shifts = {self.spots[n].shift for n in (before, after) if n} or {0}
        if len(shifts) > 1 or (shifts != {0} and not (before and after)):
            return []  # lines were added or removed nearby, and it is unknown on which side
        return [at for at in left if at - shape.stated in shifts]

    def _check_places(self) -> None:
        """Take back places where the hunk is already applied, or changes what another does."""
        for number, spot in list(self.spots.items()):
            applied = self._applied_at(spot)
            if applied is None:
                applied = self._applied_elsewhere(number, spot)
            if applied is not None:
                self._fail(number, _already_applied(spot.shape, applied))
        self._check_order()

    def _check_order(self) -> None:
        """Rule 8: refuse hunks that overlap, or are in another order than they say."""
        ordered = sorted(self.spots.items(), key=_by_position)
        for (one, spot), (other, next_spot) in pairwise(ordered):
            if spot.end > next_spot.start:
                later, earlier = max(one, other), min(one, other)
                self._fail(later, f"changes the same lines as hunk {earlier}; make them one hunk")
            elif one > other and not spot.shape.stated < next_spot.shape.stated:
                self._fail(one, _out_of_order(spot, other))

    def _fail(self, number: int, problem: str) -> None:
        self.spots.pop(number, None)
        self.failures[number] = _Failure(number, self.shapes[number - 1], problem)

    def _reason_for_none(self, shape: _Shape) -> str:
        if not shape.old:
            return "has no line of context or no '@@' line that stands once in the file"
        places = self.reading.places(shape.old)
        if shape.is_lost(is_loose=self.reading.is_loose) or not places:
            return ""
        where = _lines_named(places)
        if shape.at_end:
            return f"is marked as the end of the file, but its lines are at {where}"
        side, end = ("before", "start") if shape.n_before == 0 else ("after", "end")
        return (
            f"has no context {side} its changes, so it belongs at the {end} of the file, but its"
            f" lines are at {where}; if that is meant, add the lines {side} them as context"
        )

    # -------------------------------------------------------------------- rule 6 in particular

    def _applied_at(self, spot: _Spot) -> int | None:
        """Where the new lines of an insertion already are, right at its place."""
        shape = spot.shape
        if not shape.only_inserts or self.reading.n == 0:
            return None
        n_top, n_bottom = spot.ignored
        new = shape.new[n_top : len(shape.new) - n_bottom]
        from_start = spot.at + n_top
        from_end = spot.at + len(shape.old) - n_bottom - len(new)
        fitting = (at for at in (from_start, from_end) if self.reading.fits(new, at))
        at = next(fitting, None)
        return None if at is None else at - n_top

    def _applied_elsewhere(self, number: int, spot: _Spot) -> int | None:
        """Where the new lines are, if that place is closer to what the ``@@`` lines say."""
        shape, hunk = spot.shape, spot.shape.hunk
        if not shape.new or not shape.old or spot.ignored != (0, 0):
            return None
        if hunk.scopes and not self.reading.is_inside(spot.at, hunk.scopes):
            inside = (
                at for at in self._applied_places(shape) if self.reading.is_inside(at, hunk.scopes)
            )
            return next(inside, None)
        if not shape.states_line:
            return None
        before = max((n for n in self.spots if n < number), default=0)
        shifts = {0, self.spots[before].shift if before else 0}
        distance = min(abs(spot.at - shape.stated - shift) for shift in shifts)
        if distance == 0:
            return None
        stated = {shape.stated + shift for shift in shifts}
        if hunk.new_start is not None:
            stated.add(max(0, hunk.new_start - 1))
        for at in self._applied_places(shape):
            overlaps = at < spot.at + len(shape.old) and spot.at < at + len(shape.new)
            if not overlaps and min(abs(at - place) for place in stated) <= (
                distance if _is_telling(shape) else 0
            ):
                return at
        return None

    def _applied_places(self, shape: _Shape) -> list[int]:
        """Where the new lines stand, if these say anything."""
        if not shape.new or not (shape.adds or min(shape.n_before, shape.n_after) > 0):
            return []
        if shape.at_end:
            at = self.reading.n - len(shape.new)
            return [at] if self.reading.fits(shape.new, at) else []
        return self.reading.places(shape.new)

    # -------------------------------------------------------------------------- rules 4 and 5

    def place_inexactly(self) -> bool:
        """Find places for the hunks that have no exact one; whether all hunks have one then."""
        plain = _Attempt(
            self.reading.plain(), [shape.compared(plain_line) for shape in self.shapes]
        )
        for number in self._not_found:
            shape = self.shapes[number - 1]
            spot, problem = plain.inexact_spot(number) if shape.old else (None, "")
            if spot is not None and not shape.mixes_line_ends:
                self.spots[number] = _Spot(shape, spot.at, spot.ignored)
                del self.failures[number]
            elif problem:
                self._fail(number, problem)
        self._check_order()
        return not self.failures

    def inexact_spot(self, number: int) -> tuple[_Spot | None, str]:
        """The only place of a hunk in this, the plain reading; or else why there is none."""
        shape = self.shapes[number - 1]
        if shape.old == shape.new:
            return None, ""  # it changes only what this reading leaves out
        if applied := self._applied_places(shape):
            return None, _already_applied(shape, applied[0])
        found = dict.fromkeys(self._places(shape), (0, 0)) or self._fuzzy_places(shape)
        if len(found) > 1:
            return None, _several([at + n_top for at, (n_top, _) in sorted(found.items())])
        for at, ignored in found.items():
            spot = _Spot(shape, at, ignored)
            if (applied_at := self._applied_at(spot)) is not None:
                return None, _already_applied(shape, applied_at)
            if ignored != (0, 0) and not self._is_evident(spot):
                return None, ""
            first = at + ignored[0]
            if ignored == (0, 0) or self.reading.is_inside(first, shape.hunk.scopes):
                return spot, ""
        return None, ""

    def _fuzzy_places(self, shape: _Shape) -> dict[int, tuple[int, int]]:
        """Every place that is possible with fuzz, with the fewest lines ignored there."""
        found: dict[int, tuple[int, int]] = {}
        for n_top, n_bottom in shape.trims():
            kept = shape.old[n_top : len(shape.old) - n_bottom]
            places = [at - n_top for at in self.reading.places(kept)]
            for at in self._at_their_end(shape, places):
                found.setdefault(at, (n_top, n_bottom))
        return found

    def _is_evident(self, spot: _Spot) -> bool:
        """Whether what is left of a fuzzy hunk shows that this is its place: rule 5."""
        shape = spot.shape
        n_top, n_end = spot.ignored[0], len(shape.old) - spot.ignored[1]
        kept = [line for line in shape.old[n_top:n_end] if line.strip()]
        above = self.reading.between(spot.at + n_top - _NEARBY, spot.at + n_top)
        below = self.reading.between(spot.at + n_end, spot.at + n_end + _NEARBY)
        if any(_holds(above, run) or _holds(below, run) for run in shape.added_runs):
            return False  # the edit is there already, or a part of it
        ignored_above = [line for line in shape.old[:n_top] if line.strip()]
        ignored_below = [line for line in shape.old[n_end:] if line.strip()]
        n_nearby = sum(line in above for line in ignored_above)
        n_nearby += sum(line in below for line in ignored_below)
        n_missing = len(ignored_above) + len(ignored_below) - n_nearby
        n_telling = n_nearby + sum(self.reading.is_unique(line) for line in kept)
        n_elsewhere = self.reading.n_alike_elsewhere(shape.old, spot.at)
        n_allowed = len(kept) - max(1, n_missing)
        return n_telling >= _MIN_TELLING + n_missing and n_elsewhere <= n_allowed

    # ------------------------------------------------------------------------------ the result

    def result(self, *, final_newline: bool | None = None) -> Placed:
        """The content with all hunks in.

        Args:
            final_newline: Whether the content ended with one before; ``None``: as read.
        """
        ordered = [spot for _, spot in sorted(self.spots.items(), key=_by_position)]
        lines: list[bytes] = []
        ranges: list[LineRange] = []
        at = 0
        for spot in ordered:
            lines += self.reading.lines[at : spot.start]
            replaced, at = _replaced(self.reading, spot.shape.changes, spot.start)
            ranges.append(LineRange(len(lines) + 1, len(replaced)))
            lines += replaced
        lines += self.reading.lines[at:]
        last = ordered[-1]
        is_last = last.at + len(last.shape.old) == self.reading.n
        changed = last.shape.final_newline() if is_last else None
        if final_newline is None:
            final_newline = self.reading.ends_with_newline
        return Placed(
            self.reading.compose(
                lines, final_newline=final_newline if changed is None else changed
            ),
            max(abs(spot.shift) for spot in ordered),
            tuple(ranges),
            tuple(number for spot in ordered for number in spot.ignored_lines()),
            tuple(self._notes(ordered)),
        )

    def _notes(self, spots: Sequence[_Spot]) -> Iterable[str]:
        """What differs between the file and what was expected of it, apart from fuzz."""
        differing: dict[str, list[int]] = {}
        for spot in spots if self.reading.is_loose else ():
            at = spot.at
            n_top, n_bottom = spot.ignored
            body = spot.shape.hunk.body
            for n, line in enumerate(body):
                if line.startswith(b"+"):
                    continue
                if n_top <= n < len(body) - n_bottom:
                    for kind in kinds_of_difference(line[1:], self.reading.lines[at]):
                        differing.setdefault(kind, []).append(spot.shape.hunk.body_line + n)
                at += 1
        for kind, numbers in differing.items():
            where = "" if kind == _LINE_ENDINGS else f" ({_numbers('patch line', numbers)})"
            verb = "differs" if kind in _SINGULAR else "differ"
            yield f"matched although {kind} {verb}{where}"
        for spot in spots:
            scopes = spot.shape.hunk.scopes
            if scopes and spot.shape.old and not self.reading.is_inside(spot.at, scopes):
                yield f"not below {_quoted(scopes)}: the only place with these lines is elsewhere"


def _by_position(item: tuple[int, _Spot]) -> tuple[int, int]:
    return item[1].start, item[0]


def _replaced(reading: Reading, changes: Sequence[bytes], at: int) -> tuple[list[bytes], int]:
    """The lines that *changes* make of those from *at* on, and how far they reach."""
    lines: list[bytes] = []
    for line in changes:
        if line.startswith(b"+"):
            lines.append(reading.added(line[1:], at))
            continue
        if line.startswith(b" "):
            lines.append(reading.lines[at])
        at += 1
    return lines, at


def _holds(lines: Sequence[bytes], run: Sequence[bytes]) -> bool:
    """Whether *run* stands in *lines*, and is more than one line, which may stand anywhere."""
    n = len(run)
    return (
        n > 1
        and any(map(bytes.strip, run))
        and any(lines[at : at + n] == run for at in range(len(lines) - n + 1))
    )


def _is_telling(shape: _Shape) -> bool:
    """Whether the new lines are more than what may stand anywhere."""
    context = (*shape.body[: shape.n_before], *shape.body[len(shape.body) - shape.n_after :])
    return any(line.strip() for line in context)


# --------------------------------------------------------------------------------- in words


def _several(places: Sequence[int]) -> str:
    return f"fits equally well at {_lines_named(places)}; add context to tell them apart"


def _out_of_order(spot: _Spot, other: int) -> str:
    return (
        f"fits at line {spot.at + spot.ignored[0] + 1} only, which is above hunk {other};"
        " put the hunks in the order of the file"
    )


def _already_applied(shape: _Shape, at: int) -> str:
    first, last = at + shape.n_before + 1, at + len(shape.new) - shape.n_after
    where = f"line {first}" if first >= last else f"lines {first} to {last}"
    return f"already applied: its result is at {where}; if another place is meant, add context"


def _lines_named(places: Sequence[int]) -> str:
    return _numbers("line", [at + 1 for at in places])


def _numbers(noun: str, numbers: Sequence[int]) -> str:
    named = ", ".join(map(str, numbers[:_MAX_PLACES_NAMED]))
    more = ", …" if len(numbers) > _MAX_PLACES_NAMED else ""
    return f"{noun}{'s' if len(numbers) > 1 else ''} {named}{more}"


def _quoted(scopes: Sequence[bytes]) -> str:
    return " and ".join(repr(scope.decode("utf-8", "replace")) for scope in scopes)
