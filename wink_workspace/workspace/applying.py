"""Bringing what a workspace changed back to the directory that it was made of.

Rule 1: a path is written only if the source holds there what it was known to hold: what was
imported, or what an earlier ``apply`` put there (also one that a crash cut short). One path
that does not is a ``ConflictError``, and nothing is written at all.
Rule 2: what is removed goes before what is written, each file appears whole or not at all, and
when something fails midway, what was done is taken back.
Rule 3: no path is touched that is part of a git repository, or would complete one in the source
(``ledger.git_discovery``). A repository there is its user's, and what is planted in one, a hook or
a configured program, would run on the host.
Rule 4: nothing is reached through a link, and no directory goes that holds more than is known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from wink_workspace.errors import (
    ConflictError,
    FilesystemError,
    LedgerDamagedError,
    LedgerError,
    RollbackError,
    UsageError,
    WinkError,
)
from wink_workspace.filesystem import FileKind, WorkspacePath, render_diff
from wink_workspace.filesystem.disk.descriptors import TEMPORARY_PREFIX, change_mode
from wink_workspace.filesystem.disk.tree import DiskEntry, DiskTree
from wink_workspace.ledger import (
    SOME_DIRECTORY,
    DiskView,
    ObjectStore,
    TreeChange,
    TreeEntry,
    WriterLock,
    create_branch,
    diff,
    entry_at,
    looking_at,
    paths_left_behind,
)
from wink_workspace.ledger.disk import ledger_failures, write_whole

from .changeset import ChangeSet, is_empty_directory
from .contents import UNKNOWN_CONTENT, content_of, same_content
from .known_modes import KnownModes
from .source_rules import outside_of, rules_in

__all__ = [
    "Applied",
    "AppliedTrees",
    "ApplyTarget",
    "SourceUpdate",
    "apply_to_directory",
]

ApplyTarget = Literal["worktree", "patch", "branch"]

_ROOT: Final = re.compile("[0-9a-f]{40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What ``apply`` did.

    Attributes:
        paths: The paths that are now as the workspace has them and were not before.
        left_out: Changed paths that stay behind: those of ``ChangeSet.left_out``, for a patch or
            a branch also what git cannot keep, and for a branch what is ignored and not in HEAD.
        patch: The patch, if one was asked for.
        branch: The branch's name, if one was asked for.
        commit: The id of the branch's commit.
    """

    paths: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    patch: str = ""
    branch: str = ""
    commit: str = ""


class AppliedTrees:
    """The trees of which the source may hold parts, by their roots; kept in a small file.

    Before a directory is written to, the tree that it is about to get is added, and once it
    has it all, it is the only one.

    Args:
        place: The file.
        imported: The root of what was imported; what the source holds while there is no file.
    """

    def __init__(self, place: Path, *, imported: str) -> None:
        self._place = place
        self._imported = imported

    @property
    def roots(self) -> tuple[str, ...]:
        """The roots, the oldest first.

        Raises:
            LedgerDamagedError: If the file holds something else.
        """
        try:
            roots = tuple(json.loads(self._place.read_bytes())["roots"])
            if not roots or not all(map(_ROOT.fullmatch, roots)):
                raise ValueError("no roots")
        except FileNotFoundError:
            return (self._imported,)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise self._damaged("cannot be read") from error
        return roots

    def known_to(self, store: ObjectStore) -> tuple[str, ...]:
        """The same, all of which *store* has.

        Raises:
            LedgerDamagedError: As ``roots``, and if one is missing.
        """
        roots = self.roots
        if any(root not in store.repository for root in roots):
            raise self._damaged("names a tree that is not there any more")
        return roots

    def _damaged(self, how: str) -> LedgerDamagedError:
        return LedgerDamagedError(
            f"{self._place}, which says what the source was given, {how}",
            hint="Delete it; the source is then compared with what was imported from it.",
        )

    @property
    def kept(self) -> tuple[str, ...]:
        """The trees that the ledger has to keep for the next ``apply``, as far as is known."""
        try:
            return tuple(root for root in self.roots if root)
        except LedgerDamagedError:
            return ()

    @property
    def is_unfinished(self) -> bool:
        """Whether something was begun that neither came to its end nor was taken back."""
        try:
            return len(self.roots) > 1
        except LedgerDamagedError:
            return True

    @property
    def was_cut_short(self) -> bool:
        """Whether something is unfinished and nobody is at it any more."""
        if not self.is_unfinished:
            return False
        with looking_at(self.lock) as nobody_applies:
            return nobody_applies and self.is_unfinished

    @property
    def lock(self) -> Path:
        """The lock of who applies something."""
        return self._place.with_name(self._place.name + ".lock")

    def write(self, roots: Sequence[str]) -> None:
        """Keep *roots*, each once.

        Raises:
            LedgerError: If they cannot be written.
        """
        text = json.dumps({"roots": list(dict.fromkeys(roots))}) + "\n"
        with ledger_failures("what the source is given cannot be noted"):
            write_whole(self._place, text.encode("ascii"), durable=False)


class SourceUpdate:
    """What a workspace changed since it was imported, on its way back to the source.

    Args:
        source: The directory that was imported.
        changes: What it shall get, compared with what was imported.

    Every method raises ``UsageError`` if the source is not there any more.
    """

    def __init__(self, source: Path, changes: ChangeSet) -> None:
        self._store = changes.store
        self._source = source
        self._brought = changes
        self._imported = changes.base

    def to_directory(self, applied: Path, *, at: datetime, held: str | None = None) -> Applied:
        """Write it into the source; *applied* is the file of ``AppliedTrees``.

        *held* is the root of what the source held when its changes began to be others than
        ours; the import, if omitted.

        Raises as ``apply_to_directory``, and ``LedgerBusyError`` if another line is at it.
        """
        try:
            source = DiskTree(self._source)
        except (FilesystemError, UsageError) as error:
            raise UsageError(
                f"nothing can be applied to {self._source}: {error.message}",
                hint="Put the directory back in its place, or write a patch.",
            ) from error
        trees = AppliedTrees(applied, imported=held or self._imported)
        with source, self._alone(trees, at):
            modes = KnownModes(applied.with_name(applied.name + ".modes"))
            wanted = self._brought.root()
            done = apply_to_directory(source, self._store, wanted, trees, modes)
        return replace(done, left_out=self._left_out(done.left_out))

    @contextmanager
    def _alone(self, trees: AppliedTrees, at: datetime) -> Generator[None]:
        """Let one line at a time bring something to the source."""
        lock = WriterLock(
            trees.lock,
            what=f"{self._source}, to which something is just being applied,",
            now=at,
            hint="Wait until that is done, then apply again.",
        )
        try:
            yield
        finally:
            lock.release()

    def as_patch(self) -> Applied:
        """It as a patch that ``git apply`` accepts; nothing is written.

        Raises:
            LimitExceededError: If a content is too large to be shown.
        """
        shown = self._brought.files()
        empty = [str(change.path) for change in shown if is_empty_directory(change)]
        return Applied(
            paths=tuple(path for path in self._brought.paths if path not in empty),
            left_out=self._left_out(empty),
            patch=render_diff(shown),
        )

    def to_branch(
        self, name: str, *, message: str, at: datetime, include_ignored: bool = False
    ) -> Applied:
        """It as one commit on a new branch of the source's repository.

        Without *include_ignored* an ignored file that HEAD does not have is left out even if it
        was imported: its whole content would be published.

        Raises as ``ledger.create_branch``.
        """
        rules = rules_in(self._store, self._imported)
        with outside_of(self._source, rules, include_ignored=include_ignored) as outside:
            made = create_branch(
                self._store,
                self._source,
                name,
                self._changes(),
                message=message,
                at=at,
                ignores=lambda path: outside.ignores(path, False),
            )
        left_out = self._left_out(made.left_out)
        return Applied(paths=made.paths, left_out=left_out, branch=name, commit=made.commit)

    def _changes(self) -> Sequence[TreeChange]:
        return self._brought.reported

    def _left_out(self, more: Sequence[str]) -> tuple[str, ...]:
        return tuple(sorted({*(str(each.path) for each in self._brought.left_out), *more}))


def apply_to_directory(
    source: DiskTree, store: ObjectStore, wanted: str, trees: AppliedTrees, modes: KnownModes
) -> Applied:
    """Make *source* hold what *wanted* has, where that differs from what it was known to hold.

    Nothing comes back with more rights than it had when an earlier ``apply`` removed it; that is
    what *modes* is for.

    Raises:
        ConflictError: If it holds something else at one of these paths; the message names
            every one, and nothing was written.
        FilesystemError: If something cannot be written; what was done was taken back.
        LedgerError: If what was done cannot be noted; likewise.
        RollbackError: If that was not possible either.
    """
    known = trees.known_to(store)
    if trees.is_unfinished:
        _delete_leftovers(source, store, known)
    plan = _Plan(source, store, wanted, known)
    steps = plan.steps()
    for step in steps:
        if step.there is not None and step.before is not None:
            modes.saw(step.path, step.there.mode, step.before)
    modes.save()
    trees.write([*known, wanted])
    hand = _Hand(source, store, modes)
    begun: list[_Step] = []
    try:
        for step in steps:
            begun.append(step)
            hand.do(step)
        trees.write([wanted])
    except BaseException as error:
        _take_back(hand, begun, error)
        with suppress(LedgerError):  # on a full disk; more trees than need be do no harm
            trees.write(known)
        raise
    return Applied(
        paths=tuple(sorted({str(step.path) for step in steps if _is_reported(step, steps)})),
        left_out=tuple(str(path) for path in plan.left_out),
    )


def _delete_leftovers(source: DiskTree, store: ObjectStore, known: Sequence[str]) -> None:
    """Delete the files under temporary names that a crash left where it was writing.

    What they hold is a part of what was to be written, or what was just replaced by it, so it
    is in the ledger.
    """
    touched = {change.path.parent for root in known for change in diff(store, known[0], root)}
    for directory in sorted(touched):
        with suppress(FilesystemError):  # there may be no such directory now
            for entry in source.entries(directory):
                if entry.path.name.startswith(TEMPORARY_PREFIX):
                    source.delete(entry.path, recursive=False)


def _is_reported(step: _Step, steps: Sequence[_Step]) -> bool:
    """Whether its path is named: as in a ``ChangeSet``, directories are if nothing is in them."""
    sides = [side for side in (step.before, step.after) if side is not None]
    if any(side.kind is not FileKind.DIRECTORY for side in sides):
        return True
    return not any(each.path.parent == step.path for each in steps)


def _take_back(hand: _Hand, begun: Sequence[_Step], cause: BaseException) -> None:
    failures: list[WinkError] = []
    for step in reversed(begun):
        try:
            hand.undo(step)
        except WinkError as error:
            failures.append(error)
    if failures:
        raise RollbackError(
            f"the source could not be put back: {'; '.join(map(str, failures))}",
            failures,
            hint="The workspace is unharmed. Mend what the system complains of, then apply again.",
        ) from cause


@dataclass(frozen=True, slots=True)
class _Step:
    """One thing to do: remove (no *after*), make (no *before*), or replace a file by another.

    ``there`` is what was found before, whose content is ``before``.
    """

    path: WorkspacePath
    there: DiskEntry | None
    before: TreeEntry | None
    after: TreeEntry | None

    @property
    def parts(self) -> tuple[_Step, ...]:
        """The same in steps of one effect each: only files take the place of files."""
        if self.before is None or self.after is None:
            return (self,)
        if self.before.kind is FileKind.FILE is self.after.kind:
            return (self,)
        return replace(self, after=None), replace(self, there=None, before=None)


class _Plan:
    """Finds out what has to be done, and whether it may be.

    Attributes:
        left_out: The changed paths that rule 3 keeps out.
    """

    def __init__(
        self, source: DiskTree, store: ObjectStore, wanted: str, known: Sequence[str]
    ) -> None:
        self._source = source
        self._store = store
        self._wanted = wanted
        self._known = known
        changed = {change.path for root in known for change in diff(store, root, wanted)}
        brought = ((path, entry_at(store, wanted, path)) for path in changed)
        self.left_out = sorted(paths_left_behind(store, [DiskView(source)], brought))
        mine = changed.difference(self.left_out)
        self._paths = sorted(path for path in mine if not self._must_stay(path))

    def steps(self) -> list[_Step]:
        """What has to be done, in this order; ``ConflictError`` if the source has moved on."""
        found = [step for path in self._paths if (step := self._step(path)) is not None]
        conflicts = sorted({*self._unexpected(found), *self._lost_parents(found)})
        if conflicts:
            raise ConflictError(
                f"the source changed since it was copied: {', '.join(map(str, conflicts))}",
                hint="Put these paths back there, or take the changes as a patch or a branch.",
            )
        parts = [part for step in found for part in step.parts]
        removals = [part for part in reversed(parts) if part.after is None]
        return [*removals, *(part for part in parts if part.after is not None)]

    def _step(self, path: WorkspacePath) -> _Step | None:
        """What to do for one path; ``None`` if it is as wanted already."""
        after = entry_at(self._store, self._wanted, path)
        try:
            there = self._source.entry(path)
            before = content_of(self._source, there)
        except FilesystemError:  # no way to it, or not readable: as good as something else
            return _Step(path, None, UNKNOWN_CONTENT, after)
        return None if same_content(before, after) else _Step(path, there, before, after)

    def _unexpected(self, steps: Sequence[_Step]) -> Iterator[WorkspacePath]:
        """The paths that do not hold what they were known to hold."""
        going = {part.path for step in steps for part in step.parts if part.after is None}
        for step in steps:
            expected = [entry_at(self._store, root, step.path) for root in self._known]
            if step.before is None and len(self._known) > 1:
                continue  # a crash may have come between a removal and what follows it
            if not any(same_content(step.before, entry) for entry in expected):
                yield step.path
            elif step.before == SOME_DIRECTORY and step.path in going:
                inside = (entry.path for entry in self._source.entries(step.path))
                yield from (path for path in inside if path not in going)

    def _lost_parents(self, steps: Sequence[_Step]) -> Iterator[WorkspacePath]:
        """The directories that are needed, are not made by us, and are not there any more."""
        planned = {step.path for step in steps}
        for parent in {step.path.parent for step in steps if step.after is not None} - planned:
            try:
                there = self._source.entry(parent)
            except FilesystemError:
                there = None
            if there is None or there.kind is not FileKind.DIRECTORY:
                yield parent

    def _must_stay(self, path: WorkspacePath) -> bool:
        """Whether it is a removed directory around a repository, which stays.

        One that was made here never came to the source, so nothing stays for its sake.
        """
        return entry_at(self._store, self._wanted, path) is None and any(
            kept.is_below(path) and self._is_there(kept) for kept in self.left_out
        )

    def _is_there(self, path: WorkspacePath) -> bool:
        try:
            return self._source.entry(path) is not None
        except FilesystemError:  # no way to it
            return True


class _Hand:
    """Does steps and undoes them."""

    def __init__(self, source: DiskTree, store: ObjectStore, modes: KnownModes) -> None:
        self._source = source
        self._store = store
        self._modes = modes

    def do(self, step: _Step) -> None:
        """Do one step; ``ConflictError`` if somebody else was faster."""
        if not self._is_as_found(step):
            raise ConflictError(f"{step.path} changed just now in the source")
        if step.after is None:
            self._source.delete(step.path, recursive=False)
        else:
            self._make(step.path, step.after, over=step.before)

    def undo(self, step: _Step) -> None:
        """Take back one step that was begun; what is not of our making stays."""
        now = content_of(self._source, self._source.entry(step.path))
        if not same_content(now, step.after, but_mode=True):
            return
        if step.before is None:
            if now is not None:
                self._source.delete(step.path, recursive=False)
            return
        self._make(step.path, step.before, over=now)
        if step.there is not None and step.there.kind is not FileKind.SYMLINK:
            self._set_mode(step.path, step.there.mode)

    def _is_as_found(self, step: _Step) -> bool:
        there = self._source.entry(step.path)
        if there is None or step.there is None:
            return there is step.there
        # What was inside a directory has just been removed from it, so its times moved.
        if there.kind is step.there.kind is FileKind.DIRECTORY:
            return True
        return there.identity == step.there.identity

    def _make(self, path: WorkspacePath, entry: TreeEntry, *, over: TreeEntry | None) -> None:
        match entry.kind:
            case FileKind.DIRECTORY:
                self._source.make_directory(path)
                if (mode := self._modes.of(path, entry)) is not None:
                    self._set_mode(path, mode)
            case FileKind.SYMLINK:
                target = self._store.read(entry.id).decode("utf-8", "surrogateescape")
                self._source.make_symlink(path, target)
            case FileKind.FILE:
                self._make_file(path, entry, over)

    def _make_file(self, path: WorkspacePath, entry: TreeEntry, over: TreeEntry | None) -> None:
        if over is None:
            self._source.write_file(
                path,
                self._pieces(entry.id),
                mode="create",
                executable=entry.executable,
                permissions=self._modes.of(path, entry),
            )
            return
        if over.id != entry.id:
            mode, there = self._modes.of(path, entry), self._source.entry(path)
            narrowed = None if mode is None or there is None else mode & there.mode
            self._source.write_file(path, self._pieces(entry.id), permissions=narrowed)
        if over.executable != entry.executable:
            self._source.set_executable(path, executable=entry.executable)

    def _pieces(self, blob: str) -> Iterator[bytes]:
        """The content, opened when the first piece is asked for."""
        yield from self._store.chunks(blob)

    def _set_mode(self, path: WorkspacePath, mode: int) -> None:
        with self._source.opened(path.parent) as directory:
            change_mode(path.name, directory, lambda _: mode)
