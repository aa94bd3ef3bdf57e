"""The proxy: what it lets through, what it refuses, and what it records.

An attempt counts as refused if nothing was connected and no byte reached a server.
"""

from __future__ import annotations

import socket
import ssl
import threading
from dataclasses import replace

import pytest
from proxy_machine import LIMITS, SECRET, ProxyMachine, http, read_all, status_of
from tls_greetings import LISTED, REFUSED, hello, records, server_name

from wink_workspace.sandbox import NetworkRequest


def body_of(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


def request(method: str, target: str, *headers: str, body: str = "") -> str:
    return "\r\n".join((f"{method} {target} HTTP/1.1", *headers, "", body))


def get(url: str, *headers: str) -> str:
    return request("GET", url, f"Host: {url.split('/')[2]}", *headers)


def connect(target: str, *headers: str) -> str:
    return request("CONNECT", target, f"Host: {target}", *headers)


PYPI = "http://pypi.wink.internal/root/simple/six/"
TRACKER = "http://tracker.wink.internal/issues"
IN_HEADER = "Host: pypi.wink.internal"

ATTEMPTS: dict[str, tuple[str | bytes, int]] = {
    # hosts and addresses
    "an unlisted host": (connect("evil.test:443"), 403),
    "a listed host at another port": (connect("api.test:22"), 403),
    "a listed host without a port": (connect("api.test"), 403),
    "a port that is not a number": (connect("api.test:https"), 403),
    "port 0": (connect("api.test:0"), 403),
    "port 65979, which is 443 modulo 65536": (connect("api.test:65979"), 403),
    "a name that begins like a listed one": (connect("api.test.evil.test:PORT"), 403),
    "a name that ends like a listed one": (connect("evil-api.test:PORT"), 403),
    "a subdomain of a listed host": (connect("x.api.test:PORT"), 403),
    "loopback by address": (connect("127.0.0.1:PORT"), 403),
    "loopback by short address": (connect("127.1:PORT"), 403),
    "loopback by number": (connect("2130706433:PORT"), 403),
    "loopback in hexadecimal": (connect("0x7f000001:PORT"), 403),
    "loopback in octal": (connect("0177.0.0.1:PORT"), 403),
    "loopback in IPv6": (connect("[::1]:PORT"), 403),
    "IPv4 in IPv6": (connect("[::ffff:127.0.0.1]:PORT"), 403),
    "an address with a zone": (connect("[fe80::1%25eth0]:PORT"), 403),
    "the metadata service": (connect("169.254.169.254:80"), 403),
    "localhost": (connect("localhost:PORT"), 403),
    "a user before the host": (connect("user@api.test:PORT"), 403),
    "a listed host as user": (connect("api.test:PORT@evil.test:443"), 403),
    "a NUL in the name": (b"CONNECT api.test\0.evil.test:443 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "full-width letters": ("CONNECT \xef\xbd\x81pi.test:443 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "a path in CONNECT": (connect("api.test:PORT/x"), 403),
    "another name in Host": (request("CONNECT", "api.test:PORT", "Host: evil.test:443"), 400),
    # forms of requests
    "plain HTTP to a listed host": (get("http://api.test/"), 403),
    "plain HTTP to an unlisted host": (get("http://evil.test/"), 403),
    "https without CONNECT": (get("https://api.test/"), 400),
    "ftp": (get("ftp://evil.test/"), 400),
    "file": (request("GET", "file:///etc/passwd", "Host: x"), 400),
    "asterisk": (request("OPTIONS", "*", IN_HEADER), 400),
    "no host": (b"GET / HTTP/1.0\r\n\r\n", 400),
    "a URL of another host than Host": (request("GET", PYPI, "Host: evil.test"), 400),
    "Host of another host than the URL": (request("GET", "http://evil.test/", IN_HEADER), 400),
    "two Host headers": (request("GET", PYPI, IN_HEADER, IN_HEADER), 400),
    "an unknown method": (request("TRACE", PYPI, IN_HEADER), 405),
    "upload of a package": (request("PUT", PYPI, IN_HEADER, "Content-Length: 0"), 405),
    "POST to a registry": (request("POST", PYPI, IN_HEADER, "Content-Length: 1", body="x"), 405),
    "a body with GET": (request("GET", PYPI, IN_HEADER, "Content-Length: 1", body="x"), 400),
    "a chunked body with GET": (
        request("GET", PYPI, IN_HEADER, "Transfer-Encoding: chunked", body="0\r\n\r\n"),
        400,
    ),
    "a name of ours without a list": (get("http://debian.wink.internal/debian/"), 403),
    "another name of ours": (get("http://probe.wink.internal/"), 403),
    # paths
    "a path outside of the registry": (get("http://pypi.wink.internal/other/"), 403),
    "dots in the path": (get("http://pypi.wink.internal/root/../admin"), 400),
    "encoded dots": (get("http://pypi.wink.internal/root/%2e%2e/admin"), 400),
    "an encoded slash with dots": (get("http://pypi.wink.internal/root/..%2fadmin"), 400),
    "a backslash with dots": (get("http://pypi.wink.internal/root/..%5cadmin"), 400),
    "two slashes": (request("GET", "//evil.test/x", IN_HEADER), 400),
    "an encoded line feed": (get("http://pypi.wink.internal/root/%0d%0aHost:x"), 400),
    "a fragment": (get("http://pypi.wink.internal/root/#x"), 400),
    "a path of 20,000 characters": (get(f"http://pypi.wink.internal/root/{'a' * 20_000}"), 431),
    # heads that two parsers read differently
    "two lengths": (
        request(
            "POST",
            TRACKER,
            "Host: tracker.wink.internal",
            "Content-Length: 4",
            "Transfer-Encoding: chunked",
            body="0\r\n\r\n",
        ),
        400,
    ),
    "two different Content-Length": (
        request(
            "POST",
            TRACKER,
            "Host: tracker.wink.internal",
            "Content-Length: 1",
            "Content-Length: 2",
            body="x",
        ),
        400,
    ),
    "Transfer-Encoding in disguise": (
        request(
            "POST",
            TRACKER,
            "Host: tracker.wink.internal",
            "Transfer-Encoding: xchunked",
            body="0\r\n\r\n",
        ),
        400,
    ),
    "a space before the colon": (
        request("POST", TRACKER, "Host: tracker.wink.internal", "Content-Length : 4"),
        400,
    ),
    "a folded header": (request("GET", PYPI, IN_HEADER, "X: a", " Host: evil.test"), 400),
    "a bare line feed": (f"GET {PYPI} HTTP/1.1\nHost: evil.test\r\n\r\n", 400),
    "a bare carriage return": (f"GET {PYPI} HTTP/1.1\r\nX: a\rHost: evil.test\r\n\r\n", 400),
    "an empty line first": (f"\r\n{get(PYPI)}", 400),
    "a NUL in a header": (request("GET", PYPI, IN_HEADER, "X: a\0b"), 400),
    "a head of 100,000 bytes": (request("GET", PYPI, IN_HEADER, f"X: {'a' * 100_000}"), 431),
    "3,000 headers": (request("GET", PYPI, IN_HEADER, *(["X: a"] * 3_000)), 431),
    "half a head": (f"GET {PYPI} HTTP/1.1\r\nHost: pypi.wink", 400),
    "nothing": (b"", 400),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "TLS to the proxy": (records(hello(server_name(LISTED))) + b"\r\n\r\n", 400),
    "SOCKS 5": (b"\x05\x01\x00" + b"\x05\x01\x00\x03\x08api.test\x01\xbb\r\n\r\n", 400),
    "HTTP 0.9": (b"GET /\r\n\r\n", 400),
    "HTTP 1.1 as 3.0": (b"GET / HTTP/3.0\r\nHost: x\r\n\r\n", 505),
}


def test_there_are_at_least_90_attempts() -> None:
    assert len(ATTEMPTS) + len(REFUSED) >= 90


@pytest.mark.behaviour(102)
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_an_attempt_connects_nothing_and_is_recorded(proxy: ProxyMachine, attempt: str) -> None:
    data, status = ATTEMPTS[attempt]
    if isinstance(data, str):
        data = data.encode("latin-1")
    answer = proxy.ask(data.replace(b"PORT", str(proxy.tls_port).encode()))
    assert status_of(answer) == status, answer
    (record,) = proxy.requests()
    assert record.status == status
    assert record.problem
    assert record.n_sent == 0
    assert proxy.dialer.connected == []
    assert proxy.resolved == []
    assert proxy.reached.connections == 0


@pytest.mark.behaviour(102)
@pytest.mark.parametrize("attempt", REFUSED)
def test_what_is_not_tls_to_the_host_does_not_leave_a_tunnel(
    proxy: ProxyMachine, attempt: str
) -> None:
    with proxy.tunnel() as client:
        client.sendall(REFUSED[attempt])
        answer = read_all(client)
    assert answer == bytes((21, 3, 3, 0, 2, 2, 112))  # an alert of TLS
    assert proxy.dialer.connected == []
    (record,) = proxy.requests()
    assert (record.method, record.status, record.n_sent) == ("CONNECT", 200, 0)
    assert record.problem


REBINDING = {
    "loopback": ["127.0.0.1"],
    "private": ["10.1.2.3"],
    "IPv6 loopback": ["::1"],
    "metadata": ["169.254.169.254"],
    "IPv4 in IPv6": ["::ffff:93.184.216.34"],
    "NAT64": ["64:ff9b::5db8:d822"],
    "a zone": ["fe80::1%eth0"],
    "the internal network of a provider": ["100.64.0.1"],
    "a global and a private one": ["93.184.216.34", "192.168.0.1"],
    "none": [],
}


@pytest.mark.behaviour(102)
@pytest.mark.parametrize("addresses", REBINDING.values(), ids=REBINDING)
def test_a_listed_name_that_leads_to_a_refused_address_is_not_connected(
    proxy: ProxyMachine, addresses: list[str]
) -> None:
    proxy.reset(allowed=("rebound.test:443",))
    proxy.addresses["rebound.test"] = [addresses]
    answer = proxy.ask(connect("rebound.test:443"))
    assert status_of(answer) in (403, 502)
    assert proxy.dialer.connected == []
    assert "rebound.test" in proxy.requests()[0].problem


def test_the_address_that_was_checked_is_connected(proxy: ProxyMachine) -> None:
    """A resolver that changes its answer has no effect: it is asked once."""
    proxy.addresses["api.test"] = [["127.0.0.1"], ["10.0.0.1"]]
    assert b"hello" in over_tls(proxy, "api.test")
    assert proxy.resolved == ["api.test"]
    assert proxy.dialer.connected == [("127.0.0.1",)]


def test_a_private_permission_does_not_permit_the_metadata_service(proxy: ProxyMachine) -> None:
    proxy.addresses["api.test"] = [["169.254.169.254"]]
    assert status_of(proxy.ask(connect(f"api.test:{proxy.tls_port}"))) == 403
    assert proxy.dialer.connected == []


# Tunnels


def over_tls(proxy: ProxyMachine, host: str, port: int | None = None) -> bytes:
    """The answer to a request through a tunnel, with real TLS from end to end."""
    context = ssl.create_default_context(cafile=proxy.ca_file)
    port = port or proxy.tls_port
    with (
        proxy.tunnel(f"{host}:{port}") as client,
        context.wrap_socket(client, server_hostname=host) as secured,
    ):
        secured.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        answer = b""
        while piece := secured.recv(65_536):
            answer += piece
    return answer


def test_a_listed_host_is_reached_with_tls_from_end_to_end(proxy: ProxyMachine) -> None:
    assert b"hello" in over_tls(proxy, "api.test")
    (record,) = proxy.requests()
    assert (record.method, record.host, record.status) == (
        "CONNECT",
        f"api.test:{proxy.tls_port}",
        200,
    )
    assert record.n_sent > 100
    assert record.n_received > 500
    assert not record.problem


def test_a_listed_host_is_found_in_upper_case_and_with_a_final_dot(proxy: ProxyMachine) -> None:
    with proxy.tunnel(f"API.Test.:{proxy.tls_port}"):
        pass
    assert proxy.requests()[0].host == f"api.test:{proxy.tls_port}"


def test_a_server_that_asks_for_a_second_greeting_is_reached(proxy: ProxyMachine) -> None:
    assert b"hello" in over_tls(proxy, "retry.test", proxy.retrying_port)


def test_large_answers_arrive_whole(proxy: ProxyMachine) -> None:
    proxy.answers["api.test"] = lambda _: http(b"x" * 3_000_000)
    assert len(body_of(over_tls(proxy, "api.test"))) == 3_000_000


def test_a_host_that_cannot_be_reached_is_reported(proxy: ProxyMachine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    proxy.reset(allowed=(f"api.test:{port}",))
    with proxy.tunnel(f"api.test:{port}") as client:
        client.sendall(records(hello(server_name("api.test"))))
        assert read_all(client)[:1] == b"\x15"
    assert f"api.test:{port} cannot be reached" in proxy.requests()[0].problem


# Registries


def test_a_registry_is_read_and_its_links_stay_on_the_proxy(proxy: ProxyMachine) -> None:
    root = f"https://pypi.test:{proxy.tls_port}/root/"
    page = f'<a href="{root}files/six.whl#sha256=1">six</a> <a href="https://evil.test/x">x</a>'
    proxy.answers["pypi.test"] = lambda _: http(page, "Content-Type: text/html", "Set-Cookie: a=b")
    answer = proxy.get(
        PYPI,
        "Authorization: Basic stolen",
        "Cookie: a=b",
        "X-Data: out",
        "User-Agent: data",
        "Accept: text/html",
        "Accept-Encoding: gzip",
        "Proxy-Authorization: x",
    )
    assert status_of(answer) == 200
    assert b'"http://pypi.wink.internal/root/files/six.whl#sha256=1"' in answer
    assert b'"https://evil.test/x"' in answer
    assert b"cookie" not in answer.lower()
    (head,) = proxy.reached.heads
    assert head.decode().lower().split("\r\n") == [
        "get /root/simple/six/ http/1.1",
        f"host: pypi.test:{proxy.tls_port}",
        "accept-encoding: identity",
        "connection: close",
        "accept: text/html",
        "user-agent: wink-workspace",
        "authorization: basic dxnlcg==",  # the user's own, from the settings of the client
        "",
        "",
    ]
    (record,) = proxy.requests()
    assert record == NetworkRequest(
        method="GET",
        host="pypi.wink.internal",
        path="/root/simple/six/",
        status=200,
        n_sent=record.n_sent,
        n_received=record.n_received,
    )
    assert record.n_sent == len(head)


@pytest.mark.parametrize(
    ("agent", "replaced"), [("npm/9.2.0 node/v18", False), ("yarn/1.22 npm/?", True), ("", True)]
)
def test_npm_gets_the_public_links_for_its_lock_file_and_other_clients_those_of_the_proxy(
    proxy: ProxyMachine, agent: str, replaced: bool
) -> None:
    root = f"https://npm.test:{proxy.tls_port}/"
    proxy.answers["npm.test"] = lambda _: http(
        f'{{"dist": {{"tarball": "{root}once/-/once-1.4.0.tgz"}}}}',
        "Content-Type: application/vnd.npm.install-v1+json; charset=utf-8",
    )
    answer = proxy.get("http://npm.wink.internal/once", f"User-Agent: {agent}")
    shown = "http://npm.wink.internal/" if replaced else root
    assert f'"tarball": "{shown}once/-/once-1.4.0.tgz"'.encode() in answer


def test_a_tunnel_to_a_name_of_the_proxy_leads_to_its_registry_and_nowhere_else(
    proxy: ProxyMachine,
) -> None:
    """Yarn opens a tunnel for plain HTTP, too."""
    for inner, status in (
        (get("http://npm.wink.internal/x"), 200),
        ("GET /x HTTP/1.1\r\nHost: npm.wink.internal\r\n\r\n", 200),
        (get("http://pypi.wink.internal/root/simple/x/"), 400),
        (connect("npm.wink.internal:80"), 400),
        (connect(f"api.test:{proxy.tls_port}"), 400),
    ):
        with proxy.tunnel("npm.wink.internal:80") as client:
            client.sendall(inner.encode())
            assert status_of(read_all(client)) == status
    assert {each.host for each in proxy.requests()[:2]} == {"npm.wink.internal"}
    assert [head.split()[1] for head in proxy.reached.heads] == [b"/x", b"/x"]
    for target in ("npm.wink.internal:443", "none.wink.internal:80"):
        assert status_of(proxy.ask(connect(target))) == 403


def test_the_files_of_crates_and_the_checksums_of_go_are_found_through_the_proxy(
    proxy: ProxyMachine,
) -> None:
    origin = f"https://crates.test:{proxy.tls_port}"
    proxy.answers["crates.test"] = lambda _: http(
        f'{{"dl": "{origin}/api/v1/crates", "api": "{origin}"}}'  # any type, or none
    )
    answer = proxy.get("http://crates.wink.internal/api/index/config.json")
    assert b'"dl": "http://crates.wink.internal/api/v1/crates"' in answer
    assert status_of(proxy.get("http://crates.wink.internal/api/v1/crates/a/1/download")) == 200
    assert status_of(proxy.get("http://crates.wink.internal/elsewhere")) == 403
    for path in ("supported", "lookup/a.test@v1.0.0"):
        assert status_of(proxy.get(f"http://go.wink.internal/sumdb/sum.test/{path}")) == 200
    asked = [head.split()[1] for head in proxy.reached.heads]
    assert asked[2:] == [b"/latest", b"/lookup/a.test@v1.0.0"]


def test_a_registry_answers_without_a_proxy_setting_too(proxy: ProxyMachine) -> None:
    answer = proxy.ask("GET /lodash HTTP/1.1\r\nHost: npm.wink.internal:31280\r\n\r\n")
    assert b"hello" in answer


def test_debian_is_read_at_its_usual_name_from_the_archive_of_this_machine(
    proxy: ProxyMachine,
) -> None:
    proxy.reset(allowed=("debian",))
    assert b"hello" in proxy.get("http://deb.debian.org/debian/dists/stable/InRelease")
    assert b"hello" in proxy.get("http://security.debian.org/debian-security/dists/x")
    assert status_of(proxy.get("http://deb.debian.org/other/")) == 403
    paths = [head.split()[1] for head in proxy.reached.heads]
    assert paths == [b"/debian/dists/stable/InRelease", b"/security/debian-security/dists/x"]


def test_a_redirection_is_passed_on_and_not_followed(proxy: ProxyMachine) -> None:
    proxy.answers["npm.test"] = lambda _: http(
        "", "Location: https://evil.test/", status="302 Found"
    )
    answer = proxy.get("http://npm.wink.internal/x")
    assert status_of(answer) == 302
    assert proxy.reached.connections == 1
    assert "evil.test" not in proxy.resolved


def test_a_second_request_on_the_same_connection_is_discarded(proxy: ProxyMachine) -> None:
    first, second = get(PYPI), get("http://npm.wink.internal/second")
    answer = proxy.ask(first + second)
    assert answer.count(b"HTTP/1.1") == 1
    assert b"Connection: close" in answer
    assert len(proxy.reached.heads) == len(proxy.requests()) == 1


def test_a_connection_cannot_be_upgraded(proxy: ProxyMachine) -> None:
    proxy.answers["npm.test"] = lambda _: b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"
    headers = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x")
    assert status_of(proxy.get("http://npm.wink.internal/x", *headers)) == 502
    assert b"pgrade" not in proxy.reached.heads[0]


def test_head_and_range_requests_work(proxy: ProxyMachine) -> None:
    answer = proxy.get("http://npm.wink.internal/x", "Range: bytes=0-1", method="HEAD")
    assert status_of(answer) == 200
    assert body_of(answer) == b""
    assert b"range: bytes=0-1" in proxy.reached.heads[0].lower()


BROKEN = {
    "no answer": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-",
    "not HTTP": b"220 mail.test ESMTP\r\n\r\n",
    "a head of 100,000 bytes": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    "a line feed in a header": b"HTTP/1.1 200 OK\r\nX: a\nY\r\n\r\n",
}


@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN)
def test_a_malformed_answer_is_an_error_for_the_client(proxy: ProxyMachine, answer: bytes) -> None:
    proxy.answers["npm.test"] = lambda _: answer
    assert status_of(proxy.get("http://npm.wink.internal/x")) == 502
    assert proxy.requests()[0].problem


def test_an_answer_that_ends_early_is_cut_off_for_the_client(proxy: ProxyMachine) -> None:
    whole = http(b"x" * 1_000)
    proxy.answers["npm.test"] = lambda _: whole[:-10]
    answer = proxy.get("http://npm.wink.internal/x")
    assert b"Content-Length: 1000" in answer or b"content-length: 1000" in answer
    assert len(body_of(answer)) == 990
    assert proxy.requests()[0].problem


def test_a_registry_with_the_certificate_of_another_host_is_refused(proxy: ProxyMachine) -> None:
    proxy.reset(secrets=())
    route = proxy.proxy._routes.find("npm.wink.internal", "/x")
    assert route is not None
    origin = replace(route.origin, port=proxy.stranger_port)
    proxy.proxy._routes._routes = [replace(route, origin=origin)]
    answer = proxy.get("http://npm.wink.internal/x")
    assert status_of(answer) == 502
    assert b"certificate is not valid" in answer
    assert proxy.reached.heads == []


# Secrets


@pytest.mark.behaviour(104)
def test_a_service_gets_the_secret_that_the_sandbox_never_sees(proxy: ProxyMachine) -> None:
    proxy.answers["tracker.test"] = lambda head: http(
        b"you sent " + head, f"X-Echo: {SECRET}", "Set-Cookie: session=1", status=f"200 {SECRET}"
    )
    answer = proxy.get(
        f"{TRACKER}?state=open",
        "Authorization: Bearer from-inside",
        "Range: bytes=0-5",
        "Content-Type: application/json",
        "Content-Length: 14",
        method="POST",
        body='{"title": "x"}',
    )
    assert status_of(answer) == 200
    (head,), (body,) = proxy.reached.heads, proxy.reached.bodies
    assert head.startswith(b"POST /issues?state=open HTTP/1.1\r\n")
    assert head.lower().count(b"authorization:") == 1
    assert SECRET.encode() in head
    assert b"from-inside" not in head
    assert b"range:" not in head.lower()
    assert body == b'{"title": "x"}'
    assert b"you sent" in answer
    assert b"0123456789-the-secret" not in answer
    assert b"[secret]" in answer
    assert SECRET not in repr(proxy.requests())


@pytest.mark.behaviour(146)
@pytest.mark.parametrize(
    "answer",
    [
        f"HTTP/1.1 200 OK\r\nYou sent {SECRET}\r\n\r\n",
        f"HTTP/1.1 {SECRET}\r\n\r\n",
        f"{SECRET}\r\n\r\n",
        f"HTTP/1.1 200 OK\r\nX-{SECRET.rpartition(' ')[2]}: 1\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_an_answer_whose_head_repeats_the_secret_shows_it_nowhere(
    proxy: ProxyMachine, answer: str
) -> None:
    proxy.answers["tracker.test"] = lambda _: answer.encode()
    shown = proxy.get(TRACKER) + repr(proxy.requests()).encode()
    assert b"the-secret" not in shown.lower()


def test_a_chunked_request_reaches_the_service(proxy: ProxyMachine) -> None:
    answer = proxy.get(
        TRACKER,
        "Transfer-Encoding: chunked",
        method="POST",
        body="5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
    )
    assert b"hello" in answer
    assert b"hello" in proxy.reached.bodies[0]


def test_a_secret_is_sent_to_its_host_only(proxy: ProxyMachine) -> None:
    for host, path in (("pypi", "/root/simple/"), ("npm", "/x")):
        proxy.get(f"http://{host}.wink.internal{path}")
    assert len(proxy.reached.heads) == 2
    assert not any(b"the-secret" in head for head in proxy.reached.heads)


def test_a_compressed_answer_could_hide_the_secret_and_is_refused(proxy: ProxyMachine) -> None:
    proxy.answers["tracker.test"] = lambda _: http(b"x", "Content-Encoding: gzip")
    assert status_of(proxy.get(TRACKER)) == 502


def test_a_secret_needs_tls_with_the_right_certificate(proxy: ProxyMachine) -> None:
    route = proxy.proxy._routes.find("tracker.wink.internal", "/")
    assert route is not None
    origin = replace(route.origin, port=proxy.stranger_port)
    proxy.proxy._routes._routes = [replace(route, origin=origin)]
    assert status_of(proxy.get(TRACKER)) == 502
    assert proxy.reached.heads == []


# Limits


def test_a_client_that_sends_its_head_slowly_is_answered_and_closed(proxy: ProxyMachine) -> None:
    proxy.reset(limits=replace(LIMITS, head_s=0.2))
    with proxy.connect() as client:
        client.settimeout(10)
        client.sendall(b"GET / HTT")
        assert status_of(client.recv(65_536)) == 408


def test_a_tunnel_without_a_greeting_is_closed(proxy: ProxyMachine) -> None:
    proxy.reset(limits=replace(LIMITS, head_s=0.2))
    with proxy.tunnel() as client:
        client.settimeout(10)
        client.sendall(records(hello(server_name("api.test")))[:40])
        assert client.recv(65_536)[:1] == b"\x15"
    assert "in time" in proxy.requests()[0].problem


def test_a_connection_that_is_silent_on_both_sides_is_closed(proxy: ProxyMachine) -> None:
    proxy.reset(limits=replace(LIMITS, idle_s=0.3))
    with proxy.connect() as client:
        client.settimeout(10)
        head = request("POST", TRACKER, "Host: tracker.wink.internal", "Content-Length: 10")
        client.sendall(head.encode())
        assert status_of(client.recv(65_536)) == 504  # both sides wait for the body


def test_a_body_that_ends_early_is_refused_and_one_that_comes_later_is_sent(
    proxy: ProxyMachine,
) -> None:
    head = request("POST", TRACKER, "Host: tracker.wink.internal", "Content-Length: 10")
    assert status_of(proxy.ask(f"{head}short")) == 502
    assert proxy.reached.bodies == []
    with proxy.connect() as client:
        client.sendall(f"{head}01".encode())
        client.sendall(b"23456789")
        assert b"hello" in read_all(client)
    assert proxy.reached.bodies == [b"0123456789"]


@pytest.mark.parametrize(
    ("limit", "value"),
    [("requests", 1), ("received_bytes", 100_000), ("sent_bytes", 300), ("longest_s", 0.3)],
)
def test_a_command_that_exceeds_a_limit_is_cut_off_with_the_reason(
    proxy: ProxyMachine, limit: str, value: float
) -> None:
    proxy.reset(limits=replace(LIMITS, **{limit: value}))
    proxy.answers["npm.test"] = lambda _: http(b"x" * 1_000_000)
    if limit == "longest_s":
        with proxy.tunnel() as client:
            client.settimeout(10)
            assert client.recv(1) == b""
        assert "too long" in proxy.requests()[0].problem
        return
    for _ in range(4):
        proxy.get("http://npm.wink.internal/x")
    assert any("more than" in each.problem for each in proxy.requests())
    assert proxy.reached.connections < 4


def test_connections_beyond_the_limit_wait(proxy: ProxyMachine) -> None:
    proxy.reset(limits=replace(LIMITS, connections=1))
    with proxy.tunnel():
        done: list[bytes] = []
        waiting = threading.Thread(target=lambda: done.append(proxy.get(PYPI)))
        waiting.start()
        assert not done
    waiting.join()
    assert b"hello" in done[0]


def test_more_requests_than_are_recorded_are_counted(proxy: ProxyMachine) -> None:
    for _ in range(203):
        proxy.ask(b"x")
    records_ = proxy.requests()
    assert len(records_) == 201
    assert records_[-1].problem == "3 more requests are not listed"


# The list and the user's own proxy


def test_the_active_list_is_shown_inside(proxy: ProxyMachine) -> None:
    answer = proxy.get("http://list.wink.internal/")
    assert b"pypi (read only)" in answer
    assert b"tracker -> tracker.test:" in answer
    assert b"the-secret" not in answer


def test_a_refusal_names_what_is_listed(proxy: ProxyMachine) -> None:
    answer = proxy.ask(connect("evil.test:443"))
    assert b"403 evil.test:443 is not on the network list of this sandbox\r\n" in answer
    assert b"(read only), go (read only), maven (read only), api.test:" in answer
    assert b"reached over TLS only" not in answer


def test_the_users_own_proxy_is_asked_for_the_listed_host(proxy: ProxyMachine) -> None:
    """Our proxy stands in for the user's: it is asked for the host, which it must list, too."""
    seen: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                seen.append(connection.recv(65_536))
                connection.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve, args=(listener,))
        serving.start()
        url = f"http://me:pass@127.0.0.1:{listener.getsockname()[1]}"
        proxy.reset(variables={"HTTPS_PROXY": url, "NO_PROXY": "npm.test"})
        answer = proxy.get(PYPI)
        with proxy.tunnel() as client:
            client.sendall(records(hello(server_name("api.test"))))
            assert read_all(client)[:1] == b"\x15"
        serving.join()
        assert b"hello" in proxy.get("http://npm.wink.internal/x")  # direct
    assert status_of(answer) == 502
    assert b"407" in answer
    port = proxy.tls_port
    assert [head.split(b"\r\n")[0] for head in seen] == [
        f"CONNECT pypi.test:{port} HTTP/1.1".encode(),
        f"CONNECT api.test:{port} HTTP/1.1".encode(),
    ]
    assert b"Proxy-Authorization: Basic bWU6cGFzcw==" in seen[0]
    assert status_of(proxy.ask(connect("evil.test:443"))) == 403


@pytest.mark.behaviour(146)
@pytest.mark.parametrize("answer", [b"HTTP/1.1 bWU6cGFzcw== no\r\n\r\n", b"bWU6cGFzcw==" * 8_192])
def test_the_answer_of_the_users_proxy_is_not_quoted(proxy: ProxyMachine, answer: bytes) -> None:
    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(answer)
            read_all(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve, args=(listener,))
        serving.start()
        url = f"http://me:pass@127.0.0.1:{listener.getsockname()[1]}"
        proxy.reset(variables={"HTTPS_PROXY": url})
        shown = proxy.get(PYPI)
        serving.join()
    assert status_of(shown) == 502
    assert b"bWU6" not in shown + repr(proxy.requests()).encode()
