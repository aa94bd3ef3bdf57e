"""Agents of pydantic-ai in a workspace: each tool call is one entry."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart, WorkspaceRef
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.workspaces import WorkspaceOutputLimitError, WorkspaceUnavailableError
from real_package import ADDED, BROKEN, CHECK, FILE, copy_package

from wink_workspace import ReadBeforeWritePolicy
from wink_workspace.errors import UsageError
from wink_workspace.integrations.pydantic_ai import WinkBackend, WinkWorkspaces, rewind
from wink_workspace.prompt import PolicyDecision
from wink_workspace.session import Outcome
from wink_workspace.workspace import Workspace, WorkspaceStorage


def scripted(*turns):
    """A model with these turns; each is a list of (tool, arguments), and the last is a text."""
    turns = iter(turns)

    def turn(messages, info) -> ModelResponse:
        calls = next(turns, [])
        parts = [ToolCallPart(name, arguments) for name, arguments in calls]
        return ModelResponse(parts=parts or [TextPart("Done.")])

    return FunctionModel(turn)


class ClosingAgent(Agent):
    """``run_sync`` of pydantic-ai leaves an event loop open."""

    def go(self, *arguments, **options):
        return asyncio.run(self.run(*arguments, **options))


def agent_of(workspaces, *turns) -> ClosingAgent:
    agent = ClosingAgent(scripted(*turns), capabilities=[workspaces])

    @agent.tool
    async def append(ctx: RunContext, path: str, text: str) -> str:
        before = await ctx.workspace.read_text(path) if await ctx.workspace.exists(path) else ""
        await asyncio.sleep(0)
        await ctx.workspace.write_text(path, before + text)
        return "appended"

    @agent.tool
    async def check(ctx: RunContext) -> int:
        return (await ctx.workspace.run(CHECK)).exit_code

    @agent.tool
    async def fail(ctx: RunContext) -> None:
        await ctx.workspace.write_text("trace", "of a tool that raises")
        raise ModelRetry("it failed")

    @agent.tool
    async def interrupt(ctx: RunContext) -> None:
        await ctx.workspace.write_text("trace", "of a tool that was interrupted")
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)

    return agent


@pytest.fixture
def workspaces(tmp_path):
    source = copy_package(tmp_path)
    with WinkWorkspaces(str(source), storage=WorkspaceStorage(tmp_path / "storage")) as workspaces:
        yield workspaces


def workspace_of(workspaces, result) -> Workspace:
    ref = next(m.workspace_ref for m in result.all_messages() if isinstance(m, ModelResponse))
    return workspaces.get(ref.id).workspace


def results_of(messages) -> list:
    parts = [part for message in messages for part in message.parts]
    return [part.content for part in parts if isinstance(part, ToolReturnPart)]


@pytest.mark.behaviour(191)
def test_an_agent_breaks_a_package_goes_back_in_chat_and_files_and_ends_right(
    tmp_path, container
) -> None:
    source = copy_package(tmp_path)
    storage = WorkspaceStorage(tmp_path / "storage")
    with WinkWorkspaces(str(source), storage=storage, sandbox=container) as workspaces:
        first = agent_of(
            workspaces,
            [("append", {"path": FILE, "text": ADDED})],
            [("append", {"path": FILE, "text": BROKEN})],
            [("check", {})],
        ).go("Add a message.")
        messages = first.all_messages()
        workspace = workspace_of(workspaces, first)
        assert results_of(messages) == ["appended", "appended", 1]
        kept = rewind(workspace, messages, n_messages=3)  # the task, a call, its result
        assert results_of(kept) == ["appended"]
        assert workspace.files.read_bytes(FILE).endswith(ADDED.encode())
        second = agent_of(workspaces, [("check", {})]).go("Check.", message_history=kept)
        assert results_of(second.new_messages()) == [0]
        assert workspace_of(workspaces, second) is workspace
        subjects = [entry.subject.partition(":")[0] for entry in workspace.log()]
        assert subjects[:5] == ["check", "restore of entry 2", "check", "append", "append"]
        workspace.restore(3)  # the dropped edit is not lost
        assert workspace.files.read_bytes(FILE).endswith(BROKEN.encode())


def test_rewinding_to_the_task_restores_the_files_before_the_first_call(workspaces) -> None:
    edit = [("append", {"path": FILE, "text": ADDED})]
    result = agent_of(workspaces, edit, edit).go("Edit twice.")
    workspace = workspace_of(workspaces, result)
    assert rewind(workspace, result.all_messages(), n_messages=1) == result.all_messages()[:1]
    assert ADDED not in workspace.files.read_bytes(FILE).decode()
    n_entries = len(list(workspace.log()))
    rewind(workspace, result.all_messages()[:1], n_messages=1)
    assert len(list(workspace.log())) == n_entries
    with pytest.raises(UsageError, match="-1 messages"):
        rewind(workspace, [], n_messages=-1)


@pytest.mark.behaviour(191)
def test_a_tool_that_raises_leaves_no_trace(workspaces) -> None:
    result = agent_of(workspaces, [("fail", {})]).go("Fail.")
    workspace = workspace_of(workspaces, result)
    assert not workspace.files.exists("trace")
    entry = workspace.head
    assert (entry.tool, entry.outcome) == ("fail", Outcome.ROLLED_BACK)


@pytest.mark.behaviour(191)
def test_two_parallel_edits_of_one_file_are_both_kept(workspaces) -> None:
    edits = [("append", {"path": "notes", "text": text}) for text in ("one\n", "two\n")]
    result = agent_of(workspaces, edits).go("Edit twice at once.")
    workspace = workspace_of(workspaces, result)
    assert sorted(workspace.files.read_text("notes").lines) == ["one", "two"]
    assert [entry.tool for entry in workspace.log()][:2] == ["append", "append"]
    workspace.undo()
    assert len(workspace.files.read_text("notes").lines) == 1


@pytest.mark.behaviour(191)
def test_ctrl_c_leaves_the_state_between_two_calls(workspaces, tmp_path) -> None:
    agent = agent_of(
        workspaces, [("append", {"path": "notes", "text": "kept"})], [("interrupt", {})]
    )
    name, environment = workspaces.create()
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(agent.run("Edit.", workspace=WorkspaceRef(provider="wink", id=name)))
    workspace = environment.workspace
    assert workspace.files.read_bytes("notes") == b"kept"
    assert not workspace.files.exists("trace")
    assert [entry.outcome for entry in workspace.log()][:2] == [
        Outcome.ROLLED_BACK,
        Outcome.COMMITTED,
    ]


class NoNotes(ReadBeforeWritePolicy):
    """Refuses calls of ``append``."""

    def check(self, tool, params, *, context):
        return PolicyDecision.deny("notes are closed") if tool.name == "append" else None


@pytest.mark.parametrize("fails", [False, True])
def test_an_output_function_is_one_call_and_leaves_no_trace_if_it_raises(
    workspaces, *, fails: bool
) -> None:
    async def finish(ctx: RunContext, text: str) -> str:
        await ctx.workspace.write_text(text, "a report")
        if fails and text == "first":
            raise ModelRetry("write it again")
        return f"{text}!"

    turns = [[("final_result", {"text": text})] for text in ("first", "second")]
    agent = ClosingAgent(scripted(*turns), output_type=finish, capabilities=[workspaces])
    result = agent.go("Report.")
    workspace = workspace_of(workspaces, result)
    calls = [(each.tool, each.outcome) for each in workspace.log() if each.tool]
    committed, rolled_back = ("finish", Outcome.COMMITTED), ("finish", Outcome.ROLLED_BACK)
    assert calls == ([committed, rolled_back] if fails else [committed])
    assert result.output == ("second!" if fails else "first!")
    found = [name for name in ("first", "second") if workspace.files.exists(name)]
    assert found == ["second" if fails else "first"]


def test_a_policy_refuses_a_tool_call_and_the_model_gets_the_reason(tmp_path) -> None:
    storage = WorkspaceStorage(tmp_path / "storage")
    source = copy_package(tmp_path)
    with WinkWorkspaces(str(source), storage=storage, policies=[NoNotes()]) as workspaces:
        edit = [("append", {"path": "notes", "text": "x"})]
        result = agent_of(workspaces, edit).go("Edit.")
        assert "notes are closed" in str(result.all_messages()[2])
        assert not workspace_of(workspaces, result).files.exists("notes")


def test_a_run_in_another_workspace_makes_no_entries(workspaces, tmp_path) -> None:
    from pydantic_ai.workspaces import LocalWorkspaceBackend

    (tmp_path / "local").mkdir()
    agent = agent_of(workspaces, [("append", {"path": "notes", "text": "x"})])
    agent.go("Edit.", workspace=LocalWorkspaceBackend(tmp_path / "local"))
    assert (tmp_path / "local" / "notes").read_text() == "x"
    assert list(WorkspaceStorage(tmp_path / "storage").all()) == []


def test_a_backend_attaches_to_a_fork_and_refuses_other_refs(workspaces) -> None:
    name, environment = workspaces.create()
    environment.workspace.fork("try-2")
    fork = workspaces.backend(WorkspaceRef(provider="wink", id=f"{name}/try-2"))
    asyncio.run(fork.write_bytes("/workspace/notes", b"in the fork"))
    assert not environment.workspace.files.exists("notes")
    assert workspaces.get(f"{name}/try-2").workspace.files.exists("notes")
    workspaces.delete(f"{name}/try-2")
    assert environment.workspace.forks() == ()
    with pytest.raises(WorkspaceUnavailableError, match="try-2"):
        asyncio.run(WinkBackend(workspaces, fork.ref).working_dir())
    with pytest.raises(UsageError, match="'docker' is not the provider"):
        workspaces.backend(WorkspaceRef(provider="docker", id="1"))


def test_without_a_source_no_workspace_is_created(tmp_path) -> None:
    with WinkWorkspaces(storage=WorkspaceStorage(tmp_path / "storage")) as workspaces:
        with pytest.raises(UsageError, match="needs a source"):
            asyncio.run(workspaces.backend().working_dir())


def test_commands_that_are_cut_or_cancelled_are_errors_and_leave_no_trace(
    tmp_path, container
) -> None:
    source = copy_package(tmp_path)
    storage = WorkspaceStorage(tmp_path / "storage")
    with WinkWorkspaces(str(source), storage=storage, sandbox=container) as workspaces:
        backend = workspaces.backend()

        async def cancel() -> None:
            command = asyncio.ensure_future(backend.run("echo > trace; sleep 60", shell=True))
            while not await backend.exists("/workspace/trace"):
                await asyncio.sleep(0.01)
            command.cancel()
            with pytest.raises(asyncio.CancelledError):
                await command
            assert not await backend.exists("/workspace/trace")
            assert (await backend.run("! pgrep sleep", shell=True)).exit_code == 0
            with pytest.raises(WorkspaceOutputLimitError, match="10,485,760"):
                await backend.run("head -c 11000000 /dev/zero", shell=True)
            assert (await backend.run(["/etc/passwd"])).exit_code == 126

        asyncio.run(cancel())


def test_reading_outside_of_the_workspace_is_refused(workspaces) -> None:
    backend = workspaces.backend()
    for path in ("/etc/passwd", "/workspace/../etc/passwd", "/"):
        with pytest.raises(ValueError, match="outside"):
            asyncio.run(backend.read_bytes(path))
    assert not asyncio.run(backend.exists("/etc/passwd"))
