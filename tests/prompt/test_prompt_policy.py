"""Policy decisions, and tools that depend on the success of others."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, cast

import pytest

from wink_workspace.errors import PromptValidationError, UsageError
from wink_workspace.prompt import MarkdownSection, Prompt
from wink_workspace.prompt.policy import (
    CompletedTools,
    PolicyDecision,
    SequentialDependencyPolicy,
    ToolPolicy,
)
from wink_workspace.prompt.tool import Tool
from wink_workspace.prompt.tool_context import ToolContext
from wink_workspace.prompt.tool_result import ToolResult
from wink_workspace.resources import ResourceRegistry
from wink_workspace.session import Session

DEPLOY = SequentialDependencyPolicy(dependencies={"deploy": frozenset({"test", "build"})})


class Calls:
    """Successful calls of tools without params in one session, under one policy."""

    def __init__(self, policy: ToolPolicy) -> None:
        self.policy = policy
        self.session = Session()
        with ExitStack() as stack:
            resources = stack.enter_context(ResourceRegistry.of().open())
            self.context = ToolContext(
                prompt=Prompt(ns="test", key="test", sections=[]),
                rendered_prompt=None,
                adapter=cast("Any", None),
                session=self.session,
                resources=stack.enter_context(resources.tool_scope()),
            )

    def call(self, name: str) -> str:
        """The refusal's reason, or ``""`` when the call ran."""
        tool = Tool[None, None](name=name, description="Do it.")
        decision = self.policy.check(tool, None, context=self.context)
        if decision.allowed:
            self.policy.on_result(tool, None, ToolResult.ok(None), context=self.context)
        return decision.reason


def test_a_tool_is_refused_until_all_its_dependencies_succeeded() -> None:
    calls = Calls(DEPLOY)

    assert calls.call("deploy") == "call build and test successfully before deploy"
    assert calls.call("test") == ""
    assert calls.call("deploy") == "call build successfully before deploy"
    assert calls.call("build") == ""
    assert calls.call("deploy") == ""


@pytest.mark.behaviour(57)
def test_a_success_that_is_rolled_back_does_not_count() -> None:
    calls = Calls(DEPLOY)
    calls.call("build")
    before = calls.session.snapshot()
    calls.call("test")

    calls.session.restore(before)

    assert calls.call("deploy") == "call test successfully before deploy"


@pytest.mark.behaviour(57)
def test_completed_tools_survive_dumping_and_loading() -> None:
    calls, later = Calls(DEPLOY), Calls(DEPLOY)
    DEPLOY.install(later.session)
    calls.call("test")
    calls.call("build")

    later.session.load_state(calls.session.dump_state())

    assert later.call("deploy") == ""


def test_only_tools_that_others_depend_on_are_recorded_and_once() -> None:
    calls = Calls(DEPLOY)
    for name in ("lint", "test", "lint"):
        calls.call(name)
    before = calls.session.snapshot()
    calls.call("test")

    assert calls.session[CompletedTools].all() == (CompletedTools(frozenset({"test"})),)
    assert calls.session.snapshot().state is before.state


def test_a_dependency_may_be_given_as_any_collection_of_names() -> None:
    policy = SequentialDependencyPolicy(cast("Any", {"b": ["a"], "c": "b"}))

    assert dict(policy.dependencies) == {"b": frozenset({"a"}), "c": frozenset({"b"})}


@pytest.mark.parametrize("dependencies", [{"a": {"a"}}, {"a": {"b"}, "b": {"c"}, "c": {"a"}}])
def test_cyclic_dependencies_are_refused(dependencies: Any) -> None:
    with pytest.raises(PromptValidationError, match=r"depends on itself.*Remove one"):
        SequentialDependencyPolicy(dependencies)


def sections_of(*names: str, policies: tuple[ToolPolicy, ...]) -> list[MarkdownSection[None]]:
    """A section for each tool in *names*, the first of them with *policies*."""
    return [
        MarkdownSection(
            title=name,
            template="",
            tools=[Tool[None, None](name=name, description="Do it.")],
            policies=policies if n == 0 else (),
        )
        for n, name in enumerate(names)
    ]


@pytest.mark.parametrize(
    ("names", "unseen"), [(("deploy", "test"), "test"), (("test", "deploy"), "deploy")]
)
def test_a_policy_that_would_not_see_the_calls_of_its_tools_is_refused(
    names: tuple[str, ...], unseen: str
) -> None:
    policy = SequentialDependencyPolicy(dependencies={"deploy": frozenset({"test"})})
    with pytest.raises(PromptValidationError, match=f"does not see '{unseen}'") as caught:
        Prompt(name="p", sections=sections_of(*names, policies=(policy,)))
    assert caught.value.section_path == (names[0],)


def test_a_policy_above_its_tools_or_at_each_is_accepted() -> None:
    names = ("deploy", "test", "build")
    below = sections_of(*names, policies=())
    above = [MarkdownSection(title="A", template="", children=below, policies=(DEPLOY,))]
    at_each = [section for name in names for section in sections_of(name, policies=(DEPLOY,))]
    for sections in (above, at_each):
        tools = Prompt(name="p", sections=sections).render().tools
        assert [tool.name for tool in tools] == list(names)


@pytest.mark.parametrize(
    ("names", "unknown", "hint"),
    [
        (("deploy", "test", "biuld"), "build", "Did you mean 'biuld'?"),
        (("test", "build"), "deploy", "the tools are build, test"),
    ],
)
def test_a_policy_that_names_a_tool_the_prompt_lacks_is_refused_when_the_prompt_is_built(
    names: tuple[str, ...], unknown: str, hint: str
) -> None:
    below = sections_of(*names, policies=())
    above = MarkdownSection(title="A", template="", children=below, policies=(DEPLOY,))
    with pytest.raises(PromptValidationError, match=f"names '{unknown}'") as caught:
        Prompt(name="p", sections=[above])
    assert hint in str(caught.value)


def test_a_refusal_needs_a_reason() -> None:
    with pytest.raises(UsageError, match="without a reason"):
        PolicyDecision.deny(" ")


def test_a_policy_needs_only_a_check() -> None:
    class Never(ToolPolicy):
        name = "never"

        def check(
            self, tool: Tool[Any, Any], params: object, *, context: ToolContext
        ) -> PolicyDecision:
            return PolicyDecision.deny("it is never time")

    calls = Calls(Never())
    calls.policy.install(calls.session)
    tool = Tool[None, None](name="t", description="d")
    calls.policy.on_result(tool, None, ToolResult.ok(None), context=calls.context)

    assert calls.call("anything") == "it is never time"
