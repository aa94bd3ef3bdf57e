"""What every sandbox that runs commands does: its test modules import these tests.

A module has the fixtures ``sandbox``, which its tests share, and ``make_sandbox``, which makes one.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sandbox.podman.podman_machine import HeldClock, sandbox_place

from wink_workspace.errors import UsageError
from wink_workspace.sandbox import ExecRequest, ExecResult, PythonRequest
from wink_workspace.sandbox.commands.command_sandbox import CommandSandbox

MIB = 1_048_576
MakeSandbox = Callable[..., CommandSandbox]


@pytest.fixture
def fresh(tmp_path: Path, make_sandbox: MakeSandbox) -> Iterator[Callable[..., CommandSandbox]]:
    """Create sandboxes of one new directory; close them afterwards."""
    created: list[CommandSandbox] = []
    place = sandbox_place(tmp_path)

    def make(**limits: Any) -> CommandSandbox:
        created.append(make_sandbox(place, **limits))
        return created[-1]

    yield make
    for sandbox in created:
        sandbox.close()


def shell(sandbox: CommandSandbox, command: str, **options: object) -> ExecResult:
    return sandbox.run(ExecRequest(argv=("/bin/sh", "-c", command), **options))


def stdout_of(result: ExecResult) -> str:
    return (result.stdout.head + result.stdout.tail).decode()


def root_of(sandbox: CommandSandbox) -> str:
    return stdout_of(shell(sandbox, "cd /workspace; pwd -P")).strip()


# What a command sees and returns


def test_a_command_gives_its_exit_code_and_both_streams(sandbox: CommandSandbox) -> None:
    result = shell(sandbox, "echo out; echo err >&2; exit 3")
    assert (result.exit_code, result.signal, result.timed_out) == (3, None, False)
    assert (result.stdout.head, result.stderr.head) == (b"out\n", b"err\n")
    assert result.duration_s > 0


@pytest.mark.behaviour(62)
def test_the_signal_that_ended_a_command_is_reported(sandbox: CommandSandbox) -> None:
    result = shell(sandbox, "echo before; kill -SEGV $$")
    assert (result.exit_code, result.signal) == (None, signal.SIGSEGV)
    assert stdout_of(result) == "before\n"


@pytest.mark.behaviour(62)
def test_bytes_that_are_not_text_are_returned_unchanged(sandbox: CommandSandbox) -> None:
    result = shell(sandbox, r"printf '\377\376\000\001'; cat", stdin=bytes(range(256)))
    assert result.stdout.head == b"\xff\xfe\x00\x01" + bytes(range(256))


@pytest.mark.behaviour(64)
def test_a_command_runs_as_an_ordinary_user_who_can_write_the_workspace(
    sandbox: CommandSandbox,
) -> None:
    result = shell(
        sandbox, "id -u; id -G; pwd; grep -E 'Cap(Eff|Prm|Amb)' /proc/self/status; echo x > new"
    )
    lines = stdout_of(result).splitlines()
    assert lines[0] == "1000"
    assert lines[1].split()[0] == "1000"
    assert lines[2] == root_of(sandbox)
    assert [int(line.split()[1], 16) for line in lines[3:]] == [0, 0, 0]
    written = sandbox._context.files / "new"
    assert written.read_text() == "x\n"
    assert written.stat().st_uid == (2_100_001_000 if os.geteuid() == 0 else os.geteuid())


def test_the_environment_has_nothing_of_the_host(
    sandbox: CommandSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_SECRET", "seen")
    result = shell(sandbox, "env", env={"GIVEN": "a b=c"})
    names = {line.split("=")[0] for line in stdout_of(result).splitlines()}
    assert "GIVEN=a b=c" in stdout_of(result).splitlines()
    assert names <= {
        "EMAIL", "GIVEN", "HOME", "LANG", "LOGNAME", "OLDPWD", "PATH", "PWD", "PYTHONDONTWRITEBYTECODE",
        "SHLVL", "TERM", "TMPDIR", "USER", "_",
    }  # fmt: skip


def test_a_command_starts_in_its_working_directory(sandbox: CommandSandbox) -> None:
    shell(sandbox, "mkdir -p 'a b/c'")
    assert stdout_of(shell(sandbox, "pwd", cwd="a b/c")) == f"{root_of(sandbox)}/a b/c\n"


@pytest.mark.parametrize("cwd", ["/", "/usr/lib", "/usr/..", "/tmp"])
def test_a_command_may_start_in_an_absolute_path_of_the_container(
    sandbox: CommandSandbox, cwd: str
) -> None:
    assert stdout_of(shell(sandbox, "pwd -P", cwd=cwd)).strip() == os.path.normpath(cwd)
    code = "import os; print(os.getcwd())"
    assert stdout_of(
        sandbox.evaluate(PythonRequest(code=code, cwd=cwd))
    ).strip() == os.path.normpath(cwd)


MIXED = "for n in 1 2 3; do echo out $n; echo err $n >&2; done"


def test_merged_errors_keep_their_order_in_the_output(
    sandbox: CommandSandbox,
) -> None:
    seen: list[str] = []
    request = ExecRequest(argv=("/bin/sh", "-c", MIXED), merge_stderr=True)
    result = sandbox.run(request, observer=lambda stream, data: seen.append(stream))
    assert stdout_of(result) == "".join(f"out {n}\nerr {n}\n" for n in (1, 2, 3))
    assert result.stderr.n_bytes == 0
    assert set(seen) == {"stdout"}
    assert shell(sandbox, MIXED).stderr.head == b"err 1\nerr 2\nerr 3\n", (
        "the next command is not merged"
    )


def test_a_program_may_send_more_code_than_a_model(sandbox: CommandSandbox) -> None:
    commands = sandbox.report and sandbox._commands
    code = f"x = {'y' * (5 * MIB)!r}\nprint(len(x))"
    assert stdout_of(sandbox.evaluate(PythonRequest(code=code))) == f"{5 * MIB}\n"
    assert stdout_of(shell(sandbox, "echo next")) == "next\n"
    assert sandbox._commands is commands, "the container was not replaced"


def test_a_program_may_send_more_input_than_a_model(sandbox: CommandSandbox) -> None:
    assert stdout_of(shell(sandbox, "wc -c", stdin=b"x" * (20 * MIB))) == f"{20 * MIB}\n"


def test_stdin_of_any_size_is_read_to_its_end(sandbox: CommandSandbox) -> None:
    assert stdout_of(shell(sandbox, "wc -c", stdin=b"x" * 3_000_000)) == "3000000\n"
    assert stdout_of(shell(sandbox, "wc -c")) == "0\n"
    assert shell(sandbox, "true", stdin=b"unread" * 100_000).exit_code == 0


def test_names_and_arguments_that_are_not_text_are_passed_unchanged(
    sandbox: CommandSandbox,
) -> None:
    name = b"odd \xff\n".decode("utf-8", "surrogateescape")
    result = sandbox.run(ExecRequest(argv=("touch", name)))
    assert result.exit_code == 0
    assert (sandbox._context.files / name).exists()


def test_output_is_observed_while_the_command_runs(sandbox: CommandSandbox) -> None:
    """The command ends only after the observer received the first line."""
    seen: list[bytes] = []

    def observer(stream: str, data: bytes) -> None:
        seen.append(data)
        if b"first" in data:
            (sandbox._context.files / "go").touch()

    result = sandbox.run(
        ExecRequest(
            argv=("/bin/sh", "-c", "echo first; until [ -e go ]; do sleep 0.01; done; echo second")
        ),
        observer=observer,
    )
    assert result.exit_code == 0
    assert b"".join(seen) == b"first\nsecond\n"


@pytest.mark.behaviour(62)
def test_long_output_keeps_its_head_and_tail(sandbox: CommandSandbox) -> None:
    result = shell(sandbox, "seq 1 200000; echo err >&2", output_bytes=1_000)
    assert result.stdout.head.startswith(b"1\n2\n")
    assert result.stdout.tail.endswith(b"200000\n")
    assert result.stdout.n_bytes == 1_288_895
    assert result.stdout.n_missing == 1_288_895 - 1_000
    assert result.stderr.head == b"err\n"
    assert not list(sandbox._context.notes.glob("std*"))


def test_the_best_shell_of_the_image_is_used(sandbox: CommandSandbox) -> None:
    assert sandbox.shell == ("/bin/bash", "-c")


# Python


def python(sandbox: CommandSandbox, code: str, **options: object) -> ExecResult:
    return sandbox.evaluate(PythonRequest(code=code, **options))


def test_python_prints_and_shows_the_value_of_its_last_line(sandbox: CommandSandbox) -> None:
    assert stdout_of(python(sandbox, "print('a')\nx = 20\nx + 1")) == "a\n21\n"
    assert stdout_of(python(sandbox, "x = 1")) == ""
    assert stdout_of(python(sandbox, "None")) == ""
    assert python(sandbox, "").exit_code == 0


def test_python_that_fails_returns_a_traceback_of_its_own_lines_only(
    sandbox: CommandSandbox,
) -> None:
    result = python(sandbox, "def f():\n    raise KeyError('here')\nf()")
    lines = result.stderr.head.decode().splitlines()
    assert result.exit_code == 1
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "KeyError: 'here'"
    assert [line for line in lines if "File" in line] == [
        '  File "<code>", line 3, in <module>',
        '  File "<code>", line 2, in f',
    ]


def test_python_with_a_syntax_error_reports_it(sandbox: CommandSandbox) -> None:
    result = python(sandbox, "def f(:\n  pass")
    assert result.exit_code == 1
    assert b"SyntaxError" in result.stderr.head
    assert b"<runner>" not in result.stderr.head


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        ("import sys; sys.exit(7)", 7),
        ("import sys; sys.exit()", 0),
        ("raise SystemExit('why')", 1),
        ("import atexit; atexit.register(print, 'bye')", 0),
        ("import os; os._exit(4)", 4),
        ("import threading; threading.Thread(target=print, args=('t',)).start()", 0),
    ],
)
def test_python_exits_like_a_program(sandbox: CommandSandbox, code: str, ends: int) -> None:
    assert python(sandbox, code).exit_code == ends


@pytest.mark.behaviour(61)
def test_evaluations_share_no_state(sandbox: CommandSandbox) -> None:
    python(sandbox, "import builtins, json, sys, os\nx = 1\nbuiltins.len = 2\njson.dumps = 3\n"
           "sys.path.append('evil')\nos.environ['A'] = 'b'\nos.chdir('/tmp')\nos.umask(0)")  # fmt: skip
    result = python(
        sandbox,
        "import json, sys, os\n"
        "print('x' in globals(), len([1]), json.dumps([1]), 'evil' in sys.path, 'A' in os.environ)\n"
        "print(os.getcwd(), oct(os.umask(0)), __name__, sys.argv)",
    )
    assert stdout_of(result) == (
        f"False 1 [1] False False\n{root_of(sandbox)} 0o22 __main__ ['']\n"
    )


def test_python_imports_modules_of_the_workspace(sandbox: CommandSandbox) -> None:
    (sandbox._context.files / "own_module.py").write_text("value = 5\n")
    assert stdout_of(python(sandbox, "import own_module; own_module.value")) == "5\n"


def test_python_has_the_environment_of_a_command_and_no_open_files(
    sandbox: CommandSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_SECRET", "seen")
    code = (
        "import os\nprint(*sorted(os.environ))\n"
        "for fd in range(3, 4096):\n    try:\n        os.fstat(fd)\n    except OSError:\n        continue\n    print(fd)"
    )
    names = "EMAIL HOME LANG LOGNAME PATH PYTHONDONTWRITEBYTECODE TERM TMPDIR USER\n"
    assert stdout_of(python(sandbox, code)) == names


def test_python_can_fork_and_start_programs(sandbox: CommandSandbox) -> None:
    code = "import subprocess\nsubprocess.run(['sh', '-c', 'read a; echo $a'], input=b'in', check=True)"
    result = python(sandbox, code)
    assert result.stdout.head.startswith(b"in\n")


# Terminals


@pytest.mark.parametrize(
    ("command", "code", "output"),
    [
        ("stty size; echo $TERM; test -t 0 && test -t 1 && test -t 2", 0, "24 80\nxterm\n"),
        ("echo out; echo err >&2; exit 3", 3, "out\nerr\n"),
        ("cat; python3 -c 'input()' 2>&1 | tail -1", 0, "EOFError: EOF when reading a line\n"),
        ("echo one > /dev/tty; echo two > $(tty)", 0, "one\ntwo\n"),
        ("seq 1 60000 | tail -1; printf 'a\\r\\nb\\n'", 0, "60000\na\r\nb\n"),
        ("(setsid sleep 1000 &); (trap '' HUP; sleep 1000 &); echo left", 0, "left\n"),
    ],
)
def test_a_command_in_a_terminal_shows_what_it_wrote_and_has_no_input(
    sandbox: CommandSandbox, command: str, code: int, output: str
) -> None:
    result = shell(sandbox, command, terminal=True, timeout_s=20)
    assert (result.exit_code, stdout_of(result)) == (code, output)
    assert result.stderr.n_bytes == 0
    assert "not a tty" in stdout_of(shell(sandbox, "tty; ls /dev/pts"))  # the next one has none
    assert processes_of(sandbox) == set()


def test_a_command_in_a_terminal_has_the_limits_of_others(sandbox: CommandSandbox) -> None:
    assert shell(sandbox, "echo; sleep 1000", terminal=True, timeout_s=0.5).timed_out
    result = shell(sandbox, "seq 1 100000", terminal=True, output_bytes=100)
    assert result.stdout.n_bytes == 588_895
    assert result.stdout.tail.endswith(b"\n100000\n")
    with pytest.raises(UsageError, match="a command with a terminal has no input"):
        shell(sandbox, "cat", terminal=True, stdin=b"x")


# Time limits and leftovers


def processes_of(sandbox: CommandSandbox) -> set[str]:
    """Return the processes inside, without the runner and the asking shell."""
    result = shell(
        sandbox, "for p in /proc/[0-9]*; do [ ${p#/proc/} = $$ ] || echo ${p#/proc/}; done"
    )
    return set(stdout_of(result).split()) - {"1"}


LEAVE = {
    "in the background": "sleep 1000 & echo $!",
    "daemon": "(setsid sh -c 'sleep 1000 & sleep 1000' >/dev/null 2>&1 &) ; echo",
    "ignoring signals": "(trap '' TERM INT HUP; sleep 1000) & echo",
    "stopped": "sleep 1000 & kill -STOP $!; echo",
    "own namespace": "unshare -Urp --fork --kill-child=TERM sleep 1000 2>/dev/null & echo",
    "holding the streams": "sleep 1000 & exec sleep 0",
    "forking": "f() { sleep 0.01 & f & f & }; f 2>/dev/null; echo",
}


@pytest.mark.behaviour(60)
@pytest.mark.parametrize("command", LEAVE.values(), ids=LEAVE.keys())
def test_processes_of_a_command_end_with_it(sandbox: CommandSandbox, command: str) -> None:
    result = shell(sandbox, command, timeout_s=20)
    assert result.timed_out is False
    assert processes_of(sandbox) == set()


@pytest.fixture(scope="module")
def clock() -> HeldClock:
    return HeldClock()


@pytest.fixture(scope="module")
def timed(
    tmp_path_factory: pytest.TempPathFactory, make_sandbox: MakeSandbox, clock: HeldClock
) -> Iterator[CommandSandbox]:
    """A sandbox for commands whose time starts at their first output."""
    place = sandbox_place(tmp_path_factory.mktemp("timed"))
    with closing(make_sandbox(place, clock=clock)) as sandbox:
        assert sandbox.report
        yield sandbox


@pytest.mark.behaviour(60)
@pytest.mark.parametrize(
    "command",
    [
        "echo begun; sleep 1000",
        "echo begun; trap '' TERM INT HUP; while :; do :; done",
        "echo begun; kill -STOP $$",
        "echo begun; setsid sleep 1000 & wait",
        "echo begun; f() { f & f & sleep 1; }; f 2>/dev/null & while :; do :; done",
    ],
    ids=["sleeping", "spinning", "stopped", "waiting", "bomb"],
)
def test_a_command_that_times_out_ends_with_all_its_processes(
    timed: CommandSandbox, clock: HeldClock, command: str
) -> None:
    clock.hold()
    request = ExecRequest(argv=("/bin/sh", "-c", command), timeout_s=0.4)
    result = timed.run(request, observer=lambda *_: clock.release())
    assert (result.timed_out, result.signal) == (True, signal.SIGKILL)
    assert stdout_of(result).startswith("begun\n"), "output before the timeout is kept"
    assert processes_of(timed) == set()


@pytest.mark.behaviour(60)
def test_python_that_times_out_is_ended(timed: CommandSandbox, clock: HeldClock) -> None:
    clock.hold()
    code = "print('begun', flush=True)\nwhile True: pass"
    request = PythonRequest(code=code, timeout_s=0.4)
    result = timed.evaluate(request, observer=lambda *_: clock.release())
    assert result.timed_out
    assert stdout_of(result) == "begun\n"
    assert processes_of(timed) == set()


def test_a_timeout_above_the_maximum_is_reduced_to_it(fresh) -> None:
    sandbox = fresh(longest_timeout_s=0.3)
    assert shell(sandbox, "sleep 1000", timeout_s=1_000_000).timed_out


def test_temporary_directories_are_emptied(sandbox: CommandSandbox) -> None:
    deep = (
        "import os\nos.chdir('/tmp')\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\n"
    )
    python(sandbox, deep)
    shell(
        sandbox,
        "cd /tmp; mkdir -p a/b; touch a/b/c .hidden; chmod 000 a/b a; ln -s / l; mkfifo p;"
        "echo x > /dev/shm/y; mkdir /dev/shm/z; chmod 000 /dev/shm/z",
    )
    assert stdout_of(shell(sandbox, "ls -A /tmp /dev/shm /dev/mqueue")).split() == [
        "/dev/mqueue:", "/dev/shm:", "/tmp:",
    ]  # fmt: skip


def test_commands_from_two_threads_run_one_after_the_other(sandbox: CommandSandbox) -> None:
    found: list[str] = []

    def work(name: str) -> None:
        found.extend([stdout_of(shell(sandbox, f"echo {name}{number}")) for number in range(5)])

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(f"{name}{number}\n" for name in "ab" for number in range(5))


# Commands that are stopped


def test_a_command_with_endless_output_is_stopped(fresh) -> None:
    result = shell(fresh(most_output_bytes=2 * MIB), "yes", timeout_s=60)
    assert result.stopped == "it wrote more than 2,097,152 bytes of output"
    assert result.signal == signal.SIGKILL


def test_a_command_that_fills_the_disk_is_stopped(fresh) -> None:
    sandbox = fresh(workspace_bytes=50 * MIB)
    result = shell(
        sandbox, "i=0; while :; do head -c 1000000 /dev/zero > f$i; i=$((i+1)); done", timeout_s=60
    )
    assert result.stopped == "the workspace grew beyond 52,428,800 bytes"
    assert processes_of(sandbox) == set()


def test_a_file_cannot_grow_beyond_its_limit(fresh) -> None:
    sandbox = fresh(file_bytes=MIB)
    result = shell(sandbox, "head -c 2000000 /dev/zero > f; wc -c < f")
    assert stdout_of(result) == "1048576\n"


# Requests that cannot be run


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (ExecRequest(argv=()), "no program"),
        (ExecRequest(argv=("",)), "no program"),
        (ExecRequest(argv=("no-such-program",)), "no-such-program"),
        (ExecRequest(argv=("/etc/passwd",)), "Permission denied"),
        (ExecRequest(argv=("true",), cwd="missing"), "missing"),
        (ExecRequest(argv=("true",), cwd="../up"), "outside"),
        (ExecRequest(argv=("true",), cwd="/no/such/place"), "'/no/such/place' cannot be entered"),
        (ExecRequest(argv=("true",), cwd="/a\0b"), "NUL"),
        (ExecRequest(argv=("true",), cwd="/\ud800"), "not valid Unicode"),
        (ExecRequest(argv=("true", "a\0b")), "NUL"),
        (ExecRequest(argv=("true",), env={"A": "\0"}), "'A' contains a NUL"),
        (ExecRequest(argv=("true",), env={"A=B": "c"}), "'A=B' cannot be the name of a variable"),
        (ExecRequest(argv=("true",), env={"A\0": "c"}), "cannot be the name of a variable"),
        (ExecRequest(argv=("true",), env={"": "c"}), "'' cannot be the name of a variable"),
        (PythonRequest(code="1", env={"": "c"}), "'' cannot be the name of a variable"),
        (PythonRequest(code="'\0'"), "NUL"),
        (ExecRequest(argv=("true", "\ud800")), "not valid Unicode"),
        (ExecRequest(argv=("true",), env={"A": "\ud800"}), "not valid Unicode"),
        (ExecRequest(argv=("true", "x" * 200_000)), "argument"),
        (ExecRequest(argv=("true", *["x" * 100_000] * 80)), "8,000,\\d+ bytes.* the kernel"),
        (PythonRequest(code="1", cwd="missing"), "missing"),
    ],
)
def test_an_invalid_request_is_refused_and_the_container_stays(
    sandbox: CommandSandbox, request_: ExecRequest | PythonRequest, expected: str
) -> None:
    act = sandbox.run if isinstance(request_, ExecRequest) else sandbox.evaluate
    assert sandbox.report
    commands = sandbox._commands
    with pytest.raises(UsageError, match=expected):
        act(request_)
    assert shell(sandbox, "true").exit_code == 0
    assert sandbox._commands is commands, "the container was not replaced"


def test_a_request_above_the_protocols_limit_is_refused(sandbox: CommandSandbox) -> None:
    with pytest.raises(UsageError, match=r"67,109,[0-9]{3} bytes, 67,108,864 are allowed"):
        sandbox.evaluate(PythonRequest(code="#" * (64 * MIB)))


# Life


def test_an_observer_that_raises_ends_the_command_and_the_sandbox(fresh) -> None:
    sandbox = fresh()

    def observer(stream: str, data: bytes) -> None:
        raise RuntimeError("an error of the host")

    with pytest.raises(RuntimeError, match="an error of the host"):
        sandbox.run(ExecRequest(argv=("sh", "-c", "echo a; sleep 1000")), observer=observer)
    assert sandbox._commands is None
    assert shell(sandbox, "true").exit_code == 0


@pytest.mark.parametrize("mode", ["000", "555"])
def test_a_workspace_root_without_permissions_stays_usable(fresh, mode: str) -> None:
    sandbox = fresh()
    shell(sandbox, f"chmod {mode} .")
    sandbox.close()
    assert shell(fresh(), "echo x > new").exit_code == 0


def test_the_proof_touches_no_file_of_a_command(fresh) -> None:
    """A link at the path of its own file would lead it to another file."""
    sandbox = fresh()
    files = sandbox._context.files
    shell(sandbox, "echo precious > mine; ln -s mine .wink-probe")
    sandbox.close()
    assert not fresh().report.holes
    assert (files / "mine").read_text() == "precious\n"


def test_every_probe_was_stopped_and_the_report_lists_the_layers(sandbox: CommandSandbox) -> None:
    report = sandbox.report
    assert report.holes == ()
    assert len(report.probes) >= 20
    assert {layer.name for layer in report.missing} >= {"disk quota"}
