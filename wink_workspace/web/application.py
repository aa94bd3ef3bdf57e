"""The pages as a Starlette application; ``AccessGuard`` is in front of it."""

from __future__ import annotations

import contextlib
import re
import secrets
import signal
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote

import anyio
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.counts import counted
from wink_workspace.errors import (
    ConflictError,
    EntryMissingError,
    FileMissingError,
    LimitExceededError,
    PathEscapeError,
    UsageError,
    WinkError,
)
from wink_workspace.filesystem import FileKind
from wink_workspace.http_server import WebServer, listen
from wink_workspace.ledger import MAIN_BRANCH
from wink_workspace.sandbox.network import own_loopback_address
from wink_workspace.workspace import Workspace, WorkspaceReader, WorkspaceStorage
from wink_workspace.workspace.runs.live_runs import RunEnded, RunInProgress

from .actions import Actions, Continuation, ContinueRun, Form
from .attempts_page import HEIGHT, WIDTH
from .browser_sessions import AccessGuard
from .highlighting import code_style
from .pages import NEW_ROWS, Pages, TimelinePage, diff_rows
from .watching import LOOK_S, Watch, Watches, run_line, state_of

_FOLDER: Final = Path(__file__).parent
_REPORT: Final = _FOLDER.parent / "report" / "templates"
_WORKSPACE: Final = re.compile("[0-9a-f]{1,64}")
_KEEP_ALIVE_LOOKS: Final = 75
_WAITS_PER_LOOK: Final = 4
_STARTING_LOOKS: Final = 300
_MOST_STREAMS: Final = 50
_MOST_SHARED_ROWS: Final = 8
_STATE: Final = re.compile("[0-9a-f]{32}")
_NOT_FOUND: Final = (EntryMissingError, FileMissingError, PathEscapeError, UsageError)


@dataclass(slots=True)
class _Stopping:
    """Whether the server ends; open streams then end, too."""

    is_set: bool = False

    def set(self) -> None:
        self.is_set = True


class _NameConvertor(PathConvertor):
    """A path whose names may have line ends, which the library's own does not match."""

    regex = r"[\s\S]*"


class _Application:
    """The answers to requests."""

    def __init__(self, pages: Pages, actions: Actions | None, form_token: str) -> None:
        self.stopping = _Stopping()
        self._actions = actions
        self._continuations = actions and actions.continuations
        self._n_streams = 0
        self._shared_rows: OrderedDict[tuple[str, str, bool, str], Response] = OrderedDict()
        self._sharing = threading.Lock()
        self._watches = Watches(pages.ledger, pages.live_state)
        self._pages = pages
        self._templates = Environment(
            loader=FileSystemLoader([_FOLDER / "templates", _REPORT]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        names = cast("dict[str, Any]", self._templates.globals)
        names.update(line=self._pages.line, path_url=_path_url, diff_rows=diff_rows, markup=Markup)
        names.update(form_token=form_token, counted=counted)

    def routes(self) -> list[Route]:
        """Every page. Functions that are not coroutines run in threads."""
        register_url_convertor("name", _NameConvertor())
        return [
            Route("/", self.workspaces),
            Route("/style.css", self.style),
            Route("/w/{workspace}", self.timeline),
            Route("/w/{workspace}/rows", self.rows),
            Route("/w/{workspace}/entry/{entry}", self.entry),
            Route("/w/{workspace}/go/{path:name}", self.go),
            Route("/w/{workspace}/files/{entry}", self.files),
            Route("/w/{workspace}/files/{entry}/{path:name}", self.files),
            Route("/w/{workspace}/image/{entry}/{path:name}", self.image),
            Route("/w/{workspace}/compare", self.compare),
            Route("/w/{workspace}/attempts", self.attempts),
            Route("/w/{workspace}/events", self.events),
            Route("/w/{workspace}/run", self.run),
            Route("/w/{workspace}/run/events", self.run_events),
            *(self._action_routes(self._actions) if self._actions else ()),
        ]

    def _action_routes(self, actions: Actions) -> list[Route]:
        """What forms are sent to; ``AccessGuard`` has checked and parsed them."""

        def preview(request: Request) -> Response:
            workspace = _workspace(request)
            shown = actions.preview(workspace, _form(request))
            return self._page("move.html", workspace=workspace, shown=shown)

        def move(request: Request) -> Response:
            workspace = _workspace(request)
            entry = actions.move(workspace, _form(request))
            return RedirectResponse(f"/w/{workspace}?entry={entry.id}", HTTPStatus.SEE_OTHER)

        def fork(request: Request) -> Response:
            workspace = _workspace(request)
            actions.fork(workspace, _form(request))
            return RedirectResponse(f"/w/{workspace}", HTTPStatus.SEE_OTHER)

        def choose(request: Request) -> Response:
            workspace = _workspace(request)
            shown = actions.apply_page(workspace, _form(request))
            return self._page("apply.html", workspace=workspace, shown=shown)

        def apply(request: Request) -> Response:
            workspace = _workspace(request)
            done = actions.apply(workspace, _form(request))
            return self._page("applied.html", workspace=workspace, done=done)

        def say(request: Request) -> Response:
            actions.send(_workspace(request), _form(request))
            return self._to_run(request)

        def stop(request: Request) -> Response:
            actions.stop(_workspace(request), _form(request))
            return self._to_run(request)

        return [
            Route(f"/w/{{workspace}}/{each.__name__}", each, methods=["POST"])
            for each in (preview, move, fork, choose, apply, say, stop, self.resume)
        ]

    def _to_run(self, request: Request) -> Response:
        branch = quote(_field(request, "branch"))
        url = f"/w/{_workspace(request)}/run?branch={branch}"
        return RedirectResponse(url, HTTPStatus.SEE_OTHER)

    async def resume(self, request: Request) -> Response:
        """Continue a run that has ended; the answer waits until it is in progress, for a minute."""
        continuations = self._continuations
        if continuations is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, "this server does not continue runs")
        workspace, branch = _workspace(request), _field(request, "branch")
        message = _field(request, "message").strip()
        begin = partial(continuations.begin, workspace, branch, _field(request, "run"), message)
        started: Continuation | None = None
        problem: str | None = None
        for _ in range(_STARTING_LOOKS):
            started = started or await anyio.to_thread.run_sync(begin)
            if started is not None:
                problem = await anyio.to_thread.run_sync(continuations.outcome, started)
            if problem is not None or self.stopping.is_set:
                break
            await anyio.sleep(LOOK_S)
        if started is None:
            problem = "the process of the ended run still has the workspace. Try again."
        if not problem:
            return self._to_run(request)
        page = partial(self._run_page, workspace, branch, problem=problem, message=message)
        return await anyio.to_thread.run_sync(page)

    def workspaces(self, request: Request) -> Response:
        query = request.query_params.get("q", "")
        return self._page("workspaces.html", items=self._pages.workspaces(query), query=query)

    def style(self, _: Request) -> Response:
        """The style of reports, that of these pages, and the colours of code."""
        code, dark = code_style("default"), code_style("github-dark")
        own = (_REPORT / "style.css").read_text() + (_FOLDER / "static/ui.css").read_text()
        text = f"{own}\n{code}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"
        return Response(text, media_type="text/css")

    def timeline(self, request: Request) -> Response:
        workspace, query = _workspace(request), request.query_params.get("q", "")
        selected = request.query_params.get("entry", "")
        with self._pages.reader(workspace) as reader:
            folds = _folds(request)
            state = state_of(self._pages.live_state_in(reader))  # before what the page shows
            page = self._pages.timeline(reader, query=query, folds=folds)
            shown = self._entry(reader, selected, request) if selected else None
            branches = list(reader.heads())
            running = self._pages.running(reader)
            reported = self._pages.reported(reader)
        return self._page(
            "timeline.html",
            workspace=reader.info.id,
            source=reported.source,
            task=self._pages.task(workspace),
            page=page,
            query=query,
            selected=selected,
            shown=shown,
            branches=branches,
            running=running,
            folds=folds,
            state=state,
        )

    def rows(self, request: Request) -> Response:
        """The rows after a cursor, without the page around them.

        All open pages ask for the newest ones when something has changed. They name the state that
        they were notified of, and share the answer for it.
        """
        workspace, query = _workspace(request), request.query_params.get("q", "")
        state = request.query_params.get("state", "")
        if "after" in request.query_params or not _STATE.fullmatch(state):
            return self._rows(request)
        key = (workspace, query, _folds(request), state)
        with self._sharing:
            if key not in self._shared_rows:
                self._shared_rows[key] = self._rows(request, n_rows=NEW_ROWS)
                if len(self._shared_rows) > _MOST_SHARED_ROWS:
                    self._shared_rows.popitem(last=False)
            return self._shared_rows[key]

    def _rows(self, request: Request, *, n_rows: int | None = None) -> Response:
        after, query = request.query_params.get("after", ""), request.query_params.get("q", "")
        with self._pages.reader(_workspace(request)) as reader:
            folds = _folds(request)
            page: TimelinePage = self._pages.timeline(
                reader, after=after, query=query, folds=folds, n_rows=n_rows
            )
        return self._page(
            "rows.html",
            workspace=reader.info.id,
            page=page,
            query=query,
            selected="",
            folds=folds,
        )

    def entry(self, request: Request) -> Response:
        """An entry without the page around it."""
        with self._pages.reader(_workspace(request)) as reader:
            shown = self._entry(reader, request.path_params["entry"], request)
            branches = list(reader.heads())
        return self._page("entry.html", workspace=reader.info.id, shown=shown, branches=branches)

    def _entry(self, reader: WorkspaceReader, which: str, request: Request) -> dict[str, Any]:
        entry, reported = self._pages.entry(reader, which)
        return {
            "target": reader.reverted_by(entry),
            "entry": entry,
            "reported": reported,
            "images": self._pages.images(reader, entry),
            "side_by_side": request.query_params.get("view") == "split",
        }

    def go(self, request: Request) -> Response:
        """The file or directory at the entry with a number, for the slider."""
        workspace, path = _workspace(request), request.path_params["path"]
        with self._pages.reader(workspace) as reader:
            entry = self._pages.find(reader, request.query_params.get("n", ""))
        place = f"/{_path_url(path)}" if path else ""
        url = f"/w/{reader.info.id}/files/{entry.id}{place}"
        return RedirectResponse(url, HTTPStatus.SEE_OTHER)

    def files(self, request: Request) -> Response:
        """A directory or a file as it was after an entry."""
        path = request.path_params.get("path", "").strip("/")
        with self._pages.reader(_workspace(request)) as reader:
            entry = self._pages.find(reader, request.path_params["entry"])
            reported = self._pages.reported(reader)
            newest = reader.head.number
            lines = listing = None
            is_image, problem = False, ""
            try:
                listing = reader.listing(entry, path)
            except FileMissingError:
                try:
                    is_image = bool(self._pages.image(reader, entry.id, path)[1])
                    lines = [] if is_image else self._pages.file(reader, entry, path)
                except (FileMissingError, LimitExceededError) as error:
                    problem = error.message
            return self._page(
                "files.html",
                workspace=reader.info.id,
                entry=entry,
                subject=reported.line(entry.subject),
                newest=newest,
                path=path,
                listing=[(name, each.kind is FileKind.DIRECTORY) for name, each in listing or ()],
                is_directory=listing is not None,
                lines=lines or [],
                is_image=is_image,
                problem=problem,
            )

    def image(self, request: Request) -> Response:
        with self._pages.reader(_workspace(request)) as reader:
            path = request.path_params["path"]
            content, kind = self._pages.image(reader, request.path_params["entry"], path)
        if not kind:
            raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "this is not an image")
        return Response(content, media_type=kind)

    def compare(self, request: Request) -> Response:
        """The differences between two entries or branches."""
        before, after = (request.query_params.get(name, "") for name in ("from", "to"))
        with self._pages.reader(_workspace(request)) as reader:
            branches = list(reader.heads())
            differences = self._pages.compared(reader, before, after) if before and after else None
        return self._page(
            "compare.html",
            workspace=reader.info.id,
            branches=branches,
            before=before,
            after=after,
            differences=differences,
            side_by_side=request.query_params.get("view") == "split",
        )

    def attempts(self, request: Request) -> Response:
        """One run of attempts, by default the newest; only what changes, for a live page."""
        workspace, wanted = _workspace(request), request.query_params.get("run", "")
        with self._pages.reader(workspace) as reader:
            state = state_of(self._pages.live_state_in(reader))
            runs = self._pages.runs(reader)
        run = next((each for each in runs if wanted in ("", each.run_id)), None)
        if wanted and run is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, "this run was removed")
        return self._page(
            "attempts_part.html" if "part" in request.query_params else "attempts.html",
            workspace=workspace,
            runs=runs,
            run=run,
            width=WIDTH,
            height=HEIGHT,
            state=state,
        )

    def run(self, request: Request) -> Response:
        """The newest run of a branch: what is stored of it so far, or how it ended."""
        branch = request.query_params.get("branch", MAIN_BRANCH)
        return self._run_page(_workspace(request), branch)

    def _run_page(
        self, workspace: str, branch: str, *, problem: str = "", message: str = ""
    ) -> Response:
        """The page of a run; with the *problem* that ended a process that continued it.

        *message* is what the form has already.
        """
        with self._pages.reader(workspace) as reader:
            others = [each for each in reader.heads() if each != branch]
        run, continuations = self._pages.newest_run(workspace, branch), self._continuations
        is_starting = can_continue = False
        if run is not None and continuations is not None:
            is_starting = continuations.is_starting(workspace, branch, run)
            can_continue = not (is_starting or run.owner or run.is_agent)
        return self._page(
            "run.html",
            status=HTTPStatus.CONFLICT if problem else HTTPStatus.OK,
            workspace=workspace,
            branches=[branch, *others],
            run=run,
            ending="" if run and run.owner else self._pages.ending(workspace, branch),
            is_starting=is_starting,
            can_continue=can_continue,
            problem=problem,
            message=message,
        )

    async def run_events(self, request: Request) -> Response:
        """A stream with the events of a run, from the oldest that is stored to its end."""
        if self._n_streams >= _MOST_STREAMS:
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages are open")
        workspace = _workspace(request)
        branch = request.query_params.get("branch", MAIN_BRANCH)
        run = await anyio.to_thread.run_sync(self._pages.run_in_progress, workspace, branch)

        def ending() -> str:
            try:
                return self._pages.ending(workspace, branch)
            except WinkError as error:  # the workspace was deleted meanwhile
                return self._pages.line(error.message)

        return StreamingResponse(self._run_lines(run, ending), media_type="text/event-stream")

    async def _run_lines(
        self, run: RunInProgress | None, ending: Callable[[], str]
    ) -> AsyncGenerator[str]:
        template = self._templates.get_template("run_line.html")
        self._n_streams += 1
        has_ended = False
        try:
            yield "retry: 1000\n\n"
            for n_looks in count(1):
                is_over = run is None or run.is_over  # before the events, which are the last then
                events = [] if run is None else await anyio.to_thread.run_sync(run.new_events)
                for event in events:
                    has_ended = isinstance(event, RunEnded)
                    yield _frame("line", template.render(each=run_line(event, self._pages.line)))
                if is_over or self.stopping.is_set:
                    break
                if n_looks % _KEEP_ALIVE_LOOKS == 0:
                    yield ": still here\n\n"
                await anyio.sleep(LOOK_S)
            if not self.stopping.is_set:
                killed = "" if has_ended else await anyio.to_thread.run_sync(ending)
                yield _frame("over", killed or "The run is over.")
        finally:
            self._n_streams -= 1
            if run is not None:
                run.close()

    async def events(self, request: Request) -> Response:
        """A stream with an event for each change of a branch since what the page shows.

        A page says what it shows; a browser that connects again says what it received last.
        """
        if self._n_streams >= _MOST_STREAMS:
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages are open")
        watch = self._watches.of(_workspace(request))
        await watch.look()
        shown = request.headers.get("last-event-id") or request.query_params.get("known", "")
        return StreamingResponse(
            self._changes(watch, shown or watch.state), media_type="text/event-stream"
        )

    async def _changes(self, watch: Watch, shown: str) -> AsyncGenerator[str]:
        self._n_streams += 1
        try:
            yield "retry: 1000\n\n"
            for n_looks in count(1):
                if watch.state != shown:
                    shown = watch.state
                    yield f"id: {shown}\nevent: changed\ndata:\n\n"
                elif n_looks % (_WAITS_PER_LOOK * _KEEP_ALIVE_LOOKS) == 0:
                    yield ": still here\n\n"
                await anyio.sleep(LOOK_S / _WAITS_PER_LOOK)  # another page may look meanwhile
                if self.stopping.is_set:
                    return
                await watch.look()
        except WinkError:  # deleted
            yield "event: gone\ndata:\n\n"
        finally:
            self._n_streams -= 1

    def _page(self, template: str, *, status: int = HTTPStatus.OK, **values: object) -> Response:
        return HTMLResponse(self._templates.get_template(template).render(values), status)

    async def problem(self, request: Request, error: Exception) -> Response:
        """A page that says what went wrong, and what to do next."""
        is_form = request.method == "POST"
        given = request.path_params.get("workspace", "")
        shown = {
            "is_form": is_form,
            "workspace": given if _WORKSPACE.fullmatch(given) else "",
            "details": error.details if isinstance(error, ConflictError) else "",
        }
        if isinstance(error, HTTPException):
            status, message, hint = error.status_code, error.detail, ""
        else:
            assert isinstance(error, WinkError)  # noqa: S101 - it handles no other errors
            message, hint = error.message, error.hint or ""
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            if isinstance(error, _NOT_FOUND):
                status = HTTPStatus.NOT_FOUND
            if is_form:
                status = HTTPStatus.CONFLICT
        return self._page("problem.html", status=status, message=message, hint=hint, **shown)


def make_app(
    pages: Pages, *, actions: Actions | None = None, form_token: str = ""
) -> tuple[Starlette, Callable[[], None]]:
    """The application, and a function that ends its streams.

    Args:
        pages: The data of the pages.
        actions: Makes the changes that forms ask for; without it the pages only read.
        form_token: The token of the forms, as for ``AccessGuard``.
    """
    application = _Application(pages, actions, form_token)
    app = Starlette(
        routes=application.routes(),
        exception_handlers={
            HTTPException: application.problem,
            WinkError: application.problem,
        },
    )
    app.mount("/static", StaticFiles(directory=_FOLDER / "static"))
    return app, application.stopping.set


def _workspace(request: Request) -> str:
    name: str = request.path_params["workspace"]
    if not _WORKSPACE.fullmatch(name):
        raise HTTPException(HTTPStatus.NOT_FOUND, "no workspace has this id")
    return name


def _frame(event: str, data: str) -> str:
    """A server-sent event."""
    lines = "".join(f"data: {line}\n" for line in data.split("\n"))
    return f"event: {event}\n{lines}\n"


def _folds(request: Request) -> bool:
    return request.query_params.get("fold") != "no"


def _form(request: Request) -> Form:
    form: Form = request.scope["form"]
    return form


def _field(request: Request, name: str) -> str:
    return next(iter(_form(request).get(name, ())), "")


def _path_url(path: str) -> str:
    return quote(path.encode("utf-8", "surrogateescape"))


# ------------------------------------------------------------------------------------ page server


_HEADERS_TIMEOUT_S: Final = 10.0
_CLOSING_S: Final = 2


def serve_web(
    storage: WorkspaceStorage,
    *,
    redact: Callable[[str], str],
    on_ready: Callable[[Callable[[], str]], None],
    open_workspace: Callable[[str], Workspace] | None = None,
    continue_run: ContinueRun | None = None,
    workspace: str = "",
    port: int = 0,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Serve until SIGTERM or Ctrl-C arrives.

    The address is one of 127.0.0.0/8 that no other server has: browsers send cookies to every
    port of an address.

    Args:
        storage: The workspaces.
        redact: Applied to every text that is shown.
        on_ready: Called when requests are accepted, with a function that makes a new link.
        open_workspace: Opens the branch ``WORKSPACE/BRANCH``, so that the pages can change it; by
            default they only read.
        continue_run: Continues the last run of a workspace or fork in a process of its own, with a
            message of the user unless that is ``""``; by default no page does. It needs
            *open_workspace*.
        workspace: The workspace whose page the link opens; the list of all, if left out.
        port: The port; 0 for any free port.
        clock: The time.

    Raises:
        UsageError: If it cannot listen on the port, or there is no such workspace.
    """
    start = f"/w/{storage.folder(workspace).info().id}" if workspace else "/"
    pages = Pages(storage, redact)
    actions = None if open_workspace is None else Actions(pages, open_workspace, continue_run)
    anyio.run(_serve, pages, actions, on_ready, start, port, clock)


async def _serve(
    pages: Pages,
    actions: Actions | None,
    on_ready: Callable[[Callable[[], str]], None],
    start: str,
    port: int,
    clock: Clock,
) -> None:
    form_token = "" if actions is None else secrets.token_urlsafe(32)
    app, stop = make_app(pages, actions=actions, form_token=form_token)
    guard = AccessGuard(app, clock, form_token=form_token, start=start)
    with contextlib.closing(listen(own_loopback_address(secrets.token_hex()), port)) as listening:
        guard.address = ":".join(map(str, listening.getsockname()[:2]))
        server = WebServer(
            guard, headers_timeout_s=_HEADERS_TIMEOUT_S, closing_s=_CLOSING_S, on_end=stop
        )
        server.when_ready = lambda: on_ready(guard.link)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_on_signal, server)
            await server.serve(sockets=[listening])
            tasks.cancel_scope.cancel()


async def _end_on_signal(server: WebServer) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            server.end()
