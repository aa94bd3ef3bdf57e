"""Recorded runs: numbers, incomplete runs, and conversations with the results of the ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from wink_workspace.adapters import (
    AssistantMessage,
    ModelTurn,
    ScriptedAdapter,
    ScriptRecorder,
    ToolMessage,
    UserMessage,
)
from wink_workspace.clock import TokenUsage
from wink_workspace.errors import PromptEvaluationError, UsageError
from wink_workspace.filesystem import Filesystem
from wink_workspace.prompt import MarkdownSection, Prompt, Tool, ToolContext, ToolImage, ToolResult
from wink_workspace.runtime import ToolCall
from wink_workspace.sections import VfsToolsSection
from wink_workspace.workspace import RecordedRun, RunAbout, Workspace, WorkspaceStorage

LS = ToolCall.of("ls", {}, id="a")
WRITE = ToolCall.of("write_file", {"file_path": "made.txt", "content": "n"}, id="b")


def workspace_in(tmp_path: Path) -> tuple[Workspace, WorkspaceStorage]:
    source = tmp_path / "source"
    source.mkdir()
    storage = WorkspaceStorage(tmp_path / "state")
    return Workspace.create(source, storage=storage), storage


def play(workspace: Workspace, run: RecordedRun, *turns: ModelTurn) -> None:
    """Take *turns*; the end of the script interrupts the run."""
    prompt = Prompt[None](ns="t", key="k", sections=[VfsToolsSection()])
    prompt.bind(resources={Filesystem: workspace.files})
    adapter = ScriptRecorder(ScriptedAdapter[None](turns), run.script, append=True)
    with pytest.raises(PromptEvaluationError, match="script ended"):
        adapter.evaluate(prompt, session=workspace.session)


def test_runs_are_numbered_and_the_newest_is_found(tmp_path: Path) -> None:
    workspace, storage = workspace_in(tmp_path)
    folder = storage.folder(workspace.info.id)
    with workspace:
        assert RecordedRun.newest(folder) is None
        for n in range(11):
            RecordedRun.begin(folder, RunAbout(f"task {n}", "m", "none", 1))
        (folder.runs / "12").mkdir()  # its creation was interrupted
        newest = RecordedRun.newest(folder)
        assert newest is not None
        assert (newest.folder.name, newest.about.task) == ("11", "task 10")
        assert not newest.is_finished
        assert newest.conversation(workspace) == (), "a run without turns has an empty conversation"


def test_a_fork_has_runs_of_its_own(tmp_path: Path) -> None:
    workspace, storage = workspace_in(tmp_path)
    folder = storage.folder(workspace.info.id)
    with workspace:
        RecordedRun.begin(folder, RunAbout("main", "m", "none", 1))
        workspace.fork("side")
        assert RecordedRun.newest(folder.of_branch("side")) is None


def test_a_conversation_has_the_turns_and_the_answers_of_the_ledger(tmp_path: Path) -> None:
    workspace, storage = workspace_in(tmp_path)
    with workspace:
        run = RecordedRun.begin(storage.folder(workspace.info.id), RunAbout("t", "m", "none", 1))
        turns = (
            ModelTurn("One.", (LS, WRITE), TokenUsage(3, 1)),
            ModelTurn("Two.", (LS,), TokenUsage(4, 1)),
        )
        play(workspace, run, *turns)
        first, ls, write, second, again, note = run.conversation(workspace)
        assert first == AssistantMessage("One.", (LS, WRITE))
        assert second == AssistantMessage("Two.", (LS,))
        assert isinstance(ls, ToolMessage)
        assert isinstance(write, ToolMessage)
        assert isinstance(again, ToolMessage)
        assert (ls.call_id, write.call_id, again.call_id) == ("a", "b", "a")
        assert "made.txt" not in ls.text
        assert "made.txt" in again.text, "the second answer of an id goes to its second call"
        assert isinstance(note, UserMessage)
        assert run.usage == TokenUsage(7, 2)


def test_a_conversation_has_the_images_that_calls_read_even_if_they_changed(tmp_path: Path) -> None:
    workspace, storage = workspace_in(tmp_path)
    image = ToolImage("image/png", b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    with workspace:
        run = RecordedRun.begin(storage.folder(workspace.info.id), RunAbout("t", "m", "none", 1))
        workspace.files.write_bytes("a.png", image.data)
        read = ToolCall.of("read_file", {"file_path": "a.png"}, id="a")
        play(workspace, run, ModelTurn("One.", (read,)))
        workspace.files.write_bytes("a.png", b"")
    with Workspace.open(workspace.info.id, storage=storage) as again:
        answer = run.conversation(again)[1]
        assert isinstance(answer, ToolMessage)
        assert answer.image == image


def test_calls_of_the_last_turn_without_an_answer_stay_open(tmp_path: Path) -> None:
    workspace, storage = workspace_in(tmp_path)
    with workspace:
        run = RecordedRun.begin(storage.folder(workspace.info.id), RunAbout("t", "m", "none", 1))
        play(workspace, run, ModelTurn("One.", (LS,)))
        with run.script.open("a") as script:
            script.write('{"tool_calls": [{"name": "ls", "id": "c"}, {"name": "ls", "id": "d"}]}\n')
        *_, last = run.conversation(workspace)
        assert isinstance(last, AssistantMessage), "no word stands between a call and its answer"


@pytest.mark.parametrize("is_outside", [True, False])
def test_a_call_with_an_effect_outside_is_not_made_again(tmp_path: Path, is_outside: bool) -> None:
    """Another call that Ctrl-C interrupted is made again when the run is resumed."""

    def act(params: None, *, context: ToolContext) -> ToolResult[None]:
        if is_outside:
            context.outside_effect("sent something")
        raise KeyboardInterrupt

    workspace, storage = workspace_in(tmp_path)
    with workspace:
        run = RecordedRun.begin(storage.folder(workspace.info.id), RunAbout("task", "m", "none", 1))
        tool = Tool[None, None](name="act", description="Acts.", handler=act)
        section = MarkdownSection[None](title="T", template="", tools=[tool])
        prompt = Prompt[None](ns="t", key="k", sections=[section])
        turn = ModelTurn(tool_calls=[ToolCall.of("act", {}, id="a")])
        with pytest.raises(KeyboardInterrupt):
            adapter = ScriptRecorder(ScriptedAdapter[None]([turn]), run.script, append=True)
            adapter.evaluate(prompt, session=workspace.session)
        answers = [each for each in run.conversation(workspace) if isinstance(each, ToolMessage)]
        assert len(answers) == is_outside


def test_a_result_deleted_by_retention_is_reported_as_missing(tmp_path: Path) -> None:
    workspace, storage = workspace_in(tmp_path)
    with workspace:
        folder = storage.folder(workspace.info.id)
        earlier = RecordedRun.begin(folder, RunAbout("t", "m", "none", 1))
        play(workspace, earlier, ModelTurn("One.", (LS,)), ModelTurn("Two.", (WRITE,)))
        late = RecordedRun(earlier.folder, RunAbout("t", "m", "none", 2))
        answer = late.conversation(workspace)[1]
        assert isinstance(answer, ToolMessage)
        assert "no longer kept" in answer.text


def test_a_half_written_turn_is_dropped_and_a_whole_one_stays(tmp_path: Path) -> None:
    workspace, storage = workspace_in(tmp_path)
    with workspace:
        run = RecordedRun.begin(storage.folder(workspace.info.id), RunAbout("t", "m", "none", 1))
    for whole in ("", '{"text": "a", "tool_calls": [{"name": "ls"}]}\n'):
        for half in ("", '{"te'):
            run.script.write_text(whole + half)
            run.drop_half_turn()
            assert run.script.read_text() == whole


@pytest.mark.parametrize(
    "garbage",
    ["[1", "5", "null", "[]", "[1]", '[[1], "x"]', "[1, 5]", '["1", "x"]', '{"1": "x"}', "\udcff"],
)
def test_a_line_that_is_not_a_turn_is_reported_and_the_others_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, garbage: str
) -> None:
    workspace, storage = workspace_in(tmp_path)
    with workspace:
        run = RecordedRun.begin(storage.folder(workspace.info.id), RunAbout("t", "m", "none", 1))
    run.keep_native(1, "first")
    natives = run.folder / "natives.jsonl"
    natives.write_bytes(natives.read_bytes() + f"\n{garbage}".encode("utf-8", "surrogateescape"))
    run.keep_native(2, "second")
    messages = run.with_natives(
        [AssistantMessage("One.", ()), AssistantMessage("Two.", ())], str.upper
    )
    kept = [each.native for each in messages if isinstance(each, AssistantMessage)]
    assert kept == ["FIRST", "SECOND"]
    assert f"cannot read line 3 of {natives}" in caplog.text


def test_a_finished_run_cannot_be_resumed(tmp_path: Path) -> None:
    workspace, storage = workspace_in(tmp_path)
    with workspace:
        run = RecordedRun.begin(storage.folder(workspace.info.id), RunAbout("t", "m", "none", 1))
        run.script.write_text('{"text": "Done."}\n')
        with pytest.raises(UsageError, match="finished"):
            run.conversation(workspace)
