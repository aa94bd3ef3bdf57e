"""The extra tools: what was changed and done, take the last thing back, hand the work over.

They look at the history and move in it, so they are no calls *in* it: none of them is an entry,
but ``workspace_undo`` leaves the entry of the undo itself. Each is all or nothing by what
``Workspace`` promises, not by a transaction of the executor.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

from wink_workspace.errors import ConflictError, ParseError, WinkError
from wink_workspace.filesystem import Diff
from wink_workspace.ledger import LogEntry
from wink_workspace.prompt import Tool, ToolAnnotations, ToolResult
from wink_workspace.wording import counted
from wink_workspace.workspace import ApplyTarget, ChangeSet, Workspace

__all__ = [
    "APPLY",
    "OPERATIONS",
    "AppliedPaths",
    "ApplyParams",
    "DiffParams",
    "History",
    "HistoryEntry",
    "LogParams",
    "Operation",
    "UndoParams",
    "Undone",
    "WorkspaceDiff",
    "beginning_of",
]

_MOST_DIFF_CHARS: Final = 100_000
_MOST_NOTES: Final = 100

_READS: Final = ToolAnnotations(
    read_only=True, destructive=False, idempotent=True, open_world=False
)
_REPLACES: Final = ToolAnnotations(
    read_only=False, destructive=True, idempotent=True, open_world=False
)


@dataclass(frozen=True, slots=True)
class DiffParams:
    """Parameters of ``workspace_diff``."""

    entry: int | None = field(
        default=None,
        metadata={
            "description": "Show what this entry of the history changed; everything that differs "
            "from the source when omitted.",
            "ge": 1,
        },
    )
    include_ignored: bool = field(
        default=False,
        metadata={"description": "Also new files that the source's rules ignore."},
    )


@dataclass(frozen=True, slots=True)
class WorkspaceDiff:
    """A git-style diff; ``n_more_chars`` of it were cut off.

    ``marked`` are paths that can run something on the user's machine, ``left_out`` those that
    ``workspace_apply`` does not bring, each with the reason.
    """

    diff: str
    n_paths: int
    n_more_chars: int = 0
    marked: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def render(self) -> str:
        """The diff, and what is to be said of its paths."""
        cut = f"\n({self.n_more_chars:,} more characters)" if self.n_more_chars else ""
        notes = [
            *(f"can run something on the user's machine: {each}" for each in self.marked),
            *(f"left out: {each}" for each in self.left_out),
        ]
        return "\n".join(((self.diff or "(no differences)") + cut, *notes))


@dataclass(frozen=True, slots=True)
class LogParams:
    """Parameters of ``workspace_log``."""

    limit: int = field(
        default=20, metadata={"description": "Most entries to list.", "ge": 1, "le": 500}
    )


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One entry: its number, when it was made, what made it, and what became of a call."""

    number: int
    at: str
    kind: str
    subject: str
    outcome: str | None = None

    @classmethod
    def of(cls, entry: LogEntry) -> HistoryEntry:
        """What is told of *entry*."""
        return cls(
            entry.number,
            f"{entry.at:%Y-%m-%d %H:%M:%S}Z",
            entry.kind.value,
            entry.subject,
            None if entry.outcome is None else entry.outcome.value,
        )


@dataclass(frozen=True, slots=True)
class History:
    """The newest entries, newest first."""

    entries: tuple[HistoryEntry, ...]

    def render(self) -> str:
        """One line for each entry."""
        return "\n".join(
            f"{entry.number:>5}  {entry.at}  {entry.kind:<9} {entry.subject}"
            + (f"  ({entry.outcome})" if entry.outcome else "")
            for entry in self.entries
        )


@dataclass(frozen=True, slots=True)
class UndoParams:
    """Parameters of ``workspace_undo``."""


@dataclass(frozen=True, slots=True)
class Undone:
    """Which entry was taken back, and the paths that changed by it."""

    entry: int
    paths: tuple[str, ...]

    def render(self) -> str:
        """The paths, one on each line."""
        return "\n".join(self.paths)


@dataclass(frozen=True, slots=True)
class ApplyParams:
    """Parameters of ``workspace_apply``."""

    branch: str | None = field(
        default=None,
        metadata={
            "description": "Make this new branch in the source's repository instead of changing "
            "its files.",
            "min_length": 1,
            "max_length": 200,
        },
    )
    include_ignored: bool = field(
        default=False,
        metadata={"description": "Also new files that the source's rules ignore."},
    )


@dataclass(frozen=True, slots=True)
class AppliedPaths:
    """What was brought to the source, and what had to stay behind.

    ``marked`` are brought paths that can run something on the user's machine, with the reason.
    """

    paths: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()

    def render(self) -> str:
        """The paths, one on each line."""
        notes = (f"can run something on the user's machine: {each}" for each in self.marked)
        return "\n".join((*self.paths, *(f"{path} (left out)" for path in self.left_out), *notes))


def _diff(workspace: Workspace, params: DiffParams) -> ToolResult[Any]:
    marked: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    if params.entry is None:
        brought = workspace.changeset(include_ignored=params.include_ignored)
        changed, marked = brought.review(), _marked(brought)
        left_out = tuple(f"{each.path}: {each.reason}" for each in brought.left_out[:_MOST_NOTES])
    else:
        changed = workspace.review_of(workspace.entry(params.entry))
    kept, n_more = beginning_of(changed, _MOST_DIFF_CHARS)
    return ToolResult.ok(WorkspaceDiff(kept, len(changed.paths), n_more, marked, left_out))


def beginning_of(diff: Diff, most_chars: int) -> tuple[str, int]:
    """As much of a diff as is wanted, and how many more characters it has; these are not kept."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    kept: list[str] = []
    n_chars = 0

    def take(piece: bytes) -> None:
        nonlocal n_chars
        text = decoder.decode(piece)
        if n_chars < most_chars:
            kept.append(text[: most_chars - n_chars])
        n_chars += len(text)

    diff.write_to(take)
    return "".join(kept), max(n_chars - most_chars, 0)


def _marked(brought: ChangeSet) -> tuple[str, ...]:
    marked = (f"{path}: {', '.join(risks)}" for path, risks in brought.marked().items())
    return tuple(islice(marked, _MOST_NOTES))


def _log(workspace: Workspace, params: LogParams) -> ToolResult[Any]:
    entries = tuple(map(HistoryEntry.of, workspace.log(limit=params.limit)))
    return ToolResult.ok(History(entries))


def _undo(workspace: Workspace, params: UndoParams) -> ToolResult[Any]:
    del params
    entry = workspace.undo()
    paths = workspace.review_of(entry).paths
    return ToolResult.ok(Undone(entry.target or 0, paths), f"Took back entry {entry.target}.")


def _apply(workspace: Workspace, params: ApplyParams) -> ToolResult[Any]:
    to: ApplyTarget = "worktree" if params.branch is None else "branch"
    brought = workspace.preview(to, include_ignored=params.include_ignored)
    applied = workspace.apply(
        to, branch=params.branch or "", include_ignored=params.include_ignored, previewed=brought
    )
    where = workspace.info.source if params.branch is None else f"branch {params.branch}"
    said = f"{counted(len(applied.paths), 'path')} brought to {where}."
    return ToolResult.ok(AppliedPaths(applied.paths, applied.left_out, _marked(brought)), said)


@dataclass(frozen=True, slots=True)
class Operation:
    """A tool without a handler, and what is done when it is called."""

    tool: Tool[Any, Any]
    perform: Callable[[Workspace, Any], ToolResult[Any]]

    def run(self, workspace: Workspace, arguments: str | Mapping[str, object]) -> ToolResult[Any]:
        """Do it; a mistake in the arguments, or what cannot be done, is a failed result."""
        try:
            return self.perform(workspace, self.tool.parse(arguments))
        except ParseError as error:
            return ToolResult.error(str(error))
        except ConflictError as error:
            said = f"{self.tool.name} changed nothing: {error}\n{error.details}"
            return ToolResult.error(said.strip())
        except WinkError as error:
            return ToolResult.error(f"{self.tool.name} changed nothing: {error}")


APPLY: Final = Operation(
    Tool[ApplyParams, AppliedPaths](
        name="workspace_apply",
        description="Bring the changes to the source directory, unless it changed meanwhile.",
        annotations=_REPLACES,
    ),
    _apply,
)
"""The one that is for copies only."""

OPERATIONS: Final = (
    Operation(
        Tool[DiffParams, WorkspaceDiff](
            name="workspace_diff",
            description="Show what differs from the source, or what one entry changed, as a diff.",
            annotations=_READS,
        ),
        _diff,
    ),
    Operation(
        Tool[LogParams, History](
            name="workspace_log",
            description="List what happened in the workspace, newest first.",
            annotations=_READS,
        ),
        _log,
    ),
    Operation(
        Tool[UndoParams, Undone](
            name="workspace_undo",
            description="Take back the newest call that changed something; later edits stay.",
            annotations=replace(_REPLACES, idempotent=False),
        ),
        _undo,
    ),
    APPLY,
)
"""All of them, in the order in which they are listed."""
