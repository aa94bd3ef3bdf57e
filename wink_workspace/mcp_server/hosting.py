"""The workspace of one client, with a thread that runs its calls.

Rule 1: everything that touches the workspace runs on that one thread, one call after another.
Handlers are synchronous, so the event loop must not run them.
Rule 2: the workspace is opened by ``open``, or when a call first needs it. Calls wait meanwhile. If
opening fails, the request that needed it gets the error, and the next request tries again.
Rule 3: ``call`` answers every mistake of a model with a failed result; it does not raise.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from wink_workspace import serde
from wink_workspace.clock import SYSTEM_CLOCK, Cancellation, Heartbeat
from wink_workspace.errors import UsageError, WinkError
from wink_workspace.runtime import (
    MOST_TEXT_CHARS,
    CallSpan,
    Redaction,
    RemoteClient,
    ToolCall,
    call_span,
    shortened,
)

from .catalog import Catalog

if TYPE_CHECKING:  # the tools are listed before a workspace is opened, without these
    from wink_workspace.prompt import ToolResult
    from wink_workspace.runtime import CallOutcome, ToolExecutor
    from wink_workspace.workspace import Workspace


T = TypeVar("T")
ImportProgress = Callable[[int, int], None]

_CANCELLED: Final = "cancelled"
_LOOK_S: Final = 5.0
_LOOK_SHARE: Final = 50
_EDITED: Final = (
    "(Files of the source directory were edited outside of this workspace, which has them as they"
    " were before.{hint})"
)
_SYNC_HINT: Final = " `workspace_sync` merges the edits."


@dataclass(frozen=True, slots=True)
class WorkspaceProvider:
    """Opens a workspace for each client and decides what becomes of it.

    Attributes:
        open: Opens the workspace of one client. It calls its argument with the number of files
            and bytes imported so far, and stops if that raises.
        release: Closes it after the client disconnected, and keeps or deletes it.
        traces_content: Whether telemetry also gets the arguments and results of calls.
        redact: Applied to everything that a client or telemetry gets from a workspace, and to the
            records of calls; see ``ToolExecutor``. Files are not redacted.
    """

    open: Callable[[ImportProgress], Workspace]
    release: Callable[[Workspace], None] = lambda workspace: workspace.close()
    traces_content: bool = False
    redact: Callable[[str], str] = str

    @classmethod
    def of(cls, served: Workspace | WorkspaceProvider) -> WorkspaceProvider:
        """What serves an open workspace, and leaves it open."""
        if isinstance(served, WorkspaceProvider):
            return served
        return cls(lambda _: served, release=lambda _: None)


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a call for the client; ``value`` is ``None`` unless the call succeeded."""

    text: str
    success: bool
    value: object = None


class HostedWorkspace:
    """The workspace of one client.

    Args:
        provider: Opens and releases the workspace.
        catalog: The tools that the client may call.
    """

    def __init__(self, provider: WorkspaceProvider, catalog: Catalog) -> None:
        self._provider = provider
        self._catalog = catalog
        self._redaction = Redaction(provider.redact)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="wink-workspace")
        self._open_workspace: _OpenWorkspace | None = None
        self._closing: Future[None] | None = None
        self._unfinished: set[Cancellation] = set()
        self._n_imported = 0

    def call(
        self,
        name: str,
        arguments: Mapping[str, object],
        *,
        cancellation: Cancellation,
        on_beat: Callable[[], None] = lambda: None,
        client: RemoteClient | None = None,
    ) -> Future[Answer]:
        """Call a tool after all earlier requests; the future has the answer.

        Args:
            name: The tool; an unknown name gives a failed answer.
            arguments: Values by name, as the client sent them.
            cancellation: Cancelled when the client no longer waits for the answer.
            on_beat: Called on the workspace's thread at each heartbeat of the call.
            client: The client that sent the request, for telemetry.
        """
        tool = self._catalog.tool(name)
        given = arguments if tool is None else _without_nulls(tool.params_type, arguments)
        call = ToolCall.of(name, given, id=f"mcp-{uuid.uuid4().hex}")
        request = _CallRequest(call, cancellation, on_beat, client)
        future = self._submit(lambda: self._answer(request))
        self._unfinished.add(cancellation)

        def on_done(done: Future[Answer]) -> None:
            self._unfinished.discard(cancellation)
            if done.cancelled():  # before it began, so no other code makes a span for it
                with self._span_of(request) as span:
                    span.fail(_CANCELLED)

        future.add_done_callback(on_done)
        self._pool.submit(self._look_at_source)
        return future

    def _look_at_source(self) -> None:
        """Look for edits of the source, after an answer, for a notice in the next one."""
        if self._open_workspace is not None:
            self._open_workspace.look_at_source()

    @property
    def activity(self) -> str:
        """What the workspace's thread does, for progress notifications."""
        if self._open_workspace is not None:
            return "running"
        return f"importing the files: {self._n_imported:,} so far"

    def cancel_calls(self) -> None:
        """Cancel every call that runs or waits; each still gets an answer."""
        for cancellation in tuple(self._unfinished):
            cancellation.cancel()

    def read(self, query: Callable[[Workspace], T]) -> Future[T]:
        """Run *query* after all earlier requests; it must not change the workspace."""
        return self._submit(lambda: query(self._opened().workspace))

    def open(self) -> Future[None]:
        """Open the workspace in the background; the future has the error if that fails."""

        def run() -> None:
            self._opened()

        return self._submit(run)

    def close(self) -> Future[None]:
        """Release the workspace after the calls before; later requests are refused."""
        if self._closing is None:
            self._closing = self._pool.submit(self._release)
            self._pool.shutdown(wait=False)
        return self._closing

    def _submit(self, work: Callable[[], T]) -> Future[T]:
        if self._closing is not None:
            raise _closed()
        return self._pool.submit(work)

    def _answer(self, request: _CallRequest) -> Answer:
        """Make the call in a span of its own."""
        with self._span_of(request) as span:
            try:
                answer = self._run(request, span)
                answer = replace(answer, text=answer.text + self._opened().take_notice())
            except WinkError as error:
                span.fail()
                answer = Answer(self._redaction.text(str(error)), success=False)
            if request.cancellation.cancelled and not answer.success:
                span.fail(_CANCELLED)
            return answer

    def _span_of(self, request: _CallRequest) -> AbstractContextManager[CallSpan]:
        return call_span(
            request.call,
            tool=self._catalog.tool(request.call.name),
            clock=SYSTEM_CLOCK,
            with_content=self._provider.traces_content,
            redact=self._provider.redact,
            client=request.client,
        )

    def _run(self, request: _CallRequest, span: CallSpan) -> Answer:
        opened = self._opened()
        operation = self._catalog.operations.get(request.call.name)
        if operation is None:
            outcome = opened.call(request)
            span.note(outcome)
            return replace(_answer(outcome.result), text=outcome.text)
        from .branch_tools import SwitchedBranch  # on use, as in ``Catalog``

        request.cancellation.check()
        result = operation.run(opened.workspace, request.call.arguments)
        if isinstance(result.value, SwitchedBranch):
            opened.switch(result.value.branch)
        if not result.success:
            span.fail()
        answer = _answer(self._redaction.result(result, failed=True))
        if len(answer.text) <= MOST_TEXT_CHARS:
            return answer
        # Not in a call: the file is an edit of the server, which no undo reverts.
        text = shortened(answer.text, request.call.name, opened.workspace.files)
        return replace(answer, text=text)

    def _opened(self) -> _OpenWorkspace:
        if self._open_workspace is None:
            self._open_workspace = _OpenWorkspace(
                self._provider, self._catalog, self._note_imported
            )
        return self._open_workspace

    def _note_imported(self, n_files: int, n_bytes: int) -> None:
        del n_bytes
        self._n_imported = n_files
        if self._closing is not None:  # an import may take longer than the client's patience
            raise _closed()

    def _release(self) -> None:
        opened, self._open_workspace = self._open_workspace, None
        if opened is not None:
            opened.close()


@dataclass(frozen=True, slots=True)
class _CallRequest:
    """A client's request for a call."""

    call: ToolCall
    cancellation: Cancellation
    on_beat: Callable[[], None]
    client: RemoteClient | None


class _OpenWorkspace:
    """An open workspace with the executor of its calls; used on one thread only.

    Attributes:
        workspace: The branch on which calls work: the one that was opened, or a fork.
    """

    def __init__(
        self, provider: WorkspaceProvider, catalog: Catalog, progress: ImportProgress
    ) -> None:
        self._provider, self._catalog = provider, catalog
        with ExitStack() as opened:
            self._home: Final = provider.open(progress)
            opened.callback(provider.release, self._home)
            self._heartbeat = Heartbeat(self._home.session.clock)
            self._branch = opened.enter_context(ExitStack())  # closes the branch of the calls
            self.workspace = self._home
            self._executor = self._branch.enter_context(self._executor_for(self._home))
            self.close: Final = opened.pop_all().close
        self._next_look_s = self._noticed_s = 0.0
        self._notice = ""

    def look_at_source(self) -> None:
        """Make a notice if the source was edited since the last one.

        It takes at most a fiftieth of the time.
        """
        began_s = SYSTEM_CLOCK.monotonic_s()
        if began_s < self._next_look_s or self._notice:
            return
        from wink_workspace.workspace.changes.source_edits import was_source_edited

        now_s = SYSTEM_CLOCK.now().timestamp()
        if was_source_edited(self.workspace.folder, since_s=self._noticed_s):
            has_sync = "workspace_sync" in self._catalog.operations
            self._notice = "\n\n" + _EDITED.format(hint=_SYNC_HINT if has_sync else "")
            self._noticed_s = now_s
        ended_s = SYSTEM_CLOCK.monotonic_s()
        self._next_look_s = ended_s + max(_LOOK_S, _LOOK_SHARE * (ended_s - began_s))

    def take_notice(self) -> str:
        """The notice for the next answer; ``""`` if there is none."""
        notice, self._notice = self._notice, ""
        return notice

    def _executor_for(self, workspace: Workspace) -> AbstractContextManager[ToolExecutor]:
        return workspace.executor(
            self._catalog.prompt(), heartbeat=self._heartbeat, redact=self._provider.redact
        )

    def switch(self, branch: str) -> None:
        """Let calls work on another branch.

        Raises:
            LedgerBusyError: If another process has it open; calls work on the branch before.
            WinkError: If the branch before cannot be closed; calls work on the one that was opened.
        """
        if branch == self.workspace.branch_name:
            return
        with ExitStack() as opened:
            workspace = self._home
            if branch != self._home.branch_name:
                workspace = opened.enter_context(self._home.branches.open(branch))
            executor = opened.enter_context(self._executor_for(workspace))
            try:
                self._branch.close()
            except BaseException:
                self.workspace = self._home
                self._executor = self._branch.enter_context(self._executor_for(self._home))
                raise
            self._branch.push(opened.pop_all())
        self.workspace, self._executor = workspace, executor

    def call(self, request: _CallRequest) -> CallOutcome:
        stop = self._heartbeat.observe(request.on_beat)
        try:
            return self._executor.execute(request.call, cancellation=request.cancellation)
        finally:
            stop()


def _closed() -> UsageError:
    return UsageError("the workspace is closed", hint="Begin a new session.")


def _answer(result: ToolResult[Any]) -> Answer:
    return Answer(result.provider_text(), result.success, result.value if result.success else None)


def _without_nulls(params_type: Any, arguments: Mapping[str, object]) -> Mapping[str, object]:
    """*arguments* without null for optional ones: many models send null to leave one out."""
    if None not in arguments.values():
        return arguments
    return serde.without_defaulted_nulls(params_type, arguments)
