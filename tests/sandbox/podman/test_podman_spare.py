"""The spare process, which waits for the next command: it leaks nothing between commands.

Run by root and, in ``test_podman_rootless``, by an ordinary user.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from podman_machine import children_of, sandbox_place

from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxBrokenError, UsageError
from wink_workspace.sandbox import ExecRequest, ExecResult, PythonRequest
from wink_workspace.sandbox.podman import PodmanConfig, PodmanSandbox, PodmanService
from wink_workspace.sandbox.podman.engine.containers import Host

pytestmark = pytest.mark.xdist_group("podman-spare")

MIB = 1_048_576
LONG = tuple(str(n) * 100_000 for n in range(9))  # more than the buffer of a pipe


@pytest.fixture
def limited(tmp_path: Path, environment: Environment) -> Iterator[Callable[..., PodmanSandbox]]:
    """Create sandboxes with given limits; close them afterwards."""
    created: list[PodmanSandbox] = []

    def make(**limits: int) -> PodmanSandbox:
        created.append(PodmanSandbox(sandbox_place(tmp_path), config=PodmanConfig(**limits)))
        return created[-1]

    yield make
    for sandbox in created:
        sandbox.close()


def run(sandbox: PodmanSandbox, *argv: str, **options: object) -> ExecResult:
    return sandbox.run(ExecRequest(argv=argv, **options))


def shell(sandbox: PodmanSandbox, command: str, **options: object) -> ExecResult:
    return run(sandbox, "/bin/sh", "-c", command, **options)


def python(sandbox: PodmanSandbox, code: str) -> ExecResult:
    return sandbox.evaluate(PythonRequest(code=code))


def stdout_of(result: ExecResult) -> str:
    assert result.exit_code == 0, result
    return (result.stdout.head + result.stdout.tail).decode()


def spare_pid(sandbox: PodmanSandbox) -> int:
    """Return the spare process's id on the host."""
    assert sandbox._context.notes is not None
    shell(sandbox, "true")
    first = json.loads((sandbox._context.notes / "container.json").read_text())["pid"]
    while True:  # it is created after the end of the last command was reported
        living = [pid for pid in children_of(first) if not is_dead(pid)]
        if living:
            assert len(living) == 1
            return living[0]


def is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


# Privileges and descriptors


def test_the_spare_process_has_no_privileges_and_no_stream_to_the_host(
    sandbox: PodmanSandbox,
) -> None:
    pid = spare_pid(sandbox)
    user = str(2_100_001_000 if os.geteuid() == 0 else os.geteuid())
    while (status := status_of(pid))["Uid"].split()[0] != user:
        assert not is_dead(pid)
    assert set(status["Uid"].split()) == {user}
    assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    if os.geteuid() == 0:  # only root may look
        fds = {int(fd.name): str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()}
        assert fds.pop(0) == "/dev/null"
        pipes = [name for name in fds.values() if name.startswith("pipe:")]
        assert len(set(pipes)) == 4
        assert set(fds.values()) - set(pipes) == {"/memfd:stdin (deleted)"}


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines)


C_LIBRARY_SIGNALS = 1 << 32 - 1 | 1 << 33 - 1
"""Signals that the C library reserves; programs that it spawns, as in ``make``, ignore them."""


@pytest.mark.parametrize("kind", ["program", "warm"])
def test_a_command_starts_with_the_default_process_state(sandbox: PodmanSandbox, kind: str) -> None:
    """The state of the runner's process is not inherited."""
    code = (
        "import os, signal\n"
        "names = 'SigBlk SigIgn SigCgt'.split()\n"
        "status = dict(line.split(':\t', 1) for line in open('/proc/self/status'))\n"
        f"print(*[int(status[name], 16) & ~{C_LIBRARY_SIGNALS} for name in names], oct(os.umask(0)))\n"
        "print(os.getsid(0) == os.getpid() == os.getpgid(0), os.getppid(), os.getcwd())\n"
        "print(open('/proc/self/oom_score_adj').read().strip(), os.isatty(0))\n"
        "def opened(fd):\n"
        "    try:\n        return os.fstat(fd) and True\n    except OSError:\n        return False\n"
        "print([fd for fd in range(4096) if opened(fd)])\n"
    )
    result = python(sandbox, code) if kind == "warm" else run(sandbox, "python3", "-c", code)
    signals, session, score, descriptors = stdout_of(result).splitlines()
    ignored = 1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1  # as in every interpreter
    assert signals == f"0 {ignored} {1 << signal.SIGINT - 1} 0o22"
    assert session == "True 1 /workspace"
    assert score == "1000 False"
    assert descriptors == "[0, 1, 2]"


def test_a_program_starts_with_no_ignored_signals(sandbox: PodmanSandbox) -> None:
    status = stdout_of(run(sandbox, "grep", "-E", "SigIgn|SigBlk", "/proc/self/status"))
    ignored = [int(mask, 16) & ~C_LIBRARY_SIGNALS for mask in status.split()[1::2]]
    assert ignored == [0, 0]


def test_warm_python_gets_errors_for_a_closed_pipe_and_a_full_file(
    sandbox: PodmanSandbox, limited: Callable[..., PodmanSandbox]
) -> None:
    code = (
        "import os\nread, write = os.pipe()\nos.close(read)\n"
        "try:\n    os.write(write, b'x')\nexcept BrokenPipeError:\n    print('broken')\n"
    )
    assert stdout_of(python(sandbox, code)) == "broken\n"
    code = (
        "try:\n    open('f', 'wb').write(bytes(3 << 20))\nexcept OSError as e:\n    print(e.errno)"
    )
    assert stdout_of(python(limited(file_bytes=MIB), code)) == "27\n"


def test_the_standard_streams_can_be_opened_through_dev(sandbox: PodmanSandbox) -> None:
    result = shell(
        sandbox, "cat /dev/stdin; echo a > /dev/stdout; echo b > /dev/stderr", stdin=b"in\n"
    )
    assert stdout_of(result) == "in\na\n"
    assert result.stderr.head == b"b\n"


# Data of earlier commands


def test_warm_python_sees_no_variables_of_the_previous_command(sandbox: PodmanSandbox) -> None:
    """Warm Python is a fork of the runner, which received the earlier commands."""
    shell(
        sandbox, "true; : argument-of-before", env={"A": "value-of-before"}, stdin=b"in-of-before"
    )
    code = (
        "import sys\n"
        "wanted, frame, found = '-of-' + 'before', sys._getframe(1), []\n"
        "while frame:\n"
        "    found += [name for name, value in dict(frame.f_locals).items()\n"
        "              if value is not globals() and wanted in repr(value)]\n"
        "    frame = frame.f_back\n"
        "print(found)\n"
    )
    assert stdout_of(python(sandbox, code)) == "[]\n"


def test_the_memory_of_a_command_holds_no_data_of_the_previous_one(sandbox: PodmanSandbox) -> None:
    """It is a fork of the runner, whose freed memory may hold old data."""
    for size in (0, 3_000, 300_000):  # sizes that are allocated in different ways
        fill = "f" * size
        shell(
            sandbox,
            f"cat; echo err-of-before-1{fill[:3_000]} >&2; : argument-of-before-2{fill[:100_000]}",
            env={"A": f"value-of-before-3{fill[:100_000]}"},
            stdin=f"in-of-before-4{fill}".encode(),
        )
        assert stdout_of(python(sandbox, _SEARCH_MEMORY)) == "[]\n"


_SEARCH_MEMORY = r"""
import ctypes, re
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE
found, wanted = set(), re.compile(rb"[a-z]*-of-befor[e]-\d")
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
    for line in maps:
        first, last = (int(part, 16) for part in line.split()[0].split("-"))
        if line.split()[1].startswith("r") and "[v" not in line:
            try:
                memory.seek(first)
                found |= set(wanted.findall(memory.read(last - first)))
            except OSError:
                pass
print(sorted(found))
"""


def test_shared_kernel_objects_are_removed_after_a_command(sandbox: PodmanSandbox) -> None:
    code = (
        "import ctypes\nc = ctypes.CDLL(None)\n"
        "c.shmget(ctypes.c_int(7), ctypes.c_size_t(4096), 0o1666)\n"
        "c.msgget(ctypes.c_int(7), 0o1666)\nc.semget(ctypes.c_int(7), 1, 0o1666)\n"
        "c.mq_open(b'/left', 0o102, 0o666, None)\n"
    )
    python(sandbox, code)
    listed = "cat /proc/sysvipc/shm /proc/sysvipc/msg /proc/sysvipc/sem; ls /dev/mqueue"
    assert len(stdout_of(shell(sandbox, listed)).splitlines()) == 3, "only the headings"


def test_the_working_directory_is_resolved_when_the_command_starts(
    sandbox: PodmanSandbox,
) -> None:
    shell(sandbox, "mkdir here closed; chmod 0 closed")
    spare_pid(sandbox)
    shell(sandbox, "rmdir here; mkdir -p there/here; ln -s there/here here")
    assert stdout_of(shell(sandbox, "pwd -P", cwd="here")) == "/workspace/there/here\n"
    shell(sandbox, "rm here")
    for cwd in ("here", "closed"):
        with pytest.raises(UsageError, match="cannot be entered"):
            shell(sandbox, "true", cwd=cwd)
    shell(sandbox, "rmdir closed")


# End and replacement


def test_a_killed_spare_process_is_replaced(sandbox: PodmanSandbox) -> None:
    for _ in range(20):  # a killed process may still receive data for a moment
        os.kill(spare_pid(sandbox), signal.SIGKILL)
        commands = sandbox._commands
        assert stdout_of(shell(sandbox, "cat", stdin=b"in\n")) == "in\n"
        assert sandbox._commands is commands, "the container was not replaced"


@pytest.mark.parametrize("n", range(3))
def test_a_spare_process_that_dies_while_receiving_a_command_is_replaced(
    sandbox: PodmanSandbox, n: int
) -> None:
    """It is stopped by a signal, so it receives no more than a pipe buffers."""
    pid = spare_pid(sandbox)
    os.kill(pid, signal.SIGSTOP)
    killer = threading.Timer(0.02 * n, os.kill, (pid, signal.SIGKILL))
    killer.start()
    script = "import hashlib, sys; print(len(''.join(sys.argv)), len(sys.stdin.read()))"
    result = run(sandbox, "python3", "-c", script, *LONG, stdin=b"x" * 16 * MIB)
    killer.join()
    assert stdout_of(result) == f"{2 + 900_000} {16 * MIB}\n"
    assert stdout_of(shell(sandbox, "ls -d /proc/[0-9]*")).count("\n") <= 3


def test_the_lowest_process_limit_is_enough(
    limited: Callable[..., PodmanSandbox], service: PodmanService
) -> None:
    n_processes = 16
    if "pids" not in Host.of(service).controllers:
        n_processes += 30  # without a cgroup, threads of the container runtime count as well
    sandbox = limited(n_processes=n_processes)
    bomb = "while :; do (while :; do :; done) & done"
    assert shell(sandbox, bomb, timeout_s=0.2).exit_code != 0
    assert stdout_of(shell(sandbox, "ls -d .")) == ".\n"
    assert stdout_of(python(sandbox, "1")) == "1\n"


def test_fork_bombs_that_time_out_leave_no_process(
    sandbox: PodmanSandbox,
) -> None:
    """Including processes that are forked during the kill and while the next spare starts."""
    bomb = 'f() { setsid sh -c "$0" 2>/dev/null & f & f & echo x >> log; }; f 2>/dev/null & while :; do :; done'
    for n in range(5):
        assert shell(sandbox, bomb, timeout_s=0.05 + n / 50).timed_out
        assert stdout_of(shell(sandbox, "ls -d /proc/[0-9]*")).count("\n") == 2
    shell(sandbox, "rm -f log")


# Input


def test_input_needs_no_more_memory_than_its_size(
    limited: Callable[..., PodmanSandbox], service: PodmanService
) -> None:
    """Input larger than memory ends only the container."""
    if "memory" not in Host.of(service).controllers:
        pytest.skip("no cgroup for memory here")
    sandbox = limited(memory_bytes=48 * MIB, stdin_bytes=64 * MIB)
    assert stdout_of(shell(sandbox, "wc -c", stdin=b"x" * 16 * MIB)) == f"{16 * MIB}\n"
    with pytest.raises(SandboxBrokenError):
        shell(sandbox, "wc -c", stdin=b"x" * 64 * MIB)
    assert stdout_of(shell(sandbox, "cat", stdin=b"in\n")) == "in\n"


def test_input_above_the_file_limit_is_refused_and_the_container_stays(
    limited: Callable[..., PodmanSandbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host refuses it, unless the user's own limit is lower than the configured one."""
    sandbox = limited(file_bytes=MIB)
    assert stdout_of(shell(sandbox, "wc -c", stdin=b"x" * MIB)) == f"{MIB}\n"
    commands = sandbox._commands
    with pytest.raises(UsageError, match="longer than the 1,048,576 bytes") as caught:
        shell(sandbox, "wc -c", stdin=b"x" * (MIB + 1))
    assert "file_bytes" in caught.value.hint
    monkeypatch.setattr(sandbox, "config", PodmanConfig())
    for _ in range(2):
        with pytest.raises(UsageError, match="more than a file may have here"):
            shell(sandbox, "wc -c", stdin=b"x" * 2 * MIB)
        assert stdout_of(shell(sandbox, "cat", stdin=b"in\n")) == "in\n"
    assert sandbox._commands is commands, "the container was not replaced"
