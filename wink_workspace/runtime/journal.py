"""The journal: one entry for each outermost call, with its changes of files.

The runtime calls a ``Journal`` at the right times; an implementation decides how to store entries.
The git ledger is one, ``MemoryJournal`` is for workspaces in memory. Only outermost calls reach a
journal: the changes of a call inside a call are part of the outer call.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple, Protocol, cast
from weakref import WeakKeyDictionary

from wink_workspace.errors import SnapshotError
from wink_workspace.filesystem import FileChange, Filesystem
from wink_workspace.resources import Snapshotable
from wink_workspace.session import ToolInvoked

Saved = Sequence[tuple[Snapshotable, object]]
"""The participants of a call, each with its snapshot from before the call."""


class PendingCall(NamedTuple):
    """A call that is about to have effects."""

    call_id: str
    tool: str
    started_at: datetime


class Journal(Protocol):
    """Keeps one entry per outermost call.

    An exception from ``begin`` or ``commit`` fails the call, which is then rolled back; one
    from ``rolled_back`` or ``absorb_external`` ends the run.
    """

    def absorb_external(self, participants: Sequence[Snapshotable]) -> tuple[str, ...]:
        """Commit external edits of *participants* since the last call; return the changed paths."""
        ...

    def begin(self, call: PendingCall) -> None:
        """Note that *call* is in progress, before its first effect."""
        ...

    def savepoint(self, depth: int) -> Callable[[], object]:
        """Note that a call inside *depth* others begins; what also undoes it if it fails."""
        ...

    def commit(self, event: ToolInvoked, saved: Saved) -> None:
        """Commit the call's effects and its record; the call is committed when this returns."""
        ...

    def rolled_back(self, event: ToolInvoked, saved: Saved) -> None:
        """Record a call whose effects were rolled back."""
        ...


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One entry of a workspace's history.

    ``kind`` is ``"call"`` or ``"external"``; ``event`` is ``None`` for the latter.
    """

    kind: Literal["call", "external"]
    event: ToolInvoked | None = None


_Span = tuple[Filesystem, object, object]  # a filesystem, its snapshot before, and after


class MemoryJournal:
    """The history of a workspace in memory.

    Snapshots share structure, so an entry costs what its call changed. Those of the last
    *max_diffs* entries are kept; older entries keep their record and lose their diff.
    """

    def __init__(self, *, max_diffs: int = 1_000) -> None:
        self._entries: list[JournalEntry] = []
        self._spans: deque[tuple[JournalEntry, tuple[_Span, ...]]] = deque(maxlen=max_diffs)
        self._last: WeakKeyDictionary[Filesystem, object] = WeakKeyDictionary()

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """Every entry, oldest first."""
        return tuple(self._entries)

    def changes(self, entry: JournalEntry) -> tuple[FileChange, ...]:
        """The changes of files by *entry*.

        Raises:
            SnapshotError: If the entry is not among the latest *max_diffs*.
        """
        for kept, spans in self._spans:
            if kept is entry:
                return tuple(
                    change
                    for filesystem, before, after in spans
                    for change in filesystem.changes(before, after)
                )
        raise SnapshotError(
            "the diff of this entry is no longer kept",
            hint="Create the journal with a larger max_diffs.",
        )

    def diff(self, entry: JournalEntry) -> str:
        """The changes of *entry* as a git-style unified diff."""
        from wink_workspace.filesystem import render_diff  # on use: it takes 10 ms to load

        return render_diff(self.changes(entry))

    def absorb_external(self, participants: Sequence[Snapshotable]) -> tuple[str, ...]:
        """As ``Journal.absorb_external``; no cost if nothing changed since the last call."""
        changed: list[_Span] = []
        for filesystem in _filesystems(participants):  # others in ``_last`` stay
            before, now = self._last.get(filesystem), filesystem.snapshot()
            if before is not now:
                self._last[filesystem] = now
                if before is not None:
                    changed.append((filesystem, before, now))
        paths = tuple(
            str(change.path)
            for filesystem, before, now in changed
            for change in filesystem.changes(before, now)
        )
        if paths:
            self._append(JournalEntry("external"), changed)
        return paths

    def begin(self, call: PendingCall) -> None:
        """Do nothing: memory needs no recovery after a crash."""

    def savepoint(self, depth: int) -> Callable[[], object]:
        """Nothing more: all that changes in memory is a participant."""
        del depth
        return lambda: None

    def commit(self, event: ToolInvoked, saved: Saved) -> None:
        """Append the call with its snapshots."""
        changed: list[_Span] = []
        for participant, before in saved:
            for filesystem in _filesystems((participant,)):
                now = filesystem.snapshot()
                if now is not before:
                    self._last[filesystem] = now
                    changed.append((filesystem, before, now))
        self._append(JournalEntry("call", event), changed)

    def rolled_back(self, event: ToolInvoked, saved: Saved) -> None:
        """Append the record only."""
        for filesystem in _filesystems([participant for participant, _ in saved]):
            self._last[filesystem] = filesystem.snapshot()
        self._append(JournalEntry("call", event), ())

    def _append(self, entry: JournalEntry, changed: Sequence[_Span]) -> None:
        self._entries.append(entry)
        self._spans.append((entry, tuple(changed)))


def _filesystems(participants: Sequence[Snapshotable]) -> list[Filesystem]:
    return [cast("Filesystem", each) for each in participants if _holds_files(type(each))]


@functools.lru_cache
def _holds_files(participant_type: type) -> bool:
    """Whether its instances are filesystems; cached, as ``issubclass`` is slow for an ABC."""
    return issubclass(participant_type, Filesystem)
