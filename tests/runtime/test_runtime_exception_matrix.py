"""The effect of each exception of a handler, row by row; every change is undone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest
from support import Note, Text, small_workspace, tool

from wink_workspace.errors import (
    BudgetExceededError,
    CallCancelledError,
    DeadlineExceededError,
    FileMissingError,
    PromptEvaluationError,
    ToolValidationError,
    VisibilityExpansionRequired,
    WinkError,
)
from wink_workspace.prompt import Tool, ToolContext, ToolResult
from wink_workspace.session import Outcome


@dataclass(frozen=True)
class Row:
    """A handler's exception, the exception that ``execute`` raises, and text of the record."""

    raised: BaseException
    propagates: type[BaseException] | None
    says: str


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text either")


class UnprintableRefusalError(ToolValidationError):
    __str__ = UnprintableError.__str__


class UnprintableEndError(PromptEvaluationError):
    __str__ = UnprintableError.__str__


class UnprintableNotesError(Exception):
    @property
    def __notes__(self) -> list[str]:
        raise RuntimeError("no notes either")


MATRIX = [
    Row(ToolValidationError("limit is odd", hint="Use an even one."), None, "limit is odd. Use an"),
    Row(VisibilityExpansionRequired(["docs"]), VisibilityExpansionRequired, "docs"),
    Row(PromptEvaluationError("down", phase="request"), PromptEvaluationError, "down"),
    Row(DeadlineExceededError("too late"), PromptEvaluationError, "too late"),
    Row(TypeError("int is not str"), None, "wrong type: TypeError: int is not str"),
    Row(ValueError("bad value"), None, "ValueError: bad value"),
    Row(KeyError("k"), None, "KeyError: 'k'"),
    Row(FileMissingError("no a.txt"), None, "FileMissingError: no a.txt"),
    Row(BudgetExceededError("9 tokens used, 8 allowed"), None, "BudgetExceededError"),
    Row(CallCancelledError("not wanted"), None, "was cancelled, and changed nothing"),
    Row(WinkError("ours"), None, "WinkError: ours"),
    Row(RecursionError("deep"), None, "RecursionError"),
    Row(MemoryError("full"), None, "MemoryError"),
    Row(TimeoutError("slow"), None, "TimeoutError"),
    Row(StopIteration("over"), None, "StopIteration"),
    Row(UnprintableError(), None, "UnprintableError"),
    Row(UnprintableRefusalError("odd"), None, "UnprintableRefusalError, which cannot be shown"),
    Row(
        UnprintableEndError("down", phase="tool"),
        UnprintableEndError,
        "UnprintableEndError, which cannot",
    ),
    Row(UnprintableNotesError(), None, "UnprintableNotesError"),
    Row(SyntaxError("odd", ("a.py", 1, 2, 5)), None, "SyntaxError, which cannot be shown"),
    Row(ExceptionGroup("two", [ValueError("x"), OSError("y")]), None, "ExceptionGroup"),
    Row(KeyboardInterrupt(), KeyboardInterrupt, "KeyboardInterrupt"),
    Row(SystemExit(3), SystemExit, "SystemExit"),
    Row(GeneratorExit(), GeneratorExit, "GeneratorExit"),
]


@pytest.mark.behaviour(78)
@pytest.mark.behaviour(16, 17, 19, 22, 24, 25, 26)
@pytest.mark.parametrize("row", MATRIX, ids=lambda row: type(row.raised).__name__)
def test_a_handler_that_raises_has_the_result_of_its_row_and_changes_nothing(row: Row) -> None:
    def act(params: object, *, context: ToolContext) -> ToolResult[None]:
        files = context.filesystem
        assert files is not None
        files.write_bytes("made/new.txt", b"new")
        files.write_bytes("changed.txt", b"after")
        files.delete("deleted.txt")
        context.session[Note].append(Note("state of a failed call"))
        raise row.raised

    before_files = {"changed.txt": b"be\r\nfore\xff", "deleted.txt": b"still needed"}
    with small_workspace(tool(act), files=before_files) as workspace:
        before = workspace.state()
        if row.propagates is None:
            outcome = workspace.call("act")
            assert not outcome.result.success
            assert row.says in outcome.text
            assert "'act'" in outcome.text
        else:
            with pytest.raises(row.propagates) as caught:
                workspace.call("act")
            assert caught.value is row.raised or caught.value.__cause__ is row.raised
        assert workspace.state() == before
        assert workspace.session[Note].all() == ()
        (record,) = workspace.records
        assert (record.tool, record.success, record.outcome) == ("act", False, Outcome.ROLLED_BACK)
        assert record.rendered_text == ""
        assert row.says in record.text
        assert record.error is not None


def test_a_deadline_exceeded_in_a_handler_is_an_evaluation_error_of_phase_tool() -> None:
    def act(params: object, *, context: ToolContext) -> ToolResult[None]:
        raise DeadlineExceededError("too late")

    with small_workspace(tool(act)) as workspace, pytest.raises(PromptEvaluationError) as caught:
        workspace.call("act")
    assert caught.value.phase == "tool"


def test_a_success_without_a_value_is_a_success_whatever_the_result_type() -> None:
    def act(params: Text, *, context: ToolContext) -> ToolResult[Note]:
        return ToolResult("The message says all.", value=None)

    typed = Tool[Text, Note](name="act", description="Act.", handler=act)
    with small_workspace(typed) as workspace:
        outcome = workspace.call("act", text="x")
        assert outcome.result.success
        assert outcome.text == "The message says all."
        assert workspace.records[-1].value is None


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (None, "returned NoneType"),
        ("done", "returned str"),
        (ToolResult("fine", "not none"), "wrong type"),
        (ToolResult("fine", success=cast("bool", "no")), "success is 'no'"),
    ],
)
def test_a_handler_that_returns_a_wrong_type_fails_and_is_rolled_back(
    returned: object, says: str
) -> None:
    def act(params: object, *, context: ToolContext) -> object:
        assert context.filesystem is not None
        context.filesystem.write_text("new.txt", "new")
        return returned

    with small_workspace(tool(act)) as workspace:
        outcome = workspace.call("act")
        assert not outcome.result.success
        assert says in outcome.text
        assert not workspace.filesystem.exists("new.txt")


def test_an_error_result_is_rolled_back_and_returned_unchanged() -> None:
    def act(params: object, *, context: ToolContext) -> ToolResult[None]:
        assert context.filesystem is not None
        context.filesystem.write_text("new.txt", "new")
        return ToolResult.error("cannot: ask for less")

    with small_workspace(tool(act)) as workspace:
        outcome = workspace.call("act")
        assert outcome.text == "cannot: ask for less"
        assert outcome.outcome is Outcome.ROLLED_BACK
        assert not workspace.filesystem.exists("new.txt")


@pytest.mark.behaviour(23)
def test_a_successful_call_keeps_every_change() -> None:
    def act(params: object, *, context: ToolContext) -> ToolResult[None]:
        assert context.filesystem is not None
        context.filesystem.write_text("new.txt", "new")
        context.session[Note].append(Note("kept"))
        return ToolResult.ok(None, "done")

    with small_workspace(tool(act)) as workspace:
        outcome = workspace.call("act")
        assert (outcome.text, outcome.outcome) == ("done", Outcome.COMMITTED)
        assert workspace.filesystem.read_bytes("new.txt") == b"new"
        assert workspace.session[Note].latest() == Note("kept")
