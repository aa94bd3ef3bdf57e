"""A ``.git`` that leads to another repository is not used, unless the user named that one."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from workspace_support import git, make_tree

from wink_workspace import Workspace, WorkspaceStorage
from wink_workspace.errors import UsageError
from wink_workspace.ledger import outside_repositories
from wink_workspace.workspace import WorkspaceConfig
from wink_workspace.workspace.place.path_rules import ImportConfig


def repository(path: Path, text: str) -> Path:
    make_tree(path, {"a.txt": text})
    git(path, "init", "-q", "-b", "main")
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", text)
    return path


def gitfile(project: Path, victim: Path) -> None:
    shutil.rmtree(project / ".git")
    (project / ".git").write_text(f"gitdir: {victim / '.git'}\n")


def relative_gitfile(project: Path, victim: Path) -> None:
    shutil.rmtree(project / ".git")
    (project / ".git").write_text(f"gitdir: ../{victim.name}/.git\n")


def link(project: Path, victim: Path) -> None:
    shutil.rmtree(project / ".git")
    (project / ".git").symlink_to(victim / ".git")


def commondir(project: Path, victim: Path) -> None:
    (project / ".git/commondir").write_text(f"{victim / '.git'}\n")


def alternates(project: Path, victim: Path) -> None:
    (project / ".git/objects/info/alternates").write_text(f"# theirs\n{victim / '.git/objects'}\n")


def quoted_alternates(project: Path, victim: Path) -> None:
    (project / ".git/objects/info/alternates").write_text(f'"{victim / ".git/objects"}"\n')


def linked_objects(project: Path, victim: Path) -> None:
    shutil.rmtree(project / ".git/objects")
    (project / ".git/objects").symlink_to(victim / ".git/objects")


def linked_fan_out(project: Path, victim: Path) -> None:
    theirs = next(path for path in (victim / ".git/objects").iterdir() if len(path.name) == 2)
    shutil.rmtree(project / ".git/objects" / theirs.name, ignore_errors=True)
    (project / ".git/objects" / theirs.name).symlink_to(theirs)


def linked_branch(project: Path, victim: Path) -> None:
    ref = project / ".git/refs/heads/main"
    ref.unlink()
    ref.symlink_to(victim / ".git/refs/heads/main")


WAYS = (
    *(gitfile, relative_gitfile, link, commondir, alternates, quoted_alternates),
    *(linked_objects, linked_fan_out, linked_branch),
)


@pytest.mark.parametrize("way", WAYS)
def test_repository_that_a_download_leads_to_is_not_shown_and_gets_no_branch(
    tmp_path: Path, way: Callable[[Path, Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    victim = repository(tmp_path / "victim", "secret")
    project = repository(tmp_path / "project", "download")
    way(project, victim)
    refs = git(victim, "for-each-ref")
    storage = WorkspaceStorage(tmp_path / "state")
    with Workspace.create(project, storage=storage) as workspace:
        assert not list((tmp_path / "state/git").glob("1-*")), "git in the sandbox has a history"
        workspace.files.write_text("a.txt", "changed")
        with pytest.raises(UsageError, match="leads to another directory") as refused:
            workspace.source.apply_to_branch("theirs")
    assert "wink-workspace trust" in refused.value.hint
    assert "leads to another directory" in caplog.text
    assert git(victim, "for-each-ref") == refs


def test_linked_working_tree_is_used_after_its_repository_was_named(tmp_path: Path) -> None:
    main = repository(tmp_path / "main", "mine")
    git(main, "worktree", "add", "-q", str(tmp_path / "tree"), "-b", "topic")
    tree = tmp_path / "tree"
    assert outside_repositories(tree) == (main / ".git",)
    config = WorkspaceConfig(imported=ImportConfig(git_links={tree: (main / ".git",)}))
    storage = WorkspaceStorage(tmp_path / "state")
    with Workspace.create(tree, storage=storage, config=config) as workspace:
        assert list((tmp_path / "state/git").glob("1-*"))
        workspace.files.write_text("a.txt", "changed")
        workspace.source.apply_to_branch("result")
    assert git(main, "show", "result:a.txt") == "changed"


def test_name_of_one_working_tree_does_not_count_for_another(tmp_path: Path) -> None:
    main, other = repository(tmp_path / "main", "mine"), repository(tmp_path / "other", "x")
    gitfile(other, main)
    config = WorkspaceConfig(imported=ImportConfig(git_links={main: (main / ".git",)}))
    storage = WorkspaceStorage(tmp_path / "state")
    with Workspace.create(other, storage=storage, config=config):
        assert not list((tmp_path / "state/git").glob("1-*"))


def test_configuration_can_be_sent_to_another_process(tmp_path: Path) -> None:
    config = WorkspaceConfig(imported=ImportConfig(git_links={tmp_path: (tmp_path,)}))
    assert pickle.loads(pickle.dumps(config)) == config
    assert pickle.loads(pickle.dumps(WorkspaceConfig())) == WorkspaceConfig()


def test_plain_repository_and_one_with_links_inside_lead_nowhere(tmp_path: Path) -> None:
    project = repository(tmp_path / "project", "x")
    (project / ".git").rename(project / "repository")
    (project / ".git").symlink_to("repository")
    assert outside_repositories(project) == ()
    assert outside_repositories(tmp_path) == ()
