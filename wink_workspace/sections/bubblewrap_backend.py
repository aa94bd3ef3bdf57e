"""The Bubblewrap backend for the registry of sandboxes; everything is loaded on use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.environment import Environment
from wink_workspace.sandbox import SandboxBackend
from wink_workspace.sandbox.bubblewrap import BubblewrapConfig

if TYPE_CHECKING:
    from pathlib import Path

    from wink_workspace.prompt import Section
    from wink_workspace.sandbox import Finding, Sandbox, SandboxContext


def _section(config: BubblewrapConfig) -> Section[None]:
    from .podman import BubblewrapSandboxSection

    return BubblewrapSandboxSection(config, files=False)


def _create(
    context: SandboxContext,
    *,
    config: BubblewrapConfig,
    environment: Environment | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Sandbox:
    from wink_workspace.sandbox.bubblewrap import BubblewrapSandbox

    return BubblewrapSandbox(context, config=config, environment=environment, clock=clock)


def _examine(environment: Environment) -> tuple[Finding, ...]:
    from wink_workspace.sandbox.bubblewrap.bubblewrap_diagnosis import examine

    return examine(environment)


def _sweep(_: Environment) -> tuple[str, ...]:
    from wink_workspace.sandbox.bubblewrap.cgroups import sweep_groups

    return sweep_groups()


def _connect(_: Environment) -> object:
    from wink_workspace.filesystem.overlay.mounting import Mounter

    Mounter.start_early()
    return None


def _find_program(
    config: BubblewrapConfig, program: str, source: Path, environment: Environment
) -> tuple[BubblewrapConfig, str]:
    from wink_workspace.sandbox.bubblewrap.host_view import find_program

    return find_program(config, program, source, environment)


def _end_leftover(notes: Path) -> str:
    from wink_workspace.sandbox.bubblewrap.bubblewrap_sandbox import refuse_to_remove
    from wink_workspace.sandbox.commands.leftovers import end_leftover

    return end_leftover(notes, refuse_to_remove)


BUBBLEWRAP: Final = SandboxBackend(
    name="bubblewrap",
    config=BubblewrapConfig,
    section=_section,
    create=_create,
    examine=_examine,
    sweep=_sweep,
    connect=_connect,
    find_program=_find_program,
    end_leftover=_end_leftover,
)
"""The backend for the registry."""
