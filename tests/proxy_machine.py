"""A proxy on loopback, its own TLS servers, and a resolver that knows their names only.

Nothing here connects to anything but loopback: the dialer of the proxy refuses to.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import trustme

from wink_workspace.environment import Environment
from wink_workspace.sandbox import NetworkLimits, NetworkRequest, NetworkRules, SecretHost
from wink_workspace.sandbox.network_proxy.client_settings import Registry
from wink_workspace.sandbox.network_proxy.dialer import Destination, SystemDialer
from wink_workspace.sandbox.network_proxy.link import NetworkLink
from wink_workspace.sandbox.network_proxy.package_cache import NO_CACHE
from wink_workspace.sandbox.network_proxy.proxy import Proxy
from wink_workspace.sandbox.network_proxy.routes import RouteTable, client_variables

SECRET = "Bearer 0123456789-the-secret"
NAMES = (
    "api.test",
    "other.test",
    "tracker.test",
    "pypi.test",
    "files.test",
    "npm.test",
    "retry.test",
    "crates.test",
    "go.test",
    "sum.test",
    "maven.test",
)
LIMITS = NetworkLimits(
    connections=16,
    requests=1_000,
    received_bytes=8_000_000,
    sent_bytes=2_000_000,
    header_bytes=8_192,
    connect_s=5.0,
    head_s=5.0,
    idle_s=5.0,
    longest_s=20.0,
)

Answer = Callable[[bytes], bytes]
"""A server: the answer to the head of a request. It then closes the connection."""


def http(body: bytes | str, *headers: str, status: str = "200 OK", length: bool = True) -> bytes:
    content = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status}", *headers]
    if length:
        lines.append(f"Content-Length: {len(content)}")
    return "\r\n".join((*lines, "", "")).encode() + content


@dataclass
class Reached:
    """What arrived at the servers."""

    connections: int = 0
    heads: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)


class LoopbackDialer(SystemDialer):
    """Remembers the addresses that the proxy connects, and connects to loopback only."""

    connected: list[tuple[str, ...]]

    async def connect(
        self, destination: Destination, *, tls: bool
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.connected.append(destination.addresses)
        outside = [each for each in destination.addresses if each != "127.0.0.1"]
        assert not outside, f"the proxy would have connected {outside}"
        if destination.proxy is not None:
            assert destination.proxy.host == "127.0.0.1"
        return await super().connect(destination, tls=tls)


class _StreamClient:
    """A client of the proxy over a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        with suppress(ConnectionError):
            return await self._reader.read(65_536)
        return b""

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def end(self) -> None:
        with suppress(OSError):
            self._writer.write_eof()

    def drop(self) -> None:
        self._writer.close()


class ProxyMachine:
    """The proxy, the resolver and the servers, in an event loop on a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._folder = tempfile.TemporaryDirectory()
        authority = trustme.CA()
        self.ca_file = str(Path(self._folder.name) / "ca.pem")
        authority.cert_pem.write_to_path(self.ca_file)
        self.tls = self._server_context(authority, *NAMES)
        self.retrying_tls = self._server_context(authority, "retry.test")
        self.retrying_tls.set_ecdh_curve("secp521r1")  # clients do not begin with it
        self.stranger_tls = self._server_context(authority, "stranger.test")
        self._servers: list[asyncio.Server] = []
        self.proxy_port = self.run(self._listen(self._serve_proxy))
        self.tls_port = self.run(self._listen(self._serve_tls, self.tls))
        self.retrying_port = self.run(self._listen(self._serve_tls, self.retrying_tls))
        self.stranger_port = self.run(self._listen(self._serve_tls, self.stranger_tls))
        self.plain_port = self.run(self._listen(self._serve_tls))
        self.reset()

    def reset(
        self,
        *,
        allowed: Sequence[str] | None = None,
        limits: NetworkLimits = LIMITS,
        variables: Mapping[str, str] | None = None,
        cache: Path = NO_CACHE,
        **changes: object,
    ) -> None:
        """A new proxy with the given list, and nothing reached yet."""
        self.reached = Reached()
        self.addresses: dict[str, list[list[str]]] = {}
        self.answers: dict[str, Answer] = {}
        self.resolved: list[str] = []
        hosts = (f"api.test:{self.tls_port}", f"retry.test:{self.retrying_port}")
        listed = (*hosts, "pypi", "npm", "crates", "go", "maven")
        rules = NetworkRules(
            allowed=tuple(listed if allowed is None else allowed),
            private=tuple(each for each in NAMES if each not in ("other.test", "files.test")),
            secrets=(
                SecretHost(name="tracker", host=f"tracker.test:{self.tls_port}", value=SECRET),
            ),
            limits=limits,
        )
        rules = replace(rules, **changes)
        port = self.tls_port
        registries = {
            "pypi": (Registry("https", "pypi.test", port, "/root/simple/", "Basic dXNlcg=="),),
            "npm": (Registry("https", "npm.test", port, "/"),),
            "crates": (Registry("https", "crates.test", port, "/api/index/"),),
            "go": (
                Registry("https", "go.test", port, "/", variables=(("GOSUMDB", "sum.test+1+key"),)),
                Registry("https", "sum.test", port, "/"),
            ),
            "maven": (Registry("https", "maven.test", port, "/maven2/"),),
            "debian": (
                Registry("http", "localhost", self.plain_port, "/debian/"),
                Registry("http", "localhost", self.plain_port, "/security/debian-security/"),
            ),
        }
        environment = Environment(variables=dict(variables or {}))

        def context(ca_file: str) -> ssl.SSLContext:
            assert ca_file == ""
            return ssl.create_default_context(cafile=self.ca_file)

        self.dialer = LoopbackDialer(
            environment,
            timeout_s=limits.connect_s,
            resolve=self._resolve,
            context=context,
        )
        self.dialer.connected = []
        self.rules = rules
        self.routes = RouteTable(rules, registries)
        self.registries = registries
        self.variables = client_variables(rules, registries)
        self.cache = cache
        self.proxy = Proxy(self.routes, self.dialer, cache)

    def link(self, *_: object) -> NetworkLink:
        """A link of a container that applies the same list."""
        return NetworkLink(Proxy(self.routes, self.dialer, self.cache), self.registries)

    def close(self) -> None:
        self.run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._folder.cleanup()

    def run(self, work):  # the result of a coroutine, in the loop
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    # What a program in the sandbox does

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.proxy_port), 10)

    def ask(self, request: bytes | str) -> bytes:
        """Send bytes, end, and read the whole answer."""
        data = request.encode("latin-1") if isinstance(request, str) else request
        with self.connect() as client:
            with suppress(ConnectionError):
                client.sendall(data)
            return read_all(client)

    def get(self, url: str, *headers: str, method: str = "GET", body: str = "") -> bytes:
        host = url.split("/")[2]
        lines = [f"{method} {url} HTTP/1.1", f"Host: {host}", *headers]
        return self.ask("\r\n".join((*lines, "", body)))

    def tunnel(self, target: str | None = None) -> socket.socket:
        """An open tunnel to a listed host."""
        target = target or f"api.test:{self.tls_port}"
        client = self.connect()
        client.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        head = client.recv(65_536)
        assert head == b"HTTP/1.1 200 Connection established\r\n\r\n", head
        return client

    def requests(self) -> tuple[NetworkRequest, ...]:
        """The records, once every connection is over."""

        async def take() -> tuple[NetworkRequest, ...]:
            while self._serving:
                await asyncio.wait(self._serving)
            return self.proxy.take_records()

        return self.run(take())

    # The servers

    _serving: set[asyncio.Task[None]] = set()

    async def _serve_proxy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.ensure_future(self.proxy.serve(_StreamClient(reader, writer)))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        await asyncio.wait((task,))

    async def _serve_tls(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reached.connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.reached.heads.append(head)
            headers = dict(
                line.lower().split(": ", 1) for line in head.decode().split("\r\n")[1:] if line
            )
            body = b""
            if "content-length" in headers:
                body = await reader.readexactly(int(headers["content-length"]))
            elif "transfer-encoding" in headers:
                body = await reader.readuntil(b"0\r\n\r\n")
            self.reached.bodies.append(body)
            host = headers.get("host", "").split(":")[0]
            answer = self.answers.get(host, lambda _: http("hello"))
            writer.write(answer(head))
            await writer.drain()
        writer.close()

    async def _listen(self, serve: object, context: ssl.SSLContext | None = None) -> int:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        self._servers.append(server)
        return server.sockets[0].getsockname()[1]

    async def _resolve(self, host: str, port: int) -> list[str]:
        """The resolver: ``addresses``, one answer after the other, or loopback for known names."""
        self.resolved.append(host)
        answers = self.addresses.get(host)
        if answers:
            return answers.pop(0) if len(answers) > 1 else answers[0]
        if host in NAMES or host == "localhost":
            return ["127.0.0.1"]
        raise OSError(f"unknown name {host}")

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @staticmethod
    def _server_context(authority: trustme.CA, *names: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(*names).configure_cert(context)
        return context


def read_all(client: socket.socket) -> bytes:
    """Everything until the end of the stream, also if it is cut off."""
    client.settimeout(10)
    received = b""
    with suppress(ConnectionError):
        client.shutdown(socket.SHUT_WR)
    with suppress(ConnectionError):
        while piece := client.recv(65_536):
            received += piece
    return received


def status_of(answer: bytes) -> int:
    """The status of an answer; 0 if there is none."""
    words = answer.split(b" ", 2)
    return int(words[1]) if len(words) > 1 and answer.startswith(b"HTTP/1.1 ") else 0
