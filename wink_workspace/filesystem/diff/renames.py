"""Find deleted files that were created again under another name.

A deleted and a created regular file with content can be a pair. Files of equal content are always
found, by their ids. Similar text files are found within two limits: on the bytes and lines that
are read, and on the steps of comparison. A file of the same name in another directory is
preferred, then the first by path.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO

from wink_workspace.filesystem.model import FileKind

from .diff_input import Content, DiffChange, DiffLimits, Side

_MIN_PERCENT = 50
_MAX_STEPS = 500_000


@dataclass(frozen=True, slots=True)
class Rename:
    """A deletion and a creation that together are a rename, and the similarity in percent."""

    deletion: DiffChange
    creation: DiffChange
    percent: int


def is_binary(data: bytes) -> bool:
    """Whether it has a NUL byte, so that it is not compared by lines."""
    return b"\0" in data


def find_renames(changes: Sequence[DiffChange], limits: DiffLimits) -> list[Rename]:
    """The renames among *changes*, which must be sorted by path."""
    deleted: list[_File] = []
    created: list[_File] = []
    for change in changes:
        if change.before is None and change.after is not None:
            if _may_move(change.after):
                created.append(_File(change, change.after.content))
        elif change.after is None and change.before is not None and _may_move(change.before):
            deleted.append(_File(change, change.before.content))
    renames: list[Rename] = []
    if not deleted or not created:
        return renames

    def accept(found: list[Rename]) -> None:
        nonlocal deleted, created
        moved = {id(c) for rename in found for c in (rename.deletion, rename.creation)}
        deleted = [file for file in deleted if id(file.change) not in moved]
        created = [file for file in created if id(file.change) not in moved]
        renames.extend(found)

    accept(list(_of_equal(deleted, created, lambda file: (file.name, file.content.id))))
    accept(list(_of_equal(deleted, created, lambda file: file.content.id)))
    if deleted and created:
        renames += _of_similar_text(deleted, created, _Reader(limits))
    return renames


def _may_move(side: Side) -> bool:
    return side.kind is FileKind.FILE and side.content.size_bytes > 0


@dataclass(frozen=True, slots=True)
class _File:
    """A deleted or created file, and its content."""

    change: DiffChange
    content: Content

    @property
    def name(self) -> str:
        return self.change.path.name


class _Reader:
    """Counts the lines of files, up to a limit on all of them."""

    def __init__(self, limits: DiffLimits) -> None:
        self._bytes_left = limits.rename_bytes
        self._lines_left = limits.rename_lines

    def lines(self, file: _File) -> Counter[bytes] | None:
        """The count of each line; ``None`` if the file is binary or beyond the limit."""
        if file.content.size_bytes > self._bytes_left:
            return None
        self._bytes_left -= file.content.size_bytes
        data = file.content.read()
        n_lines = data.count(b"\n") + 1
        if is_binary(data) or n_lines > self._lines_left:
            return None
        self._lines_left -= n_lines
        return Counter(BytesIO(data))


def _of_equal(
    deleted: Sequence[_File], created: Sequence[_File], key: Callable[[_File], Hashable]
) -> Iterator[Rename]:
    sources: defaultdict[Hashable, list[_File]] = defaultdict(list)
    for source in reversed(deleted):
        sources[key(source)].append(source)
    for target in created:
        if candidates := sources.get(key(target)):
            yield Rename(candidates.pop().change, target.change, 100)


def _of_similar_text(
    deleted: Sequence[_File], created: Sequence[_File], reader: _Reader
) -> Iterator[Rename]:
    """Pairs of similar files, the best first; each file at most once."""
    pairs = sorted(
        _similar_pairs(deleted, created, reader),
        key=lambda pair: (-pair.percent, pair.deletion.path.name != pair.creation.path.name),
    )
    moved: set[int] = set()
    for pair in pairs:
        ends = {id(pair.deletion), id(pair.creation)}
        if not ends & moved:
            moved |= ends
            yield pair


def _similar_pairs(
    deleted: Sequence[_File], created: Sequence[_File], reader: _Reader
) -> Iterator[Rename]:
    sources, targets = (
        [(file, lines) for file in side if (lines := reader.lines(file)) is not None]
        for side in (deleted, created)
    )
    n_steps = 0
    for source, source_lines in sources:
        for target, target_lines in targets:
            n_steps += 1
            smaller, larger = sorted((source.content.size_bytes, target.content.size_bytes))
            if 100 * smaller < _MIN_PERCENT * larger:
                continue
            n_steps += min(len(source_lines), len(target_lines))
            if n_steps > _MAX_STEPS:
                return
            percent = 100 * _n_common_bytes(source_lines, target_lines) // larger
            if percent >= _MIN_PERCENT:
                # All lines may be equal, in another order, but 100 would mean equal content.
                yield Rename(source.change, target.change, min(percent, 99))


def _n_common_bytes(one: Counter[bytes], other: Counter[bytes]) -> int:
    fewer, more = sorted((one, other), key=len)
    return sum(len(line) * min(n, more[line]) for line, n in fewer.items())
