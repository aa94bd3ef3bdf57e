"""The package registries of this machine's own clients: the settings of pip, npm, cargo and others.

A named registry leads to where the user's own client would go, such as the mirror of a company.
Only settings of the machine and the user are read, never those of a project.
"""

from __future__ import annotations

import base64
import configparser
import re
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, cast
from urllib.parse import SplitResult, quote, unquote, urlsplit

from wink_workspace.environment import Environment
from wink_workspace.errors import UsageError

_PYPI: Final = "https://pypi.org/simple"
_NPM: Final = "https://registry.npmjs.org/"
_CRATES: Final = "https://index.crates.io/"
_GO: Final = "https://proxy.golang.org/"
_SUMDB: Final = "sum.golang.org"
_MAVEN: Final = "https://repo1.maven.org/maven2/"
_DEBIAN: Final = ("http://deb.debian.org/debian", "http://deb.debian.org/debian-security")
_MOST_FILE_BYTES: Final = 1_048_576


@dataclass(frozen=True, slots=True)
class Registry:
    """One registry as a client of the host is configured.

    Attributes:
        scheme: ``https``, or ``http`` if the user configured that.
        host: The host, a name or an address.
        port: Its port.
        path: The path of the registry, with a ``/`` at both ends.
        authorization: The value of the header Authorization; empty for none.
        ca_file: A file with the certificates of authorities; empty for the system's.
        variables: Settings of the user's client that also apply inside, by their variables.
    """

    scheme: str
    host: str
    port: int
    path: str
    authorization: str = field(default="", repr=False)
    ca_file: str = ""
    variables: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, url: str, *, authorization: str = "", ca_file: str = "") -> Registry:
        """Parse the URL of a registry; user and password in it become the authorization.

        Raises:
            UsageError: If it is not an HTTP URL of a host.
        """
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
            raise UsageError(
                "a package client of this machine has a registry that is not a URL of HTTP",
                hint="Look at `pip config list`, `npm config get registry`, `go env GOPROXY`,"
                " ~/.cargo/config.toml, ~/.m2/settings.xml and /etc/apt/sources.list.",
            )
        port = port or (443 if parts.scheme == "https" else 80)
        path = f"/{parts.path.strip('/')}/".replace("//", "/")
        authorization = authorization or _basic(parts)
        host = parts.hostname.lower()
        return cls(parts.scheme, host, port, path, authorization, ca_file)


def _basic(parts: SplitResult) -> str:
    if parts.username is None:
        return ""
    plain = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(plain.encode()).decode('ascii')}"


def read_registries(environment: Environment) -> dict[str, tuple[Registry, ...]]:
    """The registries by name: one each, and for ``debian`` its two archives.

    For ``go`` the checksum database follows, unless the user's proxy has to serve it.
    """
    variables, home = environment.variables, environment.home
    user_config = Path(variables.get("XDG_CONFIG_HOME") or (home or Path("/")) / ".config")
    pip = [Path("/etc/pip.conf"), Path("/etc/xdg/pip/pip.conf")]
    npm = [Path("/etc/npmrc"), Path("/usr/etc/npmrc"), Path("/usr/local/etc/npmrc")]
    if home is not None:
        pip += [home / ".pip/pip.conf", user_config / "pip/pip.conf"]
        npm += [Path(variables.get("NPM_CONFIG_USERCONFIG") or home / ".npmrc")]
    if variables.get("PIP_CONFIG_FILE"):
        pip.append(Path(variables["PIP_CONFIG_FILE"]))
    cargo = Path(variables.get("CARGO_HOME") or (home or Path("/")) / ".cargo")
    go = Path(variables.get("GOENV") or user_config / "go/env")
    maven = [Path("/etc/maven/settings.xml"), (home or Path("/")) / ".m2/settings.xml"]
    apt = Path("/etc/apt")
    sources = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
    return {
        "pypi": (pypi_index(map(_text, pip), variables),),
        "npm": (npm_registry(map(_text, npm), variables),),
        "crates": (crates_index(map(_text, (cargo / "config.toml", cargo / "config"))),),
        "go": go_proxy(_text(go), variables),
        "maven": (maven_repository(map(_text, maven)),),
        "debian": debian_archives(map(_text, sources)),
    }


def _text(path: Path) -> str:
    """The content of a settings file; empty if it is missing or cannot be read."""
    with suppress(OSError, ValueError):
        if path.is_file() and path.stat().st_size <= _MOST_FILE_BYTES:
            return path.read_text(encoding="utf-8")
    return ""


def pypi_index(files: Iterable[str], variables: Mapping[str, str]) -> Registry:
    """The index of pip, from the texts of its files, of which the last counts most."""
    url, ca_file = _PYPI, ""
    for text in files:
        parser = configparser.RawConfigParser(strict=False)
        with suppress(configparser.Error):
            parser.read_string(text)
        for section in ("global", "install"):
            url = parser.get(section, "index-url", fallback=url)
            ca_file = parser.get(section, "cert", fallback=ca_file)
    url = variables.get("PIP_INDEX_URL") or url
    ca_file = variables.get("PIP_CERT") or ca_file
    return Registry.parse(url.strip(), ca_file=ca_file.strip())


def npm_registry(files: Iterable[str], variables: Mapping[str, str]) -> Registry:
    """The registry of npm, from the texts of its files, of which the last counts most."""
    settings: dict[str, str] = {}
    for line in "\n".join(files).splitlines():
        key, equals, value = line.partition("=")
        if equals and not key.lstrip().startswith(("#", ";")):
            value = value.strip().strip("\"'")
            value = re.sub(r"\$\{([^}]+)\}", lambda each: variables.get(each[1], ""), value)
            settings[key.strip()] = value
    url = next(
        (variables[name] for name in ("npm_config_registry", "NPM_CONFIG_REGISTRY")
         if variables.get(name)),
        settings.get("registry") or _NPM,
    )  # fmt: skip
    ca_file = settings.get("cafile") or variables.get("NODE_EXTRA_CA_CERTS", "")
    registry = Registry.parse(url, ca_file=ca_file)
    about = f"//{urlsplit(url).netloc.rpartition('@')[2]}{registry.path}"
    token, basic = (settings.get(f"{about}:{name}", "") for name in ("_authToken", "_auth"))
    authorization = f"Bearer {token}" if token else f"Basic {basic}" if basic else ""
    return Registry.parse(url, ca_file=ca_file, authorization=authorization)


def crates_index(files: Iterable[str]) -> Registry:
    """The index of cargo's source replacement, from the texts of its files.

    An index in a git repository cannot be reached through the proxy; the public one is used then.
    """
    table: dict[str, object] = {}
    for text in files:
        with suppress(tomllib.TOMLDecodeError):
            table |= tomllib.loads(text)
    name = "crates-io"
    for _ in range(8):  # they may form a circle
        name = _entry(table, "source", name, "replace-with") or name
    url = _entry(table, "source", name, "registry") or _entry(table, "registries", name, "index")
    index = url.removeprefix("sparse+") if url.startswith("sparse+") else _CRATES
    return Registry.parse(index, ca_file=_entry(table, "http", "cainfo"))


def _entry(table: object, *keys: str) -> str:
    """A text in nested tables; empty if there is none."""
    for key in keys:
        table = cast("dict[str, object]", table).get(key) if isinstance(table, dict) else None
    return table if isinstance(table, str) else ""


def go_proxy(file: str, variables: Mapping[str, str]) -> tuple[Registry, ...]:
    """The first proxy of Go's list, from the text of its file; then the checksum database.

    The latter is left out if a proxy of the user's is expected to serve it, or if it is off.
    """
    lines = (line.partition("=") for line in file.splitlines())
    settings = {**{name.strip(): value.strip() for name, _, value in lines}, **variables}
    urls = re.split("[,|]", settings.get("GOPROXY") or _GO)
    own = next((each for each in urls if each.startswith(("http://", "https://"))), _GO)
    key, _, url = (settings.get("GOSUMDB") or _SUMDB).partition(" ")
    private = settings.get("GONOSUMDB") or settings.get("GOPRIVATE", "")
    inside = (("GOSUMDB", key), ("GONOSUMDB", private))
    proxy = replace(Registry.parse(own), variables=inside)
    if key == "off" or not (url or proxy.host == urlsplit(_GO).hostname):
        return (proxy,)
    return (proxy, Registry.parse(url.strip() or f"https://{key.partition('+')[0]}"))


def maven_repository(files: Iterable[str]) -> Registry:
    """The mirror of Maven's central repository, from the texts of its settings; the last counts."""
    url = _MAVEN
    for text in files:
        with suppress(SyntaxError):  # of XML
            plain = re.sub(r"\sxmlns\s*=\s*[\"'][^\"']*[\"']", "", text)
            settings = ET.fromstring(plain)  # noqa: S314 - the user's own file
            for mirror in settings.iterfind("mirrors/mirror"):
                of = {each.strip() for each in mirror.findtext("mirrorOf", "").split(",")}
                scheme, _, rest = mirror.findtext("url", "").strip().partition("://")
                is_central = of & {"*", "external:*", "central"} and "!central" not in of
                if is_central and scheme in ("http", "https"):
                    server = f"servers/server[id='{mirror.findtext('id')}']"
                    user, password = (
                        quote(settings.findtext(f"{server}/{each}", ""), safe="")
                        for each in ("username", "password")
                    )
                    url = f"{scheme}://{user}:{password}@{rest}" if user else f"{scheme}://{rest}"
                    break
    return Registry.parse(url)


def debian_archives(files: Iterable[str]) -> tuple[Registry, ...]:
    """Debian's archive and its security archive, from the texts of apt's lists of sources."""
    found: dict[str, Registry] = {}
    for url in _apt_urls("\n".join(files)):
        kind = url.rstrip("/").rpartition("/")[2]
        with suppress(UsageError):
            if kind in ("debian", "debian-security"):
                found.setdefault(kind, Registry.parse(url))
    for url in _DEBIAN:
        found.setdefault(url.rpartition("/")[2], Registry.parse(url))
    return tuple(found[kind] for kind in ("debian", "debian-security"))


def _apt_urls(text: str) -> Iterable[str]:
    for line in text.splitlines():
        words = line.split()
        if words and words[0] in ("deb", "URIs:"):
            yield from (word for word in words if word.startswith(("http://", "https://")))
