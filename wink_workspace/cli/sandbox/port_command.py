"""The command ``port``: a service of a workspace, opened in a browser of this machine."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from wink_workspace.cli.screen.command_context import CommandContext, WorkspaceArgument
from wink_workspace.cli.screen.display import printable
from wink_workspace.errors import UsageError
from wink_workspace.sandbox import DEFAULT_SANDBOX, ServiceConfig, Services, ServiceStatus

from .project import for_workspace
from .sandbox_options import ImageOption, RunnerOption, running_config

_STEP_S: Final = 0.2
_WARNING: Final = (
    "What you open there is a program of the workspace, and runs in your browser. It has no cookies"
    " of your other pages, but it can reach what your browser reaches."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortOptions:
    """The options of ``port``."""

    workspace: WorkspaceArgument
    service: Annotated[str, typer.Argument(help="The name of the service.")]
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, help="The port on this machine; the service's by default."),
    ] = None
    command: Annotated[
        str | None,
        typer.Option(
            help="The service's command; by default that of the settings, or as last started here."
        ),
    ] = None
    ready: Annotated[
        str, typer.Option(help="When it is ready, such as 'port 8000'; needed with --command.")
    ] = ""
    image: ImageOption = None
    sandbox: RunnerOption = None


def port(context: CommandContext, options: PortOptions) -> int:
    """Start a service of a workspace or fork, and open its port to this machine until Ctrl-C.

    The port is on a loopback address that only this service has. The service is known by name if
    the settings have it or it was started in this branch before; otherwise give its command. The
    exit code is 1 if it ends by itself.
    """
    from wink_workspace.project import Settings

    given = Settings(sandbox=options.sandbox, base=options.image)
    context = for_workspace(context, options.workspace, given, asks=True)
    config = running_config(context, options.sandbox, image=options.image)
    with context.open(options.workspace) as workspace:
        services = workspace.sandbox(config).services
        if services is None:
            raise UsageError(
                f"the sandbox {config.backend!r} has no services",
                hint=f"Use another sandbox, such as {DEFAULT_SANDBOX}.",
            )
        services.start(_service(services, options))
        address = services.expose(options.service, port=options.port)
        context.out.print(address.url, markup=False, style="bold")
        context.err.print(_WARNING, markup=False, style="yellow")
        context.err.print("Ctrl-C ends it.", style="dim")
        try:
            status = _ended(services, options.service)
        except KeyboardInterrupt:
            return 0
        output = services.log(options.service, limit_bytes=2_000).output
        text = printable(output.decode("utf-8", "backslashreplace"))
    how = status.reason or f"with exit code {status.exit_code}"
    context.err.print(f"The service ended: {printable(how)}\n{text}", markup=False, style="red")
    return 1


def _service(services: Services, options: PortOptions) -> ServiceConfig:
    if options.command is not None:
        return ServiceConfig(name=options.service, command=options.command, ready=options.ready)
    known = services.known(options.service)
    if known is None:
        raise UsageError(
            f"no service {options.service!r} was started in {options.workspace}",
            hint="Give its command: --command 'npm start' --ready 'port 3000'.",
        )
    return known


def _ended(services: Services, name: str) -> ServiceStatus:
    """Wait until a service has ended."""
    pause = threading.Event()
    while True:
        for status in services.listed():
            if status.config.name == name and status.state == "ended":
                return status
        pause.wait(_STEP_S)
