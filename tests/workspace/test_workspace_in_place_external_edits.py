"""Edits that people make to the files of a workspace in place are kept at any moment."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from in_place_rig import begun, files_of, git, repository, source_of, unfinished_in
from workspace_rig import assert_same, calls, doing, reopened

from wink_workspace.errors import ConflictError, FileChangedError, RollbackError
from wink_workspace.filesystem.disk import descriptors
from wink_workspace.ledger import EntryKind
from wink_workspace.session import ExternalChange, Outcome
from wink_workspace.workspace import Workspace
from wink_workspace.workspace.in_place import in_place_tree as in_place_tree

FILES = {"a.txt": b"one\n", "b.txt": b"b\n", "sub/c.txt": b"c\n", "sub/d.txt": b"d\n"}


def taken_in(workspace: Workspace) -> tuple[str, ...]:
    """The paths of the last external change."""
    external = workspace.session[ExternalChange].latest()
    return () if external is None else external.paths


def test_edit_between_calls_becomes_an_entry_and_is_not_undone_with_a_call(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    with begun(tmp_path, FILES) as workspace, calls(workspace) as call:
        call("write_file", file_path="n.txt", content="agent\n")
        (source / "a.txt").write_bytes(b"by hand\n")
        (source / "mine.txt").write_bytes(b"mine\n")
        call("ls")
        assert taken_in(workspace) == ("a.txt", "mine.txt")
        workspace.undo()
        assert not (source / "n.txt").exists()
        assert (source / "a.txt").read_bytes() == b"by hand\n"
        assert (source / "mine.txt").read_bytes() == b"mine\n"


def test_checkout_of_another_branch_between_calls_becomes_an_entry(tmp_path: Path) -> None:
    source = repository(tmp_path, FILES)
    git(source, "checkout", "-q", "-b", "other")
    (source / "a.txt").write_bytes(b"other\n")
    (source / "sub/c.txt").unlink()
    git(source, "commit", "-q", "-a", "-m", "other")
    git(source, "checkout", "-q", "main")
    with begun(tmp_path) as workspace, calls(workspace) as call:
        call("read_file", file_path="a.txt")
        git(source, "checkout", "-q", "other")
        refused = call("edit_file", file_path="a.txt", old_string="one", new_string="two")
        assert not refused.result.success
        assert taken_in(workspace) == ("a.txt", "sub/c.txt")
        assert git(source, "status", "--porcelain") == ""


def test_edit_of_another_path_during_a_call_is_a_separate_entry(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    with begun(tmp_path, FILES) as workspace:

        def act() -> None:
            workspace.files.write_text("a.txt", "agent\n")
            (source / "b.txt").write_bytes(b"by hand\n")

        with calls(workspace, doing(act)) as call:
            call("act")
            call("ls")
        _, external, committed, _ = workspace.log()
        assert [str(c.path) for c in workspace.changes_of(committed)] == ["a.txt"]
        assert (external.kind, workspace.record(external).event.paths) == (
            EntryKind.EXTERNAL,
            ("b.txt",),
        )
        workspace.undo()
        assert (source / "a.txt").read_bytes() == b"one\n"
        assert (source / "b.txt").read_bytes() == b"by hand\n"


@pytest.mark.parametrize(
    "change",
    [
        lambda files: files.write_text("a.txt", "agent\n"),
        lambda files: files.write_bytes("a.txt", b"more", mode="append"),
        lambda files: files.edit("a.txt", "by hand", "agent"),
        lambda files: files.delete("a.txt"),
        lambda files: files.move("a.txt", "moved.txt"),
        lambda files: files.move("b.txt", "a.txt", overwrite=True),
        lambda files: files.set_executable("a.txt", True),
        lambda files: files.apply_patch("--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-by hand\n+x\n"),
    ],
)
def test_write_over_an_edit_made_during_the_call_is_refused_and_the_edit_stays(
    tmp_path: Path, change: Callable[[Any], object]
) -> None:
    source = source_of(tmp_path)
    with begun(tmp_path, FILES) as workspace:

        def act() -> None:
            workspace.files.write_text("new.txt", "agent\n")
            (source / "a.txt").write_bytes(b"by hand\n")
            change(workspace.files)

        with calls(workspace, doing(act)) as call:
            done = call("act")
            assert not done.result.success
            assert "another program" in done.text
            assert (source / "a.txt").read_bytes() == b"by hand\n"
            assert not (source / "new.txt").exists()
            call("ls")
            assert taken_in(workspace) == ("a.txt",)
        assert unfinished_in(source) == []


@pytest.mark.parametrize("recursive", ["delete", "move"])
def test_directory_with_a_new_file_of_the_user_stays(tmp_path: Path, recursive: str) -> None:
    source = source_of(tmp_path)
    with begun(tmp_path, FILES) as workspace:

        def act() -> None:
            (source / "sub/mine.txt").write_bytes(b"mine\n")
            if recursive == "delete":
                workspace.files.delete("sub", recursive=True)
            else:
                workspace.files.move("sub", "moved")

        with calls(workspace, doing(act)) as call:
            assert "another program" in call("act").text
        assert (source / "sub/mine.txt").read_bytes() == b"mine\n"
        assert (source / "sub/c.txt").read_bytes() == b"c\n"


def test_edit_of_a_file_that_a_failing_call_wrote_survives_the_rollback(
    tmp_path: Path,
) -> None:
    source = source_of(tmp_path)
    with begun(tmp_path, FILES) as workspace:

        def act() -> None:
            files = workspace.files
            files.write_text("a.txt", "agent\n")
            files.write_text("b.txt", "agent\n")
            files.write_text("new/x.txt", "agent\n")
            files.write_text("gone.txt", "agent\n")
            files.delete("sub/c.txt")
            files.delete("sub/d.txt")
            (source / "a.txt").write_bytes(b"by hand\n")
            (source / "new/mine.txt").write_bytes(b"mine\n")
            (source / "gone.txt").unlink()
            (source / "sub/d.txt").write_bytes(b"again\n")

        with calls(workspace, doing(act, fails=True)) as call:
            assert not call("act").result.success
            now = {path.decode(): at[2] for path, at in files_of(tmp_path).items()}
            assert now == {
                "a.txt": b"by hand\n",
                "b.txt": b"b\n",
                "new": b"",
                "new/mine.txt": b"mine\n",
                "sub": b"",
                "sub/c.txt": b"c\n",
                "sub/d.txt": b"again\n",
            }
            call("ls")
            paths = ("a.txt", "new", "new/mine.txt", "sub/d.txt")
            assert taken_in(workspace) == paths
            head = next(entry for entry in workspace.log() if entry.tool == "act")
            assert head.outcome is Outcome.ROLLED_BACK
            assert workspace.changes_of(head) == ()


def test_undo_over_a_later_edit_merges_or_changes_nothing(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    lines = b"".join(b"%d\n" % n for n in range(20))
    with begun(tmp_path, {"a.txt": lines}) as workspace, calls(workspace) as call:
        call("read_file", file_path="a.txt")
        call("edit_file", file_path="a.txt", old_string="3\n4\n", new_string="3\nagent\n")
        edited = (source / "a.txt").read_bytes()
        (source / "a.txt").write_bytes(edited.replace(b"15\n", b"by hand\n"))
        workspace.undo()
        assert (source / "a.txt").read_bytes() == lines.replace(b"15\n", b"by hand\n")
        workspace.redo()
        (source / "a.txt").write_bytes(b"all by hand\n")
        with pytest.raises(ConflictError):
            workspace.undo()
        assert (source / "a.txt").read_bytes() == b"all by hand\n"


def test_undo_that_meets_a_simultaneous_edit_reverts_its_own_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(tmp_path)
    with begun(tmp_path, FILES) as workspace:

        def act() -> None:
            for name in ("a.txt", "b.txt", "z.txt"):
                workspace.files.write_text(name, "agent\n")

        with calls(workspace, doing(act)) as call:
            call("act")
        n_entries = next(workspace.log()).number
        real = in_place_tree.InPlaceTree.write_file

        def write_file(self: Any, path: Any, content: Any, **kwargs: Any) -> None:
            real(self, path, content, **kwargs)
            if (source / "b.txt").read_bytes() == b"agent\n":
                (source / "b.txt").write_bytes(b"by hand\n")

        with monkeypatch.context() as racing:
            racing.setattr(in_place_tree.InPlaceTree, "write_file", write_file)
            with pytest.raises(FileChangedError, match=r"b\.txt"):
                workspace.undo()
        assert (source / "a.txt").read_bytes() == b"agent\n"
        assert (source / "b.txt").read_bytes() == b"by hand\n"
        assert (source / "z.txt").read_bytes() == b"agent\n"
        assert next(workspace.log()).number == n_entries
        with calls(workspace) as call:
            call("ls")
            assert taken_in(workspace) == ("b.txt",)


@pytest.mark.parametrize("how", ["in place", "by a new file", "removed"])
@pytest.mark.parametrize("act", ["write", "delete", "move over"])
def test_edit_just_before_the_rename_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str, how: str
) -> None:
    """The edit happens after the comparison and before the rename."""
    source = source_of(tmp_path)
    path = source / "a.txt"

    def edit() -> None:
        if how == "in place":
            path.write_bytes(b"by hand\n")
        elif how == "by a new file":
            (source / "new~").write_bytes(b"by hand\n")
            (source / "new~").rename(path)
        else:
            path.unlink()

    left = [1]

    def racing(real: Callable[..., Any]) -> Callable[..., Any]:
        def function(*args: Any) -> Any:
            if left:
                left.pop()
                edit()
            return real(*args)

        return function

    with begun(tmp_path, FILES) as workspace:

        def do() -> None:
            for name in ("exchange_names", "rename_to_free"):
                monkeypatch.setattr(in_place_tree, name, racing(getattr(descriptors, name)))
            if act == "write":
                workspace.files.write_text("a.txt", "agent\n")
            elif act == "delete":
                workspace.files.delete("a.txt")
            else:
                workspace.files.move("b.txt", "a.txt", overwrite=True)

        with calls(workspace, doing(do)) as call:
            assert "another program" in call("act").text
        # A file that both removed is restored: it is not known which removal came first.
        gone = b"one\n" if act == "delete" else None
        expected = gone if how == "removed" else b"by hand\n"
        assert (path.read_bytes() if path.exists() else None) == expected
        assert (source / "b.txt").read_bytes() == b"b\n"
        assert unfinished_in(source) == []


def test_file_that_the_user_creates_just_before_ours_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(tmp_path)
    real = descriptors.rename_to_free

    def racing(*args: Any) -> None:
        (source / "n.txt").write_bytes(b"by hand\n")
        real(*args)

    with begun(tmp_path, FILES) as workspace:
        monkeypatch.setattr(in_place_tree, "rename_to_free", racing)
        with calls(workspace) as call:
            assert "another program" in call("write_file", file_path="n.txt", content="x").text
    assert (source / "n.txt").read_bytes() == b"by hand\n"
    assert unfinished_in(source) == []


def test_edits_made_while_closed_become_an_entry(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    begun(tmp_path, FILES).close()
    (source / "a.txt").write_bytes(b"by hand\n")
    (source / "sub/c.txt").unlink()
    with reopened(tmp_path) as workspace, calls(workspace) as call:
        call("ls")
        assert taken_in(workspace) == ("a.txt", "sub/c.txt")


def test_pipe_of_the_user_is_left_alone_and_its_directory_stays(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    with begun(tmp_path, FILES) as workspace, calls(workspace) as call:
        os.mkfifo(source / "sub/pipe")
        assert "could not be restored" in call("rm", path="sub/pipe").text
        assert "could not be restored" in call("rm", path="sub").text
        assert (source / "sub/c.txt").exists()
        fail = doing(lambda: workspace.files.write_text("sub/c.txt", "x"), fails=True)
        with calls(workspace, fail) as failing:
            before = files_of(tmp_path)
            failing("act")
            assert_same(before, files_of(tmp_path))


def test_files_deleted_during_a_scan_cause_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(tmp_path)
    with begun(tmp_path, FILES) as workspace, calls(workspace) as call:
        real = in_place_tree.InPlaceTree.open

        def opening(self: Any, path: Any) -> Any:
            (source / "fleeting").unlink(missing_ok=True)
            return real(self, path)

        monkeypatch.setattr(in_place_tree.InPlaceTree, "open", opening)
        (source / "fleeting").write_bytes(b"x")
        (source / "a.txt").write_bytes(b"by hand\n")
        assert call("ls").result.success
        assert taken_in(workspace) == ("a.txt",)


def test_path_that_cannot_be_restored_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wink_workspace.errors import WinkError
    from wink_workspace.runtime import transactions_of

    with begun(tmp_path, FILES) as workspace:
        before = files_of(tmp_path)
        real = in_place_tree.InPlaceTree.write_file

        def write_file(self: Any, path: Any, content: Any, **kwargs: Any) -> None:
            if str(path) == "b.txt":
                raise WinkError("b.txt: the device is broken")
            real(self, path, content, **kwargs)

        def act() -> None:
            for name in ("a.txt", "b.txt", "sub/c.txt"):
                workspace.files.write_text(name, "agent\n")
            monkeypatch.setattr(in_place_tree.InPlaceTree, "write_file", write_file)

        with calls(workspace, doing(act, fails=True)) as call:
            with pytest.raises(RollbackError, match=r"b\.txt"):
                call("act")
            changed = {p for p, at in files_of(tmp_path).items() if at != before[p]}
            assert changed == {b"b.txt"}
            monkeypatch.undo()
            transactions_of(workspace.session).recover()
            assert_same(before, files_of(tmp_path))
