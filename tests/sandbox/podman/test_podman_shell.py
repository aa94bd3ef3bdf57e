"""``wink-workspace shell`` and ``mount``: people in a branch, in its sandbox or on the host."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from wink_workspace.environment import Environment
from wink_workspace.errors import LedgerBusyError
from wink_workspace.filesystem.overlay.mounting import overlay_support
from wink_workspace.workspace import Workspace, WorkspaceStorage

pytestmark = pytest.mark.xdist_group("podman-waiting")

COMMAND = "import sys; from wink_workspace.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture
def storage(tmp_path: Path) -> WorkspaceStorage:
    """A storage with one workspace, which is an overlay."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a.txt").write_text("hello\n")
    storage = WorkspaceStorage(tmp_path / "wink-workspace")
    support = overlay_support(tmp_path)
    if not support.available:
        pytest.skip(support.reason)
    Workspace.create(tmp_path / "source", storage=storage, mode="overlay").close()
    return storage


def opened(storage: WorkspaceStorage) -> Workspace:
    (info,) = storage.all()
    return Workspace.open(info.id, storage=storage)


def command(storage: WorkspaceStorage, name: str, *arguments: str) -> list[str]:
    (info,) = storage.all()
    return [sys.executable, "-c", COMMAND, name, info.id, *arguments]


def variables(storage: WorkspaceStorage) -> dict[str, str]:
    path = os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])
    return {
        **os.environ,
        "XDG_STATE_HOME": str(storage._root.parents[1]),  # no public name: the command takes it
        "TERM": "vt100",
        "PYTHONPATH": path,
    }


ISOLATED = """
grep -E '^(CapEff|CapPrm|NoNewPrivs|Seccomp|Uid):' /proc/self/status | tr -s '\\t ' ' '
cat /proc/1/environ 2>/dev/null && echo read the runner
kill -0 1 2>/dev/null && echo signalled the runner
ls /sys/class/net
touch /etc/x 2>/dev/null && echo wrote to the root
(sleep 1000 &)
touch made; rm a.txt; exit 4
"""


@pytest.mark.behaviour(60)
def test_a_shell_has_the_isolation_of_commands_and_can_be_rolled_back(
    storage: WorkspaceStorage, environment: Environment
) -> None:
    done = subprocess.run(
        command(storage, "shell", "--rollback"),
        input=ISOLATED,
        env=variables(storage),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 4, done.stderr
    expected = (
        "Uid: 1000 1000 1000 1000\nCapPrm: 0000000000000000\nCapEff: 0000000000000000\n"
        "NoNewPrivs: 1\nSeccomp: 2\nlo\n"
    )
    assert done.stdout == expected
    with opened(storage) as workspace:
        assert [entry.subject.split(":")[0] for entry in workspace.log(limit=1)] == ["shell"]
        assert workspace.diff() == ""


def test_a_shell_in_a_terminal_has_one_and_its_changes_are_one_call(
    storage: WorkspaceStorage, environment: Environment
) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command(storage, "shell"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=variables(storage),
        start_new_session=True,
    ) as process:
        os.close(theirs)
        os.write(ours, b"tty; echo $TERM; echo typed > made; exit 3\n")
        output = b""
        try:
            while data := os.read(ours, 65_536):
                output += data
        except OSError:  # its end is closed
            pass
        assert process.wait(60) == 3, output
    os.close(ours)
    assert b"/dev/pts/" in output
    assert b"vt100" in output
    with opened(storage) as workspace:
        assert workspace.files.read_bytes("made") == b"typed\n"
        assert [entry.kind.value for entry in workspace.log()] == ["call", "import"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_mounted_branch_is_editable_until_ctrl_c_and_locked_meanwhile(
    storage: WorkspaceStorage, tmp_path: Path
) -> None:
    directory = tmp_path / "here"
    with subprocess.Popen(
        command(storage, "mount", str(directory)),
        stdout=subprocess.PIPE,
        text=True,
        env=variables(storage),
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
