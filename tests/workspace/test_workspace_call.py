"""A program's own code as one call: one entry, or only a record after a rollback."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from workspace_support import make_tree

from wink_workspace import (
    Prompt,
    ReadBeforeWritePolicy,
    SequentialDependencyPolicy,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
    VfsToolsSection,
)
from wink_workspace.clock import Cancellation
from wink_workspace.errors import CallCancelledError, CallRefusedError, UsageError
from wink_workspace.prompt import PolicyDecision, ToolPolicy
from wink_workspace.sections import Plan, SetupPlan
from wink_workspace.session import Outcome, ToolInvoked
from wink_workspace.workspace import Workspace, WorkspaceStorage


@dataclass(frozen=True)
class OnePath:
    """The parameters of a call that works on one file."""

    path: str


FILES = {"a.py": "a = 1\n", "b/c.py": "c = 1\n"}


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace.temporary(make_tree(tmp_path / "source", FILES)) as opened:
        yield opened


def newest(workspace: Workspace) -> ToolInvoked:
    return workspace.session[ToolInvoked].all()[-1]


def test_a_call_is_one_entry_that_shows_label_parameters_and_result(workspace: Workspace) -> None:
    before = workspace.head.number
    with workspace.call("rename module", params={"to": "b"}) as call:
        call.files.move("a.py", "b.py")
        call.session.dispatch(SetupPlan("Rename", ("move",)))
        call.result("moved")
    entry = workspace.head
    assert (entry.number, entry.subject) == (before + 1, "rename module: moved")
    assert entry.outcome is Outcome.COMMITTED
    record = workspace.record(entry).data
    assert isinstance(record, dict)
    assert (record["params"], record["value"]) == ({"to": "b"}, "moved")
    assert {str(change.path) for change in workspace.changes_of(entry)} == {"a.py", "b.py"}

    workspace.undo()
    assert workspace.files.exists("a.py")
    assert workspace.session[Plan].latest() is None


def test_an_exception_undoes_files_and_state_and_is_raised_again(workspace: Workspace) -> None:
    with pytest.raises(ZeroDivisionError), workspace.call("break") as call:
        call.files.delete("a.py")
        call.session.dispatch(SetupPlan("Break", ("it",)))
        _ = 1 / 0
    assert workspace.files.read_text("a.py").text == "a = 1"
    assert workspace.session[Plan].latest() is None
    assert workspace.head.outcome is Outcome.ROLLED_BACK
    assert "ZeroDivisionError" in newest(workspace).message
    assert workspace.diff() == ""


def test_call_fail_rolls_everything_back_without_an_exception(
    workspace: Workspace,
) -> None:
    with workspace.call("try") as call:
        call.files.delete("a.py")
        call.fail("the tests do not pass")
    assert workspace.files.exists("a.py")
    assert workspace.head.subject == "try: the tests do not pass"


@pytest.mark.behaviour(81)
def test_a_call_inside_a_call_is_a_savepoint(workspace: Workspace) -> None:
    before = workspace.head.number
    with workspace.call("outer") as outer:
        outer.files.write_text("kept", "x")
        with pytest.raises(ValueError, match="on purpose"), workspace.call("inner") as inner:
            inner.files.write_text("lost", "x")
            raise ValueError("on purpose")
        assert not outer.files.exists("lost")
        with workspace.call("second") as second:
            second.files.write_text("also kept", "x")
    assert workspace.head.number == before + 1
    assert [str(change.path) for change in workspace.changes()] == ["also kept", "kept"]


def test_history_changes_inside_a_call_are_refused(workspace: Workspace) -> None:
    with workspace.call("outer"), pytest.raises(UsageError, match="a call is running"):
        workspace.undo()


def test_a_workspace_is_not_closed_inside_a_call_which_is_rolled_back(
    workspace: Workspace,
) -> None:
    with pytest.raises(UsageError, match="cannot be closed inside a call"):
        with workspace.call("close inside") as call:
            call.files.delete("a.py")
            workspace.close()
    assert workspace.files.exists("a.py")
    assert workspace.run(workspace.files.read_bytes, "a.py") == b"a = 1\n"


def test_ctrl_c_in_the_block_undoes_it(workspace: Workspace) -> None:
    with pytest.raises(KeyboardInterrupt), workspace.call("slow") as call:
        call.files.delete("a.py")
        signal.raise_signal(signal.SIGINT)
    assert workspace.files.exists("a.py")
    assert workspace.head.outcome is Outcome.ROLLED_BACK
    workspace.run(workspace.files.delete, "a.py")
    assert not workspace.files.exists("a.py")


def test_a_cancelled_call_fails_before_it_begins_or_at_its_end(workspace: Workspace) -> None:
    cancellation = Cancellation()
    with pytest.raises(CallCancelledError):
        with workspace.call("unwanted", cancellation=cancellation) as call:
            call.files.delete("a.py")
            cancellation.cancel()
    assert workspace.files.exists("a.py")
    with pytest.raises(CallCancelledError):
        with workspace.call("unwanted", cancellation=cancellation):
            pytest.fail("the block ran")
    assert workspace.head.outcome is Outcome.ROLLED_BACK


def test_run_returns_the_value_of_the_function_and_records_json_values(
    workspace: Workspace,
) -> None:
    def rename(source: str, to: str) -> list[str]:
        workspace.files.move(source, to)
        return [source, to]

    assert workspace.run(rename, "a.py", "z.py", params={"to": "z.py"}) == ["a.py", "z.py"]
    assert (newest(workspace).tool, newest(workspace).value) == ("rename", ["a.py", "z.py"])
    lock = workspace.run(threading.Lock, label="make a lock")
    assert not lock.locked()
    assert newest(workspace).message == "returned a lock"


def test_run_async_does_not_block_the_event_loop(workspace: Workspace) -> None:
    async def program() -> str:
        return await workspace.run_async(workspace.files.read_bytes, "a.py", label="read")

    assert asyncio.run(program()) == b"a = 1\n"
    assert newest(workspace).tool == "read"


def test_a_cancelled_task_ends_when_its_call_is_rolled_back(workspace: Workspace) -> None:
    began, cancellation = threading.Event(), Cancellation()

    def change() -> None:
        workspace.files.delete("a.py")
        began.set()
        while not cancellation.cancelled:
            pass

    async def program() -> None:
        task = asyncio.ensure_future(workspace.run_async(change, cancellation=cancellation))
        await asyncio.to_thread(began.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert workspace.files.exists("a.py")

    asyncio.run(program())
    assert workspace.head.outcome is Outcome.ROLLED_BACK


def test_a_policy_may_refuse_a_call_before_its_block_runs(workspace: Workspace) -> None:
    policies = [SequentialDependencyPolicy({"deploy-it": {"run-the-tests"}})]
    with pytest.raises(CallRefusedError, match="call run-the-tests successfully before deploy-it"):
        with workspace.call("Deploy it!", policies=policies):
            pytest.fail("the block ran")
    assert workspace.head.outcome is Outcome.ROLLED_BACK
    (verdict,) = newest(workspace).decisions
    assert (verdict.policy, verdict.allowed) == ("sequential-dependency", False)

    with pytest.raises(ZeroDivisionError):
        workspace.run(lambda: 1 / 0, label="run the tests", policies=policies)
    with pytest.raises(CallRefusedError):
        workspace.run(int, label="deploy it", policies=policies)
    workspace.run(int, label="run the tests", policies=policies)
    assert workspace.run(int, label="deploy it", policies=policies) == 0
    assert newest(workspace).decisions[0].allowed


def test_read_before_write_sees_the_files_that_the_parameters_name(workspace: Workspace) -> None:
    policies = [ReadBeforeWritePolicy(read_tools={"look": "path"}, write_tools={"write": "path"})]

    def call(label: str) -> None:
        with workspace.call(label, params=OnePath("a.py"), policies=policies) as call:
            call.files.write_text("a.py", call.files.read_text("a.py").text + "x\n")

    with pytest.raises(CallRefusedError, match=r"a\.py was not read yet"):
        call("write")
    call("look")
    call("write")
    (Path(workspace._folder.files) / "a.py").write_text("edited by a person\n")
    with pytest.raises(CallRefusedError, match=r"a\.py changed since it was read"):
        call("write")


class Broken(ToolPolicy):
    """Raises in one of its methods."""

    name = "broken"

    def __init__(self, where: str) -> None:
        self.where = where

    def check(self, tool: Tool, params: object, *, context: ToolContext) -> PolicyDecision:
        if self.where == "check":
            raise LookupError("no rules")
        return PolicyDecision.allow()

    def on_result(
        self, tool: Tool, params: object, result: ToolResult, *, context: ToolContext
    ) -> None:
        raise LookupError("no rules")


@pytest.mark.parametrize("where", ["check", "on_result"])
def test_a_policy_that_raises_refuses_and_the_call_is_rolled_back(
    workspace: Workspace, where: str
) -> None:
    with pytest.raises(CallRefusedError, match="it raised LookupError: no rules"):
        workspace.run(workspace.files.delete, "a.py", policies=[Broken(where)])
    assert workspace.files.exists("a.py")
    assert newest(workspace).message.startswith("Refused by policy 'broken'")
    workspace.run(workspace.files.delete, "a.py")


def test_execute_runs_one_tool_call_and_returns_its_outcome(workspace: Workspace) -> None:
    prompt = Prompt[None](ns="t", key="p", sections=[VfsToolsSection()])
    call = ToolCall.of("write_file", {"file_path": "new.py", "content": "x = 1\n"}, id="1")
    outcome = workspace.execute(prompt, call)
    assert outcome.result.success
    assert workspace.files.exists("new.py")
    assert workspace.head.call_id == "1"
    unknown = workspace.execute(prompt, ToolCall("wriet_file"))
    assert "Did you mean write_file" in unknown.text


@pytest.mark.parametrize("label", ["", " \n ", "x" * 201])
def test_an_empty_or_too_long_label_is_refused(workspace: Workspace, label: str) -> None:
    with pytest.raises(UsageError, match="a label has 1 to 200 characters"):
        workspace.call(label)


def test_parameters_and_results_without_a_json_form_are_refused(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match="no JSON form"):
        workspace.call("x", params=object())
    with pytest.raises(UsageError, match="no JSON form"), workspace.call("x") as call:
        call.files.delete("a.py")
        call.result(object())
    assert workspace.files.exists("a.py")


def test_a_closed_workspace_makes_no_calls(tmp_path: Path) -> None:
    workspace = Workspace.temporary(make_tree(tmp_path / "source", FILES))
    workspace.close()
    with pytest.raises(UsageError, match="no longer open"):
        workspace.call("late")


def test_a_process_that_dies_in_the_block_leaves_the_earlier_files(tmp_path: Path) -> None:
    storage = WorkspaceStorage(tmp_path / "state")
    source = make_tree(tmp_path / "source", FILES)
    with Workspace.create(source, storage=storage) as workspace:
        which = workspace.info.id
    die = (
        "import os, sys\n"
        "from wink_workspace.workspace import Workspace, WorkspaceStorage\n"
        "workspace = Workspace.open(sys.argv[1], storage=WorkspaceStorage(sys.argv[2]))\n"
        "with workspace.call('half done') as call:\n"
        "    call.files.delete('a.py')\n"
        "    os._exit(9)\n"
    )
    done = subprocess.run([sys.executable, "-c", die, which, os.fspath(tmp_path / "state")])
    assert done.returncode == 9
    with Workspace.open(which, storage=storage) as workspace:
        assert workspace.files.exists("a.py")
        assert "half done" in workspace.head.subject
