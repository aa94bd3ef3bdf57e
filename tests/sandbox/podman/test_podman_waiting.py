"""A mounted branch in a running container, and containers that wait for one.

Run by root and, in ``test_podman_rootless``, by an ordinary user.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from podman_machine import listed_containers, mounted_place

from wink_workspace.clock import Cancellation, SystemClock
from wink_workspace.environment import Environment
from wink_workspace.errors import (
    CallCancelledError,
    IsolationError,
    MountError,
    SandboxError,
    SandboxUnavailableError,
    UsageError,
)
from wink_workspace.filesystem.overlay.mounting import Mounter, OverlayMount, overlay_support
from wink_workspace.sandbox import ExecRequest
from wink_workspace.sandbox.commands.leftovers import COMMANDS, _recorded, end_leftover
from wink_workspace.sandbox.commands.live_container import LiveContainer
from wink_workspace.sandbox.git_directory import WORKSPACE_PATH
from wink_workspace.sandbox.podman import PodmanConfig, PodmanSandbox, PodmanService
from wink_workspace.sandbox.podman.commands.runner_container import RunnerContainer
from wink_workspace.sandbox.podman.commands.waiting import WaitingContainers, prepare_container
from wink_workspace.sandbox.podman.engine.containers import (
    OWNER_LABEL,
    Owner,
)
from wink_workspace.workspace import Workspace, WorkspaceMode, WorkspaceStorage

pytestmark = pytest.mark.xdist_group("podman-waiting")

MIB = 1_048_576


@pytest.fixture
def folder(tmp_path: Path, environment: Environment) -> Path:
    """A directory in which branches can be mounted."""
    support = overlay_support(tmp_path)
    if not support.available:
        pytest.skip(support.reason)
    return tmp_path


Open = Callable[..., PodmanSandbox]


@pytest.fixture
def opened(folder: Path) -> Iterator[Open]:
    """Create sandboxes over branches of one base, which are closed afterwards."""
    WaitingContainers.shared().close()  # what a test without this fixture left
    created: list[PodmanSandbox] = []

    def make(name: str = "branch", config: PodmanConfig | None = None) -> PodmanSandbox:
        created.append(PodmanSandbox(mounted_place(folder, name), config=config))
        return created[-1]

    yield make
    for sandbox in created:
        sandbox.close()
    WaitingContainers.shared().close()


def shell(sandbox: PodmanSandbox, command: str) -> str:
    result = sandbox.run(ExecRequest(argv=("/bin/sh", "-c", command)))
    assert result.exit_code == 0, result
    return result.stdout.head.decode()


def container_of(sandbox: PodmanSandbox) -> LiveContainer:
    """Return the container that is noted for the branch."""
    assert sandbox._context.notes is not None
    noted = _recorded(sandbox._context.notes / COMMANDS)
    assert noted is not None
    return noted


def waiting() -> int:
    """Wait until no container is being started; return how many wait."""
    shared = WaitingContainers.shared()
    shared.wait()
    return shared.n_waiting


# A branch in a running container


def test_a_command_in_a_mounted_branch_sees_its_base_and_changes_only_its_upper_layer(
    opened: Open, folder: Path
) -> None:
    sandbox = opened()
    old = folder / "base/files/old"
    old.write_text("of the base\n")
    os.chown(old, old.parent.stat().st_uid, -1)
    assert shell(sandbox, "cat old; echo changed > new; echo more >> old") == "of the base\n"
    files = sandbox._context.files
    assert (files / "new").read_text() == "changed\n"
    assert (folder / "branch/upper/files/old").read_text() == "of the base\nmore\n"
    assert (folder / "base/files/old").read_text() == "of the base\n"
    (files / "by the host").write_text("seen inside\n")
    assert shell(sandbox, "cat 'by the host'") == "seen inside\n"


@pytest.mark.behaviour(60)
def test_containers_of_two_branches_see_neither_each_other_nor_paths_of_the_host(
    opened: Open, folder: Path
) -> None:
    one, other = opened("one"), opened("other")
    shell(one, "echo secret > mine-alone")
    (folder / "one/upper/held/discarded").write_text("secret")
    assert shell(other, "find / -name mine-alone -o -name discarded 2>/dev/null; ls") == ""
    for sandbox in (one, other):
        mounts = shell(sandbox, "cat /proc/self/mountinfo")
        lines = [line for line in mounts.splitlines() if f" {WORKSPACE_PATH} " in line]
        assert len(lines) == 2, mounts
        assert "overlay" in lines[1]
        assert str(folder) not in mounts
        assert "one" not in lines[1].split(" ")[3]
    before = one.report.probes
    assert {"leave the workspace", "see host paths of the workspace"} <= {p.name for p in before}
    assert one.report.holes == ()


def test_the_container_is_noted_before_it_gets_the_workspace(folder: Path) -> None:
    place = mounted_place(folder)
    noted: list[bool] = []

    class Recording:
        """Records at the attachment whether the note exists."""

        def attach(self, pid: int, target: str) -> None:
            assert place.notes is not None
            container = _recorded(place.notes / COMMANDS)
            noted.append(container is not None and container.pid == pid)
            assert place.mount is not None
            place.mount.attach(pid, target)

    sandbox = PodmanSandbox(replace(place, mount=Recording()))
    try:
        assert shell(sandbox, "ls") == ""
    finally:
        sandbox.close()
    assert noted == [True]


class Wrong:
    """Attaches a branch in a wrong way."""

    def __init__(self, mount: OverlayMount, paths: list[str]) -> None:
        self._mount = mount
        self._paths = paths

    def attach(self, pid: int, target: str) -> None:
        for path in self._paths:
            made = Mounter.shared().request(
                {"do": "attach", "pid": pid, "path": path, "target": target},
                [os.open(self._mount.path, os.O_PATH)],
                target,
            )
            assert made is None


@pytest.mark.parametrize(
    ("paths", "hole"),
    [(["."], "the mount's root is /"), (["files", "files"], "3 mounts in the workspace")],
    ids=["with the discards", "twice"],
)
def test_a_branch_that_is_mounted_wrongly_refuses_to_run_commands(
    folder: Path, paths: list[str], hole: str
) -> None:
    place = mounted_place(folder)
    assert place.mount is not None
    sandbox = PodmanSandbox(replace(place, mount=Wrong(place.mount, paths)))
    with pytest.raises(IsolationError, match=hole):
        shell(sandbox, "echo ran > ran")
    assert not (place.files / "ran").exists()
    assert place.notes is not None
    assert list(place.notes.iterdir()) == []


def test_a_branch_that_cannot_be_mounted_ends_its_container(folder: Path) -> None:
    place = mounted_place(folder)

    class Refused:
        def attach(self, pid: int, target: str) -> None:
            raise MountError(f"cannot mount {target} in process {pid}: refused")

    sandbox = PodmanSandbox(replace(place, mount=Refused()))
    with pytest.raises(SandboxUnavailableError, match="cannot be mounted in its container"):
        sandbox.start()
    assert place.notes is not None
    assert list(place.notes.iterdir()) == []


class InAnHour(SystemClock):
    """The time in an hour, so that every file is old and its status says whether it changed."""

    def now(self) -> datetime:
        return super().now() + timedelta(hours=1)


@pytest.mark.parametrize("mode", ["overlay", "copy"])
def test_the_first_command_reads_the_status_of_no_unchanged_file(
    folder: Path, mode: WorkspaceMode
) -> None:
    """A probe that made a file here would cause a scan of all files."""
    (folder / "source").mkdir()
    for number in range(200):
        (folder / f"source/{number}").touch()
    storage = WorkspaceStorage(folder / "state")
    with Workspace.create(
        folder / "source", storage=storage, mode=mode, clock=InAnHour()
    ) as workspace:
        with workspace.call("nothing"):
            pass
        before = workspace._opened.tracker.n_visited
        with workspace.call("command"):
            shell(workspace.sandbox(), "echo new > 7")
        assert workspace._opened.tracker.n_visited - before < 20


# Waiting containers


def test_the_next_branch_gets_the_container_that_waits_since_the_second_command(
    opened: Open,
) -> None:
    first = opened("first")
    shell(first, "true")
    assert waiting() == 0, "a process with one command needs no other container"
    shell(first, "true")
    assert waiting() == 1
    shell(first, "true")
    assert waiting() == 1
    ((_, container),) = WaitingContainers.shared()._waiting
    second = opened("second")
    shell(second, "true")
    assert container_of(second) == container.live
    assert second.report.probes == first.report.probes


def test_a_waiting_container_serves_one_workspace_and_never_another(opened: Open) -> None:
    names: list[str] = []
    for number in range(2):
        sandbox = opened(f"branch{number}")
        shell(sandbox, f"touch in{number}; (sleep 1000 &)")
        shell(sandbox, "true")
        assert waiting() == 1
        assert [path.name for path in sandbox._context.files.iterdir()] == [f"in{number}"]
        names.append(container_of(sandbox).name)
        sandbox.close()
    assert len(set(names)) == 2
    last = opened("last")
    assert shell(last, "ls /tmp /workspace") == "/tmp:\n\n/workspace:\n"
    assert container_of(last).name not in names
    container = last._commands
    with pytest.raises(SandboxError, match="has had a workspace"):
        container.attach(lambda pid: None, None)


def one_waiting(opened: Open) -> RunnerContainer:
    """Return a container that waits after two commands in a branch."""
    first = opened("first")
    shell(first, "true")
    shell(first, "true")
    assert waiting() == 1
    ((_, container),) = WaitingContainers.shared()._waiting
    return container


def test_a_process_that_wants_no_waiting_container_gets_none(opened: Open) -> None:
    sandbox = opened(config=PodmanConfig(n_waiting=0))
    for _ in range(3):
        shell(sandbox, "true")
    assert waiting() == 0


def test_a_waiting_container_with_other_limits_is_not_used_and_makes_room(opened: Open) -> None:
    container = one_waiting(opened)
    smaller = opened("second", PodmanConfig(tmp_bytes=16 * MIB))
    shell(smaller, "true")
    assert container_of(smaller) != container.live
    shell(smaller, "true")
    assert waiting() == 1
    assert container.live.ends_within(30)


def test_a_waiting_container_that_died_is_replaced(opened: Open) -> None:
    container = one_waiting(opened)
    container.end()
    second = opened("second")
    assert shell(second, "echo works") == "works\n"
    assert container_of(second) != container.live


def test_a_wait_for_a_container_that_is_being_started_can_be_cancelled() -> None:
    """The engine is not needed: the start is a function that waits."""
    shared, release = WaitingContainers(), threading.Event()
    kind, cancellation = object(), Cancellation()

    def start(_: Cancellation) -> None:
        cancellation.cancel()
        assert release.wait(30)
        raise UsageError("never started", hint="none")

    shared.keep(kind, 1, start)
    shared.keep(kind, 1, start)
    try:
        with pytest.raises(CallCancelledError):
            shared.take(kind, cancellation)
    finally:
        release.set()
        shared.wait()
    shared.keep(kind, 1, start)
    assert shared.take(kind, Cancellation()) is None, "what failed is not tried again"


def test_wait_beside_the_start_of_the_thread_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, begin = WaitingContainers(), threading.Thread.start

    def start_after_a_wait(thread: threading.Thread) -> None:
        shared.wait()  # as another thread does at this moment
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start_after_a_wait)
    shared.prepare(lambda _: None)
    shared.close()
    assert shared.n_waiting == 0


def test_thread_that_could_not_start_does_not_disturb_later_uses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared, kind, searched = WaitingContainers(), object(), threading.Event()

    def cannot_start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", cannot_start)
        with pytest.raises(RuntimeError, match="can't start"):
            shared.prepare(lambda _: None)
    assert shared.take(kind, Cancellation()) is None
    shared.prepare(lambda _: searched.set())
    assert searched.wait(30)
    shared.close()


# A container that is prepared for a first command


def containers_of_this_process(service: PodmanService) -> set[str]:
    owner = f"{OWNER_LABEL}={Owner.this_process()}"
    return {found["Id"] for found in listed_containers(service, owner)}


@pytest.mark.behaviour(60)
def test_a_first_command_gets_the_container_that_is_being_prepared(
    opened: Open, environment: Environment, service: PodmanService
) -> None:
    before = containers_of_this_process(service)
    prepare_container(PodmanConfig(), environment, None)
    sandbox = opened()
    assert shell(sandbox, "echo works") == "works\n"
    assert len(containers_of_this_process(service) - before) == 1
    assert WaitingContainers.shared().n_waiting == 0
    assert {"write outside the workspace", "leave the workspace"} <= {
        probe.name for probe in sandbox.report.probes
    }


def test_a_container_that_was_prepared_with_another_configuration_is_not_used(
    opened: Open, environment: Environment
) -> None:
    prepare_container(PodmanConfig(n_processes=64), environment, None)
    sandbox = opened()
    shell(sandbox, "true")
    assert waiting() == 1


def test_a_first_command_without_an_image_fails_as_ever(
    opened: Open, environment: Environment
) -> None:
    missing = PodmanConfig(image="localhost/wink-workspace/none:1")
    prepare_container(missing, environment, None)
    with pytest.raises(SandboxUnavailableError, match="there is no image"):
        shell(opened("missing", missing), "true")
    prepare_container(PodmanConfig(n_waiting=0), environment, None)
    assert waiting() == 0


def test_a_refusal_to_start_is_raised_for_its_own_kind_and_once() -> None:
    """The engine is not needed: the start is a function that raises."""
    shared, kind = WaitingContainers(), object()

    def start(_: Cancellation) -> None:
        raise IsolationError("not isolated")

    shared.prepare(lambda _: (kind, start))
    assert shared.take(object(), Cancellation()) is None
    with pytest.raises(IsolationError):
        shared.take(kind, Cancellation())
    assert shared.take(kind, Cancellation()) is None


# The end of the process

SCRIPT = """
import json, os, signal, sys
from pathlib import Path
from podman_machine import mounted_place
from wink_workspace._kill_points import KillPoint, calling
from wink_workspace.sandbox import ExecRequest
from wink_workspace.environment import Environment
from wink_workspace.sandbox.podman import PodmanConfig, PodmanSandbox
from wink_workspace.sandbox.podman.engine.containers import Owner
from wink_workspace.sandbox.podman.commands.waiting import WaitingContainers, prepare_container

def kill(point):
    if point == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[2] == "only prepares":
    prepare_container(PodmanConfig(), Environment.from_os(), None)
    (Path(sys.argv[1]) / "owner").write_text(str(Owner.this_process()))
    sys.exit()
with calling(kill):
    first = PodmanSandbox(mounted_place(Path(sys.argv[1])))
    first.run(ExecRequest(argv=("true",)))
    first.run(ExecRequest(argv=("true",)))
shared = WaitingContainers.shared()
if sys.argv[2] == "ends at once":
    (Path(sys.argv[1]) / "owner").write_text(str(Owner.this_process()))
    sys.exit()
shared.wait()
live = [container.live for _, container in shared._waiting]
print(json.dumps([[each.name, each.pid, each.started] for each in live]), flush=True)
if sys.argv[2] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


def run_script(folder: Path, how: str) -> tuple[int, list[LiveContainer]]:
    paths = [str(Path(__file__).parent), *sys.path]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder), how],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert not done.stderr, done.stderr
    found = json.loads(done.stdout) if done.stdout else []
    return done.returncode, [LiveContainer(*each) for each in found]


@pytest.mark.behaviour(63)
@pytest.mark.parametrize("how", ["returns", "killed"])
def test_waiting_containers_end_with_their_process(folder: Path, how: str) -> None:
    code, (container,) = run_script(folder, how)
    assert code == (0 if how == "returns" else -signal.SIGKILL)
    assert container.ends_within(60)


@pytest.mark.parametrize("how", ["ends at once", "only prepares"])
def test_a_process_that_ends_while_it_starts_a_container_leaves_none(
    folder: Path, service: PodmanService, how: str
) -> None:
    assert run_script(folder, how) == (0, [])
    owner = (folder / "owner").read_text()  # other processes start containers meanwhile
    owners = [found["Labels"][OWNER_LABEL] for found in listed_containers(service, OWNER_LABEL)]
    assert owner not in owners


@pytest.mark.parametrize("point", ["container-noted", "workspace-attached"])
def test_recovery_ends_a_container_that_may_hold_the_workspace(folder: Path, point: str) -> None:
    """The process is killed at each step of the attachment."""
    code, _ = run_script(folder, point)
    assert code == -signal.SIGKILL
    notes = folder / "branch/notes"
    container = _recorded(notes / COMMANDS)
    assert container is not None

    def never(name: str) -> None:
        raise AssertionError(name)

    end_leftover(notes, never)
    assert not container.is_running
    assert list(notes.iterdir()) == []
