"""How a tree of sections becomes values: who is enabled, with which params, which words.

Rule 1: a section is asked once whether it is enabled, before anything else is done with it;
below a disabled one nobody is asked.
Rule 2: closed sections are rendered too. So params that are missing show at once and not
when the model opens the section in the middle of a run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from wink_workspace import serde
from wink_workspace.errors import PromptRenderError
from wink_workspace.session import SessionProtocol

from ._tree import SectionNode
from .disclosure import VisibilityOverrides, disclosure_tools
from .overrides import PromptOverrides
from .rendered import RenderedPrompt, RenderedSection, response_format
from .section import Section, SectionVisibility
from .tool import Tool

__all__ = ["Rendering"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """What one rendering goes by.

    Attributes:
        params: The values at hand, by type.
        session: Passed to the predicates that ask for it.
        overrides: Those that fit the prompt.
        resource_types: The types of resource that are bound.
        singletons: Those that live as long as the prompt's resources are open.
    """

    params: Mapping[type[Any], object]
    session: SessionProtocol | None
    overrides: PromptOverrides
    resource_types: frozenset[type[Any]]
    singletons: frozenset[type[Any]]

    def enabled(self, nodes: Iterable[SectionNode]) -> Iterator[SectionNode]:
        """Those of *nodes* that take part, and below each of them likewise, depth first."""
        for node in nodes:
            if self._is_enabled(node):
                yield node
                yield from self.enabled(node.children)

    def prompt(
        self, name: str, nodes: Iterable[SectionNode], output_type: Any
    ) -> RenderedPrompt[Any]:
        """The whole prompt.

        Raises:
            PromptRenderError: If an enabled section lacks its params or a required resource.
        """
        sections = self._sections(nodes, (), VisibilityOverrides.of(self.session))
        shown = [section for top in sections for section in top.shown()]
        tools = tuple(tool for section in shown if section.is_open for tool in section.tools)
        if not all(section.is_open for section in shown):
            tools += disclosure_tools()
        blocks = [section.text() for section in sections]
        if output_type is not None:
            blocks.append(response_format(output_type, len(sections) + 1))
        return RenderedPrompt(
            prompt_name=name,
            text="\n\n".join(blocks),
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
            self._section(node, (*above, place), visibility)
            for place, node in enumerate(enabled, start=1)
        )

    def _section(
        self, node: SectionNode, number: tuple[int, ...], visibility: VisibilityOverrides
    ) -> RenderedSection:
        section, params = node.section, self._params_of(node)
        self._check_resources(node)
        override = self.overrides.sections.get(node.path)
        prompt = f"{self.overrides.ns}/{self.overrides.key}"
        shown = visibility.of_section(node.path, section, prompt=prompt)
        closed = shown == SectionVisibility.SUMMARY
        return RenderedSection(
            path=node.path,
            number=number,
            title=section.title,
            body=section.body(params, override=None if override is None else override.body),
            summary=section.summary_text(params) if closed else None,
            tools=tuple(self._reworded(tool) for tool in section.tools()),
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
                    f"section {' > '.join(node.keys)} needs a {name}, and none is bound",
                    hint=f"Bind one with prompt.bind(resources={{{name}: …}}). The resources of a"
                    " workspace that is a copy have all that the ready-made sections need:"
                    " prompt.bind(resources=workspace.resources).",
                )

    def _reworded(self, tool: Tool[Any, Any]) -> Tool[Any, Any]:
        override = self.overrides.tools.get(tool.name)
        if override is None or override.description is None:
            return tool
        return dataclasses.replace(tool, description=override.description)

    def _described(self, tool: Tool[Any, Any]) -> dict[str, serde.ParamDescription]:
        own = tool.param_descriptions()
        override = self.overrides.tools.get(tool.name)
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
