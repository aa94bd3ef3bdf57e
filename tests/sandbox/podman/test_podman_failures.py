"""An engine that fails, or is somebody else's, and a container that answers nonsense."""

from __future__ import annotations

import gc
import os
import re
import signal
import socket
import socketserver
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from wink_workspace.clock import SYSTEM_CLOCK
from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxBrokenError, SandboxError, SandboxUnavailableError
from wink_workspace.sandbox import SandboxContext
from wink_workspace.sandbox.podman import (
    PodmanConfig,
    PodmanSandbox,
    PodmanService,
    containers,
    proof,
)
from wink_workspace.sandbox.podman import direct as direct_module
from wink_workspace.sandbox.podman import service as service_module
from wink_workspace.sandbox.podman.containers import Container, Host, LiveContainer, remove
from wink_workspace.sandbox.podman.sandbox import _change_owner, _end_container, _not_probed
from wink_workspace.sandbox.podman.service import EngineError, shared_service
from wink_workspace.sandbox.podman.stream import Ending, Limits

ROOT = Host(is_root=True, controllers=frozenset({"memory", "pids", "cpu"}))


class Engine(socketserver.ThreadingUnixStreamServer):
    """Answers every request as ``answers`` says: by the last part of its path."""

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
    """A new directory whose path leaves room for the names of sockets, which are bounded."""
    with tempfile.TemporaryDirectory(prefix="wink-") as folder:
        yield Path(folder)


@pytest.fixture
def engine(short_path: Path) -> Iterator[Engine]:
    with Engine(short_path / "engine.sock") as engine:
        serving = threading.Thread(target=engine.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield engine
        engine.shutdown()
        serving.join()


@pytest.fixture
def service(engine: Engine) -> Iterator[PodmanService]:
    environment = Environment(variables={"CONTAINER_HOST": f"unix://{engine.server_address}"})
    with closing(PodmanService(environment)) as service:
        yield service


def made(engine: Engine, service: PodmanService) -> Container:
    engine.answers["create"] = (201, '{"Id": "abc"}')
    return Container(service, {"name": "n", "image": "i"}, timeout_s=5)


def test_an_engine_that_was_named_is_used_and_not_stopped(
    engine: Engine, service: PodmanService
) -> None:
    assert not service.is_own
    made(engine, service)
    service.close()
    made(engine, service)
    assert engine.asked == ["POST create"] * 2


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"message": "no room"}', "no room"),
        ('{"cause": "why"}', "why"),
        ("[1]", "1"),
        ("", "no reason"),
    ],
)
def test_what_an_engine_says_of_its_refusal_is_told(
    engine: Engine, service: PodmanService, body: str, said: str
) -> None:
    engine.answers["info"] = (500, body)
    with pytest.raises(EngineError, match=said):
        service.request("GET", "/info")


class Strikes(dict[str, tuple[int, str]]):
    """Answers of an engine to which Ctrl-C comes while it makes a container."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.removed = engine, threading.Event()

    def get(self, key: str, default: object = None) -> tuple[int, str]:
        if key != "create":
            self.removed.set()
            return 200, ""
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        self.removed.wait(0.1)  # too early for the engine, which knows of none yet
        self.engine.asked.append("made")
        return 201, '{"Id": "abc"}'


def test_what_the_engine_is_making_when_it_is_interrupted_is_removed_once_it_is_there(
    engine: Engine, service: PodmanService
) -> None:
    engine.answers = Strikes(engine)
    with pytest.raises(KeyboardInterrupt):
        Container(service, {"name": "n", "image": "i"}, timeout_s=5)
    assert engine.asked == ["POST create", "made", "DELETE n"]


def test_nothing_is_asked_for_by_a_thread_in_whose_start_we_are_interrupted(
    engine: Engine, service: PodmanService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would wait for its end."""
    start, asked = threading.Thread.start, threading.Event()

    class Watched(dict[str, tuple[int, str]]):
        def get(self, key: str, default: object = None) -> tuple[int, str]:
            asked.set()
            return 200, "{}"

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name.startswith("ThreadPoolExecutor"):
            asked.wait(0.2)
            raise KeyboardInterrupt

    engine.answers = Watched()
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Container(service, {"name": "n", "image": "i"}, timeout_s=5)
    assert engine.asked == ["DELETE n"]


def test_an_engine_that_hangs_up_is_no_engine(engine: Engine, service: PodmanService) -> None:
    engine.answers.update(info=(0, ""), attach=(0, ""))
    with pytest.raises(SandboxUnavailableError, match="does not answer"):
        service.request("GET", "/info")
    with pytest.raises(SandboxUnavailableError, match="does not answer"):
        made(engine, service).attach()


def test_an_engine_that_is_gone_is_told_and_leaves_no_connection_open(
    engine: Engine, service: PodmanService, recwarn: pytest.WarningsRecorder
) -> None:
    gc.collect()
    recwarn.clear()  # of what others left
    engine.shutdown()  # as what is waited on stays open
    engine.socket.close()
    for _ in range(2):
        with pytest.raises(SandboxUnavailableError, match="does not answer"):
            service.request("GET", "/info")
        Path(str(engine.server_address)).unlink(missing_ok=True)
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []


def test_each_step_of_a_container_tells_why_it_cannot_be(
    engine: Engine, service: PodmanService
) -> None:
    container = made(engine, service)
    for step in ("attach", "init", "wait", "abc", "json"):
        engine.answers[step] = (500, '{"message": "no room"}')
    with pytest.raises(SandboxUnavailableError, match=r"does not start: .*no room"):
        container.attach()
    with pytest.raises(SandboxUnavailableError, match=r"does not start: .*no room"):
        container.start()
    with pytest.raises(SandboxError, match=r"lost: .*no room"):
        container.exit_code()
    engine.answers["init"] = (200, "")
    engine.answers["json"] = (200, '{"State": {"Pid": 0}}')
    with pytest.raises(SandboxError, match="ended immediately"):
        container.start()
    engine.answers["json"] = (200, f'{{"State": {{"Pid": {os.getpid()}}}}}')
    with pytest.raises(SandboxUnavailableError, match="kernel objects cannot be limited"):
        container.start()


def test_a_removal_that_fails_is_told_only_if_the_container_is_still_there(
    engine: Engine, service: PodmanService
) -> None:
    engine.answers.update(abc=(500, "{}"), exists=(404, "{}"))
    remove(service, "abc")
    engine.answers.update(exists=(204, ""))
    with pytest.raises(EngineError):
        remove(service, "abc")


def test_what_cannot_be_ended_is_logged_and_its_streams_are_closed(
    engine: Engine, service: PodmanService, caplog: pytest.LogCaptureFixture
) -> None:
    engine.answers.update(abc=(500, "{}"), exists=(204, ""))
    ours, theirs = socket.socketpair()
    with theirs:
        _end_container(service, "abc", [ours], None, os.getpid())
        assert theirs.recv(1) == b""
    assert "The container abc could not be removed" in caplog.text


def test_a_forked_child_ends_nothing(engine: Engine, service: PodmanService) -> None:
    _end_container(service, "abc", [], None, os.getpid() + 1)
    assert engine.asked == []


def test_the_engine_of_somebody_else_is_refused(
    engine: Engine, service: PodmanService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its containers would have ids that are not those of our files."""
    (tmp_path / "files").mkdir()
    monkeypatch.setattr(PodmanService, "is_root", property(lambda _: os.geteuid() != 0))
    sandbox = PodmanSandbox(SandboxContext(files=tmp_path / "files"), service=service)
    with pytest.raises(SandboxUnavailableError, match="and this process does not"):
        assert sandbox.report
    assert engine.asked == []


def test_files_that_cannot_be_given_away_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(22, "Invalid argument")

    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "chown", refuse)
    with pytest.raises(SandboxUnavailableError, match="cannot be changed"):
        _change_owner(tmp_path, 2_100_001_000)


def test_one_service_serves_all_of_a_process(engine: Engine) -> None:
    environment = Environment(variables={"CONTAINER_HOST": f"unix://{engine.server_address}"})
    first = shared_service(environment)
    assert shared_service(environment) is first
    first.close()


def test_a_container_that_has_ended_is_not_killed_again() -> None:
    containers.kill_first_process(LiveContainer("n", 2**22 + 1, 1))
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        containers.kill_first_process(LiveContainer("n", other.pid, 1))  # it has its number
        assert other.communicate(b"still there")[0] == b"still there"


# What the machine can do


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
def test_what_can_be_limited_is_read_from_the_system(
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
    # The folder is the kernel's, below /sys/fs/cgroup.
    monkeypatch.setattr(containers, "_CGROUPS", tmp_path / "cg")
    monkeypatch.setattr(PodmanService, "is_root", property(lambda _: is_root))
    assert Host.of(service).controllers == controllers


def test_what_is_delegated_to_a_user_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: PodmanService
) -> None:
    user = os.geteuid()
    own = tmp_path / f"user.slice/user-{user}.slice/user@{user}.service"
    own.mkdir(parents=True)
    (own / "cgroup.controllers").write_text("memory pids")
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    # The folder is the kernel's, below /sys/fs/cgroup.
    monkeypatch.setattr(containers, "_CGROUPS", tmp_path)
    monkeypatch.setattr(PodmanService, "is_root", property(lambda _: False))
    assert Host.of(service).controllers == {"memory", "pids"}


def test_a_runtime_that_was_asked_for_is_asked_for() -> None:
    spec = containers.container_spec(
        PodmanConfig(runtime="runsc"), host=ROOT, name="n", workspace=Path("/w"), command=("a",)
    )
    assert spec["oci_runtime"] == "runsc"


# What a container says


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "no lines of JSON",
        "[1, 2]\n{}\n[]",
        '["mount", "yes", ""]',
        '["mount", false, "it was allowed"]',
    ],
)
def test_a_proof_that_is_not_complete_is_none(printed: str) -> None:
    report = proof.prove(lambda *_: printed, PodmanConfig(), ROOT)
    assert "mount" in {hole.name for hole in report.holes}
    assert len(report.holes) >= 19


@pytest.mark.parametrize(
    ("ending", "errors", "told"),
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
def test_a_proof_that_did_not_begin_says_how_it_ended(
    ending: Ending, errors: bytes, told: str
) -> None:
    assert _not_probed(ending, errors).message.endswith(told)


def test_a_secret_that_was_changed_is_a_hole() -> None:
    def run(_: str, variables: object) -> str:
        Path(variables["WINK_CANARY"]).write_text("changed")
        return ""

    holes = {hole.name: hole.detail for hole in proof.prove(run, PodmanConfig(), ROOT).holes}
    assert holes["reach the canaries of the host"] == "reached: secret"


def test_each_proof_makes_a_file_whose_name_nobody_knew_before() -> None:
    names: list[str] = []

    def run(_: str, variables: Mapping[str, str]) -> str:
        names.append(variables["WINK_NEW_NAME"])
        return ""

    for in_shell in (False, True):
        proof.prove(run, PodmanConfig(), ROOT, in_shell=in_shell)
    assert len(set(names)) == 2
    assert all(re.fullmatch(r"\.wink-probe-[0-9a-f]{16}", name) for name in names)


def test_layers_say_which_limits_the_machine_does_not_have() -> None:
    bare = replace(ROOT, is_root=False, controllers=frozenset())
    missing = {
        layer.name: layer.detail
        for layer in proof.layers(PodmanConfig(), bare)
        if not layer.is_active
    }
    assert set(missing) == {"memory limit", "process limit", "processor limit", "disk quota"}
    assert "memory" in missing["memory limit"]


def follow(said: bytes, *, stdin: bytes = b"", limits: Limits | None = None) -> Ending | None:
    """What a command in a container of its own comes to whose stream holds *said*."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(said)
        theirs.shutdown(socket.SHUT_WR)
        following = direct_module._Streams(ours, stdin, lambda *_: None, SYSTEM_CLOCK)
        return following.run(limits or Limits(20))


def test_a_stream_that_is_none_of_an_engine_breaks_the_command() -> None:
    assert follow(struct.pack("!BxxxI", 1, 2) + b"ok") is None
    with pytest.raises(SandboxBrokenError):
        follow(b"\xff" * 100)


def test_a_command_of_its_own_container_is_stopped_by_its_watch() -> None:
    limits = Limits(20, watch=lambda: "the disk is full")
    assert follow(b"", limits=limits) == Ending(signal=9, stopped="the disk is full")


def test_names_of_the_package_are_loaded_when_they_are_asked_for() -> None:
    import wink_workspace.sandbox.podman as package

    assert "PodmanSandbox" in dir(package)
    assert package.PodmanService is service_module.PodmanService
    with pytest.raises(AttributeError, match="nothing"):
        assert package.nothing


def test_folders_of_services_whose_owners_are_dead_are_removed(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module.tempfile, "gettempdir", lambda: str(short_path))
    dead, answers, alive = (
        short_path / f"wink-workspace-podman-{name}"
        for name in (f"{2**22 + 1}-a", f"{2**22 + 2}-b", f"{os.getpid()}-c")
    )
    for folder in (dead, answers, alive):
        folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(answers / "podman.sock"))
        listener.listen()
        service_module._sweep_folders()
    assert not dead.exists()
    assert answers.exists(), "its owner is in another namespace"
    assert alive.exists()
