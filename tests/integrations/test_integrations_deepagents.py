"""A deep agent with a scripted model works in a workspace: transactions, going back, parallel calls."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyflakes
import pytest
from deepagents import create_deep_agent
from fake_sandbox import FakeConfig, registered
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command as GraphCommand
from langgraph.types import interrupt

from wink_workspace.errors import EntryMissingError
from wink_workspace.integrations.deepagents import (
    WorkspaceBackend,
    WorkspaceMiddleware,
    WorkspaceSandbox,
    checkpoint_at,
)
from wink_workspace.ledger import EntryKind
from wink_workspace.session import Outcome
from wink_workspace.workspace import Workspace

Turn = str | Sequence[tuple[str, dict[str, Any]]]
CONFIG: Any = {"configurable": {"thread_id": "t"}}
MORE = {"messages": [("user", "more")]}


class ScriptedModel(BaseChatModel):
    """Answers with the turns of a script: a text, or tool calls."""

    turns: list[Any]
    n_calls: int = 0

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **_: Any,
    ) -> ChatResult:
        turn = self.turns.pop(0)
        if isinstance(turn, str):
            message = AIMessage(turn)
        else:
            calls = []
            for name, arguments in turn:
                self.n_calls += 1
                calls.append({"name": name, "args": arguments, "id": f"c{self.n_calls}"})
            message = AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


def write(path: str, content: str) -> tuple[str, dict[str, Any]]:
    return ("write_file", {"file_path": f"/workspace/{path}", "content": content})


def edit(path: str, old: str, new: str) -> tuple[str, dict[str, Any]]:
    arguments = {"file_path": f"/workspace/{path}", "old_string": old, "new_string": new}
    return ("edit_file", arguments)


def read(path: str) -> tuple[str, dict[str, Any]]:
    return ("read_file", {"file_path": f"/workspace/{path}"})


class DeepAgent:
    """A deep agent over a workspace with one file, ``app.py``."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def graph(
        self,
        *turns: Turn,
        tools: Sequence[Any] = (),
        backend: Any = None,
        checkpointer: Any = None,
        n_calls: int = 0,
        middleware: WorkspaceMiddleware | None = None,
    ) -> Any:
        return create_deep_agent(
            ScriptedModel(turns=list(turns), n_calls=n_calls),
            list(tools),
            backend=backend or WorkspaceBackend(self.workspace),
            middleware=[middleware or WorkspaceMiddleware(self.workspace)],
            checkpointer=checkpointer or InMemorySaver(),
        )

    def run(self, *turns: Turn, **options: Any) -> tuple[Any, list[ToolMessage]]:
        graph = self.graph(*turns, **options)
        state = graph.invoke({"messages": [("user", "go")]}, CONFIG)
        return graph, [each for each in state["messages"] if isinstance(each, ToolMessage)]

    def text(self, path: str = "app.py") -> str:
        return self.workspace.files.read_bytes(path).decode()

    def calls(self) -> list[tuple[str, Outcome | None]]:
        log = [each for each in self.workspace.log() if each.kind is EntryKind.CALL]
        return [(each.tool, each.outcome) for each in reversed(log)]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[DeepAgent]:
    (tmp_path / "app.py").write_text("one = 1\ntwo = 2\n")
    with Workspace.temporary(tmp_path) as workspace:
        yield DeepAgent(workspace)


@pytest.mark.behaviour(189)
def test_each_tool_call_of_a_deep_agent_is_one_entry(agent: DeepAgent) -> None:
    _, answers = agent.run(
        [read("app.py")],
        [edit("app.py", "one = 1", "one = 11")],
        [("ls", {"path": "/workspace"})],
        [write("new/b.py", "b\n")],
        "Done.",
    )
    assert [answer.status for answer in answers] == ["success"] * 4
    assert agent.text() == "one = 11\ntwo = 2\n"
    assert [name for name, _ in agent.calls()] == ["read_file", "edit_file", "ls", "write_file"]
    assert agent.workspace.undo().subject == "undo of entry 5: write_file: /workspace/new/b.py"
    assert not agent.workspace.files.exists("new/b.py")


def continued(agent: DeepAgent, graph: Any, config: Any, *turns: Turn, given: Any = None) -> Any:
    """Continue a thread from a checkpoint with other turns."""
    later = agent.graph(*turns, checkpointer=graph.checkpointer, n_calls=50)
    return later.invoke(given, config)


def test_agent_edits_a_package_breaks_it_goes_back_and_ends_right(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(Path(pyflakes.__file__).parent, source / "pyflakes")
    with Workspace.temporary(source) as workspace:
        agent = DeepAgent(workspace)
        before = agent.text("pyflakes/api.py")
        graph, _ = agent.run(
            [write("pyflakes/extra.py", "GOOD = True\n")],
            [write("pyflakes/api.py", "broken(")],
            "Broken.",
        )
        config = checkpoint_at(graph, CONFIG, 2)
        continued(agent, graph, config, [edit("pyflakes/extra.py", "True", "1")], "Right.")
        assert agent.text("pyflakes/extra.py") == "GOOD = 1\n"
        assert agent.text("pyflakes/api.py") == before
        kinds = [entry.kind for entry in workspace.log()]
        assert kinds[:3] == [EntryKind.CALL, EntryKind.CALL, EntryKind.RESTORE]


@pytest.mark.behaviour(190)
def test_continuing_from_an_older_checkpoint_restores_its_files(agent: DeepAgent) -> None:
    graph, _ = agent.run([write("a", "1")], [write("a", "2")], [write("b", "3")], "Done.")
    assert agent.workspace.head.number == 4
    continued(agent, graph, checkpoint_at(graph, CONFIG, 2), "Nothing to do.")
    assert agent.text("a") == "1"
    assert not agent.workspace.files.exists("b")
    continued(agent, graph, checkpoint_at(graph, CONFIG, 4), [write("c", "4")], "Done.")
    assert (agent.text("a"), agent.text("b"), agent.text("c")) == ("2", "3", "4")


def test_checkpoint_names_the_entry_and_an_unknown_entry_is_refused(agent: DeepAgent) -> None:
    graph, _ = agent.run([write("a", "1")], "Done.")
    state = graph.get_state(checkpoint_at(graph, CONFIG, 2))
    head = agent.workspace.entry(2)
    assert state.values["wink_entry"] == {"id": head.id, "number": 2}
    assert head.call_id == "langgraph:t:c1"
    with pytest.raises(EntryMissingError, match="names entry 99"):
        checkpoint_at(graph, CONFIG, 99)


def test_turn_that_was_interrupted_between_parallel_calls_runs_again_as_a_whole(
    agent: DeepAgent,
) -> None:
    """The checkpoint before two parallel calls: both are made again, and nothing twice."""
    graph, _ = agent.run([write("a", "1"), write("b", "2")], "Done.")
    before = next(
        snapshot.config
        for snapshot in graph.get_state_history(CONFIG)
        if set(snapshot.next) == {"tools"}
    )
    continued(agent, graph, before, "Done again.")
    assert (agent.text("a"), agent.text("b")) == ("1", "2")
    kinds = [entry.kind for entry in agent.workspace.log()]
    assert kinds.count(EntryKind.RESTORE) == 1


@pytest.mark.behaviour(190)
def test_edits_of_a_person_between_turns_stay(agent: DeepAgent) -> None:
    graph, _ = agent.run([write("a", "1")], "Done.")
    agent.workspace.files.write_text("app.py", "by hand\n")
    continued(agent, graph, CONFIG, [write("b", "2")], "Done.", given=MORE)
    assert agent.text() == "by hand\n"


@pytest.mark.behaviour(190)
def test_another_thread_in_the_same_workspace_is_not_going_back(agent: DeepAgent) -> None:
    graph, _ = agent.run([write("a", "1")], "Done.")
    other: Any = {"configurable": {"thread_id": "other"}}
    agent.graph([write("b", "2")], "Done.").invoke({"messages": [("user", "go")]}, other)
    continued(agent, graph, CONFIG, [write("c", "3")], "Done.", given=MORE)
    assert [agent.text(name) for name in "abc"] == ["1", "2", "3"]


def test_agent_inside_a_tool_does_not_wait_for_a_conversation_that_goes_back(
    agent: DeepAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Going back waits for the end of the tool, and the tool for the agent inside it."""
    middleware = WorkspaceMiddleware(agent.workspace)
    turns = [write("a", "1")], [write("a", "2")], "Done.", "Went back."
    graph, _ = agent.run(*turns, middleware=middleware)
    restore, restoring, inner_ended = agent.workspace.restore, threading.Event(), threading.Event()

    def restore_after_inner_agent(entry: str) -> Any:
        restoring.set()
        assert inner_ended.wait(20), "the inner agent waits for this"
        return restore(entry)

    @tool
    def delegate() -> str:
        """Let another agent work while the first conversation goes back."""
        going_back.append(pool.submit(graph.invoke, None, checkpoint_at(graph, CONFIG, 2)))
        assert restoring.wait(30)
        inner = agent.graph("Nothing to do.", middleware=middleware)
        inner.invoke(MORE, {"configurable": {"thread_id": "inner"}})
        inner_ended.set()
        return "delegated"

    monkeypatch.setattr(agent.workspace, "restore", restore_after_inner_agent)
    going_back: list[Future[Any]] = []
    with ThreadPoolExecutor(1) as pool:
        outer = agent.graph([("delegate", {})], "Done.", tools=[delegate], middleware=middleware)
        outer.invoke(MORE, {"configurable": {"thread_id": "outer"}})
    assert going_back[0].result()["messages"][-1].content == "Went back."
    assert agent.text("a") == "1"


@pytest.mark.parametrize("has_checkpoints", [False, True])
def test_parallel_subagents_in_threads_undo_nothing(
    agent: DeepAgent, has_checkpoints: bool
) -> None:
    def task(name: str) -> tuple[str, dict[str, Any]]:
        return ("task", {"description": "d", "subagent_type": name})

    def subagent(name: str) -> Any:
        turns = [[write(f"{name}.{n}", "x")] for n in range(3)]
        model = ScriptedModel(turns=[*turns, "Done."])
        return {"name": name, "description": "d", "system_prompt": "p", "model": model}

    graph = create_deep_agent(
        ScriptedModel(turns=[[task("one"), task("two"), write("beside", "x")], "Done."]),
        backend=WorkspaceBackend(agent.workspace),
        middleware=[WorkspaceMiddleware(agent.workspace)],
        subagents=[subagent("one"), subagent("two")],
        checkpointer=InMemorySaver() if has_checkpoints else None,
    )
    graph.invoke({"messages": [("user", "go")]}, CONFIG if has_checkpoints else None)
    wanted = ["beside", *(f"{name}.{n}" for name in ("one", "two") for n in range(3))]
    assert [name for name in wanted if not agent.workspace.files.exists(name)] == []
    assert {kind for kind, _ in agent.calls()} == {"write_file"}


def test_resume_after_an_interrupt_undoes_no_call_beside_it(agent: DeepAgent) -> None:
    @tool
    def ask() -> str:
        """Ask a person."""
        return str(interrupt("which?"))

    checkpointer = InMemorySaver()
    turn = [write("a", "1"), ("ask", {})]
    agent.run(turn, "Done.", tools=[ask], checkpointer=checkpointer)
    later = agent.graph("Done.", tools=[ask], checkpointer=checkpointer)
    state = later.invoke(GraphCommand(resume="this one"), CONFIG)
    assert [each.content for each in state["messages"] if isinstance(each, ToolMessage)][-1] == (
        "this one"
    )
    assert agent.text("a") == "1"
    assert EntryKind.RESTORE not in [entry.kind for entry in agent.workspace.log()]


def test_conversation_that_goes_back_twice_to_one_checkpoint_restores_twice(
    agent: DeepAgent,
) -> None:
    graph, _ = agent.run([write("a", "1")], [write("a", "2")], "Done.")
    for content in ("3", "4"):
        continued(agent, graph, checkpoint_at(graph, CONFIG, 2), [write("b", content)], "Done.")
        assert (agent.text("a"), agent.text("b")) == ("1", content)


# Failures


@pytest.mark.behaviour(189)
def test_tool_that_raises_leaves_no_trace(agent: DeepAgent) -> None:
    @tool
    def damage() -> str:
        """Write a file, then fail."""
        agent.workspace.files.write_text("app.py", "half")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        agent.run([("damage", {})], "Done.", tools=[damage])
    assert agent.text() == "one = 1\ntwo = 2\n"
    assert agent.calls() == [("damage", Outcome.ROLLED_BACK)]


def test_tool_that_answers_with_an_error_is_rolled_back(agent: DeepAgent) -> None:
    _, (answer,) = agent.run([edit("app.py", "missing", "x")], "Done.")
    assert answer.status == "error"
    assert agent.calls() == [("edit_file", Outcome.ROLLED_BACK)]


@pytest.mark.parametrize("is_async", [False, True])
def test_of_two_parallel_edits_of_one_file_both_are_kept(agent: DeepAgent, is_async: bool) -> None:
    """Through a tool of our own: deepagents itself refuses the second of two ``edit_file``."""
    backend = WorkspaceBackend(agent.workspace)

    @tool
    def change(old: str, new: str) -> str:
        """Replace a text."""
        return str(backend.edit("/workspace/app.py", old, new).error)

    turn = [
        ("change", {"old": "one = 1", "new": "one = 11"}),
        ("change", {"old": "two = 2", "new": "two = 22"}),
    ]
    graph = agent.graph(turn, "Done.", tools=[change])
    asyncio.run(graph.ainvoke(MORE, CONFIG)) if is_async else graph.invoke(MORE, CONFIG)
    assert agent.text() == "one = 11\ntwo = 22\n"
    assert agent.calls() == [("change", Outcome.COMMITTED)] * 2


def test_of_two_parallel_edits_of_one_line_the_second_is_refused(agent: DeepAgent) -> None:
    _, answers = agent.run(
        [edit("app.py", "one = 1", "one = 3"), edit("app.py", "one = 1", "one = 4")], "Done."
    )
    assert sorted(answer.status for answer in answers) == ["error", "success"]


def test_ctrl_c_leaves_a_state_between_two_calls(agent: DeepAgent) -> None:
    started = threading.Event()

    @tool
    def slow() -> str:
        """Write a file, be interrupted, and write another."""
        agent.workspace.files.write_text("a", "1")
        started.set()
        os.kill(os.getpid(), signal.SIGINT)
        agent.workspace.files.write_text("b", "2")
        return "done"

    with pytest.raises(KeyboardInterrupt):
        agent.run([write("first", "1")], [("slow", {})], "Done.", tools=[slow])
    assert started.is_set()
    agent.workspace.commit_edits()  # waits for the call, which is in a thread of the framework
    assert agent.text("first") == "1"
    assert agent.workspace.files.exists("a") == agent.workspace.files.exists("b")
    head = agent.workspace.head
    assert agent.workspace.files_at(head).exists("a") == agent.workspace.files.exists("a")


@pytest.mark.behaviour(189)
def test_cancelled_task_leaves_a_state_between_two_calls(agent: DeepAgent) -> None:
    async def main() -> None:
        started = asyncio.Event()

        @tool
        async def slow() -> str:
            """Write a file and wait."""
            agent.workspace.files.write_text("a", "1")
            started.set()
            await asyncio.Event().wait()
            return "never"

        graph = agent.graph([write("first", "1")], [("slow", {})], "Done.", tools=[slow])
        task = asyncio.create_task(graph.ainvoke({"messages": [("user", "go")]}, CONFIG))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert agent.text("first") == "1"
    assert not agent.workspace.files.exists("a")
    assert agent.calls()[-1] == ("slow", Outcome.ROLLED_BACK)


# The backend by itself


def test_change_without_the_middleware_is_a_call_of_its_own(agent: DeepAgent) -> None:
    backend = WorkspaceBackend(agent.workspace)
    backend.write("/workspace/a", "1")
    backend.upload_files([("/workspace/b", b"2"), ("/workspace/c", b"3"), ("/etc/passwd", b"4")])
    backend.delete("/workspace/a")
    assert [name for name, _ in agent.calls()] == ["write_file", "upload_files", "delete"]
    assert not agent.workspace.files.exists("a")


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "relative", "/workspace/../etc/passwd", "/workspacex"]
)
def test_path_outside_of_the_workspace_is_refused(agent: DeepAgent, path: str) -> None:
    backend = WorkspaceBackend(agent.workspace)
    assert backend.read(path).error
    assert backend.ls(path).error
    assert backend.write(path, "x").error
    assert backend.edit(path, "a", "b").error
    assert backend.delete(path).error
    assert backend.grep("a", path).error
    assert backend.glob("*", path).error
    assert backend.download_files([path])[0].error == "invalid_path"
    assert backend.upload_files([(path, b"")])[0].error == "invalid_path"


def test_errors_of_reading_and_writing_are_answers(agent: DeepAgent) -> None:
    backend = WorkspaceBackend(agent.workspace)
    agent.workspace.files.write_bytes("bytes.txt", b"\xff\xfe")
    agent.workspace.files.mkdir("folder")
    assert "not UTF-8" in str(backend.read("/workspace/bytes.txt").error)
    assert "not found" in str(backend.read("/workspace/folder").error)
    assert "not a text file" in str(backend.edit("/workspace/bytes.txt", "a", "b").error)
    assert "multiple times" in str(backend.edit("/workspace/app.py", "=", "x").error)
    assert backend.edit("/workspace/app.py", "=", "is", replace_all=True).occurrences == 2
    assert backend.delete("/workspace/missing").error
    assert backend.write("/workspace/folder", "x").error
    assert backend.download_files(["/workspace/folder"])[0].error == "is_directory"
    assert backend.grep("is", "/workspace", "*.py", max_count=1).truncated
    assert backend.grep("x", "/workspace/missing").matches == []
    assert backend.grep("x", "/workspace", "../*").error
    assert backend.glob("*", "/workspace/missing").matches == []


def test_commands_run_in_the_sandbox_of_the_workspace(agent: DeepAgent) -> None:
    with registered():
        backend = WorkspaceSandbox(agent.workspace, config=FakeConfig())
        _, answers = agent.run(
            [("execute", {"command": "put made.txt text"})], "Done.", backend=backend
        )
        assert answers[0].status == "success"
        assert backend.id.startswith("wink-")
    assert agent.calls() == [("execute", Outcome.COMMITTED)]
