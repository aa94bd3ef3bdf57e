"""Escape attempts against a sandbox, and what must stay unchanged; test modules import the tests.

A module has the fixture ``target``.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from escapes import ATTEMPTS, Attempt
from sandbox.podman.podman_machine import children_of
from support import tool
from workspace.workspace_rig import assert_same, calls, picture

from wink_workspace.errors import SandboxBrokenError
from wink_workspace.sandbox import ExecRequest, ExecResult
from wink_workspace.sandbox.commands.command_config import CommandConfig
from wink_workspace.workspace import Workspace, WorkspaceMode, WorkspaceStorage

MIB = 1_048_576
SMALL = {
    "memory_bytes": 192 * MIB,
    "n_processes": 64,
    "tmp_bytes": 16 * MIB,
    "file_bytes": 64 * MIB,
    "workspace_bytes": 128 * MIB,
    "workspace_entries": 20_000,
    "most_output_bytes": 4 * MIB,
    "cpus": 1.0,
}


class Target:
    """A workspace with a sandbox, and things on the host that must stay unchanged."""

    def __init__(
        self,
        folder: Path,
        config: CommandConfig,
        mode: WorkspaceMode,
        stack: ExitStack,
        *,
        server: str,
        engine: Path,
    ) -> None:
        self.config = config
        self.outside = folder / "outside"
        self.outside.mkdir()
        self.secret = self.outside / "secret"
        self.secret.write_text("not readable inside")
        storage = WorkspaceStorage(folder / "state")
        self.workspace = stack.enter_context(
            Workspace.create(_source(folder), storage=storage, mode=mode)
        )
        # On an overlay, only the open workspace has the files.
        self.files = self.workspace._opened.tree.root
        self.bystander = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
            )
        )
        self.datagrams = stack.enter_context(closing(_listener(socket.AF_INET, ("127.0.0.1", 0))))
        name = f"wink-tests-{os.getpid()}"
        stack.enter_context(closing(_listener(socket.AF_UNIX, f"\0{name}")))
        self.variables = {
            "SECRET": str(self.secret),
            "SERVER": server,
            "ABSTRACT": name,
            "ENGINE": str(engine),
            "HOST_PROCESS": str(self.bystander.pid),
            "UDP": str(self.datagrams.getsockname()[1]),
        }
        self.call = stack.enter_context(calls(self.workspace, tool(self._try, name="attempt")))
        self.attempt: Attempt
        self.result: ExecResult | SandboxBrokenError | None = None

    def _try(self, params: object, *, context: object) -> object:
        """Make the attempt in a call that always fails, so that its files are rolled back."""
        request = ExecRequest(
            argv=("python3", "-c", self.attempt.program),
            env=self.variables,
            timeout_s=self.attempt.timeout_s,
        )
        try:
            self.result = self.workspace.sandbox(self.config).run(request)
        except SandboxBrokenError as error:
            self.result = error
        raise RuntimeError("to be rolled back")

    @property
    def bounds_memory(self) -> bool:
        layers = self.workspace.sandbox(self.config).report.layers
        return next(layer.is_active for layer in layers if layer.name == "memory limit")

    def make(self, attempt: Attempt) -> ExecResult | SandboxBrokenError:
        self.attempt, self.result = attempt, None
        outcome = self.call("attempt")
        assert self.result is not None, outcome
        return self.result

    def processes(self) -> list[int]:
        """Return the container's processes, without its first one and the spare one."""
        note = self.workspace._folder.sandbox / "container.json"
        first = re.search(r'"pid": (\d+)', note.read_text()) if note.exists() else None
        if first is None:
            return []
        children = children_of(int(first[1]))
        spare = [pid for pid in children if _program(pid) == _program(int(first[1]))]
        assert len(spare) <= 1
        return [pid for pid in children if pid not in spare]


def _program(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _source(folder: Path) -> Path:
    source = folder / "source"
    (source / "src").mkdir(parents=True)
    (source / "src" / "app.py").write_text("print('hello')\n")
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)
    (source / "ignored.log").write_text("x\n")
    (source / ".gitignore").write_text("*.log\n")
    subprocess.run(["git", "init", "-q", source], check=True)
    return source


def _listener(family: int, address: object) -> socket.socket:
    listener = socket.socket(
        family, socket.SOCK_DGRAM if family == socket.AF_INET else socket.SOCK_STREAM
    )
    listener.bind(address)
    if family == socket.AF_UNIX:
        listener.listen()
    listener.setblocking(False)
    return listener


@pytest.mark.behaviour(60, 61, 64)
@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS.keys())
def test_an_escape_attempt_fails_and_leaves_no_trace(attempt: Attempt, target: Target) -> None:
    assert_escape_fails(attempt, target)


def assert_escape_fails(attempt: Attempt, target: Target) -> None:
    if attempt.fills_memory and not target.bounds_memory:
        pytest.skip("no cgroup for memory here: the time limit alone ends it")
    files, outside = picture(target.files), picture(target.outside)

    result = target.make(attempt)

    assert_stopped(attempt, result)
    assert target.processes() == []
    assert_same(files, picture(target.files))
    assert target.workspace.diff() == ""
    assert_same(outside, picture(target.outside))
    assert target.bystander.poll() is None
    with pytest.raises(BlockingIOError):
        target.datagrams.recv(1)


def assert_stopped(attempt: Attempt, result: ExecResult | SandboxBrokenError) -> None:
    if isinstance(result, SandboxBrokenError):
        assert "broken" in attempt.ends, result
        return
    output = (result.stdout.head + result.stdout.tail).decode(errors="replace")
    errors = (result.stderr.head + result.stderr.tail).decode(errors="replace")[-2_000:]
    details = f"{result.exit_code=} {result.signal=} {result.stopped=} {result.timed_out=} {output[-2_000:]} {errors}"
    assert "ESCAPED" not in output + errors, details
    if result.timed_out:
        assert "timed out" in attempt.ends, details
    elif result.stopped:
        assert "stopped" in attempt.ends, details
    elif result.signal:
        assert "killed" in attempt.ends, details
    else:
        assert "refused" in attempt.ends, details
        assert re.search(rf"STOPPED ({attempt.by})\b", output), details


def test_permitted_actions_work_inside(target: Target) -> None:
    """Refused attempts prove something only if permitted actions work."""
    works = """
        write("made", b"x", os.O_WRONLY | os.O_CREAT)
        assert read("made") == b"x" and os.getuid() == 1000
        with socket.create_server(("127.0.0.1", 0)) as server:
            connect(socket.AF_INET, server.getsockname())
        child = os.fork() or os._exit(0)
        os.waitpid(child, 0)
        import threading
        threads = [threading.Thread(target=time.sleep, args=(0.01,)) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        subprocess.run(["git", "init", "/tmp/repository"], check=True, capture_output=True)
        raise Stopped("nothing")
    """
    assert_stopped(Attempt("work", works, by="Stopped"), target.make(Attempt("work", works)))
