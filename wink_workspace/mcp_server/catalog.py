"""What a server offers: sections with their tools and words, and perhaps the extra tools.

An offer is made once and shared by all sessions; each session makes its own prompt of it. All
that a client is told of the tools is computed here, so that listing them opens no workspace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Never

from wink_workspace.errors import ResourceError
from wink_workspace.prompt import MarkdownSection, Prompt, RenderedPrompt, Section, Tool
from wink_workspace.resources import Binding
from wink_workspace.sections import PlanningToolsSection, VfsToolsSection

from .operations import APPLY, OPERATIONS, Operation

__all__ = ["Catalog"]


class Catalog:
    """What every workspace of a server offers.

    Args:
        sections: The sections; files and plans when omitted. They bind to the workspace's own
            resources, whatever they declare themselves.
        operations: Whether to offer ``workspace_diff``, ``_log``, ``_undo`` and ``_apply``.
        in_place: Whether the workspaces are the directories themselves; then there is nothing
            to apply.
    """

    def __init__(
        self,
        sections: Sequence[Section[None]] | None = None,
        *,
        operations: bool = False,
        in_place: bool = False,
    ) -> None:
        self.sections: Final = (
            (VfsToolsSection(), PlanningToolsSection()) if sections is None else tuple(sections)
        )
        self.operations: Final[Mapping[str, Operation]] = {
            operation.tool.name: operation
            for operation in OPERATIONS
            if operations and not (in_place and operation is APPLY)
        }
        self._words = _words(operations=operations, in_place=in_place)

    def prompt(self) -> Prompt[None]:
        """A prompt for one session."""
        root = MarkdownSection[None](
            title="Workspace",
            template=self._words,
            children=self.sections,
        )
        return Prompt[None](ns="wink-workspace", key="mcp", sections=[root])

    @cached_property
    def _rendered(self) -> RenderedPrompt[None]:
        prompt = self.prompt()
        required = {t for node in prompt.template.walk() for t in node.section.required_resources}
        # No workspace is open yet; the one of each session brings what the sections require.
        return prompt.bind(resources={t: Binding[Any](t, _of_a_session) for t in required}).render()

    @property
    def instructions(self) -> str:
        """The words of all sections, for the model."""
        return self._rendered.text

    @cached_property
    def tools(self) -> tuple[Tool[Any, Any], ...]:
        """All tools: those of the sections, then the extra ones."""
        return (*self._rendered.tools, *(one.tool for one in self.operations.values()))

    def tool(self, name: str) -> Tool[Any, Any] | None:
        """The tool called *name*, if there is one."""
        return next((tool for tool in self.tools if tool.name == name), None)


def _of_a_session(_: object) -> Never:
    raise ResourceError("a resource is asked for outside a session", hint="Begin a session first.")


def _words(*, operations: bool, in_place: bool) -> str:
    """What is said before the sections' own words."""
    said = [_IN_PLACE if in_place else _COPY]
    if operations:
        said += [_OPERATIONS] if in_place else [_APPLY, _OPERATIONS]
    return " ".join(said)


_ALL: Final = "Each call happens fully or leaves no trace."
_COPY: Final = f"""\
These tools work in a workspace of their own, a copy of a directory. {_ALL} Use them, and not
others you may have, for files of that directory: what is done elsewhere is not seen here."""
_IN_PLACE: Final = f"These tools work in a directory of their user's. {_ALL}"
_APPLY: Final = "Nothing reaches the directory itself before `workspace_apply`."
_OPERATIONS: Final = """\
`workspace_diff` shows what is different, `workspace_log` what happened, and `workspace_undo` takes
the newest change back; it can be called again."""
