"""A real container: what commands see and return, and that they leave nothing behind.

Run by root and, in ``test_podman_rootless``, by an ordinary user.
"""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from command_contract import *  # noqa: F403 - the tests that every sandbox passes
from command_contract import shell, stdout_of
from podman_machine import listed_containers, sandbox_place

from wink_workspace.environment import Environment
from wink_workspace.errors import (
    IsolationError,
    SandboxBrokenError,
    SandboxError,
    UsageError,
)
from wink_workspace.sandbox import ExecRequest
from wink_workspace.sandbox.podman import PodmanSandbox, PodmanService
from wink_workspace.sandbox.podman.commands import runner_container
from wink_workspace.sandbox.podman.engine import containers
from wink_workspace.sandbox.podman.engine.containers import WORKSPACE_LABEL

pytestmark = pytest.mark.xdist_group("podman")


def containers_of(sandbox: PodmanSandbox, *, ended: bool = False) -> list[str]:
    """Return the engine's containers of the sandbox's directory; see ``listed_containers``."""
    service = sandbox._service or PodmanService(Environment.from_os())
    label = f"{WORKSPACE_LABEL}={sandbox._context.files}"
    listed = listed_containers(service, label, ended=ended)
    return [found["Id"] for found in listed]


def test_the_root_of_the_workspace_is_the_same_in_every_container(sandbox: PodmanSandbox) -> None:
    assert stdout_of(shell(sandbox, "pwd")) == "/workspace\n"
    with pytest.raises(UsageError, match="'/root' cannot be entered: Permission denied"):
        sandbox.run(ExecRequest(argv=("true",), cwd="/root"))


# Life of a container


@pytest.mark.behaviour(63)
def test_close_removes_the_container(fresh) -> None:
    sandbox = fresh()
    shell(sandbox, "true")
    assert len(containers_of(sandbox)) == 1
    assert (sandbox._context.notes / "container.json").exists()
    sandbox.close()
    assert containers_of(sandbox, ended=True) == []
    assert list(sandbox._context.notes.iterdir()) == []
    sandbox.close()
    with pytest.raises(SandboxError, match="closed"):
        shell(sandbox, "true")


@pytest.mark.behaviour(63)
def test_garbage_collection_of_the_sandbox_removes_the_container(
    tmp_path: Path, environment: Environment
) -> None:
    place = sandbox_place(tmp_path)
    sandbox = PodmanSandbox(place)
    shell(sandbox, "true")
    observer_sandbox = PodmanSandbox(place, service=sandbox._service)
    assert len(containers_of(observer_sandbox)) == 1
    del sandbox
    gc.collect()
    assert containers_of(observer_sandbox, ended=True) == []


@pytest.mark.behaviour(63)
def test_a_failed_start_leaves_no_container(fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = fresh(start_timeout_s=20)
    # A runner that fails at its start; the runner is not configurable.
    monkeypatch.setattr(runner_container, "runner_source", lambda: b"import os; os._exit(3)")
    with pytest.raises(SandboxError):
        shell(sandbox, "true")
    assert containers_of(sandbox, ended=True) == []
    monkeypatch.undo()
    assert shell(sandbox, "true").exit_code == 0


@pytest.mark.behaviour(63)
def test_a_container_ends_when_its_owner_process_is_killed(
    tmp_path: Path, environment: Environment
) -> None:
    """No sweep is made: the end of the stream ends it."""
    place = sandbox_place(tmp_path)
    code = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from wink_workspace.sandbox import ExecRequest\n"
        "from wink_workspace.sandbox.podman import PodmanSandbox\n"
        "from wink_workspace.sandbox import SandboxContext\n"
        "s = PodmanSandbox(SandboxContext(files=Path(sys.argv[1]), notes=Path(sys.argv[2])))\n"
        "s.run(ExecRequest(argv=('true',)))\n"
        "print((Path(sys.argv[2]) / 'container.json').read_text(), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(place.files), str(place.notes)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    from wink_workspace.sandbox.commands.leftovers import COMMANDS, _recorded

    leftover = _recorded(place.notes / COMMANDS)
    assert leftover is not None
    assert leftover.ends_within(60), "the container must end by itself"


def test_a_killed_container_breaks_the_command_and_is_replaced(fresh) -> None:
    sandbox = fresh()
    shell(sandbox, "true")
    (container,) = containers_of(sandbox)
    killer = threading.Timer(
        0.3, lambda: sandbox._service.request("POST", f"/containers/{container}/kill")
    )
    killer.start()
    with pytest.raises(SandboxBrokenError):
        shell(sandbox, "sleep 1000")
    killer.join()
    assert shell(sandbox, "true").exit_code == 0
    assert container not in containers_of(sandbox)


def test_an_observer_that_raises_ends_the_command_and_the_container(fresh) -> None:
    sandbox = fresh()

    def observer(stream: str, data: bytes) -> None:
        raise RuntimeError("an error of the host")

    with pytest.raises(RuntimeError, match="an error of the host"):
        sandbox.run(ExecRequest(argv=("sh", "-c", "echo a; sleep 1000")), observer=observer)
    assert containers_of(sandbox, ended=True) == []
    assert shell(sandbox, "true").exit_code == 0


# The proof of isolation


@pytest.mark.behaviour(90)
@pytest.mark.parametrize(
    ("hole", "probe"),
    [
        ({"no_new_privileges": False}, "gain rights: programs may gain rights"),
        ({"netns": {"nsmode": "host"}, "sysctl": {}}, "reach the canaries of the host"),
        ({"read_only_filesystem": False}, "write outside the workspace"),
        ({"r_limits": []}, "raise limits"),
    ],
    ids=["privileges", "network", "root", "limits"],
)
def test_missing_isolation_refuses_to_run_commands(
    fresh, monkeypatch: pytest.MonkeyPatch, hole: dict[str, object], probe: str
) -> None:
    build = runner_container.container_spec
    monkeypatch.setattr(
        runner_container, "container_spec", lambda *a, **k: {**build(*a, **k), **hole}
    )
    monkeypatch.setattr(containers, "hide_host_paths", lambda *_: "its root is read-only")
    sandbox = fresh()
    with pytest.raises(IsolationError, match=probe):
        shell(sandbox, "echo ran > ran")
    assert not (sandbox._context.files / "ran").exists()
    assert containers_of(sandbox, ended=True) == []


def test_probes_that_cannot_run_are_reported_with_the_limit_to_raise(
    fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's own limits may be lower than the configured ones."""
    build = runner_container.container_spec
    few = [{"type": kind, "soft": n, "hard": n} for kind, n in (("nofile", 13), ("nproc", 64))]
    monkeypatch.setattr(
        runner_container, "container_spec", lambda *a, **k: {**build(*a, **k), "r_limits": few}
    )
    with pytest.raises(IsolationError, match=r"not started \(Too many open files\)") as caught:
        shell(fresh(), "true")
    assert "n_open_files" in caught.value.hint
