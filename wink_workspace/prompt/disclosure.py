"""Progressive disclosure: sections that start as a summary until the model opens them.

Rule 1: what is open is state. It lives in the session, so it rolls back, is stored and comes
back like any other; a prompt rendered without a session shows what its author decided.
Rule 2: opening needs a new rendering, so it is asked of the adapter by an exception. Reading
changes nothing and is answered at once.
Rule 3: a section inside a closed one is reached by opening both; asking for the inner one
is enough.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from wink_workspace.errors import VisibilityExpansionRequired
from wink_workspace.session import Replace, Session, SessionProtocol, SliceKind, SliceOp, SliceView

from .context import RenderedPromptProtocol, ToolContext
from .section import Section, SectionVisibility
from .tool import Tool, ToolAnnotations, ToolExample
from .tool_result import ToolResult

__all__ = [
    "DISCLOSURE_TOOL_NAMES",
    "OpenSections",
    "ReadSection",
    "SetVisibility",
    "VisibilityOverrides",
]

_OPEN = "open_sections"
_READ = "read_section"
_UNKNOWN = "there is no such section"
_READS = ToolAnnotations(read_only=True, destructive=False, idempotent=True, open_world=False)

DISCLOSURE_TOOL_NAMES = (_OPEN, _READ)


@dataclass(frozen=True, slots=True)
class SetVisibility:
    """The event that opens or closes a section.

    Attributes:
        section_key: Its dotted path.
        visibility: How it is shown from now on.
        prompt: The prompt's ``ns/key``, as sections of two prompts on one session may have one
            path; of every prompt when empty.
    """

    section_key: str
    visibility: SectionVisibility
    prompt: str = ""


@dataclass(frozen=True, slots=True)
class VisibilityOverrides:
    """Which sections are shown otherwise than their authors decided.

    By dotted path, after ``ns/key:`` if it holds for one prompt alone, which wins. Closing a
    section that has no summary has no effect.
    """

    sections: Mapping[str, SectionVisibility] = field(default_factory=dict[str, SectionVisibility])

    @staticmethod
    def of(session: SessionProtocol | None) -> VisibilityOverrides:
        """Those of *session*; none without one."""
        latest = None if session is None else session[VisibilityOverrides].latest()
        return latest or VisibilityOverrides()

    def of_section(
        self, path: str, section: Section[Any], *, prompt: str = ""
    ) -> SectionVisibility:
        """How *section* at *path* of a prompt is shown; in full if it has no summary."""
        if section.summary is None:
            return SectionVisibility.FULL
        everywhere = self.sections.get(path, section.visibility)
        return self.sections.get(_place(path, prompt), everywhere)

    @staticmethod
    def install(session: Session) -> None:
        """Let *session* follow ``SetVisibility``; may be called again."""
        slice_ = session[VisibilityOverrides]
        slice_.register(SetVisibility, _set_visibility, kind=SliceKind.STATE)


@dataclass(frozen=True, slots=True)
class OpenSections:
    """What ``open_sections`` takes."""

    section_keys: tuple[str, ...] = field(
        metadata={"description": "Keys of the sections to open, as their summaries give them."}
    )
    reason: str = field(metadata={"description": "What you need them for, in one sentence."})


@dataclass(frozen=True, slots=True)
class ReadSection:
    """What ``read_section`` takes."""

    section_key: str = field(
        metadata={"description": "Key of the section to read, as its summary gives it."}
    )


@functools.cache
def disclosure_tools() -> tuple[Tool[Any, Any], ...]:
    """The tools of a prompt with closed sections, made when first needed."""
    return (
        Tool[OpenSections, None](
            name=_OPEN,
            description="Show summarised sections in full from now on, with their tools.",
            handler=_open_sections,
            annotations=replace(_READS, read_only=False),
            examples=(
                ToolExample(
                    description="Open one section to get its tools",
                    input=OpenSections(("reference.api",), "I need to call the API."),
                    output=None,
                ),
            ),
        ),
        Tool[ReadSection, str](
            name=_READ,
            description="Read a summarised section once; it stays closed and its tools hidden.",
            handler=_read_section,
            annotations=_READS,
            examples=(
                ToolExample(
                    description="Read one section",
                    input=ReadSection("reference.api"),
                    output="### 2.1 API\n\nEvery request names its version.",
                ),
            ),
        ),
    )


def how_to_open(path: str) -> str:
    """The line below a summary."""
    return (
        f'This is a summary. Call `{_OPEN}` with section_keys ["{path}"] for the whole section '
        f'and its tools, or `{_READ}` with section_key "{path}" just to read it.'
    )


def _set_visibility(
    view: SliceView[VisibilityOverrides], event: SetVisibility
) -> SliceOp[VisibilityOverrides]:
    before = view.latest() or VisibilityOverrides()
    after = {**before.sections, _place(event.section_key, event.prompt): event.visibility}
    return Replace((VisibilityOverrides(after),))


def _place(path: str, prompt: str) -> str:
    return f"{prompt}:{path}" if prompt else path


def _open_sections(params: OpenSections, *, context: ToolContext) -> ToolResult[None]:
    """Ask for a new rendering with the sections open, if at least one can be opened."""
    rendered = context.rendered_prompt
    to_open: list[str] = []
    problems: dict[str, str] = {}
    for key in params.section_keys:
        closed = None if rendered is None else rendered.closed_above(key)
        if closed is None:
            problems[key] = _UNKNOWN
        elif not closed:
            problems[key] = "it is open already"
        to_open.extend(closed or ())
    if to_open:
        keys = tuple(dict.fromkeys(to_open))
        raise VisibilityExpansionRequired(keys, reason=params.reason, problems=problems)
    return ToolResult.error(_refusal(problems or {"section_keys": "it is empty"}, rendered))


def _read_section(params: ReadSection, *, context: ToolContext) -> ToolResult[str]:
    rendered = context.rendered_prompt
    text = None if rendered is None else rendered.read_section(params.section_key)
    if text is None:
        return ToolResult.error(_refusal({params.section_key: _UNKNOWN}, rendered))
    return ToolResult.ok(text, f"Section {params.section_key}; nothing was opened.")


def _refusal(problems: Mapping[str, str], rendered: RenderedPromptProtocol | None) -> str:
    closed = () if rendered is None else rendered.closed_sections
    listed = "; ".join(f"{key!r}: {problem}" for key, problem in problems.items())
    return f"{listed}. Summarised sections: {', '.join(closed) or 'none'}."
