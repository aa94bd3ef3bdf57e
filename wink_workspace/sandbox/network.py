"""The network that commands in a sandbox may use: the list, its parsing, and which addresses count.

The list is empty by default, and then there is no network at all. This module only decides: it
opens no connection and resolves no name.

Rule 1: an entry is one name. There are no wildcards, no addresses and no ranges.
Rule 2: a name is compared in one form: ASCII, lower case, without a final dot.
Rule 3: a name that is on the list still cannot lead to an address of a private network, of this
machine or of a cloud's metadata service. Only ``private`` permits the first two, for one name each,
and nothing permits the last.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from wink_workspace.counts import counted
from wink_workspace.errors import UsageError

REGISTRIES: Final = ("pypi", "npm", "crates", "go", "maven", "debian")
"""The package registries that a list can name."""
INTERNAL_DOMAIN: Final = "wink.internal"
"""Names below it are answered by the proxy itself: ``http://pypi.wink.internal/``."""

_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,80}")
_HEADER_VALUE: Final = re.compile(r"[!-~]([ -~]*[!-~])?")
_VARIABLE: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)?")
_FRAMING: Final = frozenset(
    {
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_MOST_HOST_CHARS: Final = 253
_LEAST_SECRET_CHARS: Final = 8


def normal_host(text: str) -> str:
    """The one form of a host name: ASCII, lower case, without a final dot.

    Raises:
        UsageError: If it is an address, a number that some programs read as an address, a pattern,
            or not a name.
    """
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if not name.isascii():
        raise UsageError(
            f"the host {text!r} is not ASCII", hint="Write its labels in the form 'xn--…'."
        )
    if "*" in name:
        raise UsageError(f"the host {text!r} is a pattern", hint="List each host by its name.")
    if ":" in name or "[" in name or _NUMBER.fullmatch(labels[-1]):
        raise UsageError(f"{text!r} is an address", hint="Use the name of the host.")
    if len(name) > _MOST_HOST_CHARS or not all(map(_LABEL.fullmatch, labels)):
        raise UsageError(f"{text!r} is not a host name", hint="Use a name such as api.example.org.")
    return name


@dataclass(frozen=True, slots=True)
class HostPort:
    """A host name in its normal form, and a port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> HostPort:
        """Parse ``host:port``; the port is required.

        Raises:
            UsageError: If *text* is anything else.
        """
        host, colon, port = text.rpartition(":")
        if not colon or not (port.isascii() and port.isdigit() and len(port) <= 5):
            raise UsageError(
                f"{text!r} has no port", hint="Write host:port, such as api.example.org:443."
            )
        if not 0 < int(port) < 65_536 or port != str(int(port)):
            raise UsageError(f"{text!r} has no valid port", hint="Use a port from 1 to 65535.")
        return cls(normal_host(host), int(port))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretHost:
    """A service that commands use with a secret that they never see.

    Inside it is ``http://NAME.wink.internal/``. The proxy adds the header and speaks TLS to the
    one host.

    Attributes:
        name: A word for the service, such as ``tracker``.
        host: ``host:port`` of the service.
        value: The whole value of the header, such as ``Bearer …``. Its last word has at least 8
            characters. It is never shown.
        header: The header that the proxy sets. The sandbox's own header of this name is dropped.
        variable: An environment variable that is set to the URL inside, such as
            ``TRACKER_BASE_URL``; empty for none.
    """

    name: str
    host: str
    value: str = field(repr=False)
    header: str = "Authorization"
    variable: str = ""

    def __post_init__(self) -> None:
        HostPort.parse(self.host)
        name = self.name
        if name in REGISTRIES or name in _RESERVED or not _LABEL.fullmatch(name) or "_" in name:
            raise UsageError(
                f"{name!r} cannot be the name of a service",
                hint="Use lower-case letters, digits and '-', and no name of a registry.",
            )
        if not _HEADER_NAME.fullmatch(self.header) or self.header.lower() in _FRAMING:
            raise UsageError(
                f"{self.header!r} cannot be the header of a secret",
                hint="Use a header such as Authorization.",
            )
        word = self.value.rpartition(" ")[2]
        if len(word) < _LEAST_SECRET_CHARS or not _HEADER_VALUE.fullmatch(self.value):
            raise UsageError(
                f"the secret of {name} is shorter than {_LEAST_SECRET_CHARS} characters, or has"
                " characters that a header cannot contain",
                hint="Use the whole value of the header, in printable ASCII.",
            )
        if not _VARIABLE.fullmatch(self.variable):
            raise UsageError(
                f"{self.variable!r} cannot be an environment variable",
                hint="Use letters, digits and '_'.",
            )

    @property
    def target(self) -> HostPort:
        """The one host that gets the secret."""
        return HostPort.parse(self.host)


_RESERVED: Final = ("list", "probe")
"""Names below ``INTERNAL_DOMAIN`` that the proxy uses itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLimits:
    """The limits of the proxy. A connection that exceeds one is closed; the record says why.

    Attributes:
        connections: Most connections at one time.
        requests: Most connections of one command.
        received_bytes: Most bytes that one command can receive.
        sent_bytes: Most bytes that one command can send.
        header_bytes: The largest header section of a request or of a response.
        connect_s: How long a name may take to be resolved, and a connection to be opened.
        head_s: How long a client may take to send the head of its request, or its TLS greeting.
        idle_s: How long a connection may be silent in both directions.
        longest_s: How long a connection may last.
    """

    connections: int = 32
    requests: int = 4_096
    received_bytes: int = 2_147_483_648
    sent_bytes: int = 268_435_456
    header_bytes: int = 32_768
    connect_s: float = 20.0
    head_s: float = 10.0
    idle_s: float = 120.0
    longest_s: float = 1_800.0

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} is {getattr(self, name)}", hint="Use a positive number.")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRules:
    """What commands can reach; nothing by default.

    Attributes:
        allowed: Registries (``"pypi"``, ``"npm"``, ``"crates"``, ``"go"``, ``"maven"``,
            ``"debian"``) and ``"host:port"``. Registries can only be read. To the others a command
            can send data, over TLS.
        private: Host names whose addresses may be private or those of this machine. It comes from
            the user's own configuration, never from a project's.
        secrets: Services that are used with a secret.
        limits: The limits of the proxy.

    Raises:
        UsageError: If an entry is invalid; the message names it.
    """

    allowed: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    secrets: tuple[SecretHost, ...] = ()
    limits: NetworkLimits = field(default_factory=NetworkLimits)

    def __post_init__(self) -> None:
        for entry in self.allowed:
            if entry not in REGISTRIES:
                host = _parsed_entry(entry).host
                if host == INTERNAL_DOMAIN or host.endswith(f".{INTERNAL_DOMAIN}"):
                    raise UsageError(
                        f"{entry!r} is a name of the proxy itself",
                        hint="Name the host that commands shall reach.",
                    )
        for host in self.private:
            normal_host(host)
        names = [secret.name for secret in self.secrets]
        if len(set(names)) != len(names):
            raise UsageError(
                f"two secrets have the same name: {', '.join(sorted(names))}",
                hint="Use a name for each.",
            )

    def __bool__(self) -> bool:
        """Whether there is a network at all."""
        return bool(self.allowed or self.secrets)

    @property
    def registries(self) -> tuple[str, ...]:
        """The registries on the list, in a fixed order."""
        return tuple(name for name in REGISTRIES if name in self.allowed)

    @property
    def hosts(self) -> frozenset[HostPort]:
        """The hosts on the list, for CONNECT."""
        return frozenset(HostPort.parse(each) for each in self.allowed if each not in REGISTRIES)

    @property
    def private_hosts(self) -> frozenset[str]:
        """``private`` in the normal form."""
        return frozenset(map(normal_host, self.private))

    def lines(self) -> tuple[str, ...]:
        """The active list for people, one entry each; secrets by name only."""
        private = self.private_hosts
        hosts = [
            f"{each} (private addresses allowed)" if each.host in private else str(each)
            for each in sorted(self.hosts, key=str)
        ]
        secrets = [f"{each.name} -> {each.target} (with a secret)" for each in self.secrets]
        return (*(f"{name} (read only)" for name in self.registries), *hosts, *sorted(secrets))


def _parsed_entry(entry: str) -> HostPort:
    try:
        return HostPort.parse(entry)
    except UsageError as error:
        if ":" in entry:
            raise
        raise UsageError(
            f"{entry!r} is neither a registry nor host:port",
            hint=f"Use {', '.join(REGISTRIES)}, or a host with its port: api.example.org:443.",
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRequest:
    """The record of one request that a command made, permitted or not.

    Attributes:
        method: ``GET``, ``CONNECT`` and so on; empty if the request could not be read.
        host: The host that was asked for, with its port if it was given.
        path: The path without the query; empty for ``CONNECT``.
        status: The status of the answer; 0 if the connection ended without one.
        n_sent: Bytes sent to the host.
        n_received: Bytes received from the host.
        problem: Why it was refused or failed; empty if it was not.
    """

    method: str
    host: str
    path: str = ""
    status: int = 0
    n_sent: int = 0
    n_received: int = 0
    problem: str = ""


def outside_effects(requests: Iterable[NetworkRequest]) -> tuple[str, ...]:
    """What no rollback takes back: one line for each host to which something was sent."""
    sent: dict[str, tuple[int, int]] = {}
    for request in requests:
        if request.n_sent:
            n_requests, n_bytes = sent.get(request.host, (0, 0))
            sent[request.host] = (n_requests + 1, n_bytes + request.n_sent)
    return tuple(
        f"network: {counted(n_requests, 'request')} to {host}, {n_bytes:,} bytes sent"
        for host, (n_requests, n_bytes) in sent.items()
    )


# Addresses

_ALWAYS_REFUSED: Final[tuple[tuple[str, str], ...]] = (
    ("0.0.0.0/8", "an unspecified address"),
    ("169.254.0.0/16", "a link-local address, as metadata services have"),
    ("100.100.100.200/32", "a metadata service"),
    ("168.63.129.16/32", "a metadata service"),
    ("192.0.0.0/24", "a reserved address"),
    ("224.0.0.0/4", "a multicast address"),
    ("240.0.0.0/4", "a reserved address"),
    ("fd00:ec2::254/128", "a metadata service"),
    ("fd20:ce::254/128", "a metadata service"),
    ("fe80::/10", "a link-local address"),
    ("fec0::/10", "a site-local address"),
    ("ff00::/8", "a multicast address"),
    ("::/96", "an unspecified address or an IPv4 address in IPv6 form"),
    ("::ffff:0:0/96", "an IPv4 address in IPv6 form"),
    ("64:ff9b::/96", "an IPv4 address in IPv6 form"),
    ("64:ff9b:1::/48", "an IPv4 address in IPv6 form"),
    ("2001::/32", "an IPv4 address in IPv6 form"),
    ("2002::/16", "an IPv4 address in IPv6 form"),
)
_LOCAL: Final[tuple[tuple[str, str], ...]] = (
    ("127.0.0.0/8", "an address of this machine"),
    ("::1/128", "an address of this machine"),
)
_PRIVATE: Final[tuple[tuple[str, str], ...]] = (
    ("10.0.0.0/8", "a private address"),
    ("172.16.0.0/12", "a private address"),
    ("192.168.0.0/16", "a private address"),
    ("100.64.0.0/10", "an address of a provider's internal network"),
    ("198.18.0.0/15", "an address of a test network"),
    ("fc00::/7", "a private address"),
)
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")


def _find(address: IPv4Address | IPv6Address, table: tuple[tuple[str, str], ...]) -> str | None:
    return next((why for network, why in table if address in ip_network(network)), None)


def address_refusal(text: str, *, private: bool = False, local: bool = False) -> str | None:
    """Why no connection may be made to an address; ``None`` if one may.

    Args:
        text: An IP address, as a resolver returns it.
        private: Whether private addresses are permitted, and those that no network announces.
        local: Whether addresses of this machine are permitted.
    """
    try:
        address: IPv4Address | IPv6Address = ip_address(text)
    except ValueError:
        return "not an address"
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return "a link-local address"
    tables = ((_LOCAL, local), (_ALWAYS_REFUSED, False), (_PRIVATE, private))
    for table, is_permitted in tables:
        found = _find(address, table)
        if found:
            return None if is_permitted else found
    is_global = address.is_global and (address.version == 4 or address in _GLOBAL_UNICAST)
    return None if is_global or private else "a reserved address"


def own_loopback_address(seed: str) -> str:
    """An address of 127.0.0.0/8 that other programs do not use: never one of 127.0.0.0/16."""
    one, two, three, *_ = hashlib.sha256(seed.encode("utf-8", "surrogateescape")).digest()
    return f"127.{1 + one % 254}.{two}.{1 + three % 254}"
