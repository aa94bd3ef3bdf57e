"""The executor: finding tools, refusing calls, records, redaction, resources and the journal."""

from __future__ import annotations

import logging
import signal
from dataclasses import dataclass, field
from typing import Any

import pytest
from support import Note, Text, executor_of, small_workspace, tool

from wink_workspace.clock import (
    Budget,
    BudgetTracker,
    Cancellation,
    Deadline,
    Heartbeat,
    ManualClock,
    TokenUsage,
)
from wink_workspace.errors import BudgetExceededError, PromptEvaluationError
from wink_workspace.filesystem import Filesystem, MemoryFilesystem
from wink_workspace.prompt import (
    MarkdownSection,
    PolicyDecision,
    Prompt,
    Tool,
    ToolContext,
    ToolPolicy,
    ToolResult,
)
from wink_workspace.resources import Binding, Scope
from wink_workspace.runtime import MemoryJournal, ToolCall, transactions_of
from wink_workspace.runtime.journal import Saved
from wink_workspace.session import (
    Append,
    ExternalChange,
    Outcome,
    Session,
    SliceKind,
    ToolInvoked,
)


def _endless() -> dict[str, object]:
    """Arguments that contain themselves."""
    arguments: dict[str, object] = {}
    arguments["text"] = arguments
    return arguments


@dataclass(frozen=True, slots=True)
class Sized:
    """Parameters with something to get wrong."""

    size: int = field(metadata={"description": "How many", "ge": 1})
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """A typed value."""

    path: str

    def render(self) -> str:
        return f"wrote {self.path}"


def write(params: Text, *, context: ToolContext) -> ToolResult[Written]:
    assert context.filesystem is not None
    context.filesystem.write_text(params.text, "content")
    return ToolResult.ok(Written(params.text), "Done.")


WRITE = Tool[Text, Written](name="write", description="Write a file", handler=write)


def nothing(params: Text, *, context: ToolContext) -> ToolResult[None]:
    return ToolResult.ok(None)


NOTHING = Tool[Text, None](name="nothing", description="Do nothing", handler=nothing)


class Rule(ToolPolicy):
    """A policy whose answers a test chooses."""

    name = "rule"

    def __init__(self, *, check: object = None, on_result: object = None) -> None:
        self._check, self._on_result = check, on_result

    def check(self, tool: Tool, params: object, *, context: ToolContext) -> PolicyDecision:
        if isinstance(self._check, BaseException):
            raise self._check
        return (
            PolicyDecision.allow() if self._check is None else PolicyDecision.deny(str(self._check))
        )

    def on_result(
        self, tool: Tool, params: object, result: ToolResult, *, context: ToolContext
    ) -> None:
        context.session[Note].append(Note("seen"))
        if isinstance(self._on_result, BaseException):
            raise self._on_result


# Finding the tool and its parameters


@pytest.mark.behaviour(15)
def test_a_call_of_an_unknown_tool_returns_similar_names() -> None:
    with small_workspace(WRITE, NOTHING) as workspace:
        assert workspace.call("wriet").text == (
            "There is no tool named 'wriet'. Did you mean write?"
        )
        assert "Tools: write, nothing." in workspace.call("zzz").text


def test_a_call_of_an_unknown_tool_is_recorded_with_its_arguments() -> None:
    with small_workspace(WRITE) as workspace:
        outcome = workspace.call("wriet", {"text": "a.txt"})
    assert outcome.event.params == {"text": "a.txt"}


@pytest.mark.behaviour(14)
def test_every_wrong_argument_is_reported_at_once_and_the_handler_does_not_run() -> None:
    def handle(params: Sized, *, context: ToolContext) -> ToolResult[None]:
        raise AssertionError("must not run")

    sized = Tool[Sized, None](name="sized", description="Sized", handler=handle)
    with small_workspace(sized) as workspace:
        outcome = workspace.call("sized", size=0, names=["a", 7], colour="red")
    assert not outcome.result.success
    for argument in ("size", "names[1]", "colour"):
        assert argument in outcome.text
    assert outcome.event.error is None


@pytest.mark.behaviour(15)
@pytest.mark.parametrize("arguments", ["", "{", "[1]", '"x"', "null}", "NaN", '{"text": NaN}'])
def test_invalid_json_returns_a_failed_result(arguments: str) -> None:
    with small_workspace(tool(nothing)) as workspace:
        outcome = workspace.call("act", arguments)
    if arguments:
        assert not outcome.result.success
        assert "act" in outcome.text
        assert workspace.records[0].params == arguments
    else:
        assert outcome.result.success, "empty text means no arguments"


def test_a_call_of_a_tool_without_a_handler_reports_it() -> None:
    silent = Tool[None, None](name="silent", description="Nothing behind it", handler=None)
    with small_workspace(silent) as workspace:
        assert "no handler" in workspace.call("silent").text


def test_a_thousand_wrong_arguments_are_reported_in_a_short_text() -> None:
    with small_workspace(WRITE) as workspace:
        outcome = workspace.call("write", {f"key{n}": n for n in range(1_000)})
    assert "more. Correct" in outcome.text
    assert len(outcome.text) < 20_000


def test_a_long_exception_message_is_cut_for_the_model_and_whole_in_the_record() -> None:
    def act(params: object, *, context: ToolContext) -> ToolResult[None]:
        raise ValueError("x" * 1_000_000)

    with small_workspace(tool(act)) as workspace:
        outcome = workspace.call("act")
    assert len(outcome.text) < 20_000
    assert outcome.event.error is not None
    assert len(outcome.event.error) > 1_000_000


# Limits


@pytest.mark.behaviour(18, 19)
def test_an_expired_deadline_ends_the_run_before_the_handler_starts() -> None:
    clock = ManualClock()
    deadline = Deadline.after(5, clock=clock)
    with small_workspace(WRITE, session=Session(clock=clock), deadline=deadline) as workspace:
        clock.advance(6)
        with pytest.raises(PromptEvaluationError) as caught:
            workspace.call("write", text="a.txt")
        assert caught.value.phase == "tool"
        assert not workspace.filesystem.exists("a.txt")
        assert [record.success for record in workspace.records] == [False]


@pytest.mark.behaviour(18)
def test_a_handler_can_read_its_remaining_time() -> None:
    clock = ManualClock()
    left: list[float | None] = []

    def ask(params: object, *, context: ToolContext) -> ToolResult[None]:
        left.append(context.remaining_s)
        return ToolResult.ok(None)

    with small_workspace(tool(ask), deadline=Deadline.after(5, clock=clock)) as workspace:
        clock.advance(2)
        workspace.call("act")
    assert left == [3.0]


def test_a_spent_budget_ends_the_run_before_the_handler_starts() -> None:
    tracker = BudgetTracker(Budget(max_total_tokens=10))
    with small_workspace(WRITE, budget_tracker=tracker) as workspace:
        tracker.record(TokenUsage(input_tokens=11))
        with pytest.raises(PromptEvaluationError) as caught:
            workspace.call("write", text="a.txt")
        assert caught.value.phase == "budget"
        assert caught.value.hint == BudgetExceededError.default_hint
        assert not workspace.filesystem.exists("a.txt")


# Policies


@pytest.mark.behaviour(82)
@pytest.mark.behaviour(27)
def test_a_call_cancelled_before_it_begins_does_not_run_its_handler() -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    act = tool(lambda params, *, context: pytest.fail("it ran"))
    with small_workspace(act) as workspace:
        call = ToolCall("act")
        outcome = workspace.executor.execute(call, cancellation=cancellation)
        assert "was cancelled" in outcome.text
        assert workspace.records[0].outcome is Outcome.ROLLED_BACK


@pytest.mark.behaviour(82)
def test_a_call_cancelled_while_it_runs_is_undone_though_its_handler_succeeds() -> None:
    def act(params: Text, *, context: ToolContext) -> ToolResult[None]:
        context.filesystem.write_text("new", "x")
        context.cancellation.cancel()
        return ToolResult.ok(None)

    with small_workspace(tool(act)) as workspace:
        call = ToolCall("act")
        outcome = workspace.executor.execute(call, cancellation=Cancellation())
        assert "was cancelled, and changed nothing" in outcome.text
        assert workspace.records[0].outcome is Outcome.ROLLED_BACK
        assert not workspace.filesystem.exists("new")


def test_a_refusal_names_its_policy_and_changes_nothing() -> None:
    with small_workspace(WRITE, policies=[Rule(check="not today")]) as workspace:
        before = workspace.state()
        outcome = workspace.call("write", text="a.txt")
        assert outcome.text == "Refused by policy 'rule': not today."
        assert outcome.outcome is Outcome.ROLLED_BACK
        assert workspace.state() == before
        (verdict,) = outcome.event.decisions
        assert (verdict.policy, verdict.allowed, verdict.reason) == ("rule", False, "not today")


@pytest.mark.parametrize("error", [ValueError("broken"), PromptEvaluationError("x", phase="tool")])
def test_a_policy_that_raises_refuses_the_call(error: Exception) -> None:
    with small_workspace(WRITE, policies=[Rule(check=error)]) as workspace:
        outcome = workspace.call("write", text="a.txt")
        assert outcome.text.startswith("Refused by policy 'rule': it raised")
        assert not workspace.filesystem.exists("a.txt")
        assert outcome.event.decisions[-1].allowed is False


def test_a_policy_that_raises_on_the_result_fails_the_call() -> None:
    with small_workspace(WRITE, policies=[Rule(on_result=ValueError("broken"))]) as workspace:
        before = workspace.state()
        outcome = workspace.call("write", text="a.txt")
        assert not outcome.result.success
        assert workspace.state() == before


def test_decisions_that_allow_a_call_are_in_the_record() -> None:
    with small_workspace(WRITE, policies=[Rule()]) as workspace:
        (verdict,) = workspace.call("write", text="a.txt").event.decisions
    assert (verdict.policy, verdict.allowed) == ("rule", True)


# Reducers, subscribers, records


@pytest.mark.behaviour(28)
def test_a_reducer_that_raises_fails_the_call_and_rolls_it_back() -> None:
    def broken(view: object, event: Written) -> Append[Note]:
        raise ValueError("reducer is broken")

    session = Session()
    session[Note].register(Written, broken)
    with small_workspace(WRITE, session=session) as workspace:
        outcome = workspace.call("write", text="a.txt")
        assert not outcome.result.success
        assert "reducer is broken" in outcome.text
        assert "a fault of the program, not of the call" in outcome.text
        assert "Correct" not in outcome.text, "the model cannot correct the program"
        assert not workspace.filesystem.exists("a.txt")


def test_state_reducers_get_the_value_and_the_record_of_successful_calls_only() -> None:
    session = Session()
    session[Note].register(Written, lambda view, event: Append(Note(f"value {event.path}")))
    session[Note].register(ToolInvoked, lambda view, event: Append(Note(f"call {event.tool}")))
    with small_workspace(WRITE, session=session) as workspace:
        workspace.call("write", text="a.txt")
        workspace.call("write", text="../a.txt")
    assert session[Note].all() == (Note("value a.txt"), Note("call write"))


@pytest.mark.behaviour(28)
def test_a_subscriber_that_raises_does_not_affect_the_call_or_other_subscribers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session, received = Session(), []

    def broken(event: ToolInvoked) -> None:
        raise ValueError("subscriber is broken")

    session.dispatcher.subscribe(ToolInvoked, broken)
    session.dispatcher.subscribe(ToolInvoked, received.append)
    with small_workspace(WRITE, session=session) as workspace, caplog.at_level(logging.ERROR):
        outcome = workspace.call("write", text="a.txt")
    assert outcome.result.success
    assert received == [outcome.event]
    assert "subscriber is broken" in caplog.text


@pytest.mark.behaviour(19)
def test_a_log_reducer_that_raises_does_not_remove_the_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @dataclass(frozen=True)
    class Diary:
        line: str

    def broken(view: object, event: ToolInvoked) -> Append[Diary]:
        raise ValueError("log is full")

    session = Session()
    session[Diary].register(ToolInvoked, broken, kind=SliceKind.LOG)
    with small_workspace(WRITE, session=session) as workspace:
        outcome = workspace.call("write", text="a.txt")
        assert outcome.result.success
        assert workspace.records == (outcome.event,)
    assert "log is full" in caplog.text


@pytest.mark.behaviour(19)
@pytest.mark.parametrize("success", [True, False])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
def test_a_log_reducer_that_ends_the_run_does_so_after_the_record_is_published(
    error: BaseException, success: bool
) -> None:
    def end(view: object, event: object) -> Append[Note]:
        raise error

    def act(params: object, *, context: ToolContext) -> ToolResult[None]:
        return ToolResult("", success=success)

    received: list[ToolInvoked] = []
    with small_workspace(tool(act)) as workspace:
        workspace.session[Note].register(ToolInvoked, end, kind=SliceKind.LOG)
        workspace.session.dispatcher.subscribe(ToolInvoked, received.append)
        with pytest.raises(type(error)):
            workspace.call("act")
        assert [record.success for record in workspace.records] == [success]
        assert [record.success for record in received] == [success]


@pytest.mark.behaviour(19)
def test_a_journal_that_cannot_record_a_failure_ends_the_run_after_the_log_record() -> None:
    class Full(MemoryJournal):
        def rolled_back(self, event: ToolInvoked, saved: Saved) -> None:
            raise OSError("no space left")

    def act(params: object, *, context: ToolContext) -> ToolResult[None]:
        return ToolResult.error("no")

    with small_workspace(tool(act)) as workspace:
        transactions_of(workspace.session).journal = Full()
        with pytest.raises(OSError, match="no space left"):
            workspace.call("act")
        assert [record.outcome for record in workspace.records] == [Outcome.ROLLED_BACK]


@pytest.mark.behaviour(19)
def test_a_record_has_the_text_that_the_model_saw() -> None:
    clock = ManualClock()
    with small_workspace(WRITE, session=Session(clock=clock)) as workspace:
        outcome = workspace.call("write", text="a.txt")
    event = outcome.event
    assert (event.tool, event.prompt, event.params) == ("write", "rig", Text("a.txt"))
    assert (event.message, event.rendered_text) == ("Done.", "wrote a.txt")
    assert outcome.text == event.text == "Done.\n\nwrote a.txt"
    assert (event.started_at, event.duration_s, event.depth) == (clock.now(), 0.0, 0)
    assert workspace.records == (event,)


@pytest.mark.behaviour(11)
def test_a_value_is_rendered_once_for_the_record_and_the_model() -> None:
    @dataclass(frozen=True)
    class Counted:
        rendered: list[str]

        def render(self) -> str:
            self.rendered.append("again")
            return f"rendered {len(self.rendered)} times"

    def act(params: Text, *, context: ToolContext) -> ToolResult[Counted]:
        return ToolResult.ok(Counted([]))

    with small_workspace(
        Tool[Text, Counted](name="act", description="Act", handler=act)
    ) as workspace:
        outcome = workspace.call("act")
    assert outcome.text == outcome.event.rendered_text == "rendered 1 times"


def test_a_value_excluded_from_the_context_is_in_the_record_but_not_in_the_text() -> None:
    def quiet(params: Text, *, context: ToolContext) -> ToolResult[Written]:
        return ToolResult("Summary.", Written("big"), exclude_value_from_context=True)

    with small_workspace(
        Tool[Text, Written](name="quiet", description="Quiet", handler=quiet)
    ) as workspace:
        outcome = workspace.call("quiet")
    assert outcome.text == "Summary."
    assert (outcome.event.value, outcome.event.rendered_text) == (Written("big"), "wrote big")


@pytest.mark.behaviour(89)
def test_a_redactor_is_applied_to_the_answer_the_record_and_state() -> None:
    def leak(params: Text, *, context: ToolContext) -> ToolResult[Written]:
        if params.text == "raise hunter2":
            raise ValueError("hunter2 leaked")
        return ToolResult.ok(Written("hunter2.txt"), "wrote with hunter2")

    session = Session()
    session[Note].register(Written, lambda view, event: Append(Note(event.path)))
    leaky = Tool[Text, Written](name="leak", description="Leak", handler=leak)
    with small_workspace(
        leaky, session=session, redact=lambda text: text.replace("hunter2", "***")
    ) as workspace:
        kept = workspace.call("leak", text="use hunter2")
        failed = workspace.call("leak", text="raise hunter2")
    assert kept.text == "wrote with ***\n\nwrote ***.txt"
    assert session[Note].latest() == Note("***.txt")
    assert "hunter2" not in repr(workspace.records)
    assert "hunter2" not in repr((kept.result, kept.event, failed.result, failed.event))


def test_a_redactor_is_applied_to_rendered_values_and_policy_reasons() -> None:
    @dataclass(frozen=True)
    class Binary:
        data: bytes

        def render(self) -> str:
            return self.data.decode()

    class Leaking(ToolPolicy):
        name = "leaking"

        def check(
            self, tool: Tool[Any, Any], params: object, *, context: ToolContext
        ) -> PolicyDecision:
            return PolicyDecision(allowed=True, reason="it holds hunter2")

    def leak(params: Text, *, context: ToolContext) -> ToolResult[Binary]:
        return ToolResult.ok(Binary(b"hunter2"))

    leaky = Tool[Text, Binary](name="leak", description="Leak", handler=leak)
    with small_workspace(
        leaky, policies=[Leaking()], redact=lambda text: text.replace("hunter2", "***")
    ) as workspace:
        (event, text) = (workspace.call("leak").event, workspace.records[0].text)
    assert (event.rendered_text, text) == ("***", "***")
    assert event.decisions[0].reason == "it holds ***"


@pytest.mark.behaviour(89)
@pytest.mark.parametrize("arguments", [{"text": "hunter2"}, {"text": object()}, _endless()])
def test_a_redactor_that_raises_fails_the_call_and_the_text_is_withheld(
    arguments: dict[str, object],
) -> None:
    def redact(text: str) -> str:
        if "hunter2" in text:
            raise ValueError("cannot redact hunter2")
        return text

    def act(params: Text, *, context: ToolContext) -> ToolResult[None]:
        assert context.filesystem is not None
        context.filesystem.write_text("a.txt", "a")
        return ToolResult.ok(None, f"used {params.text}")

    with small_workspace(tool(act), redact=redact) as workspace:
        outcome = workspace.call("act", arguments)
        assert not workspace.filesystem.exists("a.txt")
        assert [record.outcome for record in workspace.records] == [Outcome.ROLLED_BACK]
        assert "hunter2" not in repr((outcome.result, outcome.event, workspace.records))


@pytest.mark.behaviour(20)
def test_the_heartbeat_beats_before_and_after_each_call_and_on_request() -> None:
    heartbeat, beats = Heartbeat(), []
    heartbeat.observe(lambda: beats.append("beat"))

    def act(params: object, *, context: ToolContext) -> ToolResult[None]:
        beats.append("handler")
        context.beat()
        return ToolResult.ok(None)

    with small_workspace(tool(act), heartbeat=heartbeat) as workspace:
        workspace.call("act")
    assert beats == ["beat", "handler", "beat", "beat"]


# Resources


class Connection:
    """A resource that logs its use and can be saved."""

    def __init__(self, log: list[str]) -> None:
        self.log, self.value = log, "fresh"
        log.append("open")

    def snapshot(self) -> object:
        return self.value

    def restore(self, token: object) -> None:
        self.value = str(token)

    def close(self) -> None:
        self.log.append("close")


@pytest.mark.behaviour(39)
def test_a_call_scoped_resource_is_new_in_each_call_and_closed_after_it() -> None:
    log: list[str] = []

    def act(params: object, *, context: ToolContext) -> ToolResult[None]:
        assert context.resources.get(Connection) is context.resources.get(Connection)
        log.append("use")
        return ToolResult.ok(None)

    binding = Binding(Connection, lambda resolver: Connection(log), scope=Scope.TOOL_CALL)
    with small_workspace(tool(act), resources={Connection: binding}) as workspace:
        workspace.call("act")
        workspace.call("act")
    assert log == ["open", "use", "close"] * 2


@pytest.mark.behaviour(25, 39)
def test_an_interrupt_while_a_call_scoped_resource_closes_is_raised_after_it() -> None:
    class Flushing:
        def __init__(self, files: Filesystem) -> None:
            self._files = files

        def close(self) -> None:
            signal.raise_signal(signal.SIGINT)
            self._files.write_text("flushed.txt", "at the end")
            log.append("closed")

    def act(params: object, *, context: ToolContext) -> ToolResult[None]:
        context.resources.get(Flushing)
        return ToolResult.ok(None)

    log: list[str] = []
    binding = Binding(Flushing, lambda r: Flushing(r.get(Filesystem)), scope=Scope.TOOL_CALL)
    with small_workspace(tool(act), resources={Flushing: binding}) as workspace:
        with pytest.raises(KeyboardInterrupt):
            workspace.call("act")
        assert log == ["closed"]
        assert not workspace.filesystem.exists("flushed.txt")
        assert [record.outcome for record in workspace.records] == [Outcome.ROLLED_BACK]


@pytest.mark.behaviour(32)
def test_a_resource_first_built_in_a_failing_call_is_closed_and_built_again() -> None:
    log: list[str] = []

    def act(params: Text, *, context: ToolContext) -> ToolResult[None]:
        connection = context.resources.get(Connection)
        log.append(connection.value)
        connection.value = params.text
        return ToolResult.error("no") if params.text == "bad" else ToolResult.ok(None)

    binding = Binding(Connection, lambda resolver: Connection(log))
    with small_workspace(tool(act), resources={Connection: binding}) as workspace:
        workspace.call("act", text="bad")
        workspace.call("act", text="good")
        workspace.call("act", text="bad")
        workspace.call("act", text="bad")
    assert log == ["open", "fresh", "close", "open", "fresh", "good", "good", "close"]


@pytest.mark.behaviour(25)
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
def test_an_interrupted_close_during_the_rollback_ends_the_run_after_it(
    error: BaseException,
) -> None:
    class Interrupting:
        def close(self) -> None:
            raise error

    def act(params: object, *, context: ToolContext) -> ToolResult[None]:
        context.resources.get(Interrupting)
        assert context.filesystem is not None
        context.filesystem.write_text("a.txt", "a")
        return ToolResult.error("no")

    binding = Binding(Interrupting, lambda resolver: Interrupting())
    with small_workspace(tool(act), resources={Interrupting: binding}) as workspace:
        before = workspace.state()
        with pytest.raises(type(error)):
            workspace.call("act")
        assert workspace.state() == before
        assert [record.outcome for record in workspace.records] == [Outcome.ROLLED_BACK]
        assert len(workspace.journal.entries) == 1


def test_a_provider_that_raises_fails_the_call() -> None:
    def provide(resolver: object) -> Connection:
        raise OSError("no such host")

    def act(params: object, *, context: ToolContext) -> ToolResult[None]:
        context.resources.get(Connection)
        return ToolResult.ok(None)

    with small_workspace(
        tool(act), resources={Connection: Binding(Connection, provide)}
    ) as workspace:
        outcome = workspace.call("act")
    assert not outcome.result.success
    assert "ProviderError" in outcome.text


# The journal


def test_the_journal_has_one_entry_with_a_diff_for_each_call() -> None:
    with small_workspace(WRITE) as workspace:
        workspace.call("write", text="a.txt")
        workspace.call("write", text="../b.txt")
        done, failed = workspace.journal.entries
        assert "+content" in workspace.journal.diff(done)
        assert workspace.journal.diff(failed) == ""
        assert failed.event is workspace.records[1]


def test_an_edit_between_calls_is_a_separate_entry_and_an_event() -> None:
    with small_workspace(WRITE, files={"a.txt": "1"}) as workspace:
        workspace.call("write", text="b.txt")
        workspace.filesystem.write_text("a.txt", "2")
        workspace.call("write", text="c.txt")
        kinds = [entry.kind for entry in workspace.journal.entries]
        assert kinds == ["call", "external", "call"]
        (event,) = workspace.session[ExternalChange].all()
        assert event.paths == ("a.txt",)
        assert "+2" in workspace.journal.diff(workspace.journal.entries[1])


@pytest.mark.parametrize("kind", SliceKind)
def test_a_reducer_that_fails_on_an_edit_does_not_fail_the_call_and_is_logged(
    kind: SliceKind, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(view: object, event: ExternalChange) -> object:
        raise ValueError(f"cannot count {event.paths}")

    received: list[ExternalChange] = []
    with small_workspace(WRITE, files={"a.txt": "1"}) as workspace:
        workspace.session[Note].register(ExternalChange, fail, kind=kind)
        workspace.session.dispatcher.subscribe(ExternalChange, received.append)
        workspace.call("write", text="a.txt")
        workspace.filesystem.write_text("a.txt", "2")
        assert workspace.call("write", text="b.txt").result.success
        (event,) = workspace.session[ExternalChange].all()
        assert received == [event]
    assert f"A {kind.name} reducer raised" in caplog.text
    assert "cannot count ('a.txt',)" in caplog.text


@pytest.mark.behaviour(21)
def test_an_edit_is_noticed_after_calls_on_another_filesystem() -> None:
    session, edited = Session(), MemoryFilesystem()
    for filesystem in (edited, MemoryFilesystem()):
        with small_workspace(WRITE, session=session, filesystem=filesystem) as workspace:
            workspace.call("write", text="a.txt")
    edited.write_text("human.txt", "by hand")
    with small_workspace(WRITE, session=session, filesystem=edited) as workspace:
        workspace.call("write", text="b.txt")
    assert [event.paths for event in session[ExternalChange].all()] == [("human.txt",)]


def test_the_filesystem_is_none_without_a_binding() -> None:
    seen: list[object] = []

    def act(params: object, *, context: ToolContext) -> ToolResult[None]:
        seen.append(context.filesystem)
        return ToolResult.ok(None)

    section = MarkdownSection(title="Tools", template="Use them.", tools=[tool(act)])
    prompt = Prompt(ns="tests", key="bare", name="bare", sections=[section])
    with prompt.resources:
        executor = executor_of(prompt, Session())
        executor.execute(ToolCall("act"))
    assert seen == [None]
