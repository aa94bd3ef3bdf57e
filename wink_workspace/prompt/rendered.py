"""Rendered prompts, and how a tree of sections is rendered.

Rule 1: the predicate of a section runs once, before anything else of the section. Predicates below
a disabled section do not run.
Rule 2: closed sections are rendered too. So missing params are found at once, not when the model
opens the section in the middle of a run.
Rule 3: a ``RenderedPrompt`` is a value. It has the tree of enabled sections with all texts filled
in, also of closed ones. So reading a closed section later gives the text as of the rendering.
"""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import TypeVar

from wink_workspace import serde
from wink_workspace.errors import PromptRenderError, UsageError

from ._generics import strictly_frozen
from ._tree import SectionNode
from .disclosure import VisibilityOverrides
from .disclosure_tools import disclosure_tools, how_to_open
from .policy import ToolPolicy
from .section import Section
from .tool import Tool, ToolExample
from .visibility import SectionVisibility

if TYPE_CHECKING:
    from wink_workspace.session import SessionProtocol

    from .overrides import PromptOverrides, ToolOverride


OutputT = TypeVar("OutputT", default=None)

_MAX_HEADING_LEVEL = 6
_MAX_ANSWER_CHARS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedSection:
    """An enabled section with its texts filled in.

    Attributes:
        path: The keys from the root, joined by dots.
        number: Its position among the enabled sections: ``(2, 1)`` is the first below the second.
        title: The heading.
        body: The text below the heading; may be empty.
        summary: The text while the section is closed; None when it is open.
        tools: Its own tools, in the order declared.
        policies: The policies of its tools, the outermost section's first.
        resources: The types of the singletons that it and the sections above it bind.
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
        level = "#" * min(len(self.number) + 1, _MAX_HEADING_LEVEL)
        number = ".".join(map(str, self.number)) + ("." if len(self.number) == 1 else "")
        return f"{level} {number} {self.title}"

    def shown(self) -> Iterator[RenderedSection]:
        """Itself and every section below it that is not inside a closed one, depth first."""
        yield self
        if self.is_open:
            for child in self.children:
                yield from child.shown()

    def text(self) -> str:
        """The text of the section in the prompt, with that of the sections below it."""
        return "\n\n".join(self._open_blocks() if self.is_open else self._closed_blocks())

    def full_text(self) -> str:
        """The text that the section would have if it were open."""
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


@strictly_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedPrompt(Generic[OutputT]):
    """A rendered prompt, as the provider gets it.

    Attributes:
        prompt_name: The prompt's name.
        tools: The tools that the model may call, in declaration order. If a section is closed, the
            tools that open and read sections come last.
        tool_param_descriptions: Description, type and default of each parameter of each
            tool, by tool and parameter name, with overrides applied.
        output_type: The type of the answer: a dataclass, a list of one, or None for text.
        sections: The enabled top-level sections.
    """

    prompt_name: str
    tools: tuple[Tool[Any, Any], ...]
    tool_param_descriptions: Mapping[str, Mapping[str, serde.ParamDescription]]
    output_type: type[OutputT] | None
    sections: tuple[RenderedSection, ...]

    @property
    def text(self) -> str:
        """The instructions, in Markdown; composed when asked for, as a tool call needs none."""
        blocks = [section.text() for section in self.sections]
        if self.output_type is not None:
            blocks.append(_response_format(self.output_type, len(self.sections) + 1))
        return serde.well_formed("\n\n".join(blocks))

    @property
    def closed_sections(self) -> tuple[str, ...]:
        """The paths of the sections that are shown as a summary."""
        return tuple(section.path for section in self.shown() if not section.is_open)

    def tool(self, name: str) -> Tool[Any, Any] | None:
        """The tool with the name *name*, or ``None``."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def tool_with_result(self, result_type: type[Any]) -> str:
        """The name of the first tool whose results are a *result_type*; empty without one."""
        found = (tool.name for tool in self.tools if tool.result_type is result_type)
        return next(found, "")

    def tool_schema(self, name: str) -> dict[str, serde.JsonValue]:
        """The schema of the parameters of tool *name*, for a provider's strict mode.

        Raises:
            UsageError: If the prompt has no such tool.
        """
        tool = self.tool(name)
        if tool is None:
            raise UsageError(
                f"prompt {self.prompt_name!r} has no tool {name!r}",
                hint="Use a name from `tools`.",
            )
        return serde.provider_schema(
            tool.params_type, descriptions=self.tool_param_descriptions[name]
        )

    def closed_above(self, path: str) -> tuple[str, ...] | None:
        """The sections to open so that the section at *path* is shown in full.

        These are the closed ones among the section and those above it, outermost first. Empty if
        it is open; None if the prompt has no such section or it is disabled.
        """
        chain = self._chain_to(path)
        return None if chain is None else tuple(s.path for s in chain if not s.is_open)

    def read_section(self, path: str) -> str | None:
        """The text that opening the section at *path* would show; None without such a section."""
        chain = self._chain_to(path)
        return None if chain is None else chain[-1].full_text()

    def shown(self) -> Iterator[RenderedSection]:
        """Every section that is not inside a closed one, depth first."""
        for section in self.sections:
            yield from section.shown()

    def _chain_to(self, path: str) -> tuple[RenderedSection, ...] | None:
        """The sections from the root down to the one at *path*."""
        chain: list[RenderedSection] = []
        level = self.sections
        keys = path.split(".")
        for n_keys in range(1, len(keys) + 1):
            prefix = ".".join(keys[:n_keys])
            found = next((section for section in level if section.path == prefix), None)
            if found is None:
                return None
            chain.append(found)
            level = found.children
        return tuple(chain)


def _examples(tools: Iterable[Tool[Any, Any]]) -> str:
    """The tools' examples as a list of calls and their results; empty if there are none."""
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
    if len(text) > _MAX_ANSWER_CHARS:
        text = text[:_MAX_ANSWER_CHARS].rpartition("\n")[0] + "\n…"
    fence = "~~~~" if "```" in text else "```"
    return " gives\n" + textwrap.indent(f"{fence}\n{text}\n{fence}", "  ")


def _response_format(output_type: object, number: int) -> str:
    """The last section of a prompt with structured output: the schema of the answer."""
    schema = json.dumps(serde.schema(output_type), indent=2, ensure_ascii=False)
    heading = RenderedSection(path="", number=(number,), title="Response format", body="").heading
    return "\n\n".join(
        (
            heading,
            "Give the final answer as JSON that matches this schema, with no other text:",
            f"```json\n{schema}\n```",
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """Renders a tree of sections with the given values.

    Attributes:
        params: The bound params, by type.
        session: Passed to the predicates that take it.
        prompt_key: The ``ns/key`` of the prompt.
        overrides: Those that apply to the prompt; ``None`` if there are none.
        resource_types: The types of resource that are bound.
        singletons: Those of them that live as long as the prompt's resources are open.
    """

    params: Mapping[type[Any], object]
    session: SessionProtocol | None
    prompt_key: str
    overrides: PromptOverrides | None
    resource_types: frozenset[type[Any]]
    singletons: frozenset[type[Any]]

    def enabled(self, nodes: Iterable[SectionNode]) -> Iterator[SectionNode]:
        """The enabled nodes among *nodes* and below them, depth first."""
        for node in nodes:
            if self._is_enabled(node):
                yield node
                yield from self.enabled(node.children)

    def prompt(
        self, name: str, nodes: Iterable[SectionNode], output_type: Any
    ) -> RenderedPrompt[Any]:
        """The rendered prompt.

        Raises:
            PromptRenderError: If an enabled section lacks its params or a required resource.
        """
        sections = self._sections(nodes, (), VisibilityOverrides.of(self.session))
        shown = [section for top in sections for section in top.shown()]
        tools = tuple(tool for section in shown if section.is_open for tool in section.tools)
        if not all(section.is_open for section in shown):
            tools += disclosure_tools()
        return RenderedPrompt(
            prompt_name=name,
            tools=tools,
            tool_param_descriptions={tool.name: self._described(tool) for tool in tools},
            output_type=output_type,
            sections=sections,
        )

    def _sections(
        self,
        nodes: Iterable[SectionNode],
        above: tuple[int, ...],
        visibility: VisibilityOverrides,
    ) -> tuple[RenderedSection, ...]:
        enabled = [node for node in nodes if self._is_enabled(node)]
        return tuple(
            self._section(node, (*above, position), visibility)
            for position, node in enumerate(enabled, start=1)
        )

    def _section(
        self, node: SectionNode, number: tuple[int, ...], visibility: VisibilityOverrides
    ) -> RenderedSection:
        section, params = node.section, self._params_of(node)
        self._check_resources(node)
        override = None if self.overrides is None else self.overrides.sections.get(node.path)
        shown = visibility.of_section(node.path, section, prompt=self.prompt_key)
        closed = shown == SectionVisibility.SUMMARY
        return RenderedSection(
            path=node.path,
            number=number,
            title=section.title,
            body=section.body(params, override=None if override is None else override.body),
            summary=section.summary_text(params) if closed else None,
            tools=tuple(self._with_description(tool) for tool in section.tools()),
            policies=node.policies,
            resources=tuple(t for t in node.resource_types if t in self.singletons),
            children=self._sections(node.children, number, visibility),
        )

    def _is_enabled(self, node: SectionNode) -> bool:
        section = node.section
        params = self._params_of(node) if section.enabled_by_params else None
        return section.is_enabled(params, session=self.session)

    def _params_of(self, node: SectionNode) -> Any:
        section: Section[Any] = node.section
        type_ = section.params_type
        if type_ is None:
            return None
        params = self.params.get(type_, section.fallback_params)
        if params is None:
            raise PromptRenderError(
                f"section {' > '.join(node.keys)} needs params of type {type_.__name__}",
                hint=f"Pass {type_.__name__}(…) to render() or bind().",
            )
        return params

    def _check_resources(self, node: SectionNode) -> None:
        for type_ in node.section.required_resources:
            if type_ not in self.resource_types:
                name = type_.__name__
                raise PromptRenderError(
                    f"section {' > '.join(node.keys)} needs a {name}, but none is bound",
                    hint=f"Bind one with prompt.bind(resources={{{name}: …}}). A workspace in copy"
                    " mode has all resources that the sections of this library need:"
                    " prompt.bind(resources=workspace.resources).",
                )

    def _with_description(self, tool: Tool[Any, Any]) -> Tool[Any, Any]:
        override = self._override_of(tool)
        if override is None or override.description is None:
            return tool
        return dataclasses.replace(tool, description=override.description)

    def _override_of(self, tool: Tool[Any, Any]) -> ToolOverride | None:
        return None if self.overrides is None else self.overrides.tools.get(tool.name)

    def _described(self, tool: Tool[Any, Any]) -> dict[str, serde.ParamDescription]:
        own = tool.param_descriptions()
        override = self._override_of(tool)
        if override is None:
            return dict(own)
        return {
            name: serde.ParamDescription(
                override.param_descriptions.get(name, param.description),
                override.param_types.get(name, param.type),
                override.param_defaults.get(name, param.default),
            )
            for name, param in own.items()
        }
