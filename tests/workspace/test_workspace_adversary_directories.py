"""Another program removes or replaces the directories of a workspace."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from workspace_rig import assert_same, die, folder, made, picture, reopened
from workspace_support import write

from wink_workspace.errors import UsageError


@pytest.mark.parametrize("crashed", [False, True])
def test_copy_whose_files_are_missing_is_restored_from_its_history(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, crashed: bool
) -> None:
    with made(tmp_path, {"d/a.txt": b"a\n", "run": b"#!/bin/sh\n"}, mode="copy") as workspace:
        write(workspace, **{"b.txt": "b\n"})
        files, head = folder(tmp_path).files, workspace.head
        before = picture(files)
        if crashed:
            workspace._writer.begin("c", "write_file", head.at)
            die(workspace)
    shutil.rmtree(files)
    with reopened(tmp_path) as workspace:
        assert_same(before, picture(files))
        assert workspace.head.files == head.files
    assert f"{files} is missing" in caplog.text


def test_link_in_place_of_the_files_of_a_copy_is_refused(tmp_path: Path) -> None:
    """A rollback or a restore would change the target of the link."""
    with made(tmp_path, {"a.txt": b"a\n"}, mode="copy") as workspace:
        write(workspace, **{"b.txt": "b\n"})
    files, elsewhere = folder(tmp_path).files, tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.txt").write_text("mine\n")
    files.rename(tmp_path / "kept")
    files.symlink_to(elsewhere)
    with pytest.raises(UsageError, match="is a link"):
        reopened(tmp_path)
    assert [path.name for path in elsewhere.iterdir()] == ["mine.txt"]
    files.unlink()
    with reopened(tmp_path):
        assert_same(picture(tmp_path / "kept"), picture(files))
