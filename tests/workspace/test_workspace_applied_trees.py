"""The note of what the source was given."""

from __future__ import annotations

from pathlib import Path

import pytest
from workspace_support import created, state

from wink_workspace.errors import LedgerDamagedError
from wink_workspace.workspace import Workspace


@pytest.mark.parametrize("garbage", [b"", b"\xff\xfe\0", b"null", b"[]", b"{}"])
def test_a_note_that_cannot_be_read_lets_a_workspace_open_and_stops_only_apply(
    tmp_path: Path, garbage: bytes
) -> None:
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
