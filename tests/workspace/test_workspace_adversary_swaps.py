"""A path is replaced by another kind of file between its read and its write."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from workspace_rig import calls, made

from wink_workspace.workspace import Workspace

_PATCH = "*** Begin Patch\n*** Update File: d/f.txt\n@@\n-old\n+new\n*** End Patch"


def _put_before_the_next_write(
    workspace: Workspace,
    path: str,
    make: Callable[[Path], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Replace *path* after it was read and before it is written, as another program would."""
    tree = workspace.files.tree  # pyright: ignore[reportAttributeAccessIssue] - it is on disk
    todo, write = [tree.root / path], tree.write_file

    def swapped(*arguments: Any, **options: Any) -> None:
        while todo:
            there = todo.pop()
            shutil.rmtree(there) if there.is_dir() else there.unlink()
            make(there)
        write(*arguments, **options)

    monkeypatch.setattr(tree, "write_file", swapped)


def _link(path: Path) -> None:
    path.symlink_to("..")


def _file(path: Path) -> None:
    path.write_text("a file\n")


def _pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("mode", ["copy", "in_place"])
@pytest.mark.parametrize(
    ("path", "make"),
    [("d", _link), ("d", _file), ("d", _pipe), ("d/f.txt", _pipe)],
    ids=["link for directory", "file for directory", "pipe for directory", "pipe for file"],
)
def test_workspace_stays_usable_when_the_file_of_a_patch_is_replaced_before_the_write(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: Any,
    path: str,
    make: Callable[[Path], object],
) -> None:
    with (
        made(tmp_path, {"d/f.txt": b"old\n", "other.txt": b"other\n"}, mode=mode) as workspace,
        calls(workspace) as call,
    ):
        call("read_file", file_path="d/f.txt")
        _put_before_the_next_write(workspace, path, make, monkeypatch)
        call("apply_patch", patch=_PATCH)  # must not raise an error that the workspace is poisoned
        assert call("read_file", file_path="other.txt").result.success
