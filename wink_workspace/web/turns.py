"""Which turn of a model made a call, for the words and the tokens beside its entry."""

from __future__ import annotations

from collections.abc import Iterable

from wink_workspace.adapters import ModelTurn
from wink_workspace.errors import WinkError
from wink_workspace.ledger import LogEntry
from wink_workspace.report.reported import turns_by_call
from wink_workspace.workspace import RecordedRun, WorkspaceFolder

__all__ = ["Turns"]

_MAX_BYTES = 4 * 1_048_576


class Turns:
    """The turns of the newest runs of some branches, up to 4 MiB.

    A call whose id several runs use at the same place of the history has no turn.

    Args:
        folders: The workspace, or its forks.
    """

    def __init__(self, folders: Iterable[WorkspaceFolder]) -> None:
        self._found: dict[str, list[tuple[int, ModelTurn | None]]] = {}
        n_bytes = 0
        for folder in folders:
            for run in RecordedRun.all(folder):
                try:
                    n_bytes += run.script.stat().st_size
                    turns = run.turns() if n_bytes <= _MAX_BYTES else ()
                except (OSError, WinkError):  # deleted or half written: shown without turns
                    continue
                for call_id, made in turns_by_call(turns).items():
                    if len(made) == 1:
                        self._found.setdefault(call_id, []).append((run.about.after_entry, made[0]))

    def of(self, entry: LogEntry) -> ModelTurn | None:
        """The turn whose first call is *entry*."""
        found = [each for each in self._found.get(entry.call_id, ()) if each[0] < entry.number]
        newest = max((after for after, _ in found), default=0)
        turns = [turn for after, turn in found if after == newest]
        return turns[0] if len(turns) == 1 else None
