"""The sandbox of one workspace over the programs of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from wink_workspace.clock import SYSTEM_CLOCK, Cancellation, Clock
from wink_workspace.environment import Environment
from wink_workspace.sandbox.backends import SandboxContext
from wink_workspace.sandbox.commands.command_runs import VARIABLES
from wink_workspace.sandbox.commands.command_sandbox import CommandSandbox

from .bubblewrap_config import BubblewrapConfig
from .bubblewrap_runner import BubblewrapRunner

if TYPE_CHECKING:
    from wink_workspace.sandbox.services import ServiceConfig

_USER: int = 1_000


class BubblewrapSandbox(CommandSandbox[BubblewrapRunner]):
    """Runs commands with the files of one directory, at the path of their source; see its base."""

    def __init__(
        self,
        context: SandboxContext,
        *,
        config: BubblewrapConfig | None = None,
        environment: Environment | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.config: BubblewrapConfig
        super().__init__(context, config or BubblewrapConfig(), environment, clock)

    def _start(self, note: Path | None, cancellation: Cancellation) -> BubblewrapRunner:
        self._take_files(_USER, refuse_to_remove)
        return self._started(note, cancellation)

    def _start_for_service(
        self, config: ServiceConfig, note: Path | None, cancellation: Cancellation
    ) -> BubblewrapRunner:
        return self._started(note, cancellation, writes=config.writes)

    def _started(
        self,
        note: Path | None,
        cancellation: Cancellation,
        *,
        writes: tuple[str, ...] | None = None,
    ) -> BubblewrapRunner:
        return BubblewrapRunner(
            self._context,
            self.config,
            self._environment,
            clock=self._clock,
            cancellation=cancellation,
            network=self._network_link(),
            note=note,
            writes=writes,
        )

    @property
    def _base_variables(self) -> Mapping[str, str]:
        return VARIABLES if self._commands is None else self._commands.view.variables

    def _fix_of(self, program: str) -> str:
        if self._commands is None:
            return ""
        return self._commands.view.fix_of(program)


def refuse_to_remove(name: str) -> None:
    """For ``end_leftover``: no engine can end a process that this user cannot kill."""
