"""Templates: dedenting, placeholders, dollars, and the three kinds of text section."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wink_workspace.errors import PromptValidationError
from wink_workspace.prompt import (
    MarkdownSection,
    Prompt,
    TextSection,
    Tool,
    ToolContext,
    ToolResult,
    ToolsSection,
)


@dataclass(frozen=True)
class Params:
    name: str = "Ada"
    count: int = 3
    _hidden: str = field(default="h")


def body(template: str, params: Params | None = None) -> str:
    section = MarkdownSection[Params](title="A", template=template)
    return section.body(params or Params())


def test_placeholders_are_replaced_by_fields_of_the_params() -> None:
    assert body("${name} has ${count}, ${name}! ${_hidden}") == "Ada has 3, Ada! h"


def test_template_is_dedented_and_its_outer_blank_lines_are_removed() -> None:
    template = """
        First.

          - indented
        Last.
    """
    assert body(template) == "First.\n\n  - indented\nLast."


def test_first_line_may_be_indented_deeper_than_the_others() -> None:
    assert body("\n      code\n    text  \n") == "  code\ntext"


def test_value_with_several_lines_is_inserted_unchanged() -> None:
    assert body("  ${name}\n  end", Params(name="a\n    b\n")) == "a\n    b\n\nend"


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        ("costs $5, $PATH, $$, a$", "costs $5, $PATH, $$, a$"),
        ("$${HOME}", "${HOME}"),
        ("$$${count}", "$3"),
        ("$$$${count}", "$${count}"),
        ("$${HOME:-x} {name} {", "${HOME:-x} {name} {"),
        ("$${", "${"),
    ],
)
def test_dollars_are_literal_unless_an_odd_number_precedes_a_brace(
    template: str, shown: str
) -> None:
    assert body(template) == shown


@settings(deadline=None)
@given(st.text(alphabet="${}ab1_ :-", max_size=30))
def test_any_text_can_be_written_by_doubling_the_dollars_before_braces(text: str) -> None:
    text = f"x{text}x"
    escaped = re.sub(r"\$+(?=\{)", lambda run: run[0] * 2, text)

    assert body(escaped) == text


@settings(deadline=None)
@given(st.text(max_size=30))
def test_value_is_never_expanded_again(value: str) -> None:
    assert body("<${name}>", Params(name=value)) == f"<{value}>"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("Hello ${nmae}.", "unknown placeholder '${nmae}'"),
        ("${name.upper}", "malformed placeholder at '${name.upper}'"),
        ("${ name }", "malformed placeholder"),
        ("${}", "malformed placeholder"),
        ("ends with ${", "malformed placeholder at '${'"),
        ("${name}${1}", "malformed placeholder at '${1}'"),
    ],
)
def test_wrong_placeholder_is_refused_naming_section_and_placeholder(
    template: str, message: str
) -> None:
    with pytest.raises(PromptValidationError, match=re.escape(message)) as caught:
        MarkdownSection[Params](title="Guide", template=template)
    assert caught.value.section_path == ("guide",)
    assert "name, count" in caught.value.hint


def test_placeholder_in_a_section_without_params_is_refused() -> None:
    with pytest.raises(PromptValidationError, match="unknown placeholder"):
        MarkdownSection(title="Guide", template="${name}")


def test_placeholder_of_a_summary_is_checked() -> None:
    with pytest.raises(PromptValidationError, match="unknown placeholder") as caught:
        MarkdownSection[Params](title="Guide", template="", summary="${nope}")
    assert caught.value.field == "summary"


def test_the_three_kinds_of_text_section_render_alike() -> None:
    def handle(params: None, *, context: ToolContext) -> ToolResult[None]:
        return ToolResult.ok(None)

    tools = [Tool[None, None](name="look", description="Looks.", handler=handle)]
    spellings = (
        MarkdownSection[Params](title="A", template="Hi ${name}.", tools=tools),
        TextSection(title="A", body="Hi ${name}.", params=Params, tools=tools),
        ToolsSection(title="A", tools=tools, params=Params, description="Hi ${name}."),
    )
    rendered = [Prompt(name="p", sections=[section]).render() for section in spellings]

    assert {prompt.text for prompt in rendered} == {"## 1. A\n\nHi Ada."}
    assert all(prompt.tools == tuple(tools) for prompt in rendered)


def test_tools_section_without_description_is_a_heading() -> None:
    section = ToolsSection(title="Tools", tools=[])

    assert Prompt(name="p", sections=[section]).render().text == "## 1. Tools"
