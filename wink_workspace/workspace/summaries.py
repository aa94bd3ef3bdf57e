"""What a list of workspaces says about each, and which of them are no longer needed.

Rule 1: a summary opens nothing for writing. It describes the newest entry, so edits without an
entry are not counted.
Rule 2: a workspace is deleted by age only if nothing of it would be lost: it was made for one run,
nothing is left to apply on any branch, not even what ``apply`` leaves out, and it holds no discards
and no external edits.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Final, Literal

from wink_workspace.errors import FilesystemError, LedgerError, UsageError, WinkError
from wink_workspace.ledger import MAIN_BRANCH, EntryKind

from .history.workspace_reader import WorkspaceReader
from .place.storage import WorkspaceFolder, WorkspaceInfo, WorkspaceStorage
from .runs.live_runs import RunInProgress
from .runs.recorded_runs import RecordedRun

KEPT_AFTER_RUN: Final = timedelta(days=7)
"""How long a workspace that was made for one run is kept when nothing is left to apply."""

_MARK: Final = "made-for-run"
_BLOCK_BYTES: Final = 512
_MOST_CHANGES: Final = 1_000
_MOST_FILES: Final = 2_000

WorkspaceState = Literal[
    "in place", "unchanged", "to apply", "applied", "running", "interrupted", "damaged"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceSummary:
    """One line of the list.

    Attributes:
        info: The workspace.
        task: The task of its newest run; ``""`` if there was none.
        state: What is left to do with it.
        n_changes: The number of paths of the main branch that can be applied; ``None`` if unknown.
        has_more_changes: Whether there are more; see ``summary_of``.
        size_bytes: Its size on the disk, without what it shares with other workspaces.
        has_more_bytes: Whether it is larger; see ``summary_of``.
        last_used: The time of the newest entry.
        forks: The names of its forks.
    """

    info: WorkspaceInfo
    task: str = ""
    state: WorkspaceState = "damaged"
    n_changes: int | None = None
    has_more_changes: bool = False
    size_bytes: int = 0
    has_more_bytes: bool = False
    last_used: datetime
    forks: tuple[str, ...] = ()


def summaries_of(
    storage: WorkspaceStorage, *, of_directory: Path | None = None, is_quick: bool = False
) -> list[WorkspaceSummary]:
    """``summary_of`` every workspace, newest first, without those that are deleted meanwhile.

    With *of_directory*, only those of this directory, the one used last first.
    """
    infos: Iterable[WorkspaceInfo] = storage.all()
    if of_directory is not None:
        from .place.last_used import workspaces_of  # on use: the list of all does without it

        infos = workspaces_of(storage, of_directory)
    found = [summary_of(storage, info, is_quick=is_quick) for info in infos]
    return [each for each in found if storage.folder_of(each.info).is_workspace]


def summary_of(
    storage: WorkspaceStorage, info: WorkspaceInfo, *, is_quick: bool = False
) -> WorkspaceSummary:
    """What the list says about a workspace; a damaged one gets this state.

    With *is_quick*, 1,000 changes are counted at most, and the sizes of 2,000 files besides those
    of the history.
    """
    folder = storage.folder_of(info)
    limit = _MOST_CHANGES if is_quick else None
    size_bytes, has_more_bytes = _size_bytes(folder, _MOST_FILES if is_quick else None)
    run = RecordedRun.newest(folder)
    task = "" if run is None else run.about.message or run.about.task
    try:
        with WorkspaceReader(folder) as reader:
            n_changes, has_more = 0, False
            if info.mode != "in_place":
                found = reader.unapplied(limit=limit)
                n_changes, has_more = len(found.paths), found.is_partial
            state: WorkspaceState = "unchanged"
            if info.mode == "in_place":
                state = "in place"
            elif run is not None and not run.is_finished:
                state = "running" if RunInProgress.of(folder) else "interrupted"
            elif n_changes or has_more:
                state = "to apply"
            elif reader.was_applied:
                state = "applied"
            last_used, forks = reader.head.at, reader.forks()
    except (WinkError, FileNotFoundError):  # the latter: another process is deleting it
        return WorkspaceSummary(
            info=info,
            task=task,
            size_bytes=size_bytes,
            has_more_bytes=has_more_bytes,
            last_used=info.created_at,
        )
    return WorkspaceSummary(
        info=info,
        task=task,
        state=state,
        n_changes=None if state == "in place" else n_changes,
        has_more_changes=has_more,
        size_bytes=size_bytes,
        has_more_bytes=has_more_bytes,
        last_used=last_used,
        forks=forks,
    )


def _size_bytes(folder: WorkspaceFolder, limit: int | None) -> tuple[int, bool]:
    """The blocks of every file, of *limit* files outside of the history; whether there are more.

    Links are not followed.
    """
    total = sum(_blocks(folder.ledger))
    others = _blocks(folder.path, without=str(folder.ledger))
    total += sum(islice(others, limit))
    return total, next(others, None) is not None


def _blocks(directory: Path, *, without: str = "") -> Iterator[int]:
    for path, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if f"{path}/{name}" != without]
        for name in names:
            with suppress(OSError):  # deleted meanwhile
                yield os.lstat(f"{path}/{name}").st_blocks * _BLOCK_BYTES


# Removing


def mark_made_for_run(folder: WorkspaceFolder) -> None:
    """Record that the workspace was made for one run."""
    (folder.path / _MARK).touch()


def unmark_made_for_run(folder: WorkspaceFolder) -> None:
    """Record that the user works with the workspace: it is not deleted by age."""
    (folder.path / _MARK).unlink(missing_ok=True)


def applied_workspaces(
    storage: WorkspaceStorage, *, older: timedelta, now: datetime
) -> Iterator[WorkspaceInfo]:
    """The copies that were not used for the time *older* and of which everything was applied."""
    for info in storage.all():
        found = summary_of(storage, info)
        if found.state == "applied" and now - found.last_used >= older:
            with suppress(WinkError):  # in use, or it cannot be opened
                if _is_finished(storage, info, keeps_edits=False):
                    yield info


def remove_finished(storage: WorkspaceStorage, *, now: datetime) -> tuple[str, ...]:
    """Delete the workspaces of rule 2 that are older than ``KEPT_AFTER_RUN``; returns their ids.

    A workspace that is in use or cannot be read stays.
    """
    removed: list[str] = []
    for info in storage.all():
        folder = storage.folder_of(info)
        if now - info.created_at < KEPT_AFTER_RUN or not (folder.path / _MARK).exists():
            continue
        with suppress(LedgerError, FilesystemError, UsageError):
            found = summary_of(storage, info)
            is_old = now - found.last_used >= KEPT_AFTER_RUN
            is_done = found.state in ("applied", "unchanged")
            if is_old and is_done and _is_finished(storage, info, keeps_edits=True):
                from .workspace import Workspace  # here: a list needs nothing of it

                Workspace.delete(info.id, storage=storage)
                removed.append(info.id)
    return tuple(removed)


def _is_finished(storage: WorkspaceStorage, info: WorkspaceInfo, *, keeps_edits: bool) -> bool:
    """Whether nothing on any branch is left to apply, and nothing was discarded.

    What ``apply`` leaves out counts, too: ignored files, and derived paths that changed. Each
    branch is opened, so that edits without an entry count.
    """
    from .changes.changeset import LeftOutReason
    from .place.workspace_config import WorkspaceConfig
    from .workspace import Workspace

    with WorkspaceReader(storage.folder(info.id)) as reader:
        branches = (MAIN_BRANCH, *reader.forks())
    for branch in branches:
        with Workspace.open(
            info.id, storage=storage, config=WorkspaceConfig(), branch=branch
        ) as opened:
            left = [opened.unapplied()]
            if branch == MAIN_BRANCH:
                left.append(opened.source.preview())  # it compares with the source, too
            reasons = {each.reason for changes in left for each in changes.left_out}
            if any(changes.paths for changes in left) or reasons - {LeftOutReason.OWN_OUTPUT}:
                return False
            if opened.derived_changes():
                return False
            if keeps_edits and (
                opened.discarded() or any(each.kind is EntryKind.EXTERNAL for each in opened.log())
            ):
                return False
    return True
