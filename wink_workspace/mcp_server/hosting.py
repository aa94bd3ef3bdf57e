"""One workspace with its calls, on a thread of its own.

Rule 1: everything that touches the workspace runs on that one thread, one after the other; a
handler is synchronous, and what waits for it must not be.
Rule 2: the workspace is opened when it is first needed, and a failure to do so answers whoever
needed it. The next one tries again.
Rule 3: whatever a client asks for, ``call`` answers; it does not raise for what a model did.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from wink_workspace import serde
from wink_workspace.clock import SYSTEM_CLOCK, Cancellation, Heartbeat
from wink_workspace.errors import UsageError, WinkError
from wink_workspace.prompt import ToolResult
from wink_workspace.runtime import (
    CallOutcome,
    CallSpan,
    Redaction,
    RemoteClient,
    ToolCall,
    call_span,
)
from wink_workspace.workspace import Workspace

from .catalog import Catalog

__all__ = ["Answer", "HostedWorkspace", "WorkspaceProvider"]

T = TypeVar("T")

_CANCELLED: Final = "cancelled"


@dataclass(frozen=True, slots=True)
class WorkspaceProvider:
    """How workspaces of a server come and go.

    Attributes:
        open: Opens one, to be used by one client.
        leave: Closes it when the client has gone, and decides what becomes of it.
        traces_content: Whether telemetry gets the arguments and results of calls, too.
        redact: Applied to everything that a client or telemetry gets of a workspace, and to the
            records of calls; see ``ToolExecutor``. Files are not redacted.
    """

    open: Callable[[], Workspace]
    leave: Callable[[Workspace], None] = Workspace.close
    traces_content: bool = False
    redact: Callable[[str], str] = str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client is told of a call; ``value`` is ``None`` unless it succeeded."""

    text: str
    success: bool
    value: object = None


class HostedWorkspace:
    """The workspace of one client.

    Args:
        provider: Where it comes from.
        catalog: What can be done in it.
    """

    def __init__(self, provider: WorkspaceProvider, catalog: Catalog) -> None:
        self._provider = provider
        self._catalog = catalog
        self._redaction = Redaction(provider.redact)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="wink-workspace")
        self._open_workspace: _OpenWorkspace | None = None
        self._closing: Future[None] | None = None
        self._under_way: set[Cancellation] = set()

    def call(
        self,
        name: str,
        arguments: Mapping[str, object],
        *,
        cancellation: Cancellation,
        on_beat: Callable[[], None] = lambda: None,
        client: RemoteClient | None = None,
    ) -> Future[Answer]:
        """Have a tool called when its turn has come.

        Args:
            name: The tool; an unknown one is answered.
            arguments: As the client sent them.
            cancellation: Cancelled when the client no longer waits for the answer.
            on_beat: Called on the workspace's thread at each sign of life.
            client: Who asks, for telemetry.
        """
        tool = self._catalog.tool(name)
        given = arguments if tool is None else _without_nulls(tool.params_type, arguments)
        call = ToolCall.of(name, given, id=f"mcp-{uuid.uuid4().hex}")
        asking = _Asking(call, cancellation, on_beat, client)
        asked = self._submit(lambda: self._answer(asking))
        self._under_way.add(cancellation)

        def over(answered: Future[Answer]) -> None:
            self._under_way.discard(cancellation)
            if answered.cancelled():  # before its turn, so that nothing else tells of it
                with self._span_of(asking) as span:
                    span.fail(_CANCELLED)

        asked.add_done_callback(over)
        return asked

    def cancel_calls(self) -> None:
        """Cancel every call that runs or waits; they are answered."""
        for cancellation in tuple(self._under_way):
            cancellation.cancel()

    def ask(self, question: Callable[[Workspace], T]) -> Future[T]:
        """Have *question* asked when its turn has come; it only reads."""
        return self._submit(lambda: question(self._opened().workspace))

    def open(self) -> Future[None]:
        """Open it now; the future raises if it cannot be."""

        def run() -> None:
            self._opened()

        return self._submit(run)

    def close(self) -> Future[None]:
        """Let go of it when the calls before are done; what comes later is refused."""
        if self._closing is None:
            self._closing = self._pool.submit(self._leave)
            self._pool.shutdown(wait=False)
        return self._closing

    def _submit(self, work: Callable[[], T]) -> Future[T]:
        if self._closing is not None:
            raise UsageError("the workspace is closed", hint="Begin a new session.")
        return self._pool.submit(work)

    def _answer(self, asking: _Asking) -> Answer:
        """The answer to a call, whose span is open meanwhile."""
        with self._span_of(asking) as span:
            try:
                answer = self._answered(asking, span)
            except WinkError as error:
                span.fail()
                answer = Answer(self._redaction.text(str(error)), success=False)
            if asking.cancellation.cancelled and not answer.success:
                span.fail(_CANCELLED)
            return answer

    def _span_of(self, asking: _Asking) -> AbstractContextManager[CallSpan]:
        return call_span(
            asking.call,
            tool=self._catalog.tool(asking.call.name),
            clock=SYSTEM_CLOCK,
            with_content=self._provider.traces_content,
            redact=self._provider.redact,
            client=asking.client,
        )

    def _answered(self, asking: _Asking, span: CallSpan) -> Answer:
        desk = self._opened()
        operation = self._catalog.operations.get(asking.call.name)
        if operation is None:
            outcome = desk.call(asking)
            span.note(outcome)
            return replace(_answer(outcome.result), text=outcome.text)
        asking.cancellation.check()
        result = operation.run(desk.workspace, asking.call.arguments)
        if not result.success:
            span.fail()
        return _answer(self._redaction.result(result, failed=True))

    def _opened(self) -> _OpenWorkspace:
        if self._open_workspace is None:
            self._open_workspace = _OpenWorkspace(self._provider, self._catalog)
        return self._open_workspace

    def _leave(self) -> None:
        desk, self._open_workspace = self._open_workspace, None
        if desk is not None:
            desk.close()


@dataclass(frozen=True, slots=True)
class _Asking:
    """A call as a client asks for it."""

    call: ToolCall
    cancellation: Cancellation
    on_beat: Callable[[], None]
    client: RemoteClient | None


class _OpenWorkspace:
    """An open workspace with an executor for its calls; all on one thread."""

    def __init__(self, provider: WorkspaceProvider, catalog: Catalog) -> None:
        with ExitStack() as opened:
            self.workspace: Final = provider.open()
            opened.callback(provider.leave, self.workspace)
            self._heartbeat = Heartbeat(self.workspace.session.clock)
            self._executor = opened.enter_context(
                self.workspace.executor(
                    catalog.prompt(), heartbeat=self._heartbeat, redact=provider.redact
                )
            )
            self.close: Final = opened.pop_all().close

    def call(self, asking: _Asking) -> CallOutcome:
        stop = self._heartbeat.observe(asking.on_beat)
        try:
            return self._executor.execute(asking.call, cancellation=asking.cancellation)
        finally:
            stop()


def _answer(result: ToolResult[Any]) -> Answer:
    return Answer(result.provider_text(), result.success, result.value if result.success else None)


def _without_nulls(params_type: Any, arguments: Mapping[str, object]) -> Mapping[str, object]:
    """*arguments* as meant: many models send null for what they want to leave out."""
    if None not in arguments.values():
        return arguments
    return serde.without_defaulted_nulls(params_type, arguments)
