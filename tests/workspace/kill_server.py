"""Run the same mixed calls repeatedly, each time in a new child that is killed.

``python kill_server.py`` reads one JSON request a line and answers each with the number of the
signal that ended the child, 0 if it was not killed::

    {"directory": "/tmp/x", "work": "calls", "kill": ["commit-written", 3]}
    {"directory": "/tmp/x", "work": "undo", "kill": 0.0314}

``work`` names a function ``work_...``. ``kill`` is ``null``, or a time in seconds, or a name and a
count n: kill at the n-th pass of that kill point, of the handler ``damage``, or of a ``system-call``
that may change something. Forking is ten times faster than starting a process for each kill.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from workspace_rig import calls, doing, folder, made, picture, storage  # noqa: E402 - needs the path above

from wink_workspace._kill_points import calling  # noqa: E402 - as above
from wink_workspace.filesystem.disk import fingerprint_cache  # noqa: E402 - as above
from wink_workspace.ledger import Ledger, Retention  # noqa: E402 - as above
from wink_workspace.workspace import (  # noqa: E402 - as above
    Workspace,
    WorkspaceConfig,
    export_workspace,
    import_workspace,
)
from wink_workspace.workspace.create.bases import BaseStore  # noqa: E402 - as above

N_ROUNDS = 3
LITTLE_BYTES = 40_000
"""A budget that keeps a part of the history of ``calls``."""

SYSTEM_CALLS = (
    *("open", "write", "pwrite", "ftruncate", "fsync", "fchmod", "link", "symlink", "mkdir"),
    *("rename", "replace", "unlink", "rmdir"),
)


class Killer:
    """Kills this process the n-th time that it passes a point; counts all passes."""

    def __init__(self, point: str = "", nth: int = 0) -> None:
        self._point, self._nth = point, nth
        self.passed: Counter[str] = Counter()

    def __call__(self, point: str) -> None:
        self.passed[str(point)] += 1
        if str(point) == self._point and self.passed[point] == self._nth:
            os.kill(os.getpid(), signal.SIGKILL)


def observe_system_calls(killer: Killer) -> None:
    """Call *killer* before each system call of this process that may change something."""

    def notifying(real: Any) -> Any:
        def function(*args: Any, **kwargs: Any) -> Any:
            killer("system-call")
            return real(*args, **kwargs)

        return function

    for name in SYSTEM_CALLS:
        setattr(os, name, notifying(getattr(os, name)))


def state_of(workspace: Workspace, root: Path) -> str:
    """A digest of files and STATE."""
    files = repr(sorted(picture(root).items()))
    slices = json.loads(workspace.session.dump_state())["slices"]
    state = json.dumps({name: values for name, values in slices.items() if values}, sort_keys=True)
    return hashlib.sha256((files + state).encode()).hexdigest()


def tools_for(root: Path, killer: Killer) -> list[Any]:
    """Tools that use plain system calls; the last one fails unless it is killed before."""

    def damage() -> None:
        for name in ("a.txt", "run.sh"):
            (root / name).write_bytes(b"spoilt")
        (root / "junk").mkdir()
        (root / "junk" / "more").write_bytes(os.urandom(3_000))
        killer("damage")

    def modes() -> None:
        (root / "run.sh").chmod((root / "run.sh").stat().st_mode ^ 0o111)

    def links() -> None:
        for name in ("link", "dangling"):
            (root / name).unlink(missing_ok=True)
        (root / "link").symlink_to("a.txt")
        (root / "dangling").symlink_to(f"nowhere-{time.monotonic_ns() % 1}")
        (root / "empty").mkdir(exist_ok=True)

    acts = [doing(modes, name="modes"), doing(links, name="links")]
    return [*acts, doing(damage, name="damage", fails=True)]


def script() -> list[tuple[str, dict[str, object]]]:
    """The calls to run, thirty in all."""
    found: list[tuple[str, dict[str, object]]] = []
    for n in range(N_ROUNDS):
        patch = f"--- /dev/null\n+++ b/p{n}/x.txt\n@@ -0,0 +1 @@\n+patched {n}\n"
        found += [
            ("planning_setup_plan", {"objective": f"Round {n}", "initial_steps": ["one", "two"]}),
            ("read_file", {"file_path": "a.txt"}),
            ("edit_file", {"file_path": "a.txt", "old_string": "line", "new_string": f"line {n}"}),
            ("write_file", {"file_path": f"deep/er/{n}.txt", "content": f"{n}\n" * 2_000}),
            ("apply_patch", {"patch": patch}),
            ("modes", {}),
            ("damage", {}),
            ("links", {}),
            ("mv", {"source": f"p{n}", "destination": f"deep/q{n}"}),
            ("rm", {"path": f"deep/er/{n - 1}.txt"} if n else {"path": "missing"}),
        ]
    return found


def work_calls(directory: Path, killer: Killer) -> None:
    """Run the script; after each call its entry's number and state go to ``oracle``."""
    oracle = os.open(directory / "oracle", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with calling(killer), Workspace(folder(directory)) as workspace:
        root = workspace.files.tree.root
        with calls(workspace, *tools_for(root, killer), prefix="mixed") as call:
            for name, arguments in script():
                call(name, **arguments)
                (head,) = workspace.log(limit=1)
                os.write(oracle, f"{head.number} {state_of(workspace, root)}\n".encode())


def work_bulk(directory: Path, killer: Killer) -> None:
    """A call that makes many files, and one that makes as many and fails."""

    def fill(name: str) -> None:
        (root / name).mkdir()
        for n in range(80):
            (root / name / str(n)).write_bytes(b"%d\n" % n)

    tools = [
        doing(lambda: fill("kept"), name="fill"),
        doing(lambda: fill("lost"), name="fail", fails=True),
    ]
    with calling(killer), Workspace(folder(directory)) as workspace:
        root = workspace.files.tree.root
        with calls(workspace, *tools) as call:
            for name in ("fill", "fail"):
                call(name)
                (head,) = workspace.log(limit=1)
                with (directory / "oracle").open("a") as oracle:
                    oracle.write(f"{head.number} {state_of(workspace, root)}\n")


def work_undo(directory: Path, killer: Killer) -> None:
    """Undo three calls and redo one."""
    with calling(killer), Workspace(folder(directory)) as workspace:
        for step in (workspace.undo, workspace.undo, workspace.undo, workspace.redo):
            step()
            (head,) = workspace.log(limit=1)
            with (directory / "oracle").open("a") as oracle:
                state = state_of(workspace, workspace.files.tree.root)
                oracle.write(f"{head.number} {state}\n")


def work_open(directory: Path, killer: Killer) -> None:
    """Open and close."""
    with calling(killer):
        Workspace(folder(directory)).close()


def work_gc(directory: Path, killer: Killer) -> None:
    """Collect garbage with a small budget."""
    config = WorkspaceConfig(retention=Retention(budget_bytes=LITTLE_BYTES))
    with calling(killer), Workspace(folder(directory), config=config) as workspace:
        assert workspace.maintain().ran


def work_trim(directory: Path, killer: Killer) -> None:
    """One failing call that writes more than a discard may hold."""
    config = WorkspaceConfig(retention=Retention(discard_bytes=100))
    with calling(killer), Workspace(folder(directory), config=config) as workspace:
        with calls(workspace, *tools_for(workspace.files.tree.root, killer)) as call:
            call("damage")


def work_derived(directory: Path, killer: Killer) -> None:
    """One failing call that changes, deletes and adds derived paths."""

    def damage() -> None:
        root = workspace.files.tree.root
        (root / "a.txt").write_bytes(b"spoilt")
        (root / ".env").write_bytes(b"spoilt")
        (root / "node_modules/a/index.js").unlink()
        (root / "node_modules/b/index.js").write_bytes(b"spoilt")
        (root / "node_modules/c").mkdir()
        (root / "node_modules/c/index.js").write_bytes(b"new")
        (root / ".venv/bin/python").unlink()
        (root / ".venv/bin").rmdir()
        (root / ".venv").rmdir()
        workspace.files.write_text(".env.local", "new")
        killer("damage")

    with calling(killer), Workspace(folder(directory)) as workspace:
        with calls(workspace, doing(damage, name="damage-derived", fails=True)) as call:
            call("damage-derived")


def work_checkpoint(directory: Path, killer: Killer) -> None:
    """Change a derived path, and keep it."""
    with Workspace(folder(directory)) as workspace:
        workspace.files.write_text(".env", "CHANGED\n")
        with calling(killer):
            killer("begin")
            workspace.checkpoint()


def work_apply(directory: Path, killer: Killer) -> None:
    """Apply everything to the source."""
    with calling(killer), Workspace(folder(directory)) as workspace:
        workspace.apply()


def work_branch(directory: Path, killer: Killer) -> None:
    """Apply everything to a branch of the source."""
    with calling(killer), Workspace(folder(directory)) as workspace:
        workspace.apply("branch", branch="made")


def work_import_base(directory: Path, killer: Killer) -> None:
    """Make a base of the source, or reuse the one of an earlier import."""
    Ledger.create(directory / "new.git")
    with calling(killer):
        BaseStore(directory / "state").import_source(directory / "source", directory / "new.git")


def work_build_base(directory: Path, killer: Killer) -> None:
    """Make the base of the tree that is named in a file from a ledger."""
    tree = (directory / "tree").read_text()
    with calling(killer), Ledger(directory / "kept.git") as ledger:
        BaseStore(directory / "state").build(ledger.store, tree)


def work_collect_bases(directory: Path, killer: Killer) -> None:
    """Delete all bases."""
    with calling(killer):
        BaseStore(directory / "state").collect(set)


def work_fork(directory: Path, killer: Killer) -> None:
    """Fork a branch whose layer has changes, and open the fork."""
    with Workspace(folder(directory)) as workspace:
        workspace.fork("new")
    with calling(killer):
        Workspace(folder(directory), branch="new").close()


def work_share(directory: Path, killer: Killer) -> None:
    """Fork a branch with large derived paths, which the fork shares."""
    with Workspace(folder(directory)) as workspace, calling(killer):
        workspace.fork("new")


def work_fold(directory: Path, killer: Killer) -> None:
    """Open a branch on an overlay whose layer is too large."""
    with calling(killer):
        Workspace(folder(directory), config=WorkspaceConfig(fold_above=5)).close()


def work_delete(directory: Path, killer: Killer) -> None:
    """Delete a fork."""
    with calling(killer), Workspace(folder(directory)) as workspace:
        workspace.branches.delete("old")


def work_export(directory: Path, killer: Killer) -> None:
    """Write the workspace to a file that exists already."""
    with calling(killer):
        which = folder(directory).path.name
        export_workspace(which, directory / "exported", storage=storage(directory), discards=True)


def work_import(directory: Path, killer: Killer) -> None:
    """Make a workspace of the file, in another storage."""
    with calling(killer):
        import_workspace(directory / "bundle", storage=storage(directory / "other"), mode="copy")


def serve(request: dict[str, Any], works: dict[str, Any]) -> int:
    kill = request["kill"]
    killer = Killer(*kill) if isinstance(kill, list) else Killer()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # for sigtimedwait below
    while signal.sigtimedwait({signal.SIGCHLD}, 0):
        pass  # a pending signal of an earlier child
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        try:
            observe_system_calls(killer)
            # Else the number of files that are read again, and so of points, depends on the speed
            fingerprint_cache._stores_times_exactly = lambda _: False
            works[f"work_{request['work']}"](Path(request["directory"]), killer)
        except BaseException:  # noqa: BLE001 - a forked child must not continue its parent's work
            traceback.print_exc()
            os._exit(1)
        (Path(request["directory"]) / "passed").write_text(json.dumps(killer.passed))
        os._exit(0)
    if isinstance(kill, float):
        signal.sigtimedwait({signal.SIGCHLD}, kill)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)


def warm_up() -> None:
    """Load modules before the fork, so that each child need not."""
    with tempfile.TemporaryDirectory() as directory:
        made(Path(directory), {"a.txt": b"line\n", "run.sh": b""}).close()
        work_calls(Path(directory), Killer())


if __name__ == "__main__":
    os.umask(0o022)  # a new directory has its final mode from the start
    warm_up()
    for line in sys.stdin:
        print(serve(json.loads(line), globals()), flush=True)
