"""Which of the files that went away came back under another name.

Only regular files with content take part: one that is gone and one that is new make a pair.
Files of equal content are found always, similar text files as long as the work stays small.
A file of the same name in another directory is preferred, then the first by path.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO

from wink_workspace.filesystem.model import FileChange, FileKind, FileState

__all__ = ["Rename", "find_renames", "is_binary"]

_MIN_PERCENT = 50
_MAX_STEPS = 500_000


@dataclass(frozen=True, slots=True)
class Rename:
    """A deletion and a creation that together are a file's move, and how similar they are."""

    deletion: FileChange
    creation: FileChange
    percent: int


def is_binary(data: bytes) -> bool:
    """Whether a comparison of it by lines would make no sense."""
    return b"\0" in data


def find_renames(changes: Sequence[FileChange]) -> list[Rename]:
    """The moves among *changes*, which are taken as sorted by path."""
    deleted = [_File.of(c, c.before) for c in changes if c.after is None and _may_move(c.before)]
    created = [_File.of(c, c.after) for c in changes if c.before is None and _may_move(c.after)]
    renames: list[Rename] = []
    for find in (_of_equal_name_and_content, _of_equal_content, _of_similar_text):
        found = list(find(deleted, created))
        moved = {id(c) for rename in found for c in (rename.deletion, rename.creation)}
        deleted = [file for file in deleted if id(file.change) not in moved]
        created = [file for file in created if id(file.change) not in moved]
        renames += found
    return renames


def _may_move(state: FileState | None) -> bool:
    return state is not None and state.kind is FileKind.FILE and state.data != b""


@dataclass(frozen=True, slots=True)
class _File:
    """A file that is gone or new, and its content."""

    change: FileChange
    data: bytes

    @classmethod
    def of(cls, change: FileChange, state: FileState | None) -> _File:
        return cls(change, state.data if state else b"")

    @property
    def name(self) -> str:
        return self.change.path.name


def _of_equal_name_and_content(
    deleted: Sequence[_File], created: Sequence[_File]
) -> Iterator[Rename]:
    return _of_equal(deleted, created, lambda file: (file.name, file.data))


def _of_equal_content(deleted: Sequence[_File], created: Sequence[_File]) -> Iterator[Rename]:
    return _of_equal(deleted, created, lambda file: file.data)


def _of_equal(
    deleted: Sequence[_File], created: Sequence[_File], key: Callable[[_File], Hashable]
) -> Iterator[Rename]:
    sources: defaultdict[Hashable, list[_File]] = defaultdict(list)
    for source in reversed(deleted):
        sources[key(source)].append(source)
    for target in created:
        if candidates := sources.get(key(target)):
            yield Rename(candidates.pop().change, target.change, 100)


def _of_similar_text(deleted: Sequence[_File], created: Sequence[_File]) -> Iterator[Rename]:
    """The best pairs first; no file twice."""
    pairs = sorted(
        _similar_pairs(deleted, created),
        key=lambda pair: (-pair.percent, pair.deletion.path.name != pair.creation.path.name),
    )
    moved: set[int] = set()
    for pair in pairs:
        ends = {id(pair.deletion), id(pair.creation)}
        if not ends & moved:
            moved |= ends
            yield pair


def _similar_pairs(deleted: Sequence[_File], created: Sequence[_File]) -> Iterator[Rename]:
    sources, targets = (
        [
            (file, Counter(BytesIO(file.data).readlines()))
            for file in side
            if not is_binary(file.data)
        ]
        for side in (deleted, created)
    )
    n_steps = 0
    for source, source_lines in sources:
        for target, target_lines in targets:
            n_steps += 1
            smaller, larger = sorted((len(source.data), len(target.data)))
            if 100 * smaller < _MIN_PERCENT * larger:
                continue
            n_steps += min(len(source_lines), len(target_lines))
            if n_steps > _MAX_STEPS:
                return
            percent = 100 * _n_common_bytes(source_lines, target_lines) // larger
            if percent >= _MIN_PERCENT:
                # Equal lines in another order are similar, but "100" would mean no change.
                yield Rename(source.change, target.change, min(percent, 99))


def _n_common_bytes(one: Counter[bytes], other: Counter[bytes]) -> int:
    fewer, more = sorted((one, other), key=len)
    return sum(len(line) * min(n, more[line]) for line, n in fewer.items())
