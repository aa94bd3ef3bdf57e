"""The network list in a real container: the listener, the stream, the proxy and the record.

The servers are on loopback. Only ``pip install`` uses the index that this machine's pip uses.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from loopback import package_registries
from network_escape_rig import NetworkTarget, network_target_of
from network_escape_rig import test_an_empty_list_has_no_proxy as test_an_empty_list_has_no_proxy
from network_escape_rig import (
    test_neither_the_servers_nor_the_proxy_of_another_branch_are_reached as test_neither_the_servers_nor_the_proxy_of_another_branch_are_reached,
)
from network_escape_rig import (
    test_no_attempt_reaches_more_than_what_is_listed as test_no_attempt_reaches_more_than_what_is_listed,
)
from podman_machine import sandbox_place
from proxy_machine import SECRET, ProxyMachine, http

from wink_workspace import Workspace, WorkspaceStorage
from wink_workspace.environment import Environment
from wink_workspace.errors import IsolationError
from wink_workspace.sandbox import ExecRequest, ExecResult, NetworkRules, PythonRequest
from wink_workspace.sandbox.network_proxy import proxy as proxy_module
from wink_workspace.sandbox.network_proxy.link import NetworkLink
from wink_workspace.sandbox.network_proxy.tls import TlsInspector
from wink_workspace.sandbox.podman import PodmanConfig, PodmanSandbox, ReadOnlyMount
from wink_workspace.sections import CommandOutput

pytestmark = pytest.mark.xdist_group("podman")

INSIDE = """
import hashlib, os, socket, sys, threading, urllib.request
PROXY = ("127.0.0.1", 31280)
def get(url):
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[ProxyMachine]:
    with closing(ProxyMachine()) as machine:
        yield machine


@pytest.fixture(scope="module")
def networked(
    machine: ProxyMachine, environment: Environment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PodmanSandbox]:
    """A sandbox whose proxy reaches the servers of *machine*."""
    place = sandbox_place(tmp_path_factory.mktemp("networked"))
    sandbox = PodmanSandbox(place, config=PodmanConfig(network=machine.rules))
    sandbox._network_link = machine.link
    with closing(sandbox):
        assert not sandbox.report.holes
        yield sandbox


@pytest.fixture(scope="module")
def network_target(
    environment: Environment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NetworkTarget]:
    with network_target_of(
        tmp_path_factory.mktemp("network"),
        lambda place, rules: PodmanSandbox(place, config=PodmanConfig(network=rules)),
    ) as target:
        yield target


@pytest.fixture
def fresh(tmp_path: Path, environment: Environment) -> Iterator[Callable[..., PodmanSandbox]]:
    created: list[PodmanSandbox] = []

    def make(config: PodmanConfig) -> PodmanSandbox:
        created.append(PodmanSandbox(sandbox_place(tmp_path), config=config))
        return created[-1]

    yield make
    for sandbox in created:
        sandbox.close()


def python(sandbox: PodmanSandbox, code: str, timeout_s: float = 60) -> ExecResult:
    return sandbox.evaluate(PythonRequest(code=INSIDE + code, timeout_s=timeout_s))


def text_of(result: ExecResult) -> str:
    return (result.stdout.head + result.stdout.tail + result.stderr.head).decode()


def test_the_list_is_in_the_report_and_was_probed(
    networked: PodmanSandbox, machine: ProxyMachine
) -> None:
    (layer,) = (each for each in networked.report.layers if each.name == "no network")
    assert not layer.is_active
    assert all(line in layer.detail for line in machine.rules.lines())
    names = {probe.name for probe in networked.report.probes}
    assert names >= {
        "connect to the host",
        "find a route",
        "reach an unlisted host",
        "reach an address",
        "use another server name",
        "relay a tunnel",
        "find another list",
        "reach a host through the proxy",
    }
    assert machine.dialer.connected == []


def test_a_command_reaches_what_is_listed_and_its_requests_are_in_the_result(
    networked: PodmanSandbox, machine: ProxyMachine
) -> None:
    result = python(
        networked,
        "print(get('http://npm.wink.internal/x'), get('http://tracker.wink.internal/'))\n"
        "print(get('http://evil.test/')[0])",
    )
    assert text_of(result) == "(200, b'hello') (200, b'hello')\n403\n"
    assert [(each.host, each.status) for each in result.network] == [
        ("npm.wink.internal", 200),
        ("tracker.wink.internal", 200),
        ("evil.test", 403),
    ]
    assert CommandOutput.of(result).network_list == machine.rules.lines()
    shown = CommandOutput.of(result).render()
    assert "network:\n- evil.test:80 is not on the network list of this sandbox" in shown


def test_clients_that_read_files_find_their_settings_in_the_home_of_each_command(
    networked: PodmanSandbox,
) -> None:
    show = "cat ~/.cargo/config.toml ~/.m2/settings.xml; echo own > ~/.cargo/config.toml; env"
    for _ in range(2):
        text = text_of(networked.run(ExecRequest(argv=("sh", "-c", show))))
        assert 'registry = "sparse+http://crates.wink.internal/api/index/"' in text
        assert "<url>http://maven.wink.internal/maven2/</url>" in text
        assert "GOPROXY=http://go.wink.internal\n" in text
        assert "config.toml=" not in text
    moved = ExecRequest(argv=("sh", "-c", "ls -A . /tmp"), env={"HOME": "/workspace/home"})
    assert text_of(networked.run(moved)) == ".:\n\n/tmp:\n"


def test_a_command_without_requests_has_none_in_its_result(networked: PodmanSandbox) -> None:
    assert python(networked, "print(1)").network == ()


@pytest.mark.behaviour(104)
def test_the_secret_is_nowhere_in_the_sandbox(
    networked: PodmanSandbox, machine: ProxyMachine
) -> None:
    machine.answers["tracker.test"] = lambda head: http(head)
    result = python(networked, "print(os.environ, get('http://tracker.wink.internal/'))")
    machine.answers.clear()
    assert b"[secret]" in result.stdout.head
    assert SECRET[7:] not in text_of(result) + repr(result.network)


def test_large_transfers_on_many_connections_do_not_block_each_other_or_the_output(
    networked: PodmanSandbox, machine: ProxyMachine
) -> None:
    machine.answers["npm.test"] = lambda _: http(b"x" * 600_000)
    result = python(
        networked,
        """
sizes = []
def load():
    sizes.append(len(get('http://npm.wink.internal/x')[1]))
threads = [threading.Thread(target=load) for _ in range(12)]
for each in threads: each.start()
for _ in range(100): sys.stdout.write('y' * 65_535 + '\\n')
for each in threads: each.join()
print(sizes == [600_000] * 12)
""",
    )
    machine.answers.clear()
    assert result.stdout.tail.endswith(b"True\n"), text_of(result)[-500:]
    assert result.stdout.n_bytes > 6_000_000


def test_a_large_upload_arrives(networked: PodmanSandbox, machine: ProxyMachine) -> None:
    result = python(
        networked,
        "request = urllib.request.Request('http://tracker.wink.internal/', b'z' * 1_500_000)\n"
        "print(urllib.request.urlopen(request).status)",
    )
    assert text_of(result) == "200\n"
    assert machine.reached.bodies[-1] == b"z" * 1_500_000


def test_more_connections_than_are_accepted_at_one_time_wait(networked: PodmanSandbox) -> None:
    result = python(
        networked,
        """
idle = [socket.create_connection(PROXY) for _ in range(80)]
for each in idle: each.close()
print(get('http://npm.wink.internal/x'))
""",
    )
    assert text_of(result) == "(200, b'hello')\n"


def test_a_program_that_reads_nothing_is_ended_and_the_next_command_works(
    networked: PodmanSandbox, machine: ProxyMachine
) -> None:
    machine.answers["npm.test"] = lambda _: http(b"x" * 3_000_000)
    code = """
one = socket.create_connection(PROXY)
one.sendall(b'GET http://npm.wink.internal/x HTTP/1.1\\r\\nHost: npm.wink.internal\\r\\n\\r\\n')
one.recv(1)
print('began', flush=True)
threading.Event().wait()
"""
    result = python(networked, code, timeout_s=3)
    machine.answers.clear()
    assert result.timed_out
    assert result.network[0].problem == "the command ended"
    assert text_of(python(networked, "print(get('http://npm.wink.internal/x')[0])")) == "200\n"


def test_a_connection_that_a_command_left_is_not_the_next_commands(
    networked: PodmanSandbox, machine: ProxyMachine
) -> None:
    """Also one that the runner has not accepted yet, with a request that was sent already."""
    for _ in range(2):
        code = """
for _ in range(90):
    one = socket.create_connection(PROXY)
    one.sendall(b'GET http://npm.wink.internal/left HTTP/1.1\\r\\nHost: npm.wink.internal\\r\\n\\r\\n')
    one.detach()
os.kill(os.getpid(), 9)
"""
        python(networked, code)
        assert python(networked, "print(1)").network == ()


def test_the_port_of_the_proxy_cannot_be_taken(networked: PodmanSandbox) -> None:
    result = python(
        networked,
        """
for address in ('127.0.0.1', '0.0.0.0', '127.0.0.2'):
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind((address, 31280))
        one.listen()
        print(address, 'bound')
    except OSError as error:
        print(address, error.strerror)
""",
    )
    assert text_of(result).splitlines()[:2] == [
        "127.0.0.1 Address already in use",
        "0.0.0.0 Address already in use",
    ]


def test_names_are_not_resolved_inside(networked: PodmanSandbox) -> None:
    code = """
for name in ('api.test', 'pypi.wink.internal', 'pypi.org'):
    try: print(socket.getaddrinfo(name, 443))
    except socket.gaierror: print('unknown')
"""
    assert text_of(python(networked, code)) == "unknown\n" * 3


def test_a_list_is_not_inherited_by_a_sandbox_without_one(
    fresh: Callable[..., PodmanSandbox],
) -> None:
    code = "import os, socket\nprint('http_proxy' in os.environ, socket.socket().connect_ex(('127.0.0.1', 31280)))"
    sandbox = fresh(PodmanConfig())
    result = sandbox.evaluate(PythonRequest(code=code))
    assert text_of(result) == "False 111\n"
    assert {layer.name for layer in sandbox.report.layers if layer.is_active} >= {"no network"}


# Probes


@pytest.mark.behaviour(102)
def test_a_proxy_with_another_list_is_found_before_the_first_command(
    fresh: Callable[..., PodmanSandbox], machine: ProxyMachine
) -> None:
    rules = replace(machine.rules, allowed=("npm",))
    sandbox = fresh(PodmanConfig(network=rules))
    sandbox._network_link = machine.link
    with pytest.raises(IsolationError, match="find another list"):
        sandbox.start()


def test_a_proxy_that_does_not_check_tls_is_found_before_the_first_command(
    fresh: Callable[..., PodmanSandbox], machine: ProxyMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Careless(TlsInspector):
        is_checked = True

    monkeypatch.setattr(proxy_module, "TlsInspector", Careless)
    sandbox = fresh(PodmanConfig(network=machine.rules))
    sandbox._network_link = machine.link
    with pytest.raises(IsolationError, match=r"reach a host through the proxy: reached: api\.test"):
        sandbox.start()


# In a workspace


@pytest.mark.behaviour(103)
def test_a_call_that_used_the_network_is_marked_and_undo_says_what_stays(
    tmp_path: Path,
    machine: ProxyMachine,
    environment: Environment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(NetworkLink, "of", machine.link)
    (tmp_path / "source").mkdir()
    storage = WorkspaceStorage(tmp_path / "state")
    with Workspace.create(tmp_path / "source", storage=storage) as workspace:
        sandbox = workspace.sandbox(PodmanConfig(network=machine.rules, n_waiting=0))
        with workspace.call("fetch") as call:
            code = "open('new', 'wb').write(get('http://npm.wink.internal/x')[1])"
            result = python(sandbox, code)
            output = CommandOutput.of(result)
            call.tool_result = call.tool_result.ok(output, outside_effects=output.outside_effects)
        recorded = workspace.record(workspace.head).event
        effects = recorded.outside_effects
        undone = workspace.undo()
        assert workspace.not_undone(undone) == effects
        text = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert recorded.value["network_list"] == list(machine.rules.lines())
    assert len(effects) == 1
    assert effects[0].startswith("network: 1 request to npm.wink.internal, ")
    assert SECRET[7:].encode() not in text


VICTIM = """
import sys
from pathlib import Path
from wink_workspace.sandbox import *
from wink_workspace.sandbox.podman import PodmanConfig, PodmanSandbox
files = Path(sys.argv[1])
sandbox = PodmanSandbox(
    SandboxContext(files=files), config=PodmanConfig(network=NetworkRules(allowed=("npm",)))
)
code = '''
import socket
one = socket.create_connection(("127.0.0.1", 31280))
one.sendall(b"GET http://npm.wink")
print("open", flush=True)
one.recv(1)
'''
sandbox.start()
print(sandbox._first_pid(), flush=True)
sandbox.evaluate(PythonRequest(code=code), observer=lambda *_: print("open", flush=True))
"""


def test_the_container_ends_when_the_process_of_its_proxy_is_killed(
    tmp_path: Path, environment: Environment
) -> None:
    files = sandbox_place(tmp_path).files
    with subprocess.Popen(
        [sys.executable, "-c", VICTIM, str(files)], stdout=subprocess.PIPE, text=True
    ) as victim:
        assert victim.stdout is not None
        pid = int(victim.stdout.readline())
        assert victim.stdout.readline() == "open\n"
        runner = os.pidfd_open(pid)
        victim.send_signal(signal.SIGKILL)
    try:
        assert select.select([runner], [], [], 30)[0], "the runner has not ended"
    finally:
        os.close(runner)


# Real clients


def test_pip_installs_a_package_from_the_index_that_this_machine_uses(
    fresh: Callable[..., PodmanSandbox],
) -> None:
    spec = find_spec("pip")
    assert spec is not None
    assert spec.origin is not None
    mount = ReadOnlyMount(str(Path(spec.origin).parent), "/mnt/packages/pip")
    config = PodmanConfig(
        network=NetworkRules(allowed=("pypi",)),
        mounts=(mount,),
        env={"PYTHONPATH": "/mnt/packages"},
    )
    sandbox = fresh(config)
    install = "python3 -m pip install --quiet --no-deps --target lib six"
    show = "PYTHONPATH=lib python3 -c 'import six; print(six.__name__)'"
    request = ExecRequest(argv=("/bin/sh", "-c", f"{install} && {show}"), timeout_s=120)
    with package_registries():  # the thread of the proxy starts here
        result = sandbox.run(request)
    assert result.exit_code == 0, text_of(result)
    assert result.stdout.head == b"six\n"
    assert {each.host for each in result.network} == {"pypi.wink.internal"}
    assert all(each.status == 200 for each in result.network)
