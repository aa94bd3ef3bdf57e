"""Progressive disclosure: the model opens sections that are shown as a summary.

Rule 1: which sections are open is STATE of the session; see ``disclosure``.
Rule 2: opening needs a new rendering, so ``open_sections`` raises an exception that the adapter
handles. ``read_section`` changes nothing and answers at once.
Rule 3: opening a section inside a closed one opens both.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from wink_workspace.errors import VisibilityExpansionRequired

from .tool import Tool, ToolAnnotations, ToolExample
from .tool_context import RenderedPromptProtocol, ToolContext
from .tool_result import ToolResult

_OPEN = "open_sections"
_READ = "read_section"
_UNKNOWN = "there is no such section"
_READS = ToolAnnotations(read_only=True, destructive=False, idempotent=True, open_world=False)

DISCLOSURE_TOOL_NAMES = (_OPEN, _READ)


@dataclass(frozen=True, slots=True)
class OpenSections:
    """Parameters of ``open_sections``."""

    section_keys: tuple[str, ...] = field(
        metadata={"description": "Keys of the sections to open, from their summaries."}
    )
    reason: str = field(metadata={"description": "Why you need them, in one sentence."})


@dataclass(frozen=True, slots=True)
class ReadSection:
    """Parameters of ``read_section``."""

    section_key: str = field(
        metadata={"description": "Key of the section to read, from its summary."}
    )


@functools.cache
def disclosure_tools() -> tuple[Tool[Any, Any], ...]:
    """The tools of a prompt with closed sections."""
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
        f'This is a summary. Call `{_OPEN}` with section_keys ["{path}"] for the full section '
        f'and its tools, or `{_READ}` with section_key "{path}" to only read it.'
    )


def _open_sections(params: OpenSections, *, context: ToolContext) -> ToolResult[None]:
    """Request a new rendering with the sections open; fail if none of them can be opened."""
    rendered = context.rendered_prompt
    to_open: list[str] = []
    problems: dict[str, str] = {}
    for key in params.section_keys:
        closed = None if rendered is None else rendered.closed_above(key)
        if closed is None:
            problems[key] = _UNKNOWN
        elif not closed:
            problems[key] = "it is already open"
        to_open.extend(closed or ())
    if to_open:
        keys = tuple(dict.fromkeys(to_open))
        raise VisibilityExpansionRequired(keys, reason=params.reason, problems=problems)
    return ToolResult.error(_refusal(problems or {"section_keys": "the list is empty"}, rendered))


def _read_section(params: ReadSection, *, context: ToolContext) -> ToolResult[str]:
    rendered = context.rendered_prompt
    text = None if rendered is None else rendered.read_section(params.section_key)
    if text is None:
        return ToolResult.error(_refusal({params.section_key: _UNKNOWN}, rendered))
    return ToolResult.ok(text, f"Section {params.section_key}; it stays closed.")


def _refusal(problems: Mapping[str, str], rendered: RenderedPromptProtocol | None) -> str:
    closed = () if rendered is None else rendered.closed_sections
    listed = "; ".join(f"{key!r}: {problem}" for key, problem in problems.items())
    return f"{listed}. Summarised sections: {', '.join(closed) or 'none'}."
