"""The lines of a file in which the places of hunks are looked for.

Everything here is charged to an ``Effort``, for both the file and the patch may be made to
take long.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from io import BytesIO
from itertools import accumulate

from wink_workspace.errors import PatchError

__all__ = ["Effort", "Reading", "loose_line"]

_MAX_PLACES = 1_000
_STEP = 400
_LINE = 100
_BOM = b"\xef\xbb\xbf"


class Effort:
    """A bound on the searching for one patch, so that a hostile one ends soon.

    The unit is a few nanoseconds: 4 bytes searched through, or a hundredth of a line looked at.
    """

    def __init__(self, budget: int = 40_000_000) -> None:
        self._left = budget

    def allow(self, data: bytes) -> None:
        """Add what it costs to read a file and search through it a few times."""
        self._left += 5 * (len(data) // 4 + _LINE * data.count(b"\n"))

    def affords(self, cost: int) -> bool:
        """Charge for something that may be left out; whether enough was left."""
        if cost <= self._left:
            self._left -= cost
            return True
        return False

    def spend(self, cost: int) -> None:
        """Charge for a step.

        Raises:
            PatchError: If not enough is left.
        """
        if not self.affords(cost):
            raise PatchError(
                "finding the places of the hunks takes too long; no file was changed",
                hint="Give right line numbers or more context, and change each file only once.",
            )


def loose_line(line: bytes) -> bytes:
    """A line as the loose reading compares it: without byte order mark, ended by a newline."""
    return line.removesuffix(b"\n").removesuffix(b"\r").removeprefix(_BOM) + b"\n"


class Reading:
    r"""A file's lines, as they are and as they are compared.

    The exact reading compares them as they are. The loose one knows no byte order mark and
    only one kind of line end, and the file always ends with one; ``compose`` puts things
    right again.
    """

    def __init__(
        self, lines: Sequence[bytes], effort: Effort, *, mark: bytes = b"", is_loose: bool = False
    ) -> None:
        effort.spend(_LINE * len(lines))
        self.lines = lines
        self.n = len(lines)
        self.is_loose = is_loose
        self._mark = mark
        self._effort = effort
        self._keys = [loose_line(line) for line in lines] if is_loose else lines
        # A newline and some lines are found in this only where a line begins, and the index
        # of that newline is where the line would start without the newline at the front.
        self._text = b"\n" + b"".join(self._keys)
        self._starts = list(accumulate(map(len, self._keys), initial=0))

    @classmethod
    def exact(cls, data: bytes, effort: Effort) -> Reading:
        """The lines as they are."""
        return cls(BytesIO(data).readlines(), effort)

    @property
    def ends_with_newline(self) -> bool:
        """Whether the last line, if there is one, has a line end."""
        return self.n == 0 or self.lines[-1].endswith(b"\n")

    @property
    def takes_any_line(self) -> bool:
        """Whether a line that ends with a newline can be put anywhere and fits its neighbours."""
        return self.is_loose or (self.ends_with_newline and b"\r\n" not in self._text)

    def loose(self) -> Reading:
        """The loose reading of the same file; of this, the exact one."""
        lines = list(self.lines)
        mark = _BOM if lines and lines[0].startswith(_BOM) else b""
        if lines:
            lines[0] = lines[0].removeprefix(mark)
        if not self.ends_with_newline:
            lines[-1] += self.line_end(self.n - 1)
        return Reading(lines, self._effort, mark=mark, is_loose=True)

    def line_end(self, at: int) -> bytes:
        """The line end of the line before the one at *at*, or of the first."""
        line = self.lines[max(0, at - 1)] if self.n else b""
        return b"\r\n" if line.endswith(b"\r\n") else b"\n"

    def added(self, line: bytes, at: int) -> bytes:
        """*line* as it is put before the one at *at*."""
        return line[:-1] + self.line_end(at) if self.is_loose else line

    def compose(self, lines: Sequence[bytes], *, final_newline: bool) -> bytes:
        """The content that consists of *lines*, some of them this file's own."""
        data = b"".join(lines)
        if self.is_loose and not final_newline:
            data = data.removesuffix(b"\n").removesuffix(b"\r")
        return self._mark + data

    # ----------------------------------------------------------------------------- searching

    def fits(self, old: Sequence[bytes], at: int) -> bool:
        """Whether the lines from *at* on are *old*."""
        if not 0 <= at <= self.n - len(old):
            return False
        wanted = b"\n" + b"".join(old)
        self._effort.spend(_STEP + len(wanted) // 4)
        same_length = self._starts[at + len(old)] - self._starts[at] == len(wanted) - 1
        return same_length and self._text.startswith(wanted, self._starts[at])

    def places(self, old: Sequence[bytes], first: int) -> list[int]:
        """Where *old* stands, at the line *first* or later; the first 1,000 places at most."""
        wanted = b"\n" + b"".join(old)
        found: list[int] = []
        at = self._find(wanted, first, self.n)
        while at is not None and len(found) < _MAX_PLACES:
            found.append(at)
            at = self._find(wanted, at + 1, self.n)
        return found

    def nearest(self, old: Sequence[bytes], guess: int, first: int) -> list[int]:
        """The place of *old* nearest to *guess*, at *first* or later; two if equally near."""
        wanted = b"\n" + b"".join(old)
        after = self._find(wanted, max(first, guess), self.n)
        if after is None:
            before = self._find_last(wanted, first, guess)
            return [] if before is None else [before]
        before = self._find_last(wanted, max(first, 2 * guess - after), guess)
        if before is None:
            return [after]
        return [before, after] if guess - before == after - guess else [before]

    def _find_last(self, wanted: bytes, first: int, end: int) -> int | None:
        # Not with rfind: unlike find it may take a time that grows with both lengths.
        last: int | None = None
        at = self._find(wanted, first, end)
        while at is not None:
            last = at
            at = self._find(wanted, at + 1, end)
        return last

    def _find(self, wanted: bytes, first: int, end: int) -> int | None:
        """The first line from *first* to before *end* at which *wanted* begins."""
        end = min(end, self.n)
        if first >= end:
            return None
        start, stop = self._starts[first], self._starts[end - 1] + len(wanted)
        at = self._text.find(wanted, start, stop)
        self._effort.spend(_STEP + (len(wanted) + (stop if at == -1 else at) - start) // 4)
        return None if at == -1 else bisect_left(self._starts, at)

    # -------------------------------------------------------------------------------- scopes

    def is_inside(self, at: int, scopes: Sequence[bytes]) -> bool:
        """Whether the line at *at*, or lines that it is indented below, are *scopes*.

        Empty lines from *at* on are passed over; other lines may lie between the scopes.
        """
        at = self._first_with_text(at)
        wanted = list(scopes)
        while at >= 0 and wanted:
            self._effort.spend(_STEP)
            if _is_scope(self._keys[at], wanted[-1]):
                wanted.pop()
            at = self._parents[at]
        return not wanted

    def follows(self, at: int, scopes: Sequence[bytes]) -> bool:
        """Whether *scopes* stand above the line at *at*, in order, and it is not indented more.

        For flat text, where nothing is inside of anything. A line that is indented more than
        a scope it is not in belongs to another one.
        """
        self._effort.spend(_LINE * at)
        at = self._first_with_text(at)
        wanted = list(reversed(scopes))
        indentation = -1
        for line in self._keys[:at]:
            if wanted and _is_scope(line, wanted[-1]):
                wanted.pop()
                indentation = _indentation(line)
        return not wanted and _indentation(self._keys[at]) <= indentation

    def _first_with_text(self, start: int) -> int:
        at = start
        while at < self.n - 1 and not self._keys[at].strip():
            at += 1
        self._effort.spend(_LINE * (at - start))
        return at

    def scope_lines(self, scopes: Sequence[bytes], first: int) -> list[int]:
        """The lines from *first* on that are the last of *scopes* and stand in the others."""
        self._effort.spend(2 * _LINE * self.n)
        return [
            at
            for at in range(first, self.n)
            if _is_scope(self._keys[at], scopes[-1]) and self.is_inside(at, scopes)
        ]

    @cached_property
    def _parents(self) -> list[int]:
        """For each line the nearest one above that is indented less, or -1."""
        self._effort.spend(2 * _LINE * self.n)
        parents: list[int] = []
        outer: list[tuple[int, int]] = [(-1, -1)]  # indentation and index, ever deeper
        for at, line in enumerate(self._keys):
            indentation = _indentation(line)
            counts = line.strip() not in (b"", b"{")  # these neither begin nor end a scope
            while counts and outer[-1][0] >= indentation:
                outer.pop()
            parents.append(outer[-1][1])
            if counts:
                outer.append((indentation, at))
        return parents


def _indentation(line: bytes) -> int:
    return len(line) - len(line.lstrip(b" \t"))


def _is_scope(line: bytes, scope: bytes) -> bool:
    """Whether *line* is *scope*, or begins with it and not in the middle of a word."""
    line = line.strip()
    rest = line[len(scope) : len(scope) + 1]
    return line.startswith(scope) and not rest.isalnum() and rest != b"_"
