"""Where a request inside leads: the routes of registries and secrets. It does no I/O.

A route maps URLs below one prefix inside to URLs below one prefix of one host outside. Nothing else
of that host can be reached through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final

from wink_workspace.sandbox.network import INTERNAL_DOMAIN, NetworkRules, SecretHost

from .client_settings import Registry

__all__ = ["PROXY_PORT", "Origin", "Route", "RouteTable", "client_variables"]

PROXY_PORT: Final = 31_280
"""The port of the proxy on the loopback of a container, below those that the kernel chooses."""
_LISTED_FILES: Final = {"pypi.org": "files.pythonhosted.org"}
"""Indexes whose files are on another host."""
_ARCHIVE_HOSTS: Final = {
    "debian": ("deb.debian.org",),
    "debian-security": ("deb.debian.org", "security.debian.org"),
}
"""The hosts that Debian's own lists of sources name."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A host outside, and what is known of its addresses.

    ``private`` and ``local`` say whether its addresses may be private, or those of this machine.
    """

    scheme: str
    host: str
    port: int
    private: bool = False
    local: bool = False
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class Route:
    """Maps ``http://HOST/PREFIX…`` inside to a URL outside.

    Attributes:
        name: The entry of the list that it serves.
        host: The host inside.
        prefix: The prefix of its paths inside, with a ``/`` at both ends.
        origin: The host outside.
        outside: The prefix of the paths outside, with a ``/`` at both ends.
        is_read_only: Whether only GET and HEAD without a body are permitted.
        header: A header that the proxy sets; its value is never in the ``repr``.
        replaced: Texts of answers and what replaces them, such as links to the origin.
        replaces_all: Whether they are replaced in every answer, or only in indexes.
    """

    name: str
    host: str
    prefix: str
    origin: Origin
    outside: str
    is_read_only: bool = True
    header: tuple[str, str] | None = field(default=None, repr=False)
    replaced: tuple[tuple[bytes, bytes], ...] = field(default=(), repr=False)
    replaces_all: bool = False

    def path_outside(self, path: str) -> str:
        """The path outside of a path inside that begins with the prefix."""
        return self.outside + path.removeprefix(self.prefix)


class RouteTable:
    """All routes of one list.

    Args:
        rules: The list.
        registries: Where each registry is, from ``read_registries``.
    """

    def __init__(self, rules: NetworkRules, registries: Mapping[str, Sequence[Registry]]) -> None:
        self.rules = rules
        private = rules.private_hosts
        routes: list[Route] = []
        for name in rules.registries:
            for registry in registries[name]:
                routes += _registry_routes(name, registry, private)
        routes += [_secret_route(secret, private) for secret in rules.secrets]
        self._routes = sorted(routes, key=lambda route: len(route.prefix), reverse=True)
        self._names = frozenset(route.host for route in routes)

    def find(self, host: str, path: str) -> Route | None:
        """The route of a URL inside."""
        return next(
            (each for each in self._routes if each.host == host and path.startswith(each.prefix)),
            None,
        )

    def has_host(self, host: str) -> bool:
        """Whether a host inside has any route."""
        return host in self._names

    def tunnel(self, host: str, port: int) -> Origin | None:
        """The listed host that a tunnel may lead to."""
        for each in self.rules.hosts:
            if (each.host, each.port) == (host, port):
                is_private = host in self.rules.private_hosts
                return Origin("https", host, port, private=is_private, local=is_private)
        return None

    def lines(self) -> tuple[str, ...]:
        """The active list for people."""
        return self.rules.lines()


def _registry_routes(name: str, registry: Registry, private: frozenset[str]) -> Iterable[Route]:
    inside = f"{name}.{INTERNAL_DOMAIN}"
    is_local = registry.host in private or registry.host == "localhost" or _is_address(registry)
    origin = Origin(
        registry.scheme,
        registry.host,
        registry.port,
        private=True,  # where the user's own client goes; a company's mirror has such an address
        local=is_local,
        ca_file=registry.ca_file,
    )
    header = ("Authorization", registry.authorization) if registry.authorization else None
    if name == "debian":
        kind = registry.path.rstrip("/").rpartition("/")[2]
        for host in (inside, *_ARCHIVE_HOSTS[kind]):
            yield Route(name, host, f"/{kind}/", origin, registry.path, header=header)
        return
    root = registry.path
    if name == "pypi":  # the files of an index may be beside it: /simple/ and /packages/
        root = root.rstrip("/").rpartition("/")[0] + "/"
    replaced = [(f"{registry.origin}{root}".encode(), f"http://{inside}{root}".encode())]
    files = _LISTED_FILES.get(registry.host) if name == "pypi" else None
    if files:
        prefix = f"/-/{files}/"
        replaced.append((f"https://{files}/".encode(), f"http://{inside}{prefix}".encode()))
        there = Origin("https", files, 443, private=True, ca_file=registry.ca_file)
        yield Route(name, inside, prefix, there, "/")
    texts = tuple(replaced) if name == "pypi" else ()  # npm replaces the host by itself
    yield Route(name, inside, root, origin, root, header=header, replaced=texts)


def _is_address(registry: Registry) -> bool:
    try:
        ip_address(registry.host)
    except ValueError:
        return False
    return True


def _secret_route(secret: SecretHost, private: frozenset[str]) -> Route:
    target = secret.target
    is_private = target.host in private
    values = {secret.value, secret.value.rpartition(" ")[2]}
    return Route(
        secret.name,
        f"{secret.name}.{INTERNAL_DOMAIN}",
        "/",
        Origin("https", target.host, target.port, private=is_private, local=is_private),
        "/",
        is_read_only=False,
        header=(secret.header, secret.value),
        replaced=tuple(
            (value.encode(), b"[secret]") for value in sorted(values, key=len, reverse=True)
        ),
        replaces_all=True,
    )


def client_variables(
    rules: NetworkRules, registries: Mapping[str, Sequence[Registry]]
) -> dict[str, str]:
    """The variables that lead the programs inside to the proxy; none for an empty list."""
    if not rules:
        return {}
    proxy = f"http://127.0.0.1:{PROXY_PORT}"
    direct = "localhost,127.0.0.1,::1"
    variables = {
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), proxy),
        **dict.fromkeys(("no_proxy", "NO_PROXY"), direct),
    }
    if "pypi" in rules.registries:
        host = f"pypi.{INTERNAL_DOMAIN}"
        index = f"http://{host}{registries['pypi'][0].path}"
        variables |= {
            "PIP_INDEX_URL": index,
            "PIP_TRUSTED_HOST": host,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "UV_DEFAULT_INDEX": index,
        }
    if "npm" in rules.registries:
        variables |= {
            "npm_config_registry": f"http://npm.{INTERNAL_DOMAIN}{registries['npm'][0].path}",
            "npm_config_replace_registry_host": "always",
            "npm_config_audit": "false",
            "npm_config_fund": "false",
            "npm_config_update_notifier": "false",
        }
    for secret in rules.secrets:
        if secret.variable:
            variables[secret.variable] = f"http://{secret.name}.{INTERNAL_DOMAIN}"
    return variables
