"""Closed sections: their summary, how the model opens them, and how that is stored."""

from __future__ import annotations

from typing import Any

import pytest
from support import executor_of

from wink_workspace.errors import VisibilityExpansionRequired
from wink_workspace.prompt import (
    MarkdownSection,
    Prompt,
    Section,
    SectionVisibility,
    SetVisibility,
    Tool,
    ToolContext,
    ToolResult,
    VisibilityOverrides,
)
from wink_workspace.runtime import CallOutcome, ToolCall
from wink_workspace.session import Session

FULL, SUMMARY = SectionVisibility.FULL, SectionVisibility.SUMMARY


def handle(params: None, *, context: ToolContext) -> ToolResult[None]:
    return ToolResult.ok(None)


def tool(name: str) -> Tool[None, None]:
    return Tool[None, None](name=name, description="Does nothing.", handler=handle)


def closed(title: str, **options: Any) -> MarkdownSection[None]:
    return MarkdownSection(
        title=title,
        template=f"All about {title}.",
        summary=f"{title} in short.",
        visibility=SUMMARY,
        **options,
    )


def library() -> Prompt[None]:
    """``guide`` is open; ``ref`` is closed, so is ``ref.api`` in it, and ``ref.intro`` is not."""
    return Prompt(
        name="library",
        sections=[
            MarkdownSection(title="Guide", template="Read on.", tools=[tool("guide_tool")]),
            closed(
                "Ref",
                tools=[tool("ref_tool")],
                children=[
                    MarkdownSection(title="Intro", template="Welcome.", tools=[tool("intro_tool")]),
                    closed("Api", tools=[tool("api_tool")]),
                    Section("Off", enabled=lambda: False),
                ],
            ),
        ],
    )


def installed(prompt: Prompt[None]) -> Session:
    session = Session()
    prompt.install(session)
    return session


def call(prompt: Prompt[None], session: Session, name: str, **arguments: object) -> CallOutcome:
    """Run one call in a new rendering of *prompt*."""
    with prompt.resources:
        return executor_of(prompt, session).execute(ToolCall.of(name, arguments, id="1"))


def opened(prompt: Prompt[None], session: Session, *keys: str) -> VisibilityExpansionRequired:
    """The exception for the adapter when the model opens *keys*."""
    with pytest.raises(VisibilityExpansionRequired) as caught:
        call(prompt, session, "open_sections", section_keys=keys, reason="to learn")
    return caught.value


def tools(prompt: Prompt[None], session: Session | None = None) -> list[str]:
    return [tool.name for tool in prompt.render(session=session).tools]


@pytest.mark.behaviour(6)
def test_closed_section_shows_its_summary_and_how_to_open_it() -> None:
    text = library().render().text

    assert "Ref in short." in text
    assert '`open_sections` with section_keys ["ref"]' in text
    assert '`read_section` with section_key "ref"' in text
    assert "All about Ref" not in text
    assert "Welcome" not in text


@pytest.mark.behaviour(6)
def test_closed_section_hides_its_tools_and_those_below_it() -> None:
    assert tools(library()) == ["guide_tool", "open_sections", "read_section"]


def test_prompt_without_closed_sections_has_no_tools_for_opening() -> None:
    prompt = library()
    session = installed(prompt)
    for key in ("ref", "ref.api"):
        session.dispatch(SetVisibility(key, FULL))

    assert tools(prompt, session) == ["guide_tool", "ref_tool", "intro_tool", "api_tool"]


def test_summary_may_use_the_params_and_may_be_empty() -> None:
    bare = MarkdownSection(title="Ref", template="", summary="", visibility=SUMMARY)
    text = Prompt(name="p", sections=[bare]).render().text

    assert text.startswith("## 1. Ref\n\nThis is a summary.")


@pytest.mark.behaviour(7)
def test_opening_a_closed_section_requests_a_new_rendering_and_changes_nothing() -> None:
    prompt = library()
    session = installed(prompt)
    request = opened(prompt, session, "ref", "ref")

    assert request.section_keys == ("ref",)
    assert request.reason == "to learn"
    assert request.problems == {}
    assert session[VisibilityOverrides].all() == ()


@pytest.mark.behaviour(7)
@pytest.mark.parametrize(
    ("keys", "answers"),
    [
        ([], ["'section_keys': the list is empty"]),
        ([""], ["'': there is no such section"]),
        (["nope"], ["'nope': there is no such section"]),
        (["ref.off"], ["'ref.off': there is no such section"]),
        (["guide"], ["'guide': it is already open"]),
        (["guide", "ref.nope"], ["'guide': it is already open", "'ref.nope': there is no such"]),
    ],
)
def test_opening_sections_that_are_not_closed_fails_with_an_error_for_each_key(
    keys: list[str], answers: list[str]
) -> None:
    prompt = library()
    arguments = {"section_keys": keys, "reason": "r"}
    outcome = call(prompt, installed(prompt), "open_sections", **arguments)

    assert not outcome.result.success
    assert all(answer in outcome.text for answer in answers)
    assert "Summarised sections: ref." in outcome.text


@pytest.mark.behaviour(7)
def test_mixed_request_opens_what_is_closed_and_reports_the_rest() -> None:
    prompt = library()
    request = opened(prompt, installed(prompt), "nope", "ref", "guide")

    assert request.section_keys == ("ref",)
    assert request.problems == {
        "nope": "there is no such section",
        "guide": "it is already open",
    }


@pytest.mark.parametrize(
    ("inner", "needed"), [("ref.api", ("ref", "ref.api")), ("ref.intro", ("ref",))]
)
def test_opening_a_section_inside_a_closed_one_opens_both(
    inner: str, needed: tuple[str, ...]
) -> None:
    prompt = library()

    assert opened(prompt, installed(prompt), inner).section_keys == needed


@pytest.mark.behaviour(8)
def test_reading_gives_the_text_that_opening_would_show_and_opens_nothing() -> None:
    prompt = library()
    session = installed(prompt)
    before = prompt.render(session=session)
    outcome = call(prompt, session, "read_section", section_key="ref")
    session.dispatch(SetVisibility("ref", FULL))
    after = prompt.render(session=session)

    assert outcome.result.value is not None
    assert outcome.result.value.startswith("## 2. Ref\n\nAll about Ref.\n\n### 2.1 Intro")
    assert after.text.endswith(outcome.result.value)
    assert not before.text.endswith(outcome.result.value)


@pytest.mark.behaviour(8)
def test_reading_changes_no_visibility() -> None:
    prompt = library()
    session = installed(prompt)
    before = prompt.render(session=session)
    call(prompt, session, "read_section", section_key="ref.api")

    assert prompt.render(session=session) == before


def test_reading_an_unknown_section_fails_and_lists_the_sections() -> None:
    prompt = library()
    outcome = call(prompt, installed(prompt), "read_section", section_key="nope")

    assert not outcome.result.success
    assert "'nope': there is no such section. Summarised sections: ref." in outcome.text


def test_rendering_without_a_session_uses_the_visibility_of_the_author() -> None:
    prompt = library()
    session = installed(prompt)
    session.dispatch(SetVisibility("ref", FULL))

    assert "All about Ref" in prompt.render(session=session).text
    assert "All about Ref" not in prompt.render().text


def test_session_can_close_only_sections_with_a_summary() -> None:
    sections = [
        MarkdownSection(title="A", template="Long.", summary="Short."),
        MarkdownSection(title="B", template="Whole."),
    ]
    prompt = Prompt(name="p", sections=sections)
    session = installed(prompt)
    for key in "ab":
        session.dispatch(SetVisibility(key, SUMMARY))
    text = prompt.render(session=session).text

    assert "Short." in text
    assert "Long." not in text
    assert "Whole." in text


def test_visibility_is_restored_with_a_session_snapshot() -> None:
    prompt = library()
    session = installed(prompt)
    before = session.snapshot()
    session.dispatch(SetVisibility("ref", FULL))
    session.restore(before)

    assert tools(prompt, session) == tools(prompt)


@pytest.mark.behaviour(35)
def test_visibility_survives_dumping_and_loading_the_session() -> None:
    prompt = library()
    session, other = installed(prompt), installed(prompt)
    session.dispatch(SetVisibility("ref", FULL))
    session.dispatch(SetVisibility("guide", SUMMARY))
    other.load_state(session.dump_state())

    assert other[VisibilityOverrides].latest() == session[VisibilityOverrides].latest()
    assert prompt.render(session=other) == prompt.render(session=session)
