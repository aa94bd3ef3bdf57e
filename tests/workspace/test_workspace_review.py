"""Diffs and patches of any files need bounded memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from workspace_support import created, executor, git, make_tree, state, tree_of

from wink_workspace.errors import LimitExceededError
from wink_workspace.workspace import Workspace, WorkspaceReader

MIB = 1_048_576

_LIMITED = """
import resource, sys
from wink_workspace.errors import FilesystemError
from wink_workspace.filesystem import DiffLimits
from wink_workspace.ledger import tree_diff
from wink_workspace.workspace import Workspace, WorkspaceStorage

with Workspace.open(sys.argv[2], storage=WorkspaceStorage(sys.argv[1])) as workspace:
    resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[3]), -1))
    print(workspace.changeset().review().write_to(len))
    print(workspace.source.write_patch(len).left_out)
    changes = workspace.changeset()
    unlimited = DiffLimits(path_lines=10**9, total_lines=10**9, piece_lines=10**9)
    try:
        tree_diff(changes.store, changes.reported, limits=unlimited).write_to(len)
    except (FilesystemError, MemoryError):
        print("the limits were needed")
"""


def files_of(workspace: Workspace, tmp_path: Path) -> Path:
    return state(tmp_path).folder(workspace.info.id).files


def big(path: Path, n_bytes: int = 65 * MIB) -> None:
    path.touch()
    os.truncate(path, n_bytes)


def test_a_file_that_is_too_large_is_named_and_all_others_are_shown(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": "one\n"}) as workspace:
        files = files_of(workspace, tmp_path)
        big(files / "big.bin")
        with executor(workspace) as call:
            call("write_file", file_path="new.txt", content="new\n")
        token = workspace.files.snapshot()
        (files / "a.txt").write_text("two\n")
        big(files / "big2.bin", 5 * MIB)
        shown = workspace.diff()
        assert "big.bin: 65 MiB, not shown\nbig2.bin: 5 MiB, not shown\n" in shown
        assert "-one\n+two\n" in shown
        assert "big2.bin: 5 MiB, not shown\n" in workspace.files.diff(token)
        with pytest.raises(LimitExceededError, match=r"^big\.bin cannot be read as a whole"):
            workspace.changes()
        with executor(workspace) as call:
            call("write_file", file_path="new.txt", content="newer\n")
        with WorkspaceReader(state(tmp_path).folder(workspace.info.id)) as reader:
            assert "-one\n+two\n" in reader.changeset().review().text()
            external = reader.entry(reader.head.number - 1)
            assert "big2.bin: 5 MiB" in reader.review_of(external).text()
            assert reader.changeset(since=external).paths == ("new.txt",)


def test_a_patch_includes_files_that_are_too_large_to_be_shown(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": "one\n", "gone": "x" * 99 + "\n"}) as workspace:
        files = files_of(workspace, tmp_path)
        make_tree(files, {"a.txt": "two\n", "many": "a\n" * 1_000_001})
        (files / "gone").unlink()
        big(files / "big.bin", 5 * MIB)
        wanted = tree_of(files)
        with (tmp_path / "p.patch").open("wb") as file:
            applied = workspace.source.write_patch(file.write)
        assert applied.paths == ("a.txt", "big.bin", "gone", "many")
        assert applied.left_out == ()
    git(tmp_path / "source", "apply", "--whitespace=nowarn", str(tmp_path / "p.patch"))
    assert tree_of(tmp_path / "source") == wanted


def test_a_patch_of_more_than_a_million_lines_needs_bounded_memory(tmp_path: Path) -> None:
    """3 MB in which every second line changed; comparing them takes 280 MB."""
    with created(tmp_path, {"lines": "a\n" * 1_600_000}) as workspace:
        (files_of(workspace, tmp_path) / "lines").write_text("a\nb\n" * 800_000)
        which = workspace.info.id
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(tmp_path / "state"), which, str(150 * MIB)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["('lines',)", "()", "the limits were needed"]
