"""Common mistakes with the API are refused with a message that says what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from workspace_support import created, make_tree, state

from wink_workspace import (
    MarkdownSection,
    ModelTurn,
    Prompt,
    ScriptedAdapter,
    Session,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
    VfsToolsSection,
)
from wink_workspace.errors import FilesystemError, LedgerBusyError, SessionError, UsageError
from wink_workspace.workspace import Workspace

FILES = {"a.txt": "one\n"}


def test_storage_given_as_a_path_and_an_unknown_mode_are_refused(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source", FILES)
    for make in (Workspace.create, Workspace.open):
        with pytest.raises(UsageError, match=r"'folder' is not a storage .* WorkspaceStorage\("):
            make(str(source), storage="folder")  # pyright: ignore[reportArgumentType] - the mistake
    with pytest.raises(UsageError, match=r"'inplace' is not a mode .* copy or in_place"):
        Workspace.create(source, storage=state(tmp_path), mode="inplace")  # pyright: ignore[reportArgumentType] - the mistake
    assert not list(state(tmp_path).all())


def test_apply_refuses_an_unknown_or_contradictory_target(tmp_path: Path) -> None:
    source = tmp_path / "source"
    with created(tmp_path, FILES) as workspace:
        workspace.files.write_text("a.txt", "two\n")
        for wrong in ({"to": "ptch"}, {"branch": "new"}, {"to": "patch", "branch": "new"}):
            with pytest.raises(UsageError, match="worktree, patch, branch"):
                workspace.apply(**wrong)  # pyright: ignore[reportArgumentType] - the mistake
    assert (source / "a.txt").read_text() == "one\n"


def test_a_closed_workspace_says_that_it_is_closed(tmp_path: Path) -> None:
    workspace = created(tmp_path, FILES)
    workspace.fork("bold")
    workspace.close()
    for call in (
        workspace.diff,
        workspace.apply,
        workspace.undo,
        workspace.maintain,
        lambda: workspace.fork("new"),
        lambda: workspace.branches.delete("bold"),
        lambda: workspace.restore(1),
    ):
        with pytest.raises(UsageError, match="no longer open in this process"):
            call()
    with pytest.raises(
        FilesystemError, match=r"a\.txt is not accessible: its workspace was closed"
    ):
        workspace.files.read_text("a.txt")
    assert workspace.forks() == ("bold",)


def test_error_says_that_this_process_has_the_workspace_open_already(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        with pytest.raises(LedgerBusyError, match=r"which is this one\. Close it first"):
            Workspace.open(workspace.info.id, storage=state(tmp_path))


def test_the_name_of_a_fork_is_a_separate_argument(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        workspace.fork("bold")
    with pytest.raises(UsageError, match=r"branch="):
        Workspace.open(f"{workspace.info.id}/bold", storage=state(tmp_path))


WRITE = ModelTurn(tool_calls=[ToolCall("write_file", file_path="b.txt", content="new\n")])


def prompt_of(workspace: Workspace, *tools: Tool[Any, Any]) -> Prompt[None]:
    sections = [VfsToolsSection(), MarkdownSection(title="Tools", template="", tools=tools)]
    return Prompt(ns="tests", key="misuse", sections=sections).bind(resources=workspace.resources)


def test_files_of_a_workspace_with_another_session_are_refused_before_the_model_is_asked(
    tmp_path: Path,
) -> None:
    with created(tmp_path, FILES) as workspace:
        adapter = ScriptedAdapter([WRITE, ModelTurn("Done.")])
        with pytest.raises(SessionError, match=r"Pass session=workspace\.session"):
            adapter.evaluate(prompt_of(workspace), session=Session())
        assert not workspace.files.exists("b.txt")
        assert [entry.kind.value for entry in workspace.log()] == ["import"]
        adapter.evaluate(prompt_of(workspace), session=workspace.session)
        assert workspace.files.read_bytes("b.txt") == b"new\n"
        workspace.undo()
        assert not workspace.files.exists("b.txt")


def test_a_prompt_inside_a_call_may_use_the_files_with_a_session_of_its_own(
    tmp_path: Path,
) -> None:
    def handle(params: None, *, context: ToolContext) -> ToolResult[str]:
        inner = ScriptedAdapter([WRITE, ModelTurn("Inner is done.")])
        return ToolResult.ok(inner.evaluate(prompt_of(workspace), session=Session()).text or "")

    delegate = Tool[None, str](name="delegate", description="Ask another.", handler=handle)
    with created(tmp_path, FILES) as workspace:
        turns = [ModelTurn(tool_calls=[ToolCall("delegate")]), ModelTurn("Done.")]
        prompt = prompt_of(workspace, delegate)
        ScriptedAdapter(turns).evaluate(prompt, session=workspace.session)
        assert workspace.files.read_bytes("b.txt") == b"new\n"
        workspace.undo()
        assert not workspace.files.exists("b.txt")
