"""The sandbox of one workspace: a container that is probed, gets the workspace, and is then kept.

Rule 1: nothing of a caller runs before every isolation probe has been stopped.
Rule 2: when a command is over, however it ended, every process it started is dead. The runner
inside ensures that. If the runner misbehaves, the container is ended from outside, and the next
command starts another.
Rule 3: only the workspace outlives a command.

A container ends with ``close``, with this object, with the interpreter, and with the process.

A branch that is an overlay is mounted in a running container, if possible in one that has waited
for it. A plain copy is bound when its container is created.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from wink_workspace.clock import SYSTEM_CLOCK, Cancellation, Clock
from wink_workspace.environment import Environment
from wink_workspace.errors import (
    SandboxError,
    SandboxUnavailableError,
)
from wink_workspace.sandbox.backends import SandboxContext
from wink_workspace.sandbox.commands import leftovers
from wink_workspace.sandbox.commands.command_runs import CANCELLED
from wink_workspace.sandbox.commands.command_sandbox import (
    CommandSandbox,
    check_variables,
    give_files,
)
from wink_workspace.sandbox.commands.disk_watch import DiskWatch
from wink_workspace.sandbox.commands.live_container import LiveContainer
from wink_workspace.sandbox.commands.probed_runner import link_of
from wink_workspace.sandbox.git_directory import WORKSPACE_PATH
from wink_workspace.sandbox.services import Services

from .commands.image_settings import ImageSettings
from .commands.runner_container import ContainerKind, RunnerContainer, with_history
from .commands.service_containers import PodmanServices
from .commands.waiting import WaitingContainers, start_container
from .engine.containers import Host, remove, sweep_quietly
from .engine.podman_config import PodmanConfig
from .engine.service import PodmanService, shared_service

if TYPE_CHECKING:
    from wink_workspace.sandbox.network_proxy.link import NetworkLink


_log = logging.getLogger(__name__)

_MOST_REQUEST_BYTES: Final = 67_108_864
_MOST_ARGUMENT_BYTES: Final = 131_071
_TERMINAL: Final = {"TERM": "xterm"}


class PodmanSandbox(CommandSandbox):
    """Runs commands with the files of one directory, in a container of its own.

    It runs one command at a time; a call from another thread waits.

    Args:
        context: The directories and callbacks of its workspace.
        config: Its limits.
        environment: The variables that name the engine; by default those of this process.
        service: The engine, if the caller has one.
        clock: Measures time limits.

    Nothing is started before the first command, or the first use of ``report``.
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
        super().__init__(
            context, with_history(config or PodmanConfig(), context.git_history), clock
        )
        self._environment = environment
        self._service = service
        self._commands: RunnerContainer | None = None
        self._kind: ContainerKind | None = None
        self._image = ImageSettings()
        self._services: PodmanServices | None = None

    @property
    def services(self) -> Services:
        """Its services; see ``Services``."""
        self._process.check()
        with self._lock:
            if self._services is None:
                self._services = PodmanServices(
                    lock=self._lock,
                    start=self._container_of_service,
                    commands=self._container_of_commands,
                    env=self._variables,
                    context=self._context,
                    config=self.config,
                    clock=self._clock,
                )
            return self._services

    def interact(
        self,
        argv: Sequence[str] = (),
        *,
        env: Mapping[str, str] = MappingProxyType({}),
        cancellation: Cancellation | None = None,
    ) -> int:
        """Run a program with the streams of this process; see ``Sandbox.interact``."""
        self._process.check()
        check_variables(env)
        with self._lock:
            commands = self._open(cancellation)
            disk = DiskWatch(self._context.files, most=self._most, first_pid=self._first_pid)

            def watch() -> str | None:
                cancelled = cancellation is not None and cancellation.cancelled
                return CANCELLED if cancelled else disk()

            with self._end_on_error():
                code = commands.interact(
                    argv or (commands.shell,),
                    self._image.variables(self.config.env, env),
                    self._image.directory_in(self._context.files),
                    self.config.user_id,
                    watch,
                )
                self._context.write_git_file()
                excess = self._excess()
                if excess is not None:
                    raise SandboxError(f"the program was stopped: {excess}")
                return code

    @contextmanager
    def released(self) -> Generator[bool]:
        """End the container of the commands; see ``Sandbox.released``."""
        with self._lock:
            services = () if self._services is None else self._services.listed()
            if any(service.state != "ended" for service in services):
                yield False
                return
            with super().released() as is_free:
                yield is_free

    def _close_rest(self) -> None:
        if self._services is not None:
            self._services.close()

    # The container

    @property
    def _live(self) -> LiveContainer | None:
        return None if self._commands is None else self._commands.live

    @property
    def _base_variables(self) -> Mapping[str, str]:
        return self._image.variables()

    def _directory(self) -> str:
        return self._image.directory_in(self._context.files)

    def _open(self, cancellation: Cancellation | None = None) -> RunnerContainer:
        """Start the container and run the probes, unless that has been done.

        Raises:
            CallCancelledError: If *cancellation* is cancelled meanwhile; the container has ended.
            SandboxUnavailableError: If it cannot be started.
            IsolationError: If a probe succeeded; the container has ended.
            SandboxError: If this sandbox is closed.
        """
        self._check_open()
        is_new = self._commands is None
        if self._commands is None:
            self._commands = self._start(cancellation or Cancellation())
        if is_new and self._remembers_services:
            _ = self.services  # starts what a new fork inherits
        if self._services is not None:
            self._services.connect(self._commands.live)
        return self._commands

    @property
    def _remembers_services(self) -> bool:
        return self._context.services is not None and self._context.services.is_file()

    def _container_of_commands(self, cancellation: Cancellation) -> LiveContainer:
        """The container of the commands; raises as ``_open``."""
        return (self._commands or self._open(cancellation)).live

    def _container_of_service(self, cancellation: Cancellation) -> RunnerContainer:
        """A container without a workspace; the one of the commands has been started before."""
        service = self._service
        assert service is not None  # noqa: S101 - the commands use it
        host = Host.of(service)
        if self._context.mount is not None:
            return self._waiting_or_new(service, host, cancellation)
        return RunnerContainer(
            service, self.config, host, clock=self._clock, cancellation=cancellation
        )

    def _start(self, cancellation: Cancellation) -> RunnerContainer:
        """As ``_open``; checks *cancellation* before each request to the engine, and in waits."""
        cancellation.check()
        if self._service is None:
            environment = self._environment or Environment.from_os()
            self._service = shared_service(
                environment, clock=self._clock, cancellation=cancellation
            )
        service = self._service
        self._check_owner(service)
        notes = self._context.notes
        if notes is not None:  # of a container that could not be ended, and may hold the files
            leftovers.end_leftover(notes, lambda name: remove(service, name), with_services=False)
        self._context.write_git_file()
        host = Host.of(service)
        self._image = ImageSettings.of(service, self.config.image)
        context, mount = self._context, self._context.mount
        if mount is None:
            container = RunnerContainer(
                service,
                self.config,
                host,
                workspace=context.files,
                note=self._note,
                clock=self._clock,
                cancellation=cancellation,
                network=self._network_link(),
                meanwhile=partial(sweep_quietly, service),
            )
        else:
            container = self._waiting_or_new(service, host, cancellation)
            container.attach(partial(mount.attach, target=WORKSPACE_PATH), self._note)
        container.probe_workspace(cancellation, attached=mount is not None)
        return container

    def _waiting_or_new(
        self, service: PodmanService, host: Host, cancellation: Cancellation
    ) -> RunnerContainer:
        self._kind = ContainerKind.of(service, self._clock, self.config, host, self._image.id)
        if self._kind is not None and self.config.n_waiting:
            container = WaitingContainers.shared().take(self._kind, cancellation)
            if container is not None:
                return container
        return RunnerContainer(
            service,
            self.config,
            host,
            clock=self._clock,
            cancellation=cancellation,
            network=self._network_link(),
            meanwhile=partial(sweep_quietly, service),
        )

    def _network_link(self) -> NetworkLink | None:
        return link_of(self.config.network, self._environment)

    def _after_command(self) -> None:
        """Start a container for the next branch, unless this is the first use."""
        service, kind = self._service, self._kind
        if kind is None or service is None or not self.config.n_waiting:
            return
        start = partial(start_container, service, self.config, self._environment, clock=self._clock)
        WaitingContainers.shared().keep(kind, self.config.n_waiting, start)

    @property
    def _note(self) -> Path | None:
        notes = self._context.notes
        return None if notes is None else notes / leftovers.COMMANDS

    def _check_owner(self, service: PodmanService) -> None:
        """Change the owner of the files to the commands' user, so that commands can write."""
        if service.is_root != (os.geteuid() == 0):
            user = "root" if service.is_root else "an ordinary user"
            raise SandboxUnavailableError(
                f"the engine at {service.socket_path} runs as {user}, and this process does not",
                hint="Unset CONTAINER_HOST, so that another engine is started.",
            )
        give_files(self._context.files, self.config.user_id)

    def _end(self) -> None:
        commands, self._commands = self._commands, None
        if commands is not None:
            commands.end()
