"""Going back in the files of a workspace to a position in a conversation."""

from __future__ import annotations

from collections.abc import Iterable

from wink_workspace.workspace import Workspace

__all__ = ["restore_to_calls"]


def restore_to_calls(workspace: Workspace, kept: Iterable[str], dropped: Iterable[str]) -> None:
    """Restore the files and STATE after the last of the *kept* calls.

    Without one, they become those before the first of the *dropped* calls. It is one more entry,
    so it can be undone; if no call was made since, there is none.

    Args:
        workspace: The workspace in which the calls were made.
        kept: The ids of the calls up to the position.
        dropped: The ids of the calls after it.

    Raises:
        EntryMissingError: If the entries are no longer kept.
    """
    done, undone = set(kept), set(dropped)
    number: int | None = None
    for entry in workspace.log():
        if entry.call_id in done:
            number = entry.number
            break
        if entry.call_id in undone:
            number = entry.number - 1
    if number not in (None, workspace.head.number):
        workspace.restore(number)
