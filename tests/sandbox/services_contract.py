"""What the services of every sandbox do: its test modules import these tests.

A module has the fixtures ``backend``, the configuration of its sandbox, and ``running``, the names
of the sandboxes of a process without those that wait for a workspace.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sandbox.podman.podman_machine import children_of

from wink_workspace import Prompt, Workspace, WorkspaceStorage
from wink_workspace.clock import Cancellation
from wink_workspace.environment import Environment
from wink_workspace.errors import CallCancelledError, PatternError, ServiceError, UsageError
from wink_workspace.filesystem.overlay.mounting import overlay_support
from wink_workspace.ledger import EntryKind
from wink_workspace.runtime import CallOutcome, ToolCall
from wink_workspace.sandbox import SANDBOXES, ExecRequest, ServiceConfig, ServiceStatus
from wink_workspace.sandbox.commands import freezer as freezing
from wink_workspace.sandbox.commands import running_services
from wink_workspace.sandbox.commands.command_config import CommandConfig
from wink_workspace.sandbox.commands.command_sandbox import CommandSandbox
from wink_workspace.sandbox.commands.running_services import RunningServices
from wink_workspace.workspace import ImportConfig, WorkspaceConfig, WorkspaceMode

Running = Callable[[int], set[str]]

SERVER = "python3 -m http.server 8000"
GET = "python3 -c \"import urllib.request as u; print(u.urlopen('http://localhost:{}').read())\""
ECHO = """
import os, socket, sys
family, host = (socket.AF_INET6, "::1") if sys.argv[2:] else (socket.AF_INET, "127.0.0.1")
with socket.socket(family) as server:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((host, int(sys.argv[1])))
    server.listen(400)
    while True:
        client, _ = server.accept()
        if os.fork() == 0:
            while data := client.recv(65536):
                client.sendall(data.upper())
            client.shutdown(socket.SHUT_WR)
            os._exit(0)
        client.close()
"""
CONFIG = WorkspaceConfig(imported=ImportConfig(derived=("/build", "/var")))
INSTALL = "mkdir node_modules; head -c 2M /dev/zero > node_modules/big"
WATCHDOG_S = 60
MAIN = "from wink_workspace.cli import main; raise SystemExit(main())"


@pytest.fixture(scope="module")
def opened(
    tmp_path_factory: pytest.TempPathFactory, environment: Environment, backend: CommandConfig
) -> Iterator[Callable[[WorkspaceMode], Workspace]]:
    """Open the workspace of each mode that this module's tests share."""
    folder = tmp_path_factory.mktemp("services")
    source = folder / "source"
    source.mkdir()
    (source / "index.html").write_text("<p>main</p>")
    (source / "echo.py").write_text(ECHO)
    storage = WorkspaceStorage(folder / "state")
    known: dict[str, Workspace] = {}

    def get(mode: WorkspaceMode) -> Workspace:
        if mode == "overlay" and not overlay_support(folder).available:
            mode = "copy"
        if mode not in known:
            known[mode] = Workspace.create(source, storage=storage, mode=mode, config=CONFIG)
            known[mode].sandbox(backend)
        return known[mode]

    yield get
    for workspace in known.values():
        workspace.close()


@pytest.fixture
def mode() -> WorkspaceMode:
    return "overlay"


IN_BOTH_MODES = pytest.mark.parametrize("mode", ["overlay", "copy"])


@pytest.fixture
def workspace(
    opened: Callable[[WorkspaceMode], Workspace], mode: WorkspaceMode
) -> Iterator[Workspace]:
    """A workspace without services, shared by all tests of its mode."""
    workspace = opened(mode)
    yield workspace
    services = services_of(workspace)
    for status in services.listed():
        services.stop(status.config.name)


def sandbox_of(workspace: Workspace) -> CommandSandbox:
    sandbox = workspace.sandbox()
    assert isinstance(sandbox, CommandSandbox)
    return sandbox


def services_of(workspace: Workspace) -> RunningServices:
    services = workspace.sandbox().services
    assert isinstance(services, RunningServices)
    return services


def shell(workspace: Workspace, command: str) -> str:
    result = workspace.sandbox().run(ExecRequest(argv=("/bin/sh", "-c", command)))
    return (result.stdout.head + result.stderr.head).decode()


def call(workspace: Workspace, tool: str, **arguments: Any) -> CallOutcome:
    config = sandbox_of(workspace).config
    section = SANDBOXES.of_config(config).section(config)
    prompt = Prompt[None](ns="t", key="p", sections=[section])
    return workspace.execute(prompt, ToolCall.of(tool, arguments, id=os.urandom(8).hex()))


def started(workspace: Workspace, name: str, command: str, **options: Any) -> ServiceStatus:
    return services_of(workspace).start(ServiceConfig(name=name, command=command, **options))


def shown_log(workspace: Workspace, name: str, text: str) -> str:
    """Return what the model sees of a service's output, when *text* has arrived."""
    service = services_of(workspace)._services[name]
    for _ in range(WATCHDOG_S * 50):
        shown = call(workspace, "service_logs", name=name).text
        if text in shown:
            return shown
        service.wait(0.02)
    raise AssertionError(shown)


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=WATCHDOG_S) as answer:
        return answer.read()


# A development server


@pytest.mark.behaviour(95)
@pytest.mark.share(1)
@IN_BOTH_MODES
def test_a_server_is_started_queried_opened_read_and_gone_at_the_end(
    workspace: Workspace, running: Running
) -> None:
    shell(workspace, "true")
    before = running(os.getpid())
    outcome = call(workspace, "start_service", name="web", command=SERVER, ready="port 8000")
    assert outcome.result.success, outcome.text
    assert "web: running on http://127.0.0.1:8000" in outcome.text
    for _ in range(2):  # later calls, also after one that was rolled back
        queried = call(workspace, "shell_execute", command=GET.format("8000/index.html"))
        assert "<p>main</p>" in queried.text, queried.text
        assert not call(workspace, "shell_execute", command="sleep 9", timeout_s=0.1).result.success
    address = services_of(workspace).expose("web")
    assert address.host.startswith("127.")
    assert not address.host.startswith("127.0.")
    assert services_of(workspace).expose("web") == address
    assert fetched(f"{address.url}index.html") == b"<p>main</p>"
    shown_log(workspace, "web", "GET /index.html")
    assert call(workspace, "service_logs").text.endswith("web: running on http://127.0.0.1:8000")
    assert "web: stopped" in call(workspace, "stop_service", name="web").text
    assert "Connection refused" in call(workspace, "shell_execute", command=GET.format(8000)).text
    with pytest.raises(urllib.error.URLError, match="refused"):
        fetched(address.url)
    assert call(workspace, "service_logs").text.endswith("There is no service.")
    assert running(os.getpid()) == before


def test_a_command_in_the_background_is_a_service(workspace: Workspace) -> None:
    outcome = call(
        workspace, "shell_execute", command="echo $X; sleep 1000", background=True, env={"X": "y"}
    )
    assert "background, as the service background-1" in outcome.text
    assert shown_log(workspace, "background-1", "\n\ny").endswith("background-1: running\n\ny")
    again = call(workspace, "shell_execute", command="exit 3", background=True)
    assert not again.result.success
    assert "ended with exit code 3 before it was ready" in again.text
    for options in ({"tty": True}, {"stdin": "x"}, {"timeout_s": 1}):
        refused = call(workspace, "shell_execute", command="ls", background=True, **options)
        assert "no terminal, input or time limit" in refused.text


def test_known_services_start_by_their_name_alone(workspace: Workspace) -> None:
    started(workspace, "known", "sleep 1000", port=8123)
    services_of(workspace).stop("known")
    assert "8123" in call(workspace, "start_service", name="known").text
    unknown = call(workspace, "start_service", name="unknown")
    assert "no service 'unknown' is known. Pass its command." in unknown.text


def test_services_reach_one_another_and_also_on_ipv6(workspace: Workspace) -> None:
    started(workspace, "six", "exec python3 echo.py 8001 six", ready="port 8001")
    send = (
        "python3 -c \"import socket; s = socket.create_connection(('127.0.0.1', 8001));"
        " s.sendall(b'abc'); s.shutdown(1); print(s.makefile().read())\""
    )
    assert shell(workspace, send) == "ABC\n"
    started(workspace, "client", f"{send}; echo asked; sleep 1000", ready="^asked")
    assert services_of(workspace).log("client").output == b"ABC\nasked\n"


def test_the_services_are_reached_from_a_new_runner_of_the_commands(
    workspace: Workspace,
) -> None:
    started(workspace, "web", SERVER, ready="port 8000")
    address = services_of(workspace).expose("web")
    sandbox_of(workspace)._end()
    assert "<p>main</p>" in shell(workspace, GET.format("8000/index.html"))
    os.kill(services_of(workspace)._relay.pid or 0, signal.SIGKILL)
    program = services_of(workspace)._relay._running
    assert program is not None
    program._process.wait(WATCHDOG_S)
    assert "<p>main</p>" in shell(workspace, GET.format("8000/index.html"))
    assert services_of(workspace).expose("web") == address
    assert fetched(address.url)


# What carries the connections


def test_connections_carry_all_bytes_in_both_directions_to_their_end(workspace: Workspace) -> None:
    started(workspace, "echo", "exec python3 echo.py 8002", ready="port 8002")
    address = services_of(workspace).expose("echo")
    data = os.urandom(3_000_000).hex().encode()
    received: list[bytes] = []
    with socket.create_connection((address.host, address.port), WATCHDOG_S) as end:

        def read() -> None:
            while piece := end.recv(1_000_000):
                received.append(piece)

        reader = threading.Thread(target=read)
        reader.start()
        end.sendall(data)
        end.shutdown(socket.SHUT_WR)
        reader.join(WATCHDOG_S)
    assert b"".join(received) == data.upper()


def test_more_connections_than_allowed_are_closed_and_others_go_on(workspace: Workspace) -> None:
    started(
        workspace,
        "held",
        "exec python3 -c \"import socket; s = socket.create_server(('127.0.0.1', 8003), backlog=400);"
        " print('on', flush=True); held = [s.accept() for _ in range(500)]\"",
        ready="^on",
        port=8003,
    )
    address = services_of(workspace).expose("held")
    ends = [socket.create_connection((address.host, address.port), WATCHDOG_S) for _ in range(257)]
    try:
        ends[-1].settimeout(WATCHDOG_S)
        assert ends[-1].recv(1) == b""
        ends[0].settimeout(0.05)
        with pytest.raises(TimeoutError):
            ends[0].recv(1)
    finally:
        for end in ends:
            end.close()


def test_a_port_of_the_host_is_free_or_refused(workspace: Workspace) -> None:
    started(workspace, "web", SERVER, ready="port 8000")
    services = services_of(workspace)
    other = services.expose("web", port=8_765)
    assert other.port == 8_765
    with closing(socket.create_server((other.host, 8_766))):
        moved = services.expose("web", port=8_766)  # its usual address is taken
        assert moved.port == 8_766
        assert moved.host != other.host
        assert fetched(moved.url)
    with pytest.raises(urllib.error.URLError, match="refused"):
        fetched(other.url)  # an address is closed when another one replaces it
    started(workspace, "quiet", "sleep 1000")
    with pytest.raises(UsageError, match="the service quiet has no port"):
        services.expose("quiet")


# Isolation


@pytest.mark.behaviour(95)
@IN_BOTH_MODES
def test_a_service_changes_nothing_but_its_derived_paths(workspace: Workspace) -> None:
    shell(workspace, "mkdir -p build && echo before > build/file")
    files, n_entries = workspace.files_path, len(list(workspace.log()))
    before = {name: (files / name).read_bytes() for name in ("index.html", "echo.py")}
    started(
        workspace,
        "writer",
        "cd /workspace; for path in new index.html ./../workspace/new build/../new;"
        " do echo x > $path; done; rm -f index.html; mv echo.py build/; chmod 777 .;"
        " ln echo.py build/link; mount -o remount,rw /workspace; umount /workspace;"
        " unshare -rm mount -o remount,bind,rw /workspace;"
        " python3 -c \"open('/proc/1/root/workspace/new', 'w')\";"
        " mkdir -p build/deep && echo mine > build/deep/file; mv build /workspace/other; echo done;"
        " sleep 1000",
        ready="^done",
        writes=("build",),
    )
    assert (files / "build/deep/file").read_text() == "mine\n"
    assert sorted(path.name for path in files.iterdir()) == ["build", "echo.py", "index.html"]
    assert {name: (files / name).read_bytes() for name in before} == before
    services_of(workspace).stop("writer")
    with workspace.call("look"):
        pass
    entries = list(workspace.log())
    assert len(entries) == n_entries + 1
    assert entries[0].kind is EntryKind.CALL


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("src", "it is not a derived path"),
        (".", "it is not a derived path"),
        ("build/link/below", "build/link is not a directory"),
        ("build/file", "build/file is not a directory"),
    ],
)
def test_only_derived_directories_can_be_declared(
    workspace: Workspace, running: Running, path: str, why: str
) -> None:
    shell(workspace, "mkdir -p build; ln -sfn /etc build/link; echo x > build/file")
    before = running(os.getpid())
    with pytest.raises(UsageError, match=why):
        started(workspace, "writer", "sleep 1000", writes=(path,))
    assert services_of(workspace).listed() == ()
    assert running(os.getpid()) == before


def test_a_missing_derived_directory_is_made(workspace: Workspace) -> None:
    started(
        workspace,
        "cache",
        "echo x > var/cache/file && echo done; sleep 1000",
        ready="^done",
        writes=("var/cache",),
    )
    assert shell(workspace, "cat var/cache/file; rm -r var/cache/file") == "x\n"


@pytest.mark.behaviour(95)
def test_a_command_cannot_pass_an_open_file_to_a_service(workspace: Workspace) -> None:
    """They share neither sockets nor processes nor temporary files."""
    started(
        workspace,
        "listener",
        "exec python3 -c \"import socket; s = socket.socket(socket.AF_UNIX); s.bind('\\0wink');"
        " s.listen(); t = socket.socket(socket.AF_UNIX); t.bind('/tmp/socket'); t.listen();"
        " print('on', flush=True); s.accept()\"",
        ready="^on",
    )
    reach = "python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('{}')\""
    assert "ConnectionRefusedError" in shell(workspace, reach.format("\\0wink"))
    assert "FileNotFoundError" in shell(workspace, reach.format("/tmp/socket"))
    assert "accept" not in shell(workspace, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; ls /tmp")


def test_a_service_has_no_network_and_the_probes_of_a_command(workspace: Workspace) -> None:
    started(workspace, "web", SERVER, ready="port 8000")
    service = services_of(workspace)._services["web"]
    probes = {probe.name: probe for probe in service.runner.report.probes}
    assert service.runner.report.holes == ()
    assert "write to a read only workspace" in probes
    commands = workspace.sandbox().report
    assert {probe.name for probe in commands.probes} == probes.keys()


# Starting and ending


def test_a_service_that_does_not_start_leaves_nothing(
    workspace: Workspace, running: Running
) -> None:
    shell(workspace, "true")
    services, notes = services_of(workspace), workspace._folder.sandbox
    before = running(os.getpid())
    with pytest.raises(ServiceError, match=r"exit code 127 before it was ready; its last output"):
        started(workspace, "wrong", "nosuchprogram")
    with pytest.raises(ServiceError, match="ended by signal 9 before it was ready"):
        started(workspace, "killed", "kill -9 $$", ready="port 9")
    with pytest.raises(PatternError):
        started(workspace, "pattern", "sleep 1000", ready="(")
    with pytest.raises(UsageError, match="leads outside"):
        started(workspace, "where", "true", cwd="../..")
    cancellation = Cancellation()
    config = ServiceConfig(name="slow", command="sleep 1000", ready="port 9")
    timer = threading.Timer(0.2, cancellation.cancel)
    timer.start()
    with pytest.raises(CallCancelledError):
        services.start(config, cancellation=cancellation)
    timer.join()
    assert services.listed() == ()
    assert not list(notes.glob("service-*"))
    assert running(os.getpid()) == before


def test_a_service_that_is_not_ready_in_time_is_stopped(
    tmp_path: Path, environment: Environment, backend: CommandConfig
) -> None:
    config = replace(backend, service_start_timeout_s=0.3, n_services=1)
    (tmp_path / "source").mkdir()
    with Workspace.temporary(tmp_path / "source") as workspace:
        workspace.sandbox(config)
        with pytest.raises(
            ServiceError, match=r"not ready after 0.3 seconds \('port 9'\); its last"
        ):
            started(workspace, "slow", "echo waits; sleep 1000", ready="port 9")
        with pytest.raises(ServiceError, match="not ready after"):
            started(workspace, "slow", "echo $(printf 'a%.0s' $(seq 99)); sleep 9", ready="(a+)+$b")
        started(workspace, "one", "sleep 1000")
        with pytest.raises(UsageError, match="1 services are running, which is the most"):
            started(workspace, "two", "sleep 1000")


def test_names_and_ports_are_unique(workspace: Workspace) -> None:
    started(workspace, "one", "sleep 1000", port=8_000)
    with pytest.raises(UsageError, match="a service one is running"):
        started(workspace, "one", "sleep 1000")
    with pytest.raises(UsageError, match="port 8000 belongs to the service one"):
        started(workspace, "two", "sleep 1000", port=8_000)
    with pytest.raises(UsageError, match=r"no service 'two'\. The services are: one"):
        services_of(workspace).log("two")


def test_a_service_that_ends_keeps_its_output_and_can_be_started_again(
    workspace: Workspace,
) -> None:
    started(workspace, "short", "echo ready; sleep 0.1; echo bye; exit 5", ready="^ready")
    service = services_of(workspace)._services["short"]
    assert service.wait(WATCHDOG_S)
    (status,) = services_of(workspace).listed()
    assert (status.state, status.exit_code) == ("ended", 5)
    shown = call(workspace, "service_logs", name="short").text
    assert "short: ended (exit code 5)" in shown
    assert shown.endswith("ready\nbye")
    started(workspace, "short", "echo again; sleep 1000", ready="again")
    assert services_of(workspace).log("short").output == b"again\n"


def test_a_ready_line_counts_whatever_follows_it(workspace: Workspace) -> None:
    command = "echo ready; seq 50000; sleep 1000"
    assert started(workspace, "chatty", command, ready="^ready").state == "running"


def test_of_much_output_the_newest_part_is_kept(workspace: Workspace) -> None:
    started(workspace, "loud", "seq 1000000; echo end of output; sleep 1000", ready="^end")
    log = services_of(workspace).log("loud", limit_bytes=100)
    assert log.output.endswith(b"1000000\nend of output\n")
    assert len(log.output) == 100
    assert log.n_missing > 6_000_000
    everything = services_of(workspace).log("loud", limit_bytes=10**9)
    assert len(everything.output) <= CommandConfig().service_log_bytes
    shown = call(workspace, "service_logs", name="loud", lines=2).text
    assert shown.endswith("[… earlier lines left out …]\n1000000\nend of output")


def left(workspace: Workspace) -> tuple[int, int, int, list[str]]:
    """What a service could leave: descriptors, threads, children, notes."""
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    children = children_of(os.getpid())
    notes = sorted(path.name for path in workspace._folder.sandbox.iterdir())
    return descriptors, threading.active_count(), len(children), notes


@pytest.mark.behaviour(95)
@pytest.mark.parametrize("number", [6, pytest.param(200, marks=pytest.mark.soak)])
def test_many_starts_and_stops_leave_nothing_behind(
    workspace: Workspace, running: Running, number: int
) -> None:
    def once() -> None:
        started(workspace, "web", "exec python3 echo.py 8004", ready="port 8004")
        services_of(workspace).expose("web")
        services_of(workspace).stop("web")

    once()
    before, names = left(workspace), running(os.getpid())
    mounts = len(Path("/proc/self/mountinfo").read_text().splitlines())
    for _ in range(number):
        once()
    after = left(workspace)
    assert after[-1] == before[-1]
    # The engine's own connections and its process come and go; a leak would be one each time.
    for found, earlier in zip(after[:-1], before[:-1], strict=True):
        assert found < earlier + 5, (after, before)
    assert running(os.getpid()) == names
    # Containers of other tests have mounts, too; a leak would be one each time. The engine removes
    # what an ended container leaves by itself.
    for _ in range(200):
        n_mounts = len(Path("/proc/self/mountinfo").read_text().splitlines())
        if n_mounts < mounts + number:
            break
        time.sleep(0.05)
    assert n_mounts < mounts + number


VICTIM = """
import os, sys, time
from wink_workspace import Workspace, WorkspaceStorage
from wink_workspace.sandbox import SANDBOXES, ServiceConfig

workspace = Workspace.open(sys.argv[1], storage=WorkspaceStorage(sys.argv[2]))
services = workspace.sandbox(SANDBOXES.get(sys.argv[4]).config()).services
config = ServiceConfig(
    name="web", ready="port 8000", writes=("build",),
    command="trap '' TERM HUP; echo kept > build/mine; exec python3 -m http.server 8000",
)
services.start(config)
address = services.expose("web")
if sys.argv[3] == "frozen":
    services.frozen().__enter__()
service = services._services["web"]
with workspace.call("interrupted"):
    workspace.files.write_text("half", "x")
    print(address.host, service.live.pid, services._relay.pid, flush=True)
    time.sleep(1000)
"""


@pytest.mark.behaviour(95)
@pytest.mark.parametrize("state", ["running", "frozen"])
def test_no_service_survives_a_killed_process(
    tmp_path: Path, environment: Environment, backend: CommandConfig, running: Running, state: str
) -> None:
    (tmp_path / "source").mkdir()
    storage = WorkspaceStorage(tmp_path / "state")
    with Workspace.create(tmp_path / "source", storage=storage, config=CONFIG) as created:
        which = created.info.id
    with subprocess.Popen(
        [sys.executable, "-c", VICTIM, which, str(tmp_path / "state"), state, backend.backend],
        stdout=subprocess.PIPE,
        text=True,
    ) as victim:
        assert victim.stdout is not None
        host, pid, relay = victim.stdout.readline().split()
        processes = [os.pidfd_open(int(pid)), os.pidfd_open(int(relay))]
        victim.send_signal(signal.SIGKILL)
    with Workspace.open(which, storage=storage, config=CONFIG) as workspace:
        for process in processes:
            assert select.select([process], [], [], WATCHDOG_S)[0]
            os.close(process)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, 8000), WATCHDOG_S)
        assert not list(workspace._folder.sandbox.iterdir())
        assert not workspace.files.exists("half")
        assert (workspace.files_path / "build/mine").read_text() == "kept\n"
        workspace.sandbox(backend)
        assert services_of(workspace).listed() == ()
        assert shell(workspace, "cat build/mine") == "kept\n"  # sweeps what the engine still knows
        assert running(victim.pid) == set()


def test_a_service_ends_with_its_branch(
    tmp_path: Path, environment: Environment, backend: CommandConfig
) -> None:
    (tmp_path / "source").mkdir()
    with Workspace.temporary(tmp_path / "source") as workspace:
        workspace.sandbox(backend)
        started(workspace, "web", SERVER, ready="port 8000")
        address = services_of(workspace).expose("web")
        live = services_of(workspace)._services["web"].live
        relay = services_of(workspace)._relay.pid
        assert live.is_running
    assert not live.is_running
    assert not Path(f"/proc/{relay}").exists()
    with pytest.raises(urllib.error.URLError, match="refused"):
        fetched(address.url)
    assert not [each for each in threading.enumerate() if each.name.startswith("wink-service")]


# Rollbacks


def frozen_state(services: RunningServices, name: str) -> bool:
    group = freezing._group(services._services[name].live.pid)
    assert group is not None
    state = group.with_name("cgroup.events") if group.name == "cgroup.freeze" else group
    return any(line in ("frozen 1", "FROZEN") for line in state.read_text().splitlines())


def has_freezer(services: RunningServices, name: str) -> bool:
    pid = services._services[name].live.pid
    group = freezing._group(pid)
    return group is not None and os.access(group, os.W_OK)


def test_a_frozen_service_does_not_run_and_continues_afterwards(workspace: Workspace) -> None:
    started(workspace, "echo", "exec python3 echo.py 8005", ready="port 8005")
    services = services_of(workspace)
    if not has_freezer(services, "echo"):
        pytest.skip("containers of this user have no freezer")
    address = services.expose("echo")
    with socket.create_connection((address.host, address.port), WATCHDOG_S) as end:
        with services.frozen(), services.frozen():
            end.sendall(b"abc")
            end.settimeout(0.3)
            with pytest.raises(TimeoutError):
                end.recv(3)
        end.settimeout(WATCHDOG_S)
        assert end.recv(3) == b"ABC"


@pytest.mark.behaviour(96)
@pytest.mark.parametrize("move", ["rollback", "undo"])
def test_services_are_frozen_while_files_are_restored(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, move: str
) -> None:
    started(workspace, "web", SERVER, ready="port 8000")
    # The workspace does not say when it restores files.
    services, history, seen = services_of(workspace), workspace._history, []
    if not has_freezer(services, "web"):
        pytest.skip("containers of this user have no freezer")

    def watched(name: str) -> Callable[..., Any]:
        restore = getattr(history, name)

        def call(*args: Any, **options: Any) -> Any:
            seen.append(frozen_state(services, "web"))
            return restore(*args, **options)

        return call

    with workspace.call("write") as writing:
        writing.files.write_text("made", "x")
    for name in ("restore", "check_out"):
        monkeypatch.setattr(history, name, watched(name))
    if move == "rollback":
        with workspace.call("fail") as failing:
            failing.files.write_text("made", "y")
            failing.fail("on purpose")
        assert workspace.files.read_bytes("made") == b"x"
    else:
        workspace.undo()
        assert not workspace.files.exists("made")
    assert seen
    assert all(seen)
    assert not frozen_state(services, "web")
    assert "<p>main</p>" in shell(workspace, GET.format(8000))


@pytest.mark.behaviour(96)
def test_a_service_that_cannot_be_frozen_is_stopped_and_started_again(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(workspace, "web", "echo run; exec python3 -m http.server 8000", ready="port 8000")
    services = services_of(workspace)
    first, address = services._services["web"].live, services.expose("web")
    monkeypatch.setattr(running_services, "freeze", lambda pid, clock: False)
    with services.frozen():
        assert not first.is_running
    second = services._services["web"].live
    assert second != first
    assert second.is_running
    assert fetched(f"{address.url}index.html") == b"<p>main</p>"
    assert "<p>main</p>" in shell(workspace, GET.format("8000/index.html"))
    monkeypatch.undo()
    services.stop("web")
    started(workspace, "web", SERVER, ready="port 8000")


def test_a_failed_call_leaves_the_paths_of_a_running_service(workspace: Workspace) -> None:
    started(
        workspace,
        "database",
        "[ -e build/data ] || echo 1 > build/data; echo on; sleep 1000",  # it may start again
        ready="^on",
        writes=("build",),
    )
    with workspace.call("write") as writing:
        shell(workspace, "mkdir -p var; echo x > var/mine; echo 2 > build/data")
        writing.fail("on purpose")
    assert shell(workspace, "cat build/data; ls var/mine") == (
        "2\nls: cannot access 'var/mine': No such file or directory\n"
    )
    event = workspace.record(next(iter(workspace.log(limit=1)))).event
    assert event is not None
    notes = " ".join(event.notes)
    assert "Paths of running services were left as they are: build." in notes
    services_of(workspace).stop("database")
    with workspace.call("write") as writing:
        shell(workspace, "echo 3 > build/data")
        writing.fail("on purpose")
    assert (
        "cannot open" in shell(workspace, "cat build/data")
        or shell(workspace, "ls build") != "data\n"
    )


# Branches


@pytest.mark.behaviour(95)
def test_a_fork_has_services_of_its_own_over_its_own_files(
    tmp_path: Path, environment: Environment, backend: CommandConfig
) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/index.html").write_text("main")
    storage = WorkspaceStorage(tmp_path / "state")
    with Workspace.create(tmp_path / "source", storage=storage) as workspace:
        workspace.sandbox(backend)
        started(workspace, "web", SERVER, ready="port 8000")
        started(workspace, "ended", "sleep 1000")
        services_of(workspace).stop("ended")
        workspace.fork("other")
        which = workspace.info.id
        with Workspace.open(which, storage=storage, branch="other") as fork:
            fork.sandbox(backend)
            with fork.call("change") as change:
                change.files.write_text("index.html", "fork")
            assert "b'fork'" in shell(fork, GET.format(8000))
            assert "b'main'" in shell(workspace, GET.format(8000))
            running = [each.config.name for each in services_of(fork).listed()]
            assert running == ["web"]
            addresses = {services_of(each).expose("web") for each in (workspace, fork)}
            assert len(addresses) == 2
            assert {fetched(each.url) for each in addresses} == {b"main", b"fork"}
            services_of(fork).stop("web")
        assert "b'main'" in shell(workspace, GET.format(8000))
    with Workspace.open(which, storage=storage, branch="other") as fork:
        fork.sandbox(backend)
        assert "refused" in shell(fork, GET.format(8000))
        assert services_of(fork).known("ended") is not None


@pytest.mark.behaviour(95)
def test_a_fork_shares_what_a_call_installed_once_no_service_holds_it(
    tmp_path: Path, environment: Environment, backend: CommandConfig
) -> None:
    (tmp_path / "source").mkdir()
    storage = WorkspaceStorage(tmp_path / "state")
    if not overlay_support(tmp_path).available:
        pytest.skip("a fork of a plain copy shares nothing")
    with Workspace.create(tmp_path / "source", storage=storage, mode="overlay") as workspace:
        workspace.sandbox(backend)
        started(workspace, "web", "sleep 1000")
        call(workspace, "shell_execute", command=INSTALL)
        during = workspace.fork("during")
        assert ([*map(str, during.left_out)], during.held_by) == (["node_modules"], ("web",)), (
            during
        )
        services_of(workspace).stop("web")
        started(workspace, "short", "sleep 0.3")
        assert services_of(workspace)._services["short"].wait(WATCHDOG_S)  # its runner may not have
        after = workspace.fork("after")
        assert (after.left_out, after.held_by) == ((), ())
        with after.open() as fork:
            fork.sandbox(backend)
            assert shell(fork, "stat -c %s node_modules/big") == "2097152\n"
        assert shell(workspace, "stat -c %s node_modules/big") == "2097152\n"


# The command line


def test_the_command_port_serves_until_it_is_interrupted(
    tmp_path: Path, environment: Environment, backend: CommandConfig
) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/index.html").write_text("page")
    storage = WorkspaceStorage(tmp_path / "wink-workspace")
    with Workspace.create(tmp_path / "source", storage=storage) as workspace:
        which = workspace.info.id

    variables = {"XDG_STATE_HOME": str(tmp_path), "WINK_WORKSPACE_SANDBOX": backend.backend}

    def port(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*(sys.executable, "-c", MAIN, "port", which), *arguments],
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    for options in (("--command", SERVER, "--ready", "port 8000"), ()):  # then it is known
        with port("web", *options) as command:
            assert command.stdout is not None
            url = command.stdout.readline().strip()
            assert url, command.communicate()
            assert fetched(f"{url}index.html") == b"page"
            command.send_signal(signal.SIGINT)
            _, errors = command.communicate(timeout=WATCHDOG_S)
        assert command.returncode == 0, errors
        assert "runs in your browser" in " ".join(errors.split())
        with pytest.raises(urllib.error.URLError, match="refused"):
            fetched(url)
    with port("short", "--command", "sleep 0.5; echo gone; exit 2", "--ready", "") as command:
        output, errors = command.communicate(timeout=WATCHDOG_S)
    assert command.returncode != 0
    assert "the service short has no port" in errors
    with port("none") as command:
        output, errors = command.communicate(timeout=WATCHDOG_S)
    assert command.returncode == 2
    assert "no service 'none' was started" in errors
    assert output == ""
