"""What telemetry sees of a server: one span for each call, below its client's, and no content."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mcp_rig import Rig, run
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode
from raw_http import INITIALIZE, RawClient
from span_rig import Spans, attributes, recorded_spans

SECRET = "correct horse battery staple"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def rig(rig: Rig) -> Rig:
    (rig.source / "secret.txt").write_text(SECRET)
    return rig


@pytest.fixture
def spans() -> Iterator[Spans]:
    with recorded_spans() as spans:
        yield spans


def served(spans: Spans) -> list[ReadableSpan]:
    return [span for span in spans.all if span.kind is SpanKind.SERVER]


CALLS = [
    ("read_file", {"file_path": "secret.txt"}),
    ("edit_file", {"file_path": "app.py", "old_string": SECRET, "new_string": SECRET + "!"}),
    ("workspace_diff", {}),
    ("workspace_undo", {}),
    (SECRET, {"path": SECRET}),
]


def call_all(rig: Rig, *, traces_content: bool = False) -> None:
    async def test() -> None:
        async with rig.client(traces_content=traces_content) as client:
            for name, arguments in CALLS:
                await client.call_tool(name, arguments)
            await client.read_resource("workspace://files/secret.txt")

    run(test)


def test_each_call_is_one_span_below_that_of_its_client(rig: Rig, spans: Spans) -> None:
    call_all(rig)
    tree = dict(spans.tree())
    names = ["read_file", "edit_file", "workspace_diff", "workspace_undo", "unknown"]
    assert [span.name for span in served(spans)] == [f"tools/call {name}" for name in names]
    for name in names[:-1]:
        assert tree[f"tools/call {name}"] == f"MCP send tools/call {name}"
    assert tree["tools/call unknown"] == f"MCP send tools/call {SECRET}"


def test_a_call_has_the_names_of_both_conventions_and_its_outcome(rig: Rig, spans: Spans) -> None:
    call_all(rig)
    read, refused, diff, undo, unknown = served(spans)
    known = attributes(read)
    assert known["gen_ai.operation.name"] == "execute_tool"
    assert known["gen_ai.tool.name"] == "read_file"
    assert known["mcp.method.name"] == "tools/call"
    assert known["mcp.protocol.version"].startswith("20")
    assert known["jsonrpc.request.id"]
    assert known["wink_workspace.transaction.outcome"] == "committed"
    assert read.status.status_code is StatusCode.UNSET
    assert attributes(refused)["error.type"] == "refused"
    assert attributes(refused)["wink_workspace.policy.refused_by"]
    assert diff.status.status_code is StatusCode.UNSET
    for failed in (undo, unknown):
        assert attributes(failed)["error.type"] == "tool_error"
        assert failed.status.status_code is StatusCode.ERROR


def test_no_content_is_in_a_span_unless_asked_for(rig: Rig, spans: Spans) -> None:
    call_all(rig)
    assert SECRET not in "".join(span.to_json() for span in served(spans))


def test_content_that_is_asked_for_is_in_the_spans(rig: Rig, spans: Spans) -> None:
    call_all(rig, traces_content=True)
    read = attributes(served(spans)[0])
    assert "secret.txt" in read["gen_ai.tool.call.arguments"]
    assert SECRET in read["gen_ai.tool.call.result"]


def test_the_command_exports_spans_with_the_session_and_the_parent_that_came_over_http(
    rig: Rig,
) -> None:
    meta = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    params = {"name": "ls", "arguments": {}, "_meta": meta}
    with rig.over_http("--temporary", OTEL_TRACES_EXPORTER="console") as server:
        client = RawClient(server.port)
        session = client.send(INITIALIZE).headers["mcp-session-id"]
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = client.send(call, Mcp_Session_Id=session)
        assert answer.message()["result"]["isError"] is False
        assert server.end() == 0
    assert '"name": "tools/call ls"' in server.said
    assert f'"parent_id": "0x{PARENT}"' in server.said
    assert f'"trace_id": "0x{TRACE}"' in server.said
    assert f'"mcp.session.id": "{session}"' in server.said
    assert '"network.transport": "tcp"' in server.said
