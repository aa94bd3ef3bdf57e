"""A program's own code as one call: ``with workspace.call("rename module") as call``.

The same boundary as for a tool call, without a tool: no arguments to parse, no model to answer.
What the code raises is raised again once everything it did has been undone.
"""

from __future__ import annotations

import traceback
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Self, TypeVar

from wink_workspace.adapters import NoModelAdapter
from wink_workspace.clock import Cancellation, Heartbeat
from wink_workspace.errors import UsageError
from wink_workspace.filesystem import Filesystem
from wink_workspace.prompt import Prompt, ToolResult
from wink_workspace.resources import Snapshotable
from wink_workspace.runtime import CallBoundary, ToolExecutor, Transaction, shown
from wink_workspace.serde import dump
from wink_workspace.session import Session

__all__ = ["WorkspaceCall", "executor_for", "in_thread", "recorded"]

T = TypeVar("T")

_MOST_LABEL_CHARS = 200


class WorkspaceCall(CallBoundary):
    """One call of a program: an entry of the history, or nothing but its record.

    Made by ``Workspace.call``. A call inside another one on the same thread is a savepoint of it.

    Attributes:
        files: The workspace's files.
        session: Its state; ``dispatch`` events there.
        cancellation: Whether the call is still wanted. The code may ask it; once it is cancelled
            the call fails at its end in any case.
    """

    def __init__(
        self,
        files: Filesystem,
        session: Session,
        label: str,
        *,
        params: object = None,
        cancellation: Cancellation | None = None,
    ) -> None:
        label = " ".join(label.split())
        if not label or len(label) > _MOST_LABEL_CHARS:
            raise UsageError(
                f"a label has 1 to {_MOST_LABEL_CHARS} characters, not {len(label)}",
                hint="Say in a few words what the call does; details go into params.",
            )
        dump(params)
        super().__init__(
            session, _Files(files, session), call_id=f"call-{uuid.uuid4().hex}", tool=label
        )
        self.files = files
        self.session = session
        self.cancellation = cancellation or Cancellation()
        self.params = params

    def result(self, value: object = None, message: str = "") -> None:
        """Set what the entry shows as the result.

        Args:
            value: A text, a dataclass, or anything else with a JSON form.
            message: One line for the history; *value* itself if that is a text.

        Raises:
            UsageError: If *value* has no JSON form.
        """
        dump(value)
        self.tool_result = ToolResult.ok(
            value, message or (value if isinstance(value, str) else "")
        )

    def fail(self, message: str) -> None:
        """Have everything undone at the end of the block, without an exception."""
        self.tool_result = ToolResult.error(message)

    def __enter__(self) -> Self:
        """Begin; raises as ``CallBoundary``, and ``CallCancelledError`` if it is not wanted."""
        super().__enter__()
        try:
            self.start()
            self.cancellation.check()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def _end(self, error: BaseException | None) -> bool:
        super()._end(error)
        if self.ending is not None and self.ending is not error:
            raise self.ending
        return self.ending is None

    def _finish(self, error: BaseException | None) -> None:
        if error is None and self.tool_result.success:
            try:
                self.cancellation.check()
            except BaseException as cancelled:  # noqa: BLE001 - raised by __exit__
                error = cancelled
        super()._finish(error)

    def answer(self, error: BaseException) -> tuple[ToolResult[Any], BaseException | None]:
        """The failure, and the exception itself for the program."""
        what = shown(error, traceback.format_exception_only).strip()
        return ToolResult.error(f"{self.tool} failed: {what}"), error


class _Files:
    """The session and the files of a workspace; implements ``CallScope``."""

    prompt_name = ""

    def __init__(self, files: Filesystem, session: Session) -> None:
        self._participants = (session, files)

    def participants(self) -> tuple[Snapshotable, ...]:
        return self._participants

    def begin(self) -> None:
        """Nothing: files and session exist before and after."""

    def evict(self, transaction: Transaction) -> None:
        """Nothing, likewise."""


def recorded(value: object) -> tuple[object, str]:
    """What an entry shows of *value*: itself, or its type if it has no JSON form."""
    try:
        dump(value)
    except UsageError:
        return None, f"returned a {type(value).__name__}"
    return value, value if isinstance(value, str) else ""


async def in_thread(work: Callable[[], T], cancellation: Cancellation) -> T:
    """Do *work* on another thread; a task that is cancelled cancels it and waits for its end."""
    import asyncio

    done = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        cancellation.cancel()
        while not done.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([done])
        if not done.cancelled():
            done.exception()  # it was the cancellation's, or comes too late
        raise


@contextmanager
def executor_for(
    prompt: Prompt[Any],
    resources: Mapping[type[Any], object],
    session: Session,
    *,
    heartbeat: Heartbeat | None,
    redact: Callable[[str], str] | None,
) -> Generator[ToolExecutor]:
    """See ``Workspace.executor``."""
    with ExitStack() as opened:
        if not prompt.resources.is_open:
            prompt.bind(resources=resources)
            opened.enter_context(prompt.resources)
        prompt.install(session)
        yield ToolExecutor(
            prompt=prompt,
            rendered_prompt=prompt.render(session=session),
            adapter=NoModelAdapter(),
            session=session,
            heartbeat=heartbeat,
            redact=redact,
        )
