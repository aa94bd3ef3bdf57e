"""What a prompt is at one moment: its text, its tools, and what is still closed.

Everything here is a value. A ``RenderedPrompt`` keeps the tree of enabled sections with all
texts filled in, closed ones included, so that reading a closed section later gives what
opening it at the time of rendering would have shown.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, cast

from typing_extensions import TypeVar

from wink_workspace import serde
from wink_workspace.errors import UsageError

from ._generics import firmly_frozen
from .disclosure import how_to_open
from .policy import ToolPolicy
from .tool import Tool, ToolExample

__all__ = ["RenderedPrompt", "RenderedSection"]

OutputT = TypeVar("OutputT", default=None)

_DEEPEST_HEADING = 6
_LONGEST_ANSWER_CHARS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedSection:
    """An enabled section with its texts filled in.

    Attributes:
        path: The keys from the root, joined by dots.
        number: Its place among the enabled sections: ``(2, 1)`` is the first below the second.
        title: The heading.
        body: The text below the heading; may be empty.
        summary: What is shown instead while the section is closed; None when it is open.
        tools: Its own tools, in the order declared.
        policies: Those that guard its tools, the outermost section's first.
        resources: The types that it and the sections above it declare, those that live as
            long as the prompt's resources are open.
        children: The enabled sections below it.
    """

    path: str
    number: tuple[int, ...]
    title: str
    body: str
    summary: str | None = None
    tools: tuple[Tool[Any, Any], ...] = ()
    policies: tuple[ToolPolicy, ...] = ()
    resources: tuple[type[Any], ...] = ()
    children: tuple[RenderedSection, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether body, tools and children are shown."""
        return self.summary is None

    @property
    def heading(self) -> str:
        """The Markdown heading: ``## 1. Title``, ``### 1.1 Title`` and so on."""
        level = "#" * min(len(self.number) + 1, _DEEPEST_HEADING)
        number = ".".join(map(str, self.number)) + ("." if len(self.number) == 1 else "")
        return f"{level} {number} {self.title}"

    def shown(self) -> Iterator[RenderedSection]:
        """Itself and, depth first, every section below it that is not inside a closed one."""
        yield self
        if self.is_open:
            for child in self.children:
                yield from child.shown()

    def text(self) -> str:
        """The section as it stands in the prompt, with what is shown below it."""
        return "\n\n".join(self._open_blocks() if self.is_open else self._closed_blocks())

    def full_text(self) -> str:
        """The section as it would stand in the prompt if it were open."""
        return "\n\n".join(self._open_blocks())

    def _closed_blocks(self) -> Iterator[str]:
        yield self.heading
        yield from filter(None, [self.summary])
        yield how_to_open(self.path)

    def _open_blocks(self) -> Iterator[str]:
        yield self.heading
        yield from filter(None, [self.body])
        yield from filter(None, [_examples(self.tools)])
        for child in self.children:
            yield child.text()


@firmly_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedPrompt(Generic[OutputT]):
    """A prompt as the provider gets it.

    Attributes:
        prompt_name: The prompt's name.
        text: The instructions, in Markdown.
        tools: What the model may call, in declaration order; the tools that open and read
            sections come last, and only when a section is closed.
        tool_param_descriptions: Description, type and default of each parameter of each
            tool, by tool and parameter name, with overrides applied.
        output_type: What the answer is parsed as: a dataclass, a list of one, or None for text.
        sections: The enabled top-level sections.
    """

    prompt_name: str
    text: str
    tools: tuple[Tool[Any, Any], ...]
    tool_param_descriptions: Mapping[str, Mapping[str, serde.ParamDescription]]
    output_type: type[OutputT] | None
    sections: tuple[RenderedSection, ...]

    @property
    def closed_sections(self) -> tuple[str, ...]:
        """The paths of the sections that are shown as a summary."""
        return tuple(section.path for section in self._shown() if not section.is_open)

    def tool(self, name: str) -> Tool[Any, Any] | None:
        """The tool called *name*, if the prompt offers it."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def tool_schema(self, name: str) -> dict[str, serde.JsonValue]:
        """The parameters of the tool called *name*, as a provider's strict mode wants them.

        Raises:
            UsageError: If the prompt offers no such tool.
        """
        tool = self.tool(name)
        if tool is None:
            raise UsageError(
                f"prompt {self.prompt_name!r} offers no tool {name!r}",
                hint="Use the names in `tools`.",
            )
        return _with_descriptions(tool, self.tool_param_descriptions[name])

    def policies_for(self, tool_name: str) -> tuple[ToolPolicy, ...]:
        """The policies that guard the tool, the outermost section's first."""
        section = self._section_of(tool_name)
        return () if section is None else section.policies

    def resources_for(self, tool_name: str) -> tuple[type[Any], ...]:
        """The resources that the tool's sections declare; see ``RenderedSection.resources``."""
        section = self._section_of(tool_name)
        return () if section is None else section.resources

    def closed_above(self, path: str) -> tuple[str, ...] | None:
        """What must be opened so that the section at *path* is shown in full.

        The closed ones among the section and those above it, outermost first; empty when it
        is open already, None when the prompt has no such section or it is disabled.
        """
        line = self._line_to(path)
        return None if line is None else tuple(s.path for s in line if not s.is_open)

    def read_section(self, path: str) -> str | None:
        """The text that opening the section at *path* would show; None when there is none."""
        line = self._line_to(path)
        return None if line is None else line[-1].full_text()

    def _section_of(self, tool_name: str) -> RenderedSection | None:
        for section in self._shown():
            if any(tool.name == tool_name for tool in section.tools):
                return section
        return None

    def _shown(self) -> Iterator[RenderedSection]:
        for section in self.sections:
            yield from section.shown()

    def _line_to(self, path: str) -> tuple[RenderedSection, ...] | None:
        """The sections from the root down to the one at *path*."""
        line: list[RenderedSection] = []
        level = self.sections
        keys = path.split(".")
        for n_keys in range(1, len(keys) + 1):
            sought = ".".join(keys[:n_keys])
            found = next((section for section in level if section.path == sought), None)
            if found is None:
                return None
            line.append(found)
            level = found.children
        return tuple(line)


def _examples(tools: Iterable[Tool[Any, Any]]) -> str:
    """The tools' examples as a list of calls with their answers; empty if there are none."""
    items = [
        f"- {each.description.strip()}: `{tool.name}` with `{each.arguments}`" + _answer(each)
        for tool in tools
        for each in tool.examples
    ]
    return "\n".join(["**Examples**", "", *items]) if items else ""


def _answer(example: ToolExample[Any, Any]) -> str:
    text = example.answer.strip("\n")
    if not text:
        return "."
    if len(text) > _LONGEST_ANSWER_CHARS:
        text = text[:_LONGEST_ANSWER_CHARS].rpartition("\n")[0] + "\n…"
    fence = "~~~~" if "```" in text else "```"
    return " gives\n" + textwrap.indent(f"{fence}\n{text}\n{fence}", "  ")


def response_format(output_type: object, number: int) -> str:
    """The last section of a prompt with structured output: the schema of the answer."""
    schema = json.dumps(serde.schema(output_type), indent=2, ensure_ascii=False)
    heading = RenderedSection(path="", number=(number,), title="Response format", body="").heading
    return "\n\n".join(
        (
            heading,
            "Give the final answer as JSON that fits this schema, with nothing around it:",
            f"```json\n{schema}\n```",
        )
    )


def _with_descriptions(
    tool: Tool[Any, Any], descriptions: Mapping[str, serde.ParamDescription]
) -> dict[str, serde.JsonValue]:
    """The tool's provider schema with the words that differ from the tool's own."""
    schema = tool.provider_schema()
    properties = cast("dict[str, dict[str, serde.JsonValue]]", schema.get("properties", {}))
    own = tool.param_descriptions()
    changed = {
        name: {**properties[name], "description": _reworded(properties[name], own[name], param)}
        for name, param in descriptions.items()
        if param != own[name]
    }
    return {**schema, "properties": {**properties, **changed}} if changed else schema


def _reworded(
    property_: dict[str, serde.JsonValue], own: serde.ParamDescription, new: serde.ParamDescription
) -> str:
    """The property's description with *new* for *own*, and what else the schema adds to it."""
    shown = str(property_.get("description", ""))
    for before, after in (
        (_sentence(own.description), _sentence(new.description)),
        (f"Default: {own.default}", f"Default: {new.default}"),
    ):
        if before == after:
            continue
        if before and before in shown:
            shown = shown.replace(before, after, 1)
        elif after.startswith("Default:"):
            shown = f"{shown} {_sentence(after)}".strip()
        else:
            shown = f"{after} {shown}".strip()
    return shown if new.type == own.type else f"{shown} {_sentence(f'Type: {new.type}')}".strip()


def _sentence(description: str) -> str:
    """*description* as ``serde.provider_schema`` writes it among its own notes."""
    stripped = description.strip()
    return f"{stripped}." if stripped and stripped[-1] not in ".!?:;" else stripped
