"""A container whose start is cancelled."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from podman_machine import listed_containers, sandbox_place

from wink_workspace.clock import Cancellation
from wink_workspace.environment import Environment
from wink_workspace.errors import CallCancelledError
from wink_workspace.sandbox import ExecRequest
from wink_workspace.sandbox.podman import PodmanSandbox, PodmanService
from wink_workspace.sandbox.podman.engine.containers import WORKSPACE_LABEL

pytestmark = pytest.mark.xdist_group("podman")


@pytest.fixture
def sandbox(tmp_path: Path, environment: Environment, python_image: str) -> Iterator[PodmanSandbox]:
    sandbox = PodmanSandbox(sandbox_place(tmp_path))
    yield sandbox
    sandbox.close()


def containers_of(directory: Path, service: PodmanService) -> list[str]:
    listed = listed_containers(service, f"{WORKSPACE_LABEL}={directory}")
    return [found["Id"] for found in listed]


class CancelledLater(Cancellation):
    """Cancelled from the *n*-th check on."""

    def __init__(self, n: int) -> None:
        self.n_checks_left = n

    @property
    def cancelled(self) -> bool:
        self.n_checks_left -= 1
        return self.n_checks_left <= 0


def test_a_start_cancelled_at_any_step_leaves_no_container(
    sandbox: PodmanSandbox, service: PodmanService, tmp_path: Path
) -> None:
    for n in itertools.count(1):
        cancellation = CancelledLater(n if n < 6 else n * n)  # later checks are made while it waits
        try:
            sandbox.start(cancellation)
        except CallCancelledError:
            assert containers_of(tmp_path / "files", service) == []
        else:
            break
    assert n > 5
    assert sandbox.run(ExecRequest(argv=("true",))).exit_code == 0


def test_a_command_cancelled_before_it_begins_starts_no_engine(
    sandbox: PodmanSandbox,
) -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(CallCancelledError):
        sandbox.run(ExecRequest(argv=("true",), cancellation=cancellation))
    assert sandbox._service is None
