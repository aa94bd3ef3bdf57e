"""The record of paths whose permissions were narrower than git can store."""

from __future__ import annotations

from pathlib import Path

import pytest

from wink_workspace.filesystem import FileKind, parse_path
from wink_workspace.ledger import TreeEntry
from wink_workspace.workspace.place.mode_store import ModeStore

FIRST, SECOND = parse_path("first"), parse_path("second")
ENTRY = TreeEntry(FileKind.FILE, "0" * 40)


@pytest.mark.parametrize("garbage", [b'\n["first", 38', b"\n5", b"\n\xff\xfe", b"\nnull\n[]"])
def test_lines_after_a_truncated_line_are_kept(tmp_path: Path, garbage: bytes) -> None:
    path = tmp_path / "modes"
    before = ModeStore(path)
    before.observe(FIRST, 0o600, ENTRY)
    before.save()
    path.write_bytes(path.read_bytes() + garbage)
    after = ModeStore(path)
    after.observe(SECOND, 0o640, ENTRY)
    after.save()
    read = ModeStore(path)
    assert read.mode_for(FIRST, ENTRY) == 0o600
    assert read.mode_for(SECOND, ENTRY) == 0o640
