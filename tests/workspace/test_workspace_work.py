"""``Workspace.work``: a task, a model, and what the model may use."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from workspace_support import created

from wink_workspace import ModelTurn, ScriptedAdapter, Tool, ToolCall, ToolResult, Workspace
from wink_workspace.adapters import ModelRequest
from wink_workspace.clock import Budget, Deadline, TokenUsage
from wink_workspace.errors import PromptEvaluationError, UsageError
from wink_workspace.prompt import ToolContext
from wink_workspace.sandbox.asteval import AstevalConfig

EDIT = ToolCall("edit_file", file_path="app.py", old_string="helo", new_string="hello")
READ = ToolCall("read_file", file_path="app.py")
FILES: dict[str, str | bytes | None] = {"app.py": "print('helo')\n"}


class Model(ScriptedAdapter[None]):
    """A script that remembers what it was asked."""

    def complete(self, request: ModelRequest) -> ModelTurn:
        self.request = request
        return super().complete(request)


def script(*calls: ToolCall) -> Model:
    return Model([*(ModelTurn(tool_calls=[call]) for call in calls), ModelTurn("Done.")])


def test_work_returns_the_answer_the_calls_and_the_changes(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        result = workspace.work("Fix the typo.", model=script(READ, EDIT))
        assert result.answer == "Done."
        assert [call.tool for call in result.calls] == ["read_file", "edit_file"]
        assert [str(change.path) for change in result.changes.trees] == ["app.py"]
        assert "+print('hello')" in workspace.diff()
        workspace.undo()
        assert workspace.diff() == ""


def test_the_task_is_in_the_prompt_and_notes_of_the_project_are_too(tmp_path: Path) -> None:
    with created(tmp_path, {**FILES, "AGENTS.md": "Use tabs.\n"}) as workspace:
        model = script()
        workspace.work("Fix the *typo*.", model=model)
        text = model.request.instructions
        assert "Fix the *typo*." in text
        assert "Use tabs." in text


@dataclass(frozen=True)
class Shout:
    """Params: a text."""

    text: str


def shout(params: Shout, *, context: ToolContext) -> ToolResult[str]:
    files = context.filesystem
    assert files is not None
    files.write_text("shout.txt", params.text.upper())
    return ToolResult(message="Done", value=params.text.upper())


def test_a_tool_of_the_caller_is_a_transaction_like_every_other(tmp_path: Path) -> None:
    tool = Tool[Shout, str](name="shout", description="Write it loudly.", handler=shout)
    with created(tmp_path, FILES) as workspace:
        workspace.work("Shout.", model=script(ToolCall("shout", text="hey")), tools=[tool])
        assert workspace.files.read_text("shout.txt").text == "HEY"
        workspace.undo()
        assert not workspace.files.exists("shout.txt")


@pytest.mark.parametrize("sandbox", ["python", AstevalConfig()])
def test_a_sandbox_by_name_or_configuration_runs_code(
    tmp_path: Path, sandbox: str | AstevalConfig
) -> None:
    with created(tmp_path, FILES) as workspace:
        for number in range(2):  # one workspace works on several tasks
            result = workspace.work(
                "Count.", model=script(ToolCall("evaluate_python", code="6 * 7")), sandbox=sandbox
            )
            assert "42" in result.calls[0].text, number


def test_two_tasks_at_once_lose_no_change(tmp_path: Path) -> None:
    def writes(task: str) -> list[ToolCall]:
        names = [f"{task}-{number}.txt" for number in range(10)]
        return [ToolCall("write_file", file_path=name, content=name) for name in names]

    with created(tmp_path, FILES) as workspace, ThreadPoolExecutor() as threads:
        works = [threads.submit(workspace.work, task, model=script(*writes(task))) for task in "ab"]
        assert [work.result().answer for work in works] == ["Done.", "Done."]
        for call in (*writes("a"), *writes("b")):
            name = call.arguments["file_path"]
            assert workspace.files.read_text(name).text == name
        assert len(list(workspace.log())) == 21  # with the import


def test_without_a_sandbox_no_tool_runs_code(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        model = script()
        workspace.work("Fix the typo.", model=model)
        assert not {"bash", "evaluate_python"} & {tool.name for tool in model.request.tools}


def test_work_ends_at_its_deadline_and_its_budget(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        with pytest.raises(PromptEvaluationError):
            workspace.work("Fix.", model=script(READ), deadline=Deadline.after(0))
        spender = Model([ModelTurn(tool_calls=[READ], usage=TokenUsage(9, 9)), ModelTurn("Done.")])
        with pytest.raises(PromptEvaluationError):
            workspace.work("Fix.", model=spender, budget=Budget(max_total_tokens=5))


def test_what_does_not_exist_is_refused_before_the_model_is_asked(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        model = script()
        with pytest.raises(UsageError, match="sandbox"):
            workspace.work("Fix.", model=model, sandbox="cellar")
        with pytest.raises(UsageError, match="no-such-provider"):
            workspace.work("Fix.", model="no-such-provider:name")
        assert not hasattr(model, "request")
    with pytest.raises(UsageError, match="no longer open"):
        workspace.work("Fix.", model=model)


def test_a_fork_opens_itself_and_names_what_it_left_out(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        fork = workspace.fork("try")
        assert (fork.name, fork.left_out) == ("try", ())
        with fork.open() as other:
            assert isinstance(other, Workspace)
            other.work("Fix.", model=script(READ, EDIT))
        assert workspace.diff() == ""
        assert workspace.forks() == ("try",)
