"""Patches for files that changed meanwhile, with the results that are right for each.

A case is built from a file that its writer saw (the base), an edit of it, and what the file has
become since (the drift). Edit and drift are independent changes of the same base. Each line of
the drifted file keeps the number of its base line. So the right result follows from how the case
was built, without comparing text and without the rules of any patch tool:

- A line to be replaced or removed must still be there, next to its neighbours. Otherwise the
  drift conflicts with the edit, and the only right answer is a refusal.
- Lines to be inserted go between their two neighbours in the base. If the drift put other lines
  between these two, both sides are right; the case is *arguable*.
- The same drifted file may result from a drift elsewhere: a copied block can slide over
  identical lines. The results that follow from it are right as well.
- A match at which every statement of the patch is true is right as well, even if it was not
  intended: a reader who has only the patch and the file cannot know better. It is at the stated
  line, or the only match in the file, in the stated scope or in the order of the hunks. If no
  lines match exactly, white space at line ends and typography are ignored. ``Case.literal`` holds
  these results, so that a test can count how often they matter.

A refusal is never wrong. A patch must be accepted only if the case has one right result.
"""

from __future__ import annotations

import functools
import io
import itertools
import math
import os
import random
import re
import subprocess
import sysconfig
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher, unified_diff
from pathlib import Path

RELEASES = Path(__file__).parents[1] / "workspace" / "releases" / "itsdangerous.tar.xz"

Lines = tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """The base lines from *start* to before *end* become *new*."""

    start: int
    end: int
    new: Lines


@dataclass(slots=True)
class FileLine:
    """A line of the drifted file.

    Args:
        text: With its line end.
        origin: The number of its base line, from 0; ``None`` for a new line.
        rewritten: Whether its text replaces that of the base line.
        copy_of: For a line of an exact copy next to its original: the base line that it may
            equally be.
    """

    text: bytes
    origin: int | None = None
    rewritten: bool = False
    copy_of: int | None = None


@dataclass(frozen=True, slots=True)
class OldHunk:
    """A hunk as the writer sees it: the base lines from *start* to *end*, and its changes."""

    start: int
    end: int
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One patch for one file; see the module for what is right.

    Args:
        seed: Makes the same case again with ``make_case``.
        kind: The form of the patch, and all changes of file and patch.
        path: The file's name, different for each seed.
        file: The drifted file.
        text: The patch as its writer sent it.
        is_unified: Whether *text* is a unified diff, otherwise an envelope.
        is_garbled: Whether *text* breaks the rules of its form.
        unified: The patch as a well-formed unified diff with right line numbers.
        envelope: The patch as a well-formed envelope.
        base: The file as the writer saw it.
        edited: The base with the edit.
        results: Right results by construction; none if only a refusal is right.
        literal: Results where every statement of the patch is true; right as well.
        only_inserts: Whether nothing is removed.
    """

    seed: str
    kind: tuple[str, ...]
    path: str
    file: bytes
    text: str
    is_unified: bool
    is_garbled: bool
    unified: str
    envelope: str
    base: bytes
    edited: bytes
    results: frozenset[bytes]
    literal: frozenset[bytes]
    only_inserts: bool

    @property
    def right(self) -> frozenset[bytes]:
        """All results that are not wrong."""
        return self.results | self.literal

    @property
    def intended(self) -> bytes | None:
        """The one right result, if there is exactly one and the edit is still possible."""
        return next(iter(self.right)) if len(self.right) == 1 and self.results else None

    def described(self, result: bytes) -> str:
        """Text that shows why *result* is wrong; the seed makes the whole case again."""
        right = [f"== right\n{_difference(self.file, right)}" for right in sorted(self.right)]
        parts = [
            f"==== make_case({self.seed!r}): {', '.join(self.kind)}",
            self.text,
            f"== how the file differs from what the writer saw\n{_difference(self.base, self.file)}",
            *(right or ["== right: only a refusal"]),
            f"== result\n{_difference(self.file, result)}",
        ]
        return "\n".join(parts)


def _difference(old: bytes, new: bytes) -> str:
    before, after = (
        data.decode("utf-8", "backslashreplace").replace("\r\n", "\n").splitlines(keepends=True)
        for data in (old, new)
    )
    return "".join(unified_diff(before, after))


# ------------------------------------------------------------------------------- real content


@functools.cache
def release_files() -> tuple[tuple[Lines, Lines], ...]:
    """Each text file that changed between two successive releases of a real project."""
    pairs: list[tuple[Lines, Lines]] = []
    before: dict[str, Lines] = {}
    with tempfile.TemporaryDirectory() as directory, tarfile.open(RELEASES) as archive:
        for member in archive:
            content = archive.extractfile(member)
            assert content is not None
            command = ["git", "apply", "--whitespace=nowarn", "-"]
            environment = {"PATH": os.environ["PATH"], "GIT_CEILING_DIRECTORIES": directory}
            subprocess.run(
                command, cwd=directory, input=content.read(), env=environment, check=True
            )
            after = {
                str(path.relative_to(directory)): tuple(io.BytesIO(path.read_bytes()).readlines())
                for path in sorted(Path(directory).rglob("*"))
                if path.suffix in {".py", ".rst", ".toml", ".cfg", ".txt"} and path.is_file()
            }
            for path, lines in after.items():
                if _is_plain(lines) and before.get(path, lines) != lines:
                    pairs.append((before[path], lines))
            before = after
    return tuple((old, new) for old, new in pairs if _is_plain(old))


@functools.cache
def library_files() -> tuple[Lines, ...]:
    """Source files of Python's standard library."""
    root = Path(sysconfig.get_path("stdlib"))
    files = (tuple(io.BytesIO(path.read_bytes()).readlines()) for path in sorted(root.glob("*.py")))
    return tuple(lines for lines in files if _is_plain(lines))


def _is_plain(lines: Lines) -> bool:
    return len(lines) >= 8 and all(line.endswith(b"\n") and b"\r" not in line for line in lines)


@functools.cache
def real_changes(old: Lines, new: Lines) -> tuple[Change, ...]:
    """The changes that a real release made in a file."""
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    return tuple(
        Change(start, end, new[first:last])
        for tag, start, end, first, last in matcher.get_opcodes()
        if tag != "equal"
    )


# ------------------------------------------------------------------------- generated content

_STEPS = (
    "total = 0",
    "for item in items:",
    "    total += item.weight",
    "log.debug('total %s', total)",
    "if not items:",
    "    return None",
    "self.count += 1",
    "self.changed = True",
    'name = "unknown"',
    "return total",
    "with self.lock:",
    "    self.items.clear()",
    "raise ValueError(name)",
)


def similar_classes(rng: random.Random) -> Lines:
    """Classes whose methods differ in a few lines, or only in their names."""
    body = rng.choices(_STEPS, k=rng.randint(3, 8))
    lines: list[str] = ["import logging", "", "log = logging.getLogger(__name__)", "", ""]
    for name in rng.sample(["Reader", "Writer", "Parser", "Cache", "Index"], rng.randint(2, 4)):
        lines += [f"class {name}:", f'    """A {name.lower()} of items."""', ""]
        for method in rng.sample(["open", "close", "load", "save", "total"], rng.randint(1, 4)):
            steps = list(body)
            for _ in range(rng.randint(0, 2)):
                steps[rng.randrange(len(steps))] = rng.choice(_STEPS)
            lines += [f"    def {method}(self, items):", *(f"        {step}" for step in steps), ""]
        lines.append("")
    return _encoded(lines)


def nested_braces(rng: random.Random) -> Lines:
    """A configuration in braces, in which many lines are equal."""
    lines: list[str] = ["{"]
    for section in rng.sample(["server", "client", "cache", "log", "auth", "proxy"], 4):
        lines += [f'  "{section}": {{', '    "enabled": true,', '    "limits": {']
        for limit in rng.sample(["open", "idle", "read", "write"], rng.randint(1, 4)):
            lines.append(f'      "{limit}": {rng.choice([1, 1, 2, 30])},')
        lines += ["    }", "  },"]
    return _encoded([*lines, "}"])


def repeated_words(rng: random.Random) -> Lines:
    """Random lines from a few different ones."""
    words = ["", "alpha", "beta", "  gamma", "  delta", "}", "end"]
    return _encoded(rng.choices(words[: rng.randint(3, 7)], k=rng.randint(8, 40)))


def _encoded(lines: Sequence[str]) -> Lines:
    return tuple(line.encode() + b"\n" for line in lines)


# -------------------------------------------------------------------------------------- edits

_WORD = re.compile(rb"[A-Za-z_]{3,}")
_NAMES = (b"retry", b"limit", b"codec", b"stream", b"digest", b"value", b"state", b"handler")


def new_line(rng: random.Random, lines: Lines, near: int) -> bytes:
    """A line that could stand near the one at *near*: a changed or an identical copy of one."""
    at = min(len(lines) - 1, max(0, near + rng.randint(-3, 3)))
    line = lines[at] if lines else b"\n"
    if rng.random() < 0.15:
        return line
    word = rng.choice(_NAMES)
    if not _WORD.search(line):
        indentation = line[: len(line) - len(line.lstrip(b" \t"))].rstrip(b"\n")
        return b"%s%s = %d\n" % (indentation, word, rng.randint(0, 99))
    return _WORD.sub(word + b"_%d" % rng.randint(0, 99), line, count=1)


def random_changes(rng: random.Random, lines: Lines, around: int | None = None) -> list[Change]:
    """One to three changes of *lines* that are not adjacent."""
    changes: list[Change] = []
    at = rng.randrange(len(lines) + 1) if around is None else around
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        what = rng.choice(("insert", "insert", "replace", "replace", "remove"))
        n_old = 0 if what == "insert" else rng.choice((1, 1, 2, 4))
        n_new = 0 if what == "remove" else rng.choice((1, 1, 2, 5))
        end = min(len(lines), at + n_old)
        new = tuple(new_line(rng, lines, at) for _ in range(n_new))
        if new != lines[at:end]:
            changes.append(Change(at, end, new))
        at = end + rng.choice((1, 2, 3, 8, 20))
        if at > len(lines):
            break
    return changes


def edited_lines(lines: Lines, changes: Sequence[Change]) -> Lines:
    """*lines* with all *changes*, which are in order."""
    result: list[bytes] = []
    at = 0
    for change in changes:
        result += lines[at : change.start]
        result += change.new
        at = change.end
    return (*result, *lines[at:])


# -------------------------------------------------------------------------------------- drift

File = list[FileLine]
Drift = Callable[[random.Random, File, Sequence[Change]], str]


def _index_of(file: File, origin: int) -> int | None:
    return next((at for at, line in enumerate(file) if line.origin == origin), None)


def _near_edit(rng: random.Random, file: File, changes: Sequence[Change], reach: int) -> int | None:
    """The index of a line at most *reach* lines from the edit, mostly outside of it."""
    change = rng.choice(changes)
    if rng.random() < 0.5:
        origin = change.start - 1 - rng.randrange(reach)
    else:
        origin = change.end + rng.randrange(reach)
    return _index_of(file, origin)


def _new_lines(rng: random.Random, file: File, near: int, n: int) -> File:
    texts = tuple(line.text for line in file)
    return [FileLine(new_line(rng, texts, near)) for _ in range(n)]


def drift_above(rng: random.Random, file: File, changes: Sequence[Change]) -> str:
    """Lines are inserted above the edit."""
    at = rng.randrange((_index_of(file, changes[0].start) or 0) + 1)
    file[at:at] = _new_lines(rng, file, at, rng.choice((1, 2, 5, 30)))
    return "lines above"


def drift_anywhere(rng: random.Random, file: File, changes: Sequence[Change]) -> str:
    """Lines are inserted or removed anywhere."""
    at = rng.randrange(len(file) + 1)
    if rng.random() < 0.5:
        file[at:at] = _new_lines(rng, file, at, rng.randint(1, 6))
    else:
        del file[at : at + rng.randint(1, 6)]
    return "lines anywhere"


def drift_context(rng: random.Random, file: File, changes: Sequence[Change]) -> str:
    """A line near the edit is rewritten."""
    at = _near_edit(rng, file, changes, 4)
    if at is not None:
        text = new_line(rng, tuple(line.text for line in file), at)
        file[at] = replace(file[at], text=text, rewritten=text != file[at].text)
    return "context rewritten"


def drift_nearby(rng: random.Random, file: File, changes: Sequence[Change]) -> str:
    """Lines near the edit are inserted or removed."""
    at = _near_edit(rng, file, changes, 4)
    if at is not None and rng.random() < 0.6:
        file[at:at] = _new_lines(rng, file, at, rng.randint(1, 3))
    elif at is not None:
        del file[at : at + rng.randint(1, 2)]
    return "lines nearby"


def drift_blank(rng: random.Random, file: File, changes: Sequence[Change]) -> str:
    """Blank lines near the edit are added or deleted."""
    at = _near_edit(rng, file, changes, 5)
    if at is None:
        return "blank lines"
    blank = [n for n in range(at - 4, at + 5) if 0 <= n < len(file) and not file[n].text.strip()]
    if blank and rng.random() < 0.5:
        del file[rng.choice(blank)]
    else:
        file.insert(at, FileLine(b"\n"))
    return "blank lines"


def _block(file: File, at: int) -> tuple[int, int]:
    """The lines that belong to the definition around the line at *at*, or a few around it."""

    def indentation(n: int) -> int:
        return len(file[n].text) - len(file[n].text.lstrip())

    first = at
    while first > 0 and not re.match(rb"\s*(def|class) |.*\{$", file[first].text):
        first -= 1
    if at - first > 25:
        return max(0, at - 6), min(len(file), at + 6)
    end = first + 1
    while end < len(file) and (
        not file[end].text.strip() or indentation(end) > indentation(first) or end <= at
    ):
        end += 1
    return first, end


def drift_copy(rng: random.Random, file: File, changes: Sequence[Change]) -> str:
    """A copy of the block around the edit appears elsewhere: exact, renamed or changed."""
    change = rng.choice(changes)
    at = _index_of(file, min(change.start, max(line.origin or 0 for line in file)))
    if at is None:
        return "copy"
    first, end = _block(file, at)
    copies = [FileLine(line.text) for line in file[first:end]]
    how = rng.choice(("exact", "renamed", "changed", "edited"))
    if how == "renamed":
        copies[0].text = _WORD.sub(lambda found: found[0] + b"_2", copies[0].text)
    elif how == "changed":
        for line in rng.sample(copies, min(len(copies), rng.randint(1, 2))):
            line.text = new_line(rng, (line.text,), 0)
    elif how == "edited":  # as if the edit had been made there
        removed = slice(at - first, at - first + change.end - change.start)
        copies[removed] = [FileLine(line) for line in change.new]
    targets = [first, end, rng.randrange(len(file) + 1), *_definition_starts(file)[:6]]
    target = rng.choice([at for at in targets if not first < at < end])
    if how == "exact" and target in (first, end):
        for line, copy in zip(file[first:end], copies, strict=True):
            copy.copy_of = line.origin
    file[target:target] = copies
    return f"{how} copy"


def _definition_starts(file: File) -> list[int]:
    """The indexes at which definitions begin."""
    return [n for n, line in enumerate(file) if re.match(rb"\s*(def|class) ", line.text)]


def drift_removal(rng: random.Random, file: File, changes: Sequence[Change]) -> str:
    """The block around the edit is removed; similar ones often remain."""
    at = _index_of(file, rng.choice(changes).start)
    if at is not None:
        first, end = _block(file, at)
        del file[first:end]
    return "gone"


def drift_move(rng: random.Random, file: File, changes: Sequence[Change]) -> str:
    """The definition around the edit moves elsewhere."""
    at = _index_of(file, rng.choice(changes).start)
    if at is not None:
        first, end = _block(file, at)
        moved = file[first:end]
        del file[first:end]
        target = rng.choice((0, len(file), *_definition_starts(file)))
        file[target:target] = moved
    return "moved"


def drift_indentation(rng: random.Random, file: File, changes: Sequence[Change]) -> str:
    """The block around the edit is indented differently; added lines would no longer fit."""
    at = _index_of(file, rng.choice(changes).start)
    if at is None:
        return "indented"
    first, end = _block(file, at)
    how = rng.choice((b"    ", b"\t"))
    for n in range(first, end):
        if how == b"\t" and file[n].text.startswith(b"    "):
            text = re.sub(rb"^( {4})+", lambda found: b"\t" * (len(found[0]) // 4), file[n].text)
        else:
            text = b"    " + file[n].text if file[n].text.strip() else file[n].text
        if text != file[n].text:
            file[n] = FileLine(text)
    return "indented"


DRIFTS: Sequence[tuple[Drift, int]] = (
    (drift_above, 5),
    (drift_anywhere, 4),
    (drift_context, 5),
    (drift_nearby, 5),
    (drift_blank, 3),
    (drift_copy, 6),
    (drift_removal, 2),
    (drift_move, 2),
    (drift_indentation, 1),
)


# --------------------------------------------------------------------- hardly visible differences

_CURLY = (
    (b'"', "\u201d".encode()),
    (b"'", "\u2019".encode()),
    (b"-", "\u2013".encode()),
    (b" ", "\u00a0".encode()),
    (b"...", "\u2026".encode()),
)


def trailing_space(rng: random.Random, line: bytes) -> bytes:
    """The line with other white space at its end."""
    return line.rstrip() + rng.choice((b" ", b"  ", b"\t", b"")) + b"\n"


def typographic(rng: random.Random, line: bytes) -> bytes:
    """The line with typographic punctuation or spaces, except in its indentation."""
    plain, other = rng.choice(_CURLY)
    body = line.lstrip(b" \t")
    return line[: len(line) - len(body)] + body.replace(plain, other)


def plain(line: bytes) -> bytes:
    """The line without such differences."""
    for ordinary, other in _CURLY:
        line = line.replace(other, ordinary)
    return line.rstrip()


def alter_lines(
    rng: random.Random,
    file: File,
    changes: Sequence[Change],
    alter: Callable[[random.Random, bytes], bytes],
) -> None:
    """Make lines of the file differ slightly from the base, mostly near the edit."""
    change = rng.choice(changes)
    for line in file:
        is_near = line.origin is not None and change.start - 4 <= line.origin < change.end + 4
        if rng.random() < (0.4 if is_near else 0.05):
            line.text = alter(rng, line.text)


# ------------------------------------------------------------------------------- right results


def _span(file: File, change: Change, n_base: int) -> set[tuple[int, int]]:
    """The index ranges of *file* that *change* may replace; empty if it is impossible."""
    if change.start == change.end:
        return _gaps(file, change.start, n_base)
    at = _index_of(file, change.start)
    n = change.end - change.start
    if at is None:
        return set()
    lines = file[at : at + n]
    intact = [(line.origin, line.rewritten) for line in lines] == [
        (origin, False) for origin in range(change.start, change.end)
    ]
    return {(at, at + n)} if intact else set()


def _gaps(file: File, origin: int, n_base: int) -> set[tuple[int, int]]:
    """Where to insert lines that belong between base lines *origin* - 1 and *origin*."""
    left = -1 if origin == 0 else _index_of(file, origin - 1)
    right = len(file) if origin == n_base else _index_of(file, origin)
    return {(at, at) for at in (None if left is None else left + 1, right) if at is not None}


def _relabelled(file: File, base: Lines) -> Iterator[File]:
    """The file, and the same one labelled as if the drift had happened a few lines up or down."""
    yield file
    copied = {line.copy_of for line in file if line.copy_of is not None}
    if copied:
        yield [replace(line, origin=_other_origin(line, copied)) for line in file]
    labels = [None if line.rewritten else line.origin for line in file]
    for at in range(len(file) + 1):
        before = labels[at - 1] if at else -1
        after = labels[at] if at < len(file) else len(base)
        if before is not None and after is None:
            end = next((n for n in range(at, len(file)) if labels[n] is not None), len(file))
            yield from _slid_insertion(file, at, end)
        elif before is not None and after is not None and after > before + 1:
            yield from _slid_removal(file, base, at, (before + 1, after))


def _other_origin(line: FileLine, copied: set[int]) -> int | None:
    if line.copy_of is not None:
        return line.copy_of
    return None if line.origin in copied else line.origin


def _slid_insertion(file: File, first: int, end: int) -> Iterator[File]:
    """The file, as if the new lines from *first* to *end* were inserted further up or down."""
    for step in (-1, 1):
        slid = list(file)
        low, high = first, end
        while True:
            source, target = (low - 1, high - 1) if step < 0 else (high, low)
            if not 0 <= source < len(file) or slid[source].text != slid[target].text:
                break
            slid[source], slid[target] = slid[target], slid[source]
            low, high = low + step, high + step
            yield list(slid)


def _slid_removal(file: File, base: Lines, at: int, gone: tuple[int, int]) -> Iterator[File]:
    """The file, as if the removed base lines *gone* before index *at* were other equal ones."""
    for step in (-1, 1):
        slid = list(file)
        index = at if step > 0 else at - 1
        first, end = gone
        while 0 <= index < len(file):
            kept, other = (end, first) if step > 0 else (first - 1, end - 1)
            line = slid[index]
            if line.rewritten or line.origin != kept or base[kept] != base[other]:
                break
            slid[index] = FileLine(line.text, other)
            index, first, end = index + step, first + step, end + step
            yield list(slid)


def _applied(file: File, spans: Sequence[tuple[int, int]], changes: Sequence[Change]) -> bytes:
    texts: list[bytes] = []
    at = 0
    for (start, end), change in sorted(
        zip(spans, changes, strict=True), key=lambda pair: (pair[0], pair[1].start)
    ):
        texts += [line.text for line in file[at:start]]
        texts += change.new
        at = end
    return b"".join([*texts, *(line.text for line in file[at:])])


def _results(
    file: File, options: Sequence[Sequence[tuple[int, int]]], changes: Sequence[Change]
) -> Iterator[bytes]:
    for spans in itertools.islice(itertools.product(*options), 64):
        ordered = sorted(spans)
        if all(one[1] <= other[0] for one, other in itertools.pairwise(ordered)):
            yield _applied(file, spans, changes)


def constructed_results(file: File, changes: Sequence[Change], base: Lines) -> frozenset[bytes]:
    """The right results by construction."""
    results: set[bytes] = set()
    for labelled in _relabelled(file, base):
        options = [sorted(_span(labelled, change, len(base))) for change in changes]
        if all(options):
            results.update(_results(file, options, changes))
    return frozenset(results)


def literal_results(
    file: File,
    sent: Lines,
    hunks: Sequence[OldHunk],
    stated: Sequence[int | None],
    scopes: Sequence[Sequence[bytes]],
    n_base: int,
    *,
    end_may_be_layout: bool,
) -> frozenset[bytes]:
    """The results with each hunk where it was intended, or where all it states is true.

    Args:
        file: The drifted file.
        sent: The base lines as quoted in the patch.
        hunks: The hunks of the patch.
        stated: The index of the first old line that each hunk states.
        scopes: The definitions that each hunk names as its scope.
        n_base: How many lines the base has.
        end_may_be_layout: Whether empty lines at the end of a hunk may be context or layout: they
            have no sign.
    """
    texts = [line.text for line in file]
    every: list[list[int]] = []
    options: list[list[tuple[tuple[int, int], ...]]] = []
    for hunk, number, scope in zip(hunks, stated, scopes, strict=True):
        meant = [sorted(_span(file, change, n_base)) for change in hunk.changes]
        spans = {tuple(chosen) for chosen in itertools.product(*meant)}
        old = list(sent[hunk.start : hunk.end])
        matches = _matches(texts, old) or _matches(list(map(plain, texts)), list(map(plain, old)))
        inside = [n for n in matches if scope and _is_inside(texts, n + len(old) // 2, scope)]
        short = old[: len(old) - n_trailing_empty_lines(old)] if end_may_be_layout else old
        without_end = _matches(texts, short) if short != old else []
        below = [] if old else _below_scope(texts, scope)
        valid = {found[0] for found in (matches, inside, without_end, below) if len(found) == 1}
        if number is not None and number in matches:
            valid.add(number)
        spans.update(_moved(hunk, match) for match in valid)
        options.append(sorted(spans))
        every.append([number] if number is not None and number in matches else inside or matches)
    in_order = _ascending(hunks, every)
    if len(in_order) == 1:
        for option, hunk, match in zip(options, hunks, in_order[0], strict=True):
            option.append(_moved(hunk, match))
    changes = [change for hunk in hunks for change in hunk.changes]
    results: set[bytes] = set()
    for chosen in itertools.islice(itertools.product(*options), 64):
        spans = [span for spans in chosen for span in spans]
        results.update(_results(file, [[span] for span in spans], changes))
    return frozenset(results)


def _ascending(hunks: Sequence[OldHunk], matches: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """All combinations of matches in the order of the hunks; empty if there are too many."""
    if math.prod(map(len, matches)) > 2_000:
        return []
    return [
        chosen
        for chosen in itertools.product(*matches)
        if all(
            one + hunk.end - hunk.start <= other
            for hunk, (one, other) in zip(hunks, itertools.pairwise(chosen), strict=False)
        )
    ]


def n_trailing_empty_lines(lines: Sequence[bytes]) -> int:
    """How many empty lines are at the end."""
    return next((n for n, line in enumerate(reversed(lines)) if line != b"\n"), len(lines))


def _moved(hunk: OldHunk, match: int) -> tuple[tuple[int, int], ...]:
    shift = match - hunk.start
    return tuple((change.start + shift, change.end + shift) for change in hunk.changes)


def _matches(lines: Sequence[bytes], wanted: Sequence[bytes]) -> list[int]:
    n = len(wanted)
    return [at for at in range(len(lines) - n + 1) if lines[at : at + n] == wanted]


def _below_scope(lines: Sequence[bytes], scope: Sequence[bytes]) -> list[int]:
    """Where a hunk without old lines can insert: after each line that its scope names."""
    return [
        at + 1
        for at, line in enumerate(lines)
        if scope and line.strip().startswith(scope[-1]) and _is_inside(lines, at, scope)
    ]


def _is_inside(lines: Sequence[bytes], at: int, scope: Sequence[bytes]) -> bool:
    around = [line.strip() for line in enclosing(lines, at)]
    return all(any(line.startswith(text) for line in around) for text in scope)


# ------------------------------------------------------------------------------------- writing


@dataclass(slots=True)
class Style:
    """How a patch is written.

    ``before`` and ``after`` are the numbers of context lines.
    """

    before: int = 3
    after: int = 3
    git_headers: bool = False
    bare_names: bool = False
    scopes: str = "none"
    number_error: int = 0
    count_error: int = 0
    no_numbers: bytes = b""
    empty_context: bool = False


def hunks_of(changes: Sequence[Change], n_base: int, style: Style) -> list[OldHunk]:
    """The changes with their context; those with adjacent context share a hunk."""
    hunks: list[OldHunk] = []
    for change in changes:
        start, end = max(0, change.start - style.before), min(n_base, change.end + style.after)
        if hunks and start <= hunks[-1].end:
            last = hunks.pop()
            start, changes_so_far = last.start, last.changes
        else:
            changes_so_far = ()
        hunks.append(OldHunk(start, end, (*changes_so_far, change)))
    return hunks


def hunk_lines(sent: Lines, hunk: OldHunk, style: Style) -> list[bytes]:
    """The signed lines of a hunk."""
    lines: list[bytes] = []
    at = hunk.start

    def context(end: int) -> None:
        lines.extend(
            b"\n" if style.empty_context and line == b"\n" else b" " + line for line in sent[at:end]
        )

    for change in hunk.changes:
        context(change.start)
        lines += [b"-" + line for line in sent[change.start : change.end]]
        lines += [b"+" + line for line in change.new]
        at = change.end
    context(hunk.end)
    return lines


def unified_text(path: str, sent: Lines, hunks: Sequence[OldHunk], style: Style) -> str:
    """A unified diff."""
    old, new = (path, path) if style.bare_names else (f"a/{path}", f"b/{path}")
    out = [f"--- {old}\n+++ {new}\n".encode()]
    if style.git_headers:
        out[:0] = [f"diff --git {old} {new}\nindex 1234567..89abcde 100644\n".encode()]
    shift = 0
    for hunk in hunks:
        body = hunk_lines(sent, hunk, style)
        n_old = hunk.end - hunk.start
        n_new = n_old + sum(len(one.new) - (one.end - one.start) for one in hunk.changes)
        start = max(0, hunk.start + style.number_error)
        old_start = start + (n_old > 0)
        new_start = max(0, start + shift) + (n_new > 0)
        n_stated = max(1, n_old + style.count_error)
        numbers = b"@@ -%d,%d +%d,%d @@\n" % (
            old_start,
            n_old if not style.count_error else n_stated,
            new_start,
            n_new,
        )
        out.append(style.no_numbers or numbers)
        out += body
        shift += n_new - n_old
    return _text(out)


def envelope_text(path: str, sent: Lines, hunks: Sequence[OldHunk], style: Style) -> str:
    """A ``*** Begin Patch`` text."""
    out = [f"*** Begin Patch\n*** Update File: {path}\n".encode()]
    for hunk in hunks:
        out += [*_scope_lines(sent, hunk, style), *hunk_lines(sent, hunk, style)]
    return _text([*out, b"*** End Patch\n"])


def _scope_lines(sent: Lines, hunk: OldHunk, style: Style) -> list[bytes]:
    found = enclosing(sent, hunk.start - (hunk.start == hunk.end))
    if style.scopes == "none" or not found:
        return [b"@@\n"]
    if style.scopes == "wrong":
        others = [
            line for line in sent if re.match(rb"\s*(def|class) ", line) and line != found[-1]
        ]
        name = others[len(others) // 2].strip() if others else b"def elsewhere(self):"
        return [b"@@ " + name + b"\n"]
    if style.scopes == "short":
        return [b"@@ " + re.split(rb"[(:]", found[-1].strip())[0] + b"\n"]
    chosen = found if style.scopes == "nested" else found[-1:]
    return [b"@@ " + line.strip() + b"\n" for line in chosen]


def enclosing(lines: Sequence[bytes], at: int) -> list[bytes]:
    """The ``class`` and ``def`` lines around the line at *at*, the outermost first."""
    found: list[bytes] = []
    indentation = 1_000
    for line in reversed(lines[: at + 1]):
        depth = len(line) - len(line.lstrip())
        if line.strip() and depth < indentation:
            indentation = depth
            if re.match(rb"\s*(def|class) ", line):
                found.insert(0, line)
    return found


def _text(lines: Sequence[bytes]) -> str:
    return b"".join(lines).decode("utf-8", "surrogateescape")


# ------------------------------------------------------------------------------------ mistakes

_COMMON_MISTAKES = (
    "missing context",
    "empty context lines",
    "other word in patch",
    "typography in patch",
    "typography in file",
    "trailing space in file",
    "CRLF in file",
    "fenced",
)
_UNIFIED_MISTAKES = (
    "wrong numbers",
    "wrong counts",
    "no numbers",
    "bare names",
    "no final newline",
)
_ENVELOPE_MISTAKES = (
    "wrong scope",
    "no end",
    "indented markers",
    "backticks",
    "prefix",
    "unified inside",
    "heredoc",
)
_GARBLED = {
    *("empty context lines", "wrong counts", "no numbers", "fenced", "no final newline"),
    *("no end", "indented markers", "backticks", "prefix", "unified inside", "heredoc"),
}


def quoted_base(
    rng: random.Random, lines: Lines, hunks: Sequence[OldHunk], mistakes: Sequence[str]
) -> Lines:
    """The base as it is quoted in the patch."""
    sent = list(lines)
    hunk = rng.choice(list(hunks))
    changed = {n for one in hunk.changes for n in range(one.start, one.end)}
    context = [n for n in range(hunk.start, hunk.end) if n not in changed]
    if "other word in patch" in mistakes and context:
        at = rng.choice((context[0], context[-1], rng.choice(context)))
        sent[at] = new_line(rng, lines, at)
    if "typography in patch" in mistakes:
        for at in range(hunk.start, hunk.end):
            sent[at] = typographic(rng, sent[at]) if rng.random() < 0.4 else sent[at]
    return tuple(sent)


def garbled(text: str, path: str, unified: str, mistakes: Sequence[str]) -> str:
    """The text with mistakes outside of its hunks."""
    header = f"*** Update File: {path}"
    for mistake in sorted(mistakes):  # a fence must be added before the last newline is removed
        match mistake:
            case "no end":
                text = re.sub(r" *\*\*\* End Patch\n\Z", "", text)  # the line may be indented
            case "indented markers":
                text = re.sub(r"^\*\*\* ", "  *** ", text, flags=re.MULTILINE)
            case "backticks":
                text = text.replace(header, f"*** Update File: `{path}`")
            case "prefix":
                text = text.replace(header, f"*** Update File: a/{path}")
            case "unified inside":
                text = f"*** Begin Patch\n{unified}*** End Patch\n"
            case "heredoc":
                text = f"<<'EOF'\n{text}EOF\n"
            case "fenced":
                text = f"Here is the patch:\n\n```diff\n{text}```\n"
            case "no final newline":
                text = text.removesuffix("\n")
            case _:
                pass
    return text


# --------------------------------------------------------------------------------- whole cases


def make_cases(n: int, *, seed: str = "suite", with_library: bool = False) -> Iterator[Case]:
    """The first *n* cases of *seed*."""
    found = (make_case(f"{seed}-{number}", with_library=with_library) for number in range(2 * n))
    yield from itertools.islice((case for case in found if case is not None), n)


def make_case(seed: str, *, with_library: bool = False) -> Case | None:
    """The case of *seed*, or ``None`` if its random edit is empty.

    A third has only drift, a third only mistakes in the patch, a third both.
    """
    rng = random.Random(seed)
    base, edit, file, kind = _content(rng, with_library=with_library)
    if not edit or not base:
        return None
    problems = rng.choice(("drift", "mistakes", "drift and mistakes"))
    is_unified = rng.random() < 0.5
    mistakes: list[str] = []
    if "mistakes" in problems:
        own = _UNIFIED_MISTAKES if is_unified else _ENVELOPE_MISTAKES
        mistakes = rng.sample((*_COMMON_MISTAKES, *own), rng.choice((1, 1, 1, 2)))
    if "drift" in problems:
        kind += _drift(rng, file, edit)
    for mistake in mistakes:
        if mistake in {"typography in file", "trailing space in file"}:
            alter_lines(rng, file, edit, typographic if "typo" in mistake else trailing_space)
    style = _style(rng, mistakes)
    hunks = hunks_of(edit, len(base), style)
    if not is_unified and not all(_can_be_located(base, hunk, style) for hunk in hunks):
        style.before = style.after = 1
        hunks = hunks_of(edit, len(base), style)
    sent = quoted_base(rng, base, hunks, mistakes)
    path = f"{re.sub('[^a-z0-9]', '_', seed)}.py"
    text = _as_sent(path, sent, hunks, style, mistakes, is_unified=is_unified)
    plain = Style(style.before, style.after, git_headers=style.git_headers)
    scopes = "one" if style.scopes in {"one", "nested", "short"} else "none"
    result = Case(
        seed=seed,
        kind=(
            "unified" if is_unified else f"envelope, {style.scopes} scope",
            problems,
            *kind,
            *mistakes,
        ),
        path=path,
        file=b"".join(line.text for line in file),
        text=text,
        is_unified=is_unified,
        is_garbled=bool(_GARBLED & {*mistakes}) or (not is_unified and style.scopes == "nested"),
        unified=unified_text(path, sent, hunks, plain),
        envelope=envelope_text(path, sent, hunks, replace(plain, scopes=scopes)),
        base=b"".join(sent),
        edited=b"".join(edited_lines(sent, edit)),
        results=constructed_results(file, edit, base),
        literal=literal_results(
            file,
            sent,
            hunks,
            *_statements(sent, hunks, style, text, is_unified),
            len(base),
            end_may_be_layout=style.empty_context,
        ),
        only_inserts=all(change.start == change.end for change in edit),
    )
    return _with_returns(result) if "CRLF in file" in mistakes else result


def _statements(
    sent: Lines, hunks: Sequence[OldHunk], style: Style, text: str, is_unified: bool
) -> tuple[list[int | None], list[list[bytes]]]:
    """What each hunk states: the index of its first line, and its scopes."""
    has_numbers = "@@ -" in text
    numbers = [max(0, hunk.start + style.number_error) if has_numbers else None for hunk in hunks]
    lines = [[] if is_unified else _scope_lines(sent, hunk, style) for hunk in hunks]
    return numbers, [[line[2:].strip() for line in scopes if line[2:].strip()] for scopes in lines]


def _with_returns(case: Case) -> Case:
    def converted(data: bytes) -> bytes:
        return data.replace(b"\n", b"\r\n")

    results, literal = (frozenset(map(converted, found)) for found in (case.results, case.literal))
    return replace(case, file=converted(case.file), results=results, literal=literal)


def _content(
    rng: random.Random, *, with_library: bool
) -> tuple[Lines, list[Change], File, list[str]]:
    """A base, an edit of it, and the file after the other real changes."""
    (source,) = rng.choices(("release", "real", "classes", "braces", "words"), (3, 3, 1, 1, 1))
    drift: list[Change] = []
    if source == "release":
        base, new = rng.choice(release_files())
        real = list(real_changes(base, new))
        first = rng.randrange(len(real))
        edit = real[first : first + rng.choice((1, 1, 2, 3))]
        drift = [change for change in real if change not in edit and rng.random() < 0.4]
    elif source == "real":
        of_library = with_library and rng.random() < 0.6
        base = (
            rng.choice(library_files()) if of_library else rng.choice(rng.choice(release_files()))
        )
        edit = random_changes(rng, base)
    else:
        make = {"classes": similar_classes, "braces": nested_braces, "words": repeated_words}
        base = make[source](rng)
        edit = random_changes(rng, base)
    base, edit, drift = _window(rng, base, edit, drift)
    file = [FileLine(text, origin) for origin, text in enumerate(base)]
    for change in reversed(drift):
        file[change.start : change.end] = [FileLine(text) for text in change.new]
    return base, edit, file, [source, *(["real drift"] if drift else [])]


def _window(
    rng: random.Random, base: Lines, edit: list[Change], drift: list[Change]
) -> tuple[Lines, list[Change], list[Change]]:
    """A part of a long file with its changes: whole files cost time and show no more."""
    if len(base) <= 250 or not edit:
        return base, edit, drift
    first = max(0, edit[0].start - rng.randint(20, 100))
    end = min(len(base), first + 220)

    def inside(changes: list[Change]) -> list[Change]:
        return [
            Change(one.start - first, one.end - first, one.new)
            for one in changes
            if first < one.start and one.end < end
        ]

    return base[first:end], inside(edit), inside(drift)


def _drift(rng: random.Random, file: File, edit: Sequence[Change]) -> list[str]:
    drifts, weights = zip(*DRIFTS, strict=True)
    chosen = rng.choices(drifts, weights, k=rng.choice((1, 1, 2, 3)))
    rearranging = {
        drift_copy,
        drift_removal,
        drift_move,
        drift_indentation,
    }  # two of them may cancel out
    if sum(drift in rearranging for drift in chosen) > 1:
        chosen = chosen[:1]
    return [drift(rng, file, edit) for drift in chosen if file]


def _style(rng: random.Random, mistakes: Sequence[str]) -> Style:
    n = rng.choice((3, 3, 3, 3, 0, 1, 2, 2, 4, 5))
    style = Style(n, n, git_headers=rng.random() < 0.5)
    style.scopes = rng.choice(("none", "one", "nested", "short"))
    if "missing context" in mistakes and rng.random() < 0.7:
        style.after = rng.randrange(n + 1)
    elif "missing context" in mistakes:
        style.before = rng.randrange(n + 1)
    if "wrong numbers" in mistakes:
        style.number_error = rng.choice((-30, -7, -2, -1, 1, 2, 7, 30))
    if "wrong counts" in mistakes:
        style.count_error = rng.choice((-2, -1, 1, 2))
    if "no numbers" in mistakes:
        style.no_numbers = rng.choice((b"@@\n", b"@@ @@\n", b"@@ ... @@\n"))
    if "wrong scope" in mistakes:
        style.scopes = "wrong"
    style.empty_context = "empty context lines" in mistakes
    return style


def _can_be_located(base: Lines, hunk: OldHunk, style: Style) -> bool:
    """Whether a hunk without line numbers can be located, by old lines or a scope."""
    below = enclosing(base, hunk.start - 1)[-1:] if hunk.start else []
    is_below_scope = below == [base[hunk.start - 1]] and style.scopes in {"one", "nested", "short"}
    return hunk.end > hunk.start or is_below_scope


def _as_sent(
    path: str,
    sent: Lines,
    hunks: Sequence[OldHunk],
    style: Style,
    mistakes: Sequence[str],
    *,
    is_unified: bool,
) -> str:
    bare = replace(style, bare_names="bare names" in mistakes)
    unified = unified_text(path, sent, hunks, bare)
    text = unified if is_unified else envelope_text(path, sent, hunks, style)
    return garbled(text, path, unified, mistakes)
