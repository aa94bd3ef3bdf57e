"""Telemetry of a server: one span for each call, below its client's, without content."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from mcp_harness import WATCHDOG_S, Harness, run, text_of
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode
from raw_http import INITIALIZE, RawClient
from recorded_spans import Spans, attributes, recorded_spans

from wink_workspace.clock import Cancellation
from wink_workspace.mcp_server import Catalog, HostedWorkspace
from wink_workspace.mcp_server.hosting import WorkspaceProvider
from wink_workspace.runtime import RemoteClient
from wink_workspace.sections import AstevalSection
from wink_workspace.workspace import Workspace

SECRET = "correct horse battery staple"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def harness(harness: Harness) -> Harness:
    (harness.source / "secret.txt").write_text(SECRET)
    return harness


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


def call_all(harness: Harness, *, traces_content: bool = False) -> None:
    async def test() -> None:
        async with harness.client(traces_content=traces_content) as client:
            for name, arguments in CALLS:
                await client.call_tool(name, arguments)
            await client.read_resource("workspace://files/secret.txt")

    run(test)


def test_each_call_is_one_span_below_the_span_of_its_client(harness: Harness, spans: Spans) -> None:
    call_all(harness)
    tree = dict(spans.tree())
    names = ["read_file", "edit_file", "workspace_diff", "workspace_undo", "unknown"]
    assert [span.name for span in served(spans)] == [f"tools/call {name}" for name in names]
    for name in names[:-1]:
        assert tree[f"tools/call {name}"] == f"MCP send tools/call {name}"
    assert tree["tools/call unknown"] == f"MCP send tools/call {SECRET}"


def test_span_of_a_call_has_attributes_of_both_conventions_and_its_outcome(
    harness: Harness, spans: Spans
) -> None:
    call_all(harness)
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


def test_spans_have_no_content_by_default(harness: Harness, spans: Spans) -> None:
    call_all(harness)
    assert SECRET not in "".join(span.to_json() for span in served(spans))


def test_requested_content_is_in_the_spans(harness: Harness, spans: Spans) -> None:
    call_all(harness, traces_content=True)
    read = attributes(served(spans)[0])
    assert "secret.txt" in read["gen_ai.tool.call.arguments"]
    assert SECRET in read["gen_ai.tool.call.result"]


def test_content_in_spans_is_redacted(harness: Harness, spans: Spans) -> None:
    async def test() -> None:
        def redact(text: str) -> str:
            return text.replace(SECRET, "[KEY]")

        async with harness.client(traces_content=True, redact=redact) as client:
            answer = await client.call_tool("grep", {"pattern": SECRET})
            assert SECRET not in text_of(answer)

    run(test)
    (call,) = served(spans)
    assert attributes(call)["gen_ai.tool.call.arguments"].count("[KEY]") == 1
    assert "[KEY]" in attributes(call)["gen_ai.tool.call.result"]
    assert SECRET not in call.to_json()


def test_call_whose_content_cannot_be_redacted_fails_and_spans_lack_its_content(
    harness: Harness, spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        def redact(text: str) -> str:
            raise ValueError(text)

        async with harness.client(traces_content=True, redact=redact) as client:
            answer = await client.call_tool("read_file", {"file_path": "secret.txt"})
            assert answer.is_error
            assert SECRET not in text_of(answer)

    run(test)
    (call,) = served(spans)
    assert "gen_ai.tool.call.arguments" not in attributes(call)
    assert "The redactor raised ValueError" in caplog.text
    assert SECRET not in caplog.text


def test_a_cancelled_call_has_a_span_that_says_so_even_if_it_never_began(
    harness: Harness, spans: Spans
) -> None:
    """The first call keeps the workspace busy until it is cancelled; the second waits."""
    provider = WorkspaceProvider(
        lambda _: Workspace.create(harness.source, storage=harness.storage)
    )
    hosted = HostedWorkspace(provider, Catalog([AstevalSection()]))
    client = RemoteClient("tools/call", {}, {})
    runs, cancellation = threading.Event(), Cancellation()
    endless = {"code": "while True: pass"}
    try:
        running = hosted.call(
            "evaluate_python", endless, cancellation=cancellation, on_beat=runs.set, client=client
        )
        assert runs.wait(WATCHDOG_S)
        waiting = hosted.call(
            "evaluate_python", endless, cancellation=Cancellation(), client=client
        )
        assert waiting.cancel()
        (never_began,) = served(spans)
        cancellation.cancel()
        assert not running.result(WATCHDOG_S).success
    finally:
        hosted.close().result(WATCHDOG_S)
    for span in served(spans):
        assert span.name == "tools/call evaluate_python"
        assert attributes(span)["error.type"] == "cancelled"
        assert span.status.status_code is StatusCode.ERROR
    assert len(served(spans)) == 2
    assert never_began in served(spans)


def test_the_command_exports_spans_with_the_session_and_parent_sent_over_http(
    harness: Harness,
) -> None:
    meta = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    params = {"name": "ls", "arguments": {}, "_meta": meta}
    variables = {
        "OTEL_TRACES_EXPORTER": "console",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true",
        "SOME_TOKEN": "secret.txt",
    }
    with harness.over_http("--temporary", **variables) as server:
        client = RawClient(server.port)
        session = client.send(INITIALIZE).headers["mcp-session-id"]
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = client.send(call, Mcp_Session_Id=session)
        assert answer.message()["result"]["isError"] is False
        assert "[SOME_TOKEN]" in answer.body.decode()
        assert "secret.txt" not in answer.body.decode()
        assert server.end() == 0
    assert '"name": "tools/call ls"' in server.stderr
    assert f'"parent_id": "0x{PARENT}"' in server.stderr
    assert f'"trace_id": "0x{TRACE}"' in server.stderr
    assert f'"mcp.session.id": "{session}"' in server.stderr
    assert '"network.transport": "tcp"' in server.stderr
    assert "[SOME_TOKEN]" in server.stderr
    assert "secret.txt" not in server.stderr
