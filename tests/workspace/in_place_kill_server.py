"""Runs calls in the user's own directory, each time in a fresh child that is killed.

Requests and answers are those of ``kill_server``; ``work`` is ``calls``, ``undo`` or ``open``. After
each call the child writes a line to ``oracle``: the entry's number, every file, and the STATE.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from in_place_rig import begun, files_of  # noqa: E402 - needs the path above
from kill_server import Killer, serve  # noqa: E402 - as above
from workspace_rig import calls, doing, folder  # noqa: E402 - as above

from wink_workspace._kill_points import calling  # noqa: E402 - as above
from wink_workspace.workspace import Workspace  # noqa: E402 - as above

N_ROUNDS = 2
FILES = {
    "a.txt": b"line\n",
    "run.sh": b"#!/bin/sh\n",
    "mine.txt": b"mine\n",
    **{f"d{n}/{n}.txt": b"content 0\n" for n in range(8)},
}

State = dict[str, Any]


def state_of(workspace: Workspace, directory: Path) -> State:
    """Every file by its path, and a digest of the STATE."""
    files = {
        os.fsdecode(path): [kind, mode, hashlib.sha256(content).hexdigest()]
        for path, (kind, mode, content) in files_of(directory).items()
    }
    slices = json.loads(workspace.session.dump_state())["slices"]
    state = json.dumps({name: values for name, values in slices.items() if values}, sort_keys=True)
    return {"files": files, "session": hashlib.sha256(state.encode()).hexdigest()}


def tools_for(workspace: Workspace, killer: Killer) -> list[Any]:
    """Tools that make many changes; the last one fails unless it is killed before."""
    files = workspace.files

    def turn() -> None:
        files.set_executable("run.sh", not files.stat("run.sh").executable)
        files.write_bytes("log.txt", b"more\n" * 200, mode="append")
        for name in ("link", "dangling"):
            if name in names():
                files.delete(name)
            files.symlink(name, "a.txt" if name == "link" else "nowhere")
        files.mkdir("empty")
        files.delete("empty")

    def names() -> set[str]:
        return {entry.path.name for entry in files.list()}

    def damage() -> None:
        files.write_text("a.txt", "spoilt")
        files.write_text("junk/more", "x" * 3_000)
        files.move("run.sh", "junk/run.sh")
        killer("damage")
        files.delete("d0", recursive=True)
        files.move("d1", "d0")
        killer("damage")
        files.write_text("d0/1.txt", "spoilt")
        killer("damage")

    return [doing(turn, name="turn"), doing(damage, name="damage", fails=True)]


def script() -> list[tuple[str, dict[str, object]]]:
    """The calls to run, some of each kind."""
    found: list[tuple[str, dict[str, object]]] = []
    for n in range(N_ROUNDS):
        patch = (
            f"--- /dev/null\n+++ b/p{n}/x.txt\n@@ -0,0 +1 @@\n+patched {n}\n"
            f"--- a/d2/2.txt\n+++ b/d2/2.txt\n@@ -1 +1 @@\n-content {n}\n+content {n + 1}\n"
        )
        found += [
            ("planning_setup_plan", {"objective": f"Round {n}", "initial_steps": ["one", "two"]}),
            ("read_file", {"file_path": "a.txt"}),
            ("edit_file", {"file_path": "a.txt", "old_string": "line", "new_string": f"line {n}"}),
            ("write_file", {"file_path": f"deep/er/{n}.txt", "content": f"{n}\n" * 2_000}),
            ("read_file", {"file_path": "d2/2.txt"}),
            ("apply_patch", {"patch": patch}),
            ("turn", {}),
            ("damage", {}),
            ("mv", {"source": f"p{n}", "destination": f"deep/q{n}"}),
            (
                "mv",
                dict(zip(("source", "destination"), ("d3", "e3")[:: -1 if n else 1], strict=True)),
            ),
            ("rm", {"path": f"deep/er/{n - 1}.txt"} if n else {"path": "d4"}),
        ]
    return found


def note(workspace: Workspace, directory: Path) -> None:
    (head,) = workspace.log(limit=1)
    line = json.dumps({"number": head.number, **state_of(workspace, directory)})
    with (directory / "oracle").open("a") as oracle:
        oracle.write(line + "\n")


def work_calls(directory: Path, killer: Killer) -> None:
    """Run the script."""
    with calling(killer), Workspace(folder(directory)) as workspace:
        with calls(workspace, *tools_for(workspace, killer), prefix="mixed") as call:
            for name, arguments in script():
                call(name, **arguments)
                note(workspace, directory)


def work_undo(directory: Path, killer: Killer) -> None:
    """Undo everything that the script did, redo one call, and restore the start."""
    with calling(killer), Workspace(folder(directory)) as workspace, calls(workspace):
        for step in (*[workspace.undo] * 6, workspace.redo, lambda: workspace.restore(1)):
            step()
            note(workspace, directory)


def work_open(directory: Path, killer: Killer) -> None:
    """Open and close."""
    with calling(killer):
        Workspace(folder(directory)).close()


def warm_up() -> None:
    """Load modules before the fork, so that each child need not."""
    with tempfile.TemporaryDirectory() as temporary:
        begun(Path(temporary), FILES).close()
        work_calls(Path(temporary), Killer())


if __name__ == "__main__":
    os.umask(0o022)  # a new directory has its final mode from the start
    warm_up()
    for line in sys.stdin:
        print(serve(json.loads(line), globals()), flush=True)
