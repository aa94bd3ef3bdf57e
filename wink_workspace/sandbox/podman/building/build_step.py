"""Build steps: what fetches, builds and installs the dependencies of a project.

Rule 1: a step has what a command of a sandbox has: no privilege, no file of the host, a read-only
system. It differs in two ways: it can also write ``/opt/project``, which is a directory of the
cache, and it reaches the package registries through the read-only proxy, and nothing else.
Rule 2: the isolation of its container is probed before it.
Rule 3: a step sees a copy of the source, which is deleted.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from wink_workspace.clock import SYSTEM_CLOCK, Cancellation
from wink_workspace.counts import counted, sized
from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxUnavailableError
from wink_workspace.sandbox.commands.disk_watch import DiskWatch, Usage
from wink_workspace.sandbox.commands.probed_runner import link_of
from wink_workspace.sandbox.network import REGISTRIES, NetworkLimits, NetworkRequest, NetworkRules
from wink_workspace.sandbox.podman.commands.image_settings import ImageSettings
from wink_workspace.sandbox.podman.commands.runner_container import RunnerContainer
from wink_workspace.sandbox.podman.engine.containers import PROJECT_PATH, Host
from wink_workspace.sandbox.podman.engine.host_programs import Progress
from wink_workspace.sandbox.podman.engine.podman_config import PodmanConfig
from wink_workspace.sandbox.podman.engine.service import shared_service
from wink_workspace.sandbox.sandbox_protocol import ExecRequest, StreamName
from wink_workspace.sandbox.transport.stream import Limits

_GIB: Final = 1_073_741_824
_LONGEST_S: Final = 1_800.0
_LIMITS: Final = PodmanConfig(
    cpus=16.0,
    memory_bytes=4 * _GIB,
    n_processes=512,
    file_bytes=8 * _GIB,
    tmp_bytes=_GIB,
    workspace_bytes=16 * _GIB,
    longest_timeout_s=_LONGEST_S,
    network=NetworkRules(
        allowed=REGISTRIES,
        limits=NetworkLimits(
            connections=64, requests=65_536, received_bytes=16 * _GIB, longest_s=_LONGEST_S
        ),
    ),
)
_LAST_LINES: Final = 30
_MOST_SHOWN: Final = 10
_SCRATCH: Final = f"{PROJECT_PATH}/.scratch"
_IN_SCRATCH: Final = """\
mkdir -p "$TMPDIR"
/bin/sh -ec "$0"
code=$?
chmod -R u+w "$TMPDIR"
rm -rf "$TMPDIR"
exit $code"""
"""Downloads and builds need more room than ``/tmp`` has, which is memory."""
_VARIABLES: Final = {
    **dict.fromkeys(("TMPDIR", "XDG_CACHE_HOME", "XDG_DATA_HOME"), _SCRATCH),
    "npm_config_cache": f"{_SCRATCH}/npm",
    "PIP_NO_CACHE_DIR": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PREFIX": PROJECT_PATH,
}
_MOST_LINE_BYTES: Final = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildStep:
    """A step to run.

    Attributes:
        image: The image in which it runs.
        command: One or more lines of shell; the first that fails ends it.
        source: A copy of the source, owned by the sandbox's user; an empty directory for none.
        project: The directory that is ``/opt/project``, owned likewise.
        record: The file that gets the requests of the step, one JSON object in each line.
    """

    image: str
    command: str
    source: Path
    project: Path
    record: Path


def first_line(command: str) -> str:
    """The first line of a command, as the name of its step."""
    return command.strip().splitlines()[0].lstrip("# ")[:200]


class StepRunner:
    """Runs steps in containers.

    Args:
        environment: The variables of the engine, and of the clients whose registries are used.
        progress: Is called with each line of output.
    """

    def __init__(self, environment: Environment, progress: Progress) -> None:
        self._environment = environment
        self._service = shared_service(environment)
        self._progress = progress
        self._host = Host.of(self._service)

    def run(self, step: BuildStep) -> None:
        """Run a step.

        Raises:
            IsolationError: If a probe of the isolation succeeded.
            SandboxUnavailableError: If the command fails, or exceeds a limit; the message ends
                with its last output.
        """
        config = replace(_LIMITS, image=step.image)
        never = Cancellation()
        container = RunnerContainer(
            self._service,
            config,
            self._host,
            workspace=step.source,
            project=step.project,
            clock=SYSTEM_CLOCK,
            cancellation=never,
            network=link_of(config.network, self._environment),
        )
        output = _Lines(self._progress)
        most = Usage(config.workspace_bytes, config.workspace_entries)
        pid = container.live.pid
        watches = [
            DiskWatch(path, most=most, first_pid=lambda: pid)
            for path in (step.source, step.project)
        ]
        limits = Limits(_LONGEST_S, lambda: next(filter(None, (each() for each in watches)), None))
        try:
            container.probe_workspace(never, attached=False)
            ending = container.run(
                ExecRequest(argv=("/bin/sh", "-c", _IN_SCRATCH, step.command)),
                ImageSettings.of(self._service, step.image).variables(_VARIABLES),
                limits,
                output,
            )
        finally:
            container.end()
        output.end()
        self._note_network(step.record, ending.network)
        if ending.timed_out:
            raise _failed(step, f"it took longer than {_LONGEST_S:.0f} seconds", output.last)
        if ending.exit_code != 0:
            why = ending.stopped or f"exit code {ending.exit_code}"
            raise _failed(step, why, output.last)

    def _note_network(self, record: Path, requests: tuple[NetworkRequest, ...]) -> None:
        if not requests:
            return
        record.parent.mkdir(exist_ok=True)
        record.write_text("".join(f"{json.dumps(asdict(each))}\n" for each in requests))
        n_bytes = sum(each.n_received for each in requests)
        hosts = ", ".join(sorted({each.host for each in requests if not each.problem})) or "nothing"
        self._progress(f"network: {counted(len(requests), 'request')}, {sized(n_bytes)} of {hosts}")
        for each in [each for each in requests if each.problem][:_MOST_SHOWN]:
            self._progress(f"network: {each.host}{each.path}: {each.problem}")


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
    return SandboxUnavailableError(
        f"the step {first_line(step.command)!r} failed ({why}): {output}",
        hint="It reaches package registries only, not repositories or other hosts. It runs as user"
        " 1000: what it installs belongs into /opt/project. Correct it, and build again.",
    )
