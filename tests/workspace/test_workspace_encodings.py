"""Text of any encoding in a workspace on disk: calls, the diff, and what reaches the source."""

from __future__ import annotations

from pathlib import Path

import pytest
from text_samples import SAMPLES
from workspace_support import created, executor, git, make_tree

ODD = b"\x87\x90\xa1\xfe\xff\r\n"
"""Bytes that are not text in UTF-8, and that an encoder of cp932 or Big5 would write otherwise."""
WIDE = ("utf-16", "utf-32")
FILES = {
    f"{n}-{sample.codec}{'-odd' * bool(odd)}.txt": (sample, odd)
    for n, sample in enumerate(SAMPLES)
    for odd in (b"", ODD)
    if not (odd and sample.codec.startswith(WIDE))
}


@pytest.mark.behaviour(50)
def test_files_of_every_encoding_are_edited_compared_and_applied_byte_for_byte(
    tmp_path: Path,
) -> None:
    before = {name: sample.data() + odd for name, (sample, odd) in FILES.items()}
    new = "value = 2\r\nmore = 3"
    after = {name: sample.data(new) + odd for name, (sample, odd) in FILES.items()}
    with created(tmp_path, before) as workspace:
        with executor(workspace) as call:
            for name, (sample, odd) in FILES.items():
                shown = call("read_file", file_path=name)
                assert odd or sample.letters in shown
                call("edit_file", file_path=name, old_string="value = 1", new_string="value = 2")
                after_it = "" if odd else f" end {sample.letters}\n"
                patch = f"--- a/{name}\n+++ b/{name}\n@@\n value = 2\n+more = 3\n{after_it}"
                call("apply_patch", patch=patch)
                whole = workspace.files.read_text(name).text + "\n"
                call("write_file", file_path=name, content=whole)
        assert {name: workspace.files.read_bytes(name) for name in FILES} == after
        copy = make_tree(tmp_path / "copy", before)
        (tmp_path / "patch").write_text(
            workspace.diff(), encoding="utf-8", errors="surrogateescape", newline=""
        )
        git(copy, "init", "-q")
        git(copy, "apply", "--whitespace=nowarn", "../patch")
        assert {name: (copy / name).read_bytes() for name in FILES} == after
        for name, (sample, _) in FILES.items():  # apply merges with what the user did meanwhile
            if not sample.codec.startswith(WIDE):
                (tmp_path / "source" / name).write_bytes(before[name] + b"user\r\n")
                after[name] += b"user\r\n"
        workspace.apply()
    assert {name: (tmp_path / "source" / name).read_bytes() for name in FILES} == after
