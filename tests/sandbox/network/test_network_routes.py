"""Where names inside lead: the settings of this machine's clients, routes, and replaced texts."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wink_workspace.environment import Environment
from wink_workspace.errors import UsageError
from wink_workspace.sandbox import NetworkRules, SecretHost
from wink_workspace.sandbox.network_proxy.client_settings import (
    Registry,
    crates_index,
    debian_archives,
    go_proxy,
    maven_repository,
    npm_registry,
    pypi_index,
    read_registries,
)
from wink_workspace.sandbox.network_proxy.dialer import CanaryDialer, DialError, upstream_proxy
from wink_workspace.sandbox.network_proxy.link import NetworkLink
from wink_workspace.sandbox.network_proxy.proxy import Proxy, Replacer
from wink_workspace.sandbox.network_proxy.proxy_requests import RequestRefusedError, head_length
from wink_workspace.sandbox.network_proxy.routes import (
    Origin,
    RouteTable,
    client_files,
    client_variables,
)

USUAL = {
    "pypi": (pypi_index((), {}),),
    "npm": (npm_registry((), {}),),
    "crates": (crates_index(()),),
    "go": go_proxy("", {}),
    "maven": (maven_repository(()),),
    "debian": debian_archives(()),
}


# The settings of clients


def test_without_settings_the_public_registries_are_used() -> None:
    assert {
        "pypi": (Registry("https", "pypi.org", 443, "/simple/"),),
        "npm": (Registry("https", "registry.npmjs.org", 443, "/"),),
        "crates": (Registry("https", "index.crates.io", 443, "/"),),
        "go": (
            Registry(
                "https",
                "proxy.golang.org",
                443,
                "/",
                variables=(("GOSUMDB", "sum.golang.org"), ("GONOSUMDB", "")),
            ),
            Registry("https", "sum.golang.org", 443, "/"),
        ),
        "maven": (Registry("https", "repo1.maven.org", 443, "/maven2/"),),
        "debian": (
            Registry("http", "deb.debian.org", 80, "/debian/"),
            Registry("http", "deb.debian.org", 80, "/debian-security/"),
        ),
    } == USUAL


def test_the_index_of_pip_comes_from_its_last_file_or_its_variable() -> None:
    site = "[global]\nindex-url = https://a.test/simple\ncert = /ca.pem\n"
    user = (
        "[install]\nindex-url = https://me:p%40ss@b.test:8443/artifactory/api/pypi/pypi/simple/\n"
    )
    assert pypi_index([site], {}) == Registry("https", "a.test", 443, "/simple/", "", "/ca.pem")
    assert pypi_index([site, user], {}) == Registry(
        "https",
        "b.test",
        8443,
        "/artifactory/api/pypi/pypi/simple/",
        "Basic bWU6cEBzcw==",
        "/ca.pem",
    )
    index = pypi_index([site, user], {"PIP_INDEX_URL": "http://localhost:3141/root/pypi/+simple"})
    assert (index.scheme, index.host, index.port) == ("http", "localhost", 3141)
    assert pypi_index(["not an ini file\n[["], {}).host == "pypi.org"


def test_the_registry_of_npm_comes_with_its_token() -> None:
    text = (
        "; a comment = x\nregistry = https://npm.test/api/npm/\n"
        "//npm.test/api/npm/:_authToken = ${TOKEN}\n//other.test/:_authToken = wrong\n"
    )
    assert npm_registry([text], {"TOKEN": "abc"}) == Registry(
        "https", "npm.test", 443, "/api/npm/", "Bearer abc"
    )
    local = npm_registry([text], {"npm_config_registry": "http://[::1]:4873"})
    assert Origin(local.scheme, local.host, local.port).url == "http://[::1]:4873"


def test_the_archives_of_debian_are_found_in_both_formats() -> None:
    lists = (
        "deb [arch=amd64] http://mirror.test/debian/ bookworm main\n# deb http://x.test/debian a\n"
    )
    sources = "Types: deb\nURIs: https://mirror.test/x/debian-security\nSuites: s\n"
    other = "deb https://packages.test/apt stable main\ndeb cdrom:[x]/debian bookworm main\n"
    assert debian_archives([other, lists, sources]) == (
        Registry("http", "mirror.test", 80, "/debian/"),
        Registry("https", "mirror.test", 443, "/x/debian-security/"),
    )


def test_the_index_of_cargo_is_where_its_source_replacement_leads() -> None:
    company = """
[source.crates-io]
replace-with = "one"
[source.one]
replace-with = "two"
[registries.two]
index = "sparse+https://crates.test/api/cargo/index/"
[http]
cainfo = "/ca.pem"
"""
    assert crates_index([company]) == Registry(
        "https", "crates.test", 443, "/api/cargo/index/", ca_file="/ca.pem"
    )
    for other in (
        "[source.crates-io]\nreplace-with = 'crates-io'\n",
        "[source.crates-io]\nreplace-with = 'git'\n[source.git]\nregistry = 'https://g.test/i'\n",
        "source = 3\n",
        "not TOML [[",
    ):
        assert crates_index([other]) == USUAL["crates"][0]


def test_the_proxy_of_go_comes_from_its_file_or_its_variable() -> None:
    file = "GOPROXY=https://go.test/api|direct\nGOPRIVATE=*.company.test\n"
    inside = (("GOSUMDB", "sum.golang.org"), ("GONOSUMDB", "*.company.test"))
    assert go_proxy(file, {}) == (Registry("https", "go.test", 443, "/api/", variables=inside),)
    assert go_proxy(file, {"GOSUMDB": "sum.test+01+key https://mirror.test/sums"}) == (
        Registry(
            "https",
            "go.test",
            443,
            "/api/",
            variables=(("GOSUMDB", "sum.test+01+key"), ("GONOSUMDB", "*.company.test")),
        ),
        Registry("https", "mirror.test", 443, "/sums/"),
    )
    assert go_proxy("GOPROXY=https://proxy.golang.org,direct\n", {}) == USUAL["go"]
    (public,) = go_proxy("", {"GOPROXY": "direct", "GOSUMDB": "off"})
    assert public.host == "proxy.golang.org"


def test_the_mirror_of_maven_comes_with_the_password_of_its_server() -> None:
    mirror = "<mirror><id>m</id><mirrorOf>{of}</mirrorOf><url> https://m.test/maven </url></mirror>"
    settings = (
        '<settings xmlns="http://maven.apache.org/SETTINGS/1.2.0"><mirrors>'
        "<mirror><mirrorOf>*,!central</mirrorOf><url>https://x.test</url></mirror>"
        "<mirror><mirrorOf>*</mirrorOf><url>file:///srv/maven</url></mirror>{mirror}"
        "</mirrors><servers><server><id>m</id><username>me</username><password>p@ss</password>"
        "</server></servers></settings>"
    )
    for of in ("central", "*", "external:*, !own"):
        text = settings.format(mirror=mirror.format(of=of))
        assert maven_repository([text, "not XML"]) == Registry(
            "https", "m.test", 443, "/maven/", "Basic bWU6cEBzcw=="
        )
    other = settings.format(mirror=mirror.format(of="own"))
    assert maven_repository([other]) == USUAL["maven"][0]


@pytest.mark.parametrize("url", ["ftp://a.test/", "file:///srv/simple", "https://", "https://a:x/"])
def test_a_registry_that_is_not_http_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="not a URL of HTTP"):
        Registry.parse(url)


def test_the_settings_are_those_of_the_user_and_not_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").write_text("[global]\nindex-url = https://u.test/simple\n")
    (tmp_path / ".npmrc").write_text("registry=https://n.test/\n")
    (tmp_path / ".config/go").mkdir()
    (tmp_path / ".config/go/env").write_text("GOPROXY=https://g.test\n")
    (tmp_path / ".cargo").mkdir()
    (tmp_path / ".cargo/config.toml").write_text(
        "source = {crates-io = {replace-with = 'c'}, c = {registry = 'sparse+https://c.test/'}}"
    )
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2/settings.xml").write_text(
        "<settings><mirrors><mirror><mirrorOf>*</mirrorOf><url>https://m.test/</url></mirror>"
        "</mirrors></settings>"
    )
    found = read_registries(Environment(variables={}, home=tmp_path))
    assert found["pypi"][0].host == "u.test"
    assert found["npm"][0].host == "n.test"
    assert [found[name][0].host for name in ("crates", "go", "maven")] == [
        "c.test",
        "g.test",
        "m.test",
    ]
    assert len(found["debian"]) == 2


# Routes and variables


def test_nothing_is_set_inside_without_a_list() -> None:
    assert client_variables(NetworkRules(), USUAL) == {}


def test_clients_inside_are_led_to_the_proxy() -> None:
    secret = SecretHost(
        name="tracker", host="t.test:443", value="Bearer 0123456789", variable="TRACKER_URL"
    )
    rules = NetworkRules(allowed=("pypi", "npm", "go", "crates", "maven"), secrets=(secret,))
    variables = client_variables(rules, USUAL)
    assert variables["https_proxy"] == variables["HTTP_PROXY"] == "http://127.0.0.1:31280"
    assert variables["PIP_INDEX_URL"] == "http://pypi.wink.internal/simple/"
    assert variables["npm_config_registry"] == "http://npm.wink.internal/"
    assert variables["YARN_NPM_REGISTRY_SERVER"] == "http://npm.wink.internal"
    assert (variables["GOPROXY"], variables["GOSUMDB"]) == (
        "http://go.wink.internal",
        "sum.golang.org",
    )
    assert variables["TRACKER_URL"] == "http://tracker.wink.internal"
    assert not any("0123456789" in value for value in variables.values())


def test_the_files_of_the_public_index_are_on_a_route_of_their_own() -> None:
    table = RouteTable(NetworkRules(allowed=("pypi",)), USUAL)
    route = table.find("pypi.wink.internal", "/-/files.pythonhosted.org/packages/x.whl")
    assert route is not None
    assert route.origin.host == "files.pythonhosted.org"
    assert route.path_outside("/-/files.pythonhosted.org/packages/x.whl") == "/packages/x.whl"
    assert table.find("npm.wink.internal", "/x") is None
    assert table.find("deb.debian.org", "/debian/x") is None


def test_clients_that_read_no_variables_get_files_in_their_own_directories() -> None:
    rules = NetworkRules(allowed=("crates", "maven", "plugins.example:443"))
    files = client_files(rules, USUAL, {"HOME": "/tmp", "CARGO_HOME": "/opt/project/cargo"})
    cargo, maven, gradle = files.values()
    assert list(files) == [
        *("/opt/project/cargo/config.toml", "/tmp/.m2/settings.xml"),
        "/tmp/.gradle/init.d/wink.gradle",
    ]
    assert '"sparse+http://crates.wink.internal/"' in cargo
    assert "<url>http://maven.wink.internal/maven2/</url>" in maven
    assert 'it.url = "http://maven.wink.internal/maven2/"' in gradle
    assert '!(it.url.host in ["plugins.example"])' in gradle
    assert client_files(NetworkRules(allowed=("pypi",)), USUAL, {"HOME": "/tmp"}) == {}


def test_the_settings_of_clients_are_never_written_into_the_workspace() -> None:
    routes = RouteTable(NetworkRules(allowed=("crates",)), USUAL)
    with closing(NetworkLink(Proxy(routes, CanaryDialer()), USUAL)) as link:
        for home in ("/workspace/home", "relative", "/tmp/a=b"):
            assert not any("/" in name for name in link.environment({"HOME": home}))
        assert "/tmp/.cargo/config.toml" in link.environment({"HOME": "/tmp"})


@pytest.mark.parametrize(
    ("url", "outside"),
    [
        ("crates.wink.internal/config.json", "index.crates.io/config.json"),
        ("crates.wink.internal/se/rd/serde", "index.crates.io/se/rd/serde"),
        (
            "crates.wink.internal/-/static.crates.io/crates/serde/serde-1.0.0.crate",
            "static.crates.io/crates/serde/serde-1.0.0.crate",
        ),
        ("go.wink.internal/example.org/m/@v/list", "proxy.golang.org/example.org/m/@v/list"),
        ("go.wink.internal/sumdb/sum.golang.org/supported", "sum.golang.org/latest"),
        ("go.wink.internal/sumdb/sum.golang.org/tile/8/0/000", "sum.golang.org/tile/8/0/000"),
        ("maven.wink.internal/maven2/a/b/1/b-1.pom", "repo1.maven.org/maven2/a/b/1/b-1.pom"),
    ],
)
def test_the_urls_of_a_registry_lead_to_its_hosts(url: str, outside: str) -> None:
    table = RouteTable(NetworkRules(allowed=("crates", "go", "maven")), USUAL)
    host, path = url.split("/", 1)
    route = table.find(host, f"/{path}")
    assert route is not None
    assert route.is_read_only
    assert route.origin.host + route.path_outside(f"/{path}") == outside


@pytest.mark.parametrize(
    ("url", "private", "local"),
    [
        ("https://mirror.test/simple", (), False),
        ("https://mirror.test/simple", ("mirror.test",), True),
        ("http://localhost:3141/simple", (), True),
        ("http://10.0.0.1/simple", (), True),
    ],
)
def test_a_registry_may_be_private_and_local_only_where_the_user_says_so(
    url: str, private: tuple[str, ...], local: bool
) -> None:
    registries = {**USUAL, "pypi": (Registry.parse(url),)}
    table = RouteTable(NetworkRules(allowed=("pypi",), private=private), registries)
    route = table.find("pypi.wink.internal", "/simple/x")
    assert route is not None
    assert (route.origin.private, route.origin.local) == (True, local)


# The user's own proxy


@pytest.mark.parametrize(
    ("variables", "proxy"),
    [
        ({}, ""),
        ({"https_proxy": "http://p.test:3128"}, "p.test:3128"),
        ({"HTTPS_PROXY": "p.test"}, "p.test:80"),
        ({"ALL_PROXY": "http://p.test:1"}, "p.test:1"),
        ({"HTTP_PROXY": "http://p.test:1"}, ""),
        ({"https_proxy": "http://p.test:1", "no_proxy": "*"}, ""),
        ({"https_proxy": "http://p.test:1", "no_proxy": "x.test, .example.org"}, ""),
        ({"https_proxy": "http://p.test:1", "no_proxy": "ample.org"}, "p.test:1"),
    ],
)
def test_the_proxy_of_the_user_is_found_as_clients_find_it(
    variables: dict[str, str], proxy: str
) -> None:
    origin = Origin("https", "api.example.org", 443)
    found = upstream_proxy(Environment(variables=variables), origin)
    assert ("" if found is None else f"{found.host}:{found.port}") == proxy


@pytest.mark.parametrize("url", ["socks5://p.test:1", "https://p.test", "http://p.test:x"])
def test_a_proxy_of_another_kind_is_refused(url: str) -> None:
    environment = Environment(variables={"https_proxy": url})
    with pytest.raises(DialError, match="not a URL"):
        upstream_proxy(environment, Origin("https", "api.example.org", 443))


# Replaced texts


@given(
    st.lists(
        st.sampled_from([b"https://a/", b"https", b"://a/", b"x", b"h", b"secret"]), max_size=30
    ),
    st.integers(1, 9),
)
def test_texts_are_replaced_wherever_a_stream_is_cut(parts: list[bytes], size: int) -> None:
    data = b"".join(parts)
    replacer = Replacer(((b"https://a/", b"[link]"), (b"secret", b"[gone]")))
    pieces = [replacer.feed(data[at : at + size]) for at in range(0, len(data), size)]
    replaced = b"".join(pieces) + replacer.finish()
    assert replaced == data.replace(b"https://a/", b"[link]").replace(b"secret", b"[gone]")


def test_an_earlier_text_wins_over_one_that_it_contains() -> None:
    replacer = Replacer(((b"Bearer abc", b"[1]"), (b"abc", b"[2]")))
    got = b"".join(map(replacer.feed, (b"x Bea", b"rer a", b"bc abc B", b"earer")))
    assert got + replacer.finish() == b"x [1] [2] Bearer"


def test_nothing_is_held_back_that_cannot_be_the_start_of_a_text() -> None:
    assert Replacer(((b"secret", b""),)).feed(b"data: event\n\n") == b"data: event\n\n"


@given(st.binary(max_size=200))
def test_any_bytes_are_a_head_an_incomplete_head_or_refused(data: bytes) -> None:
    with suppress(RequestRefusedError):
        assert head_length(data, 1_000) in (0, data.find(b"\r\n\r\n") + 4)
