"""Evaluations of inspect_ai in workspaces: forks of one base, and logs with diffs."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest
from inspect_ai import Task
from inspect_ai import eval as evaluate
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageTool, ModelOutput, get_model, modelapi
from inspect_ai.model._providers.mockllm import MockLLM
from inspect_ai.solver import generate, solver, use_tools
from inspect_ai.tool import bash, bash_session, text_editor, tool
from inspect_ai.util import sandbox
from real_package import ADDED, BROKEN, CHECK, FILE, copy_package

from wink_workspace.errors import LedgerError, UsageError
from wink_workspace.integrations.inspect_ai import WinkSandbox, _tasks
from wink_workspace.session import Outcome
from wink_workspace.workspace import Workspace, WorkspaceStorage

# inspect_ai leaves streams of its display to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Exception ignored in. <function MemoryObject"),
    pytest.mark.usefixtures("left_streams"),
]


@tool
def undo():
    async def execute() -> str:
        """Undo the last change."""
        sandbox().as_type(WinkSandbox).workspace.undo()
        return "undone"

    return execute


@tool
def fail():
    async def execute() -> str:
        """Write a file and fail."""
        async with sandbox().as_type(WinkSandbox).call("fail"):
            await sandbox().write_file("trace", "of a tool that raises")
            raise ValueError("it failed")

    return execute


def append(text: str, path: str = FILE) -> dict:
    return {"function": "bash", "arguments": {"command": f"cat >> {path} <<'END'\n{text}\nEND"}}


@modelapi("offline")
class OfflineModel(MockLLM):
    """A model whose tokens are counted without tables that are downloaded."""

    async def count_text_tokens(self, text: str) -> int:
        return len(text)


def model(*turns):
    """A model that calls one tool in each turn, and ends with a text."""
    outputs = [
        ModelOutput.for_tool_call("mockllm/model", each["function"], each.get("arguments", {}))
        for each in turns
    ]
    outputs += [ModelOutput.from_content("mockllm/model", "Done.")] * 2
    return get_model("offline/model", custom_outputs=outputs, memoize=False)


def run(tmp_path, turns, *, n_samples: int = 1, extra=(), cleanup: bool = True):
    task = Task(
        dataset=[Sample(input="Edit.", id=number) for number in range(n_samples)],
        solver=[*extra, use_tools([bash(), undo(), fail()]), generate()],
        sandbox=("wink", str(copy_package(tmp_path))),
    )
    options = {"log_dir": str(tmp_path / "logs"), "log_format": "json", "display": "none"}
    logs = evaluate(task, model(*turns), sandbox_cleanup=cleanup, **options)
    assert logs[0].status == "success", [
        (m.text, getattr(m, "error", None)) for s in logs[0].samples for m in s.messages
    ]
    return logs[0].samples


def diffs(sample) -> list[str]:
    infos = [event for event in sample.events if event.event == "info" and event.source == "wink"]
    texts = [event.data["diff"].removeprefix("attachment://") for event in infos]
    return [sample.attachments.get(text, text) for text in texts]


@pytest.fixture(autouse=True)
def storage(tmp_path, monkeypatch, container) -> WorkspaceStorage:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return WorkspaceStorage.default()


@pytest.mark.behaviour(201)
def test_an_agent_breaks_a_package_goes_back_and_ends_right_and_the_log_has_the_diff(
    tmp_path, storage
) -> None:
    check = {"function": "bash", "arguments": {"command": f"{' '.join(CHECK[:2])} '{CHECK[2]}'"}}
    turns = [append(ADDED), append(BROKEN), check, {"function": "undo"}, check]
    [sample] = run(tmp_path, turns)
    results = [each for each in sample.messages if isinstance(each, ChatMessageTool)]
    assert "SyntaxError" in str(results[2].content)
    assert results[3].content == "undone"
    assert "Error" not in str(results[4].content)
    [diff] = diffs(sample)
    assert "+class AddedByAgent(Message):" in diff
    assert "Broken" not in diff
    assert list(storage.all()) == []  # deleted with the task


@pytest.mark.behaviour(201)
def test_samples_are_forks_of_one_workspace_and_a_tool_that_raises_leaves_no_trace(
    tmp_path, storage
) -> None:
    @solver
    def number_it():
        async def solve(state, generate):
            first, second = (
                sandbox().exec(["sh", "-c", f"echo {word} {state.sample_id} >> notes"])
                for word in ("one", "two")
            )
            await asyncio.gather(first, second)
            with pytest.raises(ValueError, match="it failed"):
                await fail()()
            assert sandbox().as_type(WinkSandbox).workspace.head.outcome is Outcome.ROLLED_BACK
            return state

        return solve

    samples = run(tmp_path, [], n_samples=2, extra=[number_it()])
    for sample in samples:
        [diff] = diffs(sample)
        added = {line for line in diff.splitlines() if line.startswith("+")}
        assert {f"+one {sample.id}", f"+two {sample.id}"} <= added
        assert "trace" not in diff


def test_samples_that_begin_at_the_same_time_have_different_workspaces() -> None:
    both = threading.Barrier(2)

    class Samples(list[Workspace]):
        def append(self, sample: Workspace) -> None:
            super().append(sample)
            both.wait(30)

    async def begin() -> set[str]:
        await WinkSandbox.task_init("task", None)
        try:
            _tasks[""].samples = Samples()
            begun = [WinkSandbox.sample_init("task", None, {}) for _ in range(2)]
            samples = [each["default"] for each in await asyncio.gather(*begun)]
            return {each.as_type(WinkSandbox).workspace.branch_name for each in samples}
        finally:
            await WinkSandbox.task_cleanup("task", None, cleanup=True)

    assert len(asyncio.run(begin())) == 2


async def begin_samples(number: int) -> list[WinkSandbox]:
    await WinkSandbox.task_init("task", None)
    begun = [await WinkSandbox.sample_init("task", None, {}) for _ in range(number)]
    return [each["default"].as_type(WinkSandbox) for each in begun]


def test_task_is_closed_and_deleted_although_a_sample_cannot_be_closed(
    storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    close = Workspace.close

    def fail_first(workspace: Workspace) -> None:
        close(workspace)
        closed.append(workspace.branch_name)
        if len(closed) == 1:
            raise LedgerError("the lock cannot be written")

    async def main() -> None:
        samples = await begin_samples(2)
        monkeypatch.setattr(Workspace, "close", fail_first)
        with pytest.raises(LedgerError, match="the lock"):
            await WinkSandbox.task_cleanup("task", None, cleanup=True)
        assert set(closed) == {*(each.workspace.branch_name for each in samples), "main"}

    asyncio.run(main())
    assert list(storage.all()) == []


def test_sample_is_closed_although_its_diff_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: WinkSandbox) -> str:
        raise LedgerError("an object is damaged")

    async def main() -> None:
        [sample] = await begin_samples(1)
        try:
            with monkeypatch.context() as patched:
                patched.setattr(WinkSandbox, "diff", fail)
                with pytest.raises(LedgerError, match="damaged"):
                    await WinkSandbox.sample_cleanup("task", None, {"default": sample}, False)
            with pytest.raises(UsageError, match="no longer open"):
                sample.workspace.undo()
        finally:
            await WinkSandbox.task_cleanup("task", None, cleanup=True)

    asyncio.run(main())


def test_without_a_cleanup_the_forks_of_the_samples_stay(tmp_path, storage) -> None:
    run(tmp_path, [append(ADDED)], cleanup=False)
    [info] = storage.all()
    with Workspace.open(info.id) as workspace:
        assert len(workspace.forks()) == 1


def test_ctrl_c_leaves_the_state_between_two_calls(storage) -> None:
    async def interrupted(found: list[WinkSandbox]) -> None:
        await WinkSandbox.task_init("task", None)
        environments = await WinkSandbox.sample_init("task", None, {})
        found.append(environments["default"].as_type(WinkSandbox))
        await found[0].exec(["sh", "-c", "echo kept > notes"])
        asyncio.get_running_loop().call_later(0.2, os.kill, os.getpid(), signal.SIGINT)
        await found[0].exec(["sh", "-c", "echo > trace; sleep 60"])

    found: list[WinkSandbox] = []
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(interrupted(found))
    workspace = found[0].workspace
    assert workspace.files.read_bytes("notes") == b"kept\n"
    assert not workspace.files.exists("trace")
    workspace.close()
    asyncio.run(WinkSandbox.task_cleanup("task", None, cleanup=True))
    assert list(storage.all()) == []


def test_setup_script_of_a_sample_runs_and_its_files_are_in_the_workspace(
    tmp_path, storage
) -> None:
    @solver
    def check():
        async def solve(state, generate):
            assert await sandbox().read_file("made") == "by the script\n"
            with pytest.raises(PermissionError, match="leads outside"):
                await sandbox().write_file("/etc/made", "x")
            with pytest.raises(PermissionError, match="leads outside"):
                await sandbox().write_file("/tmp/large", "x" * (16 * 2**20 + 1))
            return state

        return solve

    task = Task(
        dataset=[Sample(input="x", setup="echo by the script > made")],
        solver=check(),
        sandbox=("wink", str(copy_package(tmp_path))),
    )
    [log] = evaluate(task, model(), log_dir=str(tmp_path / "logs"), display="none")
    assert log.status == "success", log.error


def test_the_text_editor_views_and_edits_files_of_the_workspace(tmp_path, storage) -> None:
    def call(command: str, **arguments: object) -> dict:
        return {"function": "text_editor", "arguments": {"command": command, **arguments}}

    new = "/workspace/new.txt"
    turns = (
        call("create", path=new, file_text="one\ntwo\n"),
        call("str_replace", path=new, old_str="two", new_str="three"),
        call("insert", path=new, insert_line=1, insert_text="two"),
        call("view", path=new),
        call("str_replace", path=new, old_str="missing", new_str="x"),
    )
    task = Task(
        dataset=[Sample(input="Edit.")],
        solver=[use_tools([text_editor()]), generate()],
        sandbox=("wink", str(copy_package(tmp_path))),
    )
    [log] = evaluate(task, model(*turns), log_dir=str(tmp_path / "logs"), display="none")
    assert log.status == "success", log.error
    results = [each for each in log.samples[0].messages if isinstance(each, ChatMessageTool)]
    assert [each.error is None for each in results] == [True, True, True, True, False], results
    assert [line.split() for line in results[3].text.splitlines()[-4:-1]] == [
        ["1", "one"], ["2", "two"], ["3", "three"],
    ]  # fmt: skip
    diff = "".join(log.samples[0].attachments.values())
    assert "+one\n+two\n+three" in diff


def test_a_tool_whose_process_must_stay_ends_the_sample_with_what_to_use_instead(
    tmp_path, storage
) -> None:
    task = Task(
        dataset=[Sample(input="Edit.")],
        solver=[use_tools([bash_session()]), generate()],
        sandbox=("wink", str(copy_package(tmp_path))),
    )
    turn = {"function": "bash_session", "arguments": {"action": "type_submit", "input": "ls"}}
    [log] = evaluate(task, model(turn), log_dir=str(tmp_path / "logs"), display="none")
    assert log.status == "error"
    assert "nothing outside of the workspace outlives a command" in log.error.message
    assert "use bash(), python() or text_editor()" in log.error.message


def test_a_configuration_that_is_not_a_directory_is_refused() -> None:
    with pytest.raises(UsageError, match="not a directory"):
        asyncio.run(WinkSandbox.task_init("task", {"image": "x"}))
