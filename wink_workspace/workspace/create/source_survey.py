"""One walk of a source before it is copied: its rules, its derived paths, and its size.

The proposal of derived paths comes from three facts of the imported tree: names, a
``CACHEDIR.TAG`` [bford.info/cachedir], and git's ignore rules. A path that git tracks is never
derived. Derived and excluded directories are not entered, so their size does not matter here.

A ``.git`` of a submodule is a file that names a repository which is not imported. Such a file is
derived, and not copied: git in a sandbox would fail on it.
"""

from __future__ import annotations

import stat
import sys
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wink_workspace._collector import CollectorPaused
from wink_workspace.counts import counted, sized
from wink_workspace.errors import FilesystemError, SourceTooLargeError
from wink_workspace.filesystem import FileKind, WorkspacePath
from wink_workspace.filesystem.changes import FileIndex
from wink_workspace.filesystem.disk.descriptors import Listing, Parts
from wink_workspace.filesystem.disk.tree import DiskTree
from wink_workspace.filesystem.ignoring import path_patterns
from wink_workspace.filesystem.paths import DERIVED_NAMES, PUBLIC_NAMES, SECRET_NAMES
from wink_workspace.ledger import repository_directories
from wink_workspace.workspace.changes.source_rules import GitView, open_git_view
from wink_workspace.workspace.place.path_rules import (
    IGNORED_NAMES,
    ImportConfig,
    PathRules,
    anchored,
)

_TAG: Final = "CACHEDIR.TAG"
_GIT: Final = ".git"
_SIGNATURE: Final = b"Signature: 8a477f597d28d172789f06886806bc55"
_ANYWHERE: Final = "any-directory"
_MOST_SHOWN: Final = 5
_DOMINANT: Final = 0.8
_GIVE_UP: Final = 4
"""A walk ends above this multiple of the most files: the largest paths so far are enough."""


@dataclass(slots=True)
class Survey:
    """What a source holds.

    Attributes:
        rules: Its rules.
        derived: The topmost derived paths that exist.
        n_files: The number of recorded files.
        n_bytes: Their size.
        index: The statuses of what is recorded.
    """

    rules: PathRules
    derived: list[WorkspacePath]
    n_files: int
    n_bytes: int
    index: FileIndex


def survey(source: Path, tree: DiskTree, config: ImportConfig) -> Survey:
    """Walk *source*, which is open as *tree*.

    Raises:
        SourceTooLargeError: If it exceeds a limit of *config*.
        FilesystemError: If it cannot be read.
    """
    with open_survey(source, tree, config) as walk:
        return walk.run()


@contextmanager
def open_survey(source: Path, tree: DiskTree, config: ImportConfig) -> Generator[SourceWalk]:
    """A walk of *source*, which is open as *tree*; valid inside the block."""
    with open_git_view(source) as git, CollectorPaused():
        yield SourceWalk(source, tree, git, config)


class SourceWalk:
    """One walk.

    Attributes:
        first_rules: The rules before the walk, which adds those for single paths.
    """

    def __init__(self, source: Path, tree: DiskTree, git: GitView, config: ImportConfig) -> None:
        self._source = source
        self._index = FileIndex()
        self._tree = tree
        self._git = git
        self._config = config
        self._excluded = path_patterns(tuple(config.exclude))
        proposed = (*DERIVED_NAMES, *SECRET_NAMES) if config.propose_derived else ()
        self._patterns = [*config.derived, *proposed]
        if config.propose_derived:
            self._patterns += self._ignored_names()
        self._derived = path_patterns(tuple(self._patterns))
        self._public = path_patterns(PUBLIC_NAMES if config.propose_derived else ())
        self._content: list[str] = list(PUBLIC_NAMES if config.propose_derived else ())
        self.first_rules = self._rules()
        self._tops: list[WorkspacePath] = []
        self._sizes: Counter[Parts] = Counter()
        self._counts: Counter[Parts] = Counter()
        self._n_files = self._n_bytes = 0

    def _ignored_names(self) -> Iterator[str]:
        """The names that the rules ignore at any depth, or at the top."""
        for name in IGNORED_NAMES:
            if self._git.ignores((_ANYWHERE, name), is_directory=True):
                yield (
                    name if self._git.ignores((_ANYWHERE, name), is_directory=False) else f"{name}/"
                )
            elif self._git.ignores((name,), is_directory=True):
                yield f"/{name}" if self._git.ignores((name,), is_directory=False) else f"/{name}/"

    def run(self, *, racy_ns: int = sys.maxsize) -> Survey:
        """Walk the source; see ``survey``.

        Statuses that changed at *racy_ns* or later are racily clean; none when omitted.
        """
        most_files = _GIVE_UP * self._config.most_files
        for listing in self._tree.listings(unreadable=self._index.unreadable.add):
            self._look_at(listing, racy_ns)
            if self._n_files > most_files:
                break
        self._check_size()
        tops = sorted(self._tops)
        return Survey(self._rules(), tops, self._n_files, self._n_bytes, self._index)

    def _look_at(self, listing: Listing, racy_ns: int) -> None:
        """Remove from *listing* what is not recorded, and add the rest."""
        names, below = [name for name, _ in listing.entries], listing.directories()
        if self._is_cache(listing.parts, names):
            self._patterns.append(anchored(listing.parts))
            self._tops.append(WorkspacePath(listing.parts))
            self._index.forget(listing.parts[:-1], listing.parts[-1])
            listing.entries.clear()
            return
        if hidden := self._unrecorded(listing.parts, names, below):
            listing.entries[:] = [at for at in listing.entries if at[0] not in hidden]
        self._index.put_listing(listing.parts, listing.entries, racy_ns)
        sizes = [status.st_size for _, status in listing.entries if stat.S_ISREG(status.st_mode)]
        self._counts[listing.parts] = len(sizes)
        self._sizes[listing.parts] = sum(sizes)
        self._n_files += len(sizes)
        self._n_bytes += self._sizes[listing.parts]

    def _rules(self) -> PathRules:
        """The rules as far as they are known."""
        return PathRules(
            excluded=self._config.exclude,
            derived=tuple(dict.fromkeys(self._patterns)),
            content=tuple(self._content) if self._patterns else (),
            on_rollback=self._config.on_rollback,
        )

    def _unrecorded(self, directory: Parts, names: Sequence[str], below: Sequence[str]) -> set[str]:
        """The names that are excluded or derived."""
        hidden = self._excluded.matching(directory, names, below)
        if directory and _GIT in names and self._leads_out(directory):
            self._patterns.append(anchored((*directory, _GIT)))
            hidden = {*hidden, _GIT}
        derived = self._derived.matching(directory, names, below) - hidden
        if derived:
            derived -= self._public.matching(directory, names)
        for name in sorted(derived):
            parts = (*directory, name)
            if self._git.tracks(parts):
                self._content.append(anchored(parts))
            else:
                self._tops.append(WorkspacePath(parts))
                hidden.add(name)
        return hidden

    def _leads_out(self, directory: Parts) -> bool:
        """Whether the ``.git`` of a nested directory is a file that names what is not imported."""
        pointer = self._source.joinpath(*directory, _GIT)
        if not pointer.is_file() or pointer.is_symlink():
            return False
        source = self._source.resolve()
        return any(
            not path.is_relative_to(source) or path.is_relative_to(source / _GIT)
            for path in repository_directories(pointer)
        )

    def _is_cache(self, directory: Parts, names: Sequence[str]) -> bool:
        """Whether a directory has a ``CACHEDIR.TAG``; the source itself does not count."""
        if not (self._config.propose_derived and directory and _TAG in names):
            return False
        try:
            path = WorkspacePath((*directory, _TAG))
            found = self._tree.entry(path)
            if found is None or found.kind is not FileKind.FILE:
                return False
            with self._tree.open(path) as file:
                is_tag = file.read(len(_SIGNATURE)) == _SIGNATURE
        except FilesystemError:
            return False
        return is_tag and not self._git.tracks(directory)

    # The size

    def _check_size(self) -> None:
        n_files, n_bytes = self._n_files, self._n_bytes
        most_files, most_bytes = self._config.most_files, self._config.most_bytes
        if n_files > most_files:
            shown = [f"{path} ({counted(n, 'file')})" for path, n in self._largest(self._counts)]
            what = f"has more than {counted(most_files, 'file')}"
        elif n_bytes > most_bytes:
            shown = [f"{path} ({sized(n)})" for path, n in self._largest(self._sizes)]
            what = f"has {sized(n_bytes)}, and at most {sized(most_bytes)} are copied"
        else:
            return
        raise SourceTooLargeError(f"{self._source} {what}; the largest paths: {', '.join(shown)}")

    def _largest(self, own: Counter[Parts]) -> list[tuple[str, int]]:
        """The largest paths at the top, each narrowed down to the part that dominates it."""
        whole: Counter[Parts] = Counter()
        below: dict[Parts, set[Parts]] = {}
        for parts, n in own.items():
            for depth in range(len(parts) + 1):
                whole[parts[:depth]] += n
                if depth:
                    below.setdefault(parts[: depth - 1], set()).add(parts[:depth])
        if own is self._sizes:
            self._add_large_files(whole, below)
        found: list[tuple[str, int]] = []
        tops = sorted(below.get((), ()), key=lambda each: -whole[each]) or [()]
        for top in tops[:_MOST_SHOWN]:
            path = top
            while inner := below.get(path):
                largest = max(inner, key=lambda each: whole[each])
                if whole[largest] < _DOMINANT * whole[path]:
                    break
                path = largest
            if whole[path]:
                found.append((str(WorkspacePath(path)) if path else ".", whole[path]))
        return found

    def _add_large_files(self, whole: Counter[Parts], below: dict[Parts, set[Parts]]) -> None:
        """Add the files of the directories that hold most by themselves."""
        for directory, _ in self._sizes.most_common(2 * _MOST_SHOWN):
            for entry in self._tree.entries(WorkspacePath(directory)):
                parts = entry.path.parts
                if entry.kind is FileKind.FILE and not self._excluded.match(parts):
                    whole[parts] = entry.size_bytes
                    below.setdefault(directory, set()).add(parts)
