"""Who may see the pages: nothing is answered without the link of this server."""

from __future__ import annotations

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.types import Message, Receive

from wink_workspace.clock import ManualClock
from wink_workspace.web.access import AccessGuard

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
        "wink_workspace.web.access._FORM_TIMEOUT_S", 0.01
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


def test_the_link_is_used_by_get_only(guard: AccessGuard, stranger: TestClient) -> None:
    link = guard.link()
    assert stranger.head(link).status_code == 401
    assert stranger.get(link).status_code == 303
