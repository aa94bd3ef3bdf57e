"""The default storage of workspaces."""

from __future__ import annotations

from pathlib import Path

import pytest
from workspace_support import make_tree

from wink_workspace import Workspace
from wink_workspace.cli.screen.command_context import CommandContext
from wink_workspace.environment import Environment
from wink_workspace.errors import UsageError
from wink_workspace.workspace import WorkspaceStorage


@pytest.mark.parametrize("as_text", [True, False])
def test_a_directory_alone_makes_a_workspace_that_the_command_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, as_text: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    source = make_tree(tmp_path / "project", {"a.py": "a = 1\n"})
    with Workspace.create("project" if as_text else source) as workspace:
        which = workspace.info.id
        workspace.run(workspace.files.delete, "a.py")
    assert [info.id for info in CommandContext(Environment.from_os()).storage.all()] == [which]
    with Workspace.open(which) as workspace:
        assert workspace.info.source == str(source)
        assert not workspace.files.exists("a.py")
    Workspace.delete(which)
    assert list(WorkspaceStorage.default().all()) == []


def test_without_a_home_the_error_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 2**31 - 5)  # not a user of the system
    with pytest.raises(
        UsageError, match=r"no home directory is known\. Set HOME or XDG_STATE_HOME"
    ):
        Workspace.create(make_tree(tmp_path / "project", {}))
