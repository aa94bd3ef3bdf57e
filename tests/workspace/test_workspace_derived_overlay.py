"""Derived paths of a branch on an overlay: in its own layer, never in a shared base."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_workspace_derived import PROJECT, SECRET, history_has
from workspace_rig import made, reopened, storage

from wink_workspace._kill_points import KillPoint, calling
from wink_workspace.filesystem.overlay.mounting import overlay_support
from wink_workspace.workspace import WorkspaceConfig

FOLDING = WorkspaceConfig(fold_above=2)


@pytest.fixture(autouse=True)
def _needs_overlays(tmp_path: Path) -> None:
    support = overlay_support(tmp_path)
    if not support.available:
        pytest.skip(support.reason)


def test_base_has_no_derived_path_and_a_fork_begins_with_them(tmp_path: Path) -> None:
    large = {**PROJECT, "node_modules/large.js": b"x" * 2_000_000}
    with made(tmp_path, large, mode="overlay") as workspace:
        for name, content in PROJECT.items():
            assert workspace.files.read_bytes(name) == content
        assert workspace.fork("try").left_out == ()
    with reopened(tmp_path, branch="try") as fork:
        for name, content in large.items():
            assert fork.files.read_bytes(name) == content
        assert fork.diff() == ""
    based = {path.name for path in (tmp_path / "state/bases").rglob("*")}
    assert "app.py" in based
    assert not based & {".env", "node_modules", "server.pem", "__pycache__"}
    assert not history_has(tmp_path, SECRET.strip())


def test_second_workspace_of_a_source_shares_the_base_and_not_the_secrets(tmp_path: Path) -> None:
    made(tmp_path, PROJECT, mode="overlay").close()
    (tmp_path / "source/.env").write_bytes(b"OTHER=1\n")
    with made(tmp_path, mode="overlay") as second:
        assert second.files.read_bytes(".env") == b"OTHER=1\n"
    assert len([path for path in (tmp_path / "state/bases").iterdir() if "-" in path.name]) == 1
    assert len(list(storage(tmp_path).all())) == 2


def changed(tmp_path: Path) -> None:
    with made(tmp_path, PROJECT, mode="overlay") as workspace, workspace.call("edit") as call:
        for n in range(5):
            call.files.write_text(f"src/{n}.py", f"{n}\n")
        call.files.write_text("node_modules/new/index.js", "new\n")
        call.files.write_text("src/__pycache__/new.pyc", "new\n")


def test_folded_branch_keeps_its_derived_paths(tmp_path: Path) -> None:
    changed(tmp_path)
    with reopened(tmp_path, config=FOLDING) as workspace:
        assert workspace.files.read_bytes("node_modules/new/index.js") == b"new\n"
        assert workspace.files.read_bytes("src/__pycache__/new.pyc") == b"new\n"
        assert workspace.files.read_bytes(".env") == SECRET
        assert workspace._opened.tracker.n_visited <= 4
        workspace.undo()
        assert not workspace.files.exists("src/4.py")


def test_branch_whose_derived_directory_was_one_of_the_base_is_not_folded(tmp_path: Path) -> None:
    """Its files are in the base alone, and the history does not have them."""
    changed(tmp_path)
    with reopened(tmp_path) as workspace, workspace.call("move") as call:
        call.files.move("src", "packages/node_modules")
    with reopened(tmp_path, config=FOLDING) as workspace:
        assert workspace.files.read_bytes("packages/node_modules/app.py") == b"print('hi')\n"
        assert workspace.files.read_bytes("packages/node_modules/4.py") == b"4\n"


def test_derived_file_that_was_one_of_the_base_stays_readable_beside_it(tmp_path: Path) -> None:
    """The kernel notes in the derived file which one of the base it was, and shows only one of both."""
    with made(tmp_path, {"config": SECRET, "a": b"1", "b": b"2"}, mode="overlay") as workspace:
        with workspace.call("rename") as call:
            call.files.move("config", ".env")
            call.files.move("a", "node_modules/a")
        workspace.undo()
    with reopened(tmp_path, config=WorkspaceConfig(fold_above=0)) as workspace:
        for name in (".env", "config"):
            assert workspace.files.read_bytes(name) == SECRET
        for name in ("a", "node_modules/a"):
            assert workspace.files.read_bytes(name) == b"1"


@pytest.mark.parametrize("point", ["fold-begun", "base-named", "upper-filled", "upper-in-place"])
def test_fold_that_is_interrupted_keeps_derived_paths(tmp_path: Path, point: str) -> None:
    changed(tmp_path)
    is_folding = False

    def interrupt(passed: KillPoint) -> None:
        nonlocal is_folding
        is_folding |= passed is KillPoint.FOLD_BEGUN
        if is_folding and passed == point:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), calling(interrupt):
        reopened(tmp_path, config=FOLDING)
    with reopened(tmp_path) as workspace:
        assert workspace.files.read_bytes("node_modules/new/index.js") == b"new\n"
        assert workspace.files.read_bytes("src/__pycache__/new.pyc") == b"new\n"
        assert workspace.files.read_bytes("src/4.py") == b"4\n"


@pytest.mark.parametrize("point", ["base-named", "upper-filled", "upper-in-place"])
def test_fork_whose_first_use_is_interrupted_begins_with_the_small_derived_paths(
    tmp_path: Path, point: str
) -> None:
    with made(tmp_path, PROJECT, mode="overlay") as workspace:
        workspace.fork("try")

    def interrupt(passed: KillPoint) -> None:
        if passed == point:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), calling(interrupt):
        reopened(tmp_path, branch="try")
    with reopened(tmp_path, branch="try") as fork:
        assert fork.files.read_bytes(".env") == SECRET
        fork.files.delete(".env")
    with reopened(tmp_path, branch="try") as fork:
        assert not fork.files.exists(".env")
