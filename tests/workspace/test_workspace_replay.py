"""A real project's history, patch by patch: after each call the files equal git's own tree."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from release_history import recorded
from workspace_rig import assert_fsck_clean, calls, folder, made, reopened
from workspace_support import GIT, git

PACKAGE = "itsdangerous"


def git_applied(repository: Path, patch: bytes) -> str:
    """Apply *patch* with git; returns the id of the resulting tree."""
    command = ["git", "apply", "--index", "--binary", "-"]
    subprocess.run(command, cwd=repository, env=GIT, check=True, input=patch, capture_output=True)
    return git(repository, "write-tree").strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """An empty repository of plain git."""
    repository = tmp_path / "repository"
    repository.mkdir()
    git(repository, "init", "-q")
    return repository


def test_every_release_of_a_package_applied_as_a_patch_gives_the_tree_that_git_makes(
    tmp_path: Path, repository: Path
) -> None:
    """Undo to the beginning and redo restore each of these trees."""
    trees: list[str] = []
    with made(tmp_path) as workspace:
        trees.append(workspace.entry(1).files)
        with calls(workspace, policies=()) as call:
            for release, patch in recorded(PACKAGE):
                applied = call("apply_patch", patch=patch.decode("utf-8", "surrogateescape"))
                assert applied.result.success, (release, applied.text)
                (head,) = workspace.log(limit=1)
                assert head.files == git_applied(repository, patch), release
                trees.append(head.files)
    assert len(set(trees)) == len(trees) > 20
    with reopened(tmp_path) as workspace:
        assert [workspace.undo().files for _ in trees[1:]] == trees[-2::-1]
        assert [workspace.redo().files for _ in trees[1:]] == trees[1:]
    git(repository, "update-index", "-q", "--refresh")
    difference = ["git", "diff", "--no-index", "--quiet", repository, folder(tmp_path).files]
    (repository / ".git").rename(tmp_path / "git")
    assert subprocess.run(difference, env=GIT, check=False).returncode == 0
    assert_fsck_clean(folder(tmp_path).ledger)
