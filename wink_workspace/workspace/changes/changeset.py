"""The changes that a workspace would apply to its source, the same for every command.

Rule 1: ``run``, ``diff``, ``apply``, its patch and its branch start from the same ``ChangeSet``.
Rule 2: a change is included unless there is a reason against it. Each change that is left out is
listed with its reason. Only what the workspace created can be left out because it is ignored.
Rule 3: only empty directories count as changes of their own, as in git.
Rule 4: nothing is written here. ``ChangeSet.root`` alone adds trees to the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import islice
from typing import Literal

from wink_workspace.filesystem import (
    Diff,
    FileKind,
    LineCounts,
    WorkspacePath,
)
from wink_workspace.ledger import (
    ObjectStore,
    TreeChange,
    TreeEntry,
    build,
    diff,
    entry_at,
    links_in,
    tree_diff,
)
from wink_workspace.workspace.place.path_rules import OUTPUT_FOLDER

from .risks import Links, risks_of
from .source_rules import SourceFilter, no_filter

Status = Literal["added", "changed", "removed"]


class LeftOutReason(StrEnum):
    """Why a change is left out."""

    IGNORED = "ignored"
    OWN_OUTPUT = "output kept by wink-workspace"
    REPOSITORY = "part of a git repository"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A path that is left out; for a directory, with the number of changed files in it."""

    path: WorkspacePath
    reason: LeftOutReason
    n_files: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PathChange:
    """What happens to one path.

    Attributes:
        path: The file, link or empty directory.
        status: ``"changed"`` if the path exists before and after.
        detail: Another mode, a link, or an empty directory.
        risks: Why it can run something on the user's machine.
        lines: Added and deleted lines; ``None`` for what is too large for a diff.
        n_bytes: The size after the change, or before it for a removed path.
    """

    path: WorkspacePath
    status: Status
    detail: str = ""
    risks: tuple[str, ...] = ()
    lines: LineCounts | None = None
    n_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """The difference of two trees, without what is left out.

    Attributes:
        base: The root before.
        wanted: The root after, including what is left out.
        trees: The included changes with their directories, in path order.
        left_out: The changes that are not included.
        derived: The derived paths that changed since the import; this does not include them.
        is_partial: Whether there are more changes than the limit of ``between``.
    """

    store: ObjectStore
    base: str
    wanted: str
    trees: tuple[TreeChange, ...]
    left_out: tuple[LeftOut, ...]
    _emptied: frozenset[WorkspacePath] = frozenset()
    derived: tuple[WorkspacePath, ...] = ()
    is_partial: bool = False

    @classmethod
    def between(
        cls,
        store: ObjectStore,
        base: str,
        wanted: str,
        source_filter: SourceFilter = no_filter,
        *,
        limit: int | None = None,
    ) -> ChangeSet:
        """The changes from *base* to *wanted*; with *limit*, that many to be counted only."""
        found = diff(store, base, wanted)
        changes = list(islice(found, limit))
        choice = _Choice(changes, source_filter)
        included = tuple(choice.included(changes))
        left_out, is_partial = tuple(choice.left_out), next(found, None) is not None
        return cls(store, base, wanted, included, left_out, choice.emptied, is_partial=is_partial)

    @property
    def reported(self) -> tuple[TreeChange, ...]:
        """The included files, links and empty directories."""
        return tuple(reported(self.trees))

    @property
    def paths(self) -> tuple[str, ...]:
        """Their paths, sorted."""
        return tuple(str(change.path) for change in self.reported)

    def root(self) -> str:
        """The tree *base* with the included changes, written to the ledger.

        Raises:
            LedgerError: If it cannot be written.
        """
        kept = {
            each.path: entry_at(self.store, self.base, each.path)
            for each in self.left_out
            if not self._emptied.intersection(each.path.ancestors())
        }
        entries = kept | dict.fromkeys(self._emptied)
        return build(self.store, self.wanted, entries) if entries else self.wanted

    def review(self) -> Diff:
        """``reported`` as a diff; contents are read while the ledger is open."""
        return tree_diff(self.store, self.reported)

    def changes(self) -> tuple[PathChange, ...]:
        """What happens to each path, with counted lines and risks."""
        return tuple(_described(self.review(), self.reported, _Contents(self.store, self.wanted)))

    def marked(self) -> Mapping[WorkspacePath, tuple[str, ...]]:
        """The paths that can run something on the user's machine, each with the reasons."""
        contents = _Contents(self.store, self.wanted)
        found = ((change.path, contents.risks(change)) for change in self.reported)
        return {path: risks for path, risks in found if risks}


# ------------------------------------------------------------------------------- the choice


class _Choice:
    """Decides for each change whether it is included.

    Attributes:
        left_out: What is not, with the reason; changes below a directory are counted with it.
        emptied: New directories of which everything is left out, so they are left out, too.
    """

    def __init__(self, changes: Sequence[TreeChange], source_filter: SourceFilter) -> None:
        self._source_filter = source_filter
        self._repositories = source_filter.in_repository(changes)
        self._hidden: set[WorkspacePath] = set()
        self._kept: set[WorkspacePath] = set()
        self.left_out: list[LeftOut] = []
        for change in changes:
            self._consider(change)
        self._keep_nonempty_directories(changes)
        self.emptied = self._find_emptied(changes)

    def included(self, changes: Sequence[TreeChange]) -> Iterator[TreeChange]:
        """Those of *changes* that are included."""
        for change in changes:
            if change.path in self.emptied:
                if change.before is not None:  # a file that a directory replaced
                    yield replace(change, after=None)
            elif change.path not in self._hidden and change.path not in self._kept:
                yield change

    def _consider(self, change: TreeChange) -> None:
        last = self.left_out[-1] if self.left_out else None
        if last is not None and change.path.is_below(last.path):
            reason = last.reason
        else:
            reason = self._reason(change)
            if reason is None:
                return
            self.left_out.append(LeftOut(change.path, reason, n_files=0))
        self._hidden.add(change.path)
        last = self.left_out[-1]
        self.left_out[-1] = replace(last, n_files=last.n_files + _has_file(change))

    def _reason(self, change: TreeChange) -> LeftOutReason | None:
        path = change.path
        if path.is_below(OUTPUT_FOLDER):
            return LeftOutReason.OWN_OUTPUT
        if path in self._repositories:
            return LeftOutReason.REPOSITORY
        if (
            change.before is None
            and change.after is not None
            and not self._source_filter.holds(path)
        ):
            is_directory = change.after.kind is FileKind.DIRECTORY
            if self._source_filter.ignores(path, is_directory):
                return LeftOutReason.IGNORED
        return None

    def _keep_nonempty_directories(self, changes: Sequence[TreeChange]) -> None:
        """Keep removed directories that still hold something left out; nothing replaces them."""
        stays = (each for each in changes if each.path in self._hidden and each.before is not None)
        around = {above for change in stays for above in change.path.ancestors()}
        for change in changes:
            if change.path not in around or not _is_directory(change.before):
                continue
            self._kept.add(change.path)
            if change.after is not None:
                inside = [each for each in changes if each.path.is_below(change.path)]
                self._hidden.update(each.path for each in inside)
                reason = LeftOutReason.REPOSITORY
                n_files = sum(map(_has_file, inside))
                self.left_out.append(LeftOut(change.path, reason, n_files))

    def _find_emptied(self, changes: Sequence[TreeChange]) -> frozenset[WorkspacePath]:
        """New directories with contents of which everything is left out."""
        full = {change.path.parent for change in changes if change.after is not None}
        alive: set[WorkspacePath] = set()
        emptied: set[WorkspacePath] = set()
        for change in reversed(changes):
            path, after = change.path, change.after
            if after is None or path in self._hidden:
                continue
            is_new = _is_directory(after) and not _is_directory(change.before)
            if is_new and path in full and path not in alive:
                emptied.add(path)
            else:
                alive.add(path.parent)
        return frozenset(emptied)


def reported(changes: Iterable[TreeChange]) -> Iterator[TreeChange]:
    """Rule 3: *changes* without the directories that hold other changed paths."""
    changes = list(changes)
    left = {each.path.parent for each in changes if each.before is not None}
    came = {each.path.parent for each in changes if each.after is not None}
    for change in changes:
        before, after = change.before, change.after
        if _is_directory(before) and change.path in left:
            change = replace(change, before=None)
        if _is_directory(after) and change.path in came:
            change = replace(change, after=None)
        if change.before is not None or change.after is not None:
            yield change


def is_empty_directory(change: TreeChange) -> bool:
    """Whether a reported change is only a directory, which git cannot keep."""
    return not _has_file(change)


def _is_directory(side: TreeEntry | None) -> bool:
    return side is not None and side.kind is FileKind.DIRECTORY


def _has_file(change: TreeChange) -> bool:
    return any(
        side is not None and not _is_directory(side) for side in (change.before, change.after)
    )


# ----------------------------------------------------------------------------- the description


class _Contents:
    """Sizes, and targets of links, of both sides."""

    def __init__(self, store: ObjectStore, root: str) -> None:
        self._store = store
        self._root = root

    def n_bytes(self, side: TreeEntry | None) -> int:
        """The size of the content; 0 for a directory or nothing."""
        if side is None or side.kind is FileKind.DIRECTORY:
            return 0
        return self._store.size_bytes(side.id)

    def risks(self, change: TreeChange) -> tuple[str, ...]:
        """Why the new state can run something on the user's machine."""
        after = change.after
        if after is None:
            return ()
        return risks_of(
            change.path,
            after.kind,
            executable=after.executable,
            target=self._target(after),
            links=self._links,
        )

    @cached_property
    def _links(self) -> Links:
        """The links of the wanted tree; reads each of its directories."""
        return Links(dict(links_in(self._store, self._root)))

    def _target(self, side: TreeEntry | None) -> str | None:
        """The target of a link; ``None`` for everything else."""
        if side is None or side.kind is not FileKind.SYMLINK:
            return None
        return self._store.read(side.id).decode("utf-8", "surrogateescape")


def _described(
    review: Diff, changes: Sequence[TreeChange], contents: _Contents
) -> Iterator[PathChange]:
    lines = dict(zip(review.paths, review.line_counts(), strict=True))
    for change in changes:
        before, after = change.before, change.after
        yield PathChange(
            path=change.path,
            status="added" if before is None else "removed" if after is None else "changed",
            detail=_detail(before, after),
            risks=contents.risks(change),
            lines=lines[str(change.path)],
            n_bytes=contents.n_bytes(before if after is None else after),
        )


def _detail(before: TreeEntry | None, after: TreeEntry | None) -> str:
    present = before if after is None else after
    if present is None:
        return ""
    if before is not None and after is not None and before.kind is not after.kind:
        return f"{before.kind} becomes {after.kind}"
    if present.kind is not FileKind.FILE:
        return "empty directory" if present.kind is FileKind.DIRECTORY else "link"
    if before is not None and after is not None and before.executable != after.executable:
        return "mode +x" if after.executable else "mode -x"
    return ""
