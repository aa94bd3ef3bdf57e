"""The workspace tools: diff, log, undo and apply; ``branches`` has those for branches.

They read the history or move in it, so they are not calls with an entry of their own;
``workspace_undo`` makes the entry of the undo. Methods of ``Workspace`` make each of them all or
nothing, not a transaction of the executor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from wink_workspace.counts import counted
from wink_workspace.errors import ConflictError, ParseError, WinkError
from wink_workspace.prompt import Tool, ToolAnnotations, ToolResult

if TYPE_CHECKING:  # the tools are listed before a workspace is opened, without these
    from wink_workspace.ledger import LogEntry
    from wink_workspace.workspace import ApplyTarget, ChangeSet, Workspace


MOST_DIFF_CHARS: Final = 8_388_608
"""Characters of a diff that are compared for a tool; a model gets a part of them."""

_MAX_NOTES: Final = 100

READS: Final = ToolAnnotations(read_only=True, destructive=False, idempotent=True, open_world=False)
REPLACES: Final = ToolAnnotations(
    read_only=False, destructive=True, idempotent=True, open_world=False
)


@dataclass(frozen=True, slots=True)
class DiffParams:
    """Parameters of ``workspace_diff``."""

    entry: int | None = field(
        default=None,
        metadata={
            "description": "Number of an entry, to show its changes; otherwise all differences "
            "from the source.",
            "ge": 1,
        },
    )
    include_ignored: bool = field(
        default=False,
        metadata={"description": "Include new files that the source's ignore rules exclude."},
    )


@dataclass(frozen=True, slots=True)
class WorkspaceDiff:
    """A git-style diff, without its last ``n_more_chars`` characters.

    ``marked`` are paths that can run something on the user's machine, ``left_out`` those that
    ``workspace_apply`` does not apply, each with the reason.
    """

    diff: str
    n_paths: int
    n_more_chars: int = 0
    marked: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def render(self) -> str:
        """The diff, and a note for each marked or left-out path."""
        notes = [
            *(f"can run something on the user's machine: {each}" for each in self.marked),
            *(f"left out: {each}" for each in self.left_out),
        ]
        cut = f"\n({self.n_more_chars:,} more characters)" if self.n_more_chars else ""
        return "\n".join(((self.diff or "(no differences)") + cut, *notes))


@dataclass(frozen=True, slots=True)
class LogParams:
    """Parameters of ``workspace_log``."""

    limit: int = field(
        default=20, metadata={"description": "Most entries to list.", "ge": 1, "le": 500}
    )


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One entry: its number, time, kind, subject, and the outcome of its call."""

    number: int
    at: str
    kind: str
    subject: str
    outcome: str | None = None

    @classmethod
    def of(cls, entry: LogEntry) -> HistoryEntry:
        """The public fields of *entry*."""
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
class UndoEntryParams:
    """Parameters of ``undo_entry``."""

    entry: int = field(metadata={"description": "Its number in `workspace_log`.", "ge": 1})


@dataclass(frozen=True, slots=True)
class SyncParams:
    """Parameters of ``workspace_sync``."""


@dataclass(frozen=True, slots=True)
class Synced:
    """The paths that later changes of the source have changed in the workspace."""

    paths: tuple[str, ...]

    def render(self) -> str:
        """The paths, one on each line."""
        return "\n".join(self.paths)


@dataclass(frozen=True, slots=True)
class Undone:
    """The number of the undone entry, and the paths that the undo changed.

    ``not_undone`` are the effects of the call outside of the workspace, such as requests.
    """

    entry: int
    paths: tuple[str, ...]
    not_undone: tuple[str, ...] = ()

    def render(self) -> str:
        """The paths, one on each line, then what was not undone."""
        return "\n".join((*self.paths, *(f"not undone: {each}" for each in self.not_undone)))


@dataclass(frozen=True, slots=True)
class ApplyParams:
    """Parameters of ``workspace_apply``."""

    branch: str | None = field(
        default=None,
        metadata={
            "description": "Name of a new branch to create in the source's repository, instead of "
            "changing its files.",
            "min_length": 1,
            "max_length": 200,
        },
    )
    include_ignored: bool = field(
        default=False,
        metadata={"description": "Include new files that the source's ignore rules exclude."},
    )


@dataclass(frozen=True, slots=True)
class AppliedPaths:
    """The paths that were applied to the source, and those that were left out.

    ``marked`` are applied paths that can run something on the user's machine, with the reason.
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
        changes = workspace.changeset(include_ignored=params.include_ignored)
        diff, marked = changes.review(), _marked(changes)
        left_out = tuple(f"{each.path}: {each.reason}" for each in changes.left_out[:_MAX_NOTES])
    else:
        diff = workspace.review_of(workspace.entry(params.entry))
    text, n_more = diff.head(MOST_DIFF_CHARS)
    if not text and params.entry is not None:
        text = workspace.lost_changes(workspace.entry(params.entry))
    return ToolResult.ok(WorkspaceDiff(text, len(diff.paths), n_more, marked, left_out))


def _marked(changes: ChangeSet) -> tuple[str, ...]:
    marked = (f"{path}: {', '.join(risks)}" for path, risks in changes.marked().items())
    return tuple(islice(marked, _MAX_NOTES))


def _log(workspace: Workspace, params: LogParams) -> ToolResult[Any]:
    entries = tuple(map(HistoryEntry.of, workspace.log(limit=params.limit)))
    return ToolResult.ok(History(entries))


def _sync(workspace: Workspace, params: SyncParams) -> ToolResult[Any]:
    del params
    entry = workspace.sync()
    if entry is None:
        return ToolResult.ok(Synced(()), "The source has no later changes.")
    paths = workspace.review_of(entry).paths
    return ToolResult.ok(Synced(paths), f"Merged {counted(len(paths), 'path')} of the source.")


def _undo(workspace: Workspace, params: UndoParams | UndoEntryParams) -> ToolResult[Any]:
    entry = workspace.undo(params.entry if isinstance(params, UndoEntryParams) else None)
    paths = workspace.review_of(entry).paths
    undone = Undone(entry.target or 0, paths, workspace.not_undone(entry))
    return ToolResult.ok(
        undone, f"Undid entry {entry.target}{'' if paths else '; no file changed'}."
    )


def _apply(workspace: Workspace, params: ApplyParams) -> ToolResult[Any]:
    to: ApplyTarget = "worktree" if params.branch is None else "branch"
    previewed = workspace.source.preview(to, include_ignored=params.include_ignored)
    applied = workspace.apply(
        to, branch=params.branch or "", include_ignored=params.include_ignored, previewed=previewed
    )
    target = workspace.info.source if params.branch is None else f"branch {params.branch}"
    message = f"Applied {counted(len(applied.paths), 'path')} to {target}."
    return ToolResult.ok(AppliedPaths(applied.paths, applied.left_out, _marked(previewed)), message)


@dataclass(frozen=True, slots=True)
class Operation:
    """A tool without a handler, and the function that is called instead."""

    tool: Tool[Any, Any]
    perform: Callable[[Workspace, Any], ToolResult[Any]]

    def run(self, workspace: Workspace, arguments: str | Mapping[str, object]) -> ToolResult[Any]:
        """Perform it; wrong arguments and ``WinkError`` give a failed result."""
        try:
            return self.perform(workspace, self.tool.parse(arguments))
        except ParseError as error:
            return ToolResult.error(str(error))
        except ConflictError as error:
            message = f"{self.tool.name} changed nothing: {error}\n{error.details}"
            return ToolResult.error(message.strip())
        except WinkError as error:
            return ToolResult.error(f"{self.tool.name} changed nothing: {error}")


APPLY: Final = Operation(
    Tool[ApplyParams, AppliedPaths](
        name="workspace_apply",
        description="Apply the changes to the source directory; a conflict there changes nothing.",
        annotations=REPLACES,
    ),
    _apply,
)
SYNC: Final = Operation(
    Tool[SyncParams, Synced](
        name="workspace_sync",
        description="Merge later edits of the source directory into the workspace.",
        annotations=replace(REPLACES, destructive=False),
    ),
    _sync,
)
"""Not for workspaces in-place, as ``APPLY``."""

OPERATIONS: Final = (
    Operation(
        Tool[DiffParams, WorkspaceDiff](
            name="workspace_diff",
            description="Show the differences from the source, or one entry's changes, as a diff.",
            annotations=READS,
        ),
        _diff,
    ),
    Operation(
        Tool[LogParams, History](
            name="workspace_log",
            description="List the history of the workspace, newest entry first.",
            annotations=READS,
        ),
        _log,
    ),
    Operation(
        Tool[UndoParams, Undone](
            name="workspace_undo",
            description="Undo the newest entry that changed files; later edits stay.",
            annotations=replace(REPLACES, idempotent=False),
        ),
        _undo,
    ),
    Operation(
        Tool[UndoEntryParams, Undone](
            name="undo_entry",
            description="Undo one entry of the history by its number; later edits stay.",
            annotations=replace(REPLACES, idempotent=False),
        ),
        _undo,
    ),
)
"""For all workspaces, in the order of the tool list; ``APPLY`` follows."""
