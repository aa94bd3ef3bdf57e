"""Attempts to reach more than the network list, and the servers that would notice one.

A module has the fixture ``network_target`` and imports the tests. All servers are on loopback.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from escape_rig import assert_stopped
from escapes import Attempt
from network_escapes import ALSO_WITH_A_LIST, ATTEMPTS, HELPERS, REBOUND
from proxy_machine import ProxyMachine, Reached, http
from sandbox.podman.podman_machine import sandbox_place

from wink_workspace.sandbox import ExecRequest, ExecResult, NetworkRules, SandboxContext
from wink_workspace.sandbox.commands.command_sandbox import CommandSandbox
from wink_workspace.sandbox.network_proxy.link import NetworkLink
from wink_workspace.sandbox.network_proxy.proxy import Proxy
from wink_workspace.sandbox.network_proxy.routes import PROXY_PORT, RouteTable

MakeNetworked = Callable[[SandboxContext, NetworkRules], CommandSandbox]

RUN_EACH = """
import contextlib, io, json, sys
for line in sys.stdin:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        try:
            exec(json.loads(line), {"__name__": "attempt"})
        except SystemExit as error:
            print(error.code)
    print(json.dumps(output.getvalue()), flush=True)
"""
"""Runs programs, one a line, and prints the output of each as a line."""


class UnlistedServers:
    """Servers of this machine that no command may reach, and what arrived at them.

    The one on TCP also answers as a proxy would that lets everything through.
    """

    def __init__(self, machine: ProxyMachine, folder: Path) -> None:
        self.folder = folder
        self.received: list[bytes] = []
        self.name = f"wink-tests-{secrets.token_hex(8)}"
        self.mark = f"marked-{secrets.token_hex(4)}"
        try:
            _bound(socket.AF_INET6, ("::1", 0)).close()
            self.has_ipv6 = True
        except OSError:
            self.has_ipv6 = False
        self._machine = machine
        machine.run(self._start())

    @property
    def loopback_6(self) -> str:
        """The loopback of IPv6, if this machine has one."""
        return "::1" if self.has_ipv6 else "127.0.0.1"

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        started = [
            await asyncio.start_server(self._talk, "127.0.0.1", 0),
            await asyncio.start_server(self._talk, self.loopback_6, 0),
            await asyncio.start_unix_server(self._talk, self.folder / "stream"),
            await asyncio.start_unix_server(self._talk, f"\0{self.name}"),
        ]
        self._machine._servers += started
        self.tcp, self.tcp6 = (each.sockets[0].getsockname()[1] for each in started[:2])
        self._datagrams = [
            _bound(socket.AF_INET, ("127.0.0.1", 0)),
            _bound(socket.AF_INET6 if self.has_ipv6 else socket.AF_INET, (self.loopback_6, 0)),
            _bound(socket.AF_UNIX, str(self.folder / "datagram")),
            _bound(socket.AF_UNIX, f"\0{self.name}-datagram"),
        ]
        self.udp, self.udp6 = (each.getsockname()[1] for each in self._datagrams[:2])
        for each in self._datagrams:
            loop.add_reader(each.fileno(), self._answer, each)

    def close(self) -> None:
        async def end() -> None:
            for each in self._datagrams:
                asyncio.get_running_loop().remove_reader(each.fileno())
                each.close()

        self._machine.run(end())

    def _answer(self, datagrams: socket.socket) -> None:
        data, address = datagrams.recvfrom(65_536)
        self.received.append(data)
        if datagrams.family != socket.AF_UNIX:
            datagrams.sendto(b"received", address)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.received.append(b"a connection")
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                self.received.append(data)
                redirect = f"Location: http://{self.mark}.evil.test/"
                writer.write(http("received", redirect, status="302 Found"))
                await writer.drain()
        writer.close()


def _bound(family: int, address: object) -> socket.socket:
    datagrams = socket.socket(family, socket.SOCK_DGRAM)
    datagrams.bind(address)
    datagrams.setblocking(False)
    return datagrams


class NetworkTarget:
    """A sandbox with a network list, and everything that would notice another connection."""

    def __init__(
        self, machine: ProxyMachine, unlisted: UnlistedServers, make: MakeNetworked
    ) -> None:
        self.machine, self.unlisted = machine, unlisted
        listed = (f"{name}.rebound.test:{unlisted.tcp}" for name in REBOUND)
        api = f"api.test:{machine.tls_port}"
        machine.reset(allowed=(api, *listed, "npm", "pypi"))
        machine.addresses = {f"{name}.rebound.test": [each] for name, each in REBOUND.items()}
        redirect = f"Location: http://{unlisted.mark}.evil.test/"
        machine.answers["npm.test"] = lambda head: (
            http("", redirect, status="302 Found") if b"/redirected" in head else http("hello")
        )
        self.variables = {
            "MARK": unlisted.mark,
            "LISTED": api,
            "GATE": str(PROXY_PORT),
            "TCP": str(unlisted.tcp),
            "TCP6": str(unlisted.tcp6),
            "UDP": str(unlisted.udp),
            "UDP6": str(unlisted.udp6),
            "PATHS": str(unlisted.folder),
            "ABSTRACT": unlisted.name,
            "SECRET": str(unlisted.folder / "secret"),
            "SERVER": str(unlisted.tcp),
            "ENGINE": "/run/podman/podman.sock",
        }
        self.place = sandbox_place(unlisted.folder)
        self.sandbox = make(self.place, machine.rules)
        self.sandbox._network_link = machine.link
        self.make_sandbox = make

    def run(self, *codes: str) -> ExecResult:
        """Run programs in one command, which prints the output of each as a line."""
        programs = "".join(json.dumps(Attempt("", code).program) + "\n" for code in codes)
        request = ExecRequest(
            argv=("python3", "-c", RUN_EACH),
            env=self.variables,
            stdin=programs.encode(),
            timeout_s=120,
            output_bytes=1_000_000,
        )
        return self.sandbox.run(request)

    def ends(self, *codes: str) -> list[str]:
        """The output of each program in the sandbox."""
        result = self.run(*codes)
        assert result.exit_code == 0, result
        return [json.loads(line) for line in result.stdout.head.splitlines()]

    def escaped(self) -> list[object]:
        """What got out since the last call of this."""
        reached, mark = self.machine.reached, self.unlisted.mark.encode()
        seen: list[object] = [*self.unlisted.received]
        seen += [each for each in (*reached.heads, *reached.bodies) if mark in each]
        seen += [each for each in self.machine.resolved if each not in self._listed_names()]
        seen += [each for each in self.machine.dialer.connected if each != ("127.0.0.1",)]
        self.machine.reached = Reached()
        for each in (self.unlisted.received, self.machine.resolved, self.machine.dialer.connected):
            each.clear()
        return seen

    def _listed_names(self) -> set[str]:
        names = {each.host for each in self.machine.rules.hosts}
        return names | {"npm.test", "pypi.test", "tracker.test"}


@contextmanager
def network_target_of(folder: Path, make: MakeNetworked) -> Generator[NetworkTarget]:
    """The fixture ``network_target`` of a sandbox."""
    with closing(ProxyMachine()) as machine, closing(UnlistedServers(machine, folder)) as unlisted:
        target = NetworkTarget(machine, unlisted, make)
        with closing(target.sandbox):
            yield target


@pytest.mark.behaviour(102)
def test_no_attempt_reaches_more_than_what_is_listed(network_target: NetworkTarget) -> None:
    attempts = {**ATTEMPTS, **ALSO_WITH_A_LIST}
    network_target.escaped()
    outputs = network_target.ends(*(each.code for each in attempts.values()))
    seen = network_target.escaped()
    assert seen == [], seen
    others = {
        name: output
        for (name, attempt), output in zip(attempts.items(), outputs, strict=True)
        if not re.match(rf"STOPPED ({attempt.by})( |\n|$)", output)
    }
    assert others == {}, others


def test_what_is_listed_is_reached_in_the_same_sandbox(network_target: NetworkTarget) -> None:
    """Refused attempts prove something only if permitted requests work."""
    network_target.escaped()
    plain = HELPERS + 'proxied(request("GET", "/x"))'
    secured = HELPERS + "proxied(tunnel(LISTED), hello(NAME))"
    assert [each[:20] for each in network_target.ends(plain, secured)] == [
        "STOPPED Stopped 200\n", "STOPPED Stopped 200\n",
    ]  # fmt: skip
    assert [head.split()[1] for head in network_target.machine.reached.heads] == [b"/x"]
    assert network_target.machine.dialer.connected == [("127.0.0.1",)] * 2


def test_each_attempt_is_noticed_without_the_sandbox_and_with_another_proxy(
    network_target: NetworkTarget,
) -> None:
    unlisted = network_target.unlisted
    network_target.escaped()
    variables = {**os.environ, **network_target.variables, "GATE": str(unlisted.tcp)}
    missed: dict[str, str] = {}
    with subprocess.Popen(
        [sys.executable, "-c", RUN_EACH],
        env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as outside:  # fmt: skip
        assert outside.stdin is not None
        assert outside.stdout is not None
        for name, attempt in ATTEMPTS.items():
            if "AF_INET6" in attempt.code and not unlisted.has_ipv6:
                continue
            outside.stdin.write(json.dumps(attempt.program) + "\n")
            outside.stdin.flush()
            output = json.loads(outside.stdout.readline())
            seen = b"".join(each for each in network_target.escaped() if isinstance(each, bytes))
            if unlisted.mark.encode() not in seen and "ESCAPED" not in output:
                missed[name] = output
        outside.stdin.close()
    assert missed == {}, missed
    assert len(ATTEMPTS) >= 40


NEIGHBOUR = """
import threading
received = []
def serve(family, address):
    server = socket.socket(family)
    server.bind(address)
    server.listen()
    def accept():
        while True:
            received.append(server.accept()[0].recv(100))
    threading.Thread(target=accept, daemon=True).start()
serve(socket.AF_INET, ("127.0.0.1", 8123))
serve(socket.AF_UNIX, chr(0) + MARK)
serve(socket.AF_UNIX, "/tmp/server")
"""
REACHED = """
import urllib.request
for family, address in (
    (socket.AF_INET, ("127.0.0.1", 8123)),
    (socket.AF_UNIX, chr(0) + MARK),
    (socket.AF_UNIX, "/tmp/server"),
):
    try:
        with socket.socket(family) as trial:
            trial.connect(address)
            trial.sendall(b"x")
        print("reached")
    except OSError as error:
        print(errno.errorcode[error.errno])
try:
    proxied(tunnel(os.environ["OTHER"]))
except Stopped as stopped:
    print(stopped)
"""
WAITING = """
while len(received) < 3:
    time.sleep(0.01)
sys.stdout.flush()
while not os.path.exists("end"):
    time.sleep(0.01)
raise Stopped(len(received))
"""


def test_neither_the_servers_nor_the_proxy_of_another_branch_are_reached(
    network_target: NetworkTarget, tmp_path: Path
) -> None:
    """Branches have the same addresses, and each only its own."""
    machine, place = network_target.machine, sandbox_place(tmp_path)
    other = f"retry.test:{machine.retrying_port}"
    network_target.variables["OTHER"] = other
    rules = replace(machine.rules, allowed=(other,))
    link = NetworkLink(Proxy(RouteTable(rules, machine.registries), machine.dialer))
    results: list[ExecResult] = []
    ready = threading.Event()
    with closing(network_target.make_sandbox(place, rules)) as neighbour:
        neighbour._network_link = lambda *_: link
        request = ExecRequest(
            argv=("python3", "-c", Attempt("", HELPERS + NEIGHBOUR + REACHED + WAITING).program),
            env=network_target.variables,
            timeout_s=60,
        )

        def run() -> None:
            try:
                results.append(neighbour.run(request, observer=lambda *_: ready.set()))
            finally:
                ready.set()

        thread = threading.Thread(target=run)
        thread.start()
        assert ready.wait(60)
        (own,) = network_target.ends(HELPERS + REACHED + "raise Stopped")
        (place.files / "end").touch()
        thread.join()
    assert own.splitlines()[:4] == ["ECONNREFUSED", "ECONNREFUSED", "ENOENT", "403"]
    (theirs,) = results
    assert theirs.stdout.head.decode().splitlines() == [
        "reached", "reached", "reached", "200 alert", "STOPPED Stopped 3",
    ]  # fmt: skip


def test_an_empty_list_has_no_proxy(network_target: NetworkTarget, tmp_path: Path) -> None:
    code = """
        left = [name for name in os.environ if "proxy" in name.lower()]
        if left:
            sys.exit(f"ESCAPED {left}")
        proxied(request("GET", "/x"))
    """
    attempt = Attempt("", HELPERS + textwrap.dedent(code), "ECONNREFUSED")
    request = ExecRequest(argv=("python3", "-c", attempt.program), env=network_target.variables)
    with closing(network_target.make_sandbox(sandbox_place(tmp_path), NetworkRules())) as alone:
        assert_stopped(attempt, alone.run(request))
