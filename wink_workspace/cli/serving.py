"""The command that lets a client of the Model Context Protocol work in a workspace: ``mcp``."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from wink_workspace.environment import Environment
from wink_workspace.errors import UsageError
from wink_workspace.sandbox import NO_SANDBOX
from wink_workspace.telemetry import export_spans

from .display import consoles
from .places import config_of, line_of, open_workspace, storage_of, workspace_in
from .run import shows_content
from .sandboxes import SANDBOX_HELP, sandbox_sections

if TYPE_CHECKING:
    from wink_workspace.mcp_server import HttpOptions
    from wink_workspace.prompt import Section
    from wink_workspace.workspace import Workspace

__all__ = ["mcp"]

_TOKEN_VARIABLE: Final = "WINK_WORKSPACE_TOKEN"  # noqa: S105 - the name of a variable


def mcp(
    context: typer.Context,
    repo: Annotated[
        Path | None, typer.Option(help="The directory to work on a copy of; it is only read.")
    ] = None,
    workspace: Annotated[
        str | None, typer.Option(help="A workspace to go on in, instead of a new one.")
    ] = None,
    sandbox: Annotated[str, typer.Option(help=SANDBOX_HELP)] = NO_SANDBOX,
    in_place: Annotated[
        bool,
        typer.Option("--in-place", help="Change the directory itself; file tools only, no HTTP."),
    ] = False,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Serve over HTTP, a workspace for each session; else stdio."
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(help=f"What HTTP clients have to know; or set {_TOKEN_VARIABLE}."),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another name by which HTTP clients call us.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="The origin of web pages that may call us.")
    ] = None,
    workspace_tools: Annotated[
        bool,
        typer.Option(
            "--workspace-tools",
            help="Also offer workspace_diff, workspace_log, workspace_undo, workspace_apply.",
        ),
    ] = False,
    temporary: Annotated[
        bool,
        typer.Option("--temporary", help="Delete each workspace when its client has gone."),
    ] = False,
) -> None:
    """Serve the tools of a workspace to an MCP client, over stdio or HTTP."""
    with _missing_library_named():
        from wink_workspace.mcp_server import Offer, serve_http, serve_stdio
        from wink_workspace.mcp_server.hosting import WorkspaceHome
    environment: Environment = context.obj
    tell = _teller(environment)
    coming = _Coming(environment, repo, workspace, in_place=in_place, temporary=temporary)
    home = WorkspaceHome(
        coming.opener(),
        coming.leaver(tell),
        traces_content=shows_content(environment),
        redact=environment.redactor(),
    )
    sections = _sections(sandbox, in_place=coming.is_in_place)
    offer = Offer(sections, operations=workspace_tools, in_place=coming.is_in_place)
    with ExitStack() as opened:
        opened.callback(export_spans(environment.variables))
        if http is None:
            serve_stdio(home, offer)
            return
        coming.refuse_one_for_many()
        token = token or environment.variables.get(_TOKEN_VARIABLE) or None
        options = _http_options(http, token, allow_host or (), allow_origin or ())
        serve_http(home, offer, options, on_ready=lambda url: tell(f"serving on {url}"))


@contextmanager
def _missing_library_named() -> Generator[None]:
    """Say how to install what an import in the block does not find."""
    try:
        yield
    except ImportError as error:
        raise UsageError(
            f"the MCP server needs a library that is missing: {error.name}",
            hint="Install it: pip install 'wink-workspace[mcp]'.",
        ) from error


def _teller(environment: Environment) -> Callable[[str], None]:
    """What prints a line for whoever started the server."""
    _, err = consoles(environment)
    return lambda line: err.print(line, markup=False)


@dataclass(frozen=True, slots=True)
class _Coming:
    """Which workspaces clients get, and what becomes of them."""

    environment: Environment
    repo: Path | None
    workspace: str | None
    _: KW_ONLY
    in_place: bool
    temporary: bool

    @property
    def is_in_place(self) -> bool:
        """Whether calls change the user's own directory."""
        if self.workspace is None:
            return self.in_place
        which, _ = line_of(self.workspace)
        return storage_of(self.environment).folder(which).info().mode == "in_place"

    def refuse_one_for_many(self) -> None:
        """Raise ``UsageError`` if there is a single workspace, which many clients cannot share."""
        if self.workspace is not None or self.in_place:
            raise UsageError(
                "that workspace is for one client", hint="Give --repo alone with --http."
            )

    def opener(self) -> Callable[[], Workspace]:
        """What opens a client's workspace; fails now if it is plain that it could not."""
        from wink_workspace.workspace import Workspace

        environment = self.environment
        if self.workspace is not None:
            which = self.workspace
            if self.repo is not None or self.temporary or self.in_place:
                raise UsageError("a workspace has its directory", hint="Give --workspace alone.")
            return lambda: open_workspace(environment, which)
        if self.repo is None:
            raise UsageError("there is nothing to work on", hint="Give --repo or --workspace.")
        source = self.repo.absolute()
        if not source.is_dir():
            raise UsageError(f"{self.repo} is no directory", hint="Name one that exists.")
        if self.in_place:
            if self.temporary:
                raise UsageError("a directory of yours is not temporary", hint="Leave one out.")
            return lambda: open_workspace(environment, workspace_in(environment, source))
        if self.temporary:
            return lambda: Workspace.temporary(source)
        storage = storage_of(environment)
        return lambda: Workspace.create(source, storage=storage, config=config_of(environment))

    def leaver(self, tell: Callable[[str], None]) -> Callable[[Workspace], None]:
        """What becomes of a workspace: a copy stays if it was changed; its work is nowhere else."""
        from wink_workspace.workspace import Workspace

        if self.workspace is not None or self.in_place or self.temporary:
            return Workspace.close

        def leave(place: Workspace) -> None:
            which = place.info.id
            stays = _was_changed(place)
            place.close()
            if stays:
                tell(f"workspace {which} stays; see wink-workspace diff {which}")
            else:
                Workspace.delete(which, storage=storage_of(self.environment))

        return leave


def _sections(sandbox: str, *, in_place: bool) -> list[Section[None]]:
    """The sections that a client is offered.

    Raises:
        UsageError: If there is no such sandbox, or none can be where the workspace is.
    """
    from wink_workspace.sections import PlanningToolsSection, VfsToolsSection

    if in_place and sandbox != NO_SANDBOX:
        raise UsageError("in place only files can be changed", hint="Leave out --sandbox.")
    return [VfsToolsSection(), *sandbox_sections(sandbox), PlanningToolsSection()]


def _was_changed(place: Workspace) -> bool:
    return len({entry.files for entry in place.log()}) > 1 or bool(place.changeset().paths)


def _http_options(
    address: str, token: str | None, hosts: Sequence[str], origins: Sequence[str]
) -> HttpOptions:
    from wink_workspace.mcp_server import HttpOptions

    host, colon, port = address.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise UsageError(f"{address} is no HOST:PORT", hint="Write it as 127.0.0.1:8321.")
    return HttpOptions(
        host=host.removeprefix("[").removesuffix("]"),
        port=int(port),
        token=token,
        allowed_hosts=tuple(hosts),
        allowed_origins=tuple(origins),
    )
