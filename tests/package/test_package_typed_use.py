"""Code as users write it passes pyright in strict mode, and mypy; ``make check`` runs pyright."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Protocol

from wink_workspace import (
    MarkdownSection,
    ModelTurn,
    Prompt,
    ScriptedAdapter,
    Session,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
)
from wink_workspace.filesystem import Filesystem, MemoryFilesystem
from wink_workspace.resources import Binding, ResourceRegistry, Scope
from wink_workspace.workspace import Workspace


class Greeter(Protocol):
    def greet(self) -> str: ...


class Counter(ABC):
    @abstractmethod
    def count(self) -> int: ...


class English:
    def greet(self) -> str:
        return "hello"


class Two(Counter):
    def __init__(self, greeter: Greeter | None = None) -> None:
        self.greeter = greeter

    def count(self) -> int:
        return 2


def test_abstract_types_and_protocols_are_bound_and_looked_up() -> None:
    registry = ResourceRegistry.of(
        Binding.instance(English, English()),
        Binding.instance(Greeter, English()),
        Binding(Counter, lambda resolver: Two(resolver.get(Greeter))),
        Binding.instance(Filesystem, MemoryFilesystem({"a": b"1"})),
    )
    with registry.open() as resources:
        text: str = resources.get(Greeter).greet()
        number: int = resources.get(Counter).count()
        content: bytes = resources.get(Filesystem).read_bytes("a")
        missing = resources.get_optional(Two)
    assert (text, number, content, missing) == ("hello", 2, b"1", None)


def test_a_handler_sees_the_sections_and_the_resources_of_its_prompt() -> None:
    seen: list[tuple[str, str, str | None, tuple[str, ...]]] = []

    def handle(params: None, *, context: ToolContext) -> ToolResult[str]:
        for section in context.prompt.sections:
            children = tuple(child.key for child in section.children)
            seen.append((section.key, section.title, section.template, children))
        return ToolResult.ok(context.resources.get(Greeter).greet())

    child = MarkdownSection(title="Inner", template="y")
    tool = Tool[None, str](name="greet", description="Greet.", handler=handle)
    section = MarkdownSection(title="Outer", template="x", tools=[tool], children=[child])
    prompt = Prompt(ns="typed", key="use", sections=[section]).bind(
        resources={Greeter: Binding(Greeter, lambda _: English(), scope=Scope.TOOL_CALL)}
    )
    turns = [ModelTurn(tool_calls=[ToolCall("greet")]), ModelTurn("Done.")]
    ScriptedAdapter(turns).evaluate(prompt, session=Session())
    assert seen == [("outer", "Outer", "x", ("inner",))]


def test_names_set_inside_a_call_are_bound_after_it(tmp_path: Path) -> None:
    with Workspace.temporary(tmp_path) as workspace:
        with workspace.call("look") as call:
            names = [str(entry.path) for entry in workspace.files.list()]
            call.result(len(names))
        assert names == []
