"""A branch keeps the content of the last commit, and reports only paths that it has."""

from __future__ import annotations

from pathlib import Path

import pytest
from workspace_support import git, make_tree, state, write

from wink_workspace.errors import ConflictError
from wink_workspace.workspace import Workspace


def _repository(tmp_path: Path) -> Path:
    source = make_tree(tmp_path / "source", {"a": "a\n", "d/x": "x\n", "d/y/z": "z\n", "f": "f\n"})
    git(source, "init", "-q", "-b", "main")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "one")
    return source


def test_file_where_the_last_commit_has_a_directory_is_a_conflict(tmp_path: Path) -> None:
    """The directory was removed from the working tree, but this is not committed."""
    source = _repository(tmp_path)
    for path in ("d/x", "d/y/z"):
        (source / path).unlink()
    for path in ("d/y", "d"):
        (source / path).rmdir()
    with Workspace.create(source, storage=state(tmp_path)) as workspace:
        write(workspace, d="a file\n")
        with pytest.raises(ConflictError, match="other changes in: d\\."):
            workspace.apply("branch", branch="b")
    assert git(source, "branch", "--list", "b") == ""


def test_directory_where_the_last_commit_has_a_file_is_a_conflict(tmp_path: Path) -> None:
    """The file was committed after the workspace was made."""
    source = _repository(tmp_path)
    with Workspace.create(source, storage=state(tmp_path)) as workspace:
        write(workspace, **{"new/deep/x": "x\n"})
        (source / "new").write_text("of its user\n")
        git(source, "add", "new")
        git(source, "commit", "-qm", "two")
        with pytest.raises(ConflictError, match="other changes in: new\\."):
            workspace.apply("branch", branch="b")
    assert git(source, "branch", "--list", "b") == ""


def test_file_and_directory_may_replace_each_other(tmp_path: Path) -> None:
    source = _repository(tmp_path)
    with Workspace.create(source, storage=state(tmp_path)) as workspace:
        for path in ("d/x", "d/y/z", "f"):
            workspace.files.delete(path)
        workspace.files.delete("d", recursive=True)
        write(workspace, **{"d": "a file\n", "f/g/h": "h\n"})
        workspace.apply("branch", branch="b")
    assert git(source, "ls-tree", "-r", "--name-only", "b").split() == ["a", "d", "f/g/h"]
