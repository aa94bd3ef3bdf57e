"""A workspace is used while the interpreter ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from wink_workspace.filesystem.overlay.mounting import overlay_support
from wink_workspace.workspace import Workspace, WorkspaceStorage

_PROGRAM = """
import atexit, os, sys
from pathlib import Path

@atexit.register  # handlers run last in, first out: so after all those of the package
def at_exit():
    others = [os.open(sys.argv[2], os.O_RDONLY) for _ in range(30)]
    with workspace.call("at the end"):
        workspace.files.write_text("end.txt", "x")
    workspace.close()

from wink_workspace.workspace import Workspace, WorkspaceStorage
storage = WorkspaceStorage(Path(sys.argv[3]))
workspace = Workspace.create(sys.argv[1], storage=storage, mode=sys.argv[4])
print(workspace.info.id)
"""


@pytest.mark.parametrize("mode", ["copy", "overlay"])
def test_a_call_of_an_exit_handler_changes_the_workspace_and_nothing_else(
    tmp_path: Path, mode: str
) -> None:
    if mode == "overlay" and not overlay_support(tmp_path).available:
        pytest.skip("overlays are not available here")
    source, other, state = tmp_path / "source", tmp_path / "other", tmp_path / "state"
    source.mkdir()
    other.mkdir()
    command = [sys.executable, "-c", _PROGRAM, str(source), str(other), str(state), mode]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Traceback" not in done.stderr
    assert list(other.iterdir()) == []
    with Workspace.open(done.stdout.strip(), storage=WorkspaceStorage(state)) as workspace:
        assert workspace.files.read_bytes("end.txt") == b"x"
        assert workspace.head.subject == "at the end: committed"
