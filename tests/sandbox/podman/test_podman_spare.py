"""The process that waits for the next command: nobody meets it, and nothing comes by way of it.

By root and, in ``test_podman_rootless``, by an ordinary user.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from podman_machine import children_of, place_for_a_sandbox

from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxBrokenError, UsageError
from wink_workspace.sandbox import ExecRequest, ExecResult, PythonRequest
from wink_workspace.sandbox.podman import PodmanConfig, PodmanSandbox, PodmanService
from wink_workspace.sandbox.podman.containers import Host

pytestmark = pytest.mark.xdist_group("podman-spare")

MIB = 1_048_576
LONG = tuple(str(n) * 100_000 for n in range(9))  # more than a pipe takes at once


@pytest.fixture
def limited(tmp_path: Path, environment: Environment) -> Iterator[Callable[..., PodmanSandbox]]:
    """Makes a sandbox with limits of its own."""
    made: list[PodmanSandbox] = []

    def make(**limits: int) -> PodmanSandbox:
        made.append(PodmanSandbox(place_for_a_sandbox(tmp_path), config=PodmanConfig(**limits)))
        return made[-1]

    yield make
    for sandbox in made:
        sandbox.close()


def run(sandbox: PodmanSandbox, *argv: str, **options: object) -> ExecResult:
    return sandbox.run(ExecRequest(argv=argv, **options))


def shell(sandbox: PodmanSandbox, command: str, **options: object) -> ExecResult:
    return run(sandbox, "/bin/sh", "-c", command, **options)


def python(sandbox: PodmanSandbox, code: str) -> ExecResult:
    return sandbox.evaluate(PythonRequest(code=code))


def said(result: ExecResult) -> str:
    assert result.exit_code == 0, result
    return (result.stdout.head + result.stdout.tail).decode()


def waiting(sandbox: PodmanSandbox) -> int:
    """The one that waits, as the host knows it."""
    assert sandbox._context.notes is not None
    shell(sandbox, "true")
    first = json.loads((sandbox._context.notes / "container.json").read_text())["pid"]
    while True:  # it is made after the end of the last command has been told
        living = [pid for pid in children_of(first) if not is_dead(pid)]
        if living:
            assert len(living) == 1
            return living[0]


def is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


# What it holds


def test_it_has_no_rights_and_holds_no_stream_to_the_host(sandbox: PodmanSandbox) -> None:
    pid = waiting(sandbox)
    user = str(2_100_001_000 if os.geteuid() == 0 else os.geteuid())
    while (status := status_of(pid))["Uid"].split()[0] != user:
        assert not is_dead(pid)
    assert set(status["Uid"].split()) == {user}
    assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    if os.geteuid() == 0:  # nobody else may look
        fds = {int(fd.name): str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()}
        assert fds.pop(0) == "/dev/null"
        pipes = [name for name in fds.values() if name.startswith("pipe:")]
        assert len(set(pipes)) == 4
        assert set(fds.values()) - set(pipes) == {"/memfd:stdin (deleted)"}


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines)


OF_THE_C_LIBRARY = 1 << 32 - 1 | 1 << 33 - 1
"""Signals that it keeps for itself, and passes on as ignored to what it spawns, as ``make`` does."""


@pytest.mark.parametrize("kind", ["program", "warm"])
def test_a_command_starts_as_any_program_does(sandbox: PodmanSandbox, kind: str) -> None:
    """Whatever the runner, or the interpreter that it is, has made of itself."""
    code = (
        "import os, signal\n"
        "names = 'SigBlk SigIgn SigCgt'.split()\n"
        "status = dict(line.split(':\t', 1) for line in open('/proc/self/status'))\n"
        f"print(*[int(status[name], 16) & ~{OF_THE_C_LIBRARY} for name in names], oct(os.umask(0)))\n"
        "print(os.getsid(0) == os.getpid() == os.getpgid(0), os.getppid(), os.getcwd())\n"
        "print(open('/proc/self/oom_score_adj').read().strip(), os.isatty(0))\n"
        "def opened(fd):\n"
        "    try:\n        return os.fstat(fd) and True\n    except OSError:\n        return False\n"
        "print([fd for fd in range(4096) if opened(fd)])\n"
    )
    result = python(sandbox, code) if kind == "warm" else run(sandbox, "python3", "-c", code)
    signals, session, score, descriptors = said(result).splitlines()
    ignored = 1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1  # as by every interpreter
    assert signals == f"0 {ignored} {1 << signal.SIGINT - 1} 0o22"
    assert session == "True 1 /workspace"
    assert score == "1000 False"
    assert descriptors == "[0, 1, 2]"


def test_a_program_ignores_no_signal(sandbox: PodmanSandbox) -> None:
    status = said(run(sandbox, "grep", "-E", "SigIgn|SigBlk", "/proc/self/status"))
    ignored = [int(mask, 16) & ~OF_THE_C_LIBRARY for mask in status.split()[1::2]]
    assert ignored == [0, 0]


def test_warm_python_meets_a_closed_pipe_and_a_full_file_as_errors(
    sandbox: PodmanSandbox, limited: Callable[..., PodmanSandbox]
) -> None:
    code = (
        "import os\nread, write = os.pipe()\nos.close(read)\n"
        "try:\n    os.write(write, b'x')\nexcept BrokenPipeError:\n    print('broken')\n"
    )
    assert said(python(sandbox, code)) == "broken\n"
    code = (
        "try:\n    open('f', 'wb').write(bytes(3 << 20))\nexcept OSError as e:\n    print(e.errno)"
    )
    assert said(python(limited(file_bytes=MIB), code)) == "27\n"


def test_the_standard_streams_can_be_opened_by_their_names(sandbox: PodmanSandbox) -> None:
    result = shell(
        sandbox, "cat /dev/stdin; echo a > /dev/stdout; echo b > /dev/stderr", stdin=b"in\n"
    )
    assert said(result) == "in\na\n"
    assert result.stderr.head == b"b\n"


# What comes by way of it


def test_a_command_finds_nothing_of_the_one_before(sandbox: PodmanSandbox) -> None:
    """Warm Python is a fork of the runner, which was told of the others."""
    shell(
        sandbox, "true; : argument-of-before", env={"A": "value-of-before"}, stdin=b"in-of-before"
    )
    code = (
        "import sys\n"
        "sought, frame, found = '-of-' + 'before', sys._getframe(1), []\n"
        "while frame:\n"
        "    found += [name for name, value in dict(frame.f_locals).items()\n"
        "              if value is not globals() and sought in repr(value)]\n"
        "    frame = frame.f_back\n"
        "print(found)\n"
    )
    assert said(python(sandbox, code)) == "[]\n"


def test_the_memory_of_a_command_holds_no_byte_of_the_one_before(sandbox: PodmanSandbox) -> None:
    """It is a fork of the runner, whose free memory is still memory."""
    for size in (0, 3_000, 300_000):  # sizes that are kept in different places, and for how long
        fill = "f" * size
        shell(
            sandbox,
            f"cat; echo err-of-before-1{fill[:3_000]} >&2; : argument-of-before-2{fill[:100_000]}",
            env={"A": f"value-of-before-3{fill[:100_000]}"},
            stdin=f"in-of-before-4{fill}".encode(),
        )
        assert said(python(sandbox, _WHATEVER_IS_IN_MEMORY)) == "[]\n"


_WHATEVER_IS_IN_MEMORY = r"""
import ctypes, re
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE
found, sought = set(), re.compile(rb"[a-z]*-of-befor[e]-\d")
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
    for line in maps:
        first, last = (int(part, 16) for part in line.split()[0].split("-"))
        if line.split()[1].startswith("r") and "[v" not in line:
            try:
                memory.seek(first)
                found |= set(sought.findall(memory.read(last - first)))
            except OSError:
                pass
print(sorted(found))
"""


def test_nothing_that_processes_share_is_left_for_the_next(sandbox: PodmanSandbox) -> None:
    code = (
        "import ctypes\nc = ctypes.CDLL(None)\n"
        "c.shmget(ctypes.c_int(7), ctypes.c_size_t(4096), 0o1666)\n"
        "c.msgget(ctypes.c_int(7), 0o1666)\nc.semget(ctypes.c_int(7), 1, 0o1666)\n"
        "c.mq_open(b'/left', 0o102, 0o666, None)\n"
    )
    python(sandbox, code)
    listed = "cat /proc/sysvipc/shm /proc/sysvipc/msg /proc/sysvipc/sem; ls /dev/mqueue"
    assert len(said(shell(sandbox, listed)).splitlines()) == 3, "the headings alone"


def test_a_directory_that_is_gone_or_closed_is_refused_and_one_that_is_new_is_entered(
    sandbox: PodmanSandbox,
) -> None:
    shell(sandbox, "mkdir here closed; chmod 0 closed")
    waiting(sandbox)
    shell(sandbox, "rmdir here; mkdir -p there/here; ln -s there/here here")
    assert said(shell(sandbox, "pwd -P", cwd="here")) == "/workspace/there/here\n"
    shell(sandbox, "rm here")
    for cwd in ("here", "closed"):
        with pytest.raises(UsageError, match="cannot be entered"):
            shell(sandbox, "true", cwd=cwd)
    shell(sandbox, "rmdir closed")


# What becomes of it


def test_one_that_was_killed_while_it_waited_is_made_anew(sandbox: PodmanSandbox) -> None:
    for _ in range(20):  # a process that is killed can still be given something
        os.kill(waiting(sandbox), signal.SIGKILL)
        live = sandbox._commands
        assert said(shell(sandbox, "cat", stdin=b"in\n")) == "in\n"
        assert sandbox._commands is live, "the same container goes on"


@pytest.mark.parametrize("n", range(3))
def test_one_that_dies_while_it_is_given_its_order_is_made_anew(
    sandbox: PodmanSandbox, n: int
) -> None:
    """It is stopped, so that it takes in no more than a pipe does."""
    pid = waiting(sandbox)
    os.kill(pid, signal.SIGSTOP)
    killer = threading.Timer(0.02 * n, os.kill, (pid, signal.SIGKILL))
    killer.start()
    script = "import hashlib, sys; print(len(''.join(sys.argv)), len(sys.stdin.read()))"
    result = run(sandbox, "python3", "-c", script, *LONG, stdin=b"x" * 16 * MIB)
    killer.join()
    assert said(result) == f"{2 + 900_000} {16 * MIB}\n"
    assert said(shell(sandbox, "ls -d /proc/[0-9]*")).count("\n") <= 3


@pytest.mark.parametrize("n_processes", [2, 3])
def test_few_processes_are_enough_for_it(
    limited: Callable[..., PodmanSandbox], service: PodmanService, n_processes: int
) -> None:
    if "pids" not in Host.of(service).controllers:
        n_processes += 30  # without a cgroup the threads of what starts a container count, too
    sandbox = limited(n_processes=n_processes)
    bomb = "while :; do (while :; do :; done) & done"
    assert shell(sandbox, bomb, timeout_s=0.2).exit_code != 0
    assert said(shell(sandbox, "ls -d .")) == ".\n"
    assert said(python(sandbox, "1")) == "1\n"


def test_commands_that_end_at_their_time_leave_nothing_to_those_that_follow(
    sandbox: PodmanSandbox,
) -> None:
    """Whatever is being forked when they are killed, and the next one made."""
    bomb = 'f() { setsid sh -c "$0" 2>/dev/null & f & f & echo x >> log; }; f 2>/dev/null & while :; do :; done'
    for n in range(5):
        assert shell(sandbox, bomb, timeout_s=0.05 + n / 50).timed_out
        assert said(shell(sandbox, "ls -d /proc/[0-9]*")).count("\n") == 2
    shell(sandbox, "rm -f log")


# Input


def test_input_takes_no_more_memory_than_it_has_bytes(
    limited: Callable[..., PodmanSandbox], service: PodmanService
) -> None:
    """Input that is larger than memory ends the container, and that alone."""
    if "memory" not in Host.of(service).controllers:
        pytest.skip("no cgroup for memory here")
    sandbox = limited(memory_bytes=48 * MIB, stdin_bytes=64 * MIB)
    assert said(shell(sandbox, "wc -c", stdin=b"x" * 16 * MIB)) == f"{16 * MIB}\n"
    with pytest.raises(SandboxBrokenError):
        shell(sandbox, "wc -c", stdin=b"x" * 64 * MIB)
    assert said(shell(sandbox, "cat", stdin=b"in\n")) == "in\n"


def test_input_larger_than_a_file_may_be_is_refused_and_harms_nothing(
    limited: Callable[..., PodmanSandbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the container is asked, unless it is the user's own limit that is lower."""
    sandbox = limited(file_bytes=MIB)
    assert said(shell(sandbox, "wc -c", stdin=b"x" * MIB)) == f"{MIB}\n"
    live = sandbox._commands
    with pytest.raises(UsageError, match="longer than the 1,048,576 bytes") as caught:
        shell(sandbox, "wc -c", stdin=b"x" * (MIB + 1))
    assert "file_bytes" in caught.value.hint
    monkeypatch.setattr(sandbox, "config", PodmanConfig())
    for _ in range(2):
        with pytest.raises(UsageError, match="more than a file may have here"):
            shell(sandbox, "wc -c", stdin=b"x" * 2 * MIB)
        assert said(shell(sandbox, "cat", stdin=b"in\n")) == "in\n"
    assert sandbox._commands is live, "the same container goes on"
