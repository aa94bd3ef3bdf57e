"""Malformed messages over stdio: the server answers each one and continues.

Over stdio a crash of the server would end the client's only connection.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp_harness import Harness, exchange
from random_cases import examples
from raw_http import INITIALIZE

pytestmark = pytest.mark.xdist_group("mcp hostile messages")  # the tests share a server

ODD_NAME = b"odd-\xff"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[bytes]]:
    """A server over stdio with a session; at the end its exit code is 0 and no bug is logged."""
    harness = Harness(tmp_path_factory.mktemp("hostile"))
    (harness.source / os.fsdecode(ODD_NAME)).write_bytes(b"odd")
    with harness.stdio_process("--temporary", "--workspace-tools") as process:
        assert process.stdin is not None
        assert process.stderr is not None
        assert (
            exchange(process, **without_version(INITIALIZE))["result"]["serverInfo"]["name"]
            == "wink"
        )
        exchange(process, method="notifications/initialized")
        try:
            yield process
            process.stdin.close()
            assert process.wait(60) == 0
            assert b"Traceback" not in process.stderr.read()
        finally:
            process.kill()


def without_version(message: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name != "jsonrpc"}


PINGS = count(1)


def answers_before_pong(process: subprocess.Popen[bytes], *lines: bytes) -> list[dict[str, Any]]:
    """The server's messages after *lines*, until it answers the ping that follows them.

    Calls are answered in order, so a call follows the lines as well.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    n = next(PINGS)
    last = [
        {"method": "tools/call", "params": {"name": "ls", "arguments": {}}, "id": f"last call {n}"},
        {"method": "ping", "id": f"ping {n}"},
    ]
    sent = [*lines, *(json.dumps({"jsonrpc": "2.0", **each}).encode() for each in last)]
    process.stdin.write(b"\n".join(sent) + b"\n")
    process.stdin.flush()
    waiting = {each["id"] for each in last}
    answers: list[dict[str, Any]] = []
    while waiting:
        answer = json.loads(process.stdout.readline())
        assert answer["jsonrpc"] == "2.0"
        if answer.get("id") in waiting:
            waiting.remove(answer["id"])
            assert "result" in answer
        else:
            answers.append(answer)
    return answers


def request(method: str, number: object = 1, /, **params: object) -> bytes:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return json.dumps(message).encode()


@pytest.mark.parametrize(
    "sent",
    [
        request("resources/read", uri="workspace://files/%FF"),
        request("resources/read", uri="workspace://files/odd-%FF/x"),
        request("resources/list", cursor="%FF/../.."),
    ],
)
def test_error_about_a_name_that_is_not_utf_8_reaches_the_client(
    served: subprocess.Popen[bytes], sent: bytes
) -> None:
    (answer,) = answers_before_pong(served, sent)
    assert answer["id"] == 1
    assert "\\udcff" in answer["error"]["message"]


def test_file_with_a_name_that_is_not_utf_8_is_read(served: subprocess.Popen[bytes]) -> None:
    (answer,) = answers_before_pong(
        served, request("resources/read", uri="workspace://files/odd-%FF")
    )
    assert answer["result"]["contents"][0]["text"] == "odd"


def test_of_concurrent_requests_with_one_id_one_is_answered_and_the_others_refused(
    served: subprocess.Popen[bytes],
) -> None:
    """A refusal with the id would be taken for the answer to the first request."""
    calls = [
        request("tools/call", number, name="ls", arguments={"path": f"none-{n}"})
        for n, number in enumerate([5, "5"] * 5)
    ]
    answers = answers_before_pong(served, *calls)
    assert len(answers) == len(calls)
    answered = [answer for answer in answers if answer["id"] is not None]
    refused = [answer["error"]["message"] for answer in answers if answer["id"] is None]
    assert refused
    assert answered[0]["id"] == 5
    assert "none-0" in answered[0]["result"]["content"][0]["text"]
    assert all("not answered yet" in message for message in refused)
    (again,) = answers_before_pong(served, request("ping", 5))
    assert again["id"] == 5


@pytest.mark.parametrize(
    "line", [b"{", b"no json", b"[]", b'{"jsonrpc": "2.0", "id": {}}', b"\xff"]
)
def test_invalid_line_is_answered_without_an_id(
    served: subprocess.Popen[bytes], line: bytes
) -> None:
    (answer,) = answers_before_pong(served, line)
    assert answer["id"] is None
    assert answer["error"]["code"] == -32700


@pytest.mark.parametrize(
    "arguments",
    [r'{"path": "a\ud83d b"}', r'{"x\udc80": 1}', '{"path": ' + "9" * 5_000 + "}"],
)
def test_valid_json_that_cannot_be_used_is_answered_with_the_id_of_its_request(
    served: subprocess.Popen[bytes], arguments: str
) -> None:
    line = request("tools/call", "odd", name="ls", arguments={}).decode()
    (answer,) = answers_before_pong(served, line.replace("{}", arguments).encode())
    assert answer["id"] == "odd"
    assert answer["error"]["code"] == -32602


def test_line_that_is_too_long_is_answered_and_not_kept(served: subprocess.Popen[bytes]) -> None:
    (answer,) = answers_before_pong(served, request("ping", 1, x="x" * 2**25))
    assert answer["id"] is None
    assert "32 MiB" in answer["error"]["message"]


def test_empty_lines_are_ignored(served: subprocess.Popen[bytes]) -> None:
    assert answers_before_pong(served, b"", b"  ", b"\r") == []


ODD_TEXT = st.sampled_from(
    ["", "\ud800", "\udcff", "\0", "\x1b[2J", "é" * 300, "../..", "app.py", "workspace://files/%FF",
     "workspace://history/" + "9" * 5_000, "workspace://files/" + "a/" * 500, "7", " 7", "\u0661"]
)  # fmt: skip
SCALARS = (
    ODD_TEXT
    | st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, -(2**70), 10**4_000, 1e308, float("inf"), float("nan"), 1.5])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD_TEXT, inner, max_size=3),
    max_leaves=5,
)
METHODS = st.sampled_from(
    ["ping", "tools/call", "tools/list", "resources/read", "resources/list", "prompts/get",
     "prompts/list", "resources/templates/list", "completion/complete", "logging/setLevel",
     "initialize", "server/discover", "notifications/cancelled", "notifications/progress",
     "notifications/initialized", "notifications/none", "rpc.discover", "", "\udcff", "__init__"]
)  # fmt: skip
PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["ls", "read_file", "workspace_log", "none"]) | VALUES,
        "arguments": st.fixed_dictionaries(
            {}, optional={"path": VALUES, "file_path": VALUES, "limit": VALUES}
        )
        | VALUES,
        "uri": VALUES,
        "cursor": VALUES,
        "requestId": VALUES,
        "progressToken": VALUES,
        "_meta": st.fixed_dictionaries(
            {}, optional={"progressToken": VALUES, "traceparent": VALUES}
        )
        | VALUES,
        "protocolVersion": VALUES,
    },
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | VALUES,
        "id": st.sampled_from([1, "1", 2, 10**4_000, "9" * 5_000]) | VALUES,
        "method": METHODS | VALUES,
        "params": PARAMS | VALUES,
        "result": VALUES,
        "error": VALUES,
    },
)
URIS = st.binary(min_size=1, max_size=4).map(lambda name: "workspace://files/" + quote(name))
NEARLY_RIGHT = st.sampled_from(
    [("resources/read", "uri"), ("resources/list", "cursor"), ("tools/call", "name"),
     ("prompts/get", "name"), ("completion/complete", "ref"), ("logging/setLevel", "level")]
).flatmap(
    lambda known: st.builds(
        lambda value, more: request(known[0], 1, **{**more, known[1]: value}),
        URIS if known[1] == "uri" else ODD_TEXT | VALUES,
        PARAMS,
    )
)  # fmt: skip
LINES = (
    MESSAGES.map(lambda message: json.dumps({"jsonrpc": "2.0", **message}).encode())
    | NEARLY_RIGHT
    | NEARLY_RIGHT
    | st.binary(max_size=40).map(lambda line: line.replace(b"\n", b""))
    | st.sampled_from([b"[" * 5_000, b'{"a":' * 5_000, b"1" * 20_000, b'{"id":' + b"1" * 9_000])
)


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(LINES, min_size=1, max_size=6))
def test_server_continues_after_any_messages(
    served: subprocess.Popen[bytes], lines: list[bytes]
) -> None:
    """It answers a later ping and call, and answers no id more often than it was sent."""
    answers = Counter(repr(answer.get("id")) for answer in answers_before_pong(served, *lines))
    del answers["None"]
    sent = Counter(repr(number) for line in lines if (number := id_in(line)) is not None)
    assert answers <= sent


def id_in(line: bytes) -> object:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message.get("id") if isinstance(message, dict) else None
