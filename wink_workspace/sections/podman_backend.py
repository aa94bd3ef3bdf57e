"""The Podman backend for the registry of sandboxes.

Everything is loaded on use: a command that runs a program needs no section, and a list of images no
sandbox.
"""

from __future__ import annotations

import shutil
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxError
from wink_workspace.sandbox import SandboxBackend
from wink_workspace.sandbox.podman import PodmanConfig

if TYPE_CHECKING:
    from pathlib import Path

    from wink_workspace.prompt import Section
    from wink_workspace.sandbox import Finding, Sandbox, SandboxContext, SandboxImages


def _section(config: PodmanConfig) -> Section[None]:
    from .podman import PodmanSandboxSection

    return PodmanSandboxSection(config, files=False)


def _create(
    context: SandboxContext,
    *,
    config: PodmanConfig,
    environment: Environment | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Sandbox:
    from wink_workspace.sandbox.podman import PodmanSandbox

    return PodmanSandbox(context, config=config, environment=environment, clock=clock)


def _examine(environment: Environment) -> tuple[Finding, ...]:
    from wink_workspace.sandbox.podman.podman_diagnosis import examine

    return examine(environment)


def _images(environment: Environment) -> SandboxImages:
    from wink_workspace.sandbox.podman.building.image_catalog import PodmanImages

    return PodmanImages(environment)


def _sweep(environment: Environment) -> tuple[str, ...]:
    """Remove the containers of dead processes; does nothing without an engine."""
    if shutil.which("podman", path=environment.variables.get("PATH")) is None:
        return ()
    from wink_workspace.sandbox.podman import PodmanService
    from wink_workspace.sandbox.podman.engine.containers import sweep

    with suppress(SandboxError), closing(PodmanService(environment)) as service:
        return sweep(service)
    return ()


def _connect(environment: Environment) -> object:
    from wink_workspace.filesystem.overlay.mounting import Mounter
    from wink_workspace.sandbox.podman.engine.service import shared_service

    with suppress(SandboxError):
        service = shared_service(environment, waits=False)
        Mounter.start_early()
        return service
    return None


def _prepare(config: PodmanConfig, environment: Environment, git_history: Path | None) -> None:
    from wink_workspace.sandbox.podman.commands.waiting import prepare_container

    prepare_container(config, environment, git_history)


def _end_leftover(notes: Path) -> str:
    from wink_workspace.sandbox.commands.leftovers import end_leftover

    return end_leftover(notes, _remove)


def _remove(name: str) -> None:
    from wink_workspace.sandbox.podman.engine.containers import remove
    from wink_workspace.sandbox.podman.engine.service import shared_service

    remove(shared_service(Environment.from_os()), name)


PODMAN: Final = SandboxBackend(
    name="podman",
    config=PodmanConfig,
    section=_section,
    create=_create,
    examine=_examine,
    images=_images,
    sweep=_sweep,
    connect=_connect,
    prepare=_prepare,
    end_leftover=_end_leftover,
)
"""The backend for the registry."""
