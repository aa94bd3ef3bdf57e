"""Agents of the OpenAI Agents SDK in a workspace: each tool call is one entry."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shlex
import signal
import tarfile
from pathlib import Path

import pytest
from agents import Agent, RunConfig, Runner, function_tool
from agents.exceptions import UserError
from agents.run_config import SandboxRunConfig
from agents.sandbox import Manifest, SandboxAgent
from agents.sandbox.entries import File
from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    InvalidManifestPathError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.files import EntryKind
from agents.sandbox.manifest import Environment
from agents.sandbox.snapshot import LocalSnapshotSpec
from agents.testing import ScriptedModel, assistant_message, function_call, scripted_sandbox_session
from openai.types.responses import (
    ResponseApplyPatchToolCall,
    ResponseCustomToolCall,
    ResponseFunctionShellToolCall,
)
from real_package import ADDED, BROKEN, CHECK, FILE, copy_package

from wink_workspace.errors import LedgerError, UsageError
from wink_workspace.integrations.openai_agents import (
    OpenWorkspaces,
    WinkFilesystem,
    WinkSandboxClient,
    WinkSandboxOptions,
    WinkShell,
    WinkSnapshot,
    in_call,
    patch_tool,
    rewind,
    shell_tool,
)
from wink_workspace.session import Outcome
from wink_workspace.workspace import Workspace, WorkspaceStorage


def scripted(*turns):
    """A model with these turns, each a list of tool calls, that ends with a text."""
    return ScriptedModel([*turns, [assistant_message("Done.")]])


def shell(call_id: str, *commands: str, **action) -> ResponseFunctionShellToolCall:
    return ResponseFunctionShellToolCall.model_validate(
        {
            "id": call_id,
            "call_id": call_id,
            "type": "shell_call",
            "status": "completed",
            "action": {"commands": commands, **action},
        }
    )


def patch(call_id: str, **operation) -> ResponseApplyPatchToolCall:
    return ResponseApplyPatchToolCall.model_validate(
        {
            "id": call_id,
            "call_id": call_id,
            "type": "apply_patch_call",
            "status": "completed",
            "operation": operation,
        }
    )


def custom_patch(call_id: str, text: str) -> ResponseCustomToolCall:
    return ResponseCustomToolCall(
        call_id=call_id, name="apply_patch", input=text, type="custom_tool_call"
    )


def call(call_id: str, name: str, **arguments):
    return function_call(name, json.dumps(arguments), call_id=call_id)


def added(text: str) -> str:
    return "".join(f"+{line}\n" for line in text.splitlines())


def run(agent: Agent, message="Edit.", **options):
    return asyncio.run(Runner.run(agent, message, **options))


def outputs_of(items) -> list:
    return [item["output"] for item in items if str(item.get("type")).endswith("_output")]


@pytest.fixture
def workspaces(tmp_path):
    source = copy_package(tmp_path)
    with OpenWorkspaces(source, storage=WorkspaceStorage(tmp_path / "storage")) as workspaces:
        yield workspaces


@pytest.fixture
def workspace(workspaces):
    return workspaces.create()[1].workspace


@pytest.fixture(scope="module")
def boxed(tmp_path_factory, container):
    """Workspaces whose commands run in a container."""
    folder = tmp_path_factory.mktemp("boxed")
    storage = WorkspaceStorage(folder / "storage")
    with OpenWorkspaces(copy_package(folder), storage=storage, sandbox=container) as workspaces:
        yield workspaces


def agent_with_tools(workspace, *turns) -> Agent:
    @function_tool
    async def append(path: str, text: str) -> str:
        before = workspace.files.read_bytes(path) if workspace.files.exists(path) else b""
        await asyncio.sleep(0)
        workspace.files.write_bytes(path, before + text.encode())
        return "appended"

    @function_tool
    async def fail() -> str:
        workspace.files.write_bytes("trace", b"of a tool that raises")
        raise ValueError("it failed")

    @function_tool
    async def interrupt() -> str:
        workspace.files.write_bytes("trace", b"of a tool that was interrupted")
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)
        return "late"

    tools = [in_call(workspace, tool) for tool in (append, fail, interrupt)]
    return Agent("Editor", model=scripted(*turns), tools=tools)


# The SDK's own tools


@pytest.mark.behaviour(191)
def test_an_agent_breaks_a_package_goes_back_in_chat_and_files_and_ends_right(boxed) -> None:
    _, environment = boxed.create()
    workspace = environment.workspace
    tools = [shell_tool(environment), patch_tool(environment)]
    check = shlex.join(CHECK)

    end = workspace.files.read_bytes(FILE).decode().splitlines()[-1]
    good = patch("1", type="update_file", path=FILE, diff=f"@@\n {end}\n{added(ADDED)}")
    bad_diff = f"@@\n     message = 'added by an agent'\n{added(BROKEN)}"
    bad = patch("2", type="update_file", path=f"/workspace/{FILE}", diff=bad_diff)
    model = scripted([good], [bad], [shell("3", check)])
    result = run(Agent("Editor", model=model, tools=tools))
    items = result.to_input_list()
    assert [each[0]["outcome"]["exit_code"] for each in outputs_of(items)[2:]] == [1]
    assert workspace.files.read_bytes(FILE).endswith(BROKEN.encode())
    kept = rewind(workspace, items, n_items=3)  # the task, a call, its output
    assert workspace.files.read_bytes(FILE).endswith(ADDED.encode())
    model = scripted([shell("4", check)])
    second = run(Agent("Editor", model=model, tools=tools), kept)
    assert outputs_of(second.to_input_list())[-1][0]["outcome"]["exit_code"] == 0
    subjects = [entry.subject.partition(":")[0] for entry in workspace.log()]
    assert subjects[:5] == ["shell", "restore of entry 2", "shell", "apply_patch", "apply_patch"]


@pytest.mark.behaviour(191)
def test_a_tool_that_raises_leaves_no_trace_and_the_model_gets_the_error(workspace) -> None:
    result = run(agent_with_tools(workspace, [call("1", "fail")]))
    assert "An error occurred" in outputs_of(result.to_input_list())[0]
    assert not workspace.files.exists("trace")
    entry = workspace.head
    assert (entry.tool, entry.outcome, entry.call_id) == ("fail", Outcome.ROLLED_BACK, "1")


@pytest.mark.behaviour(191)
def test_two_parallel_edits_of_one_file_are_both_kept(workspace) -> None:
    edits = [call(text, "append", path="notes", text=f"{text}\n") for text in ("one", "two")]
    run(agent_with_tools(workspace, edits))
    assert sorted(workspace.files.read_text("notes").lines) == ["one", "two"]
    assert [entry.tool for entry in workspace.log()][:2] == ["append", "append"]
    workspace.undo()
    assert len(workspace.files.read_text("notes").lines) == 1


@pytest.mark.behaviour(191)
def test_ctrl_c_leaves_the_state_between_two_calls(workspace) -> None:
    turns = [call("1", "append", path="notes", text="kept")], [call("2", "interrupt")]
    with pytest.raises(KeyboardInterrupt):
        run(agent_with_tools(workspace, *turns))
    assert workspace.files.read_bytes("notes") == b"kept"
    assert not workspace.files.exists("trace")
    outcomes = [entry.outcome for entry in workspace.log()][:2]
    assert outcomes == [Outcome.ROLLED_BACK, Outcome.COMMITTED]


def test_a_tool_keeps_its_own_handling_of_errors(workspace) -> None:
    @function_tool(failure_error_function=lambda context, error: f"told: {error}")
    async def fail() -> str:
        workspace.files.write_bytes("trace", b"")
        raise ValueError("it failed")

    @function_tool(failure_error_function=None)
    async def end_the_run() -> str:
        raise ValueError("it ended")

    tools = [in_call(workspace, fail), in_call(workspace, end_the_run)]
    model = scripted([call("1", "fail")], [call("2", "end_the_run")])
    with pytest.raises(UserError, match="it ended"):
        run(Agent("Editor", model=model, tools=tools))
    assert "told: it failed" in str(model.last_call.input)
    assert [entry.outcome for entry in workspace.log()][:2] == [Outcome.ROLLED_BACK] * 2
    assert not workspace.files.exists("trace")


def test_all_commands_of_a_shell_call_are_one_entry_and_a_time_limit_undoes_them(boxed) -> None:
    _, environment = boxed.create()
    workspace = environment.workspace
    turns = (
        [shell("0", "head -c 11000000 /dev/zero | tr '\\0' x")],
        [shell("1", "echo one > a", "echo two > b; exit 3", max_output_length=100)],
        [shell("2", "echo > trace", "sleep 60", "echo never", timeout_ms=500)],
    )
    result = run(Agent("Editor", model=scripted(*turns), tools=[shell_tool(environment)]))
    outputs = outputs_of(result.to_input_list())
    assert "bytes left out" in outputs.pop(0)[0]["stdout"]
    assert [each["outcome"] for each in outputs[0]] == [
        {"type": "exit", "exit_code": 0},
        {"type": "exit", "exit_code": 3},
    ]
    assert [each["outcome"]["type"] for each in outputs[1]] == ["exit", "timeout"]
    assert "its changes were undone" in outputs[1][1]["stderr"]
    assert not workspace.files.exists("trace")
    assert workspace.files.exists("a")
    outcomes = [entry.outcome for entry in workspace.log()][:3]
    assert outcomes == [Outcome.ROLLED_BACK, Outcome.COMMITTED, Outcome.COMMITTED]
    assert workspace.undo().target == 3
    assert not workspace.files.exists("a")
    assert not workspace.files.exists("b")


def test_a_patch_for_one_file_cannot_change_another(workspaces) -> None:
    _, environment = workspaces.create()
    workspace = environment.workspace
    before = workspace.files.fingerprint()
    diffs = (
        f"+new\n*** Delete File: {FILE}\n",
        f"+new\n*** End Patch\n*** Begin Patch\n*** Delete File: {FILE}\n",
    )
    turns = [[patch(str(n), type="create_file", path="new", diff=d)] for n, d in enumerate(diffs)]
    turns += [
        [patch("8", type="delete_file", path=f"missing\n*** Delete File: {FILE}")],
        [patch("9", type="delete_file", path="/etc/passwd")],
    ]
    result = run(Agent("Editor", model=scripted(*turns), tools=[patch_tool(environment)]))
    assert workspace.files.fingerprint() == before
    statuses = [item.get("status") for item in result.to_input_list() if "status" in item]
    assert statuses.count("failed") == 4


def test_a_patch_creates_moves_and_deletes_files_and_each_can_be_undone(workspaces) -> None:
    _, environment = workspaces.create()
    workspace = environment.workspace
    asked = []

    def needs_approval(context, operation, call_id):
        asked.append(call_id)
        return False

    update = {"path": "a/new.txt", "diff": "@@\n-one\n+two\n", "move_to": "a/b/moved.txt"}
    turns = (
        [patch("1", type="create_file", path="a/new.txt", diff="+one\n")],
        [patch("2", type="update_file", **update)],
        [patch("3", type="delete_file", path="a/b/moved.txt")],
    )
    tool = patch_tool(environment, needs_approval=needs_approval)
    run(Agent("Editor", model=scripted(*turns), tools=[tool]))
    assert asked == ["1", "2", "3"]
    assert not workspace.files.exists("a")
    workspace.undo()
    assert workspace.files.read_bytes("a/b/moved.txt") == b"two\n"
    workspace.undo()
    assert workspace.files.read_bytes("a/new.txt") == b"one\n"


def test_rewinding_a_conversation_without_calls_changes_nothing(workspace) -> None:
    result = run(agent_with_tools(workspace))
    assert rewind(workspace, result.to_input_list(), n_items=1) == result.to_input_list()[:1]
    assert workspace.head.number == 1
    with pytest.raises(UsageError, match="-1 items"):
        rewind(workspace, [], n_items=-1)


# Sandbox agents


def sandbox_agent(*turns, **options) -> SandboxAgent:
    return SandboxAgent(
        "Editor",
        model=scripted(*turns),
        capabilities=[WinkFilesystem(), WinkShell()],
        base_instructions="You edit.",
        **options,
    )


def config_of(client, **options) -> RunConfig:
    return RunConfig(sandbox=SandboxRunConfig(client=client, **options))


def patch_text(*sections: str) -> str:
    return "\n".join(("*** Begin Patch", *sections, "*** End Patch"))


@pytest.mark.behaviour(191)
def test_a_sandbox_agent_edits_runs_and_is_resumed_from_an_older_state(boxed) -> None:
    name, environment = boxed.create()
    workspace = environment.workspace
    client = WinkSandboxClient(boxed)
    check = shlex.join(CHECK)
    two_files = patch_text("*** Add File: a.txt", "+a", "*** Add File: b.txt", "+b")
    half = patch_text("*** Add File: c.txt", "+c", "*** Update File: missing", "@@", "-x", "+y")
    agent = sandbox_agent(
        [custom_patch("1", two_files)],
        [custom_patch("2", half)],
        [call("3", "exec_command", cmd=f"printf %s {shlex.quote(ADDED)} >> {FILE}; {check}")],
    )
    config = config_of(client, options=WinkSandboxOptions(workspace=name))
    first = run(agent, run_config=config)
    assert "Process exited with code 0" in outputs_of(first.to_input_list())[2], first
    assert not workspace.files.exists("c.txt")
    entries = [(entry.tool, entry.outcome) for entry in workspace.log()][:3]
    assert entries == [
        ("exec_command", Outcome.COMMITTED),
        ("apply_patch", Outcome.ROLLED_BACK),
        ("apply_patch", Outcome.COMMITTED),
    ]
    state = first.to_state().to_json()
    n_entries = workspace.head.number
    broken = sandbox_agent([call("4", "exec_command", cmd="rm a.txt; exit 7")])
    run(broken, run_config=config)
    assert not workspace.files.exists("a.txt")
    payload = state["sandbox"]["session_state"]
    assert payload["snapshot"]["entry"], payload
    older = client.deserialize_session_state(payload)
    again = sandbox_agent([call("5", "exec_command", cmd="cat a.txt")])
    third = run(again, run_config=config_of(client, session_state=older))
    assert "a" in outputs_of(third.to_input_list())[0]
    assert workspace.files.exists("a.txt")
    assert workspace.head.number == n_entries + 3  # rm, the restore, cat


def session_in(workspaces, **options):
    async def create():
        return await WinkSandboxClient(workspaces).create(**options)

    return asyncio.run(create())


def test_a_session_has_the_files_of_its_manifest_in_one_entry(workspaces, monkeypatch) -> None:
    manifest = Manifest(entries={"notes/today.md": File(content=b"Hello"), "x": File(content=b"")})

    async def go():
        session = await WinkSandboxClient(workspaces).create(manifest=manifest)
        async with session:
            assert await session.running()
            stream = await session.read(Path("notes/today.md"))
            assert stream.read() == b"Hello"
        assert not await session.running()
        return workspaces.get(session.state.workspace).workspace

    workspace = asyncio.run(go())
    assert [entry.tool for entry in workspace.log()][:-1] == ["start a sandbox session"]


def test_files_of_a_session(workspaces) -> None:
    async def go():
        session = await WinkSandboxClient(workspaces).create()
        async with session:
            await session.mkdir("a/b", parents=True)
            await session.write(Path("/workspace/a/one"), io.BytesIO(b"1"))
            await session.write(Path("a/text"), io.StringIO("é"))
            await session.mv("a/one", "a/b/two")
            listed = {each.path: each for each in await session.ls("a")}
            assert set(listed) == {"/workspace/a/b", "/workspace/a/text"}
            assert listed["/workspace/a/b"].kind is EntryKind.DIRECTORY
            assert listed["/workspace/a/b"].is_dir()
            assert listed["/workspace/a/text"].size == 2
            assert [each.path for each in await session.ls("a/text")] == ["/workspace/a/text"]
            assert await session.same_file("a/text", "/workspace/a/../a/text")
            assert not await session.same_file("a/text", "a/b/two")
            assert await session.same_file("a/text", "a/text", follow_symlinks=False)
            assert not await session.same_file("a/none", "a/none")
            await session.rm("a/none", recursive=True)
            with pytest.raises(FileNotFoundError):
                await session.rm("a/none")
            await session.rm("a", recursive=True)
            with pytest.raises(WorkspaceReadNotFoundError):
                await session.read(Path("a/text"))
            with pytest.raises(InvalidManifestPathError, match="escape"):
                await session.read(Path("../etc/passwd"))
            with pytest.raises(UsageError, match="no user 'root'"):
                await session.read(Path("x"), user="root")
        return workspaces.get(session.state.workspace).workspace

    workspace = asyncio.run(go())
    tools = [entry.tool for entry in workspace.log()][::-1][1:]
    assert tools == ["mkdir", "write", "write", "mv", "rm", "rm", "rm"]


def test_a_command_that_is_stopped_is_an_error_and_leaves_no_trace(boxed) -> None:
    async def go():
        manifest = Manifest(environment=Environment(value={"GREETING": "hi"}))
        session = await WinkSandboxClient(boxed).create(manifest=manifest)
        async with session:
            assert (await session.exec("echo $GREETING")).stdout == b"hi\n"
            with pytest.raises(ExecTimeoutError):
                await session.exec("echo > trace; sleep 60", timeout=0.5)
            result = await session.exec("/no/such/program", shell=False)
            assert (result.exit_code, b"/no/such" in result.stderr) == (127, True)
            result = await session.exec("echo out; echo err >&2; kill -9 $$")
            assert (result.stdout, result.stderr) == (b"out\n", b"err\n")
            assert result.exit_code == 137
            cut = await session.exec("head -c 11000000 /dev/zero | tr '\\0' x")
            assert b"bytes left out" in cut.stdout
            with pytest.raises(ExecTransportError):
                await session.exec("tail -c 3000000000 /dev/zero")
            assert not await session.same_file("trace", "trace")

    asyncio.run(go())


def test_a_snapshot_of_another_kind_is_an_archive_that_a_session_unpacks(
    workspaces, tmp_path
) -> None:
    snapshot = LocalSnapshotSpec(base_path=tmp_path / "snapshots")

    async def go():
        client = WinkSandboxClient(workspaces)
        session = await client.create(snapshot=snapshot)
        async with session:
            files = workspaces.get(session.state.workspace).workspace.files
            files.write_bytes("run.sh", b"#!/bin/sh\n")
            files.set_executable("run.sh", True)
            files.symlink("link", "run.sh")
        [archive] = (tmp_path / "snapshots").iterdir()
        with tarfile.open(archive) as opened:
            assert "run.sh" in opened.getnames()
        other = await client.create(snapshot=session.state.snapshot)
        async with other:
            files = workspaces.get(other.state.workspace).workspace.files
            assert files.stat("run.sh").executable
            assert files.stat("link", follow=False).target == "run.sh"
            assert files.exists(FILE)

    asyncio.run(go())


@pytest.mark.parametrize("name", ["../escape", "/etc/escape"])
def test_an_archive_cannot_write_outside_of_the_workspace(workspaces, name) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("inside"))
        archive.addfile(tarfile.TarInfo(name))
    stream.seek(0)
    session = session_in(workspaces)
    with pytest.raises(UsageError, match="path"):
        asyncio.run(session.hydrate_workspace(stream))
    assert not workspaces.get(session.state.workspace).workspace.files.exists("inside")


def test_an_archive_has_files_directories_and_links_only(workspaces) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        member = tarfile.TarInfo("pipe")
        member.type = tarfile.FIFOTYPE
        archive.addfile(member)
    stream.seek(0)
    with pytest.raises(UsageError, match="pipe in the archive"):
        asyncio.run(session_in(workspaces).hydrate_workspace(stream))


def test_the_files_of_a_session_are_at_one_path(workspaces) -> None:
    with pytest.raises(UsageError, match="cannot be at /srv"):
        session_in(workspaces, manifest=Manifest(root="/srv"))


def test_our_capabilities_and_snapshots_need_our_sessions() -> None:
    shell = WinkShell()
    shell.bind(scripted_sandbox_session([]))
    with pytest.raises(UsageError, match="needs a session in a workspace"):
        shell.tools()
    for work in (WinkSnapshot(id="1").restore(), WinkSnapshot(id="1").persist(io.BytesIO())):
        with pytest.raises(UsageError, match="is an entry of a workspace"):
            asyncio.run(work)


def test_a_command_of_a_sandbox_agent_that_reaches_its_time_limit_is_undone(boxed) -> None:
    name, environment = boxed.create()
    slow = call("1", "exec_command", cmd="echo > trace; sleep 60", yield_time_ms=300)
    config = config_of(WinkSandboxClient(boxed), options=WinkSandboxOptions(workspace=name))
    result = run(sandbox_agent([slow]), run_config=config)
    assert "timed out" in outputs_of(result.to_input_list())[0]
    assert environment.workspace.head.outcome is Outcome.ROLLED_BACK
    assert not environment.workspace.files.exists("trace")


def test_the_calls_of_an_agent_that_is_a_tool_are_a_part_of_its_call(boxed) -> None:
    _, environment = boxed.create()
    workspace = environment.workspace
    inner = agent_with_tools(workspace)
    inner.tools = [*inner.tools, shell_tool(environment), patch_tool(environment)]
    steps = [
        [call("2", "append", path="notes", text="inner")],
        [shell("3", "echo shell > shell.txt")],
        [patch("4", type="create_file", path="patch.txt", diff="+patch\n")],
        [assistant_message("Done.")],
    ]
    inner.model = ScriptedModel(steps)
    tool = in_call(workspace, inner.as_tool("delegate", "Delegates."))
    run(Agent("Outer", model=scripted([call("1", "delegate", input="Edit.")]), tools=[tool]))
    assert [entry.tool for entry in workspace.log()][:-1] == ["delegate"]
    assert all(map(workspace.files.exists, ("notes", "shell.txt", "patch.txt")))
    workspace.undo()
    assert not any(map(workspace.files.exists, ("notes", "shell.txt", "patch.txt")))


def test_workspace_whose_edits_cannot_be_committed_can_be_deleted_later(
    tmp_path, workspaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Workspace) -> None:
        raise LedgerError("an object cannot be written")

    name, _ = workspaces.create()
    with monkeypatch.context() as patched:
        patched.setattr(Workspace, "commit_edits", fail)
        with pytest.raises(LedgerError, match="cannot be written"):
            workspaces.delete(name)
    assert workspaces.get(name).workspace.info.id == name
    workspaces.delete(name)
    assert list(WorkspaceStorage(tmp_path / "storage").all()) == []
