"""The conformance suite and the Inspector of MCP, run against our server.

``scripts/setup`` installs both, pinned, with the Node.js they need. All traffic is on loopback.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp_harness import COMMAND, Harness, started

from wink_workspace.environment import Environment

pytestmark = pytest.mark.xdist_group("mcp inspector")  # the tests share a server

CHECKS = Path(sys.prefix) / "mcp-checks" / "node_modules"
CONFORMANCE = CHECKS / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
INSPECTOR = CHECKS / "@modelcontextprotocol" / "inspector" / "clients/launcher/build/index.js"
WATCHDOG_S = 180.0

APPLICABLE = {
    "server-initialize",
    "ping",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-error",
    "tools-call-with-progress",
    "server-sse-multiple-streams",
    "resources-list",
    "prompts-list",
    "dns-rebinding-protection",
}

NO_SUCH_FIXTURE = (
    "it asks for a resource or prompt of the suite's own, and ours are the workspace's"
)
NO_MEDIA = "tools give text and structured values; none gives images, sound or resources"
NO_REQUESTS = "the server asks nothing of its client"
NOT_APPLICABLE = {
    "logging-set-level": "no logging over the protocol, which has deprecated it",
    "tools-call-with-logging": "no logging over the protocol, which has deprecated it",
    "completion-complete": "no completions are offered",
    "tools-call-image": NO_MEDIA,
    "tools-call-audio": NO_MEDIA,
    "tools-call-embedded-resource": NO_MEDIA,
    "tools-call-mixed-content": NO_MEDIA,
    "tools-call-sampling": NO_REQUESTS,
    "tools-call-elicitation": NO_REQUESTS,
    "elicitation-sep1034-defaults": NO_REQUESTS,
    "elicitation-sep1330-enums": NO_REQUESTS,
    "resources-read-text": NO_SUCH_FIXTURE,
    "resources-read-binary": NO_SUCH_FIXTURE,
    "resources-templates-read": NO_SUCH_FIXTURE,
    "prompts-get-simple": NO_SUCH_FIXTURE,
    "prompts-get-with-args": NO_SUCH_FIXTURE,
    "prompts-get-embedded-resource": NO_SUCH_FIXTURE,
    "prompts-get-with-image": NO_SUCH_FIXTURE,
    "resources-subscribe": "no subscriptions are offered",
    "resources-unsubscribe": "no subscriptions are offered",
}


@pytest.fixture(scope="module")
def node() -> str:
    """Node.js with the packages; without it the tests are skipped, or fail in automatic builds."""
    found = sorted(CHECKS.glob("node-linux-*/bin/node"))
    missing = [path for path in (CONFORMANCE, INSPECTOR) if not path.exists()]
    if found and not missing:
        return str(found[0])
    reason = "the protocol's test tools are not installed; run scripts/setup where there is npm"
    if Environment.from_os().is_ci:
        pytest.fail(reason)
    pytest.skip(reason)


def run_node(
    node: str, *arguments: str, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    home = {"PATH": str(Path(node).parent) + os.pathsep + environment["PATH"], "NO_COLOR": "1"}
    return subprocess.run(
        [node, *arguments],
        env={**environment, **home},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
    )


def test_every_applicable_conformance_scenario_passes(node: str, harness: Harness) -> None:
    script = Path(__file__).parent / "conformance_server.py"
    state = harness.root / "state" / "wink-workspace"
    results = harness.root / "results"
    with started(
        [sys.executable, str(script), str(harness.source), str(state)], harness.environment
    ) as s:
        suite = run_node(
            node, str(CONFORMANCE), "server", "--url", s.url, "--suite", "active", "-o",
            str(results), environment=harness.environment,
        )  # fmt: skip
    summary = suite.stdout.partition("=== SUMMARY ===")[2]
    outcomes = {
        line.split(":")[0].split()[1]: line[0] == "✓"
        for line in summary.splitlines()
        if line.startswith(("✓", "✗"))
    }
    assert outcomes.keys() == APPLICABLE | NOT_APPLICABLE.keys(), "the suite has other scenarios"
    failed = {name for name, passed in outcomes.items() if not passed}
    assert not failed & APPLICABLE, suite.stdout + suite.stderr
    assert failed == NOT_APPLICABLE.keys(), "a reason that no longer holds"


@pytest.fixture(scope="module")
def http_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Harness, list[str]]]:
    """A server over HTTP, and the options with which the Inspector reaches it."""
    harness, token = Harness(tmp_path_factory.mktemp("inspected")), "inspected"
    with harness.over_http("--workspace-tools", "--temporary", WINK_WORKSPACE_TOKEN=token) as s:
        bearer = f"Authorization: Bearer {token}"
        yield harness, [s.url, "--transport", "http", "--header", bearer]


@pytest.fixture
def stdio_target(harness: Harness) -> tuple[Harness, list[str]]:
    """The same for a server over stdio."""
    options = ["mcp", "--repo", str(harness.source), "--workspace-tools", "--temporary"]
    config = harness.root / "inspector.json"
    server = {"command": COMMAND[0], "args": [*COMMAND[1:], *options], "env": harness.environment}
    config.write_text(json.dumps({"mcpServers": {"ours": server}}))
    return harness, ["--config", str(config), "--server", "ours"]


@pytest.fixture(params=["stdio", "http"])
def inspect(request: pytest.FixtureRequest, node: str) -> Callable[..., Any]:
    """Run the Inspector's command line; returns the JSON that it prints."""
    harness, target = request.getfixturevalue(f"{request.param}_target")

    def run(*arguments: str) -> Any:
        done = run_node(
            node, str(INSPECTOR), "--cli", *target, *arguments, environment=harness.environment
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    return run


@pytest.mark.share(1)
def test_inspector_finds_no_fault_with_the_tools_and_calls_one(inspect: Any) -> None:
    tools = inspect("--method", "tools/list", "--strict")["tools"]
    assert {"read_file", "workspace_undo"} <= {tool["name"] for tool in tools}
    called = inspect(
        "--method", "tools/call", "--tool-name", "read_file", "--tool-arg", "file_path=app.py"
    )
    assert called["content"][0]["text"] == "app.py, all 1 line\n\n     1\tprint('helo')"


@pytest.mark.parametrize("inspect", ["http"], indirect=True)
def test_inspector_reads_resources_and_lists_prompts(inspect: Any) -> None:
    resources = inspect("--method", "resources/list")["resources"]
    assert "workspace://files/app.py" in [resource["uri"] for resource in resources]
    read = inspect("--method", "resources/read", "--uri", "workspace://files/app.py")
    assert read["contents"][0]["text"] == "print('helo')\n"
    prompts = inspect("--method", "prompts/list")["prompts"]
    assert "react" in [prompt["name"] for prompt in prompts]
