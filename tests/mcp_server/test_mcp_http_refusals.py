"""Requests that a server refuses over HTTP: the status, and that nothing changes."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_harness import Harness, HttpServer, started
from random_cases import examples
from raw_http import INITIALIZE, RawClient, Response, received

from wink_workspace.errors import LedgerBusyError
from wink_workspace.workspace import Workspace, WorkspaceReader, WorkspaceStorage

TOKEN = "t0ken-that-must-not-show"
BODY_BYTES = 200_000
OPTIONS = {"token": TOKEN, "body_bytes": BODY_BYTES, "max_sessions": 2}

pytestmark = pytest.mark.xdist_group("mcp refusals")  # the tests share two servers

Served = tuple[Harness, HttpServer]


@contextmanager
def serving(folder: Path, **options: float) -> Iterator[Served]:
    harness = Harness(folder)
    script = Path(__file__).parent / "http_server.py"
    state = harness.root / "state" / "wink-workspace"
    given = json.dumps({**OPTIONS, **options})
    command = [sys.executable, str(script), str(harness.source), str(state), given]
    with started(command, harness.environment) as server:
        yield harness, server
        assert server.end() == 0
    assert TOKEN not in server.stderr
    assert "Traceback" not in server.stderr


@contextmanager
def nothing_changes(served: Served) -> Iterator[RawClient]:
    harness, server = served
    yield RawClient(server.port, TOKEN)
    assert harness.workspaces() == []
    assert harness.source_files() == harness.files


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("refusals")) as served:
        yield served


@pytest.fixture(scope="module")
def short_timeouts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with short timeouts; on a busy machine other tests could exceed them."""
    with serving(tmp_path_factory.mktemp("short_timeouts"), body_timeout_s=0.4) as served:
        yield served


@pytest.fixture
def client(shared: Served) -> Iterator[RawClient]:
    """A client of a server whose workspaces must not change."""
    with nothing_changes(shared) as client:
        yield client


@pytest.fixture
def slow_client(short_timeouts: Served) -> Iterator[RawClient]:
    """A client of a server with short timeouts, whose workspaces must not change."""
    with nothing_changes(short_timeouts) as client:
        yield client


def call(name: str, **arguments: object) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


WRITE = call("write_file", file_path="new", content="x")


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer wrong", f"Bearer {TOKEN}x", f"Bearer x{TOKEN}", f"Basic {TOKEN}",
     TOKEN, f"Bearer {TOKEN[:-1]}", "Bearer \u00e9"],
)  # fmt: skip
def test_request_without_the_token_is_unauthorized(
    client: RawClient, authorization: str | None
) -> None:
    for body in (INITIALIZE, WRITE, b"no json"):
        response = client.send(body, Authorization=authorization)
        assert response.status == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert TOKEN.encode() not in response.body
    for method in ("GET", "DELETE", "PUT"):
        assert client.send(method=method, Authorization=authorization).status == 401


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "https://127.0.0.1.evil.example", "null", "http://127.0.0.1@evil.example",
     "file://", "", "http://evil.example:80/127.0.0.1", "http://[::2]", "http://[", "http://[::1",
     "http://[::1].evil.example", "https://]", "http://[::1]]"],
)  # fmt: skip
def test_request_from_a_foreign_origin_is_forbidden(client: RawClient, origin: str) -> None:
    assert client.send(INITIALIZE, Origin=origin).status == 403
    assert client.send(WRITE, Origin=origin).status == 403


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "", "127.0.0.1.evil.example", "[::1].evil.example", "[::1"],
)
def test_request_for_another_host_is_misdirected(client: RawClient, host: str) -> None:
    assert client.send(INITIALIZE, Host=host).status == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "[::1]:99", "127.0.0.1"])
def test_hosts_and_origins_of_this_machine_are_accepted(client: RawClient, host: str) -> None:
    response = client.send(INITIALIZE, Host=host, Origin=f"http://{host}")
    assert response.status == 200
    gone = client.send(method="DELETE", Mcp_Session_Id=response.headers["mcp-session-id"])
    assert gone.status in (200, 204)


@pytest.mark.parametrize("name", ["Host", "Authorization", "Origin", "Mcp-Session-Id"])
def test_repeated_header_is_refused(client: RawClient, name: str) -> None:
    value = client.headers().get(name, "http://localhost")
    twice = ((name, value), (name, value))
    changes = {name.replace("-", "_"): None}
    assert client.send(INITIALIZE, more_headers=twice, **changes).status == 400


def test_other_paths_methods_and_content_are_refused(client: RawClient) -> None:
    assert client.send(INITIALIZE, path="/").status == 404
    assert client.send(INITIALIZE, path="/mcp/../x").status == 404
    put = client.send(INITIALIZE, method="PUT")
    assert (put.status, put.headers["allow"]) == (405, "POST, GET, DELETE")
    assert client.send(method="OPTIONS").status == 405
    assert client.send(INITIALIZE, Content_Type="text/plain").status == 415
    assert client.send(INITIALIZE, Content_Type=None).status == 415
    assert client.send(INITIALIZE, Accept="text/html").status == 406


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"no json", b"\xff\xfe", b"[" * 50_000, b"1" * 20_000, b'"text"', b"[]", b"{}",
     b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', b'{"jsonrpc": "2.0", "id": {}, "method": "x"}',
     b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": "\\ud800"}',
     b'{"a":' * 20_000],
)  # fmt: skip
def test_malformed_message_is_a_bad_request(client: RawClient, body: bytes) -> None:
    assert client.send(body).status == 400


def test_valid_json_that_cannot_be_used_is_refused_with_the_id_of_its_request(
    client: RawClient,
) -> None:
    for value in (b'"\\ud800"', b"9" * 5_000):
        body = b'{"jsonrpc": "2.0", "id": 7, "method": "x", "params": {"a": %s}}' % value
        response = client.send(body)
        assert response.status == 400
        assert response.message()["id"] == 7
        assert "lone surrogate" in response.message()["error"]["message"]


def test_request_outside_of_a_session_is_refused(client: RawClient) -> None:
    assert client.send(WRITE).status == 400
    assert client.send(WRITE, Mcp_Session_Id="0" * 32).status == 404
    assert client.send(WRITE, Mcp_Session_Id="../../etc").status == 404
    assert client.send(method="GET", Mcp_Session_Id="0" * 32).status == 404
    assert client.send(method="DELETE", Mcp_Session_Id="0" * 32).status == 404


@pytest.mark.parametrize("version", ["1999-01-01", "x"])
def test_unknown_version_is_refused(client: RawClient, version: str) -> None:
    response = client.send(WRITE, MCP_Protocol_Version=version)
    assert response.status == 400
    assert response.message()["id"] == 7
    for body in (b"{", b"[1]"):
        assert client.send(body, MCP_Protocol_Version=version).message()["id"] is None


def test_oversized_request_is_refused_before_and_after_it_was_sent(client: RawClient) -> None:
    assert client.send(b"", Content_Length=str(BODY_BYTES + 1)).status == 413
    assert client.send(b"", Content_Length="9" * 400).status in (400, 413)
    assert client.send(b"x" * (BODY_BYTES + 1)).status == 413
    chunk = b"%x\r\n%s\r\n" % (50_000, b"x" * 50_000)  # so its size is not known before
    response = client.send(chunk * 5, Content_Length=None, Transfer_Encoding="chunked")
    assert response.status == 413


def test_message_with_too_many_values_is_refused_before_the_library_gets_it(
    client: RawClient,
) -> None:
    """The library needs time for each value, and answers no other request meanwhile."""
    few = json.dumps(call("write_file", content=[0] * 40_000)).encode()
    assert client.send(few).status == 400, "it begins no session"
    for body in (
        json.dumps(call("write_file", content=[0] * 60_000)).encode(),
        b"[" * 60_000,
        b'{"a":' * 33_000 + b"[" * 33_000,
    ):
        assert len(body) < BODY_BYTES
        assert client.send(body).status == 413


def test_string_with_many_separators_counts_as_one_value(shared: Served) -> None:
    text = ',[{"\\' * 20_000
    with session(shared) as (client, named):
        answer = client.send(call("no_such_tool", content=text), **named)
        assert "no tool named" in answer.message()["result"]["content"][0]["text"]


@contextmanager
def session(served: Served) -> Iterator[tuple[RawClient, dict[str, str]]]:
    """A session, as its header; its workspace is deleted after the block."""
    harness, server = served
    client = RawClient(server.port, TOKEN)
    named = {"Mcp_Session_Id": client.send(INITIALIZE).headers["mcp-session-id"]}
    yield client, named
    client.send(method="DELETE", **named)
    for which in harness.workspaces():
        delete_when_free(which, harness.storage)


def first_lines(client: RawClient, **changes: str | None) -> list[bytes]:
    """The headers of the response to a GET, whose body may never end."""
    lines = [f"{n}: {v}" for n, v in client.headers(**changes).items()]
    head = "\r\n".join(["GET /mcp HTTP/1.1", *lines]).encode() + b"\r\n\r\n"
    with socket.create_connection(("127.0.0.1", client.port), 30.0) as connection:
        connection.sendall(head)
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(65_536)
    return data.split(b"\r\n")


@pytest.mark.parametrize("last", ["0", "", "x" * 200, "\u00ff", "_GET_stream"])
def test_request_to_resume_a_stream_starts_a_new_one(shared: Served, last: str) -> None:
    with session(shared) as (client, named):
        lines = first_lines(client, Last_Event_Id=last, **named)
        assert lines[0] == b"HTTP/1.1 200 OK"
        assert b"content-type: text/event-stream" in b"\n".join(lines).lower()


def test_request_with_the_id_of_a_running_one_is_refused_and_that_one_is_answered(
    shared: Served,
) -> None:
    endless = call("evaluate_python", code="while True: pass")
    endless["params"]["_meta"] = {"progressToken": "p"}
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    answers: list[Response] = []
    with session(shared) as (client, named):
        with running_request(client, endless, answers, **named):
            for number in (7, "7", "_GET_stream"):
                for name in ("write_file", "ls", "no_such_tool"):
                    refused = client.send(call(name, file_path="f") | {"id": number}, **named)
                    assert refused.status == 400
                    assert refused.message()["id"] is None
                    assert repr(number) in refused.message()["error"]["message"]
            assert client.send(cancel, **named).status == 202
        assert answers[0].message()["id"] == 7
        assert answers[0].message()["error"]["message"] == "Request cancelled"
        again = client.send(call("ls"), **named).message()
        assert (again["id"], again["result"]["isError"]) == (7, False)
        assert client.send(call("ls"), Accept="text/html", **named).status == 406
        assert client.send(call("ls"), **named).status == 200, "a refused request keeps no id"


@contextmanager
def running_request(
    client: RawClient, body: dict[str, Any], answers: list[Response], **session: str
) -> Iterator[None]:
    """Send *body*; its call runs during the block, and its answer is in *answers* afterwards."""
    content = json.dumps(body).encode()
    headers = {"Content-Length": str(len(content)), **client.headers(**session)}
    lines = ["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    with socket.create_connection(("127.0.0.1", client.port), 30.0) as connection:
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
        begun = b""
        while b"notifications/progress" not in begun:
            begun += connection.recv(65_536)
        yield
        answers.append(received(connection, begun))


ODD_HOSTS = st.sampled_from(
    ["[", "]", "[::1", "[::1]x", "[::1].evil", "[v1.x]", "[fe80::1%eth0]", "a:b:c", ":", "localhost",
     "127.0.0.1:99999999999", "@", "%", "localhost.", "\u00e9", "\x7f", "[[::1]]", "[::1]:x"]
)  # fmt: skip
ODD_TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=12).map(str.strip)
ODD_VALUES = {
    "Host": ODD_HOSTS | ODD_TEXT,
    "Origin": ODD_TEXT
    | st.builds("{}://{}".format, st.sampled_from(["http", "https", "x", ""]), ODD_HOSTS),
    "Content_Length": ODD_TEXT | st.sampled_from(["-1", "+1", "1_0", "\u00b2", "9" * 30, "0"]),
    "Content_Type": ODD_TEXT | st.sampled_from(["application/json;x=\xff", "APPLICATION/JSON"]),
    "Accept": ODD_TEXT | st.sampled_from(["*/*", ",,;;", "application/json", ";q=x"]),
    "Last_Event_ID": ODD_TEXT | st.sampled_from(["0", "_GET_stream"]),
    "Mcp_Session_Id": ODD_TEXT | st.sampled_from(["0" * 32, "a,b", "\u00ff"]),
    "Mcp_Protocol_Version": ODD_TEXT | st.sampled_from(["2025-06-18", "2026-07-28", "9"]),
    "Authorization": ODD_TEXT | st.builds("{} {}".format, st.just("Bearer"), ODD_TEXT),
    "Transfer_Encoding": st.sampled_from(["chunked", "x", "chunked, chunked"]),
    "Expect": st.just("100-continue"),
    "Upgrade": st.just("websocket"),
}
ODD_HEADERS = st.lists(st.sampled_from([*ODD_VALUES]), min_size=1, max_size=3, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: ODD_VALUES[name] for name in names})
)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.sampled_from(["POST", "GET", "DELETE", "PUT", "HEAD"]),
    ODD_HEADERS,
    st.sampled_from([b"", b"{}", json.dumps(WRITE).encode(), b'{"id":1,"method":"x"}']),
)
def test_no_headers_cause_a_server_error(
    shared: Served, method: str, headers: dict[str, str], body: bytes
) -> None:
    """The fixture asserts that no traceback was logged."""
    client = RawClient(shared[1].port, TOKEN)
    lines = [f"{method} /mcp HTTP/1.1"]
    named = {"Content-Length": str(len(body)), **client.headers(**headers)}
    lines += [f"{name}: {value}" for name, value in named.items()]
    request = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
    response = client.send_bytes(request, then_end=True)
    assert response.status < 500
    assert response.status != 200, "none of them names or begins a session"


def test_oversized_headers_are_refused(client: RawClient) -> None:
    assert client.send(INITIALIZE, X_Long="x" * 200_000).status in (0, 400, 431)


@pytest.mark.parametrize(
    "request_bytes",
    [b"\0\1\2\3\r\n\r\n", b"POST\r\n\r\n", b"GET /mcp\r\n\r\n",
     b"POST /mcp HTTP/1.1\r\n\r\n", b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
     b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
     b"POST /mcp HTTP/1.1\r\nHost : a\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"],
)  # fmt: skip
def test_malformed_request_is_a_bad_request(client: RawClient, request_bytes: bytes) -> None:
    assert client.send_bytes(request_bytes).status == 400


def test_body_that_stops_arriving_is_refused(slow_client: RawClient) -> None:
    """The client sends half of the body and then nothing; the connection is closed."""
    assert slow_client.send(b"{", Content_Length="1000", Connection="keep-alive").status == 408


def test_body_that_arrives_too_slowly_is_refused(slow_client: RawClient) -> None:
    head = "\r\n".join(f"{n}: {v}" for n, v in slow_client.headers(Content_Length="100000").items())
    with socket.create_connection(("127.0.0.1", slow_client.port), 30.0) as connection:
        connection.sendall(f"POST /mcp HTTP/1.1\r\n{head}\r\n\r\n".encode())
        connection.settimeout(0.05)
        data = b""
        while not data:
            try:
                connection.sendall(b"{")
                data = connection.recv(65_536)
            except TimeoutError:
                continue
        assert b" 408 " in data.split(b"\r\n")[0]


@pytest.mark.parametrize("sent", [b"", b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-"])
def test_connection_with_incomplete_headers_is_closed(slow_client: RawClient, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", slow_client.port), 30.0) as connection:
        connection.sendall(sent)
        assert received(connection).status == 0


def test_connection_with_incomplete_headers_of_a_second_request_is_closed(
    slow_client: RawClient,
) -> None:
    head = "\r\n".join(f"{n}: {v}" for n, v in slow_client.headers(Connection="keep-alive").items())
    with socket.create_connection(("127.0.0.1", slow_client.port), 30.0) as connection:
        connection.sendall(f"GET /x HTTP/1.1\r\n{head}\r\n\r\n".encode())
        answer = b""
        while not answer.endswith(b"}}"):
            answer += connection.recv(65_536)
        assert b" 404 " in answer
        connection.sendall(b"GET /x HTT")
        assert received(connection).status == 0


def test_truncated_body_does_not_reach_the_library(client: RawClient) -> None:
    request = json.dumps(INITIALIZE).encode()
    lines = [f"{n}: {v}" for n, v in client.headers(Content_Length=str(len(request))).items()]
    head = "\r\n".join(["POST /mcp HTTP/1.1", *lines]).encode() + b"\r\n\r\n"
    response = client.send_bytes(head + request[:-5], then_end=True)
    assert response.status in (0, 400, 408)
    chunked = head.replace(b"Content-Length: %d" % len(request), b"Transfer-Encoding: chunked")
    response = client.send_bytes(chunked + b"ffff\r\n" + request, then_end=True)
    assert response.status in (0, 400, 408)


def test_session_above_the_limit_is_refused_until_another_ends(
    client: RawClient,
) -> None:
    begun = [client.send(INITIALIZE) for _ in range(2)]
    assert [response.status for response in begun] == [200, 200]
    assert client.send(INITIALIZE).status == 503
    sessions = [response.headers["mcp-session-id"] for response in begun]
    assert client.send(method="DELETE", Mcp_Session_Id=sessions[0]).status in (200, 204)
    begun.append(client.send(INITIALIZE))
    assert begun[-1].status == 200
    for session in (sessions[1], begun[-1].headers["mcp-session-id"]):
        assert client.send(method="DELETE", Mcp_Session_Id=session).status in (200, 204)


def test_token_is_not_in_logs_answers_or_history(shared: Served) -> None:
    harness, server = shared
    client = RawClient(server.port, TOKEN)
    begun = client.send(INITIALIZE)
    session = {"Mcp_Session_Id": begun.headers["mcp-session-id"]}
    assert client.send(WRITE, **session).message()["result"]["isError"] is False
    client.send(call("write_file", file_path="../x", content="x"), **session)
    (which,) = harness.workspaces()
    folder = harness.storage.folder(which).path
    assert all(
        TOKEN.encode() not in path.read_bytes() for path in folder.rglob("*") if path.is_file()
    )
    assert TOKEN not in repr(HttpServer) + begun.body.decode()
    client.send(method="DELETE", **session)
    with WorkspaceReader(harness.storage.folder(which)) as reader:
        records = [str(reader.record(entry).data) for entry in reader.log()]
        assert len(records) == 3
        assert TOKEN not in "".join(records)
    delete_when_free(which, harness.storage)


def delete_when_free(which: str, storage: WorkspaceStorage) -> None:
    """Delete a workspace, which the server closes some time after its answer."""
    for n_left in reversed(range(600)):
        try:
            Workspace.delete(which, storage=storage)
        except LedgerBusyError:
            if not n_left:
                raise
            threading.Event().wait(0.05)
        else:
            return
