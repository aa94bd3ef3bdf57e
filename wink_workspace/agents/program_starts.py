"""How an agent program is started: its command, its variables, and the files of its home.

Claude Code and Codex report their calls by the same kind of hook, opencode by a plugin. Their own
permissions and their own sandbox are off, because ours takes their place. So are telemetry and
updates.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Self

from wink_workspace.errors import UsageError
from wink_workspace.filesystem import Filesystem, WorkspacePath
from wink_workspace.sandbox.network import INTERNAL_DOMAIN

AGENT_FOLDER: Final = WorkspacePath((".wink-agent",))
"""A derived path: the history does not record it, and commands can write it."""
HOME_FOLDER: Final = AGENT_FOLDER / "home"
"""The home of the program, with its own settings and sessions."""
CALLS_FOLDER: Final = AGENT_FOLDER / "calls"
"""Where a program reports its calls, one file each."""

_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MOST_NAME_CHARS: Final = 40


_HOOK: Final = """\
f="$HOME/../calls/$(date +%s%N)-$$"; cat >"$f" && mv "$f" "$f.json" || exit 0
while [ -e "$f.json" ]; do sleep 0.02; done"""
"""Reports the call that it reads, and waits until it is an entry."""
_HOOKS: Final = {
    "hooks": {
        event: [{"matcher": "*", "hooks": [{"type": "command", "command": _HOOK, "timeout": 60}]}]
        for event in ("PostToolUse", "PostToolUseFailure")
    }
}
_OPENCODE_PLUGIN: Final = """\
import { existsSync, renameSync, writeFileSync } from "node:fs"

export const Report = async () => ({
  "tool.execute.after": async (call, result) => {
    const file = `${process.env.HOME}/../calls/${Date.now()}000000-${call.callID}`
    const report = { tool_name: call.tool, tool_input: call.args, tool_response: result?.output }
    try {
      writeFileSync(file, JSON.stringify(report))
      renameSync(file, `${file}.json`)
    } catch {
      return
    }
    for (let n = 0; n < 3000 && existsSync(`${file}.json`); n++)
      await new Promise((resolve) => setTimeout(resolve, 20))
  },
})
"""
"""The same for opencode."""
_OPENCODE_LOCK: Final = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}
"""Without it, opencode would install that package at its start; the plugin does not need it."""
_NO_KEY: Final = "added-by-the-proxy"
_CODEX: Final = f"""\
model_provider = "proxy"
check_for_update_on_startup = false

[model_providers.proxy]
name = "proxy"
base_url = "http://openai.{INTERNAL_DOMAIN}/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"

[analytics]
enabled = false

[otel]
exporter = "none"
trace_exporter = "none"
metrics_exporter = "none"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProvider:
    """The provider of an agent program: a secret of the proxy, unless the user configures it.

    Attributes:
        name: The name of the secret; inside, the provider is ``http://NAME.wink.internal``.
        host: Its ``host:port``.
        variable: The user's variable with the key.
        header: The header that gets it.
        prefix: What stands before it there.
    """

    name: str
    host: str
    variable: str
    header: str
    prefix: str = ""


_ANTHROPIC: Final = AgentProvider(
    name="anthropic",
    host="api.anthropic.com:443",
    variable="ANTHROPIC_API_KEY",
    header="x-api-key",
)
_OPENAI: Final = AgentProvider(
    name="openai",
    host="api.openai.com:443",
    variable="OPENAI_API_KEY",
    header="Authorization",
    prefix="Bearer ",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProgram:
    """An agent program, as it is started for one task.

    Attributes:
        name: Its name in the history.
        command: A line of shell; ``"$1"`` in it is the task.
        variables: Its environment, in addition to that of commands. ``HOME`` is set.
        files: The text of each file below its home, by path. They are written before it starts.
        provider: Where it gets its model; ``None`` if only the user's settings say that.
        executable: The name of its program on the ``PATH``; empty if that is not known.
        resume_command: Continues the newest of its sessions, where ``"$1"`` is a message; empty if
            it has none.
        session: A pattern for the files of its sessions below its home.
    """

    name: str
    command: str
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    files: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    provider: AgentProvider | None = None
    executable: str = ""
    resume_command: str = ""
    session: str = ""

    def resumed(self, files: Filesystem) -> Self | None:
        """The program as it continues its newest session in *files*, those of a workspace.

        ``None`` if it cannot do that, or has no session there.
        """
        if not self.resume_command or not files.exists(HOME_FOLDER):
            return None
        found = files.glob(self.session, HOME_FOLDER).paths
        return replace(self, command=self.resume_command) if found else None

    def at(self, path: str) -> Self:
        """The program as it is started by this path of its ``executable``."""
        name, word = f"{self.executable} ", f"{shlex.quote(path)} "
        commands = (self.command, self.resume_command)
        command, resume_command = (each.replace(name, word, 1) for each in commands)
        return replace(self, command=command, resume_command=resume_command)

    @classmethod
    def named(cls, name: str, *, model: str = "") -> Self:
        """A program of ``AGENT_NAMES``, or any other one by its command; see ``of_command``.

        The programs must be on the ``PATH`` of the sandbox. *model* is a name that they know; by
        default they choose.

        Raises:
            UsageError: As ``of_command``, or if a command has a *model*.
        """
        chosen = f" --model {shlex.quote(model)}" if model else ""
        if name == "claude-code":
            options = f"--dangerously-skip-permissions{chosen}"
            return cls(
                name=name,
                command=f'exec claude -p "$1" {options}',
                variables={
                    "ANTHROPIC_BASE_URL": f"http://anthropic.{INTERNAL_DOMAIN}",
                    "ANTHROPIC_API_KEY": _NO_KEY,
                    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                    "DISABLE_TELEMETRY": "1",
                    "DISABLE_ERROR_REPORTING": "1",
                    "DISABLE_AUTOUPDATER": "1",
                },
                files={".claude/settings.json": json.dumps(_HOOKS)},
                provider=_ANTHROPIC,
                executable="claude",
                resume_command=f'exec claude -p "$1" --continue {options}',
                session=".claude/projects/*/*.jsonl",
            )
        if name == "codex":
            options = (
                "--skip-git-repo-check --dangerously-bypass-hook-trust"
                f" --dangerously-bypass-approvals-and-sandbox{chosen}"
            )
            return cls(
                name=name,
                command=f'exec codex exec {options} "$1"',
                variables={"OPENAI_API_KEY": _NO_KEY},
                files={".codex/config.toml": _CODEX, ".codex/hooks.json": json.dumps(_HOOKS)},
                provider=_OPENAI,
                executable="codex",
                resume_command=f'exec codex exec {options} resume --last "$1"',
                session=".codex/sessions/**/*.jsonl",
            )
        if name == "opencode":
            return cls(
                name=name,
                command='printf %s "$1" | opencode run',
                variables={
                    "OPENCODE_DISABLE_AUTOUPDATE": "1",
                    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
                    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
                    "OPENCODE_DISABLE_MODELS_FETCH": "1",
                },
                files={
                    ".config/opencode/opencode.json": json.dumps(_opencode_settings(model)),
                    ".config/opencode/plugin/report.js": _OPENCODE_PLUGIN,
                    ".config/opencode/package-lock.json": json.dumps(_OPENCODE_LOCK),
                    ".config/opencode/node_modules/.package-lock.json": "{}",
                },
                provider=_ANTHROPIC,
                executable="opencode",
                resume_command='printf %s "$1" | opencode run --continue',
                session=".local/share/opencode/opencode.db",
            )
        if model:
            raise UsageError(
                f"the model of the agent program {name!r} cannot be chosen",
                hint="Leave out --model, or make it a part of the command.",
            )
        return cls.of_command(name)

    @classmethod
    def of_command(cls, command: str) -> Self:
        """Any other program: a line of shell, to which the task is added as the last argument.

        Raises:
            UsageError: If *command* is empty or has a NUL.
        """
        words = command.split()
        if not words or "\0" in command:
            raise UsageError(
                "the command of the agent is empty, or has a NUL",
                hint="Give a shell command; the task is its last argument.",
            )
        name = _NOT_IN_A_NAME.sub("", words[0].rpartition("/")[2])[:_MOST_NAME_CHARS]
        return cls(name=name or "agent", command=f'{command} "$1"')


def _opencode_settings(model: str) -> Mapping[str, object]:
    url = f"http://{_ANTHROPIC.name}.{INTERNAL_DOMAIN}/v1"
    provider: dict[str, object] = {"options": {"baseURL": url, "apiKey": _NO_KEY}}
    settings = {"autoupdate": False, "share": "disabled", "permission": "allow"}
    if model:
        provider["models"] = {model: {}}
        settings["model"] = f"{_ANTHROPIC.name}/{model}"
    return {**settings, "provider": {_ANTHROPIC.name: provider}}
