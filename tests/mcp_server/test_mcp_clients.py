"""Claude Code, Codex and opencode work in a workspace through the MCP server. Run by ``make clients``."""

from __future__ import annotations

import base64
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agent_programs import AgentProgram, AgentRun, ClaudeCode, Codex, HttpServer, Opencode, Server
from mcp_harness import started
from model_server import Call, ModelServer, Turn

from wink_workspace.mcp_server import Catalog

pytestmark = pytest.mark.clients

WINK = Path(sys.executable).with_name("wink-workspace")
OPTIONS = ("--workspace-tools", "--sandbox", "none")
TOKEN = "t0ken-of-the-tests"
NUMBERED = "     1\tdef greet():\n     2\t    return 'helo \"you\"'"
DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)
PROGRAMS: list[AgentProgram] = [ClaudeCode, Codex, Opencode]


@dataclass
class Client:
    """A project, and a program that works on it in a home of its own."""

    program: AgentProgram
    root: Path

    def __post_init__(self) -> None:
        self.project = self.root / "project"
        self.project.mkdir()
        self.app = self.project / "app.py"
        self.app.write_text("def greet():\n    return 'helo \"you\"'\n")

    def call(self, tool: str, **arguments: Any) -> Call:
        return self.program.call("wink", tool, **arguments)

    def offered(self, tool: str) -> str:
        return f"wink_{tool}" if self.program is Opencode else f"mcp__wink__{tool}"

    @property
    def variables(self) -> dict[str, str]:
        return {"XDG_STATE_HOME": str(self.root / "state"), "HOME": str(self.root / "home")}

    def run(
        self, *steps: Turn, options: tuple[str, ...] = (), server: HttpServer | None = None
    ) -> list[dict[str, Any]]:
        """Let the program work through *steps*; its requests to the provider.

        Its MCP server is *server*, or one that it starts with *options*.
        """
        own = Server([str(WINK), "mcp", "--repo", ".", *OPTIONS, *options], self.variables)
        with ModelServer(*steps, aside=Turn("A title")) as provider:
            done = AgentRun.of(
                self.program.binary(),
                self.program.invocation(
                    "Fix the typo.", provider_url=provider.url, servers={"wink": server or own}
                ),
                directory=self.project,
                home=self.root / "home",
            )
        assert done.code == 0, done.output + done.errors
        return [request for request in provider.requests if request.get("tools")]


@pytest.fixture(params=PROGRAMS, ids=lambda program: program.name)
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Client:
    if os.geteuid() != 0:
        pytest.skip("only root can make a network namespace with loopback only")
    return Client(request.param, tmp_path)


def test_client_offers_the_model_every_tool_of_the_server(client: Client) -> None:
    (request,) = client.run(Turn("Hello."))

    names = {tool.name for tool in Catalog(operations=True).tools}
    offered = client.program.tools(request).keys()
    assert {client.offered(name) for name in names} <= offered
    if client.program is ClaudeCode:  # whose own tools can be turned off
        own = {name for name in offered if not name.startswith("mcp__wink__")}
        assert own <= {"DeferredToolPlaceholder"}  # stands for tools that it would load later
    if client.program is Opencode:
        assert not offered & {"bash", "edit", "glob", "grep", "read", "write"}


def test_first_request_of_each_of_20_starts_has_every_tool_and_all_instructions(
    client: Client,
) -> None:
    catalog = Catalog(operations=True)
    names = {client.offered(tool.name) for tool in catalog.tools}
    for n in range(20):
        (request,) = client.run(Turn("Hello."))
        assert names <= client.program.tools(request).keys(), f"start {n}"
        texts = [" ".join(text.split()) for text in texts_of(request)]  # opencode indents lines
        assert any(" ".join(catalog.instructions.split()) in text for text in texts), f"start {n}"


def test_client_hands_the_model_a_file_of_46_kb_whole(client: Client) -> None:
    lines = [f"{n:04} {'x' * 40}" for n in range(1_000)]
    (client.project / "long.txt").write_text("\n".join(lines) + "\n")
    *_, last = client.run(
        Turn(calls=(client.call("read_file", file_path="long.txt"),)), Turn("Done.")
    )

    (read,) = client.program.results(last)
    assert [line for line in lines if line not in read] == []


def test_client_hands_the_model_an_image(client: Client) -> None:
    (client.project / "dot.png").write_bytes(DOT)
    *_, last = client.run(
        Turn(calls=(client.call("read_file", file_path="dot.png"),)), Turn("Done.")
    )

    encoded = base64.b64encode(DOT).decode()
    assert sum(encoded in text for text in texts_of(last)) == 1


def texts_of(node: Any) -> list[str]:
    """Every string in JSON."""
    if isinstance(node, str):
        return [node]
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [text for child in children for text in texts_of(child)]


def test_client_hands_the_model_numbered_lines_and_diffs_as_text(client: Client) -> None:
    *_, last = client.run(
        Turn(calls=(client.call("read_file", file_path="app.py"),)),
        Turn(
            calls=(
                client.call("edit_file", file_path="app.py", old_string="helo", new_string="hi"),
            )
        ),
        Turn("Done."),
    )

    read, edited = client.program.results(last)
    assert NUMBERED in read
    assert "\n-    return 'helo \"you\"'\n+    return 'hi \"you\"'" in edited


def test_client_hands_the_model_escaped_json_if_the_server_sends_structured_content(
    client: Client,
) -> None:
    """So text alone is the default. Opencode takes the text."""
    *_, last = client.run(
        Turn(calls=(client.call("read_file", file_path="app.py"),)),
        Turn("Done."),
        options=("--structured",),
    )

    (read,) = client.program.results(last)
    if client.program is Opencode:
        assert NUMBERED in read
        return
    assert NUMBERED not in read
    assert r""""lines":["def greet():","    return 'helo \"you\"'"]""" in read


def test_client_reads_through_a_server_over_http_with_a_token(client: Client) -> None:
    command = [str(WINK), "mcp", "--repo", str(client.project), *OPTIONS, "--http", "127.0.0.1:0"]
    path = {"PATH": os.environ["PATH"], "WINK_WORKSPACE_TOKEN": TOKEN}
    with started(command, {**client.variables, **path}) as server:
        *_, last = client.run(
            Turn(calls=(client.call("read_file", file_path="app.py"),)),
            Turn("Done."),
            server=HttpServer(server.url, TOKEN),
        )

    assert NUMBERED in client.program.results(last)[0]


def test_client_accepts_absolute_paths_below_its_directory(client: Client) -> None:
    *_, last = client.run(
        Turn(calls=(client.call("read_file", file_path=str(client.app)),)), Turn("Done.")
    )

    assert NUMBERED in client.program.results(last)[0]


def test_client_reports_a_failed_call_to_the_model_with_what_to_do_next(client: Client) -> None:
    *_, last = client.run(
        Turn(calls=(client.call("write_file", file_path="app.py", content="x"),)), Turn("Done.")
    )

    assert "read" in client.program.results(last)[0].lower()
    assert client.app.read_text() == "def greet():\n    return 'helo \"you\"'\n"


def test_source_changes_only_when_the_model_applies_its_changes(client: Client) -> None:
    before = client.app.read_text()
    edit = client.call("edit_file", file_path="app.py", old_string="helo", new_string="hi")
    read = client.call("read_file", file_path="app.py")
    client.run(Turn(calls=(read,)), Turn(calls=(edit,)), Turn("Done."))
    assert client.app.read_text() == before

    client.run(
        Turn(calls=(read,)),
        Turn(calls=(edit,)),
        Turn(calls=(client.call("workspace_apply"),)),
        Turn("Done."),
    )
    assert client.app.read_text() == before.replace("helo", "hi")
