"""The lines of a file in which the places of hunks are looked for.

Everything here is charged to an ``Effort``, for both the file and the patch may be made to
take long.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from io import BytesIO
from itertools import accumulate

from wink_workspace.errors import PatchError
from wink_workspace.filesystem.lookalikes import plain_line

__all__ = ["Effort", "Reading", "loose_line"]

_MAX_PLACES = 1_000
_STEP = 400
_NO_HEADING = b"_\"'()]{}@$ \t"
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
    only one kind of line end, and the file always ends with one; ``compose`` restores what it
    left out. The plain one also compares lines without what only looks different.
    """

    def __init__(
        self,
        lines: Sequence[bytes],
        effort: Effort,
        *,
        mark: bytes = b"",
        key: Callable[[bytes], bytes] | None = None,
    ) -> None:
        effort.spend(_LINE * len(lines))
        self.lines = lines
        self.n = len(lines)
        self.is_loose = key is not None
        self._mark = mark
        self._effort = effort
        self._keys = lines if key is None else [key(line) for line in lines]
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
        return Reading(lines, self._effort, mark=mark, key=loose_line)

    def plain(self) -> Reading:
        """The plain reading of the same lines."""
        return Reading(self.lines, self._effort, mark=self._mark, key=plain_line)

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

    def places(self, old: Sequence[bytes]) -> list[int]:
        """Where *old* stands; the first 1,000 places at most."""
        wanted = b"\n" + b"".join(old)
        found: list[int] = []
        at = self._find(wanted, 0, self.n)
        while at is not None and len(found) < _MAX_PLACES:
            found.append(at)
            at = self._find(wanted, at + 1, self.n)
        return found

    def between(self, first: int, end: int) -> Sequence[bytes]:
        """The compared lines from *first* to before *end*, as many as there are."""
        first, end = max(0, first), min(end, self.n)
        self._effort.spend(_LINE * max(0, end - first))
        return self._keys[first:end]

    def is_unique(self, line: bytes) -> bool:
        """Whether *line* stands only once."""
        return self._counts[line] == 1

    @cached_property
    def _counts(self) -> Counter[bytes]:
        self._effort.spend(_LINE * self.n)
        return Counter(self._keys)

    def n_alike_elsewhere(self, old: Sequence[bytes], at: int) -> int:
        """How many lines of *old* stand close together outside the place at *at*, at most.

        Blank lines do not count, nor do white space and order.
        """
        self._effort.spend(2 * _LINE * self.n)
        missing = Counter(map(_ink, old))
        del missing[b""]
        keys = [b"" if at <= n < at + len(old) else _ink(key) for n, key in enumerate(self._keys)]
        size = len(old) + 2
        n_found = most = 0
        for n, key in enumerate(keys):
            if key in missing:
                n_found += missing[key] > 0
                missing[key] -= 1
            if n >= size and (left := keys[n - size]) in missing:
                missing[left] += 1
                n_found -= missing[left] > 0
            most = max(most, n_found)
        return most

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

        Empty lines from *at* on are passed over; other lines may lie between the scopes. In
        flat text a heading, which is a line that begins with a sign such as ``#`` or ``[``,
        reaches to the next one that begins with the same sign.
        """
        at = self._first_with_text(min(at, self.n - 1))
        wanted = list(scopes)
        while at >= 0 and wanted:
            self._effort.spend(_STEP)
            if _is_scope(self._keys[at], wanted[-1]):
                wanted.pop()
            elif (heading := self._heading(at, wanted[-1])) is not None:
                wanted.pop()
                at = heading
            at = self._parents[at]
        return not wanted

    def _heading(self, at: int, scope: bytes) -> int | None:
        """The heading over the line at *at*, if that is *scope*."""
        sign = scope[:1]
        if sign.isalnum() or sign in _NO_HEADING:
            return None
        while at >= 0 and not self._keys[at].startswith(sign):
            self._effort.spend(_LINE)
            at -= 1
        return at if at >= 0 and _is_scope(self._keys[at], scope) else None

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


def _ink(line: bytes) -> bytes:
    """The line without white space."""
    return b"".join(line.split())


def _indentation(line: bytes) -> int:
    return len(line) - len(line.lstrip(b" \t"))


def _is_scope(line: bytes, scope: bytes) -> bool:
    """Whether *line* is *scope*, or begins with it and not in the middle of a word."""
    line = line.strip()
    rest = line[len(scope) : len(scope) + 1]
    return line.startswith(scope) and not rest.isalnum() and rest != b"_"
