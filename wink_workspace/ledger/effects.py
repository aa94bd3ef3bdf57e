"""The journal of what a call does to files that are not ours alone.

A pending mark says that there is a call; this says which paths it is about to change, from what
to what, *before* it does. Whoever recovers from a crash can so tell our bytes from those of
somebody else, and find the files that were not finished.

::

    {"unfinished": "src/.wink-tmp-3f..."}
    {"effects": [["src/app.py", 420, ["file", "<id>", false], ["file", "<id>", false], "..."]]}

One line for each step, appended with one write. That survives the death of the process; a
durable journal also waits for the device before an effect. A line that is not whole was never
followed by its effect.
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

from .disk import ledger_failures, sync
from .trees import TreeEntry

__all__ = ["Effect", "EffectJournal", "PlannedEffects"]


@dataclass(frozen=True, slots=True)
class Effect:
    """What becomes of one path; ``None`` where nothing is.

    Attributes:
        path: The path.
        before: What was found there; of a directory, only that it is one.
        after: What is to be there, likewise.
        mode: The permissions of what was found, as far as it is to come back with them.
        temporary: The name, in the same directory, that ``before`` has for a moment.
    """

    path: WorkspacePath
    before: TreeEntry | None
    after: TreeEntry | None
    mode: int | None = None
    temporary: str = ""


@dataclass(frozen=True, slots=True)
class PlannedEffects:
    """All that a journal says: the effects in their order, and every unfinished file."""

    effects: list[Effect] = field(default_factory=list[Effect])
    unfinished: list[WorkspacePath] = field(default_factory=list[WorkspacePath])


class EffectJournal:
    """The one file in which the effects of a line's call are.

    Args:
        path: The file, made when it is first needed.
        durable: Whether what is planned survives a loss of power.
    """

    def __init__(self, path: Path, *, durable: bool = False) -> None:
        self._path = path
        self._durable = durable
        self._fd: int | None = None

    def add_unfinished(self, path: WorkspacePath) -> None:
        """Note that an unfinished file of ours is about to be at *path*.

        Raises:
            LedgerError: If it cannot be written; there must be no such file then.
        """
        self._append({"unfinished": str(path)}, sync=False)

    def add(self, effects: Sequence[Effect]) -> None:
        """Note what is about to be done.

        Raises:
            LedgerError: If it cannot be written; it must not be done then.
        """
        self._append({"effects": [_fields(effect) for effect in effects]}, sync=self._durable)

    def read(self) -> PlannedEffects:
        """What was noted since ``clear``, by this process or a dead one.

        Raises:
            LedgerError: If that cannot be told.
        """
        planned = PlannedEffects()
        with ledger_failures("the journal of effects cannot be read"):
            try:
                lines = self._path.read_bytes().splitlines()
            except FileNotFoundError:
                return planned
        for line in lines:
            try:
                noted: dict[str, Any] = json.loads(line)
                effects = [_effect(fields) for fields in noted.get("effects", ())]
            except (ValueError, TypeError, KeyError, AttributeError):
                continue  # not whole, so nothing followed
            planned.effects.extend(effects)
            if "unfinished" in noted:
                planned.unfinished.append(_path(noted["unfinished"]))
        return planned

    def clear(self) -> None:
        """Forget everything; nothing that was noted is in doubt any more.

        Raises:
            LedgerError: If that cannot be written.
        """
        with ledger_failures("the journal of effects cannot be cleared"):
            os.ftruncate(self._opened(), 0)

    def close(self) -> None:
        """Let go of the file; once is enough."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _append(self, noted: dict[str, object], *, sync: bool) -> None:
        # The line's end comes first, so that one which was cut short spoils no other.
        line = memoryview(b"\n" + json.dumps(noted, separators=(",", ":")).encode())
        with ledger_failures("the journal of effects cannot be written"):
            fd = self._opened()
            while line:
                line = line[os.write(fd, line) :]
            if sync:
                os.fsync(fd)

    def _opened(self) -> int:
        if self._fd is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self._path, flags, 0o600)
            if self._durable:
                sync(self._path.parent)
        return self._fd


def _fields(effect: Effect) -> list[object]:
    before, after = _entry_fields(effect.before), _entry_fields(effect.after)
    return [str(effect.path), effect.mode, before, after, effect.temporary]


def _effect(fields: Sequence[Any]) -> Effect:
    path, mode, before, after, temporary = fields
    return Effect(_path(path), _entry(before), _entry(after), mode, temporary)


def _path(text: str) -> WorkspacePath:
    return WorkspacePath(tuple(text.split("/")))  # it may be deeper than callers may ask for


def _entry_fields(entry: TreeEntry | None) -> list[object] | None:
    return None if entry is None else [entry.kind.value, entry.id, entry.executable]


def _entry(fields: Sequence[Any] | None) -> TreeEntry | None:
    if fields is None:
        return None
    kind, blob, executable = fields
    return TreeEntry(FileKind(kind), cast("str", blob), executable=bool(executable))
