"""``run --agent``: an agent program of others in place of a model, in a container over a branch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from wink_workspace.agents import AgentLimits, AgentProgram, run_agent
from wink_workspace.project import Secret, Settings
from wink_workspace.sandbox import DEFAULT_SANDBOX, SandboxConfig
from wink_workspace.workspace import RunAbout, Workspace

from .context import CommandContext
from .run_limits import RunLimits
from .sandbox_options import configured

__all__ = ["ContainedAgent"]

_MEMORY_BYTES: Final = 4 * 1_073_741_824
_N_PROCESSES: Final = 1_024
_SILENT_S: Final = 600.0
_N_REQUESTS: Final = 100_000


class ContainedAgent:
    """An agent program, with the container that it runs in.

    Args:
        context: The settings.
        program: The program.
        given: What options set.
        image: The image in an option.

    Raises:
        UsageError: If a setting cannot be used.
    """

    def __init__(
        self, context: CommandContext, program: AgentProgram, given: Settings, image: str | None
    ) -> None:
        self.program = program
        self._context = context = self._with_provider(context)
        self._limits = RunLimits.of(given, context.settings_for())
        self._config = self._sandbox_config(image)

    def about(self, task: str, *, after_entry: int) -> RunAbout:
        """The start of a run."""
        return RunAbout(
            task=self._context.redact(task),
            model=self.program.name,
            sandbox=DEFAULT_SANDBOX,
            after_entry=after_entry,
            is_agent=True,
        )

    def answer(self, workspace: Workspace, task: str, messages: Callable[[], Sequence[str]]) -> str:
        """Let it work on *task*, then on the messages that came meanwhile; its last answer.

        Raises:
            AgentError: If it failed, or a limit ended it.
        """
        answer = ""
        while task:
            result = run_agent(
                workspace,
                workspace.sandbox(self._config),
                self.program,
                task,
                limits=AgentLimits(timeout_s=self._limits.time, most_entries=self._limits.turns),
                redact=self._context.redact,
            )
            answer, task = result.answer, "\n".join(messages())
        return answer

    def _with_provider(self, context: CommandContext) -> CommandContext:
        """*context* with the program's provider as a secret, unless the user configured it."""
        provider, settings = self.program.provider, context.settings_for()
        secrets = dict(settings.secrets or {})
        if provider is None or provider.name in secrets:
            return context
        secrets[provider.name] = Secret(
            host=provider.host,
            variable=provider.variable,
            header=provider.header,
            prefix=provider.prefix,
        )
        return replace(context, settings=replace(settings, secrets=secrets))

    def _sandbox_config(self, image: str | None) -> SandboxConfig:
        """The container of commands, with room for a program that runs for hours."""
        settings = self._context.settings_for()
        config: Any = configured(self._context, DEFAULT_SANDBOX, image=image, agent=self.program)
        network = replace(
            config.network.limits,
            requests=_N_REQUESTS,
            idle_s=_SILENT_S,
            longest_s=self._limits.time,
        )
        wanted: dict[str, Any] = {  # Any: each field has its own type
            "longest_timeout_s": self._limits.time,
            "network": replace(config.network, limits=network),
        }
        if settings.memory_bytes is None:
            wanted["memory_bytes"] = _MEMORY_BYTES
        if settings.n_processes is None:
            wanted["n_processes"] = _N_PROCESSES
        found: SandboxConfig = replace(config, **wanted)
        return found
