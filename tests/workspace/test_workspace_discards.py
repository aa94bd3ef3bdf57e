"""What a rollback throws away: kept, up to what a disk can be asked to hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from workspace_rig import assert_same, calls, doing, made, picture

from wink_workspace.workspace import tree_history


@pytest.mark.parametrize(("most_bytes", "n_kept"), [(1_000, 1), (999, 0)])
def test_what_is_thrown_away_is_kept_unless_it_is_too_much(
    most_bytes: int, n_kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_history, "MOST_DISCARDED_BYTES", most_bytes)
    with made(tmp_path, {"a.txt": b"a"}) as workspace:
        root = workspace._folder.files
        before = picture(root)

        def fill() -> None:
            (root / "one").write_bytes(b"1" * 500)
            (root / "two").write_bytes(b"2" * 500)

        with calls(workspace, doing(fill, fails=True)) as call:
            call("act")
        assert_same(before, picture(root))
        assert len(workspace._ledger.discarded()) == n_kept
