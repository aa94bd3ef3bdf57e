"""The sandbox of one workspace over the programs of this machine.

Rule 1: nothing of a caller runs before every isolation probe has been stopped.
Rule 2: when a command is over, however it ended, every process it started is dead. If the runner
misbehaves, everything is ended from outside, and the next command starts another.
Rule 3: only the workspace outlives a command.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from wink_workspace.clock import SYSTEM_CLOCK, Cancellation, Clock
from wink_workspace.environment import Environment
from wink_workspace.sandbox.backends import SandboxContext
from wink_workspace.sandbox.commands import leftovers
from wink_workspace.sandbox.commands.command_runs import VARIABLES
from wink_workspace.sandbox.commands.command_sandbox import CommandSandbox, give_files
from wink_workspace.sandbox.commands.live_container import LiveContainer
from wink_workspace.sandbox.commands.probed_runner import link_of

from .bubblewrap_config import BubblewrapConfig
from .bubblewrap_runner import BubblewrapRunner

if TYPE_CHECKING:
    from wink_workspace.sandbox.network_proxy.link import NetworkLink


_USER: int = 1_000


class BubblewrapSandbox(CommandSandbox):
    """Runs commands with the files of one directory, at the path of their source.

    It runs one command at a time; a call from another thread waits.

    Args:
        context: The directories and callbacks of its workspace.
        config: What commands see, and their limits.
        environment: The user's home and variables; by default those of this process.
        clock: Measures time limits.

    Nothing is started before the first command, or the first use of ``report``.
    """

    def __init__(
        self,
        context: SandboxContext,
        *,
        config: BubblewrapConfig | None = None,
        environment: Environment | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.config: BubblewrapConfig
        super().__init__(context, config or BubblewrapConfig(), clock)
        self._environment = environment
        self._commands: BubblewrapRunner | None = None

    def _open(self, cancellation: Cancellation | None = None) -> BubblewrapRunner:
        """As the base class has it.

        Raises:
            CallCancelledError: If *cancellation* is cancelled meanwhile; nothing is left.
            SandboxUnavailableError: If it cannot be started.
            IsolationError: If a probe succeeded; everything has ended.
            SandboxError: If this sandbox is closed.
        """
        self._check_open()
        if self._commands is None:
            cancellation = cancellation or Cancellation()
            cancellation.check()
            context = self._context
            give_files(context.files, _USER)
            if context.notes is not None:  # of one that could not be ended, and may hold the files
                leftovers.end_leftover(context.notes, refuse_to_remove, with_services=False)
            context.write_git_file()
            environment = self._environment or Environment.from_os()
            self._commands = BubblewrapRunner(
                context,
                self.config,
                environment,
                clock=self._clock,
                cancellation=cancellation,
                network=self._network_link(),
            )
        return self._commands

    def _network_link(self) -> NetworkLink | None:
        return link_of(self.config.network, self._environment)

    def _end(self) -> None:
        commands, self._commands = self._commands, None
        if commands is not None:
            commands.end()

    @property
    def _live(self) -> LiveContainer | None:
        return None if self._commands is None else self._commands.live

    @property
    def _base_variables(self) -> Mapping[str, str]:
        return VARIABLES if self._commands is None else self._commands.view.variables

    def _fix_of(self, program: str) -> str:
        if self._commands is None:
            return ""
        return self._commands.view.fix_of(program)


def refuse_to_remove(name: str) -> None:
    """For ``end_leftover``: no engine can end a process that this user cannot kill."""
