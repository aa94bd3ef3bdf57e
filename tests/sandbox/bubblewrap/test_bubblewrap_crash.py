"""A process is killed at any step of a command: the next one has the files before or after it.

Run by root and, in ``test_bubblewrap_ordinary_user``, by an ordinary user.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from workspace.workspace_rig import assert_fsck_clean, assert_same, picture

from wink_workspace import BubblewrapConfig, Workspace, WorkspaceStorage
from wink_workspace.environment import Environment
from wink_workspace.filesystem.overlay.mounting import overlay_support
from wink_workspace.sandbox import ExecRequest

pytestmark = pytest.mark.xdist_group("bubblewrap")

BUSY = (
    "echo half > half; rm -r src; chmod 000 empty; echo nearly there;"
    "(setsid sh -c 'while :; do echo x >> late; sleep 0.01; done' &); {end}"
)
VICTIM = """
import itertools, os, signal, sys
from wink_workspace import BubblewrapConfig, Workspace, WorkspaceStorage
from wink_workspace._kill_points import calling
from wink_workspace.sandbox import ExecRequest

id, state, command, nth, on_output = sys.argv[1:]
count = itertools.count(1)
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
def passed(point):
    if next(count) == int(nth):
        die()
with Workspace.open(id, storage=WorkspaceStorage(state)) as workspace, calling(passed):
    with workspace.call("exec"):
        request = ExecRequest(argv=("sh", "-c", command))
        sandbox = workspace.sandbox(BubblewrapConfig())
        sandbox.run(request, observer=die if on_output else None)
print("survived")
"""


@pytest.fixture
def storage(tmp_path: Path, environment: Environment) -> WorkspaceStorage:
    source = tmp_path / "source"
    (source / "src").mkdir(parents=True)
    (source / "src" / "app.py").write_text("x = 1\n")
    (source / "empty").mkdir()
    storage = WorkspaceStorage(tmp_path / "state")
    Workspace.create(source, storage=storage).close()
    return storage


def run_victim(
    storage: WorkspaceStorage, end: str, *, nth: int = 0, on_output: bool = False
) -> bool:
    """Run a process that is killed; whether it was."""
    (info,) = storage.all()
    # The victim opens the same storage.
    arguments = [
        info.id,
        str(storage._root.parent),
        BUSY.format(end=end),
        str(nth),
        "1" * on_output,
    ]
    done = subprocess.run(
        [sys.executable, "-c", VICTIM, *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


def assert_recovered(storage: WorkspaceStorage, *, is_undone: bool | None) -> None:
    """The files are those before or after the command, and no process of it writes any more."""
    (info,) = storage.all()
    with Workspace.open(info.id, storage=storage) as workspace:
        files = workspace._opened.tree.root  # on an overlay, only the open workspace has the files
        has_begun = (files / "half").exists()
        assert has_begun == (not (files / "src" / "app.py").exists())
        assert is_undone is None or is_undone == (not has_begun)
        before = picture(files)
        request = ExecRequest(argv=("true",))
        assert workspace.sandbox(BubblewrapConfig()).run(request).exit_code == 0
        assert_same(before, picture(files))
    assert_fsck_clean(workspace._folder.ledger)  # its ledger is read as git does


def test_a_command_that_was_killed_with_its_process_is_undone(storage: WorkspaceStorage) -> None:
    assert run_victim(storage, "sleep 1000", on_output=True)
    assert_recovered(storage, is_undone=True)


@pytest.mark.share(2)
@pytest.mark.parametrize("nth", range(1, 21))
def test_a_kill_at_any_step_leaves_the_files_before_or_after_a_command(
    storage: WorkspaceStorage, nth: int
) -> None:
    was_killed = run_victim(storage, "true", nth=nth)
    assert_recovered(storage, is_undone=None if was_killed else False)


def test_commands_of_a_workspace_and_its_forks_race_without_mixing(
    storage: WorkspaceStorage,
) -> None:
    """Each thread works in a branch of its own, with a sandbox of its own."""
    (info,) = storage.all()
    found: dict[str, str] = {}
    with Workspace.open(info.id, storage=storage) as workspace:

        def work(branch: Workspace, name: str) -> None:
            sandbox = branch.sandbox(BubblewrapConfig())
            for number in range(5):
                with branch.call("exec"):
                    add = f"echo {name}{number} >> own; touch {name}{number}"
                    sandbox.run(ExecRequest(argv=("sh", "-c", add)))
            found[name] = (branch._opened.tree.root / "own").read_text()  # as above

        branches = {name: workspace.fork(name).open() for name in ("one", "two", "three")}
        threads = [
            threading.Thread(target=work, args=(branch, name))
            for name, branch in {"main": workspace, **branches}.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for branch in branches.values():
            branch.close()
    assert found == {
        name: "".join(f"{name}{number}\n" for number in range(5))
        for name in ("main", "one", "two", "three")
    }


def test_commands_outside_of_calls_wait_while_their_branch_is_forked(
    tmp_path: Path, environment: Environment
) -> None:
    """A fork ends the sandbox and unmounts the branch; the next command starts it again."""
    if not overlay_support(tmp_path).available:
        pytest.skip("forks of plain copies unmount nothing")
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a.py").write_text("x = 1\n")
    storage = WorkspaceStorage(tmp_path / "state")
    printed: list[bytes] = []
    has_ended = threading.Event()
    with Workspace.create(tmp_path / "source", storage=storage, mode="overlay") as workspace:

        def run_commands() -> None:
            while not has_ended.is_set():
                program = "cat a.py; mkdir -p node_modules; echo x >> node_modules/log"
                request = ExecRequest(argv=("sh", "-c", program))
                printed.append(workspace.sandbox(BubblewrapConfig()).run(request).stdout.head)

        thread = threading.Thread(target=run_commands)
        thread.start()
        try:
            for n in range(5):
                with workspace.call("install") as call:
                    call.files.write_bytes(f"node_modules/{n}.js", bytes(1_200_000))
                with workspace.fork(f"fork-{n}").open() as fork:
                    assert fork.files.exists(f"node_modules/{n}.js")
        finally:
            has_ended.set()
            thread.join()
        assert set(printed) == {b"x = 1\n"}
        assert len(workspace.files.read_bytes("node_modules/log")) == 2 * len(printed)
