"""The record of the trees that were applied to the source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from workspace_support import created, state

from wink_workspace.errors import LedgerDamagedError
from wink_workspace.ledger import EMPTY_TREE_ID
from wink_workspace.workspace import Workspace
from wink_workspace.workspace.applied_trees import AppliedTrees
from wink_workspace.workspace.in_place.tree import InPlaceTree


@pytest.mark.parametrize("garbage", [b"", b"\xff\xfe\0", b"null", b"[]", b"{}"])
def test_unreadable_note_prevents_apply_but_not_opening(tmp_path: Path, garbage: bytes) -> None:
    with created(tmp_path, {"a": "a"}) as workspace:
        workspace.files.write_text("b", "b")
        workspace.apply()
        applied = workspace._folder.applied
    applied.write_bytes(garbage)
    with Workspace.open(workspace.info.id, storage=state(tmp_path)) as again:
        with pytest.raises(LedgerDamagedError, match="Delete it"):
            again.apply()
        applied.unlink()
        assert again.apply().paths == ()


def test_running_apply_is_not_reported_as_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def look() -> bool:
        caplog.clear()
        with Workspace.open(workspace.info.id, storage=state(tmp_path), branch="try") as fork:
            reported = fork.has_unfinished_apply
        assert reported is ("apply again" in caplog.text)
        return reported

    seen: list[bool] = []
    real = InPlaceTree.write_file

    def writing(tree: InPlaceTree, *args: Any, **options: Any) -> None:
        monkeypatch.undo()
        seen.append(look())
        real(tree, *args, **options)

    with created(tmp_path, {"a": "a"}) as workspace:
        workspace.fork("try")
        workspace.files.write_text("b", "b")
        monkeypatch.setattr(InPlaceTree, "write_file", writing)
        workspace.apply()
        assert seen == [False]
        AppliedTrees(workspace._folder.applied).begin(EMPTY_TREE_ID, EMPTY_TREE_ID)
        assert look(), "no apply is running"
