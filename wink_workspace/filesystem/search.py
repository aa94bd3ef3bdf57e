"""Find files by glob and lines by regular expression, in bounded time.

Each segment of a glob pattern matches one name: ``*`` matches any characters, ``?`` one
character, ``[...]`` one of a set, and ``{a,b}`` are alternatives. A segment ``**`` matches any
number of directories, also none. Hidden names are not special, and case counts. A pattern is
matched as a set of positions (an automaton) during the walk, so the cost of a name is the
length of the pattern, whatever the number of ``**``.

Expressions are searched line by line. The ``regex`` package stops a search at a time limit.
Its work outside of this limit is bounded by the length of expressions and lines. Most files are
not searched at all: they contain none of the literals that the expression requires.
"""

from __future__ import annotations

import fnmatch
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO, Final, TypeAlias

from wink_workspace.clock import Clock
from wink_workspace.errors import (
    BinaryFileError,
    FilesystemError,
    LimitExceededError,
    PatternError,
    SearchTimeoutError,
)

from .model import FileKind, FileStat, FilesystemLimits, GrepMatch, GrepResult
from .paths import WorkspacePath, parse_path
from .text import TextPieces, line_blocks, without_escapes

if TYPE_CHECKING:
    import regex


# --------------------------------------------------------------------------------------- literals

# Literals that a regular expression requires: texts of which each match contains at least one.
#
# A file without any of them cannot match, which ``in`` finds out much faster than a search.
#
# Rule 1: when in doubt, there are no literals, and every line is searched. Only literal characters,
# escaped punctuation, ``.``, classes, groups without flags, look-arounds, anchors, quantifiers and
# alternatives are understood. Flags, back references, conditions, verbs and the like are not.
# Rule 2: a character that a quantifier may repeat zero times is not required; nor is the content of
# a group. Only the top level of the expression has alternatives.


_MAX_LITERALS: Final = 20

_TOKEN: Final = re.compile(
    r"""
      (?P<plain> [^\\.\[\](){}*+?|^$] )
    | \\ (?P<escaped> [^\w\s] )
    | (?P<one> \. | \\[wWdDsSbB] | \[ \^? \]? (?: [^\]\[\\] | \\[^pPNLxuU0-9] )* \] )
    | (?P<anchor> [\^$] )
    | (?P<open> \( (?: \?: | \?= | \?! | \?<= | \?<! | (?! [?*] ) ) )
    | (?P<close> \) )
    | (?P<or> \| )
    | (?P<many> [*+?][?+]? | \{ [0-9]* ,? [0-9]* \} [?+]? )
    """,
    re.VERBOSE,
)


def required_literals(pattern: str) -> tuple[str, ...]:
    """The longest literal of each alternative of *pattern*; none if one has no literal."""
    alternatives: list[str] = []
    best = run = ""
    depth = at = 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            return ()
        at, kind = token.end(), token.lastgroup
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth -= 1
            if depth < 0:
                return ()
        if depth == 0 and kind in ("plain", "escaped"):
            run += token[kind]
            continue
        if depth == 0 and kind == "many":
            run = run[:-1]  # it may be repeated zero times
        if len(run) > len(best):
            best = run
        run = ""
        if depth == 0 and kind == "or":
            alternatives.append(best)
            best = ""
    alternatives.append(max(best, run, key=len))
    if depth or not all(alternatives) or len(alternatives) > _MAX_LITERALS:
        return ()
    return tuple(dict.fromkeys(alternatives))


# ----------------------------------------------------------------------------------------- search


HEAD_BYTES: Final = 65_536
"""How much of a file is read first."""

Heads: TypeAlias = tuple[WorkspacePath, Sequence[str], Iterable[bytes | None]]
"""A directory, the names of files in it and, for each, the first ``HEAD_BYTES`` of its content.

A shorter head is the whole content. ``None`` means that the file cannot be read."""

_MAX_PATTERN_CHARS = 1_000
_MAX_ALTERNATIVES = 100
_MAX_SEARCHED_LINE_CHARS = 100_000


class SearchTimer:
    """Measures the time that is left for a search."""

    def __init__(self, clock: Clock, limit_s: float) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._end_s = clock.monotonic_s() + limit_s

    def left_s(self) -> float:
        """Seconds left, always more than 0.

        Raises:
            SearchTimeoutError: If the time is over.
        """
        left_s = self._end_s - self._clock.monotonic_s()
        if left_s <= 0:
            raise self.expired()
        return left_s

    def expired(self) -> SearchTimeoutError:
        """The error to raise when the time is over."""
        return SearchTimeoutError(f"the search took longer than {self._limit_s:g} s")


# Globs


@dataclass(frozen=True, slots=True)
class _Position:
    """A state of the automaton: the names that it accepts, and the states that follow."""

    takes: Callable[[str], object]
    leads_to: frozenset[int]


@dataclass(frozen=True, slots=True)
class GlobPattern:
    """A parsed glob, made by ``compile_glob``.

    Matching starts at the positions ``start``; ``step`` advances by one name.
    """

    start: frozenset[int]
    positions: tuple[_Position, ...]
    ends: frozenset[int]
    directories_only: bool = False

    def step(self, at: frozenset[int], name: str) -> frozenset[int]:
        """The positions after one more *name*; empty if nothing below can match."""
        current = (self.positions[index] for index in at)
        return frozenset[int]().union(*(each.leads_to for each in current if each.takes(name)))

    def accepts(self, at: frozenset[int], kind: FileKind) -> bool:
        """Whether a path of *kind* that led to the positions *at* matches."""
        if self.directories_only and kind is not FileKind.DIRECTORY:
            return False
        return not self.ends.isdisjoint(at)

    def matches(self, parts: Iterable[str], kind: FileKind = FileKind.FILE) -> bool:
        """Whether a whole path matches."""
        at = self.start
        for name in parts:
            at = self.step(at, name)
        return self.accepts(at, kind)


def compile_glob(pattern: str) -> GlobPattern:
    """Parse a glob; a trailing ``/`` restricts it to directories.

    Raises:
        PatternError: If it is empty.
        LimitExceededError: If it is too long or has too many alternatives.
        InvalidPathError: If it is absolute or contains ``..`` or a NUL.
    """
    start: list[int] = []
    positions: list[_Position] = []
    ends: list[int] = []
    for text in _expanded(_checked_length(pattern)):
        segments = _segments(text)
        first = len(positions)
        start += _reached(segments, 0, first)
        positions += (_position(segments, at, first) for at in range(len(segments)))
        ends.append(len(positions))
        positions.append(_Position(lambda _: False, frozenset()))
    only_directories = pattern.endswith("/")
    return GlobPattern(frozenset(start), tuple(positions), frozenset(ends), only_directories)


def _position(segments: Sequence[str], at: int, first: int) -> _Position:
    if segments[at] == "**":
        return _Position(lambda _: True, frozenset(_reached(segments, at, first)))
    takes = re.compile(fnmatch.translate(segments[at])).match
    return _Position(takes, frozenset(_reached(segments, at + 1, first)))


def _reached(segments: Sequence[str], at: int, first: int) -> range:
    """The position *at*, and those after it that an empty ``**`` reaches."""
    end = at
    while end < len(segments) and segments[end] == "**":
        end += 1
    return range(first + at, first + end + 1)


def compile_filter(pattern: str) -> GlobPattern:
    """Parse a glob for filtering: without a ``/`` before its end, it matches at any depth."""
    is_name = "/" not in pattern.rstrip("/") and not pattern.startswith("/")
    return compile_glob(f"**/{pattern}" if is_name else pattern)


def _checked_length(pattern: str) -> str:
    if len(pattern) > _MAX_PATTERN_CHARS:
        raise LimitExceededError(
            f"a pattern of {len(pattern)} characters, at most {_MAX_PATTERN_CHARS} allowed",
            hint="Use a shorter pattern.",
        )
    return pattern


def _segments(text: str) -> tuple[str, ...]:
    names = parse_path(text).parts
    if not names:
        raise PatternError("the glob pattern is empty", hint="Use '*' or '**/*.py', say.")
    # A final ``**`` matches everything below the directory, but not the directory itself.
    return (*names, "*") if names[-1] == "**" else names


def _expanded(pattern: str) -> tuple[str, ...]:
    """All alternatives of the braces in *pattern*; ``{a}`` and ``{`` are literal."""
    done: list[str] = []
    todo = [pattern]
    while todo:
        if len(done) + len(todo) > _MAX_ALTERNATIVES:
            raise LimitExceededError(
                f"a pattern of more than {_MAX_ALTERNATIVES} alternatives",
                hint="Use fewer braces.",
            )
        text = todo.pop()
        braces = re.search(r"\{([^{}]*,[^{}]*)\}", text)
        if braces is None:
            done.append(text)
        else:
            before, after = text[: braces.start()], text[braces.end() :]
            todo += [before + choice + after for choice in braces[1].split(",")]
    return tuple(done)


EVERYTHING = compile_glob("**")


def literal_prefix(pattern: str) -> tuple[tuple[str, ...], str]:
    """The leading names of a glob that match only themselves, and the glob below them."""
    names: list[str] = []
    name, slash, rest = pattern.partition("/")
    while slash and rest.strip("/") and not re.search(r"[*?\[{]", name):
        names.append(name)
        pattern = rest
        name, slash, rest = pattern.partition("/")
    return tuple(name for name in names if name not in ("", ".")), pattern


def find(
    children: Callable[[WorkspacePath], Iterable[FileStat]],
    base: WorkspacePath,
    pattern: GlobPattern,
    timer: SearchTimer | None = None,
    last: Sequence[str] = (),
) -> Iterator[FileStat]:
    """The entries below *base* that match *pattern*, in path order; links are not followed.

    Directories that vanish during the walk or cannot be read are skipped. What is below those with
    a name in *last* follows after everything else.

    Raises:
        SearchTimeoutError: When the *timer* ends.
    """
    levels = [(_sorted_children(children, base), pattern.start)]
    later: deque[tuple[WorkspacePath, frozenset[int]]] = deque()
    while levels:
        entries, at = levels[-1]
        entry = next(entries, None)
        if timer is not None:
            timer.left_s()
        if entry is None:
            levels.pop()
            if not levels and later:
                path, here = later.popleft()
                levels.append((_sorted_children(children, path), here))
        elif here := pattern.step(at, entry.path.name):
            if pattern.accepts(here, entry.kind):
                yield entry
            if entry.kind is FileKind.DIRECTORY and entry.path.name in last:
                later.append((entry.path, here))
            elif entry.kind is FileKind.DIRECTORY:
                levels.append((_sorted_children(children, entry.path), here))


def _sorted_children(
    children: Callable[[WorkspacePath], Iterable[FileStat]], path: WorkspacePath
) -> Iterator[FileStat]:
    try:
        return iter(sorted(children(path), key=lambda entry: entry.path.name))
    except (FilesystemError, OSError):
        return iter(())


# Expressions


class Expression:
    """A compiled regular expression that is searched line by line.

    Attributes:
        pattern: Its text. Read only.
        encoded_literals: In UTF-8, literals of which each match has at least one; empty if they
            are not known. Read only.
        fits_blocks: Whether it matches several lines if it matches one of them. Read only.
    """

    def __init__(self, compiled: regex.Pattern[str]) -> None:
        self._compiled = compiled
        self.pattern = compiled.pattern
        self._literals = required_literals(compiled.pattern)
        try:
            self.encoded_literals = tuple(literal.encode() for literal in self._literals)
        except UnicodeEncodeError:  # a lone surrogate, which no text contains
            self.encoded_literals = ()
        self.fits_blocks = _SEES_ONLY_ITS_LINE.fullmatch(compiled.pattern) is not None

    def matching_lines(self, block: str, timer: SearchTimer) -> Iterator[tuple[int, str]]:
        r"""Number (from 0) and text of each line that matches; lines are joined by ``\n``."""
        if not self._has_literal(block):
            return
        # Searching a block costs little more than searching a line, and mostly finds nothing.
        if self.fits_blocks and not self.search(block, timer):
            return
        for number, line in enumerate(block.split("\n")):
            if self._has_literal(line) and self.search(line, timer):
                yield number, line

    def _has_literal(self, text: str) -> bool:
        for literal in self._literals:
            if literal in text:
                return True
        return not self._literals

    def search(self, text: str, timer: SearchTimer) -> bool:
        """Whether it matches anywhere in *text*; raises ``SearchTimeoutError``."""
        try:
            return self._compiled.search(text, timeout=timer.left_s()) is not None
        except TimeoutError as error:
            raise timer.expired() from error


# Expressions that match a block whenever they match one of its lines alone: they look at
# nothing around a match, apart from anchors, which MULTILINE applies to each line.
_SEES_ONLY_ITS_LINE = re.compile(
    r"(?: [^\\()*+?}] | \\[^AZzGKBRX0-9Q] | \((?!\?|\*) | \(\?: | \) | [*+?}](?!\+) )*",
    re.VERBOSE,
)


def compile_expression(pattern: str) -> Expression:
    """Parse a regular expression, in the syntax of the ``regex`` package.

    Raises:
        PatternError: If it does not parse; the message names the position, from 0.
        LimitExceededError: If it is too long.
    """
    import regex

    try:
        return Expression(regex.compile(_checked_length(pattern), regex.MULTILINE))
    except regex.error as error:
        raise PatternError(
            f"invalid regular expression {pattern!r}: {error}",
            hint="Escape special characters with a backslash to find them literally.",
        ) from error
    except (RecursionError, OverflowError) as error:
        raise PatternError(
            f"the regular expression {pattern[:40]!r}… is nested too deeply",
            hint="Use a simpler expression.",
        ) from error


def grep_files(
    heads: Iterable[Heads],
    open_file: Callable[[WorkspacePath], BinaryIO],
    expression: Expression,
    *,
    limits: FilesystemLimits,
    timer: SearchTimer,
) -> GrepResult:
    """The matches in files, in the order of their *heads*, up to the limits of number and time.

    Only the first 100,000 characters of a line are searched.
    """
    search = _Search(open_file, expression, limits, timer)
    timed_out = False
    try:
        for directory, names, contents in heads:
            if not search.add(directory, names, contents):
                break
    except SearchTimeoutError:
        timed_out = True
    return search.result(timed_out=timed_out)


class _Search:
    """What a search found so far."""

    def __init__(
        self,
        open_file: Callable[[WorkspacePath], BinaryIO],
        expression: Expression,
        limits: FilesystemLimits,
        timer: SearchTimer,
    ) -> None:
        self._open_file = open_file
        self._expression = expression
        self._limits = limits
        self._timer = timer
        self._matches: list[GrepMatch] = []
        self._n_files = self._n_binary = self._n_unreadable = 0
        self._at: tuple[WorkspacePath, str] | None = None

    def add(
        self,
        directory: WorkspacePath,
        names: Sequence[str],
        heads: Iterable[bytes | None],
    ) -> bool:
        """Search more files; ``False`` if there are enough matches.

        Raises:
            SearchTimeoutError: When the timer ends.
        """
        expression = self._expression
        search = self._search_all if expression.fits_blocks else None
        for name, head in zip(names, heads, strict=True):
            self._at = directory, name
            if head is not None and _cannot_match(head, expression.encoded_literals, search):
                self._n_files += 1
                continue
            self._add_one(directory / name, head)
            if len(self._matches) > self._limits.grep_matches:
                return False
        return True

    def _search_all(self, text: str) -> bool:
        return self._expression.search(text, self._timer)

    def _add_one(self, path: WorkspacePath, head: bytes | None) -> None:
        try:
            if head is None:
                self._n_unreadable += 1
                return
            with BytesIO(head) if len(head) < HEAD_BYTES else self._open_file(path) as stream:
                found = _matches_in(stream, path, self._expression, self._timer)
                n_wanted = self._limits.grep_matches + 1 - len(self._matches)
                found_here = [_cut(match, self._limits) for match in islice(found, n_wanted)]
        except SearchTimeoutError:
            raise
        except BinaryFileError:
            self._n_binary += 1
        except (FilesystemError, OSError):
            self._n_unreadable += 1
        else:
            self._n_files += 1
            self._matches += found_here

    def result(self, *, timed_out: bool) -> GrepResult:
        """The result; *timed_out* if the time ended before every file was searched."""
        limit = self._limits.grep_matches
        last = self._at
        return GrepResult(
            matches=tuple(self._matches[:limit]),
            truncated=len(self._matches) > limit,
            n_files=self._n_files,
            n_binary=self._n_binary,
            n_unreadable=self._n_unreadable,
            timed_out_s=self._limits.search_timeout_s if timed_out else None,
            stopped_at=last[0] / last[1] if timed_out and last is not None else None,
        )


def _cannot_match(
    head: bytes, literals: Sequence[bytes], search: Callable[[str], bool] | None
) -> bool:
    """Whether a file with this *head* is text without a matching line; ``True`` is certain.

    Args:
        head: The first ``HEAD_BYTES``; a shorter one is the whole content.
        literals: Each match has at least one of them; empty if they are not known.
        search: Whether an expression matches anywhere in a text. ``None`` if it may match a line
            without matching a text with that line.
    """
    if len(head) >= HEAD_BYTES or b"\0" in head or b"\x1b" in head:  # ISO-2022, perhaps
        return False
    may_match = not literals
    for literal in literals:
        if literal in head:
            may_match = True
            break
    if not head.isascii():
        return not may_match and _is_utf_8(head)
    if not may_match:
        return True
    return search is not None and b"\r" not in head and not search(head.decode("ascii"))


def _is_utf_8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _matches_in(
    stream: BinaryIO, path: WorkspacePath, expression: Expression, timer: SearchTimer
) -> Iterator[GrepMatch]:
    first_line = 1
    for block in line_blocks(TextPieces(stream, path), _MAX_SEARCHED_LINE_CHARS):
        for number, text in expression.matching_lines(block, timer):
            yield GrepMatch(path, first_line + number, without_escapes(text))
        first_line += block.count("\n") + 1


def _cut(match: GrepMatch, limits: FilesystemLimits) -> GrepMatch:
    return replace(match, text=match.text[: limits.read_line_chars])
