"""The diff for clients if one file is too large to be shown."""

from __future__ import annotations

import json
import os
from pathlib import Path

from wink_workspace.mcp_server.operations import OPERATIONS
from wink_workspace.mcp_server.resource_reading import read_resource
from wink_workspace.workspace import Workspace


def test_diff_with_one_too_large_file_shows_the_other_files(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_text("one\n")
    show, _, undo, *_ = OPERATIONS
    with Workspace.temporary(source) as workspace:
        files = Path(workspace.files.tree.root)
        (files / "big.bin").touch()
        os.truncate(files / "big.bin", 65 * 1_048_576)
        (files / "a.txt").write_text("two\n" + "x" * 150_000 + "\n")
        shown = show.run(workspace, {}).value
        assert shown.n_paths == 2
        assert shown.diff.startswith("diff --git a/a.txt b/a.txt\n")
        assert len(shown.diff) + shown.n_more_chars > 150_000
        resource = read_resource(workspace, "workspace://diff", str)
        assert resource is not None
        assert "-one\n+two\n" in resource.contents[0].text
        assert resource.contents[0].text.endswith("big.bin: 65 MiB, not shown\n")
        workspace.restore(1)
        entry = read_resource(workspace, "workspace://history/2", str)
        assert entry is not None
        assert "big.bin: 65 MiB, not shown\n" in json.loads(entry.contents[0].text)["diff"]
        assert show.run(workspace, {"entry": 2}).success
        assert undo.run(workspace, {}).value.entry == 3, "the restore is undone"
