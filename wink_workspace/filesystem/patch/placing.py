"""Finding where the hunks of one file belong, and putting them in.

The rules are GNU patch's, made stricter wherever two places would do:

1. A hunk stands where it says, moved by as much as the hunk before it was.
2. Otherwise it stands at the nearest place where all its old lines are; two places equally
   near are an error. A hunk with more context on one side of its changes than on the other
   (in a real diff it touches an end of the file) may stand at that end or where it says, if
   not both fit; else, like a hunk that does not say where, it must have one place only.
3. Otherwise the outermost line of its longer context is ignored, then two, as long as old
   lines are left; again there must be one place only.
4. If not all hunks of a file can be placed, all are tried with the loose reading of the file,
   for patches written by those who see lines only: the byte order mark and line ends do not
   count and stay as they are, and added lines get the line end of the line before.

"One place only" is counted from the hunk before it: hunks come in the order of the file.
Context is compared and then left alone, never rewritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wink_workspace.filesystem.nearest import excerpt, nearest_place

from .parts import Hunk
from .reading import Effort, Reading, loose_line

__all__ = ["Misfit", "Placed", "place_hunks"]

_MAX_FUZZ = 2
_MAX_PLACES_NAMED = 8


@dataclass(frozen=True, slots=True)
class Misfit:
    """A hunk without a place: its number in the file (from 1) and what is wrong with it."""

    number: int
    hunk: Hunk
    problem: str


@dataclass(frozen=True, slots=True)
class Placed:
    """A file's content with all hunks in; the numbers are those of ``PatchedFile``."""

    data: bytes
    offset_lines: int = 0
    fuzz: int = 0


def place_hunks(data: bytes, hunks: Sequence[Hunk], effort: Effort) -> Placed | tuple[Misfit, ...]:
    """Put *hunks* into *data*, or tell of each that does not fit.

    Raises:
        PatchError: If it takes more than *effort* allows.
    """
    exact = _Attempt(Reading.exact(data, effort), [_Shape.of(hunk, hunk.body) for hunk in hunks])
    attempts = [exact, exact.loose()] if _loose_may_differ(data, hunks) else [exact]
    for max_fuzz in (0, _MAX_FUZZ):
        for attempt in attempts:
            attempt.run(max_fuzz)
            if not attempt.failures:
                return attempt.result(final_newline=exact.reading.ends_with_newline)
    last = attempts[-1]
    return tuple(failure.explained(last.reading, effort) for failure in last.failures)


def _loose_may_differ(data: bytes, hunks: Sequence[Hunk]) -> bool:
    def is_special(text: bytes) -> bool:
        return b"\r" in text or b"\xef\xbb\xbf" in text or not text.endswith(b"\n")

    return is_special(data) or any(is_special(line) for hunk in hunks for line in hunk.body)


@dataclass(frozen=True, slots=True)
class _Shape:
    """A hunk taken apart: its old lines, and how much context is around all changes.

    ``at_end``: the last old line is the last one of the file.
    """

    hunk: Hunk
    body: Sequence[bytes]
    old: Sequence[bytes]
    n_before: int
    n_after: int
    at_end: bool

    @classmethod
    def of(cls, hunk: Hunk, body: Sequence[bytes]) -> _Shape:
        n_before = next(n for n, line in enumerate(body) if not line.startswith(b" "))
        n_after = next(n for n, line in enumerate(reversed(body)) if not line.startswith(b" "))
        old = [line[1:] for line in body if not line.startswith(b"+")]
        at_end = hunk.at_end or _lacks_newline(hunk, b" -")
        return cls(hunk, body, old, n_before, n_after, at_end)

    def loose(self) -> _Shape:
        return _Shape.of(self.hunk, [line[:1] + loose_line(line[1:]) for line in self.body])

    @property
    def max_fuzz(self) -> int:
        return max(self.n_before, self.n_after)

    @property
    def changes(self) -> Sequence[bytes]:
        """The body without the context around all changes."""
        return self.body[self.n_before : len(self.body) - self.n_after]

    def ignored(self, fuzz: int) -> tuple[int, int]:
        """How many lines are ignored at the start and at the end."""
        n_both = fuzz - self.max_fuzz
        return max(0, n_both + self.n_before), max(0, n_both + self.n_after)

    def final_newline(self) -> bool | None:
        """Whether it adds (or else removes) the file's final newline; ``None``: neither."""
        old_lacks = _lacks_newline(self.hunk, b" -")
        return None if old_lacks == _lacks_newline(self.hunk, b" +") else old_lacks


def _lacks_newline(hunk: Hunk, signs: bytes) -> bool:
    return any(line[:1] in signs and not line.endswith(b"\n") for line in hunk.body)


@dataclass(frozen=True, slots=True)
class _Spot:
    """A hunk's place: the index at which its first old line is or would be."""

    shape: _Shape
    at: int
    fuzz: int

    @property
    def offset_lines(self) -> int:
        stated = self.shape.hunk.old_start
        return self.at - max(0, stated - 1) if stated is not None else 0

    @property
    def end(self) -> int:
        return self.at + len(self.shape.old)


@dataclass(frozen=True, slots=True)
class _Failure:
    """A hunk that has no place (``places`` is empty) or several."""

    number: int
    shape: _Shape
    places: Sequence[int]

    def explained(self, reading: Reading, effort: Effort) -> Misfit:
        if self.places:
            named = ", ".join(str(at + 1) for at in self.places[:_MAX_PLACES_NAMED])
            more = ", …" if len(self.places) > _MAX_PLACES_NAMED else ""
            problem = f"fits equally well at lines {named}{more}; add context to tell them apart"
        elif not self.shape.old:
            problem = "has no line of context or no '@@' line that stands once in the file"
        elif effort.affords(200 * (reading.n + len(self.shape.old))):
            problem = self._comparison(reading)
        else:
            problem = "does not match"
        return Misfit(self.number, self.shape.hunk, problem)

    def _comparison(self, reading: Reading) -> str:
        lines = [line.decode("utf-8", "replace") for line in reading.lines]
        wanted = [line.decode("utf-8", "replace") for line in self.shape.old]
        expected = max(0, (self.shape.hunk.old_start or 1) - 1)
        text = excerpt(wanted, 0, len(wanted), numbered=False)
        problem = f"expected {_place_meant(self.shape.hunk)}\n{text}\n"
        at = nearest_place(lines, wanted, expected=expected)
        if at is None:
            return f"{problem}  but nothing like it is in the file"
        return f"{problem}  but there stands\n{excerpt(lines, at, len(wanted))}"


def _place_meant(hunk: Hunk) -> str:
    if hunk.scopes:
        scopes = (repr(scope.decode("utf-8", "replace")) for scope in hunk.scopes)
        return f"below {' and '.join(scopes)}"
    if hunk.old_start is not None:
        return f"near line {max(1, hunk.old_start)}"
    return "at the end of the file" if hunk.at_end else "somewhere"


class _Attempt:
    """All hunks of a file under one reading of it."""

    def __init__(self, reading: Reading, shapes: Sequence[_Shape]) -> None:
        self.reading = reading
        self.shapes = shapes
        self.spots: list[_Spot] = []
        self.failures: list[_Failure] = []

    def loose(self) -> _Attempt:
        """The same under the loose reading."""
        return _Attempt(self.reading.loose(), [shape.loose() for shape in self.shapes])

    def run(self, max_fuzz: int) -> None:
        """Find the places of all hunks."""
        self.spots, self.failures = [], []
        first = shift = 0
        for number, shape in enumerate(self.shapes, 1):
            places, fuzz = _find_one(self.reading, shape, max_fuzz, first, shift)
            if len(places) != 1:
                self.failures.append(_Failure(number, shape, places))
                continue
            spot = _Spot(shape, places[0], fuzz)
            self.spots.append(spot)
            first = spot.end - shape.n_after  # the next one may share the context between them
            shift = spot.offset_lines

    def result(self, *, final_newline: bool) -> Placed:
        """The content with all hunks in; *final_newline* tells if it ended with one so far."""
        lines: list[bytes] = []
        at = 0
        for spot in self.spots:
            start = spot.at + spot.shape.n_before
            lines += self.reading.lines[at:start]
            replaced, at = _replaced(self.reading, spot.shape.changes, start)
            lines += replaced
        lines += self.reading.lines[at:]
        last = self.spots[-1]
        changed = last.shape.final_newline() if last.end == self.reading.n else None
        return Placed(
            self.reading.compose(
                lines, final_newline=final_newline if changed is None else changed
            ),
            max(abs(spot.offset_lines) for spot in self.spots),
            max(spot.fuzz for spot in self.spots),
        )


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


# ------------------------------------------------------------------------------------- placing


def _find_one(
    reading: Reading, shape: _Shape, max_fuzz: int, first: int, shift: int
) -> tuple[list[int], int]:
    """The places that are equally good, with the least fuzz that gives any."""
    if not shape.old:
        return _insertion_places(reading, shape.hunk, first), 0
    if shape.hunk.old_start is not None and not shape.hunk.scopes and not shape.at_end:
        places = _stated_places(reading, shape, first, shift)
    else:
        places = _only_places(reading, shape, 0, first)
    fuzz = 0
    while not places and fuzz < min(max_fuzz, shape.max_fuzz):
        fuzz += 1
        places = _only_places(reading, shape, fuzz, first)
    return places, fuzz


def _insertion_places(reading: Reading, hunk: Hunk, first: int) -> list[int]:
    """Where lines may go that have no context."""
    if reading.n == 0:
        return [0]
    if not reading.takes_any_line:
        return []  # the loose reading will take it
    if hunk.scopes:
        return [at + 1 for at in reading.scope_lines(hunk.scopes, max(0, first - 1))]
    return [reading.n] if hunk.at_end else []


def _stated_places(reading: Reading, shape: _Shape, first: int, shift: int) -> list[int]:
    """Rules 1 and 2 for a hunk that says where it stands."""
    guess = max(0, (shape.hunk.old_start or 0) - 1) + shift
    fits = guess >= first and reading.fits(shape.old, guess)
    if shape.n_before == shape.n_after != 0:
        return [guess] if fits else reading.nearest(shape.old, guess, first)
    edge = 0 if shape.n_before < shape.n_after else reading.n - len(shape.old)
    touches_edge = (
        shape.n_before != shape.n_after and edge >= first and reading.fits(shape.old, edge)
    )
    near = {guess} if fits else set[int]()
    if touches_edge:
        near.add(edge)
    return sorted(near) or reading.places(shape.old, first)


def _only_places(reading: Reading, shape: _Shape, fuzz: int, first: int) -> list[int]:
    """All places that the scopes and the end of the file leave, so much context ignored."""
    n_top, n_bottom = shape.ignored(fuzz)
    old = shape.old[n_top : len(shape.old) - n_bottom]
    if not old:
        return []
    if shape.at_end:
        at = reading.n - n_bottom - len(old)
        return [at - n_top] if at >= first and reading.fits(old, at) else []
    places = reading.places(old, first)
    if shape.hunk.scopes and places:
        places = _in_scopes(reading, shape.hunk.scopes, places)
    return [at - n_top for at in places]


def _in_scopes(reading: Reading, scopes: Sequence[bytes], places: list[int]) -> list[int]:
    inside = [at for at in places if reading.is_inside(at, scopes)]
    if inside or len(places) > 1:
        return inside or places
    return places if reading.follows(places[0], scopes) else []
