"""The tools for branches: fork, switch, compare and merge.

They are not calls, as the other workspace tools (see ``operations``). A client works on one branch
at a time; the host opens the branch that ``switch_branch`` names. In place there are none.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from wink_workspace.counts import counted
from wink_workspace.prompt import Tool, ToolResult

from .operations import MOST_DIFF_CHARS, READS, REPLACES, Operation, WorkspaceDiff

if TYPE_CHECKING:  # the tools are listed before a workspace is opened, without these
    from wink_workspace.workspace import Workspace


_NAME: Final = {"min_length": 1, "max_length": 200}


@dataclass(frozen=True, slots=True)
class BranchParams:
    """Parameters of ``fork_workspace``, ``switch_branch`` and ``merge_branch``."""

    branch: str = field(metadata={"description": "A branch; the first one is main.", **_NAME})


@dataclass(frozen=True, slots=True)
class CompareParams:
    """Parameters of ``compare_branches``."""

    branch: str = field(metadata={"description": "The other branch.", **_NAME})
    base: str | None = field(
        default=None,
        metadata={"description": "Compare with this branch instead of the present one.", **_NAME},
    )


@dataclass(frozen=True, slots=True)
class SwitchedBranch:
    """The branch on which the next calls work, and all branches."""

    branch: str
    branches: tuple[str, ...]

    def render(self) -> str:
        """All branches, with a star at the present one."""
        return "\n".join(f"{'*' if name == self.branch else ' '} {name}" for name in self.branches)


@dataclass(frozen=True, slots=True)
class MergedPaths:
    """The paths that a merge changed."""

    paths: tuple[str, ...]

    def render(self) -> str:
        """The paths, one on each line."""
        return "\n".join(self.paths)


def _branches(workspace: Workspace) -> tuple[str, ...]:
    return ("main", *workspace.forks())


def _fork(workspace: Workspace, params: BranchParams) -> ToolResult[Any]:
    workspace.fork(params.branch)
    switched = SwitchedBranch(workspace.branch_name, _branches(workspace))
    return ToolResult.ok(switched, f"Made the branch {params.branch}; it is not switched to.")


def _switch(workspace: Workspace, params: BranchParams) -> ToolResult[Any]:
    workspace.head_of(params.branch)  # refuses an unknown one
    switched = SwitchedBranch(params.branch, _branches(workspace))
    return ToolResult.ok(switched, f"Calls work on the branch {params.branch} now.")


def _compare(workspace: Workspace, params: CompareParams) -> ToolResult[Any]:
    workspace.commit_edits()
    diff = workspace.branches.compare(params.base or workspace.branch_name, params.branch).review()
    text, n_more = diff.head(MOST_DIFF_CHARS)
    return ToolResult.ok(WorkspaceDiff(text, len(diff.paths), n_more))


def _merge(workspace: Workspace, params: BranchParams) -> ToolResult[Any]:
    entry = workspace.merge(params.branch)
    if entry is None:
        return ToolResult.ok(MergedPaths(()), f"{params.branch} has nothing that is not merged.")
    paths = workspace.review_of(entry).paths
    return ToolResult.ok(
        MergedPaths(paths), f"Merged {counted(len(paths), 'path')} as entry {entry.number}."
    )


BRANCH_OPERATIONS: Final = (
    Operation(
        Tool[BranchParams, SwitchedBranch](
            name="fork_workspace",
            description="Make a branch with the present files, to try something on it.",
            annotations=replace(REPLACES, destructive=False, idempotent=False),
        ),
        _fork,
    ),
    Operation(
        Tool[BranchParams, SwitchedBranch](
            name="switch_branch",
            description="Work on another branch; each has files and a history of its own.",
            annotations=replace(REPLACES, destructive=False),
        ),
        _switch,
    ),
    Operation(
        Tool[CompareParams, WorkspaceDiff](
            name="compare_branches",
            description="Show how the files of another branch differ from those here, as a diff.",
            annotations=READS,
        ),
        _compare,
    ),
    Operation(
        Tool[BranchParams, MergedPaths](
            name="merge_branch",
            description="Merge another branch into the present one; a conflict changes nothing.",
            annotations=REPLACES,
        ),
        _merge,
    ),
)
"""In the order of the tool list."""
