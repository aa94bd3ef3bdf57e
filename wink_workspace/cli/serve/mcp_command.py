"""The command ``mcp``: serves the tools of a workspace to clients of the Model Context Protocol."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from wink_workspace.cli.sandbox.project import for_project, for_workspace
from wink_workspace.cli.sandbox.sandbox_options import (
    SANDBOX_HELP,
    ImageOption,
    chosen_sandbox,
    configured,
)
from wink_workspace.cli.screen.command_context import TOKEN_VARIABLE, CommandContext, split_name
from wink_workspace.errors import MissingExtraError, UsageError
from wink_workspace.sandbox import AUTO_SANDBOX, NO_SANDBOX, SandboxConfig

if TYPE_CHECKING:
    from wink_workspace.mcp_server import HttpOptions
    from wink_workspace.prompt import Section
    from wink_workspace.workspace import Workspace


_SWITCH_INTERVAL_S: Final = 0.000_5
"""How long a thread that got an answer waits for one that loads modules; by default 5 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpOptions:
    """The options of ``mcp``."""

    repo: Annotated[
        Path | None, typer.Option(help="The directory to copy into a workspace; it is only read.")
    ] = None
    workspace: Annotated[
        str | None, typer.Option(help="An existing workspace, instead of a new one.")
    ] = None
    sandbox: Annotated[str | None, typer.Option(help=SANDBOX_HELP)] = None
    image: ImageOption = None
    in_place: Annotated[
        bool,
        typer.Option("--in-place", help="Change the directory itself; file tools only, no HTTP."),
    ] = False
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve over HTTP, with one workspace for each session, instead of stdio.",
        ),
    ] = None
    token: Annotated[
        str | None,
        typer.Option(help=f"The token that HTTP clients must send; or set {TOKEN_VARIABLE}."),
    ] = None
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another host name that HTTP clients may use.")
    ] = None
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="The origin of web pages that may send requests.")
    ] = None
    workspace_tools: Annotated[
        bool,
        typer.Option(
            "--workspace-tools",
            help="Also offer tools for the history and for branches: diff, log, undo, apply, fork,"
            " switch, compare, merge.",
        ),
    ] = False
    structured: Annotated[
        bool,
        typer.Option(
            "--structured",
            help="Also send results as JSON, for programs; many clients then hide the text.",
        ),
    ] = False
    temporary: Annotated[
        bool,
        typer.Option("--temporary", help="Delete each workspace when its client disconnects."),
    ] = False


def mcp(context: CommandContext, options: McpOptions) -> None:
    """Serve the tools of a workspace to an MCP client, over stdio or HTTP."""
    if options.workspace is not None and (
        options.repo is not None or options.temporary or options.in_place
    ):
        raise UsageError("a workspace has its directory", hint="Give --workspace alone.")
    if find_spec("mcp") is None:  # before anything is copied
        raise MissingExtraError.of("the MCP server", "mcp", "mcp")
    context = _for_source(context, options)
    in_place = _is_in_place(context, options)
    # In place there is no sandbox, so one that only a file of settings names is left out.
    name = _sandbox(context, options, in_place=in_place)
    with ThreadPoolExecutor(1) as pool, ExitStack() as opened:
        asked = pool.submit(configured, context, name, image=options.image)
        # While the engine is asked for images: a workspace needs this module, too.
        import wink_workspace.workspace.workspace  # noqa: F401 # pyright: ignore[reportUnusedImport] - only loaded
        from wink_workspace.mcp_server.catalog import Catalog
        from wink_workspace.mcp_server.hosting import HostedWorkspace, WorkspaceProvider

        opened.callback(context.export_spans())
        config = asked.result()
        host = WorkspaceProvider(
            _opener(context, options),
            _closer(context, options),
            traces_content=context.captures_content,
            redact=context.redact,
        )
        tools = Catalog(
            served_sections(name, in_place=in_place, config=config),
            operations=options.workspace_tools,
            in_place=in_place,
            structured=options.structured,
        )
        if options.http is None:
            sys.setswitchinterval(_SWITCH_INTERVAL_S)
            hosted = HostedWorkspace(host, tools)
            hosted.open()  # while the library of the protocol is loaded
            from wink_workspace.mcp_server.stdio import serve_hosted

            serve_hosted(hosted, host, tools)
            return
        from wink_workspace.mcp_server import serve_http

        serve_http(
            host,
            tools,
            _http_options(context, options, options.http),
            on_ready=lambda url: context.err.print(f"serving on {url}", markup=False),
        )


def _sandbox(context: CommandContext, options: McpOptions, *, in_place: bool) -> str:
    """The name of the sandbox; in place there is none unless the option names one."""
    if in_place:
        return NO_SANDBOX if options.sandbox in (None, AUTO_SANDBOX) else options.sandbox
    return chosen_sandbox(context, context.settings_for().sandbox, image=options.image)


def _for_source(context: CommandContext, options: McpOptions) -> CommandContext:
    """*context* with the settings of the project; nothing is asked, as no person may be there."""
    from wink_workspace.project import Settings

    given = Settings(sandbox=options.sandbox, base=options.image)
    if options.workspace is not None:
        return for_workspace(context, options.workspace, given)
    return context if options.repo is None else for_project(context, options.repo, given)


def served_sections(
    sandbox: str, *, in_place: bool, config: SandboxConfig | None = None
) -> list[Section[None]]:
    """The sections that a client is offered.

    Raises:
        UsageError: If there is no such sandbox, or the workspace cannot have one.
    """
    from wink_workspace.sections import PlanningToolsSection, VfsToolsSection

    if in_place and sandbox != NO_SANDBOX:
        raise UsageError("in place only files can be changed", hint="Leave out --sandbox.")
    from wink_workspace.workspace.runs.task_run import sandbox_sections

    return [VfsToolsSection(), *sandbox_sections(sandbox, config), PlanningToolsSection()]


def _is_in_place(context: CommandContext, options: McpOptions) -> bool:
    """Whether calls change the user's own directory."""
    if options.workspace is None:
        return options.in_place
    workspace, _ = split_name(options.workspace)
    return context.storage.folder(workspace).info().mode == "in_place"


def _opener(
    context: CommandContext, options: McpOptions
) -> Callable[[Callable[[int, int], None]], Workspace]:
    """Opens the workspace of a client.

    Raises:
        UsageError: If the options contradict each other, or name no directory.
    """
    repo, name = options.repo, options.workspace
    if name is not None:
        return lambda _: context.open(name)
    if repo is None:
        raise UsageError("there is nothing to work on", hint="Give --repo or --workspace.")
    source = repo.absolute()
    if not source.is_dir():
        raise UsageError(f"{repo} is not a directory", hint="Name an existing directory.")
    if options.in_place:
        if options.temporary:
            raise UsageError(
                "a workspace in place cannot be temporary", hint="Leave out one of the options."
            )
        return lambda _: context.open(context.in_place_workspace(source))

    def imported(progress: Callable[[int, int], None]) -> Workspace:
        from wink_workspace.workspace import Workspace

        config = context.config()
        if options.temporary:
            return Workspace.temporary(source, config=config, progress=progress)
        return Workspace.create(source, storage=context.storage, config=config, progress=progress)

    return imported


def _closer(context: CommandContext, options: McpOptions) -> Callable[[Workspace], None]:
    """Closes the workspace of a client, and deletes a copy that was made for it and not changed."""
    if options.workspace is not None or options.in_place or options.temporary:
        return lambda workspace: workspace.close()

    def close(workspace: Workspace) -> None:
        name = workspace.info.id
        try:
            has_new_trees = len({entry.files for entry in workspace.log()}) > 1
            was_changed = has_new_trees or bool(workspace.forks() or workspace.changeset().paths)
        finally:
            workspace.close()
        if was_changed:
            message = f"workspace {name} stays; see wink-workspace diff {name}"
            context.err.print(message, markup=False)
        else:
            type(workspace).delete(name, storage=context.storage)

    return close


def _http_options(context: CommandContext, options: McpOptions, address: str) -> HttpOptions:
    from wink_workspace.mcp_server import HttpOptions

    if options.workspace is not None or options.in_place:
        raise UsageError("that workspace is for one client", hint="Give --repo alone with --http.")
    host, colon, port = address.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise UsageError(f"{address} is not HOST:PORT", hint="Write it as 127.0.0.1:8321.")
    return HttpOptions(
        host=host.removeprefix("[").removesuffix("]"),
        port=int(port),
        token=options.token or context.token,
        allowed_hosts=tuple(options.allow_host or ()),
        allowed_origins=tuple(options.allow_origin or ()),
    )
