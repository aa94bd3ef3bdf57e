"""Operations that move the history are refused inside a call; they would keep a part of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from workspace_rig import calls, doing, made

from wink_workspace.session import ToolInvoked
from wink_workspace.workspace import Workspace

_MOVES: dict[str, Callable[[Workspace], object]] = {
    "undo": Workspace.undo,
    "redo": Workspace.redo,
    "restore": lambda workspace: workspace.restore(1),
    "fork": lambda workspace: workspace.fork("other"),
    "apply": Workspace.apply,
    "maintain": Workspace.maintain,
}


@pytest.mark.parametrize("move", _MOVES)
def test_history_change_inside_a_call_fails_the_call_without_a_trace(
    tmp_path: Path, move: str
) -> None:
    with made(tmp_path, {"a.txt": b"a\n"}) as workspace:

        def act() -> None:
            (workspace.files.tree.root / "left.txt").write_text("left")
            _MOVES[move](workspace)

        with calls(workspace, doing(act)) as call:
            call("write_file", file_path="b.txt", content="b\n")
            text = call("act").text
            assert "a call is running" in text
            assert "Repeat this when the call has ended." in text
            call("ls", path=".")  # commits external edits; there are none
        assert [entry.tool for entry in workspace.log()] == ["ls", "act", "write_file", ""]
        assert sorted(file.path.name for file in workspace.files.list(".")) == ["a.txt", "b.txt"]
        assert [path.name for path in (tmp_path / "source").iterdir()] == ["a.txt"]


def test_subscriber_of_a_call_may_move_the_history(tmp_path: Path) -> None:
    """Subscribers are notified after the call."""
    with made(tmp_path, {"a.txt": b"a\n"}) as workspace, calls(workspace) as call:
        workspace.session.dispatcher.subscribe(ToolInvoked, lambda _: workspace.fork("other"))
        call("write_file", file_path="b.txt", content="b\n")
        assert workspace.forks() == ("other",)
