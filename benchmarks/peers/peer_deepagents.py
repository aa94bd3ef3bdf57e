"""deepagents: its agent with a checkpointer over files on disk, or the file backend alone.

``agent``: a fake model takes its turns from a queue. The time of a call is from the model's answer
to its next request: the graph's steps, the tool, the checkpoints.
``backend``: the methods below the tools, which keep no history.
"""

from __future__ import annotations

import sys
import threading
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter
from typing import Any

from deepagents import create_deep_agent
from deepagents.backends import FilesystemBackend, LocalShellBackend
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool, ToolException
from langgraph.checkpoint.memory import InMemorySaver
from protocol import COMMAND, EDITS, FILE, TAKEN_BACK, n_succeeded, serve, timed
from pydantic import PrivateAttr

Call = tuple[str, dict[str, Any]]
ASKED_WITHIN_S = 60


class QueuedModel(BaseChatModel):
    """A fake model: reports each request, and answers with the next turn of a queue."""

    _asked: SimpleQueue[tuple[float, list[BaseMessage]]] = PrivateAttr(default_factory=SimpleQueue)
    _turns: SimpleQueue[AIMessage] = PrivateAttr(default_factory=SimpleQueue)
    _answered: float = PrivateAttr(default=0.0)
    _numbers: count[int] = PrivateAttr(default_factory=lambda: count(1))

    @property
    def _llm_type(self) -> str:
        return "queued"

    def bind_tools(self, *_: object, **__: object) -> QueuedModel:
        return self

    def _generate(self, messages: list[BaseMessage], *_: object, **__: object) -> ChatResult:
        self._asked.put((perf_counter(), messages))
        turn = self._turns.get()
        self._answered = perf_counter()
        return ChatResult(generations=[ChatGeneration(message=turn)])

    def await_question(self) -> tuple[float, list[BaseMessage]]:
        """The time of the agent's next request, and its messages."""
        return self._asked.get(timeout=ASKED_WITHIN_S)

    def take(self, *calls: Call) -> tuple[float, list[BaseMessage]]:
        """Answer with one turn; returns its seconds, and the results of its calls."""
        named = [
            {"name": name, "args": arguments, "id": f"c{next(self._numbers)}"}
            for name, arguments in calls
        ]
        self._turns.put(AIMessage("", tool_calls=named))
        asked, messages = self.await_question()
        return asked - self._answered, messages[-len(calls) :]


def _succeeded(result: BaseMessage) -> bool:
    is_error = getattr(result, "status", "success") == "error"
    return not is_error and not str(result.content).startswith("Error")


class Agent:
    def start(self, root: Path) -> None:
        self.root = root
        self.files = LocalShellBackend(root_dir=root, virtual_mode=True)
        self.model = QueuedModel()
        failing = StructuredTool.from_function(
            self._write_and_fail,
            name="write_and_fail",
            description="Fail.",
            handle_tool_error=True,
        )
        self.agent = create_deep_agent(
            self.model, [failing], backend=self.files, checkpointer=InMemorySaver()
        )
        self.config = {"configurable": {"thread_id": "run"}, "recursion_limit": 1_000_000}
        request = {"messages": [{"role": "user", "content": "Work."}]}
        run = threading.Thread(target=self.agent.invoke, args=(request, self.config), daemon=True)
        run.start()
        self.model.await_question()

    def path(self, name: str) -> Path:
        return self.root / name

    def write(self, text: str) -> float:
        arguments = {"file_path": f"/{FILE}", "content": text}
        seconds, results = self.model.take(("write_file", arguments))
        assert _succeeded(results[0]), results[0].content
        return seconds

    def write_and_fail(self) -> float:
        seconds, results = self.model.take(("write_and_fail", {}))
        assert not _succeeded(results[0])
        return seconds

    def edit_twice(self) -> int:
        edits = [
            ("edit_file", {"file_path": f"/{FILE}", "old_string": old, "new_string": new})
            for old, new in EDITS
        ]
        _, results = self.model.take(*edits)
        return sum(map(_succeeded, results))

    def undo_command(self) -> float | str:
        """Return to the checkpoint before the command, as its documentation does it."""
        before = self.agent.get_state(self.config).config
        _, results = self.model.take(("execute", {"command": COMMAND}))
        assert _succeeded(results[0]), results[0].content
        return timed(lambda: self.agent.update_state(before, {"messages": []}))

    def _write_and_fail(self) -> str:
        self.files.write(f"/{FILE}", TAKEN_BACK)
        raise ToolException("this always fails")


class Backend:
    def start(self, root: Path) -> None:
        self.root = root
        self.files = FilesystemBackend(root_dir=root, virtual_mode=True)

    def path(self, name: str) -> Path:
        return self.root / name

    def write(self, text: str) -> float:
        start = perf_counter()
        result = self.files.write(f"/{FILE}", text)
        seconds = perf_counter() - start
        assert result.error is None, result.error
        return seconds

    def write_and_fail(self) -> float:
        return self.write(TAKEN_BACK)

    def edit_twice(self) -> int:
        return n_succeeded([lambda old=old, new=new: self._edit(old, new) for old, new in EDITS])

    def undo_command(self) -> str:
        return "there is no undo"

    def _edit(self, old: str, new: str) -> bool:
        return self.files.edit(f"/{FILE}", old, new).error is None


if __name__ == "__main__":
    serve(Backend() if "backend" in sys.argv else Agent())
