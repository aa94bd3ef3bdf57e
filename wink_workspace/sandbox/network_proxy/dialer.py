"""Connections to the outside: names are resolved, addresses are checked, and those are connected.

Rule 1: a connection goes to an address that was checked, never to a name that is resolved again.
Rule 2: if one address of a name is refused, the name is: a resolver that mixes them is not trusted.

An upstream proxy of the user (``HTTPS_PROXY``, ``HTTP_PROXY``, ``NO_PROXY``) resolves names itself,
so addresses cannot be checked here. It is asked for the listed host, by its name.
"""

from __future__ import annotations

import asyncio
import base64
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

from wink_workspace.environment import Environment
from wink_workspace.errors import WinkError
from wink_workspace.sandbox.network import address_refusal

from .routes import Origin

_MOST_ADDRESSES: Final = 4
_MOST_PROXY_HEAD_BYTES: Final = 16_384

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a host; raises ``OSError``."""
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class DialError(WinkError):
    """A host cannot be reached, or may not be; ``status`` is the answer for the client."""

    code = "network-dial"

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class UpstreamProxy:
    """The user's own proxy; ``authorization`` is empty for none."""

    host: str
    port: int
    authorization: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Destination:
    """A host whose addresses were checked, or the proxy that leads to it."""

    origin: Origin
    addresses: tuple[str, ...] = ()
    proxy: UpstreamProxy | None = None


class Dialer(Protocol):
    """Opens connections to the outside."""

    async def resolve(self, origin: Origin) -> Destination:
        """Find and check the addresses of *origin*; raises ``DialError``."""
        ...

    async def connect(self, destination: Destination, *, tls: bool) -> Connection:
        """Connect to it, with TLS if *tls*; raises ``DialError``."""
        ...


class CanaryDialer:
    """Connects nowhere, and remembers that it was asked to: for the isolation probes."""

    def __init__(self) -> None:
        self.reached: list[str] = []

    async def resolve(self, origin: Origin) -> Destination:
        """Accept every origin without resolving it."""
        return Destination(origin)

    async def connect(self, destination: Destination, *, tls: bool) -> Connection:
        """Remember the destination and refuse."""
        del tls
        self.reached.append(f"{destination.origin.host}:{destination.origin.port}")
        raise DialError(502, "nothing is connected while the sandbox is probed")


async def system_resolve(host: str, port: int) -> list[str]:
    """The addresses of *host* in the system's order, without duplicates."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def upstream_proxy(environment: Environment, origin: Origin) -> UpstreamProxy | None:
    """The user's proxy for *origin*, from the usual variables; ``None`` for a direct connection.

    Raises:
        DialError: If the variable is not a URL of an HTTP proxy.
    """
    variables = environment.variables
    names = (f"{origin.scheme}_proxy", f"{origin.scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY")
    url = next((variables[name] for name in names if variables.get(name)), "")
    if not url or _is_direct(variables.get("no_proxy") or variables.get("NO_PROXY", ""), origin):
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    port: int | None = None
    with suppress(ValueError):
        port = parts.port or 80
    if parts.scheme != "http" or not parts.hostname or port is None:
        raise DialError(502, "the proxy of this machine is not a URL such as http://proxy:8080")
    authorization = ""
    if parts.username is not None:
        plain = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {base64.b64encode(plain.encode()).decode('ascii')}"
    return UpstreamProxy(parts.hostname, port, authorization)


def _is_direct(no_proxy: str, origin: Origin) -> bool:
    for entry in no_proxy.lower().replace(" ", "").split(","):
        name = entry.removeprefix("*").removeprefix(".")
        if entry == "*" or (name and (origin.host == name or origin.host.endswith(f".{name}"))):
            return True
    return False


class SystemDialer:
    """Connects through the system's network.

    Args:
        environment: Names the user's upstream proxy.
        timeout_s: How long a name may take to be resolved, and an address to be connected.
        resolve: Resolves names.
        context: Makes the TLS context for a file of additional authorities, or ``""``.
    """

    def __init__(
        self,
        environment: Environment,
        *,
        timeout_s: float,
        resolve: Resolve = system_resolve,
        context: Callable[[str], ssl.SSLContext] | None = None,
    ) -> None:
        self._environment = environment
        self._timeout_s = timeout_s
        self._resolve = resolve
        self._context = context or _tls_context
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def resolve(self, origin: Origin) -> Destination:
        """Find and check the addresses of *origin*.

        Raises:
            DialError: If it has none, or one to which no connection may be made.
        """
        proxy = upstream_proxy(self._environment, origin)
        if proxy is not None:
            return Destination(origin, proxy=proxy)
        try:
            async with asyncio.timeout(self._timeout_s):
                addresses = await self._resolve(origin.host, origin.port)
        except (OSError, UnicodeError, TimeoutError) as error:
            raise DialError(502, f"the name {origin.host} cannot be resolved") from error
        for address in addresses:
            reason = address_refusal(address, private=origin.private, local=origin.local)
            if reason is not None:
                raise DialError(403, f"the name {origin.host} leads to {reason}")
        if not addresses:
            raise DialError(502, f"the name {origin.host} has no address")
        return Destination(origin, tuple(addresses[:_MOST_ADDRESSES]))

    async def connect(self, destination: Destination, *, tls: bool) -> Connection:
        """Connect to the first checked address that answers.

        Raises:
            DialError: If none does, or its certificate is not valid for the host.
        """
        origin = destination.origin
        context = self._tls(origin.ca_file) if tls else None
        name = origin.host if tls else None
        problem: Exception = OSError("no address")
        proxy = destination.proxy
        for address in destination.addresses if proxy is None else (proxy.host,):
            try:
                async with asyncio.timeout(self._timeout_s):
                    if proxy is None:
                        return await asyncio.open_connection(
                            address, origin.port, ssl=context, server_hostname=name
                        )
                    return await _through(proxy, origin, context)
            except (OSError, EOFError, asyncio.LimitOverrunError) as error:  # also errors of TLS
                problem = error
        raise DialError(502, f"{origin.host}:{origin.port} cannot be reached: {_why(problem)}")

    def _tls(self, ca_file: str) -> ssl.SSLContext:
        if ca_file not in self._contexts:
            self._contexts[ca_file] = self._context(ca_file)
        return self._contexts[ca_file]


def _tls_context(ca_file: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    with suppress(OSError):  # without the file, certificates of its authorities are refused
        if ca_file:
            context.load_verify_locations(ca_file)
    return context


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid ({error.verify_message})"
    if isinstance(error, TimeoutError):
        return "it does not answer"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


async def _through(
    proxy: UpstreamProxy, origin: Origin, context: ssl.SSLContext | None
) -> Connection:
    """A connection through the user's proxy, which is asked for a tunnel to the host."""
    reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
    try:
        target = f"{origin.host}:{origin.port}"
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        if proxy.authorization:
            lines.append(f"Proxy-Authorization: {proxy.authorization}")
        writer.write("\r\n".join((*lines, "", "")).encode("latin-1"))
        head = await reader.readuntil(b"\r\n\r\n")
        status = b"".join(head.split(b" ", 2)[1:2])
        if len(head) > _MOST_PROXY_HEAD_BYTES or status != b"200":
            # Not its text: it may repeat the credentials that it got.
            number = status.decode() if re.fullmatch(rb"[0-9]{3}", status) else "no status"
            raise OSError(f"the proxy of this machine answered with {number}")
        if context is not None:
            await writer.start_tls(context, server_hostname=origin.host)
    except BaseException:
        writer.close()
        raise
    return reader, writer
