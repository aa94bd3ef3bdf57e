"""Forks: separate branches with separate files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from workspace_support import created, state, tree_of, write

from wink_workspace.errors import EntryMissingError, LedgerBusyError, LedgerError, UsageError
from wink_workspace.filesystem.disk.copying import NewTree
from wink_workspace.ledger import Ledger
from wink_workspace.ledger.store.repository import GitRepository
from wink_workspace.workspace import Workspace, WorkspaceReader
from wink_workspace.workspace.place.shared_folders import delete_tree

FILES: dict[str, str | bytes | None] = {
    "a.txt": "a\n",
    "run.sh": "#!/bin/sh\n",
    "d/link": "-> ../a.txt",
    "empty": None,
}


def test_a_fork_begins_with_the_same_files_and_history(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        write(workspace, **{"b.txt": "b"})
        (state(tmp_path).folder(workspace.info.id).files / "outside").write_text("human")
        workspace.fork("try")
        folder = state(tmp_path).folder(workspace.info.id)
        with Workspace.open(workspace.info.id, storage=state(tmp_path), branch="try") as fork:
            assert tree_of(folder.of_branch("try").files) == tree_of(folder.files)
            assert [e.id for e in fork.log()] == [e.id for e in workspace.log()]


def test_the_root_of_a_fork_has_the_mode_of_the_root_of_a_workspace(tmp_path: Path) -> None:
    with created(tmp_path, {}, mode="copy") as workspace:
        workspace.fork("try")
        modes = [workspace._opened.tree.root.stat().st_mode]
    with Workspace.open(workspace.info.id, storage=state(tmp_path), branch="try") as fork:
        modes.append(fork._opened.tree.root.stat().st_mode)
    assert modes == [0o040755, 0o040755]


def test_a_branch_does_not_see_the_changes_of_another(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        workspace.fork("try")
        with Workspace.open(workspace.info.id, storage=state(tmp_path), branch="try") as fork:
            write(fork, fork="f")
            write(workspace, main="m")
            assert {path.name for path in fork.files.glob("*").paths} >= {"fork"}
            assert "main" not in fork.diff()
            assert "fork" not in workspace.diff()
        with Workspace.open(workspace.info.id, storage=state(tmp_path), branch="try") as fork:
            assert fork.files.read_text("fork").text == "f"
            fork.undo()
            assert not fork.files.exists("fork")


def test_two_processes_can_open_two_branches_but_not_the_same_one(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        workspace.fork("try")
        opening = (
            "import sys\n"
            "from wink_workspace.workspace import Workspace, WorkspaceStorage\n"
            "w = Workspace.open(sys.argv[2], storage=WorkspaceStorage(sys.argv[1]), branch=sys.argv[3])\n"
            "print(w.files.read_text('a.txt').text)\n"
            "w.close()\n"
        )
        command = [sys.executable, "-c", opening, str(tmp_path / "state"), workspace.info.id]
        done = subprocess.run([*command, "try"], capture_output=True, text=True, check=False)
        assert done.stdout == "a\n"
        done = subprocess.run([*command, "main"], capture_output=True, text=True, check=False)
        assert "in use by process" in done.stderr


def test_a_crash_during_the_copy_leaves_no_half_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with created(tmp_path, FILES, mode="copy") as workspace:
        workspace.fork("try")
        folder = state(tmp_path).folder(workspace.info.id)
        with monkeypatch.context() as patched:
            patched.setattr(NewTree, "make_symlink", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                Workspace.open(workspace.info.id, storage=state(tmp_path), branch="try")
        assert not folder.of_branch("try").files.exists()
        Workspace.open(workspace.info.id, storage=state(tmp_path), branch="try").close()
        assert tree_of(folder.of_branch("try").files) == tree_of(folder.files)


def test_the_name_of_a_deleted_fork_can_be_used_again(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        workspace.fork("try")
        with Workspace.open(workspace.info.id, storage=state(tmp_path), branch="try") as fork:
            write(fork, old="old")
            with pytest.raises(LedgerBusyError):
                workspace.branches.delete("try")
        workspace.branches.delete("try")
        assert workspace.forks() == ()
        with pytest.raises(EntryMissingError):
            Workspace.open(workspace.info.id, storage=state(tmp_path), branch="try")
        workspace.fork("try")
        with Workspace.open(workspace.info.id, storage=state(tmp_path), branch="try") as fork:
            assert not fork.files.exists("old")


def test_a_fork_that_is_deleted_while_the_branches_are_read_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page reads the branches while attempts make temporary forks and delete them."""
    with created(tmp_path, FILES) as workspace:
        workspace.fork("temporary")
        names = GitRepository.refs

        def then_deleted(repository: GitRepository, prefix: str = "refs/") -> dict[str, str]:
            found = names(repository, prefix)
            monkeypatch.setattr(GitRepository, "refs", names)
            workspace.branches.delete("temporary")
            return found

        with WorkspaceReader(state(tmp_path).folder(workspace.info.id)) as reader:
            assert list(reader.heads()) == ["main", "temporary"]
            monkeypatch.setattr(GitRepository, "refs", then_deleted)
            assert "main" in reader.heads()
            assert reader.heads() == {"main": workspace.head.id}


def test_the_main_branch_is_not_deleted_as_a_fork(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        workspace.fork("try")
    folder = state(tmp_path).folder(workspace.info.id)
    with Workspace.open(workspace.info.id, storage=state(tmp_path), branch="try") as fork:
        with pytest.raises(UsageError, match="not a fork"):
            fork.branches.delete("main")
        assert (folder.files / "a.txt").read_text() == "a\n"


@pytest.mark.parametrize("n_deletions", [1, 2])
def test_a_crash_during_the_deletion_of_a_fork_keeps_all_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_deletions: int
) -> None:
    with created(tmp_path, FILES) as workspace:
        workspace.fork("try")
        with Workspace.open(workspace.info.id, storage=state(tmp_path), branch="try") as fork:
            write(fork, **{"new.txt": "new"})
            expected, entries = tree_of(fork._folder.files), [entry.id for entry in fork.log()]
        left = [n_deletions]

        def dies(path: Path) -> None:
            left[0] -= 1
            if left[0] == 0:
                (path / "files" / "a.txt").unlink(missing_ok=True)
                raise KeyboardInterrupt
            delete_tree(path)

        with monkeypatch.context() as patched:
            patched.setattr("wink_workspace.workspace.branch.recorded_branch.delete_tree", dies)
            with pytest.raises(KeyboardInterrupt):
                workspace.branches.delete("try")
        with Workspace.open(workspace.info.id, storage=state(tmp_path), branch="try") as fork:
            assert tree_of(fork._folder.files) == expected
            assert [entry.id for entry in fork.log()] == entries
        workspace.branches.delete("try")
        assert list((fork._folder.path / "forks").iterdir()) == []


def test_a_fork_that_fails_leaves_no_files_of_its_own(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        (workspace._folder.runs / "1").mkdir(parents=True)
        lock = workspace._folder.ledger / "refs/wink/forks/try.lock"
        lock.touch()
        with pytest.raises(LedgerError, match="another program is moving this ref"):
            workspace.fork("try", with_runs=True)
        assert list((workspace._folder.path / "forks").iterdir()) == []
        lock.unlink()
        workspace.fork("try", with_runs=True)
        assert [path.name for path in workspace._folder.of_branch("try").runs.iterdir()] == ["1"]


@pytest.mark.parametrize("by", ["workspace", "reader"])
def test_a_fork_has_nothing_of_a_process_that_was_killed_while_it_made_the_fork(
    tmp_path: Path, by: str
) -> None:
    with created(tmp_path, FILES) as workspace:
        fork = workspace._folder.of_branch("try")
        (fork.runs / "1").mkdir(parents=True)
        if by == "workspace":
            workspace.fork("try")
        else:
            with WorkspaceReader(workspace._folder) as reader:
                reader.fork("try")
        assert not fork.runs.exists()


@pytest.mark.parametrize("name", ["main", "a/b", "..", "", "try", "imported"])
def test_a_fork_needs_a_free_and_simple_name(tmp_path: Path, name: str) -> None:
    with created(tmp_path, FILES) as workspace:
        workspace.fork("try")
        with pytest.raises(UsageError):
            workspace.fork(name)
        assert workspace.forks() == ("try",)


def test_a_workspace_whose_fork_is_open_is_not_deleted(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        workspace.fork("try")
        which = workspace.info.id
    with Workspace.open(which, storage=state(tmp_path), branch="try"):
        with pytest.raises(LedgerBusyError):
            Workspace.delete(which, storage=state(tmp_path))
    Workspace.delete(which, storage=state(tmp_path))
    assert list(state(tmp_path).all()) == []


def test_a_workspace_is_deleted_though_another_process_has_just_deleted_a_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with created(tmp_path, {"a": "a"}) as workspace:
        workspace.fork("try")
    monkeypatch.setattr(Ledger, "forks", lambda _: ("gone", "try"))
    Workspace.delete(workspace.info.id, storage=state(tmp_path))
    assert list(state(tmp_path).all()) == []


def test_closed_fork_keeps_no_reserved_space(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        fork = workspace.fork("try").open()
        reserve = fork._folder.reserve
        assert reserve.stat().st_blocks > 0
        fork.close()
        assert not reserve.exists()
        with workspace.branches.open("try"):
            assert reserve.stat().st_blocks > 0
        assert workspace._folder.reserve.stat().st_blocks > 0
