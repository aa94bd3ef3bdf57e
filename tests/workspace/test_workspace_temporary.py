"""Temporary workspaces: their folder is deleted on close or when the interpreter ends."""

from __future__ import annotations

import fcntl
import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from workspace_support import make_tree, write

from wink_workspace.errors import MountError
from wink_workspace.workspace import Workspace
from wink_workspace.workspace.place.storage import sweep_temporary


@pytest.fixture
def temporary_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which temporary folders are created."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


@pytest.mark.behaviour(36)
def test_close_deletes_the_folder_whatever_modes_are_in_it(
    tmp_path: Path, temporary_root: Path
) -> None:
    source = make_tree(tmp_path / "source", {"a": "a", "d/e": "e"})
    with Workspace.temporary(source) as workspace:
        write(workspace, b="b")
        assert len(list(temporary_root.iterdir())) == 1
        assert not list(source.rglob("*.git")), "the history lies outside of the tree"
        (next(temporary_root.rglob("files")) / "d").chmod(0)
    assert list(temporary_root.iterdir()) == []
    workspace.close()


@pytest.mark.behaviour(36)
def test_the_folder_stays_while_only_its_files_object_is_referenced(
    tmp_path: Path, temporary_root: Path
) -> None:
    workspace = Workspace.temporary(make_tree(tmp_path / "source", {"a": "a"}))
    files, close = workspace.files, workspace.close
    del workspace
    gc.collect()
    assert files.read_text("a").text == "a"
    close()
    assert list(temporary_root.iterdir()) == []


@pytest.mark.behaviour(36)
@pytest.mark.parametrize("ending", ["", "raise SystemExit(3)", "1 / 0"])
def test_the_folder_is_deleted_when_the_interpreter_ends(tmp_path: Path, ending: str) -> None:
    source = make_tree(tmp_path / "source", {"a": "a"})
    (tmp_path / "tmp").mkdir()
    program = (
        "import sys, os\n"
        "from wink_workspace.workspace import Workspace\n"
        "workspace = Workspace.temporary(sys.argv[1])\n"
        "if os.fork() == 0:\n"
        "    sys.exit()\n"  # a child that ends deletes nothing
        "os.wait()\n"
        "print(workspace.files.read_text('a').text, flush=True)\n" + ending
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(source)],
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "a\n", done.stderr
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_source_that_cannot_be_copied_leaves_no_folder(
    tmp_path: Path, temporary_root: Path
) -> None:
    with pytest.raises(MountError):
        Workspace.temporary(tmp_path / "none")
    assert list(temporary_root.iterdir()) == []


@pytest.mark.behaviour(139)
def test_the_folder_of_a_killed_process_is_deleted_by_the_next_one(
    tmp_path: Path, temporary_root: Path
) -> None:
    source = make_tree(tmp_path / "source", {"a": "a", "d/e": "e"})
    (temporary_root / "wink-workspace-of-another-program").mkdir()
    with Workspace.temporary(source) as alive:
        program = (
            "import sys\n"
            "from wink_workspace.workspace import Workspace\n"
            "workspace = Workspace.temporary(sys.argv[1])\n"
            "print('open', flush=True)\n"
            "sys.stdin.read()\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program, str(source)],
            env={**os.environ, "TMPDIR": str(temporary_root)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"open\n"
            Workspace.temporary(source).close()
            assert len(list(temporary_root.iterdir())) == 3, "two are in use"
            process.kill()
        Workspace.temporary(source).close()
        assert len(list(temporary_root.iterdir())) == 2
        assert alive.files.read_text("a").text == "a"
    assert [path.name for path in temporary_root.iterdir()] == ["wink-workspace-of-another-program"]


def test_a_folder_that_its_owner_deletes_during_a_sweep_is_passed_over(
    tmp_path: Path, temporary_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending = Workspace.temporary(make_tree(tmp_path / "source", {"a": "a"}))
    real, last = fcntl.flock, [ending.close]

    def end_before(lock: int, operation: int) -> None:
        if last:
            last.pop()()
        real(lock, operation)

    with monkeypatch.context() as late:
        late.setattr(fcntl, "flock", end_before)
        assert sweep_temporary() == 0
    assert list(temporary_root.iterdir()) == []
