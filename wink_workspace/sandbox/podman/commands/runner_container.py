"""A container with the runner: it is started and probed before it has a workspace.

Rule 1: every probe of the container was stopped before a workspace is attached to it, and every
probe of the workspace before a command runs.
Rule 2: the note that names the container is on the disk before the workspace is attached. So the
next process that opens the workspace knows which container may hold its files.
Rule 3: a container gets one workspace, once. There is no way to take it out again.

States: STARTED -> (WAITING ->) ATTACHED -> ENDED. A workspace that is a plain copy is bound by the
engine at the start, so such a container never waits.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING

from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.clock import Cancellation, Clock
from wink_workspace.errors import MountError, SandboxError, SandboxUnavailableError
from wink_workspace.sandbox.commands import leftovers
from wink_workspace.sandbox.commands.command_config import ReadOnlyMount
from wink_workspace.sandbox.commands.kernel_limits import isolation_layers
from wink_workspace.sandbox.commands.probed_runner import BOOT, ProbedRunner, runner_source
from wink_workspace.sandbox.commands.proof import SEE_PATHS, prove_workspace
from wink_workspace.sandbox.commands.system_calls import installed_list
from wink_workspace.sandbox.git_directory import HISTORY_PATH, WORKSPACE_PATH
from wink_workspace.sandbox.isolation_report import Layer
from wink_workspace.sandbox.podman.engine.containers import (
    PROJECT_PATH,
    Container,
    Host,
    container_spec,
    new_name,
    remove,
)
from wink_workspace.sandbox.podman.engine.podman_config import PodmanConfig
from wink_workspace.sandbox.podman.engine.service import PodmanService
from wink_workspace.sandbox.transport.container_frames import EngineParser
from wink_workspace.sandbox.transport.stream import RunnerStream

if TYPE_CHECKING:
    from wink_workspace.sandbox.network_proxy.link import NetworkLink


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ContainerKind:
    """Everything that is fixed when a container is created, except its workspace.

    Two kinds are equal if a container of one can take the place of a container of the other.
    """

    service: PodmanService
    clock: Clock
    digest: str

    @classmethod
    def of(
        cls, service: PodmanService, clock: Clock, config: PodmanConfig, host: Host, image: str
    ) -> ContainerKind | None:
        """The kind of this configuration; ``None`` if *image*, the id of its image, is empty."""
        if not image:
            return None
        spec = container_spec(config, host=host, name="", workspace=None, command=BOOT)
        rules = config.network
        network = [repr(rules), *(each.value for each in rules.secrets)]
        text = json.dumps([image, config.user_id, network, spec], sort_keys=True)
        return cls(service, clock, hashlib.sha256(text.encode()).hexdigest())


class RunnerContainer(ProbedRunner):
    """A started container whose runner is ready and whose isolation was probed.

    Args:
        service: The engine.
        config: The limits.
        host: What the machine provides for them.
        workspace: The directory that the engine binds. ``None`` if ``attach`` mounts it later.
        note: The file that names the container while it may hold *workspace*.
        clock: Measures time limits.
        cancellation: Is checked before each request to the engine, and in waits.
        network: The connections of commands; the container closes it. ``None`` for none.
        project: The directory that a build step can write, at ``PROJECT_PATH``.
        meanwhile: Is called while the runner starts.

    Raises:
        SandboxUnavailableError: If it cannot be started, or its image has no Python.
        IsolationError: If a probe succeeded; the container has ended.
        CallCancelledError: If *cancellation* is cancelled meanwhile; the container has ended.
    """

    def __init__(
        self,
        service: PodmanService,
        config: PodmanConfig,
        host: Host,
        *,
        workspace: Path | None = None,
        note: Path | None = None,
        clock: Clock,
        cancellation: Cancellation,
        network: NetworkLink | None = None,
        project: Path | None = None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        name, source = new_name(), runner_source()
        command = (*BOOT, str(config.user_id), str(len(source)))
        if network is not None:
            from wink_workspace.sandbox.network_proxy.routes import (
                PROXY_PORT,  # on use: most sandboxes have no network
            )

            command = (*command, str(PROXY_PORT))
        spec = container_spec(
            config, host=host, name=name, workspace=workspace, command=command, project=project
        )
        streams: list[socket] = []
        self._notes: list[Path] = []
        self._has_workspace = workspace is not None
        self._service = service
        self.end = weakref.finalize(
            self, _end_container, service, name, streams, self._notes, os.getpid(), network
        )
        try:
            cancellation.check()
            container = Container(service, spec, timeout_s=config.start_timeout_s)
            cancellation.check()
            streams.append(container.attach())
            super().__init__(RunnerStream(streams[0], clock=clock, framing=EngineParser()), network)
            self.live = container.start()
            if note is not None:
                self._note(note)
            meanwhile()
            ready = self._stream.ready(source, config.start_timeout_s, cancellation)
            self.shell = ready.shell or "/bin/sh"
            mounts = (mount.target for mount in config.mounts)
            self.prove(
                layers(config, host, self.live.shown),
                cancellation,
                bound=(WORKSPACE_PATH, PROJECT_PATH, *mounts),
                skipped=() if self.live.shown is None else (SEE_PATHS,),
            )
            if network is not None:
                self.prove_network(network, config.network, cancellation)
        except SandboxUnavailableError as error:
            self.end()
            if _lacks_python(error):
                raise SandboxUnavailableError(
                    f"the image {config.image} has no Python",
                    hint="Use an image with Python 3.8 or newer, such as one of"
                    " `wink-workspace image build`.",
                ) from error
            raise
        except BaseException:
            self.end()
            raise

    @property
    def is_usable(self) -> bool:
        """Whether it runs, and sent nothing since it was probed."""
        return self.end.alive and self.live.is_running and self._stream.is_silent

    def attach(self, mount: Callable[[int], None], note: Path | None) -> None:
        """Mount a workspace in it, after the container is noted.

        Args:
            mount: Mounts the workspace for the process id of the container.
            note: The file that names the container while it may hold the workspace.

        Raises:
            SandboxError: If it has had a workspace.
            SandboxUnavailableError: If the mount fails; the container has ended.
        """
        if self._has_workspace:
            raise SandboxError("this container has had a workspace", hint="Start another one.")
        self._has_workspace = True
        try:
            if note is not None:
                self._note(note)
                passed(KillPoint.CONTAINER_NOTED)
            try:
                mount(self.live.pid)
            except MountError as error:
                raise SandboxUnavailableError(
                    f"the workspace cannot be mounted in its container: {error.message}",
                    hint="Use a workspace with a plain copy of the files; `wink-workspace doctor`"
                    " says what the machine supports.",
                ) from error
            passed(KillPoint.WORKSPACE_ATTACHED)
        except BaseException:
            self.end()
            raise

    def probe_workspace(
        self,
        cancellation: Cancellation,
        *,
        attached: bool,
        writes: Sequence[str] | None = None,
    ) -> None:
        """Probe the mount of the workspace, and add the probes to ``report``.

        Args:
            cancellation: Ends the probes.
            attached: Whether a branch on an overlay was attached.
            writes: If the workspace is read-only, the directories of it that are not.

        Raises:
            IsolationError: If a probe succeeded; the container has ended.
            CallCancelledError: If *cancellation* is cancelled meanwhile; the container has ended.
        """
        try:
            run = self.probe_run(cancellation)
            n_mounts = 1 if writes is None else 2 + len(writes)  # with the empty mount point
            if attached:
                n_mounts = 2 + len(writes or ())
            overlay = 1 if attached else None
            self.add_probes(prove_workspace(run, overlay=overlay, writes=writes, n_mounts=n_mounts))
        except BaseException:
            self.end()
            raise

    def _note(self, note: Path) -> None:
        self._notes.append(note)
        leftovers.note(note, self.live)


def with_history(config: PodmanConfig, directory: Path | None) -> PodmanConfig:
    """*config* with the history of the source, for git, as one more mount."""
    if directory is None:
        return config
    return replace(config, mounts=(*config.mounts, ReadOnlyMount(str(directory), HISTORY_PATH)))


def _end_container(
    service: PodmanService,
    name: str,
    streams: list[socket],
    notes: list[Path],
    owner: int,
    network: NetworkLink | None,
) -> None:
    try:
        if os.getpid() != owner:
            return  # a forked child leaves it to its parent
        if network is not None:
            network.close()
        remove(service, name)
    except SandboxError as error:
        _log.warning("The container %s could not be removed: %s", name, error)
    else:
        for note in notes:
            leftovers.forget(note)
    finally:
        for stream in streams:  # not earlier: the engine would remove it by itself, but more slowly
            stream.close()


def _lacks_python(error: SandboxUnavailableError) -> bool:
    """Whether a container did not start because python3 is missing; runtimes differ in wording."""
    text = error.message.casefold()
    return "python3" in text and ("not found" in text or "no such file" in text)


def layers(config: PodmanConfig, host: Host, shown: str | None = None) -> tuple[Layer, ...]:
    """The isolation layers of a container; *shown* is ``LiveContainer.shown``."""
    hidden = Layer("hidden paths of the host", shown is None, shown or "except of what is bound")
    calls = "the engine's, narrowed" if installed_list() else "the engine's"
    return isolation_layers(
        config, host.controllers, is_root=host.is_root, more=(hidden,), calls=calls
    )
