"""Apply to the source: all changes or none, and no overwriting of changes of others."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from itertools import count
from pathlib import Path

import pytest
from workspace_support import created, git, make_tree, state, tree_of, write

from wink_workspace._kill_points import KillPoint, calling
from wink_workspace.errors import (
    ConflictError,
    FilesystemError,
    RollbackError,
    UsageError,
)
from wink_workspace.ledger import Retention
from wink_workspace.workspace import Workspace, WorkspaceConfig
from wink_workspace.workspace.in_place.guarded_checkout import Checkout
from wink_workspace.workspace.in_place.in_place_tree import InPlaceTree

FILES: dict[str, str | bytes | None] = {
    "a.txt": "one\ntwo\nthree\n",
    "run.sh": "#!/bin/sh\n",
    "dir/b.txt": "b\n",
    "dir/sub/c.bin": bytes(range(256)),
    "link": "-> a.txt",
    "empty": None,
}


def change_everything(files: Path) -> None:
    """Make every kind of change, outside of any call."""
    (files / "a.txt").write_text("one\nTWO\nthree\n")
    (files / "run.sh").chmod(0o644)
    (files / "dir/b.txt").unlink()
    (files / "dir/sub/c.bin").unlink()
    (files / "dir/sub").rmdir()
    (files / "dir/sub").write_text("a file now\n")
    (files / "link").unlink()
    (files / "link").symlink_to("elsewhere")
    (files / "empty").rmdir()
    (files / "empty").symlink_to("/nowhere")
    make_tree(files / "new", {"deep/x": "#!/bin/sh\nx\n", "void": None})


def files_of(workspace: Workspace, tmp_path: Path) -> Path:
    return state(tmp_path).folder(workspace.info.id).files


@pytest.mark.behaviour(42)
def test_the_source_gets_every_kind_of_change(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        change_everything(files_of(workspace, tmp_path))
        applied = workspace.apply()
        assert tree_of(tmp_path / "source") == tree_of(files_of(workspace, tmp_path))
        assert "dir/sub/c.bin" in applied.paths
        assert workspace.apply().paths == (), "there is nothing left to do"


@pytest.mark.parametrize("path", ["a.txt", "dir/b.txt", "dir/sub/mine", "new/deep/x"])
def test_conflict_in_one_path_of_the_source_prevents_every_write(tmp_path: Path, path: str) -> None:
    with created(tmp_path, FILES) as workspace:
        change_everything(files_of(workspace, tmp_path))
        make_tree(tmp_path / "source", {path: "of a human\n"})
        before = tree_of(tmp_path / "source")
        with pytest.raises(ConflictError, match=path.partition("/")[0]):
            workspace.apply()
        assert tree_of(tmp_path / "source") == before


def test_all_conflicts_are_named(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        change_everything(files_of(workspace, tmp_path))
        make_tree(tmp_path / "source", {"a.txt": "x", "dir/b.txt": "y"})
        with pytest.raises(ConflictError, match=r"a\.txt, dir/b\.txt"):
            workspace.apply()


def test_other_paths_of_the_source_may_have_changed(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        write(workspace, **{"new.txt": "new"})
        make_tree(tmp_path / "source", {"a.txt": "of a human\n"})
        assert workspace.apply().paths == ("new.txt",)
        assert (tmp_path / "source/a.txt").read_text() == "of a human\n"


def test_a_second_apply_applies_later_changes_and_undos(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        write(workspace, **{"new.txt": "1"})
        workspace.apply()
        (files_of(workspace, tmp_path) / "new.txt").write_text("2")
        workspace.apply()
        assert (tmp_path / "source/new.txt").read_text() == "2"
        workspace.restore(1)
        workspace.apply()
        assert not (tmp_path / "source/new.txt").exists()


@pytest.mark.behaviour(42)
def test_nothing_is_written_through_a_link_in_the_source(tmp_path: Path) -> None:
    outside = make_tree(tmp_path / "outside", {"b.txt": "b\n", "sub/c.bin": bytes(range(256))})
    with created(tmp_path, FILES) as workspace:
        (files_of(workspace, tmp_path) / "dir/b.txt").write_text("changed")
        (files_of(workspace, tmp_path) / "dir/fresh").write_text("fresh")
        (tmp_path / "source/dir").rename(tmp_path / "moved")
        (tmp_path / "source/dir").symlink_to(outside)
        before = tree_of(outside)
        with pytest.raises(ConflictError):
            workspace.apply()
        assert tree_of(outside) == before


@pytest.mark.behaviour(31)
def test_no_git_directory_is_touched_in_any_spelling(tmp_path: Path) -> None:
    nested = {"sub/.git/config": "[core]\n", "sub/x": "x", "gone/.git/HEAD": "h", "gone/y": "y"}
    with created(tmp_path, {**FILES, **nested}) as workspace:
        files = files_of(workspace, tmp_path)
        make_tree(tmp_path / "source/.git", {"HEAD": "ref: refs/heads/main\n"})
        make_tree(files, {".git/hooks/post": "evil", ".GIT/x": "evil", "sub/x": "changed"})
        (files / "sub/.git/config").write_text("[core]\nhooksPath = evil\n")
        make_tree(files, {"gone/y": "y"})
        for path in ("gone/y", "gone/.git/HEAD"):
            (files / path).unlink()
        (files / "gone/.git").rmdir()
        (files / "gone").rmdir()
        applied = workspace.apply()
    assert applied.paths == ("gone/y", "sub/x")
    assert set(applied.left_out) == {".git", ".GIT", "sub/.git/config", "gone/.git"}
    source = tmp_path / "source"
    assert not (source / ".git/hooks").exists()
    assert not (source / ".GIT").exists()
    assert (source / "sub/.git/config").read_text() == "[core]\n"
    assert (source / "gone/.git/HEAD").exists()


def test_a_failure_at_any_step_reverts_the_earlier_steps(tmp_path: Path) -> None:
    """Fail at step 1, 2, 3, ... of the writes until none fails; no failure leaves a trace."""
    steps = FailingSteps()
    with created(tmp_path, FILES) as workspace:
        which = workspace.info.id
    source = tmp_path / "source"
    (source / "dir/b.txt").chmod(0o600)
    before = tree_of(source)
    with calling(steps), Workspace(state(tmp_path).folder(which)) as workspace:
        change_everything(files_of(workspace, tmp_path))
        for n in count(1):
            steps.fail_at(n)
            try:
                workspace.apply()
            except FilesystemError:
                assert tree_of(source) == before, f"trace left after step {n}"
                assert not workspace.source.has_unfinished_apply
                continue
            assert n > 24, "three for each change"
            break


class FailingSteps:
    """Raises an error at one of the kill points of writing the source."""

    def __init__(self) -> None:
        self._left = 0

    def fail_at(self, n: int) -> None:
        """Fail only at the n-th point from now on."""
        self._left = n

    def __call__(self, point: KillPoint) -> None:
        if point.value.startswith(("effect-", "source-")):
            self._left -= 1
            if self._left == 0:
                raise FilesystemError(os.strerror(errno.EIO))


@pytest.mark.behaviour(87)
def test_an_apply_that_was_killed_at_any_step_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a kill the source has a part of the changes; the next apply must recognize it."""
    steps = FailingSteps()
    with created(tmp_path, FILES) as workspace:
        which = workspace.info.id
    with calling(steps), Workspace(state(tmp_path).folder(which)) as workspace:
        source, applied = tmp_path / "source", state(tmp_path).folder(workspace.info.id).applied
        change_everything(files_of(workspace, tmp_path))
        for n in count(1):
            with monkeypatch.context() as patched:
                steps.fail_at(n)
                patched.setattr(Checkout, "take_back", lambda *_: 1 / 0)
                try:
                    workspace.apply()
                except (ZeroDivisionError, FilesystemError):
                    pass
                else:
                    break
            with (files_of(workspace, tmp_path) / "log.txt").open("a") as more:
                more.write("what came later\n")
            workspace.apply()
            assert tree_of(source) == tree_of(files_of(workspace, tmp_path)), f"killed at {n}"
            shutil.rmtree(source)
            make_tree(source, FILES)
            applied.unlink()
        assert n > 24, "three for each change"


@pytest.mark.parametrize("undoes", [False, True])
def test_the_number_of_waits_for_the_device_does_not_depend_on_the_number_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undoes: bool
) -> None:
    """Contents are synced together before the first name changes, the names after the last."""
    before = {f"{n}/{name}": "old" for n in range(20) for name in ("changed", "removed")}
    after = {f"{n}/{name}": "new" for n in range(20) for name in ("changed", "added", "sub/added")}
    waits: list[str] = []
    for name in ("os.fsync", "wink_workspace.workspace.in_place.in_place_tree.sync_filesystem"):
        module, _, attribute = name.rpartition(".")
        real = getattr(sys.modules[module], attribute)

        def counting(file: object, real=real, attribute=attribute) -> None:
            waits.append(attribute)
            real(file)

        monkeypatch.setattr(sys.modules[module], attribute, counting)
    with created(tmp_path, before) as workspace:
        for path in before.keys() - after.keys():
            (files_of(workspace, tmp_path) / path).unlink()
        make_tree(files_of(workspace, tmp_path), after)
        waits.clear()
        if undoes:

            def fail(point: KillPoint) -> None:
                if point is KillPoint.SOURCE_WRITTEN:
                    raise FilesystemError(os.strerror(errno.EIO))

            with calling(fail), pytest.raises(FilesystemError):
                workspace.apply()
            assert (tmp_path / "source/0/removed").read_text() == "old"
        else:
            workspace.apply()
            assert tree_of(tmp_path / "source") == tree_of(files_of(workspace, tmp_path))
    assert waits.count("sync_filesystem") <= (8 if undoes else 4), "two, on two filesystems"
    assert waits.count("fsync") < 10


def test_a_source_that_cannot_be_restored_is_reported_and_restored_by_the_next_apply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with created(tmp_path, FILES) as workspace:
        before = tree_of(tmp_path / "source")
        change_everything(files_of(workspace, tmp_path))

        def fails(self: InPlaceTree, path, *args, **kwargs) -> None:
            raise FilesystemError(f"{path}: {os.strerror(errno.EIO)}")

        with monkeypatch.context() as patched:
            for name in ("write_file", "make_symlink"):
                patched.setattr(InPlaceTree, name, fails)
            with pytest.raises(
                RollbackError, match=r"could not be restored: .*sub/c\.bin.*apply again"
            ):
                workspace.apply()
        workspace.restore(1)
        workspace.apply()
        assert tree_of(tmp_path / "source") == before


def test_a_pipe_in_place_of_a_file_is_a_conflict(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        change_everything(files_of(workspace, tmp_path))
        (tmp_path / "source/a.txt").unlink()
        os.mkfifo(tmp_path / "source/a.txt")
        with pytest.raises(ConflictError, match=r"a\.txt"):
            workspace.apply()


def test_the_imported_files_are_kept_with_the_smallest_history(tmp_path: Path) -> None:
    make_tree(tmp_path / "source", FILES)
    config = WorkspaceConfig(retention=Retention(budget_bytes=1))
    with Workspace.create(tmp_path / "source", storage=state(tmp_path), config=config) as workspace:
        write(workspace, **{"new.txt": "new"})
        workspace.maintain()
        assert workspace.forks() == ()
        assert workspace.apply().paths == ("new.txt",)


def test_a_missing_source_is_reported(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        (tmp_path / "source").rename(tmp_path / "elsewhere")
        with pytest.raises(UsageError, match="source"):
            workspace.apply()


def test_git_applies_the_patch_to_the_source(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        write(workspace, **{"new.txt": "new\n", ".git/config": "evil"})
        (files_of(workspace, tmp_path) / "a.txt").write_bytes(b"\xff\n")
        before = tree_of(tmp_path / "source")
        applied = workspace.apply("patch")
        assert applied.paths == ("a.txt", "new.txt")
        assert applied.left_out == (".git",)
        assert tree_of(tmp_path / "source") == before
        patch = tmp_path / "p.patch"
        patch.write_text(applied.patch, errors="surrogateescape")
        git(tmp_path / "source", "apply", str(patch))
        assert (tmp_path / "source/a.txt").read_bytes() == b"\xff\n"


def test_a_file_restored_by_apply_has_no_wider_permissions_than_before(tmp_path: Path) -> None:
    secret = make_tree(tmp_path / "source", {"keys/secret": "secret"}) / "keys" / "secret"
    secret.chmod(0o600)
    secret.parent.chmod(0o700)
    with created(tmp_path, {}) as workspace:
        workspace.files.delete("keys", recursive=True)
        workspace.apply()
        assert not secret.parent.exists()
        workspace.restore(1)
        workspace.apply()
        assert (secret.read_text(), secret.stat().st_mode & 0o777) == ("secret", 0o600)
        assert secret.parent.stat().st_mode & 0o777 == 0o700
