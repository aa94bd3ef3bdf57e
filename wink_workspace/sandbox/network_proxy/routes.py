"""Where a request inside leads: the routes of registries and secrets. It does no I/O.

A route maps URLs below one prefix inside to URLs below one prefix of one host outside. Nothing else
of that host can be reached through it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from wink_workspace.sandbox.git_directory import WORKSPACE_PATH
from wink_workspace.sandbox.network import INTERNAL_DOMAIN, NetworkRules, SecretHost

from .client_settings import Registry

PROXY_PORT: Final = 31_280
"""The port of the proxy on the loopback of a container, below those that the kernel chooses."""
_FILES: Final = {"pypi.org": "files.pythonhosted.org", "index.crates.io": "static.crates.io"}
"""Public indexes whose files are on another host."""
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

    @property
    def url(self) -> str:
        """Its URL, without a path and a usual port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = 443 if self.scheme == "https" else 80
        return f"{self.scheme}://{host}" + ("" if self.port == usual else f":{self.port}")


@dataclass(frozen=True, slots=True)
class Route:
    """Maps ``http://HOST/PREFIX…`` inside to a URL outside.

    Attributes:
        name: The entry of the list that it serves.
        host: The host inside.
        prefix: The prefix of its paths inside, with a ``/`` at both ends; or a whole path.
        origin: The host outside.
        outside: What replaces it outside.
        is_read_only: Whether only GET and HEAD without a body are permitted.
        header: A header that the proxy sets; its value is never in the ``repr``.
        replaced: Texts of answers and what replaces them, such as links to the origin.
        replaces_all: Whether they are replaced in every answer, or only in indexes.
        unless_agent: A client that replaces links itself, by the start of its ``User-Agent``.
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
    unless_agent: str = ""

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
            routes += _registry_routes(name, registries[name], private)
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


def _registry_routes(
    name: str, registries: Sequence[Registry], private: frozenset[str]
) -> Iterable[Route]:
    inside = f"{name}.{INTERNAL_DOMAIN}"
    registry = registries[0]
    root = registry.path

    def route(to: Registry, prefix: str, outside: str, host: str = inside) -> Route:
        is_address = ":" in to.host or to.host.rpartition(".")[2].isdigit()
        local = is_address or to.host == "localhost" or to.host in private
        # Private: where the user's own client goes; a company's mirror has such an address.
        origin = Origin(to.scheme, to.host, to.port, private=True, local=local, ca_file=to.ca_file)
        header = ("Authorization", to.authorization) if to.authorization else None
        return Route(name, host, prefix, origin, outside, header=header)

    if name == "debian":
        for each in registries:
            kind = each.path.rstrip("/").rpartition("/")[2]
            for host in (inside, *_ARCHIVE_HOSTS[kind]):
                yield route(each, f"/{kind}/", each.path, host)
        return
    for each in registries[1:]:  # the checksum database of Go
        prefix = f"{root}sumdb/{dict(registry.variables)['GOSUMDB'].partition('+')[0]}/"
        yield route(each, prefix, each.path)
        # Any answer means that it is served; the database itself has no such path.
        yield route(each, f"{prefix}supported", f"{each.path}latest")
    if name in ("pypi", "crates"):  # files may be beside the index: /simple/ and /packages/
        root = root.rstrip("/").rpartition("/")[0] + "/"
    main = route(registry, root, root)
    replaced = [(f"{main.origin.url}{root}".encode(), f"http://{inside}{root}".encode())]
    files = _FILES.get(registry.host)
    if files:
        prefix = f"/-/{files}/"
        replaced.append((f"https://{files}/".encode(), f"http://{inside}{prefix}".encode()))
        yield route(Registry("https", files, 443, "/", ca_file=registry.ca_file), prefix, "/")
    if name == "crates":  # the rest of the index has no links
        path = f"{registry.path}config.json"
        yield replace(route(registry, path, path), replaced=tuple(replaced), replaces_all=True)
    elif name in ("pypi", "npm"):  # the lock files of npm keep the public URLs
        agent = "npm/" if name == "npm" else ""
        main = replace(main, replaced=tuple(replaced), unless_agent=agent)
    yield main


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
        index = _url("pypi", registries)
        variables |= {
            "PIP_INDEX_URL": index,
            "PIP_TRUSTED_HOST": f"pypi.{INTERNAL_DOMAIN}",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "UV_DEFAULT_INDEX": index,
        }
    if "npm" in rules.registries:
        registry = _url("npm", registries)
        variables |= {
            **dict.fromkeys(("npm_config_registry", "pnpm_config_registry"), registry),
            "YARN_NPM_REGISTRY_SERVER": registry.rstrip("/"),
            "YARN_UNSAFE_HTTP_WHITELIST": f"npm.{INTERNAL_DOMAIN}",
            **dict.fromkeys(("YARN_HTTP_PROXY", "YARN_HTTPS_PROXY"), proxy),
            "npm_config_replace_registry_host": "always",
            "npm_config_audit": "false",
            "npm_config_fund": "false",
            "npm_config_update_notifier": "false",
        }
    if "go" in rules.registries:
        variables["GOPROXY"] = _url("go", registries).rstrip("/")
        variables |= registries["go"][0].variables
    for secret in rules.secrets:
        if secret.variable:
            variables[secret.variable] = f"http://{secret.name}.{INTERNAL_DOMAIN}"
    return variables


def client_files(
    rules: NetworkRules, registries: Mapping[str, Sequence[Registry]], env: Mapping[str, str]
) -> dict[str, str]:
    """The settings of clients that read no variables: absolute paths inside, and texts.

    None is in the workspace.

    Args:
        rules: The list.
        registries: Where each registry is.
        env: The variables of the command, which name the directories of its clients.
    """
    home = env.get("HOME", "")
    gradle = env.get("GRADLE_USER_HOME") or f"{home}/.gradle"
    files = (
        ("crates", f"{env.get('CARGO_HOME') or f'{home}/.cargo'}/config.toml", _CARGO),
        ("maven", f"{home}/.m2/settings.xml", _MAVEN),
        ("maven", f"{gradle}/init.d/wink.gradle", _GRADLE),
    )
    hosts = json.dumps([each.host for each in rules.hosts])
    return {
        path: text % {"url": _url(name, registries), "port": PROXY_PORT, "hosts": hosts}
        for name, path, text in files
        if name in rules.registries and path[:1] == "/" and "=" not in path
        if not path.startswith(f"{WORKSPACE_PATH}/")
    }


def _url(name: str, registries: Mapping[str, Sequence[Registry]]) -> str:
    """The URL of a registry inside."""
    return f"http://{name}.{INTERNAL_DOMAIN}{registries[name][0].path}"


_CARGO: Final = (
    '[source.crates-io]\nreplace-with = "wink"\n\n[source.wink]\nregistry = "sparse+%(url)s"\n'
)
_MAVEN: Final = (
    "<settings>\n<mirrors><mirror><id>central</id><mirrorOf>*</mirrorOf><url>%(url)s</url></mirror>"
    "</mirrors>\n<proxies><proxy><protocol>http</protocol><host>127.0.0.1</host><port>%(port)s</port>"
    "<nonProxyHosts>localhost|127.*</nonProxyHosts></proxy></proxies>\n</settings>\n"
)
"""Java reads no variables about proxies. With the id of the public repository, what was fetched can
be used without the mirror, too."""
_GRADLE: Final = """\
def replaceIn = { repositories -> repositories.all {
    if (it instanceof MavenArtifactRepository && it.url.scheme ==~ "https?"
            && !(it.url.host in %(hosts)s)) {
        it.url = "%(url)s"
        if (it.hasProperty("allowInsecureProtocol")) it.allowInsecureProtocol = true
    }
} }
def inSettings = { settings ->
    settings.pluginManagement { replaceIn(repositories) }
    if (settings.hasProperty("dependencyResolutionManagement"))
        replaceIn(settings.dependencyResolutionManagement.repositories)
}
for (name in ["http.proxy", "https.proxy"])
    System.properties << [(name + "Host"): "127.0.0.1", (name + "Port"): "%(port)s"]
if (gradle.metaClass.respondsTo(gradle, "beforeSettings")) gradle.beforeSettings(inSettings)
else gradle.settingsEvaluated(inSettings)
gradle.allprojects { replaceIn(buildscript.repositories); replaceIn(repositories) }
"""
"""As the mirror of Maven, the registry stands for every repository, except for listed hosts."""
