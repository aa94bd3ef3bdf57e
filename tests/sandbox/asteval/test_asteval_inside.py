"""The code of the child and the server, driven from this process without isolation."""

from __future__ import annotations

import ast
import asyncio
import builtins
import glob
import io
import json
import os
import random
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from asteval_support import evaluate, opened

from wink_workspace import companion
from wink_workspace.sandbox import Layer
from wink_workspace.sandbox.asteval import EndReason, launching
from wink_workspace.sandbox.asteval.inside import python_probes as probes
from wink_workspace.sandbox.asteval.inside import restrictions as isolation
from wink_workspace.sandbox.asteval.inside.child import (
    Channel,
    answer_host,
    as_fields,
    bounded_repr,
)
from wink_workspace.sandbox.asteval.inside.files import WorkspaceFiles, refusal
from wink_workspace.sandbox.asteval.inside.fork_server import loaded_program
from wink_workspace.sandbox.asteval.inside.interpreter import Interpreter
from wink_workspace.sandbox.asteval.inside.main_program import MainProgram
from wink_workspace.sandbox.asteval.pipe_frames import SIZES, PipeFrame, encode_frame

LAYERS = (Layer("limits", is_active=True, detail="some"),)


class Host:
    """Acts as the host on one end of a pipe."""

    def __init__(self, pipe: socket.socket, files: dict[str, bytes]) -> None:
        self._channel = Channel(pipe.fileno())
        self.files = files
        self.output = {"stdout": b"", "stderr": b""}

    def evaluate(self, code: str, **names: object) -> PipeFrame:
        """Return the last frame; answer requests for files meanwhile."""
        assert self._channel.receive().fields["layers"] == [["limits", True, "some"]]
        fields = {
            "code": code,
            "globals": names,
            "value_chars": 100,
            "write_bytes": 1_000,
        }
        self._channel.send("evaluate", fields)
        while True:
            frame = self._channel.receive()
            match frame.kind:
                case "done":
                    return frame
                case "read" if frame.fields["path"] in self.files:
                    self._channel.send("answer", body=self.files[frame.fields["path"]])
                case "read":
                    self._channel.send("refused", {"error": "FileNotFoundError", "message": "no"})
                case "write":
                    self._write(frame.fields["path"], frame.fields["mode"], frame.body)
                    self._channel.send("answer")
                case "stat" if frame.fields["path"] in self.files:
                    self._channel.send("answer", body=b'["file", 4, true]')
                case "stat" if frame.fields["path"] in (".", "d"):
                    self._channel.send("answer", body=b'["directory", 0, false]')
                case "stat":
                    self._channel.send("refused", {"error": "FileNotFoundError", "message": "no"})
                case "list":
                    rows = [["a", "file", 4, True], ["d", "directory", 0, False]]
                    self._channel.send("answer", body=json.dumps(rows).encode())
                case "mkdir":
                    self.files[frame.fields["path"]] = b""
                    self._channel.send("answer")
                case stream:
                    self.output[stream] += frame.body

    def _write(self, path: str, mode: str, data: bytes) -> None:
        self.files[path] = (self.files.get(path, b"") if mode == "append" else b"") + data


@pytest.fixture
def interpreter() -> Interpreter:
    found = loaded_program("asteval", use_numpy=False)
    assert isinstance(found, Interpreter)
    return found


@contextmanager
def running(program: MainProgram, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """Run a child in a thread of this process; restore its global settings afterwards."""
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    limit, state = sys.getrecursionlimit(), random.getstate()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = threading.Thread(
            target=answer_host, args=(Channel(theirs.fileno()), LAYERS, program)
        )
        child.start()
        yield Host(ours, {"a": b"x\r\ny\n"})
        child.join()
    sys.setrecursionlimit(limit)
    random.setstate(state)


@pytest.fixture
def host(interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    with running(interpreter, monkeypatch) as started:
        yield started


@pytest.fixture
def python_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """The same with Python itself, which replaces functions and settings of its process."""
    names = ("stat", "lstat", "listdir", "scandir", "mkdir", "getcwd", "getcwdb", "cpu_count")
    replaced = [
        *((os, name) for name in names), (builtins, "open"), (io, "open"),
        *((sys, name) for name in ("path", "meta_path", "argv", "stdin")),
    ]  # fmt: skip
    for owner, name in replaced:
        value = getattr(owner, name)
        monkeypatch.setattr(owner, name, list(value) if isinstance(value, list) else value)
    own = getattr(os, "process_cpu_count", None)  # since 3.13
    monkeypatch.setattr(os, "process_cpu_count", own, raising=False)
    if hasattr(glob, "_StringGlobber"):  # since 3.13
        kept = vars(glob._StringGlobber)["scandir"]
        monkeypatch.setattr(glob._StringGlobber, "scandir", kept)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    filters, policy = warnings.filters[:], asyncio.get_event_loop_policy()
    with running(loaded_program("python", use_numpy=False), monkeypatch) as started:
        yield started
    warnings.filters[:] = filters
    asyncio.set_event_loop_policy(policy)
    for name in ("read_text", "write_text"):
        vars(builtins).pop(name, None)


def test_a_value_is_returned_with_output_and_remaining_names(host: Host) -> None:
    code = "import math\ndef f(): pass\n_hidden = 1\ny = x + 1\nprint(y, 'é', sep='-')\n(y, [None])"
    done = host.evaluate(code, x=1)
    assert done.fields["outcome"] == "value"
    assert done.fields["value"] == {"repr": "(2, [None])", "n_missing": 0, "json": [2, [None]]}
    assert {*done.fields["globals"]} == {"x", "y"}
    assert host.output["stdout"] == "2-é\n".encode()


def test_a_parameter_hides_a_name_of_asteval_but_no_function_for_files(host: Host) -> None:
    done = host.evaluate("def f(read_text, pi): pass\n(read_text('a'), pi)")
    assert done.fields["error"]["message"] == "name 'pi' is not defined"
    assert done.fields["error"]["column"] == 18


def test_plain_python_prints_to_the_same_streams(python_host: Host) -> None:
    done = python_host.evaluate("import sys\nprint(1)\nprint(2, file=sys.stderr)\n3")
    assert done.fields["value"]["json"] == 3
    assert python_host.output == {"stdout": b"1\n", "stderr": b"2\n"}


def test_plain_python_without_a_last_expression_has_no_value(python_host: Host) -> None:
    assert "value" not in python_host.evaluate("x = 1").fields


@pytest.mark.parametrize(
    ("interpreter_name", "code", "error"),
    [
        ("asteval", "x = 1\n1 / 0", ("ZeroDivisionError", "division by zero", 2, 1)),
        ("python", "x = 1\n1 / 0", ("ZeroDivisionError", "division by zero", 2, 1)),
        ("asteval", "x = (", ("SyntaxError", "'(' was never closed", 1, 5)),
        ("asteval", "x = '\0'", ("SyntaxError", "source code string cannot contain null bytes", 0, 0)),
        ("python", "raise SystemExit(3)", ("SystemExit", "3", 1, 1)),
        ("python", "class E(Exception):\n    def __str__(self): 1 / 0\nraise E",
         ("E", "its __str__ failed", 3, 1)),
        ("python", "exec('x = (')", ("SyntaxError", "'(' was never closed", 1, 1)),
    ],
)  # fmt: skip
def test_an_error_is_returned_with_its_position(
    request: pytest.FixtureRequest, interpreter_name: str, code: str, error: tuple[object, ...]
) -> None:
    used = {"asteval": "host", "python": "python_host"}[interpreter_name]
    done = request.getfixturevalue(used).evaluate(code)
    error_fields = done.fields["error"]
    found = tuple(error_fields[key] for key in ("type", "message", "line", "column"))
    if found[2] == 1 and "null" in str(found[1]):  # newer Pythons report the position
        found = (*found[:2], 0, 0)
    assert found == error


def test_memory_exhaustion_is_reported_as_memory(python_host: Host) -> None:
    assert python_host.evaluate("raise MemoryError").fields["outcome"] == "memory"


def test_files_are_requested_from_the_host(host: Host) -> None:
    code = """
with open("a") as stream:
    lines = stream.readlines()
with open("b", "w") as stream:
    stream.write("one")
left_open = open("c", "a")
left_open.write("two")
write_text("d", "three")
print("four", file=open("e", "w"))
with open("f", "xb") as stream:
    stream.write(b"\\xff")
try:
    open("none")
except FileNotFoundError as error:
    lines.append(str(error))
lines, read_text("a")
"""
    done = host.evaluate(code)
    assert done.fields["value"]["json"] == [["x\n", "y\n", "no"], "x\r\ny\n"]
    kept = {"b": b"one", "c": b"two", "d": b"three", "e": b"four\n", "f": b"\xff"}
    assert {name: data for name, data in host.files.items() if name != "a"} == kept


FILES_IN_PYTHON = """
import asyncio, os, sys
from pathlib import Path
with os.scandir(".") as entries:
    found = [(e.name, e.path, e.is_dir(), e.is_file(), e.is_symlink(), e.inode(), repr(e),
              e.stat().st_size, os.fspath(e)) for e in entries]
next(os.scandir("/workspace")).is_junction()
os.mkdir("made")
with open("a", "r+b") as file:
    file.writelines([b"1", b"2"])
with open("new", "a+") as file:
    file.write("x")
    file.seek(0)
    found.append(file.read())
try:
    import not_there
except ModuleNotFoundError as error:
    found.append(error.name)
async def main():
    await asyncio.sleep(0.001)
    return os.listdir()
found.append(asyncio.run(main()))
found += [os.getcwd(), os.path.isdir("d"), Path("none").exists(), oct(os.stat("a").st_mode)]
try:
    asyncio.run(asyncio.Event().wait())
except RuntimeError as error:
    found.append(str(error))
print(found)
sys.exit()
"""


def test_functions_of_python_for_files_are_requests_to_the_host(python_host: Host) -> None:
    done = python_host.evaluate(FILES_IN_PYTHON)
    assert (done.fields["outcome"], "value" in done.fields) == ("value", False), done.fields
    assert ast.literal_eval(python_host.output["stdout"].decode()) == [
        ("a", "./a", False, True, False, 0, "<DirEntry 'a'>", 4, "./a"),
        ("d", "./d", True, False, False, 0, "<DirEntry 'd'>", 0, "./d"),
        "x", "not_there", ["a", "d"], "/workspace", True, False, "0o100755",
        "the event loop would wait forever: no task can continue",
    ]  # fmt: skip
    assert python_host.files == {"a": b"12\ny\n", "made": b"", "new": b"x"}


def test_probes_run_when_the_host_requests_them(
    interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Real probes would act on this process, which is not isolated.
    monkeypatch.setattr(probes, "_ATTEMPTS", {"nothing": lambda: ""})
    limit, state = sys.getrecursionlimit(), random.getstate()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Channel(ours.fileno()).send("probe")
        answer_host(Channel(theirs.fileno()), LAYERS, interpreter)
        channel = Channel(ours.fileno())
        assert channel.receive().kind == "ready"
        assert channel.receive().fields["probes"] == [["nothing", True, ""]]
    sys.setrecursionlimit(limit)
    random.setstate(state)


def test_a_channel_ends_when_its_host_is_gone() -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs, pytest.raises(EOFError):
        Channel(theirs.fileno()).receive()


# Probes


def was_stopped(make: Callable[[], str]) -> object:
    probes._ATTEMPTS, kept = {"it": make}, probes._ATTEMPTS
    try:
        (probe,) = probes.run_probes()
    finally:
        probes._ATTEMPTS = kept
    return probe.was_stopped


def raising(error: Exception) -> Callable[[], str]:
    def attempt() -> str:
        raise error

    return attempt


def test_only_permission_and_thread_errors_count_as_stopped() -> None:
    assert was_stopped(raising(PermissionError(1, "no")))
    assert was_stopped(raising(RuntimeError("can't start new thread")))
    assert not was_stopped(raising(FileNotFoundError(2, "no such file")))
    assert not was_stopped(lambda: "it was done")


ATTEMPTS_ALONE = """
import os, sys
from wink_workspace.sandbox.asteval.inside import python_probes as probes
os.chdir(sys.argv[1])
for name in ("run a program", "signal every process", "mount something", "create a user namespace"):
    del probes._ATTEMPTS[name]  # these would damage this machine, or end this process
print(*[probe.name for probe in probes.run_probes() if probe.was_stopped], sep="|")
"""


def test_probes_succeed_without_isolation(tmp_path: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ATTEMPTS_ALONE, str(tmp_path)],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    stopped = set(done.stdout.strip().split("|")) - {""}
    # Not allowed to an ordinary user, or forbidden by isolation around the tests
    excused = {"change its account", "trace the server", "read the server's memory",
               "create an I/O ring", "create a directory", "open a netlink socket",
               "create a Landlock ruleset", "open a UDP socket"}  # fmt: skip
    assert stopped <= excused


# The server in its own process, measured for coverage, with isolation that confines nothing


MEASURED = """
import json, sys
options = json.loads(sys.argv.pop())
sys.path[:0] = options.pop("paths")
sys.modules.update(numpy=None, numpy_financial=None)
from wink_workspace.sandbox.asteval.inside import fork_server as server
from wink_workspace.sandbox.isolation_report import Layer
class NoIsolation(server.Isolation):
    def confine_server(self):
        return (Layer("namespaces", is_active=False, detail="left out"),)
    def confine_child(self, **_):
        return tuple(Layer(name, is_active=True) for name in LAYERS)
from wink_workspace.sandbox.asteval.layers import LAYERS
server.Isolation = NoIsolation
server.main(**options)
"""


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    run = subprocess.Popen

    def popen(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        options["env"] = dict(os.environ)
        return run([word for word in command if word not in ("-I", "-S")], **options)

    monkeypatch.setattr(companion.subprocess, "Popen", popen)
    # Coverage needs a server without isolation that imports the package; no option provides it.
    monkeypatch.setattr(launching, "_START", MEASURED)
    monkeypatch.setattr(companion, "_END_TIMEOUT_S", 30.0)
    monkeypatch.setattr(launching, "_library_path", dict)
    from wink_workspace.sandbox.asteval import evaluator as host

    # The host refuses a server without isolation, so its checks are disabled.
    monkeypatch.setattr(host, "_check_holes", lambda report: None)
    monkeypatch.setattr(host.AstevalSandbox, "_probe", lambda self, server: self._report)
    monkeypatch.setattr(host.AstevalSandbox, "_check", lambda self, layers: None)


def test_a_server_serves_kills_overdue_children_and_ends_with_its_socket(measured: None) -> None:
    with opened("python", use_numpy=False, timeout_s=0.5, start_timeout_s=60.0) as sandbox:
        assert evaluate(sandbox, "6 * 7").value.json == 42
        assert evaluate(sandbox, "while True: pass").outcome is EndReason.DEADLINE
        assert evaluate(sandbox, "import os\nos._exit(3)").detail
        assert evaluate(sandbox, "1").value.json == 1


def test_preparing_isolation_reports_each_part_or_why_it_is_missing() -> None:
    assert isolation.Isolation.prepare()._own_bytes > 1_048_576
    for error, reason in (
        (OSError(1, "no"), "the kernel refuses"),
        (isolation._CannotError("so"), "so"),
    ):
        layer = isolation._attempt("a", isolation._prepared(raising(error)))
        assert not layer.is_active
        assert layer.detail.startswith(reason)
    assert not isolation._attempt("a", raising(isolation._CannotError("so"))).is_active
    assert isolation._attempt("a", raising(ValueError("x"))).detail == "ValueError: x"
    assert isolation._attempt("a", lambda: "fine") == Layer("a", is_active=True, detail="fine")


# Values and files


class Loud:
    def __repr__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    ("value", "text", "expected"),
    [
        (None, "None", None), (True, "True", True), (1.5, "1.5", 1.5), ("é", "'é'", "é"),
        ((1, (2,)), "(1, (2,))", [1, [2]]), ({"b": 1, "a": [2]}, "{'b': 1, 'a': [2]}", {"b": 1, "a": [2]}),
    ],
)  # fmt: skip
def test_a_json_value_is_transferred_as_json(value: object, text: str, expected: object) -> None:
    fields = as_fields(value, most_chars=100)
    assert json.loads(json.dumps(fields)) == {"repr": text, "n_missing": 0, "json": expected}


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), 2**5_000, {1: 2}, {1, 2}, b"x", object(), "\ud800", "x" * 101,
     {"\ud800": 1}, [[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]], list(range(1_000)), Loud()],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_other_values_are_transferred_as_bounded_text(value: object) -> None:
    fields = as_fields(value, most_chars=100)
    assert "json" not in fields
    assert len(fields["repr"].encode()) <= 700
    assert fields["repr"]


def test_truncation_is_counted_and_huge_values_are_not_formatted() -> None:
    assert bounded_repr("x" * 150, most_chars=100)[1] >= 50
    text, n_missing = bounded_repr([0] * 10**6, most_chars=100)
    assert (len(text), n_missing > 0) == (100, True)
    assert bounded_repr(Loud(), most_chars=100)[0] == "<Loud, whose repr raised ValueError>"
    with pytest.raises(MemoryError):
        bounded_repr(type("M", (), {"__repr__": raise_memory})(), most_chars=10)


def raise_memory(self: object) -> str:
    raise MemoryError


def asked(kind: str, fields: Mapping[str, object], body: bytes = b"") -> bytes:
    return b""


@pytest.mark.parametrize("mode", ["+", "rw", "wx", "q", "", "bb", "r++"])
def test_an_invalid_file_mode_is_refused(mode: str) -> None:
    with pytest.raises(ValueError, match="mode"):
        WorkspaceFiles(asked, write_bytes=9).open("a", mode)


@pytest.mark.parametrize("call", [lambda f: f.open(3), lambda f: f.read_text(None),
                                  lambda f: f.write_text("a", 3)])  # fmt: skip
def test_path_and_text_must_be_strings(call: Callable[[WorkspaceFiles], object]) -> None:
    with pytest.raises(TypeError, match=r"(is a text, )?not a"):
        call(WorkspaceFiles(asked, write_bytes=9))


def test_a_write_above_the_hosts_limit_is_not_sent() -> None:
    with pytest.raises(OSError, match="at most 9 at once"):
        WorkspaceFiles(asked, write_bytes=9).write_text("a", "x" * 10)


def test_a_stream_for_writing_sends_new_data_once() -> None:
    sent: list[tuple[object, bytes]] = []

    def ask(kind: str, fields: Mapping[str, object], body: bytes = b"") -> bytes:
        sent.append((fields["mode"], body))
        return b""

    files = WorkspaceFiles(ask, write_bytes=9)
    with files.open("a", "a") as stream:
        stream.write("one")
        stream.flush()
        stream.flush()
        stream.write("two")
    files.send_all()
    stream.close()
    assert sent == [("append", b""), ("append", b"one"), ("append", b"two")]
    assert not files.open("b", "wb").readable()


def test_a_refusal_raises_only_the_exceptions_that_are_allowed() -> None:
    assert isinstance(refusal({"error": "PermissionError", "message": "m"}), PermissionError)
    assert type(refusal({"error": "SystemExit", "message": "m"})) is OSError
    assert str(refusal({})) == "refused"


def test_a_channel_receives_the_frame_that_was_sent() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Channel(ours.fileno()).send("stdout", body=b"x" * 10)
        assert theirs.recv(100) == encode_frame("stdout", body=b"x" * 10)
        assert SIZES.size == 8
