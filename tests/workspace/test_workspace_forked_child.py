"""A forked child cannot write, and does not change its parent's workspace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_WATCHDOG_S = 60.0
_SCRIPT = """
import json, os, sys, threading
from pathlib import Path
from workspace_rig import calls, doing, folder, made, storage
from wink_workspace.errors import WinkError
from wink_workspace.workspace import Workspace

here, mode = Path(sys.argv[1]), sys.argv[2]
workspace = made(here, {"a.txt": b"a"}, mode=mode)
temporary = Workspace.temporary(here / "source") if mode == "copy" else None
root, answers = folder(here).files, here / "answers"
with calls(workspace) as call:
    call("write_file", file_path="made.txt", content="made")
    (root / "theirs.txt").write_text("an edit that the parent has not seen yet")
    discard = here / "no"
    ways = {
        "call": lambda: call("write_file", file_path="b.txt", content="b"),
        "write": lambda: workspace.files.write_text("b.txt", "b"),
        "delete": lambda: workspace.files.delete("a.txt"),
        "edit": lambda: workspace.files.edit("a.txt", "a", "b"),
        "mkdir": lambda: workspace.files.mkdir("d"),
        "snapshot": lambda: workspace.files.snapshot(),
        "changes": lambda: workspace.changes(),
        "undo": lambda: workspace.undo(),
        "redo": lambda: workspace.redo(),
        "restore": lambda: workspace.restore(1),
        "restore_discarded": lambda: workspace.restore_discarded(1),
        "fork": lambda: workspace.fork("child"),
        "delete_fork": lambda: workspace.branches.delete("child"),
        "apply": lambda: workspace.apply("patch"),
        "maintain": lambda: workspace.maintain(),
    }
    if mode == "copy":
        ways["sandbox"] = lambda: workspace.sandbox()
    locked, done = threading.Event(), threading.Event()

    def hold() -> None:  # as a call on another thread does
        with workspace.session.lock:
            locked.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    locked.wait()
    child = os.fork()
    if child == 0:
        outcomes = {}
        for name, way in ways.items():
            try:
                way()
            except WinkError as error:
                outcomes[name] = [error.code, str(error)]
            else:
                outcomes[name] = ["done", ""]
        answers.write_text(json.dumps(outcomes))
        workspace.close()
        sys.exit(0)  # runs what is registered for the end of the interpreter
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    done.set()
    thread.join()
    if temporary is not None:
        assert temporary.files.read_text("a.txt").text == "a"
        temporary.close()
    assert call("ls").result.success
    (edit, made_entry) = [entry for entry in workspace.log(limit=3)][1:]
    assert edit.kind == "external", edit
    assert (root / "theirs.txt").exists()
    assert call("write_file", file_path="after.txt", content="after").result.success
    (root / "seen.txt").write_text("the parent still hears of changes")
    call("ls")
    assert [entry.kind.value for entry in workspace.log(limit=2)] == ["call", "external"]
workspace.close()
"""


@pytest.mark.parametrize("mode", ["copy", "in_place"])
def test_every_writer_raises_in_a_forked_child_and_the_parent_continues(
    mode: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(tmp_path), mode],
        capture_output=True,
        text=True,
        check=False,
        timeout=_WATCHDOG_S,
        env={**os.environ, "PYTHONPATH": f"{_HERE}:{_HERE.parent}"},
    )
    assert done.returncode == 0, done.stderr
    outcomes = json.loads((tmp_path / "answers").read_text())
    assert {name for name, (code, _) in outcomes.items() if code != "forked-process"} == set()
    assert all("a forked child cannot use" in text for _, text in outcomes.values())
