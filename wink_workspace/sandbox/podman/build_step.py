"""Run steps: commands of a project that fill ``/opt/project``, isolated as commands of a sandbox.

Rule 1: a step has what a command of a sandbox has: no network, no privilege, a read-only system. It
differs in one way: it can also write ``/opt/project``, which is a directory of the cache.
Rule 2: the isolation of a container of the image is probed before the first step.
Rule 3: a step sees a copy of the source, which is deleted, and downloads that it cannot change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from wink_workspace.clock import SYSTEM_CLOCK, Cancellation
from wink_workspace.errors import SandboxUnavailableError
from wink_workspace.sandbox.protocol import StreamName

from .commands import DirectCommands, probe_run
from .config import PodmanConfig, ReadOnlyMount
from .containers import (
    WORKSPACE_PATH,
    Container,
    Host,
    LiveContainer,
    container_spec,
    new_name,
)
from .direct import CommandStreams, DirectRunner
from .disk_watch import DiskWatch, Usage
from .image_settings import VARIABLES, ImageSettings
from .programs import Progress
from .proof import prove, refuse_holes
from .service import PodmanService
from .stream import Limits

__all__ = ["FETCHED_PATH", "PROJECT_PATH", "BuildStep", "StepRunner"]

FETCHED_PATH: Final = "/fetched"
"""The path of downloads in a step's container."""

PROJECT_PATH: Final = "/opt/project"
"""The path of what steps keep, in their containers and in the image of the project."""

_GIB: Final = 1_073_741_824
_LIMITS: Final = PodmanConfig(
    cpus=16.0,
    memory_bytes=4 * _GIB,
    n_processes=512,
    file_bytes=8 * _GIB,
    tmp_bytes=_GIB,
    workspace_bytes=16 * _GIB,
)
_LONGEST_S: Final = 1_800.0
_LAST_LINES: Final = 30
_IN_SOURCE: Final = 'cd "$0" && exec /bin/sh -ec "$1"'
"""Not the container's directory: that must be its root, which is replaced before the start."""
_MOST_OUTPUT_BYTES: Final = 16 * 1_048_576
_MOST_LINE_BYTES: Final = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildStep:
    """A step to run.

    Attributes:
        image: The image in which it runs.
        command: One or more lines of shell; the first that fails ends it.
        source: A copy of the source, owned by the sandbox's user; an empty directory for none.
        project: The directory that is ``/opt/project``, owned likewise.
        fetched: Directories of downloads, by their names below ``/fetched``.
        variables: The variables of the command, in addition to those of the image.
    """

    image: str
    command: str
    source: Path
    project: Path
    fetched: Mapping[str, Path]
    variables: Mapping[str, str]


class StepRunner:
    """Runs steps in containers.

    Args:
        service: The engine.
        progress: Is called with each line of output.
    """

    def __init__(self, service: PodmanService, progress: Progress) -> None:
        self._service = service
        self._progress = progress
        self._host = Host.of(service)

    def probe(self, image: str, folder: Path) -> None:
        """Probe the isolation of a container of *image*; *folder* is an empty directory.

        Raises:
            IsolationError: If a probe succeeded.
        """
        config = replace(_LIMITS, image=image)
        shown: list[str | None] = []

        def on_container(container: LiveContainer | None) -> None:
            if container is not None:
                shown[:] = [container.shown]

        runner = self._runner(config, folder, on_container)
        run = probe_run(DirectCommands(runner), Cancellation(), in_shell=True)
        refuse_holes(prove(run, config, self._host, in_shell=True, shown=shown.pop))

    def output(self, image: str, command: str, folder: Path) -> str:
        """What a shell command prints in a container of *image*; *folder* is an empty directory.

        Raises:
            SandboxUnavailableError: If it fails.
        """
        config = replace(_LIMITS, image=image)
        printed: dict[StreamName, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}

        def sink(stream: StreamName, data: bytes) -> None:
            if len(printed[stream]) < _MOST_OUTPUT_BYTES:
                printed[stream].extend(data)

        ending = self._runner(config, folder).run(
            ("/bin/sh", "-c", command),
            cwd="/",
            env=VARIABLES,
            stdin=b"",
            merge_stderr=False,
            limits=Limits(config.timeout_s),
            sink=sink,
        )
        if ending.exit_code:
            errors = printed["stderr"].decode("utf-8", "replace").strip()
            raise SandboxUnavailableError(
                f"{image} does not have what this needs: {command.split()[0]} failed {errors}",
                hint="Use the base python, build or node.",
            )
        return printed["stdout"].decode("utf-8", "replace")

    def run(self, step: BuildStep) -> None:
        """Run a step.

        Raises:
            SandboxUnavailableError: If the command fails, or exceeds a limit; the message ends
                with its last output.
        """
        config = replace(_LIMITS, image=step.image, mounts=_mounts(step.fetched))
        spec = container_spec(
            config,
            host=self._host,
            name=new_name(),
            workspace=step.source,
            command=("/bin/sh", "-c", _IN_SOURCE, WORKSPACE_PATH, step.command),
            user=f"{config.user_id}:{config.user_id}",
            env=ImageSettings.of(self._service, step.image).variables(step.variables),
        )
        spec["remove"] = False
        spec["mounts"].append(
            {
                "type": "bind",
                "source": str(step.project),
                "destination": PROJECT_PATH,
                "options": ["rw", "nosuid", "nodev", "bind", "private"],
            }
        )
        output = _Lines(self._progress)
        container = Container(self._service, spec, timeout_s=config.start_timeout_s)
        try:
            with container.attach() as connection:
                pid = container.start().pid
                most = Usage(config.workspace_bytes, config.workspace_entries)
                watches = [
                    DiskWatch(path, most=most, first_pid=lambda: pid)
                    for path in (step.source, step.project)
                ]
                limits = Limits(
                    _LONGEST_S, lambda: next(filter(None, (each() for each in watches)), None)
                )
                killed = CommandStreams(connection, b"", output, SYSTEM_CLOCK).run(limits)
            output.end()
            if killed is not None:
                why = killed.stopped or f"it took longer than {_LONGEST_S:.0f} seconds"
                raise _failed(step, why, output.last)
            code = container.exit_code()
            if code:
                raise _failed(step, f"exit code {code}", output.last)
        finally:
            container.end()

    def _runner(
        self,
        config: PodmanConfig,
        folder: Path,
        on_container: Callable[[LiveContainer | None], None] = lambda _: None,
    ) -> DirectRunner:
        return DirectRunner(
            self._service,
            config,
            self._host,
            folder,
            on_container,
            SYSTEM_CLOCK,
            with_init=False,
        )


def _mounts(fetched: Mapping[str, Path]) -> tuple[ReadOnlyMount, ...]:
    return tuple(
        ReadOnlyMount(str(path), f"{FETCHED_PATH}/{name}") for name, path in fetched.items()
    )


class _Lines:
    """Passes output on line by line, and keeps the last lines."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._rest = b""
        self._last: list[str] = []

    def __call__(self, _stream: StreamName, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line)
        if len(self._rest) > _MOST_LINE_BYTES:
            self.end()

    def end(self) -> None:
        """Pass on the last line."""
        if self._rest:
            self._line(self._rest)
        self._rest = b""

    def _line(self, line: bytes) -> None:
        text = line[:_MOST_LINE_BYTES].decode("utf-8", "replace")
        self._last = [*self._last[1 - _LAST_LINES :], text]
        self._progress(text)

    @property
    def last(self) -> str:
        return "; ".join(line.strip() for line in self._last if line.strip())


def _failed(step: BuildStep, why: str, output: str) -> SandboxUnavailableError:
    first = step.command.strip().splitlines()[0][:200]
    return SandboxUnavailableError(
        f"the step {first!r} failed ({why}): {output}",
        hint="It has no network, and runs as user 1000: what it installs belongs into"
        " /opt/project. Correct it, and build again.",
    )
