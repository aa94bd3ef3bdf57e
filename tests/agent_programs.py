"""Runs agent programs of others, Claude Code and Codex, against a scripted provider on loopback.

``claude_code`` and ``codex`` describe an invocation: arguments, variables, and files below a home of
its own. They read and start nothing, so an invocation can run here, with ``AgentRun.of``, or
anywhere else where its binary, its files and its provider are, such as in a container. The binaries
are those that images get; npm downloads them once. ``model_server`` is the provider.

No program gets a variable, a setting or a key of the user. Telemetry, updates and error reports are
turned off in each; where they run there is loopback only (see ``loopback``).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from loopback import package_registries
from model_server import KEY, Call

from wink_workspace.agents import AgentProgram as Installed
from wink_workspace.environment import Environment
from wink_workspace.sandbox.podman.building.images import recipe_folder
from wink_workspace.sandbox.podman.building.project_images import AGENT_PROGRAMS

TIMEOUT_S = 120.0

_TOKEN = "WINK_WORKSPACE_TOKEN"


@dataclass(frozen=True)
class Server:
    """An MCP server that the program starts."""

    command: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class HttpServer:
    """An MCP server over HTTP; its token is in the program's variable ``WINK_WORKSPACE_TOKEN``."""

    url: str
    token: str


@dataclass(frozen=True)
class Invocation:
    """How to run one task with a program.

    Attributes:
        arguments: What comes after the name of the binary.
        variables: All variables of its environment, except ``HOME``, ``TMPDIR`` and ``PATH``.
        files: Their text by path relative to ``HOME``.
    """

    arguments: Sequence[str]
    variables: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)


class ClaudeCode:
    """``@anthropic-ai/claude-code``."""

    name = "claude-code"

    @staticmethod
    def binary() -> Path:
        return _downloaded("claude-code")

    @staticmethod
    def call(server: str, tool: str, **arguments: Any) -> Call:
        """A call of the tool of an MCP server, as the program expects it from a model."""
        return Call(f"mcp__{server}__{tool}", arguments)

    @staticmethod
    def invocation(
        task: str,
        *,
        provider_url: str,
        servers: Mapping[str, Server | HttpServer] | None = None,
        own_tools: Sequence[str] = (),
        more: Sequence[str] = (),
    ) -> Invocation:
        """Run *task* with the tools of *servers* and *own_tools*; print events as JSON lines."""
        servers = servers or {}
        config = {"mcpServers": {name: _json(server) for name, server in servers.items()}}
        allowed = [*own_tools, *(f"mcp__{name}" for name in servers)]
        return Invocation(
            arguments=[
                *("-p", task, "--output-format", "stream-json", "--verbose"),
                *("--model", "claude-scripted", "--no-session-persistence"),
                *("--strict-mcp-config", "--mcp-config", json.dumps(config)),
                *("--tools", ",".join(own_tools), "--allowedTools", ",".join(allowed)),
                *more,
            ],
            variables={
                "ANTHROPIC_BASE_URL": provider_url,
                "ANTHROPIC_API_KEY": KEY,
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_TELEMETRY": "1",
                "DISABLE_ERROR_REPORTING": "1",
                "DISABLE_AUTOUPDATER": "1",
                **_tokens(servers),
            },
        )

    @staticmethod
    def tools(request: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        """The tools that a request to the provider offers, by the name that a model sees."""
        return {tool["name"]: tool for tool in request["tools"] if "name" in tool}

    @staticmethod
    def results(request: Mapping[str, Any]) -> list[str]:
        """The results of calls in a request to the provider, as a model reads them."""
        blocks = [
            block
            for message in request["messages"]
            if isinstance(message["content"], list)
            for block in message["content"]
            if block["type"] == "tool_result"
        ]
        return [_joined(block["content"]) for block in blocks]


class Codex:
    """``@openai/codex``."""

    name = "codex"

    @staticmethod
    def binary() -> Path:
        return _downloaded("codex")

    @staticmethod
    def call(server: str, tool: str, **arguments: Any) -> Call:
        """A call of the tool of an MCP server, as the program expects it from a model."""
        return Call(tool, arguments, namespace=f"mcp__{server}")

    @staticmethod
    def invocation(
        task: str,
        *,
        provider_url: str,
        servers: Mapping[str, Server | HttpServer] | None = None,
        more: Sequence[str] = (),
    ) -> Invocation:
        """Run *task* with the tools of *servers*; print events as JSON lines.

        Its own tools run in its own sandbox, read-only, and cannot be turned off.
        """
        tables: dict[str, dict[str, Any]] = {
            "": {
                "model": "scripted",
                "model_provider": "scripted",
                "approval_policy": "never",
                "sandbox_mode": "read-only",
                "check_for_update_on_startup": False,
                "tool_output_token_limit": 40_000,
            },
            "model_providers.scripted": {
                "name": "scripted",
                "base_url": f"{provider_url}/v1",
                "wire_api": "responses",
                "env_key": "OPENAI_API_KEY",
                "request_max_retries": 0,
                "stream_max_retries": 0,
            },
            "analytics": {"enabled": False},
            "otel": {"exporter": "none", "trace_exporter": "none", "metrics_exporter": "none"},
        }
        servers = servers or {}
        for name, server in servers.items():
            wanted = {"required": True, "default_tools_approval_mode": "approve"}
            if isinstance(server, HttpServer):
                address = {"url": server.url, "bearer_token_env_var": _TOKEN}
                tables[f"mcp_servers.{name}"] = {**address, **wanted}
                continue
            program, *arguments = server.command
            tables[f"mcp_servers.{name}"] = {"command": program, "args": arguments, **wanted}
            tables[f"mcp_servers.{name}.env"] = dict(server.variables)
        return Invocation(
            arguments=["exec", "--json", "--skip-git-repo-check", *more, task],
            variables={"OPENAI_API_KEY": KEY, **_tokens(servers)},
            files={".codex/config.toml": _toml(tables)},
        )

    @staticmethod
    def tools(request: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        """The tools that a request to the provider offers; those of a namespace as ``space__name``."""
        found: dict[str, Mapping[str, Any]] = {}
        for tool in request["tools"]:
            if tool["type"] == "namespace":
                found |= {f"{tool['name']}__{each['name']}": each for each in tool["tools"]}
            elif "name" in tool:
                found[tool["name"]] = tool
        return found

    @staticmethod
    def results(request: Mapping[str, Any]) -> list[str]:
        """The results of calls in a request to the provider, as a model reads them."""
        return [
            _joined(item["output"])
            for item in request["input"]
            if item["type"] == "function_call_output"
        ]


class Opencode:
    """``opencode-ai``, with a provider whose requests are those of Claude Code."""

    name = "opencode"
    tools = ClaudeCode.tools
    results = ClaudeCode.results

    @staticmethod
    def binary() -> Path:
        return _downloaded("opencode")

    @staticmethod
    def call(server: str, tool: str, **arguments: Any) -> Call:
        """A call of the tool of an MCP server, as the program expects it from a model."""
        return Call(f"{server}_{tool}", arguments)

    @staticmethod
    def invocation(
        task: str,
        *,
        provider_url: str,
        servers: Mapping[str, Server | HttpServer] | None = None,
        more: Sequence[str] = (),
    ) -> Invocation:
        """Run *task* with the tools of *servers*; its own tools for files are off."""
        servers = servers or {}
        program = Installed.named("opencode", model="scripted")
        settings = json.loads(program.files[_OPENCODE_SETTINGS])
        settings["provider"]["anthropic"]["options"] = {
            "baseURL": f"{provider_url}/v1",
            "apiKey": KEY,
        }
        settings["mcp"] = {name: _opencode_server(each) for name, each in servers.items()}
        own = ("bash", "edit", "glob", "grep", "list", "patch", "read", "write")
        settings["tools"] = dict.fromkeys(own, False)
        del settings["permission"]  # it would turn them on again
        settings["tool_output"] = {"max_lines": 10_000, "max_bytes": 200_000}
        report = ".config/opencode/plugin/report.js"
        files = {name: text for name, text in program.files.items() if name != report}
        return Invocation(
            arguments=["run", *more, task],
            variables={**program.variables, **_tokens(servers)},
            files={**files, _OPENCODE_SETTINGS: json.dumps(settings)},
        )


_OPENCODE_SETTINGS = ".config/opencode/opencode.json"


def _opencode_server(server: Server | HttpServer) -> dict[str, Any]:
    if isinstance(server, HttpServer):
        headers = {"Authorization": f"Bearer {{env:{_TOKEN}}}"}
        return {"type": "remote", "url": server.url, "headers": headers, "enabled": True}
    command, variables = list(server.command), dict(server.variables)
    return {"type": "local", "command": command, "environment": variables, "enabled": True}


AgentProgram = type[ClaudeCode] | type[Codex] | type[Opencode]


@dataclass(frozen=True)
class AgentRun:
    """How a program ended, and what it printed."""

    code: int
    output: str
    errors: str

    @classmethod
    def of(cls, binary: Path, invocation: Invocation, *, directory: Path, home: Path) -> AgentRun:
        """Run a program here, in *directory*; *home* is created if it is missing.

        Raises:
            TimeoutExpired: If it has not ended after two minutes.
        """
        temporary = home / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        for name, text in invocation.files.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text)
        own = {"HOME": str(home), "TMPDIR": str(temporary), "PATH": os.environ["PATH"]}
        done = subprocess.run(
            [str(binary), *invocation.arguments],
            cwd=directory,
            env={**own, **invocation.variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        return cls(done.returncode, done.stdout, done.stderr)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The lines of the output."""
        return [json.loads(line) for line in self.output.splitlines() if line.startswith("{")]


def _downloaded(name: str) -> Path:
    """The program in what npm installs from the lock that images have, too; once for each lock."""
    lock = recipe_folder(f"agents/{name}")
    digest = hashlib.sha256((lock / "package-lock.json").read_bytes()).hexdigest()[:16]
    folder = Environment.from_os().cache_dir / "tests" / f"{name}-{digest}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent) as made, package_registries():
            for file in ("package.json", "package-lock.json"):
                shutil.copy(lock / file, made)
            subprocess.run(
                ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=made, check=True
            )
            Path(made).rename(folder)
    return next(folder.glob(AGENT_PROGRAMS[name]))


def _tokens(servers: Mapping[str, Server | HttpServer]) -> dict[str, str]:
    tokens = {each.token for each in servers.values() if isinstance(each, HttpServer)}
    return {_TOKEN: tokens.pop()} if tokens else {}


def _json(server: Server | HttpServer) -> dict[str, Any]:
    first = {"alwaysLoad": True}  # in the first turn, without a search
    if isinstance(server, HttpServer):
        headers = {"Authorization": f"Bearer ${{{_TOKEN}}}"}
        return {"type": "http", "url": server.url, "headers": headers, **first}
    command, *arguments = server.command
    return {"command": command, "args": arguments, "env": dict(server.variables), **first}


def _toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Tables of strings, booleans, numbers and lists; JSON writes all of these as TOML does."""
    parts: list[str] = []
    for name, values in tables.items():
        parts += [f"[{name}]"] if name else []
        parts += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(parts) + "\n"


def _joined(content: str | Sequence[Mapping[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)
