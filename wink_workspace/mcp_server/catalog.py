"""The catalog of a server: its sections, their tools and instructions, and the workspace tools.

All sessions share one catalog, and each session makes its own prompt from it. The tool list is
computed here, so listing the tools opens no workspace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Never

from wink_workspace.errors import ResourceError
from wink_workspace.prompt import MarkdownSection, Prompt, RenderedPrompt, Section, Tool
from wink_workspace.resources import Binding
from wink_workspace.sections import PlanningToolsSection, VfsToolsSection

if TYPE_CHECKING:
    from .operations import Operation


class Catalog:
    """The sections, tools and prompts that a server gives every workspace.

    Args:
        sections: The sections; those for files and plans when omitted. Each workspace binds its
            own resources to them.
        operations: Whether to include the tools for the history (``workspace_diff``) and the
            tools for branches.
        in_place: Whether the workspaces are in-place; ``workspace_apply`` and the tools for
            branches are left out then.
        structured: Whether tools have an output schema, and results their value as JSON beside
            the text. Many clients show a model that JSON instead of the text.
    """

    def __init__(
        self,
        sections: Sequence[Section[None]] | None = None,
        *,
        operations: bool = False,
        in_place: bool = False,
        structured: bool = False,
    ) -> None:
        self.structured: Final = structured
        self.sections: Final = (
            (VfsToolsSection(), PlanningToolsSection()) if sections is None else tuple(sections)
        )
        self.operations: Final[Mapping[str, Operation]] = (
            _operations(in_place=in_place) if operations else {}
        )
        self._introduction = _introduction(operations=operations, in_place=in_place)

    def prompt(self) -> Prompt[None]:
        """A new prompt for one session."""
        root = MarkdownSection[None](
            title="Workspace",
            template=self._introduction,
            children=self.sections,
        )
        return Prompt[None](ns="wink-workspace", key="mcp", sections=[root])

    @cached_property
    def _rendered(self) -> RenderedPrompt[None]:
        prompt = self.prompt()
        required = {t for node in prompt.template.walk() for t in node.section.required_resources}
        # No workspace is open yet; each session binds the resources of its own workspace.
        return prompt.bind(
            resources={t: Binding[Any](t, _refuse_resource) for t in required}
        ).render()

    @cached_property
    def instructions(self) -> str:
        """The introduction and the summaries of the sections, or their text if they have none.

        At most 2,000 characters: clients cut the rest [Claude Code, 2 KB].
        """
        texts = (each.summary_text(None) or each.body(None) for each in self.sections)
        text = "\n\n".join(each.strip() for each in (self._introduction, *texts))
        return text if len(text) <= _MOST_CHARS else f"{text[: _MOST_CHARS - 1].rstrip()}…"

    @cached_property
    def tools(self) -> tuple[Tool[Any, Any], ...]:
        """All tools: those of the sections, then the workspace tools."""
        return (*self._rendered.tools, *(each.tool for each in self.operations.values()))

    def tool(self, name: str) -> Tool[Any, Any] | None:
        """The tool with the name *name*, or ``None``."""
        return next((tool for tool in self.tools if tool.name == name), None)


def _operations(*, in_place: bool) -> dict[str, Operation]:
    """The workspace tools by name."""
    from .branch_tools import BRANCH_OPERATIONS  # on use: most clients do not get them
    from .operations import APPLY, OPERATIONS, SYNC

    more = () if in_place else (APPLY, SYNC, *BRANCH_OPERATIONS)
    return {operation.tool.name: operation for operation in (*OPERATIONS, *more)}


def _refuse_resource(_: object) -> Never:
    raise ResourceError("a resource was requested outside a session", hint="Begin a session first.")


def _introduction(*, operations: bool, in_place: bool) -> str:
    """The text before that of the sections."""
    sentences = [_IN_PLACE if in_place else _COPY]
    if operations:
        sentences += [_OPERATIONS] if in_place else [_APPLY, _OPERATIONS, _BRANCHES]
    return " ".join(sentences)


_MOST_CHARS: Final = 2_000
_ATOMIC: Final = "Each call happens fully or leaves no trace."
_COPY: Final = f"""\
These tools work in a workspace, which is a private copy of a directory. {_ATOMIC} Use only these
tools for the files of that directory: changes by other tools do not appear in the workspace."""
_IN_PLACE: Final = f"These tools work directly in the user's directory. {_ATOMIC}"
_APPLY: Final = "The directory itself does not change until you call `workspace_apply`."
_OPERATIONS: Final = """\
`workspace_diff` shows the changes, `workspace_log` lists the history, and `workspace_undo` undoes
the newest change, again the one before, `undo_entry` any other."""
_BRANCHES: Final = """\
To try something risky, make a branch with `fork_workspace` and work on it after `switch_branch`;
switch back to take it over with `merge_branch`."""
