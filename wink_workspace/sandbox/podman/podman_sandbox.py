"""The sandbox of one workspace: a container that is probed, gets the workspace, and is then kept.

A branch that is an overlay is mounted in a running container, if possible in one that has waited
for it. A plain copy is bound when its container is created.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from wink_workspace.clock import SYSTEM_CLOCK, Cancellation, Clock
from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxUnavailableError
from wink_workspace.filesystem.overlay.mounting import Mounter
from wink_workspace.sandbox.backends import SandboxContext
from wink_workspace.sandbox.commands.command_sandbox import CommandSandbox
from wink_workspace.sandbox.git_directory import WORKSPACE_PATH

from .commands.image_settings import ImageSettings
from .commands.runner_container import ContainerKind, RunnerContainer, with_history
from .commands.waiting import WaitingContainers, start_container
from .engine.containers import Host, remove, sweep_quietly
from .engine.podman_config import PodmanConfig
from .engine.service import PodmanService, shared_service

if TYPE_CHECKING:
    from wink_workspace.sandbox.services import ServiceConfig


class PodmanSandbox(CommandSandbox[RunnerContainer]):
    """Runs commands with the files of one directory, in a container of its own.

    Its arguments are those of its base class, and *service*: the engine, if the caller has one. The
    variables of *environment* name the engine otherwise.
    """

    def __init__(
        self,
        context: SandboxContext,
        *,
        config: PodmanConfig | None = None,
        environment: Environment | None = None,
        service: PodmanService | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.config: PodmanConfig
        config = with_history(config or PodmanConfig(), context.git_history)
        super().__init__(context, config, environment, clock)
        self._service = service
        self._kind: ContainerKind | None = None
        self._image = ImageSettings()

    # The container

    @property
    def _base_variables(self) -> Mapping[str, str]:
        return self._image.variables()

    def _directory(self) -> str:
        return self._image.directory_in(self._context.files)

    def _start(self, note: Path | None, cancellation: Cancellation) -> RunnerContainer:
        if self._service is None:
            self._service = shared_service(
                self._environment, clock=self._clock, cancellation=cancellation
            )
        service = self._service
        if service.is_root != (os.geteuid() == 0):
            user = "root" if service.is_root else "an ordinary user"
            raise SandboxUnavailableError(
                f"the engine at {service.socket_path} runs as {user}, and this process does not",
                hint="Unset CONTAINER_HOST, so that another engine is started.",
            )
        self._take_files(self.config.user_id, partial(remove, service))
        self._image = ImageSettings.of(service, self.config.image)
        context, mount = self._context, self._context.mount
        if mount is None:
            container = self._new(service, cancellation, workspace=context.files, note=note)
        else:
            container = self._waiting_or_new(service, cancellation)
            container.attach(partial(mount.attach, target=WORKSPACE_PATH), note)
        container.probe_workspace(cancellation, attached=mount is not None)
        return container

    def _start_for_service(
        self, config: ServiceConfig, note: Path | None, cancellation: Cancellation
    ) -> RunnerContainer:
        assert self._service is not None  # noqa: S101 - the commands use it
        container = self._waiting_or_new(self._service, cancellation)
        mount, files = self._context.mount, str(self._context.files)
        attach = partial(Mounter.shared().attach, files) if mount is None else mount.attach
        container.attach(partial(attach, target=WORKSPACE_PATH, writes=config.writes), note)
        container.probe_workspace(cancellation, attached=mount is not None, writes=config.writes)
        return container

    def _waiting_or_new(
        self, service: PodmanService, cancellation: Cancellation
    ) -> RunnerContainer:
        """A container without a workspace."""
        host = Host.of(service)
        self._kind = ContainerKind.of(service, self._clock, self.config, host, self._image.id)
        if self._kind is not None and self.config.n_waiting:
            container = WaitingContainers.shared().take(self._kind, cancellation)
            if container is not None:
                return container
        return self._new(service, cancellation)

    def _new(
        self,
        service: PodmanService,
        cancellation: Cancellation,
        *,
        workspace: Path | None = None,
        note: Path | None = None,
    ) -> RunnerContainer:
        return RunnerContainer(
            service,
            self.config,
            Host.of(service),
            workspace=workspace,
            note=note,
            clock=self._clock,
            cancellation=cancellation,
            network=self._network_link(),
            meanwhile=partial(sweep_quietly, service),
        )

    def _after_command(self) -> None:
        """Start a container for the next branch, unless this is the first use."""
        service, kind = self._service, self._kind
        if kind is None or service is None or not self.config.n_waiting:
            return
        start = partial(start_container, service, self.config, self._of_user, clock=self._clock)
        WaitingContainers.shared().keep(kind, self.config.n_waiting, start)
