"""The arguments of sections: their use, and refused ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from wink_workspace.errors import PromptValidationError
from wink_workspace.prompt import (
    MarkdownSection,
    Prompt,
    Section,
    SectionVisibility,
    TextSection,
    Tool,
    ToolContext,
    ToolResult,
)
from wink_workspace.resources import Binding
from wink_workspace.session import Session


@dataclass(frozen=True)
class Params:
    name: str = "Ada"
    wanted: bool = True


@dataclass(frozen=True)
class OtherParams:
    name: str


@dataclass(frozen=True)
class Mode:
    quiet: bool


def handle(params: None, *, context: ToolContext) -> ToolResult[None]:
    return ToolResult.ok(None)


def tool(name: str) -> Tool[None, None]:
    return Tool[None, None](name=name, description="Does nothing.", handler=handle)


@pytest.mark.parametrize(
    ("title", "key"),
    [
        ("Guidance", "guidance"),
        ("Available Tools", "available-tools"),
        ("  What's new (2)? ", "what-s-new-2"),
        ("Überblick & Äußeres", "uberblick-aueres"),
        ("snake_case", "snake-case"),
        ("word " * 30, "-".join(["word"] * 13)[:64].strip("-")),
    ],
)
def test_default_key_is_a_slug_of_the_title(title: str, key: str) -> None:
    assert Section(title).key == key


def test_given_key_is_used_unchanged() -> None:
    assert Section("Some Title", key="my_key-1").key == "my_key-1"


@pytest.mark.parametrize("key", ["", "Upper", "dotted.key", "a b", "-a", "x" * 65, "ä", "a\n"])
def test_invalid_key_is_refused_with_the_title(key: str) -> None:
    with pytest.raises(PromptValidationError, match="is not a valid key") as caught:
        Section("Title", key=key)
    assert caught.value.section_path == ("Title",)
    assert caught.value.field == "key"


def test_title_without_letters_needs_a_key() -> None:
    with pytest.raises(PromptValidationError, match="is not a valid key"):
        Section("???")
    assert Section("???", key="questions").title == "???"


@pytest.mark.parametrize("title", ["", "  ", "two\nlines"])
def test_title_that_is_not_one_line_is_refused(title: str) -> None:
    with pytest.raises(PromptValidationError, match="is not a title"):
        Section(title, key="k")


def test_params_type_is_the_type_argument_or_the_params_argument() -> None:
    class Mine(MarkdownSection[Params]):
        """A section class of a user."""

    sections = (
        MarkdownSection[Params](title="A", template=""),
        TextSection(title="A", body="", params=Params),
        MarkdownSection[Params](title="A", template="", params=Params),
        Mine("A", ""),
    )
    assert {section.params_type for section in sections} == {Params}


def test_section_without_types_or_with_none_has_no_params() -> None:
    assert MarkdownSection(title="A", template="").params_type is None
    assert MarkdownSection[None](title="A", template="").params_type is None


@pytest.mark.parametrize(
    ("build", "field", "message"),
    [
        (
            lambda: MarkdownSection[Params](title="A", template="", params=OtherParams),
            "params",
            "contradicts",
        ),
        (lambda: TextSection(title="A", body="", params=dict), "params", "dict is not a dataclass"),
        (
            lambda: MarkdownSection[Params](
                title="A", template="", default_params=OtherParams("x")
            ),
            "default_params",
            "OtherParams",
        ),
        (lambda: Section("A", default_params=Params()), "default_params", "params are None"),
        (lambda: Section("A", tools=["search"]), "tools", "'search' is not a Tool"),
        (lambda: Section("A", children=["below"]), "children", "not a Section"),
        (lambda: Section("A", policies=[object()]), "policies", "not a ToolPolicy"),
        (
            lambda: Section("A", visibility=SectionVisibility.SUMMARY),
            "visibility",
            "has no summary",
        ),
        (lambda: Section("A", visibility="hidden"), "visibility", "is not a SectionVisibility"),
        (lambda: Section("A", resources={Mode: "loud"}), "resources", "a str is bound to Mode"),
        (
            lambda: Section("A", resources={Mode: Binding(Params, lambda _: Params())}),
            "resources",
            "Mode has a binding for another type",
        ),
        (lambda: Section("A", resources={"Mode": 1}), "resources", "'Mode' is not a type"),
    ],
)
def test_wrong_argument_is_refused_with_key_and_field(
    build: Callable[[], Any], field: str, message: str
) -> None:
    with pytest.raises(PromptValidationError, match=message) as caught:
        build()
    assert caught.value.section_path == ("a",)
    assert caught.value.field == field
    assert caught.value.hint


@pytest.mark.parametrize(
    ("enabled", "expected"),
    [
        (None, True),
        (lambda: False, False),
        (lambda: 1, True),
        (lambda params: params.wanted, False),
        (lambda flag=True: flag, True),
        (lambda *, session: session[Mode].latest().quiet, True),
        (lambda session: session[Mode].latest().quiet, True),
        (lambda params, *, session: params.wanted and session is not None, False),
        (lambda *args, **named: not args and not named, True),
    ],
)
def test_predicate_gets_only_the_arguments_it_takes(
    enabled: Callable[..., bool] | None, expected: bool
) -> None:
    session = Session()
    session[Mode].seed(Mode(quiet=True))
    section = MarkdownSection[Params](title="A", template="", enabled=enabled)

    assert section.is_enabled(Params(wanted=False), session=session) is expected


@pytest.mark.parametrize(
    ("params", "enabled", "message"),
    [
        (Params, lambda params, other: True, "is not a function of nothing"),
        (Params, lambda params, *, other: True, "is not a function of nothing"),
        (Params, False, "False is not a function of nothing"),
        (Params, type, "is not a function of nothing"),
        (None, lambda params: True, "takes params but the section has none"),
    ],
)
def test_predicate_with_other_arguments_is_refused(
    params: type | None, enabled: Any, message: str
) -> None:
    with pytest.raises(PromptValidationError, match=message) as caught:
        TextSection(title="A", body="", params=params, enabled=enabled)
    assert caught.value.field == "enabled"


def test_section_keeps_tools_and_children_in_the_order_declared() -> None:
    section = Section("A", tools=[tool("b"), tool("a")], children=[Section("Z"), Section("Y")])

    assert [t.name for t in section.tools()] == ["b", "a"]
    assert [child.key for child in section.children] == ["z", "y"]


def test_resources_of_a_section_cannot_be_changed_from_outside() -> None:
    given = {Mode: Mode(quiet=True)}
    section = Section("A", resources=given)
    given[Mode] = Mode(quiet=False)

    assert section.resources[Mode] == Mode(quiet=True)
    with pytest.raises(TypeError, match="item assignment"):
        section.resources[Mode] = Mode(quiet=False)


def test_subclass_of_a_section_may_render_its_own_body() -> None:
    class Clock(Section[Params]):
        def body(self, params: Params | None, *, override: str | None = None) -> str:
            return f"Hello {params.name if params else '?'}."

    prompt = Prompt(name="p", sections=[Clock("Greeting")])

    assert prompt.render(Params("Bo")).text == "## 1. Greeting\n\nHello Bo."
