"""Tools for services: processes that outlive the call that started them.

They are for sandboxes that have services; a section for other sandboxes does not include them.

Starting and stopping a service is not undone with a call: a service is not part of the files. If a
call that starts a service fails before the service is ready, the service is stopped.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from wink_workspace.errors import SandboxError, SandboxUnavailableError, UsageError
from wink_workspace.prompt import Tool, ToolAnnotations, ToolContext, ToolExample, ToolResult
from wink_workspace.sandbox import Sandbox, ServiceConfig, ServiceLog, Services, ServiceStatus

_LOG_BYTES: Final = 32_768
_BACKGROUND: Final = "background-{}"

_NAME: Final = "The name of the service."


@dataclass(frozen=True, slots=True)
class StartServiceParams:
    """Parameters of ``start_service``."""

    name: str = field(
        metadata={
            "description": "Its name: lower-case letters, digits, '_' and '-', a letter first.",
            "min_length": 1,
            "max_length": 32,
        }
    )
    command: str = field(
        default="",
        metadata={
            "description": "One or more lines of shell, which stay in the foreground. Leave it out "
            "to start a known service again."
        },
    )
    ready: str = field(
        default="",
        metadata={
            "description": "When it is ready: 'port 8000' when it listens on that port, or a "
            "regular expression that a line of its output matches. Ready at once by default.",
            "max_length": 1_000,
        },
    )
    port: int | None = field(
        default=None,
        metadata={
            "description": "Its TCP port, if 'ready' does not name it. Commands reach it on "
            "127.0.0.1.",
            "ge": 1,
            "le": 65_535,
        },
    )
    writes: tuple[str, ...] = field(
        default=(),
        metadata={
            "description": "Derived directories, such as caches and builds, that it may change; "
            "everything else is read-only for it.",
            "max_length": 16,
        },
    )
    cwd: str = field(default=".", metadata={"description": "The working directory."})


@dataclass(frozen=True, slots=True)
class ServiceLogsParams:
    """Parameters of ``service_logs``."""

    name: str = field(
        default="",
        metadata={"description": f"{_NAME} Without it, all services are listed."},
    )
    lines: int = field(
        default=100, metadata={"description": "The most lines to show.", "ge": 1, "le": 2_000}
    )


@dataclass(frozen=True, slots=True)
class StopServiceParams:
    """Parameters of ``stop_service``."""

    name: str = field(metadata={"description": _NAME, "min_length": 1})


@dataclass(frozen=True, slots=True)
class ServiceOutput:
    """The state of services, and the newest output of one; bytes that are not UTF-8 are escaped.

    ``services`` has a line for each service. ``is_cut`` says that there was earlier output.
    """

    services: tuple[str, ...]
    output: str | None = None
    is_cut: bool = False

    def render(self) -> str:
        """The states, then the output."""
        states = "\n".join(self.services) or "There is no service."
        if self.output is None:
            return states
        earlier = "[… earlier lines left out …]\n" if self.is_cut else ""
        return f"{states}\n\n{earlier}{self.output or '(no output)'}"


def service_tools(*, prefix: str = "") -> tuple[Tool[Any, Any], ...]:
    """``start_service``, ``service_logs`` and ``stop_service``, for a sandbox with services.

    Args:
        prefix: A prefix of the name of every tool.
    """

    def start(params: StartServiceParams, /, *, context: ToolContext) -> ToolResult[ServiceOutput]:
        try:
            services = services_of(context)
            status = services.start(_config(params, services), cancellation=context.cancellation)
        except (SandboxError, UsageError) as error:
            return ToolResult.error(str(error))
        return ToolResult.ok(ServiceOutput((_state(status),)), f"Service {params.name} is running")

    def logs(params: ServiceLogsParams, /, *, context: ToolContext) -> ToolResult[ServiceOutput]:
        try:
            services = services_of(context)
            if not params.name:
                states = tuple(map(_state, services.listed()))
                return ToolResult.ok(ServiceOutput(states), f"{len(states)} services")
            log = services.log(params.name, limit_bytes=_LOG_BYTES)
        except (SandboxError, UsageError) as error:
            return ToolResult.error(str(error))
        return ToolResult.ok(_newest(log, params.lines), f"Output of {params.name}")

    def stop(params: StopServiceParams, /, *, context: ToolContext) -> ToolResult[ServiceOutput]:
        try:
            status = services_of(context).stop(params.name)
        except (SandboxError, UsageError) as error:
            return ToolResult.error(str(error))
        states = () if status.state == "running" else (_state(status),)
        return ToolResult.ok(
            ServiceOutput(states or (f"{params.name}: stopped",)), f"Stopped {params.name}"
        )

    changes = ToolAnnotations(read_only=False, destructive=False, idempotent=False)
    reads = ToolAnnotations(read_only=True, destructive=False, idempotent=True)
    return (
        Tool[StartServiceParams, ServiceOutput](
            name=f"{prefix}start_service",
            description="Start a process that outlives this call, such as a development server, "
            "and wait until it is ready.",
            handler=start,
            annotations=changes,
            examples=(_START,),
        ),
        Tool[ServiceLogsParams, ServiceOutput](
            name=f"{prefix}service_logs",
            description="Show whether a service runs, and its newest output.",
            handler=logs,
            annotations=reads,
            examples=(_LOGS,),
        ),
        Tool[StopServiceParams, ServiceOutput](
            name=f"{prefix}stop_service",
            description="Stop a service with all its processes.",
            handler=stop,
            annotations=changes,
            examples=(_STOP,),
        ),
    )


def services_of(context: ToolContext) -> Services:
    """The services of the prompt's sandbox.

    Raises:
        SandboxUnavailableError: If that sandbox has none.
    """
    services = context.resources.get(Sandbox).services
    if services is None:
        raise SandboxUnavailableError(
            "this sandbox has no services", hint="Run single commands instead."
        )
    return services


def background_name(services: Services) -> str:
    """A name that no service has."""
    taken = {status.config.name for status in services.listed()}
    number = 1
    while _BACKGROUND.format(number) in taken:
        number += 1
    return _BACKGROUND.format(number)


def _config(params: StartServiceParams, services: Services) -> ServiceConfig:
    if params.command:
        return ServiceConfig(
            name=params.name,
            command=params.command,
            ready=params.ready,
            writes=params.writes,
            port=params.port,
            cwd=params.cwd,
        )
    known = services.known(params.name)
    if known is None:
        raise UsageError(f"no service {params.name!r} is known", hint="Pass its command.")
    return replace(known, ready=params.ready or known.ready, port=params.port or known.port)


def _state(status: ServiceStatus) -> str:
    config = status.config
    if status.state == "ended":
        how = status.reason or (
            f"exit code {status.exit_code}"
            if status.signal is None
            else f"ended by signal {status.signal}"
        )
        return f"{config.name}: ended ({how})"
    port = config.reachable_port
    where = "" if port is None else f" on http://127.0.0.1:{port}"
    return f"{config.name}: {status.state}{where}"


def _newest(log: ServiceLog, n_lines: int) -> ServiceOutput:
    lines = log.output.decode("utf-8", "backslashreplace").splitlines()
    is_cut = log.n_missing > 0 or len(lines) > n_lines
    return ServiceOutput((_state(log.status),), "\n".join(lines[-n_lines:]), is_cut)


# Examples, which are run in this order

_START = ToolExample(
    description="Serve the files of the workspace, and wait until the server listens",
    input=StartServiceParams("web", "python3 -m http.server 8000", ready="port 8000"),
    output=ServiceOutput(("web: running on http://127.0.0.1:8000",)),
)
_LOGS = ToolExample(
    description="Which services are there?",
    input=ServiceLogsParams(),
    output=ServiceOutput(("web: running on http://127.0.0.1:8000",)),
)
_STOP = ToolExample(
    description="Stop the server",
    input=StopServiceParams("web"),
    output=ServiceOutput(("web: stopped",)),
)
