"""Who may see the pages: nothing is answered without the link of this server."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.types import Message, Receive

from wink_workspace.clock import ManualClock
from wink_workspace.http_server import WebServer, listen
from wink_workspace.web.browser_sessions import AccessGuard

ADDRESS = "127.9.8.7:4321"
LOCATION = f"http://{ADDRESS}"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def guard(clock: ManualClock) -> AccessGuard:
    async def secret(_: object) -> PlainTextResponse:
        return PlainTextResponse("secret")

    guard = AccessGuard(Starlette(routes=[Route("/", secret), Route("/x", secret)]), clock)
    guard.address = ADDRESS
    return guard


@contextmanager
def served(guard: AccessGuard) -> Generator[None]:
    """Answer requests on a loopback port, which is then the guard's address."""
    with contextlib.closing(listen("127.0.0.1", 0)) as listening:
        guard.address = ":".join(map(str, listening.getsockname()[:2]))
        server = WebServer(guard, headers_timeout_s=10, closing_s=1, on_end=lambda: None)
        ready = threading.Event()
        server.when_ready = ready.set
        thread = threading.Thread(target=anyio.run, args=(server.serve, [listening]))
        thread.start()
        assert ready.wait(20)
        try:
            yield
        finally:
            server.end()
            thread.join()


@pytest.fixture
def stranger(guard: AccessGuard) -> TestClient:
    return TestClient(guard, base_url=LOCATION, follow_redirects=False)


@pytest.fixture
def browser(guard: AccessGuard, stranger: TestClient) -> TestClient:
    answer = stranger.get(guard.link())
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    return stranger


@pytest.mark.behaviour(148)
def test_the_link_gives_a_cookie_that_no_script_and_no_other_page_can_use(
    guard: AccessGuard, stranger: TestClient
) -> None:
    cookie = stranger.get(guard.link()).headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "domain" not in cookie
    assert stranger.get("/x").text == "secret"


@pytest.mark.behaviour(148)
def test_a_link_works_once(guard: AccessGuard) -> None:
    link = guard.link()
    for status in (303, 401):
        with TestClient(guard, base_url=LOCATION, follow_redirects=False) as client:
            assert client.get(link).status_code == status


@pytest.mark.behaviour(148)
def test_a_link_ends_after_a_minute_and_with_the_next_one(
    guard: AccessGuard, stranger: TestClient, clock: ManualClock
) -> None:
    first, second = guard.link(), guard.link()
    assert stranger.get(first).status_code == 401
    clock.advance(60)
    assert stranger.get(second).status_code == 401
    assert "secret" not in stranger.get("/x").text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "localhost:4321"}, 421),
        ({"host": "127.9.8.7"}, 421),
        ({"host": "evil.example"}, 421),
        ({"host": f"{ADDRESS}.evil.example"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": f"https://{ADDRESS}"}, 403),
        ({"origin": f"http://{ADDRESS}.evil.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"content-length": "5"}, 413),
        ({"content-length": "x"}, 413),
        ({"transfer-encoding": "chunked"}, 413),
    ],
)
@pytest.mark.behaviour(148)
def test_requests_of_others_are_refused_though_the_cookie_is_right(
    browser: TestClient, headers: dict[str, str], status: int
) -> None:
    answer = browser.get("/x", headers=headers)
    assert answer.status_code == status
    assert "secret" not in answer.text


def test_the_servers_own_page_may_ask(browser: TestClient) -> None:
    own = {"origin": LOCATION, "sec-fetch-site": "same-origin"}
    assert browser.get("/x", headers=own).text == "secret"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_only_reading_is_answered(browser: TestClient, method: str) -> None:
    assert browser.request(method, "/x").status_code == 405


def test_a_header_given_twice_is_refused(browser: TestClient) -> None:
    twice = [("host", ADDRESS), ("host", "evil.example")]
    assert browser.get("/x", headers=twice).status_code == 400


@pytest.mark.parametrize("cookie", ["", "x", "é"])
def test_a_wrong_cookie_is_refused(stranger: TestClient, cookie: str) -> None:
    given = {"cookie": f"wink-workspace={cookie}".encode()}
    assert stranger.get("/x", headers=given).status_code == 401


@pytest.mark.parametrize("path", ["/", "/x", "/missing", "/?token=wrong"])
def test_every_answer_forbids_foreign_scripts_frames_and_caches(
    guard: AccessGuard, browser: TestClient, path: str
) -> None:
    for client in (browser, TestClient(guard, base_url=LOCATION)):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_nothing_is_answered_before_the_address_is_known(
    guard: AccessGuard, browser: TestClient
) -> None:
    guard.address = ""
    assert browser.get("/x").status_code == 421


# Forms


@pytest.fixture
def writing(clock: ManualClock) -> TestClient:
    """A browser that has opened the link of a server that may write."""

    async def echo(request: Request) -> PlainTextResponse:
        return PlainTextResponse(f"done {request.scope['form']}")

    routes = [Route("/x", echo, methods=["POST"])]
    guard = AccessGuard(Starlette(routes=routes), clock, form_token="form-token")
    guard.address = ADDRESS
    client = TestClient(
        guard, base_url=LOCATION, client=("127.0.0.1", 9), headers={"origin": LOCATION}
    )
    client.get(guard.link(), follow_redirects=False)
    return client


@pytest.mark.behaviour(174)
def test_a_form_with_the_token_is_passed_on(writing: TestClient) -> None:
    answer = writing.post("/x", data={"token": "form-token", "name": "ä\x00<b>"})
    assert answer.text == f"done { ({'token': ['form-token'], 'name': ['ä' + chr(0) + '<b>']}) }"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": ""}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": f"{LOCATION}/"}, 403),
        ({"origin": "http://127.9.8.7"}, 403),
        ({"origin": f"https://{ADDRESS}"}, 403),
        ({"host": "localhost:4321"}, 421),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"cookie": ""}, 401),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "multipart/form-data; boundary=x"}, 415),
        ({"content-type": "application/x-www-form-urlencoded; charset=utf-7"}, 415),
        ({"content-length": "-1"}, 411),
        ({"content-length": "1e3"}, 411),
        ({"content-length": "9" * 30}, 411),
        ({"content-length": "1048577"}, 413),
        ({"transfer-encoding": "chunked"}, 411),
    ],
)
@pytest.mark.behaviour(174)
def test_forms_of_other_pages_and_strange_forms_are_refused(
    writing: TestClient, headers: dict[str, str], status: int
) -> None:
    answer = writing.post("/x", data={"token": "form-token"}, headers=headers)
    assert answer.status_code == status
    assert "done" not in answer.text


@pytest.mark.parametrize("body", ["", "token=", "token=wrong", "token=%C3%A9", "name=x", "token=é"])
@pytest.mark.behaviour(174)
def test_a_form_without_the_token_is_refused(writing: TestClient, body: str) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    answer = writing.post("/x", content=body.encode(), headers=headers)
    assert answer.status_code in (400, 403)
    assert "done" not in answer.text


def test_a_form_with_very_many_fields_is_refused(writing: TestClient) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    body = b"token=form-token" + b"&a=" * 50_000
    assert writing.post("/x", content=body, headers=headers).status_code == 400


@pytest.mark.parametrize("host", ["192.0.2.7", "2001:db8::1", "unknown"])
@pytest.mark.behaviour(174)
def test_a_form_from_another_machine_is_refused(writing: TestClient, host: str) -> None:
    elsewhere = TestClient(
        writing.app, base_url=LOCATION, client=(host, 9), headers={"origin": LOCATION}
    )
    elsewhere.cookies = writing.cookies
    answer = elsewhere.post("/x", data={"token": "form-token"})
    assert (answer.status_code, "this machine" in answer.text) == (403, True)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_a_server_that_may_write_accepts_no_other_method(writing: TestClient, method: str) -> None:
    assert writing.request(method, "/x", data={"token": "form-token"}).status_code == 405
    assert writing.get("/x").status_code == 405


def test_a_form_that_is_longer_or_slower_than_it_says_is_refused(
    writing: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "wink_workspace.web.browser_sessions._FORM_TIMEOUT_S", 0.01
    )  # the real one takes ten seconds
    cookie = f"wink-workspace={writing.cookies['wink-workspace']}"
    headers = {
        "host": ADDRESS,
        "origin": LOCATION,
        "cookie": cookie,
        "content-type": "application/x-www-form-urlencoded",
        "content-length": "5",
    }
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/x",
        "query_string": b"",
        "client": ("127.0.0.1", 9),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }

    async def answered(receive: Receive) -> int:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        await writing.app(dict(scope), receive, send)
        return int(sent[0]["status"])

    async def endless() -> Message:
        return {"type": "http.request", "body": b"x" * 100_000, "more_body": True}

    async def slow() -> Message:
        await anyio.sleep_forever()
        raise AssertionError

    async def gone() -> Message:
        return {"type": "http.disconnect"}

    assert anyio.run(answered, endless) == 413
    assert anyio.run(answered, slow) == 408
    assert anyio.run(answered, gone) == 400


def test_a_cookie_works_only_for_the_user_who_opened_the_link(
    guard: AccessGuard, browser: TestClient, tmp_path: Path
) -> None:
    """Each request comes over a connection of its own, by a process of root or of another user."""
    cookie = browser.cookies["wink-workspace"]
    code = (
        "import encodings.idna, http.client, os, sys; os.getuid() or len(sys.argv) < 4 or os.setuid(int(sys.argv[3]));"
        "c = http.client.HTTPConnection(sys.argv[1]); c.request('GET', sys.argv[2],"
        " headers={'Cookie': os.environ['COOKIE']}); r = c.getresponse();"
        "print(r.status, r.getheader('set-cookie', ''))"
    )

    def asked(path: str, cookie: str = "", *user: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-S", "-c", code, guard.address, path, *user],
            env={"COOKIE": cookie}, cwd="/", capture_output=True, text=True, check=True,
        )  # fmt: skip
        status, _, new = done.stdout.strip().partition(" ")
        return int(status), new.partition(";")[0]

    with served(guard):
        status, mine = asked(guard.link().partition(guard.address)[2])
        assert status == 303
        assert asked("/x", mine)[0] == 200
        assert asked("/x", f"wink-workspace={cookie}")[0] == 401, "it is of an unknown user"
        if os.geteuid() == 0:
            assert asked("/x", mine, "65534")[0] == 401


def test_a_link_that_a_page_of_the_browser_opens_leads_on_without_a_redirect(
    guard: AccessGuard, stranger: TestClient
) -> None:
    """After a redirect, the request would count as one of another site, without the cookie."""
    opened = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert stranger.get("/x", headers=opened).status_code == 403
    assert stranger.get(guard.link(), headers={**opened, "sec-fetch-mode": "no-cors"}).is_error
    answer = stranger.get(guard.link(), headers=opened)
    assert (answer.status_code, "url=/" in answer.text) == (200, True)
    assert stranger.get("/x").text == "secret"


def test_the_link_is_used_by_get_only(guard: AccessGuard, stranger: TestClient) -> None:
    link = guard.link()
    assert stranger.head(link).status_code == 401
    assert stranger.get(link).status_code == 303
