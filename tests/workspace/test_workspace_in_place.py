"""A workspace in the user's own directory: calls, rollbacks, undo, forks and apply."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from in_place_rig import begun, files_of, repository, source_of, unfinished_in
from workspace_rig import assert_fsck_clean, assert_same, calls, doing, folder, reopened, storage

from wink_workspace.errors import UsageError
from wink_workspace.ledger import EntryKind, Ledger
from wink_workspace.session import Outcome
from wink_workspace.workspace import Workspace, WorkspaceConfig

FILES = {"a.txt": b"one\n", "run.sh": b"#!/bin/sh\n", "sub/b.txt": b"b\n", "sub/deep/c": b"c"}


def damage(workspace: Workspace) -> None:
    """Make one change of each kind."""
    files = workspace.files
    files.write_text("a.txt", "spoilt\n")
    files.write_text("new/deep/x.txt", "x")
    files.set_executable("run.sh", True)
    files.move("run.sh", "moved.sh")
    files.delete("sub", recursive=True)
    files.symlink("sub", "new")
    files.mkdir("empty")
    files.write_bytes("a.txt", b"more", mode="append")


@pytest.mark.behaviour(22)
@pytest.mark.behaviour(29)
def test_failed_call_leaves_no_trace_in_the_users_directory(tmp_path: Path) -> None:
    source = repository(tmp_path, {**FILES, ".gitignore": b"ignored\n"})
    (source / "ignored").write_bytes(b"kept")
    (source / "hollow").mkdir()
    (source / "link").symlink_to("a.txt")
    (source / "a.txt").chmod(0o600)
    (source / "sub").chmod(0o750)
    with begun(tmp_path) as workspace:
        before = files_of(tmp_path)
        with calls(workspace, doing(lambda: damage(workspace), fails=True)) as call:
            assert not call("act").result.success
            assert_same(before, files_of(tmp_path))
            assert next(workspace.log()).outcome is Outcome.ROLLED_BACK
            call("ls")
            assert [entry.kind for entry in workspace.log()].count(EntryKind.EXTERNAL) == 0
    assert_fsck_clean(folder(tmp_path).ledger)


def test_files_of_a_failed_call_are_kept_as_a_discard(tmp_path: Path) -> None:
    with begun(tmp_path, FILES) as workspace:
        with calls(workspace, doing(lambda: damage(workspace), fails=True)) as call:
            call("act")
    with Ledger(folder(tmp_path).ledger) as ledger:
        (discarded,) = ledger.discarded()
    assert discarded.reason == "rolled back"


@pytest.mark.behaviour(23)
@pytest.mark.parametrize("force_scan", [False, True])
def test_successful_call_changes_the_directory_itself_and_is_one_entry(
    tmp_path: Path, force_scan: bool
) -> None:
    with begun(tmp_path, FILES, config=WorkspaceConfig(force_scan=force_scan)) as workspace:
        with calls(workspace, doing(lambda: damage(workspace))) as call:
            assert call("act").result.success
            head = next(workspace.log())
            changed = {str(change.path) for change in workspace.changes_of(head)}
            call("ls")
        assert {"a.txt", "moved.sh", "run.sh", "sub", "sub/b.txt", "new/deep/x.txt"} <= changed
        assert [entry.kind for entry in workspace.log(limit=3)] == [
            EntryKind.CALL,
            EntryKind.CALL,
            EntryKind.IMPORT,
        ]
    source = source_of(tmp_path)
    assert (source / "a.txt").read_bytes() == b"spoilt\nmore"
    assert (source / "moved.sh").stat().st_mode & stat.S_IXUSR
    assert (source / "sub").is_symlink()
    assert unfinished_in(source) == []
    assert not folder(tmp_path).path.is_relative_to(source)


def test_undo_and_redo_change_the_directory_itself(tmp_path: Path) -> None:
    with begun(tmp_path, FILES) as workspace:
        before = files_of(tmp_path)
        with calls(workspace, doing(lambda: damage(workspace))) as call:
            call("act")
        after = files_of(tmp_path)
        workspace.undo()
        assert_same(before, files_of(tmp_path))
        workspace.redo()
        assert_same(after, files_of(tmp_path))
        workspace.restore(1)
        assert_same(before, files_of(tmp_path))
        workspace.restore(2, paths=["a.txt"])
        assert (source_of(tmp_path) / "a.txt").read_bytes() == b"spoilt\nmore"
        assert "spoilt" in workspace.diff()


def test_permissions_of_a_file_survive_edits_and_rollbacks(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    with begun(tmp_path, FILES) as workspace:
        (source / "a.txt").chmod(0o640)
        with calls(workspace) as call:
            call("read_file", file_path="a.txt")
            call("edit_file", file_path="a.txt", old_string="one", new_string="two")
            assert (source / "a.txt").stat().st_mode & 0o777 == 0o640
        workspace.undo()
        assert (source / "a.txt").stat().st_mode & 0o777 == 0o640


def test_failed_call_inside_a_call_rolls_back_its_own_part(tmp_path: Path) -> None:
    with begun(tmp_path, FILES) as workspace:
        files = workspace.files

        def act() -> None:
            files.write_text("a.txt", "outer\n")
            files.write_text("outer.txt", "x")
            token = files.snapshot()
            files.write_text("a.txt", "inner\n")
            files.delete("outer.txt")
            files.write_text("inner.txt", "x")
            files.restore(token)
            assert files.snapshot() is token
            files.write_text("after.txt", "x")

        with calls(workspace, doing(act)) as call:
            assert call("act").result.success, call("ls").text
        head = next(entry for entry in workspace.log() if entry.tool == "act")
        changed = {str(change.path) for change in workspace.changes_of(head)}
        assert changed == {"a.txt", "after.txt", "outer.txt"}
        assert (source_of(tmp_path) / "a.txt").read_bytes() == b"outer\n"


def test_changes_outside_of_any_call_become_an_entry_before_the_next_call(tmp_path: Path) -> None:
    with begun(tmp_path, FILES) as workspace:
        (source_of(tmp_path) / "a.txt").write_bytes(b"by hand\n")
        workspace.files.edit("a.txt", "hand", "code")
        workspace.files.write_text("b.txt", "x")
        kinds = [entry.kind for entry in workspace.log()]
        assert kinds == [EntryKind.EXTERNAL, EntryKind.IMPORT]
        with calls(workspace) as call:
            call("ls")
        assert [entry.kind for entry in workspace.log()][1] is EntryKind.EXTERNAL
        by_hand = list(workspace.log())[2]
        (change,) = workspace.changes_of(by_hand)
        assert change.after is not None
        assert change.after.data == b"by hand\n"


def test_fork_is_a_copy_and_applies_only_its_own_changes(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    with begun(tmp_path, FILES) as workspace, calls(workspace) as call:
        call("write_file", file_path="main.txt", content="main")
        workspace.fork("try")
        with reopened(tmp_path, branch="try") as fork, calls(fork) as in_fork:
            in_fork("write_file", file_path="fork.txt", content="fork")
            in_fork("rm", path="main.txt")
            assert (source / "main.txt").exists()
            assert not (source / "fork.txt").exists()
            assert fork.apply().paths == ("fork.txt", "main.txt")
        assert (source / "fork.txt").read_bytes() == b"fork"
        assert not (source / "main.txt").exists()
        call("ls")
        kinds = [entry.kind for entry in workspace.log(limit=2)]
        assert kinds == [EntryKind.CALL, EntryKind.EXTERNAL]
        workspace.branches.delete("try")
    assert (source / "fork.txt").exists()


def test_fork_does_not_overwrite_later_changes_of_the_main_branch(tmp_path: Path) -> None:
    with begun(tmp_path, FILES) as workspace, calls(workspace) as call:
        workspace.fork("try")
        call("read_file", file_path="a.txt")
        call("edit_file", file_path="a.txt", old_string="one", new_string="main")
        with reopened(tmp_path, branch="try") as fork, calls(fork) as in_fork:
            in_fork("read_file", file_path="a.txt")
            in_fork("edit_file", file_path="a.txt", old_string="one", new_string="fork")
            with pytest.raises(Exception, match=r"a\.txt"):
                fork.apply()
    assert (source_of(tmp_path) / "a.txt").read_bytes() == b"main\n"


def test_apply_in_place_is_empty_but_makes_a_patch_and_a_branch(tmp_path: Path) -> None:
    from in_place_rig import git

    source = repository(tmp_path, FILES)
    with begun(tmp_path) as workspace, calls(workspace) as call:
        call("write_file", file_path="n.txt", content="new\n")
        with pytest.raises(UsageError, match="itself"):
            workspace.apply()
        assert "+new" in workspace.apply("patch").patch
        status = git(source, "status", "--porcelain")
        assert workspace.apply("branch", branch="agent").paths == ("n.txt",)
        assert git(source, "show", "agent:n.txt") == "new\n"
        assert git(source, "branch", "--show-current") == "main\n"
        assert git(source, "status", "--porcelain") == status == "?? n.txt\n"


def test_deleting_the_workspace_leaves_every_file_of_the_user(tmp_path: Path) -> None:
    with begun(tmp_path, FILES) as workspace, calls(workspace) as call:
        call("write_file", file_path="n.txt", content="new\n")
    before = files_of(tmp_path)
    directory = folder(tmp_path).path
    Workspace.delete(workspace.info.id, storage=storage(tmp_path))
    assert_same(before, files_of(tmp_path))
    assert not directory.exists()
    begun(tmp_path).close()  # and a new one can be created there


@pytest.mark.parametrize("where", [".", "sub", ".."])
def test_second_workspace_in_the_same_directory_is_refused_and_names_the_first(
    tmp_path: Path, where: str
) -> None:
    with begun(tmp_path / "above", FILES) as first:
        directory = source_of(tmp_path / "above") / where
        with pytest.raises(UsageError, match=f"{first.info.id}|folder of the workspaces"):
            Workspace.create(directory, storage=storage(tmp_path / "above"), mode="in_place")
        with pytest.raises(UsageError, match=first.info.id):
            alias = tmp_path / "alias"
            alias.symlink_to(source_of(tmp_path / "above"))
            Workspace.create(alias, storage=storage(tmp_path / "above"), mode="in_place")


@pytest.mark.parametrize("mode", ["copy", "in_place"])
def test_source_around_the_workspaces_own_folder_is_refused(tmp_path: Path, mode: str) -> None:
    with pytest.raises(UsageError, match="folder of the workspaces"):
        Workspace.create(tmp_path, storage=storage(tmp_path), mode=mode)  # pyright: ignore[reportArgumentType] - one of the two


def test_workspace_in_the_files_of_another_is_refused_but_they_can_be_copied(
    tmp_path: Path,
) -> None:
    begun(tmp_path, FILES).close()
    directory = folder(tmp_path).path
    with pytest.raises(UsageError, match="folder of the workspaces"):
        Workspace.create(directory, storage=storage(tmp_path), mode="in_place")
    with Workspace.create(directory, storage=storage(tmp_path)) as copy:
        assert copy.files.exists("about.json")


def test_directory_that_moved_or_was_replaced_is_named_when_it_is_opened(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    begun(tmp_path, FILES).close()
    source.rename(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="does not exist"):
        reopened(tmp_path)
    source.mkdir()
    with pytest.raises(UsageError, match="is not the directory"):
        reopened(tmp_path)
    assert list(source.iterdir()) == []
    source.rmdir()
    (tmp_path / "elsewhere").rename(source)
    with reopened(tmp_path) as workspace, calls(workspace) as call:
        assert call("ls").result.success


def test_commands_are_refused_in_place(tmp_path: Path) -> None:
    from wink_workspace.sandbox import Sandbox

    with begun(tmp_path) as workspace:
        assert Sandbox not in workspace.resources
        with pytest.raises(UsageError, match="in place"):
            workspace.sandbox()


def test_history_is_loaded_with_the_plans_and_the_reads(tmp_path: Path) -> None:
    with begun(tmp_path, FILES) as workspace, calls(workspace) as call:
        call("read_file", file_path="a.txt")
    with reopened(tmp_path) as workspace, calls(workspace) as call:
        edited = call("edit_file", file_path="a.txt", old_string="one", new_string="two")
        assert edited.result.success
        assert workspace.info.mode == "in_place"
