"""Going back in the files of a workspace to a position in a conversation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from wink_workspace.errors import UsageError
from wink_workspace.workspace import Workspace

__all__ = ["rewind_to"]

T = TypeVar("T")


def rewind_to(
    workspace: Workspace,
    items: Sequence[T],
    n_kept: int,
    call_ids: Callable[[Sequence[T]], Iterable[str]],
    *,
    noun: str,
) -> list[T]:
    """The first *n_kept* items of a conversation; the files and STATE become those after them.

    That is after the last tool call in these items, or before the first one after them. It is one
    more entry, so it can be undone; if no call was made since, there is none.

    Args:
        workspace: The workspace in which the calls were made.
        items: The conversation.
        n_kept: The number of items to keep.
        call_ids: The ids of the calls in items.
        noun: What an item is called, in the plural.

    Raises:
        UsageError: If *n_kept* is negative.
        EntryMissingError: If the entries are no longer kept.
    """
    if n_kept < 0:
        raise UsageError(f"{n_kept} {noun}", hint=f"Pass the number of {noun} to keep.")
    kept = list(items[:n_kept])
    done, undone = set(call_ids(kept)), set(call_ids(items[n_kept:]))
    number: int | None = None
    for entry in workspace.log():
        if entry.call_id in done:
            number = entry.number
            break
        if entry.call_id in undone:
            number = entry.number - 1
    if number not in (None, workspace.head.number):
        workspace.restore(number)
    return kept
