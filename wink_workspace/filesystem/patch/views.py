"""Views of the lines of a file, for finding the lines of a hunk.

All work is charged to an ``Effort``, since a hostile file or patch can make it expensive.
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

_MAX_PLACES = 1_000
_STEP = 400
_NO_HEADING = b"_\"'()]{}@$ \t"
_LINE = 100
_BOM = b"\xef\xbb\xbf"


class Effort:
    """A limit on the work for one patch, so that a hostile patch ends soon.

    The unit is a few nanoseconds: 4 searched bytes, or a hundredth of a compared line.
    """

    def __init__(self, budget: int = 40_000_000) -> None:
        self._left = budget

    def allow(self, data: bytes) -> None:
        """Add the cost of reading a file and searching it a few times."""
        self._left += 5 * (len(data) // 4 + _LINE * data.count(b"\n"))

    def affords(self, cost: int) -> bool:
        """Charge for an optional step; whether enough was left for it."""
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
                "finding where the hunks belong takes too long; no file was changed",
                hint="Give correct line numbers or more context, and change each file only once.",
            )


def loose_line(line: bytes) -> bytes:
    """A line for the loose view: without byte order mark and carriage return, with a newline."""
    return line.removesuffix(b"\n").removesuffix(b"\r").removeprefix(_BOM) + b"\n"


class FileView:
    r"""The lines of a file, and the keys by which they are compared.

    The exact view compares the lines as they are. The loose view ignores the byte order mark,
    the kind of line end and a missing final newline; ``compose`` restores them. The plain view
    also ignores what ``plain_line`` removes.
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
        # A search for a newline and some lines finds only starts of lines. The index of that
        # newline is the start of the line in the text without the newline at the front.
        self._text = b"\n" + b"".join(self._keys)
        self._starts = list(accumulate(map(len, self._keys), initial=0))

    @classmethod
    def exact(cls, data: bytes, effort: Effort) -> FileView:
        """The exact view."""
        return cls(BytesIO(data).readlines(), effort)

    @property
    def ends_with_newline(self) -> bool:
        """Whether the last line, if there is one, has a line end."""
        return self.n == 0 or self.lines[-1].endswith(b"\n")

    @property
    def takes_any_line(self) -> bool:
        r"""Whether a line that ends with ``\n`` can be inserted anywhere."""
        return self.is_loose or (self.ends_with_newline and b"\r\n" not in self._text)

    def loose(self) -> FileView:
        """The loose view of the same file; call it on the exact view."""
        lines = list(self.lines)
        mark = _BOM if lines and lines[0].startswith(_BOM) else b""
        if lines:
            lines[0] = lines[0].removeprefix(mark)
        if not self.ends_with_newline:
            lines[-1] += self.line_end(self.n - 1)
        return FileView(lines, self._effort, mark=mark, key=loose_line)

    def plain(self) -> FileView:
        """The plain view of the same lines."""
        return FileView(self.lines, self._effort, mark=self._mark, key=plain_line)

    def line_end(self, at: int) -> bytes:
        """The line end of the line before the index *at*, or of the first line."""
        line = self.lines[max(0, at - 1)] if self.n else b""
        return b"\r\n" if line.endswith(b"\r\n") else b"\n"

    def added(self, line: bytes, at: int) -> bytes:
        """*line* with the line end for inserting it at the index *at*."""
        return line[:-1] + self.line_end(at) if self.is_loose else line

    def compose(self, lines: Sequence[bytes], *, final_newline: bool) -> bytes:
        """The content with these *lines*, and with the byte order mark of the file."""
        data = b"".join(lines)
        if self.is_loose and not final_newline:
            data = data.removesuffix(b"\n").removesuffix(b"\r")
        return self._mark + data

    # ----------------------------------------------------------------------------- searching

    def fits(self, old: Sequence[bytes], at: int) -> bool:
        """Whether the lines from the index *at* on are *old*."""
        if not 0 <= at <= self.n - len(old):
            return False
        wanted = b"\n" + b"".join(old)
        self._effort.spend(_STEP + len(wanted) // 4)
        same_length = self._starts[at + len(old)] - self._starts[at] == len(wanted) - 1
        return same_length and self._text.startswith(wanted, self._starts[at])

    def places(self, old: Sequence[bytes]) -> list[int]:
        """The indexes at which *old* is found; at most the first 1,000."""
        wanted = b"\n" + b"".join(old)
        found: list[int] = []
        at = self._find(wanted, 0, self.n)
        while at is not None and len(found) < _MAX_PLACES:
            found.append(at)
            at = self._find(wanted, at + 1, self.n)
        return found

    def between(self, first: int, end: int) -> Sequence[bytes]:
        """The keys of the lines from *first* to before *end*, as far as they exist."""
        first, end = max(0, first), min(end, self.n)
        self._effort.spend(_LINE * max(0, end - first))
        return self._keys[first:end]

    def is_unique(self, line: bytes) -> bool:
        """Whether *line* is in the file exactly once."""
        return self._counts[line] == 1

    @cached_property
    def _counts(self) -> Counter[bytes]:
        self._effort.spend(_LINE * self.n)
        return Counter(self._keys)

    def n_alike_elsewhere(self, old: Sequence[bytes], at: int) -> int:
        """The most lines of *old* that are close together elsewhere than at the index *at*.

        Ignores blank lines, white space and order.
        """
        self._effort.spend(2 * _LINE * self.n)
        missing = Counter(map(_without_spaces, old))
        del missing[b""]
        keys = [
            b"" if at <= n < at + len(old) else _without_spaces(key)
            for n, key in enumerate(self._keys)
        ]
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
        """Whether *scopes* are among the line at *at* and the lines that enclose it by indentation.

        Empty lines from *at* on are skipped; other lines may be between the scopes. In flat
        text, a heading (a line that begins with a sign such as ``#`` or ``[``) encloses all
        lines up to the next line that begins with the same sign.
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
        """The index of the heading above the line *at*, if that is *scope*."""
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
        """The lines from *first* on that are the last of *scopes* and inside of the others."""
        self._effort.spend(2 * _LINE * self.n)
        return [
            at
            for at in range(first, self.n)
            if _is_scope(self._keys[at], scopes[-1]) and self.is_inside(at, scopes)
        ]

    @cached_property
    def _parents(self) -> list[int]:
        """For each line, the index of the nearest line above that is indented less, or -1."""
        self._effort.spend(2 * _LINE * self.n)
        parents: list[int] = []
        outer: list[tuple[int, int]] = [(-1, -1)]  # indentation and index of the enclosing lines
        for at, line in enumerate(self._keys):
            indentation = _indentation(line)
            counts = line.strip() not in (b"", b"{")  # such lines neither begin nor end a scope
            while counts and outer[-1][0] >= indentation:
                outer.pop()
            parents.append(outer[-1][1])
            if counts:
                outer.append((indentation, at))
        return parents


def _without_spaces(line: bytes) -> bytes:
    """The line without white space."""
    return b"".join(line.split())


def _indentation(line: bytes) -> int:
    return len(line) - len(line.lstrip(b" \t"))


def _is_scope(line: bytes, scope: bytes) -> bool:
    """Whether *line* begins with *scope*, and the first word after it is a new one."""
    line = line.strip()
    rest = line[len(scope) : len(scope) + 1]
    return line.startswith(scope) and not rest.isalnum() and rest != b"_"
