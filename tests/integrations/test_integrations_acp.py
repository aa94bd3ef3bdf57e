"""An editor drives our agent with the client side of the protocol's own package."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyflakes
import pytest
from acp import Client, RequestError, connect_to_agent, run_agent
from acp.agent.connection import AgentSideConnection
from acp.helpers import image_block, text_block
from acp.schema import (
    AllowedOutcome,
    DeniedOutcome,
    EnvVariable,
    McpServerStdio,
    RequestPermissionResponse,
    SseMcpServer,
)
from acp.stdio import spawn_agent_process
from cli_user import RUNNER

from wink_workspace.adapters import ModelTurn, ProviderAdapter, ScriptedAdapter
from wink_workspace.integrations.acp import AcpAgent, AcpHost
from wink_workspace.ledger import EntryKind
from wink_workspace.prompt import (
    MarkdownSection,
    Section,
    Tool,
    ToolAnnotations,
    ToolContext,
    ToolResult,
)
from wink_workspace.runtime import ToolCall
from wink_workspace.session import Outcome
from wink_workspace.workspace import Workspace, WorkspaceStorage
from wink_workspace.workspace.runs.task_run import run_prompt

SERVER = Path(__file__).parents[1] / "mcp_client" / "foreign_server.py"
READ = ToolCall("read_file", file_path="app.py")


def write(path: str, content: str) -> ToolCall:
    return ToolCall("write_file", file_path=path, content=content)


class Editor(Client):
    """A client that notes what it gets, and answers permissions as its test says."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self.answers: list[str | None] = []
        self.on_ask: Callable[[], Coroutine[Any, Any, None]] | None = None

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Any, **_: Any
    ) -> RequestPermissionResponse:
        self.asked.append(tool_call)
        if self.on_ask is not None:
            await self.on_ask()
            await asyncio.Event().wait()
        answer = self.answers.pop(0) if self.answers else "reject"
        if answer is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(
            outcome=AllowedOutcome(outcome="selected", option_id=answer)
        )

    async def received(self) -> None:
        """Wait until what was sent before is handled: the library starts a task for each."""
        while "acp.Connection.notification" in [each.get_name() for each in asyncio.all_tasks()]:
            await asyncio.sleep(0)

    def texts(self, kind: str) -> list[str]:
        return [each.content.text for each in self.updates if each.session_update == kind]

    def of(self, kind: str) -> list[Any]:
        return [each for each in self.updates if each.session_update == kind]


class Desktop:
    """A directory, an agent over it, and the editor that drives it."""

    def __init__(self, folder: Path) -> None:
        self.source = folder / "source"
        self.source.mkdir()
        (self.source / "app.py").write_text("one = 1\n")
        self.storage = WorkspaceStorage(folder / "storage")
        self.editor = Editor()
        self.turns: list[ModelTurn] = []
        self.sections: Callable[[], Sequence[Section[None]]] = tuple

    def play(self, *turns: ModelTurn | str | Sequence[ToolCall]) -> None:
        for turn in turns:
            match turn:
                case str():
                    self.turns.append(ModelTurn(turn))
                case ModelTurn():
                    self.turns.append(turn)
                case _:
                    self.turns.append(ModelTurn(tool_calls=list(turn)))

    def host(self) -> AcpHost:
        @contextmanager
        def adapter(on_text: Callable[[str], None]) -> Iterator[ProviderAdapter[None]]:
            played = ScriptedAdapter[None](self.turns)
            yield played
            del self.turns[: len(self.turns) - played.n_left]

        def prompt(workspace: Workspace, task: str, more: Sequence[Section[None]]) -> Any:
            return run_prompt(workspace, task, (), more)

        return AcpHost(
            storage=self.storage, adapter=adapter, prompt=prompt, sections=lambda: self.sections()
        )

    def run(self, scenario: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        """Run *scenario* with a connection to a new agent."""

        async def main() -> None:
            ours, theirs = socket.socketpair()
            agent = AcpAgent(self.host())
            reader, to_client = await asyncio.open_connection(sock=ours)
            serving = asyncio.create_task(
                run_agent(agent, to_client, reader, use_unstable_protocol=True)
            )
            reader, to_agent = await asyncio.open_connection(sock=theirs)
            client = connect_to_agent(self.editor, to_agent, reader, use_unstable_protocol=True)
            try:
                await client.initialize(protocol_version=1)
                await asyncio.wait_for(scenario(client), 60)
                await self.editor.received()
            finally:
                await client.close()
                await agent.close()
                serving.cancel()
                await asyncio.wait([serving])
                for writer in (to_client, to_agent):
                    writer.close()
                    with suppress(OSError):
                        await writer.wait_closed()

        asyncio.run(main())

    def text(self, path: str = "app.py") -> str:
        return (self.source / path).read_text()


@pytest.fixture
def desktop(tmp_path: Path) -> Desktop:
    return Desktop(tmp_path)


def message(text: str) -> list[Any]:
    return [text_block(text)]


@pytest.mark.behaviour(196)
def test_session_is_a_branch_and_changes_are_applied_only_when_the_user_allows_it(
    desktop: Desktop,
) -> None:
    async def scenario(client: Any) -> None:
        session = await client.new_session(cwd=str(desktop.source), mcp_servers=[])
        desktop.play([READ, write("app.py", "one = 2\n")], "Changed.")
        desktop.editor.answers = ["reject"]
        answer = await client.prompt(session_id=session.session_id, prompt=message("Change it."))
        assert answer.stop_reason == "end_turn"
        assert desktop.text() == "one = 1\n"
        desktop.play("Nothing more.")
        desktop.editor.answers = ["allow"]
        await client.prompt(session_id=session.session_id, prompt=message("Go on."))
        assert desktop.text() == "one = 2\n"

    desktop.run(scenario)
    editor = desktop.editor
    assert editor.texts("agent_message_chunk") == ["Changed.", "Nothing more."]
    started = [each.title for each in editor.of("tool_call")]
    assert started[:2] == ["read_file app.py", "write_file app.py"]
    assert f"Apply 1 changed paths to {desktop.source}" in started
    (diff,) = [each for each in editor.asked[0].content if each.type == "diff"]
    assert (diff.path, diff.old_text, diff.new_text) == (
        str(desktop.source / "app.py"),
        "one = 1\n",
        "one = 2\n",
    )


def test_message_is_answered_although_an_update_cannot_be_sent(
    desktop: Desktop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    send, is_first = AgentSideConnection.session_update, iter([True])

    async def fail_first(self: Any, session_id: str, update: Any, **more: Any) -> None:
        if next(is_first, False):
            raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")
        await send(self, session_id, update, **more)

    async def scenario(client: Any) -> None:
        session = await client.new_session(cwd=str(desktop.source), mcp_servers=[])
        monkeypatch.setattr(AgentSideConnection, "session_update", fail_first)
        desktop.play([READ], "Done.")
        answer = await client.prompt(session_id=session.session_id, prompt=message("Read it."))
        assert answer.stop_reason == "end_turn"

    desktop.run(scenario)
    assert desktop.editor.texts("agent_message_chunk") == ["Done."]
    assert "surrogates not allowed" in caplog.text


@pytest.mark.behaviour(198)
def test_agent_edits_a_package_breaks_it_goes_back_and_ends_right(desktop: Desktop) -> None:
    """Chat and files are rewound together, also for a later process that loads the session."""
    shutil.copytree(Path(pyflakes.__file__).parent, desktop.source / "pyflakes")
    seen: list[str] = []

    async def scenario(client: Any) -> None:
        session = await client.new_session(cwd=str(desktop.source), mcp_servers=[])
        seen.append(session.session_id)
        for text, turn in (
            ("Add it.", [write("pyflakes/extra.py", "GOOD = True\n")]),
            ("Break it.", [write("pyflakes/bad.py", "broken(")]),
        ):
            desktop.play(turn, "Done.")
            await client.prompt(session_id=session.session_id, prompt=message(text))
        await client.ext_method("wink/rewind", {"sessionId": session.session_id, "prompts": 1})

    desktop.run(scenario)
    (session_id,) = seen

    async def later(client: Any) -> None:
        desktop.editor.updates.clear()
        await client.load_session(cwd=str(desktop.source), session_id=session_id, mcp_servers=[])
        await desktop.editor.received()
        assert desktop.editor.texts("user_message_chunk") == ["Add it."]
        assert desktop.editor.texts("agent_message_chunk") == ["Done."]
        assert [each.title for each in desktop.editor.of("tool_call")] == ["write_file"]
        desktop.play([write("right.py", "")], "Right.")
        desktop.editor.answers = ["allow"]
        await client.prompt(session_id=session_id, prompt=message("Now right."))

    desktop.run(later)
    assert desktop.text("pyflakes/extra.py") == "GOOD = True\n"
    assert desktop.text("right.py") == ""
    assert not (desktop.source / "pyflakes" / "bad.py").exists()
    with Workspace.open(session_id, storage=desktop.storage) as workspace:
        kinds = [entry.kind for entry in workspace.log()]
    assert kinds[:2] == [EntryKind.CALL, EntryKind.RESTORE]


@pytest.mark.behaviour(196)
def test_fork_has_the_chat_and_files_so_far_and_goes_its_own_way(desktop: Desktop) -> None:
    async def scenario(client: Any) -> None:
        cwd = str(desktop.source)
        first = await client.new_session(cwd=cwd, mcp_servers=[])
        desktop.play([write("a", "1")], "One.")
        await client.prompt(session_id=first.session_id, prompt=message("First."))
        fork = await client.fork_session(session_id=first.session_id, cwd=cwd, mcp_servers=[])
        assert fork.session_id == f"{first.session_id}/chat-1"
        desktop.play([write("b", "2")], "Two.")
        await client.prompt(session_id=fork.session_id, prompt=message("Second."))
        desktop.editor.updates.clear()
        await client.load_session(cwd=cwd, session_id=fork.session_id, mcp_servers=[])
        await desktop.editor.received()
        assert desktop.editor.texts("user_message_chunk") == ["First.", "Second."]
        await client.close_session(session_id=fork.session_id)
        desktop.editor.updates.clear()
        await client.load_session(cwd=cwd, session_id=first.session_id, mcp_servers=[])
        await desktop.editor.received()
        assert desktop.editor.texts("user_message_chunk") == ["First."]
        with Workspace.open(
            first.session_id, branch="chat-1", storage=desktop.storage
        ) as workspace:
            assert workspace.files.exists("a")
            assert workspace.files.exists("b")

    desktop.run(scenario)


def test_plan_is_sent_as_a_plan(desktop: Desktop) -> None:
    async def scenario(client: Any) -> None:
        session = await client.new_session(cwd=str(desktop.source), mcp_servers=[])
        plan = ToolCall("planning_setup_plan", objective="All", initial_steps=["one", "two"])
        desktop.play([plan], "Done.")
        await client.prompt(session_id=session.session_id, prompt=message("Plan."))

    desktop.run(scenario)
    (plan,) = desktop.editor.of("plan")
    assert [(each.content, each.status) for each in plan.entries] == [
        ("one", "pending"),
        ("two", "pending"),
    ]


# Permissions


def outside(handle: Callable[[], object]) -> Callable[[], Sequence[Section[None]]]:
    """A section with a tool that reaches beyond the workspace."""

    def handler(params: None, *, context: ToolContext) -> ToolResult[None]:
        handle()
        return ToolResult.ok(None, "sent")

    tool = Tool[None, None](
        name="send",
        description="Sends.",
        handler=handler,
        annotations=ToolAnnotations(open_world=True),
    )
    return lambda: [MarkdownSection[None](title="Outside", template="", tools=[tool])]


@pytest.mark.behaviour(197)
@pytest.mark.parametrize(
    ("answers", "n_asked", "n_sent"),
    [
        (["allow", "allow"], 2, 2),
        (["always"], 1, 2),
        (["reject", "allow"], 2, 1),
        ([None, None], 2, 0),
    ],
)
def test_user_is_asked_before_a_call_that_reaches_beyond_the_workspace(
    desktop: Desktop, answers: list[str | None], n_asked: int, n_sent: int
) -> None:
    sent: list[int] = []
    desktop.sections = outside(lambda: sent.append(1))

    async def scenario(client: Any) -> None:
        session = await client.new_session(cwd=str(desktop.source), mcp_servers=[])
        desktop.editor.answers = list(answers)
        desktop.play([ToolCall("send")], [ToolCall("send")], "Done.")
        await client.prompt(session_id=session.session_id, prompt=message("Send."))

    desktop.run(scenario)
    assert [each.title for each in desktop.editor.asked] == ["Allow send?"] * n_asked
    assert len(sent) == n_sent


@pytest.mark.behaviour(197)
def test_servers_of_the_client_are_sections_and_need_permission(desktop: Desktop) -> None:
    async def scenario(client: Any) -> None:
        server = McpServerStdio(
            name="My Server",
            command=sys.executable,
            args=["-I", str(SERVER), "plain", str(desktop.source.parent / "journal")],
            env=[EnvVariable(name="GIVEN", value="yes")],
        )
        session = await client.new_session(cwd=str(desktop.source), mcp_servers=[server])
        desktop.editor.answers = ["allow"]
        desktop.play([ToolCall("my-server__echo", text="hi")], "Done.")
        await client.prompt(session_id=session.session_id, prompt=message("Echo."))

    desktop.run(scenario)
    assert [each.title for each in desktop.editor.asked] == ["Allow my-server__echo?"]
    assert (desktop.source.parent / "journal").read_text() == "start\ncall hi\n"


# Cancelling and failing


@pytest.mark.behaviour(198)
def test_cancel_leaves_a_state_between_two_calls_and_the_chat_goes_on(desktop: Desktop) -> None:
    seen: list[str] = []

    async def scenario(client: Any) -> None:
        session = await client.new_session(cwd=str(desktop.source), mcp_servers=[])
        seen.append(session.session_id)

        async def cancel() -> None:
            await client.cancel(session_id=session.session_id)

        desktop.sections = outside(lambda: None)
        desktop.editor.on_ask = cancel
        desktop.play([write("kept", "1"), ToolCall("send"), write("never", "2")])
        answer = await client.prompt(session_id=session.session_id, prompt=message("Go."))
        assert answer.stop_reason == "cancelled"
        desktop.editor.on_ask = None
        desktop.play("Still here.")
        answer = await client.prompt(session_id=session.session_id, prompt=message("Go on."))
        assert answer.stop_reason == "end_turn"

    desktop.run(scenario)
    with Workspace.open(seen[0], storage=desktop.storage) as workspace:
        assert workspace.files.exists("kept")
        assert not workspace.files.exists("never")
        calls = [each.outcome for each in workspace.log() if each.kind is EntryKind.CALL]
    assert calls == [Outcome.ROLLED_BACK, Outcome.ROLLED_BACK, Outcome.COMMITTED]
    assert not (desktop.source / "kept").exists()


def test_call_that_raises_leaves_no_trace(desktop: Desktop) -> None:
    seen: list[str] = []

    def fail() -> None:
        raise ValueError("no")

    async def scenario(client: Any) -> None:
        session = await client.new_session(cwd=str(desktop.source), mcp_servers=[])
        seen.append(session.session_id)
        desktop.sections = outside(fail)
        desktop.editor.answers = ["allow"]
        desktop.play([ToolCall("send")], "Done.")
        await client.prompt(session_id=session.session_id, prompt=message("Send."))

    desktop.run(scenario)
    assert "failed" in [each.status for each in desktop.editor.of("tool_call_update")]
    with Workspace.open(seen[0], storage=desktop.storage) as workspace:
        assert workspace.head.outcome is Outcome.ROLLED_BACK


@pytest.mark.behaviour(196)
def test_conflict_with_an_edit_of_the_user_changes_nothing(desktop: Desktop) -> None:
    async def scenario(client: Any) -> None:
        session = await client.new_session(cwd=str(desktop.source), mcp_servers=[])
        desktop.play([READ, write("app.py", "one = 2\n")], "Changed.")
        (desktop.source / "app.py").write_text("one = 3\n")
        desktop.editor.answers = ["allow"]
        await client.prompt(session_id=session.session_id, prompt=message("Change it."))

    desktop.run(scenario)
    assert desktop.text() == "one = 3\n"
    assert "Nothing was applied" in desktop.editor.texts("agent_message_chunk")[-1]


def test_request_that_makes_no_sense_is_refused_with_the_reason(desktop: Desktop) -> None:
    async def refused(work: Coroutine[Any, Any, Any], reason: str) -> None:
        with pytest.raises(RequestError) as caught:
            await work
        assert reason in json.dumps([str(caught.value), caught.value.data])

    async def scenario(client: Any) -> None:
        cwd = str(desktop.source)
        await refused(client.new_session(cwd="relative", mcp_servers=[]), "absolute path")
        sse = SseMcpServer(type="sse", name="s", url="http://127.0.0.1:9/", headers=[])
        await refused(client.new_session(cwd=cwd, mcp_servers=[sse]), "not supported")
        await refused(client.prompt(session_id="x", prompt=message("a")), "no open session")
        session = await client.new_session(cwd=cwd, mcp_servers=[])
        prompt = client.prompt
        await refused(prompt(session_id=session.session_id, prompt=message(" ")), "empty")
        image = [image_block("aGk=", "image/png")]
        await refused(prompt(session_id=session.session_id, prompt=image), "not text")
        rewind = {"sessionId": session.session_id}
        await refused(client.ext_method("wink/rewind", rewind), "only 0 messages")
        rewind["prompts"] = 0  # type: ignore[assignment]
        await refused(client.ext_method("wink/rewind", rewind), "at least 1")
        await refused(client.ext_method("other", {}), "other")
        await client.close_session(session_id=session.session_id)
        load = client.load_session(
            cwd=str(desktop.source.parent), session_id=session.session_id, mcp_servers=[]
        )
        await refused(load, "no workspace")

    desktop.run(scenario)
    assert list(desktop.storage.all()) == [], "a session that was not used leaves no workspace"


def test_session_of_another_directory_is_refused(desktop: Desktop) -> None:
    async def scenario(client: Any) -> None:
        session = await client.new_session(cwd=str(desktop.source), mcp_servers=[])
        desktop.play([write("a", "1")], "One.")
        await client.prompt(session_id=session.session_id, prompt=message("First."))
        await client.close_session(session_id=session.session_id)
        with pytest.raises(RequestError):
            await client.load_session(
                cwd=str(desktop.source.parent), session_id=session.session_id, mcp_servers=[]
            )

    desktop.run(scenario)


def test_command_serves_an_editor_over_standard_streams(desktop: Desktop, tmp_path: Path) -> None:
    script = tmp_path / "turns.jsonl"
    call = {"name": "write_file", "arguments": {"file_path": "made.txt", "content": "Hi"}}
    script.write_text(json.dumps({"tool_calls": [call]}) + "\n" + json.dumps({"text": "Done."}))
    editor = desktop.editor
    editor.answers = ["allow"]

    async def main() -> None:
        command = [
            str(Path(sys.executable).with_name("wink-workspace")),
            "acp",
            "--sandbox",
            "none",
        ]
        async with spawn_agent_process(
            editor,
            *command,
            "--script",
            str(script),
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
        ) as (client, process):
            await client.initialize(protocol_version=1)
            session = await client.new_session(cwd=str(desktop.source), mcp_servers=[])
            answer = await client.prompt(session_id=session.session_id, prompt=message("Write."))
            assert answer.stop_reason == "end_turn"
            await editor.received()
            assert process.returncode is None

    asyncio.run(main())
    assert desktop.text("made.txt") == "Hi"


def test_sessions_are_listed_by_directory_and_resumed_without_their_chat(desktop: Desktop) -> None:
    async def scenario(client: Any) -> None:
        cwd = str(desktop.source)
        session = await client.new_session(cwd=cwd, mcp_servers=[])
        assert (await client.list_sessions()).sessions == []
        desktop.play("Hello.")
        await client.prompt(session_id=session.session_id, prompt=message("Say hello.\nOr not."))
        fork = await client.fork_session(session_id=session.session_id, cwd=cwd)
        listed = (await client.list_sessions(cwd=cwd)).sessions
        assert [each.session_id for each in listed] == [fork.session_id, session.session_id]
        assert {(each.title, each.cwd) for each in listed} == {("Say hello.", cwd)}
        assert (await client.list_sessions(cwd="/elsewhere")).sessions == []
        await client.close_session(session_id=session.session_id)
        n_updates = len(desktop.editor.updates)
        await client.resume_session(session_id=session.session_id, cwd=cwd)
        desktop.play("Again.")
        await client.prompt(session_id=session.session_id, prompt=message("Again."))
        assert len(desktop.editor.updates) == n_updates + 1

    desktop.run(scenario)


@pytest.mark.share(1)
@pytest.mark.parametrize("text", ["garbage\n", "[1, 2]\n"])
def test_a_client_that_does_not_speak_the_protocol_gets_one_error(tmp_path: Path, text) -> None:
    script = tmp_path / "turns.jsonl"
    script.write_text('{"text": "Done."}\n')
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, "acp", "--script", script, "--sandbox", "none"],
        input="\n" + text,
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)},
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "standard input is not the Agent Client Protocol: a line is not " in done.stderr
    assert done.stdout == ""
