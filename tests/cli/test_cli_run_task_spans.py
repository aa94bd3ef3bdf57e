"""The spans of a run at an OTLP collector: what arrives there, and what does not."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from cli_user import ANTHROPIC, RUNNER, SHORT_RUN, CliUser
from model_server import KEY, Call, Turn
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

COLLECTOR_TOKEN = "collector-token-0123456789"
SECRET = "correct horse battery staple"


class Collector:
    """An OTLP receiver over HTTP on loopback that stores each request."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.headers: list[str] = []
        self.bodies: list[bytes] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                """Log nothing; the tests read the stored requests."""

            def do_POST(self) -> None:
                collector.paths.append(self.path)
                collector.headers.append(str(self.headers))
                collector.bodies.append(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=lambda: self._server.serve_forever(0.02))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for body in self.bodies
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


def run(user: CliUser, **variables: str) -> subprocess.CompletedProcess[str]:
    command = ["run", "Fix the line numbers.", "--repo", str(user.source), "--model", ANTHROPIC]
    return subprocess.run(
        [sys.executable, "-c", RUNNER, *command],
        env={**os.environ, "OTEL_TRACES_EXPORTER": "otlp", **variables},
        capture_output=True, text=True,
    )  # fmt: skip


def test_spans_arrive_over_otlp_without_keys_or_contents(
    user: CliUser, collector: Collector
) -> None:
    (user.source / "leak.txt").write_text(f"key = {KEY}\n{SECRET}\n")
    leak = Turn(f"It says {KEY}.", (Call("read_file", {"file_path": "leak.txt"}),))
    user.serve(leak, *SHORT_RUN)
    done = run(
        user,
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
        OTEL_EXPORTER_OTLP_HEADERS=f"x-token={COLLECTOR_TOKEN}",
    )
    assert done.returncode == 0, done.stderr
    assert set(collector.paths) == {"/v1/traces"}
    spans = {span.span_id: span for span in collector.spans}
    names = [span.name for span in spans.values()]
    assert names.count("chat claude-sonnet-5") == 4
    assert names.count("execute_tool read_file") == 2
    (whole,) = [span for span in spans.values() if not span.parent_span_id]
    assert whole.name == "invoke_agent run"
    assert len({span.trace_id for span in spans.values()}) == 1
    assert all(COLLECTOR_TOKEN in headers for headers in collector.headers), (
        "the collector gets its own token"
    )
    sent = b"".join(collector.bodies) + "".join(collector.headers).encode()
    for private in (KEY, SECRET, "lineno + 1", "Fix the line numbers"):
        assert private.encode() not in sent, private
    assert COLLECTOR_TOKEN.encode() not in b"".join(collector.bodies)
    assert COLLECTOR_TOKEN not in done.stdout + done.stderr


def test_unknown_otlp_protocol_is_wrong_usage(user: CliUser) -> None:
    user.serve(*SHORT_RUN)
    done = run(user, OTEL_EXPORTER_OTLP_TRACES_PROTOCOL="carrier/pigeon")
    assert done.returncode == 2
    assert "'carrier/pigeon'" in done.stderr
    assert user.workspaces == []
