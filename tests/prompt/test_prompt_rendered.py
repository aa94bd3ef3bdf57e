"""Rendered prompts."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_cases import examples

from wink_workspace import serde
from wink_workspace.errors import UsageError
from wink_workspace.prompt import (
    DISCLOSURE_TOOL_NAMES,
    MarkdownSection,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    Section,
    SectionVisibility,
    Tool,
    ToolContext,
    ToolPolicy,
    ToolResult,
)
from wink_workspace.resources import Binding, Scope


@dataclass(frozen=True)
class Lookup:
    entity: str = field(metadata={"description": "Global identifier to fetch"})
    deep: bool = field(default=False, metadata={"description": "Also what it refers to"})


@dataclass(frozen=True)
class Answer:
    text: str


class Client:
    """A resource."""


class Tracer:
    """Another resource."""


@dataclass(frozen=True)
class Named(ToolPolicy):
    """A policy that allows everything."""

    name: str = "named"

    def check(
        self, tool: Tool[Any, Any], params: object, *, context: ToolContext
    ) -> PolicyDecision:
        return PolicyDecision.allow()


def handle(params: None, *, context: ToolContext) -> ToolResult[None]:
    return ToolResult.ok(None)


def tool(name: str) -> Tool[None, None]:
    return Tool[None, None](name=name, description="Does nothing.", handler=handle)


def lookup_handler(params: Lookup, *, context: ToolContext) -> ToolResult[Answer]:
    return ToolResult.ok(Answer(params.entity))


LOOKUP = Tool[Lookup, Answer](name="lookup", description="Looks up.", handler=lookup_handler)


def prompt(*sections: Section[Any]) -> Prompt[None]:
    return Prompt(ns="tests", key="p", name="The prompt", sections=sections)


def test_headings_are_numbered_by_depth_and_stop_at_six_hashes() -> None:
    deep: Section[Any] = Section("6")
    for title in "5432":
        deep = Section(title, children=[deep])
    rendered = prompt(
        MarkdownSection(title="First", template="Text."), Section("1", children=[deep])
    ).render()

    assert rendered.text.split("\n\n") == [
        "## 1. First",
        "Text.",
        "## 2. 1",
        "### 2.1 2",
        "#### 2.1.1 3",
        "##### 2.1.1.1 4",
        "###### 2.1.1.1.1 5",
        "###### 2.1.1.1.1.1 6",
    ]


def test_disabled_sections_are_not_numbered() -> None:
    rendered = prompt(Section("A"), Section("B", enabled=lambda: False), Section("C")).render()

    assert rendered.text == "## 1. A\n\n## 2. C"


def test_rendered_prompt_names_its_prompt_and_cannot_be_changed() -> None:
    rendered = prompt().render()

    assert (rendered.prompt_name, rendered.text, rendered.tools) == ("The prompt", "", ())
    with pytest.raises(FrozenInstanceError):
        rendered.text = "other"  # pyright: ignore[reportAttributeAccessIssue] - frozen


@pytest.mark.parametrize("output_type", [Answer, list[Answer]])
def test_prompt_with_structured_output_ends_with_the_schema_of_the_answer(output_type: Any) -> None:
    template = PromptTemplate[output_type](name="p", sections=[Section("A")])
    rendered = Prompt(template).render()
    last = rendered.text.split("## 2. Response format\n\n")[1]

    assert rendered.output_type == output_type
    assert json.loads(last.split("```json\n")[1].split("\n```")[0]) == serde.schema(output_type)


def test_prompt_for_text_has_no_format_section() -> None:
    rendered = prompt(Section("A")).render()

    assert rendered.output_type is None
    assert rendered.text == "## 1. A"


@pytest.mark.behaviour(10)
def test_parameters_are_described_with_type_and_default_and_reach_the_schema() -> None:
    rendered = prompt(Section("A", tools=[LOOKUP, tool("bare")])).render()
    described = rendered.tool_param_descriptions

    assert described["lookup"]["entity"].description == "Global identifier to fetch"
    assert set(described["lookup"]) == {"entity", "deep"}
    assert described["bare"] == {}
    assert rendered.tool_schema("lookup") == serde.provider_schema(Lookup)
    assert rendered.tool_schema("bare") == serde.provider_schema(None)


def test_tool_is_found_by_name_and_an_unknown_one_is_none() -> None:
    rendered = prompt(Section("A", tools=[LOOKUP])).render()

    assert rendered.tool("lookup") is LOOKUP
    assert rendered.tool("nope") is None
    with pytest.raises(UsageError, match="has no tool 'nope'"):
        rendered.tool_schema("nope")


def test_policies_of_a_tool_are_its_sections_and_those_above_outermost_first() -> None:
    outer, shared, inner = Named("outer"), Named("shared"), Named("inner")
    rendered = prompt(
        Section(
            "A",
            tools=[tool("a")],
            policies=[outer, shared],
            children=[Section("B", tools=[tool("b")], policies=[shared, inner])],
        ),
        Section("C", tools=[tool("c")]),
    ).render()

    policies = {section.path: section.policies for section in rendered.shown()}
    assert policies == {"a": (outer, shared), "a.b": (outer, shared, inner), "c": ()}


def test_resources_of_a_tool_are_the_singletons_that_its_sections_declare() -> None:
    per_call = Binding(Tracer, lambda _: Tracer(), scope=Scope.TOOL_CALL)
    sections = (
        Section(
            "A",
            resources={Client: Client()},
            children=[Section("B", tools=[tool("b")], resources={Tracer: per_call})],
        ),
        Section("C", tools=[tool("c")]),
    )
    declared = prompt(*sections)

    def resources() -> dict[str, tuple[type, ...]]:
        return {section.path: section.resources for section in declared.render().shown()}

    assert resources() == {"a": (Client,), "a.b": (Client,), "c": ()}
    declared.bind(resources={Tracer: Tracer()})
    assert resources()["a.b"] == (Client, Tracer)


# Any tree of sections


@dataclass(frozen=True)
class Shape:
    """A section of a random tree."""

    enabled: bool
    closed: bool
    n_tools: int
    below: tuple[Shape, ...]


def shapes(below: st.SearchStrategy[tuple[Shape, ...]]) -> st.SearchStrategy[Shape]:
    return st.builds(Shape, st.booleans(), st.booleans(), st.integers(0, 2), below)


TREES = st.lists(
    st.recursive(
        shapes(st.just(())),
        lambda below: shapes(st.lists(below, max_size=3).map(tuple)),
        max_leaves=8,
    ),
    max_size=3,
)


def build(shape: Shape, ids: Iterator[int]) -> MarkdownSection[None]:
    """A section with ``<id>`` in its body and ``<id>s`` in its summary."""
    n = next(ids)
    return MarkdownSection(
        title=f"T{n}",
        template=f"<{n}>",
        summary=f"<{n}s>",
        visibility=SectionVisibility.SUMMARY if shape.closed else SectionVisibility.FULL,
        enabled=lambda: shape.enabled,
        tools=[tool(f"t{n}_{k}") for k in range(shape.n_tools)],
        children=[build(child, ids) for child in shape.below],
    )


def expected(shape: Shape, ids: Iterator[int], *, hidden: bool) -> tuple[list[str], list[str]]:
    """The ids and the tools that a section and those below it must add."""
    n = next(ids)
    marks: list[str] = []
    tools: list[str] = []
    hidden = hidden or not shape.enabled
    if not hidden:
        marks = [f"<{n}s>" if shape.closed else f"<{n}>"]
        tools = [] if shape.closed else [f"t{n}_{k}" for k in range(shape.n_tools)]
    for child in shape.below:
        more_marks, more_tools = expected(child, ids, hidden=hidden or shape.closed)
        marks, tools = marks + more_marks, tools + more_tools
    return marks, tools


@pytest.mark.behaviour(5, 6)
@settings(deadline=None)
@given(TREES)
def test_disabled_and_closed_subtrees_have_neither_text_nor_tools(tree: list[Shape]) -> None:
    ids = itertools.count()
    rendered = prompt(*[build(shape, ids) for shape in tree]).render()
    ids = itertools.count()
    wanted = [expected(shape, ids, hidden=False) for shape in tree]
    marks = [mark for marks, _ in wanted for mark in marks]
    tools = [name for _, tools in wanted for name in tools]
    if any(mark.endswith("s>") for mark in marks):
        tools += DISCLOSURE_TOOL_NAMES

    assert [line for line in rendered.text.splitlines() if line.startswith("<")] == marks
    assert [tool.name for tool in rendered.tools] == tools


@settings(deadline=None, max_examples=examples(50))
@given(TREES)
def test_rendering_twice_gives_equal_prompts(tree: list[Shape]) -> None:
    ids = itertools.count()
    same = prompt(*[build(shape, ids) for shape in tree])

    assert same.render() == same.render()
