"""``run TASK --sandbox podman`` struck at any moment: no container stays, and it is resumed to its end."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_server import Call, Says
from run_rig import DONE, MEND, READ, RunRig
from run_signals import Ring, ring_around, striking_server

from wink_workspace.sandbox.podman import PodmanService
from wink_workspace.sandbox.podman.containers import WORKSPACE_LABEL

pytestmark = pytest.mark.xdist_group("podman")

WATCHDOG_S = 20.0
TURNS = (
    Says("", (Call("shell_execute", {"command": "echo made > made.txt; rm iniconfig/py.typed"}),)),
    Says("", (READ, MEND)),
    Says("", (Call("evaluate_python", {"code": "open('new.txt', 'w').write('by code')"}),)),
    DONE,
)


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    with striking_server() as process:
        yield process


@pytest.fixture
def ring(
    server: subprocess.Popen[str],
    service: PodmanService,
    python_image: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Ring]:
    """Its runs share an engine: one of their own would be there for seconds after a kill."""
    service.request("GET", "/info")
    monkeypatch.setenv("CONTAINER_HOST", f"unix://{service.socket_path}")
    desk = RunRig(tmp_path, capsys, monkeypatch)
    ring = ring_around(desk, server, TURNS, "--sandbox", "podman")
    ring.left_running = lambda: containers_over(tmp_path, service)
    yield ring
    desk.close()


def containers_over(place: Path, service: PodmanService) -> list[str]:
    """What stays over workspaces below *place*; what is about to go is waited for."""
    filters = json.dumps({"label": [WORKSPACE_LABEL]})
    until_s = time.monotonic() + WATCHDOG_S
    while True:
        listed = service.request(
            "GET", "/containers/json", params={"all": "true", "filters": filters}
        )
        left = [
            f"{found['Names']}: {found['State']}"
            for found in listed or []
            if found["Labels"][WORKSPACE_LABEL].startswith(str(place))
        ]
        if not left or time.monotonic() > until_s:
            return left


@pytest.mark.parametrize("n_moments", [1, pytest.param(60, marks=pytest.mark.soak)])
def test_a_run_struck_in_a_container_leaves_none_and_is_resumed_to_the_same_end(
    ring: Ring, n_moments: int
) -> None:
    assert len({files for files, *_ in ring.states}) == 4
    ring.strikes(signal.SIGINT, n_moments)
    ring.strikes(signal.SIGKILL, n_moments)
