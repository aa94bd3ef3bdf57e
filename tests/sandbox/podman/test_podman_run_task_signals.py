"""``run TASK --sandbox podman`` interrupted at any moment: no container stays, resuming works."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_user import DONE, FIX, READ, CliUser
from model_server import Call, Turn
from run_signals import InterruptedRun, prepare_interrupted_run, run_server

from wink_workspace.sandbox.podman import PodmanService
from wink_workspace.sandbox.podman.engine.containers import WORKSPACE_LABEL

pytestmark = pytest.mark.xdist_group("podman")

WATCHDOG_S = 20.0
TURNS = (
    Turn("", (Call("shell_execute", {"command": "echo made > made.txt; rm iniconfig/py.typed"}),)),
    Turn("", (READ, FIX)),
    Turn("", (Call("evaluate_python", {"code": "open('new.txt', 'w').write('by code')"}),)),
    DONE,
)


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    with run_server() as process:
        yield process


@pytest.fixture
def interrupted_run(
    server: subprocess.Popen[str],
    service: PodmanService,
    python_image: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[InterruptedRun]:
    """The runs share an engine: an engine of their own would live for seconds after a kill."""
    service.request("GET", "/info")
    monkeypatch.setenv("CONTAINER_HOST", f"unix://{service.socket_path}")
    user = CliUser(tmp_path, capsys, monkeypatch)
    run = prepare_interrupted_run(user, server, TURNS, "--sandbox", "podman")
    run.left_running = lambda: containers_below(tmp_path, service)
    yield run
    user.close()


def containers_below(directory: Path, service: PodmanService) -> list[str]:
    """Return containers of workspaces below *directory* that do not end in time."""
    filters = json.dumps({"label": [WORKSPACE_LABEL]})
    until_s = time.monotonic() + WATCHDOG_S
    while True:
        listed = service.request(
            "GET", "/containers/json", params={"all": "true", "filters": filters}
        )
        left = [
            f"{found['Names']}: {found['State']}"
            for found in listed or []
            if found["Labels"][WORKSPACE_LABEL].startswith(str(directory))
        ]
        if not left or time.monotonic() > until_s:
            return left


@pytest.mark.share(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_run_leaves_no_container_and_resumes_to_the_same_end(
    interrupted_run: InterruptedRun, number: int
) -> None:
    assert len({files for files, *_ in interrupted_run.states}) == 4
    interrupted_run.interrupt_at_random(number, 1)


@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_run_interrupted_at_60_moments_leaves_no_container(
    interrupted_run: InterruptedRun, number: int
) -> None:
    interrupted_run.interrupt_at_random(number, 60)
