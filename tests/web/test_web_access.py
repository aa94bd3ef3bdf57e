"""Who may see the pages: nothing is answered without the link of this server."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

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
