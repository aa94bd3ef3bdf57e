"""``wink-workspace shell`` in every sandbox: its test modules import these tests.

A module has the fixture ``backend``, the configuration of its sandbox.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Self

import pytest

from wink_workspace.environment import Environment
from wink_workspace.filesystem.overlay.mounting import overlay_support
from wink_workspace.sandbox.commands.command_config import CommandConfig
from wink_workspace.workspace import Workspace, WorkspaceStorage

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


def variables(storage: WorkspaceStorage, backend: CommandConfig) -> dict[str, str]:
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    return {
        **os.environ,
        "WINK_WORKSPACE_SANDBOX": backend.backend,
        "XDG_STATE_HOME": str(storage._root.parents[1]),  # no public name: the command takes it
        "TERM": "vt100",
        "PYTHONPATH": path,
    }


ISOLATED = """
grep -E '^(CapEff|CapPrm|NoNewPrivs|Seccomp|Uid):' /proc/self/status | tr -s '\\t ' ' '
cat /proc/1/environ 2>/dev/null && echo read the runner
kill -0 1 2>/dev/null && echo signalled the runner
tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '
touch /etc/x 2>/dev/null && echo wrote to the root
(sleep 1000 &)
touch made; rm a.txt; exit 4
"""


@pytest.mark.behaviour(60)
def test_a_shell_has_the_isolation_of_commands_and_can_be_rolled_back(
    storage: WorkspaceStorage, environment: Environment, backend: CommandConfig
) -> None:
    done = subprocess.run(
        command(storage, "shell", "--rollback"),
        input=ISOLATED,
        env=variables(storage, backend),
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
    storage: WorkspaceStorage, environment: Environment, backend: CommandConfig
) -> None:
    with Typist(storage, backend) as shell:
        shell.type("tty; echo $TERM; echo typed > made; exit 3\n")
        assert shell.ends_with(3)
    assert b"/dev/pts/" in shell.shown
    assert b"vt100" in shell.shown
    with opened(storage) as workspace:
        assert workspace.files.read_bytes("made") == b"typed\n"
        assert [entry.kind.value for entry in workspace.log()] == ["call", "import"]


def test_a_shell_follows_the_window_and_its_keys_reach_its_programs_only(
    storage: WorkspaceStorage, environment: Environment, backend: CommandConfig
) -> None:
    with Typist(storage, backend) as shell:
        before = termios.tcgetattr(shell.theirs)
        shell.type("while read line; do echo $line > typed; echo re''ad $line; done\n")
        shell.type("one\n")
        shell.see(b"read one")
        shell.type("\x03")
        shell.see(b"^C")
        shell.see(b"$ ")  # Ctrl-C has ended the loop alone
        shell.type("stty size; echo la''ter\n")
        shell.see(b"later")
        fcntl.ioctl(shell.ours, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 132, 0, 0))
        shell.type("until stty size | grep '50 132'; do sleep 0.05; done; exit 0\n")
        assert shell.ends_with(0)
        assert termios.tcgetattr(shell.theirs) == before
    assert b"30 100\r\n" in shell.shown, shell.shown
    with opened(storage) as workspace:
        assert workspace.files.read_bytes("typed") == b"one\n"


def test_a_program_reads_what_is_piped_to_it_to_its_end_and_may_leave_it(
    storage: WorkspaceStorage, environment: Environment, backend: CommandConfig
) -> None:
    def run(program: str, given: bytes) -> bytes:
        done = subprocess.run(
            command(storage, "shell", "--", "sh", "-c", program),
            input=given,
            env=variables(storage, backend),
            capture_output=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    data = os.urandom(3_000_000)
    assert run("cat; echo; test ! -t 0", data) == data + b"\n"
    assert run("head -c 10; exec 0<&-; sleep 0.2", data) == data[:10]
    assert run("cat >/dev/null; echo done", b"") == b"done\n"


class Typist:
    """A shell of a workspace in a terminal of 100 columns and 30 lines."""

    def __init__(self, storage: WorkspaceStorage, backend: CommandConfig) -> None:
        self.ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.shown, self._seen = b"", 0
        self._process = subprocess.Popen(
            command(storage, "shell"),
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            env=variables(storage, backend),
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(60)
        os.close(self.ours)
        os.close(self.theirs)

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def see(self, text: bytes) -> None:
        """Wait until *text* is on the screen, after what was seen before."""
        while (at := self.shown.find(text, self._seen)) < 0:
            assert self._reads(60), self.shown
        self._seen = at + len(text)

    def ends_with(self, code: int) -> bool:
        while self._process.poll() is None:
            self._reads(0.1)
        while self._reads(0):
            pass
        return self._process.returncode == code

    def _reads(self, seconds: float) -> bool:
        if not select.select([self.ours], [], [], seconds)[0]:
            return False
        self.shown += os.read(self.ours, 65_536)
        return True
