"""Where the runtime keeps what calls did to files.

The runtime says when; a journal says how. The git ledger is one, ``MemoryJournal`` is the
one for workspaces that live and die with the process. Only outermost calls reach a journal:
what a call inside a call did is part of the call around it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol
from weakref import WeakKeyDictionary

from wink_workspace.errors import SnapshotError
from wink_workspace.filesystem import FileChange, Filesystem, render_diff
from wink_workspace.resources import Snapshotable
from wink_workspace.session import ToolInvoked

__all__ = ["Journal", "JournalEntry", "MemoryJournal", "PendingCall", "Saved"]


Saved = Sequence[tuple[Snapshotable, object]]
"""Who took part in a call, each with its snapshot from before it."""


@dataclass(frozen=True, slots=True)
class PendingCall:
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
        """Keep what moved since the last call, made by nobody's call; the paths that did."""
        ...

    def begin(self, call: PendingCall) -> None:
        """Note, before its first effect, that *call* is under way."""
        ...

    def commit(self, event: ToolInvoked, saved: Saved) -> None:
        """Keep the call's effects and its record; returning is the point of no return."""
        ...

    def rolled_back(self, event: ToolInvoked, saved: Saved) -> None:
        """Keep the record of a call whose effects are gone."""
        ...


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One step of a workspace's history.

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
        """Everything that happened, oldest first."""
        return tuple(self._entries)

    def changes(self, entry: JournalEntry) -> tuple[FileChange, ...]:
        """What *entry* did to files.

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
            hint="Make the journal with a larger max_diffs.",
        )

    def diff(self, entry: JournalEntry) -> str:
        """The same as a git-style unified diff."""
        return render_diff(self.changes(entry))

    def absorb_external(self, participants: Sequence[Snapshotable]) -> tuple[str, ...]:
        """Compare with the snapshots after the last call; free when they are the same."""
        now = _snapshots(participants)
        moved = {
            filesystem: self._last[filesystem]
            for filesystem, token in now.items()
            if filesystem in self._last and self._last[filesystem] is not token
        }
        paths = tuple(
            str(change.path)
            for filesystem, before in moved.items()
            for change in filesystem.changes(before, now[filesystem])
        )
        if paths:
            self._append(JournalEntry("external"), moved, now)
        self._last.update(now)  # files that only another prompt binds keep theirs
        return paths

    def begin(self, call: PendingCall) -> None:
        """Do nothing: what is in memory needs no recovery after a crash."""

    def commit(self, event: ToolInvoked, saved: Saved) -> None:
        """Append the call with its snapshots."""
        before = {p: token for p, token in saved if isinstance(p, Filesystem)}
        after = _snapshots([p for p, _ in saved])
        self._last.update(after)
        self._append(JournalEntry("call", event), before, after)

    def rolled_back(self, event: ToolInvoked, saved: Saved) -> None:
        """Append the record alone."""
        self._last.update(_snapshots([p for p, _ in saved]))
        self._append(JournalEntry("call", event), {}, {})

    def _append(
        self,
        entry: JournalEntry,
        before: Mapping[Filesystem, object],
        after: Mapping[Filesystem, object],
    ) -> None:
        self._entries.append(entry)
        self._spans.append(
            (
                entry,
                tuple(
                    (filesystem, before[filesystem], token)
                    for filesystem, token in after.items()
                    if filesystem in before and before[filesystem] is not token
                ),
            )
        )


def _snapshots(participants: Sequence[Snapshotable]) -> dict[Filesystem, object]:
    return {
        participant: participant.snapshot()
        for participant in participants
        if isinstance(participant, Filesystem)
    }
