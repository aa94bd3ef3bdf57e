"""What each branch of a workspace applied to the source, recorded in a small file.

::

    {"branches": {"main": [{"base": "<root>", "tree": "<root>", "marked": {},
                            "before": "<root>", "after": "<root>"}, ...]},
     "writing": null}

The applies of a branch are in order, the newest last. An apply that writes to the source first
records the trees between which it moves, as ``writing``. The rename of the file with the new entry
is its commit point. If ``writing`` is set and the lock is free, an apply was interrupted.
"""

from __future__ import annotations

import fcntl
import json
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from wink_workspace.errors import LedgerDamagedError, LedgerError
from wink_workspace.ledger import ObjectStore, try_read_lock
from wink_workspace.ledger.store.disk import ledger_failure, ledger_failures, write_whole
from wink_workspace.ledger.store.lock import LockFile

_ROOT: Final = re.compile("[0-9a-f]{40}")
_MOST_KEPT: Final = 4


@dataclass(frozen=True, slots=True)
class SourceChange:
    """The record of one apply of a branch.

    Attributes:
        base: The root of the branch's base.
        tree: The root of the applied files.
        marked: The paths that got conflict markers, each with the id of its former content.
        before: The root of the source before it, correct at the paths that it changed.
        after: The root of the source after it; empty if it changed nothing.
    """

    base: str
    tree: str
    marked: Mapping[str, str] = field(default_factory=dict[str, str])
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class _Note:
    branches: Mapping[str, tuple[SourceChange, ...]] = field(
        default_factory=dict[str, tuple[SourceChange, ...]]
    )
    writing: tuple[str, str] | None = None

    @property
    def roots(self) -> set[str]:
        """Every tree that the file names."""
        entries = [entry for applied in self.branches.values() for entry in applied]
        roots = {root for e in entries for root in (e.base, e.tree, e.before, e.after) if root}
        return roots | {*(self.writing or ())}


class AppliedTrees:
    """The file; every method reads it again.

    Args:
        path: The path of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def _read(self) -> _Note:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return _Note()
        except OSError as error:
            what = f"{self._path}, which records what was applied to the source, cannot be read"
            raise ledger_failure(what, error) from error
        try:
            noted: dict[str, Any] = json.loads(content)
            note = _Note(
                {
                    name: tuple(SourceChange(**entry) for entry in entries)
                    for name, entries in noted["branches"].items()
                },
                None if noted["writing"] is None else (noted["writing"][0], noted["writing"][1]),
            )
            if not all(map(_ROOT.fullmatch, note.roots)):
                raise ValueError("no roots")
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            raise self._damaged("cannot be read") from error
        return note

    def _damaged(self, how: str) -> LedgerDamagedError:
        return LedgerDamagedError(
            f"{self._path}, which records what was applied to the source, {how}",
            hint="Delete it; the changes since the import are then applied.",
        )

    def check(self, store: ObjectStore) -> None:
        """Check that *store* has all trees.

        Raises:
            LedgerDamagedError: If the file is damaged, or *store* lacks one of the trees.
            LedgerError: If the file cannot be read.
        """
        if any(root not in store.repository for root in self._read().roots):
            raise self._damaged("names a tree that is not there any more")

    def applied_changes(self, branch: str, base: str) -> tuple[SourceChange, ...]:
        """What *branch* applied since it has this *base*, newest first.

        Raises:
            LedgerDamagedError: If the file is damaged.
            LedgerError: If it cannot be read.
        """
        entries = self._read().branches.get(branch, ())
        return tuple(entry for entry in reversed(entries) if entry.base == base)

    def newest(self, branch: str) -> SourceChange | None:
        """The newest apply of *branch* that changed the source; raises as ``applied_changes``."""
        entries = self._read().branches.get(branch, ())
        return next((entry for entry in reversed(entries) if entry.after), None)

    @property
    def writing(self) -> tuple[str, str] | None:
        """The trees between which an apply moves the source; raises as ``applied_changes``."""
        return self._read().writing

    @property
    def referenced(self) -> frozenset[str]:
        """The trees that the ledger has to keep for the next ``apply``.

        Raises as ``applied_changes``; then nothing may be deleted.
        """
        return frozenset(self._read().roots)

    @property
    def was_interrupted(self) -> bool:
        """Whether an apply began and did not end, and no process is running it."""
        if not self._is_unfinished:
            return False
        with try_read_lock(self.lock) as applies_locked:
            return applies_locked and self._is_unfinished

    @property
    def _is_unfinished(self) -> bool:
        try:
            return self._read().writing is not None
        except LedgerError:
            return True

    @property
    def lock(self) -> Path:
        """The lock of the process that applies something."""
        return self._path.with_name(self._path.name + ".lock")

    # Writing, for the holder of the lock except ``forget``; all methods raise ``LedgerError``

    def begin(self, before: str, after: str) -> None:
        """Record that the source is about to be moved from one tree to another."""
        with self._changing() as note:
            self._write(_Note(note.branches, (before, after)))

    def end(self) -> None:
        """Record that the source is as it was before ``begin``."""
        with self._changing() as note:
            self._write(_Note(note.branches))

    def add(self, branch: str, applied: SourceChange) -> None:
        """Record that the source has all that *branch* applied."""
        with self._changing() as note:
            others: list[SourceChange] = []
            for entry in note.branches.get(branch, ()):
                if replace(applied, before=entry.before, after=entry.after) != entry:
                    others.append(entry)
                elif not applied.after:  # it wrote nothing; the one that did can be undone
                    applied = entry
            entries = (*others, applied)[-_MOST_KEPT:]
            self._write(_Note({**note.branches, branch: entries}), durable=True)

    def remove(self, branch: str, applied: SourceChange) -> None:
        """Record that the source is as it was before an apply of *branch*."""
        with self._changing() as note:
            kept = tuple(entry for entry in note.branches[branch] if entry != applied)
            self._write(_Note({**note.branches, branch: kept}))

    def forget(self, branch: str) -> None:
        """Forget a deleted branch; what it applied stays in the source."""
        if branch not in self._read().branches:
            return
        with self._changing() as note:
            kept = {name: entries for name, entries in note.branches.items() if name != branch}
            self._write(_Note(kept, note.writing))

    @contextmanager
    def _changing(self) -> Generator[_Note]:
        """The present note; no other process changes it during the block.

        The lock of an apply is not enough: a fork is deleted at any time, and must not wait.
        """
        lock = LockFile(self._path.with_name(self._path.name + ".change"))
        try:
            lock.lock(fcntl.LOCK_EX)
            yield self._read()
        finally:
            lock.release()

    def _write(self, note: _Note, *, durable: bool = False) -> None:
        branches = {
            name: [{**asdict(entry), "marked": dict(entry.marked)} for entry in entries]
            for name, entries in note.branches.items()
        }
        text = json.dumps({"branches": branches, "writing": note.writing}) + "\n"
        with ledger_failures("what is applied to the source cannot be recorded"):
            write_whole(self._path, text.encode("ascii"), durable=durable)
