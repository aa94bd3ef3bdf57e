"""Engines that fail or belong to another user, and containers that answer invalid data."""

from __future__ import annotations

import gc
import os
import signal
import socket
import socketserver
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxError, SandboxUnavailableError
from wink_workspace.sandbox import SandboxContext
from wink_workspace.sandbox.commands import proof
from wink_workspace.sandbox.commands.command_sandbox import _change_owner
from wink_workspace.sandbox.commands.live_container import LiveContainer, kill_first_process
from wink_workspace.sandbox.podman import PodmanConfig, PodmanSandbox, PodmanService
from wink_workspace.sandbox.podman.commands import runner_container
from wink_workspace.sandbox.podman.commands.runner_container import _end_container
from wink_workspace.sandbox.podman.engine import containers
from wink_workspace.sandbox.podman.engine.containers import (
    Container,
    Host,
    remove,
)
from wink_workspace.sandbox.podman.engine.service import EngineError, shared_service
from wink_workspace.sandbox.transport.stream import Ending

ROOT = Host(is_root=True, controllers=frozenset({"memory", "pids", "cpu"}))


class FakeEngine(socketserver.ThreadingUnixStreamServer):
    """Answers each request with the entry of ``answers`` for the last part of its path."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self.answers: dict[str, tuple[int, str]] = {}
        self.asked: list[str] = []
        super().__init__(str(path), _Answering)


class _Answering(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        request = self.rfile.readline().decode()
        length = 0
        while (line := self.rfile.readline()).strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        self.rfile.read(length)
        if not request:
            return
        method, path, _ = request.split(" ")
        key = path.split("?")[0].rpartition("/")[2]
        self.server.asked.append(f"{method} {key}")
        status, body = self.server.answers.get(key, (500, '{"message": "no answer"}'))
        if status:
            self.wfile.write(
                f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n"
                f"Connection: close\r\n\r\n{body}".encode()
            )


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A new directory with a short path, because paths of sockets are limited."""
    with tempfile.TemporaryDirectory(prefix="wink-") as folder:
        yield Path(folder)


@pytest.fixture
def engine(short_path: Path) -> Iterator[FakeEngine]:
    with FakeEngine(short_path / "engine.sock") as engine:
        serving = threading.Thread(target=engine.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield engine
        engine.shutdown()
        serving.join()


@pytest.fixture
def service(engine: FakeEngine) -> Iterator[PodmanService]:
    environment = Environment(variables={"CONTAINER_HOST": f"unix://{engine.server_address}"})
    with closing(PodmanService(environment)) as service:
        yield service


def created_container(engine: FakeEngine, service: PodmanService) -> Container:
    engine.answers["create"] = (201, '{"Id": "abc"}')
    return Container(service, {"name": "n", "image": "i"}, timeout_s=5)


def test_a_configured_engine_is_used_and_not_stopped(
    engine: FakeEngine, service: PodmanService
) -> None:
    assert not service.is_own
    created_container(engine, service)
    service.close()
    created_container(engine, service)
    assert engine.asked == ["POST create"] * 2


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"message": "no room"}', "no room"),
        ('{"cause": "why"}', "why"),
        ("[1]", "1"),
        ("", "no reason"),
    ],
)
def test_the_error_message_of_an_engine_is_reported(
    engine: FakeEngine, service: PodmanService, body: str, expected: str
) -> None:
    engine.answers["info"] = (500, body)
    with pytest.raises(EngineError, match=expected):
        service.request("GET", "/info")


@pytest.mark.parametrize(("most_bytes", "n_reads"), [(1, None), (7, None), (65_536, 2)])
def test_a_stream_begins_after_the_head_of_the_answer_which_is_read_at_once(
    engine: FakeEngine,
    service: PodmanService,
    monkeypatch: pytest.MonkeyPatch,
    most_bytes: int,
    n_reads: int | None,
) -> None:
    """Each read may wait for a thread that loads modules, so they are counted."""
    reads: list[int] = []

    class Counted(socket.socket):
        def recv(self, size: int, flags: int = 0) -> bytes:
            reads.append(size)
            return super().recv(min(size, most_bytes), flags)

    engine.answers["attach"] = (200, "of the stream")
    monkeypatch.setattr(socket, "socket", Counted)
    connection = service.hijack("/containers/abc/attach", timeout_s=5)
    monkeypatch.undo()
    with connection, connection.makefile("rb") as stream:
        assert n_reads in (None, len(reads))
        assert stream.read() == b"of the stream"


class InterruptingAnswers(dict[str, tuple[int, str]]):
    """Answers that send Ctrl-C to the main thread while the engine creates a container."""

    def __init__(self, engine: FakeEngine) -> None:
        self.engine, self.removed = engine, threading.Event()

    def get(self, key: str, default: object = None) -> tuple[int, str]:
        if key != "create":
            self.removed.set()
            return 200, ""
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        self.removed.wait(0.1)  # too early: the engine has not created it yet
        self.engine.asked.append("made")
        return 201, '{"Id": "abc"}'


def test_a_container_whose_creation_was_interrupted_is_removed_once_it_exists(
    engine: FakeEngine, service: PodmanService
) -> None:
    engine.answers = InterruptingAnswers(engine)
    with pytest.raises(KeyboardInterrupt):
        Container(service, {"name": "n", "image": "i"}, timeout_s=5)
    assert engine.asked == ["POST create", "made", "DELETE n"]


def test_an_interrupt_while_a_thread_starts_sends_no_request(
    engine: FakeEngine, service: PodmanService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No caller would wait for the end of such a request."""
    start, asked = threading.Thread.start, threading.Event()

    class RecordingAnswers(dict[str, tuple[int, str]]):
        def get(self, key: str, default: object = None) -> tuple[int, str]:
            asked.set()
            return 200, "{}"

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name.startswith("ThreadPoolExecutor"):
            asked.wait(0.2)
            raise KeyboardInterrupt

    engine.answers = RecordingAnswers()
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Container(service, {"name": "n", "image": "i"}, timeout_s=5)
    assert engine.asked == ["DELETE n"]


def test_an_engine_that_closes_the_connection_is_unavailable(
    engine: FakeEngine, service: PodmanService
) -> None:
    engine.answers.update(info=(0, ""), attach=(0, ""))
    with pytest.raises(SandboxUnavailableError, match="does not answer"):
        service.request("GET", "/info")
    with pytest.raises(SandboxUnavailableError, match="does not answer"):
        created_container(engine, service).attach()


def test_a_missing_engine_is_reported_and_leaves_no_connection_open(
    engine: FakeEngine, service: PodmanService, recwarn: pytest.WarningsRecorder
) -> None:
    gc.collect()
    recwarn.clear()  # drop warnings of other tests
    engine.shutdown()  # a socket that a thread waits on would stay open
    engine.socket.close()
    for _ in range(2):
        with pytest.raises(SandboxUnavailableError, match="does not answer"):
            service.request("GET", "/info")
        Path(str(engine.server_address)).unlink(missing_ok=True)
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []


def test_each_failing_step_of_a_container_is_reported_with_the_reason(
    engine: FakeEngine, service: PodmanService
) -> None:
    container = created_container(engine, service)
    for step in ("attach", "init", "abc", "json"):
        engine.answers[step] = (500, '{"message": "no room"}')
    with pytest.raises(SandboxUnavailableError, match=r"does not start: .*no room"):
        container.attach()
    with pytest.raises(SandboxUnavailableError, match=r"does not start: .*no room"):
        container.start()
    engine.answers["init"] = (200, "")
    engine.answers["json"] = (200, '{"State": {"Pid": 0}}')
    with pytest.raises(SandboxError, match="ended immediately"):
        container.start()
    engine.answers["json"] = (200, f'{{"State": {{"Pid": {os.getpid()}}}}}')
    with pytest.raises(SandboxUnavailableError, match="kernel objects cannot be limited"):
        container.start()


def test_a_failed_removal_is_reported_only_if_the_container_still_exists(
    engine: FakeEngine, service: PodmanService
) -> None:
    engine.answers.update(abc=(500, "{}"), exists=(404, "{}"))
    remove(service, "abc")
    engine.answers.update(exists=(204, ""))
    with pytest.raises(EngineError):
        remove(service, "abc")


def test_a_container_that_cannot_be_ended_is_logged_and_its_streams_closed(
    engine: FakeEngine, service: PodmanService, caplog: pytest.LogCaptureFixture
) -> None:
    engine.answers.update(abc=(500, "{}"), exists=(204, ""))
    ours, theirs = socket.socketpair()
    with theirs:
        _end_container(service, "abc", [ours], [], os.getpid(), None)
        assert theirs.recv(1) == b""
    assert "The container abc could not be removed" in caplog.text


def test_a_forked_child_does_not_end_containers(engine: FakeEngine, service: PodmanService) -> None:
    _end_container(service, "abc", [], [], os.getpid() + 1, None)
    assert engine.asked == []


def test_the_engine_of_another_user_is_refused(
    engine: FakeEngine, service: PodmanService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its containers would use other ids than the owner of our files."""
    (tmp_path / "files").mkdir()
    monkeypatch.setattr(PodmanService, "is_root", property(lambda _: os.geteuid() != 0))
    sandbox = PodmanSandbox(SandboxContext(files=tmp_path / "files"), service=service)
    with pytest.raises(SandboxUnavailableError, match="and this process does not"):
        assert sandbox.report
    assert engine.asked == []


def test_a_failed_chown_of_the_files_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(22, "Invalid argument")

    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "chown", refuse)
    with pytest.raises(SandboxUnavailableError, match="cannot be changed"):
        _change_owner(tmp_path, 2_100_001_000)


def test_one_service_is_shared_by_a_process(engine: FakeEngine) -> None:
    environment = Environment(variables={"CONTAINER_HOST": f"unix://{engine.server_address}"})
    first = shared_service(environment)
    assert shared_service(environment) is first
    first.close()


def test_a_container_that_has_ended_is_not_killed_again() -> None:
    kill_first_process(LiveContainer("n", 2**22 + 1, 1))
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        # Another process has its process id.
        kill_first_process(LiveContainer("n", other.pid, 1))
        assert other.communicate(b"still there")[0] == b"still there"


# Limits of the machine


@pytest.mark.parametrize(
    ("files", "is_root", "controllers"),
    [
        ({"cgroup.controllers": "cpu memory pids"}, True, {"cpu", "memory", "pids"}),
        ({"cgroup.controllers": "cpu memory pids"}, False, set()),
        ({"memory/x": "", "pids/x": ""}, True, {"memory", "pids"}),
        ({"memory/x": ""}, False, set()),
    ],
    ids=["unified", "unified, not delegated", "old", "old, rootless"],
)
def test_available_cgroup_controllers_are_read_from_the_system(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    service: PodmanService,
    files: dict[str, str],
    is_root: bool,
    controllers: set[str],
) -> None:
    for name, content in files.items():
        (tmp_path / "cg" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cg" / name).write_text(content)
    # The real folder is /sys/fs/cgroup.
    monkeypatch.setattr(containers, "_CGROUPS", tmp_path / "cg")
    monkeypatch.setattr(PodmanService, "is_root", property(lambda _: is_root))
    assert Host.of(service).controllers == controllers


def test_controllers_delegated_to_a_user_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: PodmanService
) -> None:
    user = os.geteuid()
    own = tmp_path / f"user.slice/user-{user}.slice/user@{user}.service"
    own.mkdir(parents=True)
    (own / "cgroup.controllers").write_text("memory pids")
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    # The real folder is /sys/fs/cgroup.
    monkeypatch.setattr(containers, "_CGROUPS", tmp_path)
    monkeypatch.setattr(PodmanService, "is_root", property(lambda _: False))
    assert Host.of(service).controllers == {"memory", "pids"}


def test_a_configured_runtime_is_requested_from_the_engine() -> None:
    spec = containers.container_spec(
        PodmanConfig(runtime="runsc"), host=ROOT, name="n", workspace=Path("/w"), command=("a",)
    )
    assert spec["oci_runtime"] == "runsc"


# Output of a container


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "not JSON lines",
        "[1, 2]\n{}\n[]",
        '["mount", "yes", ""]',
        '["mount", false, "it was allowed"]',
    ],
)
def test_an_incomplete_proof_reports_holes(printed: str) -> None:
    report = proof.prove(lambda *_: printed, (), bound=())
    assert "mount" in {hole.name for hole in report.holes}
    assert len(report.holes) >= 19


@pytest.mark.parametrize(
    ("ending", "errors", "expected"),
    [
        (Ending(signal=9), b"", "was killed by signal 9"),
        (Ending(signal=9, timed_out=True), b"", "printed nothing for 60 seconds"),
        (
            Ending(exit_code=1),
            b"Trace\nMemoryError\n",
            "ended with exit code 1, with the error 'MemoryError'",
        ),
    ],
)
def test_a_proof_that_did_not_begin_reports_how_it_ended(
    ending: Ending, errors: bytes, expected: str
) -> None:
    assert proof.not_probed(ending, errors, 60.0).message.endswith(expected)


def test_a_changed_secret_is_a_hole() -> None:
    def run(_: str, variables: object) -> str:
        Path(variables["WINK_CANARY"]).write_text("changed")
        return ""

    holes = {hole.name: hole.detail for hole in proof.prove(run, (), bound=()).holes}
    assert holes["reach the canaries of the host"] == "reached: secret"


def test_layers_report_limits_that_the_machine_lacks() -> None:
    bare = replace(ROOT, is_root=False, controllers=frozenset())
    missing = {
        layer.name: layer.detail
        for layer in runner_container.layers(PodmanConfig(), bare)
        if not layer.is_active
    }
    assert set(missing) == {"memory limit", "process limit", "processor limit", "disk quota"}
    assert "memory" in missing["memory limit"]
