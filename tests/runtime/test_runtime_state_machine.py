"""Random calls with random failures, compared with a plain dictionary."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from random_cases import examples
from support import Note, contents, small_workspace

from wink_workspace.errors import DirectoryExpectedError, FileExpectedError
from wink_workspace.filesystem import Filesystem
from wink_workspace.prompt import Tool, ToolContext, ToolResult
from wink_workspace.session import Outcome

PATHS = ["a", "b", "d", "d/a", "d/b", "d/e/a", "e/a"]


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a call."""

    do: Literal["write", "append", "delete", "move", "note", "fail"]
    path: str
    other: str = ""


@dataclass(frozen=True, slots=True)
class Steps:
    """A whole call."""

    steps: tuple[Step, ...]


def perform(step: Step, files: Filesystem, context: ToolContext) -> None:
    match step.do:
        case "write":
            files.write_text(step.path, step.other)
        case "append":
            files.write_text(step.path, step.other, mode="append")
        case "delete":
            files.delete(step.path, recursive=True)
        case "move":
            files.move(step.path, step.other)
        case "note":
            context.session[Note].append(Note(step.other))
        case "fail":
            raise RuntimeError("random failure")


def handle(params: Steps, *, context: ToolContext) -> ToolResult[None]:
    assert context.filesystem is not None
    for step in params.steps:
        perform(step, context.filesystem, context)
    return ToolResult.ok(None)


RUN = Tool[Steps, None](name="run", description="Run the steps", handler=handle)


def below(path: str, root: str) -> bool:
    return path == root or path.startswith(root + "/")


def expected(step: Step, files: dict[str, bytes], notes: list[str]) -> None:
    """Apply a successful step to the model."""
    match step.do:
        case "write":
            files[step.path] = step.other.encode()
        case "append":
            files[step.path] = files.get(step.path, b"") + step.other.encode()
        case "delete":
            for path in [path for path in files if below(path, step.path)]:
                del files[path]
        case "move":
            for path in [path for path in files if below(path, step.path)]:
                files[step.other + path[len(step.path) :]] = files.pop(path)
        case "note":
            notes.append(step.other)
        case "fail":
            raise AssertionError("a failed step cannot have succeeded")


STEP = st.builds(
    Step,
    do=st.sampled_from(["write", "write", "append", "delete", "move", "note", "note", "fail"]),
    path=st.sampled_from(PATHS),
    other=st.sampled_from(PATHS),
)


class Calls(RuleBasedStateMachine):
    """The workspace and its model, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, bytes] = {"a": b"first"}
        self.notes: list[str] = []
        self.n_calls = 0
        self.opened = small_workspace(RUN, files=self.files)
        self.workspace = self.opened.__enter__()

    @rule(steps=st.lists(STEP, min_size=1, max_size=5))
    def call(self, steps: list[Step]) -> None:
        outcome = self.workspace.call("run", steps=[asdict(step) for step in steps])
        self.n_calls += 1
        if outcome.outcome is Outcome.COMMITTED:
            for step in steps:
                expected(step, self.files, self.notes)

    @rule(path=st.sampled_from(PATHS), text=st.sampled_from(PATHS))
    def one_plain_write(self, path: str, text: str) -> None:
        """A write outside any call, so that not every step fails."""
        files = self.workspace.filesystem
        is_below_a_file = any(below(path, other) and other != path for other in self.files)
        is_directory = not is_below_a_file and files.exists(path) and path not in self.files
        if is_below_a_file or is_directory:
            with pytest.raises((DirectoryExpectedError, FileExpectedError)):
                files.write_text(path, text)
        else:
            files.write_text(path, text)
            self.files[path] = text.encode()

    @invariant()
    def files_and_session_equal_the_model(self) -> None:
        found = contents(self.workspace.filesystem)
        files = {path: data for path, (kind, data, _) in found.items() if kind == "file"}
        assert files == self.files
        assert [note.text for note in self.workspace.session[Note].all()] == self.notes
        assert len(self.workspace.records) == self.n_calls

    def teardown(self) -> None:
        self.opened.__exit__(None, None, None)


TestCalls = Calls.TestCase
TestCalls.settings = settings(
    max_examples=examples(60),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
