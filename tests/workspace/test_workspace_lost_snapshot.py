"""A snapshot that no entry has may lose its objects to the maintenance of another process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from workspace_rig import assert_fsck_clean, folder, made, reopened

from wink_workspace.filesystem.overlay.mounting import overlay_support
from wink_workspace.workspace import Workspace

FILES = {
    "kept.txt": b"kept\n",
    **{f"d{n}/sub/{k}.txt": b"%d\n" % k for n in range(3) for k in range(40)},
}
TWO_HOURS = 7_200


@pytest.fixture(params=["copy", "overlay", "in_place"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Workspace:
    if request.param == "overlay" and not (support := overlay_support(tmp_path)).available:
        pytest.skip(support.reason)
    with made(tmp_path, FILES, mode=request.param) as workspace:
        workspace.fork("other")
        yield workspace


def lose_snapshot(workspace: Workspace, directory: Path) -> None:
    """Let two hours pass after the last snapshot, and the process of a fork do maintenance."""
    workspace._ledger.store.open_packs.seal()
    for path in (folder(directory).ledger / "objects").rglob("*"):
        when = path.stat().st_mtime - TWO_HOURS
        os.utime(path, (when, when))
    root = workspace._history.snapshot().root
    with reopened(directory, branch="other") as other:
        other.maintain()
        assert root not in other._ledger.store.repository


def edit(workspace: Workspace) -> None:
    """Change files outside of any call, and look at the changes."""
    workspace.files.write_text("d1/sub/7.txt", "edited\n")
    workspace.files.delete("d2/sub/8.txt")
    assert "+edited" in workspace.diff()


def test_a_diff_after_that_shows_the_same_changes(workspace: Workspace, tmp_path: Path) -> None:
    edit(workspace)
    before = workspace.diff()
    lose_snapshot(workspace, tmp_path)
    assert workspace.diff() == before


@pytest.mark.parametrize("edits_again", [False, True])
def test_a_call_after_that_commits_the_edits_and_itself(
    workspace: Workspace, tmp_path: Path, edits_again: bool
) -> None:
    edit(workspace)
    lose_snapshot(workspace, tmp_path)
    if edits_again:
        workspace.files.write_text("d1/sub/9.txt", "edited again\n")
    with workspace.call("write") as call:
        call.files.write_text("kept.txt", "by the call\n")
    made_by_call, external, *_ = workspace.log()
    shown = workspace.diff()
    workspace.undo()
    assert workspace.files.read_bytes("kept.txt") == b"kept\n"
    assert workspace.files.read_bytes("d1/sub/7.txt") == b"edited\n"
    assert (made_by_call.kind, external.kind) == ("call", "external")
    assert "+by the call" in shown
    assert ("+edited again" in shown) == edits_again
    workspace.close()
    assert_fsck_clean(folder(tmp_path).ledger)


def test_a_call_that_fails_after_that_leaves_the_edits(
    workspace: Workspace, tmp_path: Path
) -> None:
    edit(workspace)
    lose_snapshot(workspace, tmp_path)
    with pytest.raises(RuntimeError), workspace.call("fails") as call:
        call.files.write_text("d1/sub/7.txt", "by the call\n")
        raise RuntimeError("the program failed")
    assert workspace.files.read_bytes("d1/sub/7.txt") == b"edited\n"
    assert not workspace.files.exists("d2/sub/8.txt")
