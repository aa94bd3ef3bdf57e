"""The effect journal: a write-ahead log of what a call does to files in place.

A pending mark says that a call is in progress. This journal lists the paths that the call is about
to change, with their states before and after. Recovery uses it to distinguish the call's own bytes
from external edits, and to find unfinished files.

::

    {"unfinished": "src/.wink-tmp-3f..."}
    {"effects": [["src/app.py", 420, ["file", "<id>", false], ["file", "<id>", false], "..."]]}

Each step is one line, appended with one write. It survives the death of the process; a durable
journal also calls fsync before an effect. The effect of an incomplete line was never begun.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from wink_workspace.filesystem.model import FileKind
from wink_workspace.filesystem.paths import WorkspacePath
from wink_workspace.ledger.store.disk import ledger_failures, sync
from wink_workspace.ledger.store.trees import TreeEntry


@dataclass(frozen=True, slots=True)
class Effect:
    """The planned change of one path; ``None`` means that the path does not exist.

    Attributes:
        path: The path.
        before: Its state before; for a directory, without the content.
        after: Its state after, likewise.
        mode: The permissions before, if a rollback has to restore them.
        temporary: The name in the same directory to which ``before`` is moved for a moment.
    """

    path: WorkspacePath
    before: TreeEntry | None
    after: TreeEntry | None
    mode: int | None = None
    temporary: str = ""


@dataclass(frozen=True, slots=True)
class PlannedEffects:
    """The content of a journal: the effects in order, and every unfinished file."""

    effects: list[Effect] = field(default_factory=list[Effect])
    unfinished: list[WorkspacePath] = field(default_factory=list[WorkspacePath])


class EffectJournal:
    """The file with the planned effects of a branch's call.

    Args:
        path: The file; it is created when it is first needed.
        durable: Whether the plan survives a loss of power.
    """

    def __init__(self, path: Path, *, durable: bool = False) -> None:
        self._path = path
        self._durable = durable
        self._fd: int | None = None

    def add_unfinished(self, path: WorkspacePath) -> None:
        """Note that an unfinished file of ours is about to be created at *path*.

        Raises:
            LedgerError: If the journal cannot be written; do not create the file then.
        """
        self._append({"unfinished": str(path)}, sync=False)

    def add(self, effects: Sequence[Effect]) -> None:
        """Note *effects* before they begin.

        Raises:
            LedgerError: If the journal cannot be written; do not begin them then.
        """
        self._append({"effects": [_dump_effect(effect) for effect in effects]}, sync=self._durable)

    def read(self) -> PlannedEffects:
        """Everything noted since ``clear``, by this process or a dead one.

        Raises:
            LedgerError: If the journal cannot be read.
        """
        planned = PlannedEffects()
        with ledger_failures("the effect journal cannot be read"):
            try:
                lines = self._path.read_bytes().splitlines()
            except FileNotFoundError:
                return planned
        for line in lines:
            try:
                noted: dict[str, Any] = json.loads(line)
                effects = [_parse_effect(fields) for fields in noted.get("effects", ())]
            except (ValueError, TypeError, KeyError, AttributeError):
                continue  # incomplete, so its effect was never begun
            planned.effects.extend(effects)
            if "unfinished" in noted:
                planned.unfinished.append(_parse_path(noted["unfinished"]))
        return planned

    def clear(self) -> None:
        """Delete all notes, after every noted effect is finished or undone.

        Raises:
            LedgerError: If the file cannot be truncated.
        """
        with ledger_failures("the effect journal cannot be cleared"):
            os.ftruncate(self._open(), 0)

    def close(self) -> None:
        """Close the file; may be repeated."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _append(self, noted: dict[str, object], *, sync: bool) -> None:
        # The newline comes first, so that an incomplete line does not damage the next one.
        line = memoryview(b"\n" + json.dumps(noted, separators=(",", ":")).encode())
        with ledger_failures("the effect journal cannot be written"):
            fd = self._open()
            while line:
                line = line[os.write(fd, line) :]
            if sync:
                os.fsync(fd)

    def _open(self) -> int:
        if self._fd is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self._path, flags, 0o600)
            if self._durable:
                sync(self._path.parent)
        return self._fd


def _dump_effect(effect: Effect) -> list[object]:
    before, after = _dump_entry(effect.before), _dump_entry(effect.after)
    return [str(effect.path), effect.mode, before, after, effect.temporary]


def _parse_effect(fields: Sequence[Any]) -> Effect:
    path, mode, before, after, temporary = fields
    return Effect(_parse_path(path), _parse_entry(before), _parse_entry(after), mode, temporary)


def _parse_path(text: str) -> WorkspacePath:
    return WorkspacePath(tuple(text.split("/")))  # it may exceed the depth limit for callers


def _dump_entry(entry: TreeEntry | None) -> list[object] | None:
    return None if entry is None else [entry.kind.value, entry.id, entry.executable]


def _parse_entry(fields: Sequence[Any] | None) -> TreeEntry | None:
    if fields is None:
        return None
    kind, blob, executable = fields
    return TreeEntry(FileKind(kind), cast("str", blob), executable=bool(executable))
