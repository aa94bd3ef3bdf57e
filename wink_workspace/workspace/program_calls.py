"""A program's own code as one call: ``with workspace.call("rename module") as call``.

The boundary is that of a tool call, without arguments to parse and without a model to answer.
What the code raises is raised again after the rollback.

In asyncio, ``async with workspace.call(…)`` does the same on the loop's thread. The block may wait,
so the tasks of a loop take turns (``TaskTurns``): another task that begins a call waits until this
one has ended. Calls of the tasks that the block starts are savepoints of it, and take turns, too.
"""

from __future__ import annotations

import re
import traceback
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar
from weakref import WeakKeyDictionary

from wink_workspace.clock import Cancellation, Heartbeat
from wink_workspace.errors import CallRefusedError, UsageError
from wink_workspace.filesystem import Filesystem
from wink_workspace.prompt import ToolResult
from wink_workspace.resources import Snapshotable
from wink_workspace.runtime import (
    CallBoundary,
    SessionTransactions,
    Transaction,
    error_text,
    transactions_of,
)
from wink_workspace.serde import dump
from wink_workspace.session import PolicyVerdict, Session

if TYPE_CHECKING:
    import asyncio

    from wink_workspace.prompt import Prompt, Tool, ToolContext, ToolPolicy
    from wink_workspace.runtime import ToolExecutor


T = TypeVar("T")

_MOST_LABEL_CHARS = 200
_NOT_IN_A_TOOL_NAME = re.compile(r"[^a-z0-9_-]+")


class TaskTurns:
    """Admits one task of an event loop at a time to the calls of a workspace, or inside of one."""

    def __init__(self) -> None:
        self._locks: WeakKeyDictionary[
            asyncio.AbstractEventLoop, WeakKeyDictionary[object, asyncio.Lock]
        ] = WeakKeyDictionary()

    async def take(self, transactions: SessionTransactions) -> asyncio.Lock:
        """Wait for the turn of this task, in the call that it is a part of; release it to end."""
        import asyncio

        while True:
            around = transactions.around()
            locks = self._locks.setdefault(asyncio.get_running_loop(), WeakKeyDictionary())
            lock = locks.setdefault(around or self, asyncio.Lock())
            await lock.acquire()
            if around is transactions.around():
                return lock
            lock.release()  # the call around it ended meanwhile


class WorkspaceCall(CallBoundary):
    """One call of a program: one entry of the history, or only its record after a failure.

    Made by ``Workspace.call``, with the same arguments. A call inside another one is a savepoint
    of it.

    Args:
        params: The parameters for the record.
        policies: Asked before the block, in this order.
        resources: The resources that the policies may need, by type.
        adopt: Called in place of the commit of external edits.

    Attributes:
        files: The workspace's files.
        session: Its state; ``dispatch`` events there.
        cancellation: Cancels the call. The code may check it; a cancelled call fails at its end
            in any case.

    Raises:
        UsageError: If the label is empty or longer than the limit.
    """

    def __init__(
        self,
        files: Filesystem,
        session: Session,
        label: str,
        *,
        params: object = None,
        cancellation: Cancellation | None = None,
        policies: Sequence[ToolPolicy] = (),
        resources: Mapping[type[Any], object] | None = None,
        turns: TaskTurns | None = None,
        call_id: str = "",
        adopt: Callable[[], None] | None = None,
    ) -> None:
        label = " ".join(label.split())
        if not label or len(label) > _MOST_LABEL_CHARS:
            raise UsageError(
                f"a label has 1 to {_MOST_LABEL_CHARS} characters, not {len(label)}",
                hint="Describe the call in a few words; details go into params.",
            )
        dump(params)
        call_id = call_id or f"call-{uuid.uuid4().hex}"
        super().__init__(session, _Files(files, session), call_id=call_id, tool=label)
        self.files = files
        self.session = session
        self.cancellation = cancellation or Cancellation()
        self.params = params
        self._policies = tuple(policies)
        self._resources = resources or {}
        self._turns = turns or TaskTurns()
        self._adopt = adopt
        self._task_turn: asyncio.Lock | None = None

    if TYPE_CHECKING:  # exceptions are always raised again, so names set in the block are bound

        def __exit__(self, *_: object) -> Literal[False]: ...
        async def __aexit__(self, *_: object) -> Literal[False]: ...

    def result(self, value: object = None, message: str = "") -> None:
        """Set the result that the entry records.

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

    def began_before(self, lasted_s: float) -> None:
        """Let the record say that the call began so many seconds ago."""
        self._started_at -= timedelta(seconds=lasted_s)
        self._started_s -= lasted_s

    def fail(self, message: str) -> None:
        """Roll everything back at the end of the block, without an exception."""
        self.tool_result = ToolResult.error(message)

    def __enter__(self) -> Self:
        """Begin the call.

        Raises as ``CallBoundary``, and:
            CallCancelledError: If it is cancelled.
            CallRefusedError: If a policy refuses it.
        """
        super().__enter__()
        try:
            self.start()
            self.cancellation.check()
            self._ask_policies()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aenter__(self) -> Self:
        """Begin the call when no other task of this loop is inside one; raises as ``with``."""
        self._task_turn = await self._turns.take(self._transactions)
        try:
            return self.__enter__()
        except BaseException:
            self._end_turn()
            raise

    def _commit_external_edits(self) -> tuple[str, ...]:
        """As for every call, unless this one consists of them."""
        if self._adopt is None:
            return super()._commit_external_edits()
        self._transactions.claim(self._participants)
        self._adopt()
        return ()

    def _end_turn(self) -> None:
        turn, self._task_turn = self._task_turn, None
        if turn is not None:
            turn.release()

    def _end(self, error: BaseException | None) -> bool:
        try:
            super()._end(error)
        finally:
            self._end_turn()
        if self.ending is not None and self.ending is not error:
            raise self.ending
        return self.ending is None

    def _finish(self, error: BaseException | None) -> None:
        if error is None and self.tool_result.success:
            try:
                self.cancellation.check()
                if self._policies:
                    with self._policy_view() as (tool, context):
                        result = self.tool_result
                        self.notify_policies(self._policies, tool, self.params, result, context)
            except BaseException as failure:  # noqa: BLE001 - raised by __exit__
                error = failure
        super()._finish(error)

    def _ask_policies(self) -> None:
        if not self._policies:
            return
        for policy in self._policies:
            policy.install(self.session)
        with self._policy_view() as (tool, context):
            refusal = self.refusal(self._policies, tool, self.params, context)
        if refusal is not None:
            raise CallRefusedError(*refusal)

    @contextmanager
    def _policy_view(self) -> Generator[tuple[Tool[Any, Any], ToolContext]]:
        """Present the call to policies as a tool named after the label, in an empty prompt."""
        # On use: prompts and the loop of models take 30 ms to load, and most calls have no policy.
        from wink_workspace.adapters import NoModelAdapter
        from wink_workspace.prompt import Prompt, Tool, ToolContext

        name = _NOT_IN_A_TOOL_NAME.sub("-", self.tool.lower()).strip("-")[:64] or "call"
        tool = Tool[None, None](name=name, description="A program's own code.")
        prompt = Prompt[None](ns="workspace", key="call", sections=[])
        prompt.bind(resources=self._resources)
        with prompt.resources:
            prompt.resources.observer = self._transactions
            with prompt.resources.tool_scope() as resources:
                yield (
                    tool,
                    ToolContext(
                        prompt=prompt,
                        rendered_prompt=None,
                        adapter=NoModelAdapter(),
                        session=self.session,
                        resources=resources,
                        cancellation=self.cancellation,
                    ),
                )

    def answer(self, error: BaseException) -> tuple[ToolResult[Any], BaseException | None]:
        """The result that records the failure, and the exception that the program gets."""
        what = error_text(error, traceback.format_exception_only).strip()
        if self.policy is not None and isinstance(error, Exception):
            if not isinstance(error, CallRefusedError):  # the policy raised: it refuses
                refusal = CallRefusedError(self.policy, f"it raised {what}")
                refusal.__cause__ = error
                self.decisions.append(
                    PolicyVerdict(policy=self.policy, allowed=False, reason=refusal.reason)
                )
                error = refusal
            return ToolResult.error(f"Refused by policy {self.policy!r}: {error.reason}."), error
        return ToolResult.error(f"{self.tool} failed: {what}"), error


class _Files:
    """The session and the files of a workspace; implements ``CallScope``."""

    prompt_name = ""

    def __init__(self, files: Filesystem, session: Session) -> None:
        self._participants = (session, files)

    def participants(self) -> tuple[Snapshotable, ...]:
        return self._participants

    def begin(self) -> None:
        """Do nothing: files and session exist before and after the call."""

    def evict(self, transaction: Transaction) -> None:
        """Do nothing, for the same reason."""


def call_around(session: Session, tool: str) -> WorkspaceCall | None:
    """The innermost call that the caller runs in, if it has the label *tool*."""
    around = transactions_of(session).around()
    call = None if around is None else around.block
    return call if isinstance(call, WorkspaceCall) and call.tool == tool else None


def recorded(value: object) -> tuple[object, str]:
    """What an entry records of *value*: itself, or its type if it has no JSON form."""
    try:
        dump(value)
    except UsageError:
        return None, f"returned a {type(value).__name__}"
    return value, value if isinstance(value, str) else ""


async def in_thread(work: Callable[[], T], cancellation: Cancellation) -> T:
    """Run *work* in another thread; a cancelled task cancels it and waits for its end."""
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
            done.exception()  # retrieved, so that asyncio does not log it
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
    # On use: they take 30 ms to load, and a program's own calls need no executor.
    from wink_workspace.adapters import NoModelAdapter
    from wink_workspace.runtime import ToolExecutor

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
