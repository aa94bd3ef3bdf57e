"""A model that repeats itself is warned, then stopped; work that makes progress is not."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support import Text

from wink_workspace.adapters import (
    LoopLimits,
    Message,
    ModelRequest,
    ModelTurn,
    ProviderAdapter,
    RepetitionLimits,
    ToolMessage,
)
from wink_workspace.errors import PromptEvaluationError, UsageError
from wink_workspace.prompt import MarkdownSection, Prompt, Tool, ToolContext, ToolResult
from wink_workspace.runtime import ToolCall
from wink_workspace.session import Session

Answer = Callable[[str], tuple[bool, str]]


class Endless(ProviderAdapter[None]):
    """A model that never answers; keeps every request."""

    def __init__(self, turns: Iterator[tuple[str, ...]], **options: Any) -> None:
        super().__init__(**options)
        self._turns = turns
        self.requests: list[ModelRequest] = []

    def complete(self, request: ModelRequest) -> ModelTurn:
        self.requests.append(request)
        texts = next(self._turns, None)
        if texts is None:
            return ModelTurn("Done.")
        return ModelTurn(
            tool_calls=[
                ToolCall.of("act", {"text": text}, id=f"id-{len(self.requests)}-{n}")
                for n, text in enumerate(texts)
            ]
        )


def prompt_with(answer: Answer) -> Prompt[None]:
    def act(params: Text, *, context: ToolContext) -> ToolResult[None]:
        success, text = answer(params.text)
        return ToolResult(text, None, success=success)

    tool = Tool[Text, None](name="act", description="Act", handler=act)
    section = MarkdownSection[None](title="Task", template="Do it.", tools=(tool,))
    return Prompt[None](ns="tests", key="repetition", sections=[section])


def stopped(turns: Iterator[tuple[str, ...]], answer: Answer) -> tuple[Endless, str]:
    adapter = Endless(turns)
    with pytest.raises(PromptEvaluationError) as caught:
        adapter.evaluate(prompt_with(answer), session=Session())
    assert caught.value.phase == "repetition"
    return adapter, str(caught.value)


def always(_: str) -> tuple[bool, str]:
    return True, "the same"


@pytest.mark.behaviour(112)
@pytest.mark.parametrize("cycle", [["a"], ["a", "b"], ["a", "b", "c"], ["a", "b", "a", "c"]])
def test_a_model_that_repeats_a_cycle_of_calls_is_stopped(cycle: list[str]) -> None:
    adapter, error = stopped(((text,) for text in itertools.cycle(cycle)), always)
    assert len(adapter.requests) <= 6 * len(cycle)
    assert "repeats itself" in error
    assert 'act {"text": "a"}' in error


@pytest.mark.behaviour(112)
def test_the_same_calls_in_one_turn_are_stopped_although_each_has_another_id() -> None:
    adapter, _ = stopped(itertools.repeat(("a", "b")), always)
    assert len(adapter.requests) == 6


@pytest.mark.behaviour(112)
def test_the_model_is_warned_before_it_is_stopped() -> None:
    adapter, _ = stopped(itertools.repeat(("a",)), always)
    results = [each for each in adapter.requests[-1].messages if isinstance(each, ToolMessage)]
    assert [("3 times" in each.text, "4 times" in each.text) for each in results] == [
        (False, False), (False, False), (True, False), (False, True), (False, False),
    ]  # fmt: skip


@pytest.mark.behaviour(112)
def test_results_that_differ_in_a_duration_only_are_the_same() -> None:
    n = itertools.count()
    adapter, _ = stopped(
        itertools.repeat(("a",)), lambda _: (True, f"2 failed in 0.{next(n):02} s")
    )
    assert len(adapter.requests) == 6


@pytest.mark.behaviour(112)
def test_calls_that_are_refused_again_and_again_are_stopped_whatever_their_arguments() -> None:
    turns = ((f"path {n}",) for n in itertools.count())
    adapter, error = stopped(turns, lambda text: (False, f"{text} is refused"))
    assert len(adapter.requests) == 16
    assert "16 calls in a row failed" in error


@pytest.mark.behaviour(113)
def test_polling_with_different_answers_is_not_repetition() -> None:
    n = itertools.count()
    adapter = Endless(itertools.repeat(("poll",), 50))
    adapter.evaluate(prompt_with(lambda _: (True, f"{next(n)} %")), session=Session())
    assert len(adapter.requests) == 51


@pytest.mark.behaviour(113)
def test_the_same_check_after_different_edits_is_not_repetition() -> None:
    turns = ((text,) for n in range(30) for text in (f"edit {n}", "check", "list"))
    adapter = Endless(turns)
    adapter.evaluate(prompt_with(always), session=Session())
    assert len(adapter.requests) == 91


@pytest.mark.behaviour(113)
def test_failures_with_successes_between_them_are_not_repetition() -> None:
    turns = ((text,) for n in range(40) for text in (f"try {n}", f"look {n}"))
    adapter = Endless(turns)
    adapter.evaluate(
        prompt_with(lambda text: (text.startswith("look"), "result")), session=Session()
    )
    assert len(adapter.requests) == 81


@pytest.mark.behaviour(115)
def test_a_continued_conversation_keeps_turns_and_repetition() -> None:
    first = Endless(itertools.repeat(("a",), 4))
    first.evaluate(prompt_with(always), session=Session())
    so_far: tuple[Message, ...] = first.requests[-1].messages
    raw = tuple(
        ToolMessage(each.call_id, each.tool, each.text.partition("\n\n")[0], each.success)
        if isinstance(each, ToolMessage)
        else each
        for each in so_far
    )
    second = Endless(itertools.repeat(("a",)))
    with pytest.raises(PromptEvaluationError, match="6 times") as caught:
        second.evaluate(prompt_with(always), session=Session(), conversation=raw)
    assert caught.value.phase == "repetition"
    assert len(second.requests) == 2
    assert second.requests[0].messages == so_far

    third = Endless(itertools.repeat(("b",)), limits=LoopLimits(max_turns=5))
    with pytest.raises(PromptEvaluationError, match="5 turns") as caught:
        third.evaluate(prompt_with(always), session=Session(), conversation=raw)
    assert caught.value.phase == "turns"
    assert len(third.requests) == 1


def test_limits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError):
        RepetitionLimits(warn_at=7)
