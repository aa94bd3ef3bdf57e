"""A long conversation stays within the context window of the model."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from support import Text

from wink_workspace.adapters import (
    AssistantMessage,
    ContextLimits,
    LoopLimits,
    Message,
    ModelRequest,
    ModelTurn,
    ProviderAdapter,
    ScriptRecorder,
    SummaryMessage,
    ToolMessage,
)
from wink_workspace.clock import Budget, BudgetTracker, TokenUsage
from wink_workspace.errors import UsageError
from wink_workspace.prompt import MarkdownSection, Prompt, Tool, ToolContext, ToolResult
from wink_workspace.runtime import ToolCall
from wink_workspace.session import Session, ToolInvoked
from wink_workspace.workspace import RecordedRun, RunAbout, Workspace

WINDOW = 100_000
LARGE_CHARS = 12_000


class Long(ProviderAdapter[None]):
    """A model that makes *n_turns* calls and counts the tokens of each request strictly."""

    def __init__(self, n_turns: int, *, bytes_of_token: float = 4, **options: Any) -> None:
        super().__init__(**options)
        self._n_turns, self._bytes_of_token = n_turns, bytes_of_token
        self.sizes: list[int] = []
        self.summaries: dict[int, str] = {}
        self.n_taken = 0
        self.last: tuple[Message, ...] = ()

    def context_tokens(self) -> int | None:
        return WINDOW

    def complete(self, request: ModelRequest) -> ModelTurn:
        n_bytes = len(request.instructions) + sum(len(repr(each)) for each in request.messages)
        self.sizes.append(int(n_bytes / self._bytes_of_token))
        assert self.context_tokens() is None or self.sizes[-1] < WINDOW, "the context overflows"
        assert_paired(request.messages)
        self.last = request.messages
        usage = TokenUsage(self.sizes[-1], 5)
        if request.n_summarised:
            self.summaries[request.n_summarised] = f"summary of {request.n_summarised} turns"
            return ModelTurn(self.summaries[request.n_summarised], usage=usage)
        self.n_taken = n = self.n_taken + 1
        if n > self._n_turns:
            return ModelTurn("Done.", usage=usage)
        return ModelTurn(
            tool_calls=[ToolCall.of("act", {"text": f"step {n}"}, id=f"id-{n}")], usage=usage
        )


def assert_paired(messages: tuple[Message, ...]) -> None:
    open_ids: list[str] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            assert not open_ids
            open_ids = [call.id for call in message.tool_calls]
        elif isinstance(message, ToolMessage):
            assert message.call_id == open_ids.pop(0)
    assert not open_ids


def prompt() -> Prompt[None]:
    def act(params: Text, *, context: ToolContext) -> ToolResult[None]:
        return ToolResult(f"{params.text}: {'x' * LARGE_CHARS}", None, success=True)

    tool = Tool[Text, None](name="act", description="Act", handler=act)
    section = MarkdownSection[None](title="Task", template="Do it.", tools=(tool,))
    return Prompt[None](ns="tests", key="context", sections=[section])


def evaluate(adapter: Long, session: Session, *, conversation: tuple[Message, ...] = ()) -> str:
    return adapter.evaluate(prompt(), session=session, conversation=conversation).text


@pytest.mark.behaviour(114)
@pytest.mark.parametrize("bytes_of_token", [4, 2])
def test_a_conversation_of_300_turns_with_large_results_stays_within_the_context(
    bytes_of_token: float,
) -> None:
    adapter = Long(300, bytes_of_token=bytes_of_token, limits=LoopLimits(max_turns=301))
    session = Session()
    assert evaluate(adapter, session) == "Done."
    assert len(session[ToolInvoked]) == 300
    assert sum(event.text.count("x") for event in session[ToolInvoked].all()) == 300 * LARGE_CHARS


@pytest.mark.behaviour(114)
def test_old_turns_become_a_summary_of_the_model_and_the_newest_stay_whole() -> None:
    adapter = Long(40)
    evaluate(adapter, Session())
    first, *others = adapter.last
    assert isinstance(first, SummaryMessage)
    assert first.text.endswith(adapter.summaries[max(adapter.summaries)])
    assert max(adapter.summaries) + len(others) // 2 == 40
    assert all(len(each.text) > LARGE_CHARS for each in others if isinstance(each, ToolMessage))
    assert len(others) >= 6


def test_the_tokens_of_a_summary_count() -> None:
    adapter, tracker = Long(40), BudgetTracker(Budget(max_total_tokens=10**9))
    adapter.evaluate(prompt(), session=Session(), budget_tracker=tracker)
    assert tracker.used.input_tokens == sum(adapter.sizes)
    assert len(adapter.sizes) == 41 + len(adapter.summaries)


@pytest.mark.behaviour(114)
def test_old_messages_change_rarely_so_that_the_provider_can_cache_them() -> None:
    seen: list[tuple[Message, ...]] = []

    class Watched(Long):
        def complete(self, request: ModelRequest) -> ModelTurn:
            seen.append(request.messages)
            return super().complete(request)

    evaluate(Watched(100), Session())
    n_changes = sum(after[: len(before)] != before for before, after in itertools.pairwise(seen))
    assert 1 <= n_changes <= 15


@pytest.mark.behaviour(115)
def test_a_continued_conversation_sends_the_same_messages(tmp_path: Path) -> None:
    with Workspace.temporary(tmp_path) as workspace:
        record = RecordedRun.begin(workspace.folder, RunAbout("Do it.", "", "none", 1))
        long = Long(60)
        recorder = ScriptRecorder(long, record.script, on_summary=record.keep_summary)
        bound = prompt().bind(resources=workspace.resources)
        recorder.evaluate(bound, session=workspace.session)
        turns = record.script.read_text().splitlines()
        record.script.write_text("".join(f"{turn}\n" for turn in turns[:-1]))  # it was killed here
        continued = Long(0)
        conversation = record.conversation(workspace)[:-1]  # without what says that it was killed
        evaluate(continued, Session(), conversation=conversation)
        assert continued.last == long.last
        assert record.usage.input_tokens == sum(long.sizes[:-1])


def test_a_conversation_that_is_larger_than_the_window_is_summarised_in_parts() -> None:
    whole = Long(60)
    whole.context_tokens = lambda: None  # type: ignore[method-assign] - nothing is summarised
    evaluate(whole, Session())
    continued = Long(0)
    evaluate(continued, Session(), conversation=whole.last)
    assert len(continued.summaries) > 1
    assert isinstance(continued.last[0], SummaryMessage)


def test_without_a_known_window_nothing_is_replaced() -> None:
    class Unknown(Long):
        def context_tokens(self) -> int | None:
            return None

    adapter = Unknown(20)
    evaluate(adapter, Session())
    assert all(len(each.text) > LARGE_CHARS for each in adapter.last if type(each) is ToolMessage)


def test_limits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError):
        ContextLimits(full=1.3)
