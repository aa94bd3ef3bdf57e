"""``run TASK`` against aimock, an independent mock server that is checked against the providers.

The other mock server of the tests sends what we assume of the providers, so it can share our errors.
``scripts/setup`` installs a pinned version with the Node.js that it needs. All traffic is on
loopback.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_user import CHECK, READ, SEARCH, WIRES, CliUser, edit
from model_server import KEY, Call

from wink_workspace.environment import Environment

CHECKS = Path(sys.prefix) / "mcp-checks" / "node_modules"
AIMOCK = CHECKS / "@copilotkit" / "aimock" / "dist" / "cli.js"

TOKENS = {
    "input_tokens": 10, "output_tokens": 5,
    "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
}  # fmt: skip


def says(text: str, **calls: Any) -> dict[str, Any]:
    """A turn; the keyword names are the ids of its calls."""
    made = [{"id": name, "name": call.name, "arguments": call.text} for name, call in calls.items()]
    return {"content": text, "usage": TOKENS, **({"toolCalls": made} if made else {})}


def fails(status: int, kind: str, message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"type": kind, "message": message, **more}, "status": status}


TWO_EDITS = says(
    "Two edits of one file, in one turn.",
    wrong=edit("{self.lineno}:", "{self.lineno + 2}:"),
    other=edit("class ParseError(Exception):", "class ParseError(ValueError):"),
)
STEPS: list[dict[str, Any]] = [
    {
        "match": {"userMessage": "The run was interrupted here"},
        "response": says("The line numbers count from 1 now."),
    },
    {"match": {"hasToolResult": False}, "response": says("I search first.", search=SEARCH)},
    {
        "match": {"toolCallId": "search", "sequenceIndex": 0},
        "response": {**fails(429, "rate_limit_error", "slow down"), "retryAfter": 1},
    },
    {
        "match": {"toolCallId": "search", "sequenceIndex": 1},
        "response": says(
            "", read=READ, cut=Call("edit_file", '{"file_path": "ini'), none=Call("fix_it", {})
        ),
    },
    {
        "match": {"toolCallId": "none", "sequenceIndex": 0},
        "response": TWO_EDITS,
        "truncateAfterChunks": 5,
    },
    {"match": {"toolCallId": "none", "sequenceIndex": 1}, "response": TWO_EDITS},
    {"match": {"toolCallId": "other"}, "response": says("", first=CHECK)},
    {
        "match": {"toolCallId": "first"},
        "response": says("", again=edit("{self.lineno + 2}:", "{self.lineno + 1}:"), second=CHECK),
    },
    {
        "match": {"toolCallId": "second"},
        "response": fails(
            400, "invalid_request_error", "prompt is too long", code="context_length_exceeded"
        ),
    },
]
"""The answer to each request; the first match wins."""


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The URL of aimock; without it tests are skipped, and fail in CI."""
    nodes = sorted(CHECKS.glob("node-linux-*/bin/node"))
    if not nodes or not AIMOCK.exists():
        reason = "aimock is not installed; run scripts/setup where there is npm"
        if Environment.from_os().is_ci:
            pytest.fail(reason)
        pytest.skip(reason)
    fixtures = tmp_path / "fixtures.json"
    fixtures.write_text(json.dumps({"fixtures": STEPS}))
    server = subprocess.Popen(
        [nodes[0], AIMOCK, "--port", "0", "--fixtures", fixtures, "--strict"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert server.stdout
    try:
        lines: list[str] = []
        for line in server.stdout:
            lines.append(line)
            if found := re.search(r"listening on (http://127\.0\.0\.1:\d+)", line):
                yield found.group(1)
                return
        pytest.fail("aimock did not start to listen: " + "".join(lines))
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize("model", WIRES)
def test_run_against_aimock_survives_errors_and_is_resumed(
    user: CliUser, monkeypatch: pytest.MonkeyPatch, url: str, model: str
) -> None:
    for provider, path in (("OPENAI", "/v1"), ("ANTHROPIC", "")):
        monkeypatch.setenv(f"{provider}_API_KEY", KEY)
        monkeypatch.setenv(f"{provider}_BASE_URL", url + path)
    user("run", "Fix.", "--repo", user.source, "--model", model, "--sandbox", "asteval", fails=1)
    printed = user.err
    assert "is too long" in printed
    for expected in (
        "I search first.",
        "limits the rate",
        "broke",
        "no tool named 'fix_it'",
    ):
        assert expected in printed, expected
    marks = Counter(line[0] for line in printed.splitlines() if line.startswith(("✓", "↩")))
    assert marks == {"✓": 6, "↩": 3}, "the cut arguments, the unknown tool, the failing check"
    out = user("run", "--repo", user.source, "--resume", "--apply", "--yes")
    assert "The line numbers count from 1 now." in out
    assert "tokens: 60 in, 30 out" in user.err
    assert user.faulty_file.read_text() == user.fixed_text.replace("(Exception)", "(ValueError)")
    asked = json.loads(urllib.request.urlopen(f"{url}/__aimock/journal").read())
    statuses = [request["response"]["status"] for request in asked]
    assert statuses == [200, 429, 200, 200, 200, 200, 200, 400, 200]
