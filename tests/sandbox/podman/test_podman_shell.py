"""``wink-workspace shell`` in a container, and ``mount``, without a sandbox."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from shell_contract import *  # noqa: F403 - the tests that every sandbox passes
from shell_contract import command, opened, variables

from wink_workspace.errors import LedgerBusyError
from wink_workspace.sandbox.podman import PodmanConfig
from wink_workspace.workspace import WorkspaceStorage

pytestmark = pytest.mark.xdist_group("podman-waiting")


@pytest.fixture
def backend() -> PodmanConfig:
    return PodmanConfig()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_mounted_branch_is_editable_until_ctrl_c_and_locked_meanwhile(
    storage: WorkspaceStorage, tmp_path: Path
) -> None:
    directory = tmp_path / "here"
    with subprocess.Popen(
        command(storage, "mount", str(directory)),
        stdout=subprocess.PIPE,
        text=True,
        env=variables(storage, PodmanConfig()),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{directory}\n"
        assert (directory / "a.txt").read_text() == "hello\n"
        (directory / "a.txt").write_text("edited\n")
        with pytest.raises(LedgerBusyError):
            opened(storage)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert list(directory.iterdir()) == []
    with opened(storage) as workspace:
        assert workspace.files.read_bytes("a.txt") == b"edited\n"
