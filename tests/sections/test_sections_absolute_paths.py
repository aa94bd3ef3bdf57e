"""Tools accept absolute paths below the source and below ``/workspace``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from wink_workspace import Prompt, ScriptedAdapter, Session, VfsToolsSection
from wink_workspace.adapters import ModelTurn
from wink_workspace.filesystem import MemoryFilesystem
from wink_workspace.runtime import CallOutcome, ToolCall
from wink_workspace.session import ToolInvoked
from wink_workspace.workspace import Workspace, WorkspaceStorage


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    root = tmp_path_factory.mktemp("absolute")
    source = root / "real" / "source"
    (source / "src").mkdir(parents=True)
    (source / "src" / "app.py").write_text("x = 1\n")
    (root / "link").symlink_to("real")
    with Workspace.create(
        root / "link" / "source", storage=WorkspaceStorage(root / "state")
    ) as opened:
        yield opened


def call(workspace: Workspace, name: str, arguments: str | dict[str, Any]) -> CallOutcome:
    prompt = Prompt[None](ns="tests", key="absolute", sections=[VfsToolsSection()])
    return workspace.execute(prompt, ToolCall.of(name, arguments))


@pytest.mark.behaviour(132)
@pytest.mark.parametrize("root", ["/workspace", "{source}", "{real}"])
@pytest.mark.parametrize("as_text", [True, False])
def test_b972_absolute_path_of_the_workspace_or_its_source_names_the_file(
    workspace: Workspace, root: str, as_text: bool
) -> None:
    root = root.format(source=workspace.info.source, real=Path(workspace.info.source).resolve())
    for name, arguments in (
        ("ls", {"path": root}),
        ("ls", {"path": f"{root}/"}),
        ("grep", {"pattern": "x", "path": f"{root}/src/app.py"}),
        ("glob", {"pattern": f"{root}/src/*.py"}),
        ("read_file", {"file_path": f"{root}/src/app.py"}),
        ("write_file", {"file_path": f"{root}/src/new.py", "content": f"{root}/x\n"}),
        ("mv", {"source": f"{root}/src/app.py", "destination": f"{root}/src/b.py"}),
        ("mv", {"source": "src/b.py", "destination": f"{root}//src/app.py"}),
    ):
        outcome = call(workspace, name, json.dumps(arguments) if as_text else arguments)
        assert outcome.result.success, outcome.text
        assert root not in outcome.text, "results name paths of the workspace"
        assert "src" in outcome.text
    assert workspace.files.read_bytes("src/new.py") == f"{root}/x\n".encode(), "no other text"


@pytest.mark.behaviour(132)
@pytest.mark.parametrize(
    "path", ["/etc/passwd", "/workspace2/app.py", "{source}-2/app.py", "//workspace/app.py"]
)
def test_b972_another_absolute_path_is_refused_and_the_error_names_the_rule(
    workspace: Workspace, path: str
) -> None:
    outcome = call(workspace, "read_file", {"file_path": path.format(source=workspace.info.source)})
    assert not outcome.result.success
    assert f"below /workspace or {workspace.info.source}" in outcome.text
    outside = call(workspace, "read_file", {"file_path": "/workspace/../etc/passwd"})
    assert not outside.result.success
    assert "outside" in outside.text


def test_run_with_files_in_memory_takes_paths_below_workspace() -> None:
    files = MemoryFilesystem({"app.py": "x = 1\n"})
    session = Session()
    prompt = Prompt[None](ns="tests", key="memory", sections=[VfsToolsSection(files)])
    turn = ModelTurn(tool_calls=[ToolCall.of("read_file", {"file_path": "/workspace/app.py"})])
    ScriptedAdapter([turn, ModelTurn("Done.")]).evaluate(prompt, session=session)
    (event,) = session[ToolInvoked].all()
    assert event.success
    assert event.params.file_path == "app.py", "the record has the path of the workspace"
