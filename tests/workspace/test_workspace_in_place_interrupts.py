"""Ctrl-C at any step of a change in place rolls the call back, and then ends the run."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from in_place_rig import begun, files_of, source_of, unfinished_in
from workspace_rig import assert_same, calls, doing, folder

from wink_workspace._kill_points import KillPoint, calling
from wink_workspace.filesystem import FileKind, parse_path
from wink_workspace.ledger import Effect, EffectJournal, EntryKind, TreeEntry
from wink_workspace.workspace import Workspace

FILES = {"a.txt": b"one\n", "run.sh": b"#!/bin/sh\n", "sub/b.txt": b"b\n", "sub/deep/c": b"c"}


def damage(workspace: Workspace) -> None:
    files = workspace.files
    files.write_text("a.txt", "spoilt\n")
    files.set_executable("run.sh", True)
    files.move("run.sh", "a.txt", overwrite=True)
    files.move("sub", "moved")
    files.delete("moved", recursive=True)
    files.symlink("sub", "new")
    files.mkdir("new/deep")
    files.apply_patch("--- /dev/null\n+++ b/p.txt\n@@ -0,0 +1 @@\n+x\n")


@pytest.mark.behaviour(25)
def test_interrupt_at_any_step_of_a_change_leaves_no_trace(tmp_path: Path) -> None:
    begun(tmp_path, FILES).close()
    left = [0]

    def interrupt(point: KillPoint) -> None:
        if point.startswith("effect-") and left[0] > 0:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt

    with calling(interrupt), Workspace(folder(tmp_path)) as workspace:
        before = files_of(tmp_path)
        with calls(workspace, doing(lambda: damage(workspace))) as call:
            for n in itertools.count(1):
                left[0] = n
                try:
                    done = call("act")
                except KeyboardInterrupt:
                    assert_same(before, files_of(tmp_path))
                    assert unfinished_in(source_of(tmp_path)) == []
                else:
                    assert done.result.success
                    break
            left[0] = 0
            assert n > 20
            call("ls")
        assert EntryKind.EXTERNAL not in [entry.kind for entry in workspace.log()]


def test_effect_journal_returns_its_lines_and_skips_a_truncated_one(
    tmp_path: Path,
) -> None:
    journal_path = tmp_path / "effects"
    journal = EffectJournal(journal_path, durable=True)
    name = b"caf\xe9 \n.txt".decode("utf-8", "surrogateescape")
    file = TreeEntry(FileKind.FILE, "1" * 40, executable=True)
    effects = [
        Effect(parse_path(name), None, file),
        Effect(parse_path("d"), TreeEntry(FileKind.DIRECTORY, ""), None, 0o750, ".wink-tmp-1"),
    ]
    assert journal.read().effects == []
    journal.add_unfinished(parse_path("d/.wink-tmp-1"))
    journal.add(effects)
    with journal_path.open("ab") as torn:
        torn.write(b'\n{"effects": [["cut')
    journal.add(effects[:1])
    journal.close()
    again = EffectJournal(journal_path)
    planned = again.read()
    assert planned.effects == [*effects, effects[0]]
    assert planned.unfinished == [parse_path("d/.wink-tmp-1")]
    again.clear()
    assert again.read().effects == []
    again.close()
