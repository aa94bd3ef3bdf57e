"""A branch that is open for a client, with its chat and the thread that uses it."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal, TypeVar, cast

from wink_workspace.adapters import (
    AssistantMessage,
    Message,
    ScriptRecorder,
    ToolMessage,
    UserMessage,
)
from wink_workspace.clock import Cancellation
from wink_workspace.errors import (
    CallCancelledError,
    ConflictError,
    EntryMissingError,
    PromptEvaluationError,
    WinkError,
)
from wink_workspace.integrations.frameworks import importing
from wink_workspace.ledger import MAIN_BRANCH
from wink_workspace.prompt import (
    MarkdownSection,
    PolicyDecision,
    Section,
    Tool,
    ToolContext,
    ToolPolicy,
)
from wink_workspace.workspace import RecordedRun, RunAbout, Workspace
from wink_workspace.workspace.history.workspace_reader import WorkspaceReader
from wink_workspace.workspace.place.storage import WorkspaceFolder

from .client_requests import AcpHost, mcp_section, refused
from .updates import KINDS, TEXT_CHARS, Watching, diffs

# ------------------------------------------------------------------------------------ permissions


with importing("acp"):
    from acp.helpers import text_block, tool_content


ALLOW: Final = "allow"
ALWAYS: Final = "always"
REJECT: Final = "reject"
"""The options of a permission."""


class AskUser(ToolPolicy):
    """Asks the user before a call of a tool that reaches beyond the workspace."""

    __slots__ = ("_allowed", "_ask", "_cancellation")

    name = "permission"

    def __init__(
        self,
        ask: Callable[[str, Sequence[Any], Any, Cancellation], str],
        allowed: set[str],
        cancellation: Cancellation,
    ) -> None:
        self._ask = ask
        self._allowed = allowed
        self._cancellation = cancellation

    def check(
        self, tool: Tool[Any, Any], params: object, *, context: ToolContext
    ) -> PolicyDecision:
        """Allow the call if the user does, or did for the whole session."""
        del context
        if tool.annotations.open_world is False or tool.name in self._allowed:
            return PolicyDecision.allow()
        content = [tool_content(text_block(str(params)[:TEXT_CHARS]))]
        chosen = self._ask(f"Allow {tool.name}?", content, "execute", self._cancellation)
        if chosen == ALWAYS:
            self._allowed.add(tool.name)
        if chosen in (ALLOW, ALWAYS):
            return PolicyDecision.allow()
        return PolicyDecision.deny("the user did not allow it")


# --------------------------------------------------------------------------------- client session


with importing("acp"):
    from acp import Client
    from acp.helpers import (
        start_tool_call,
        update_agent_message_text,
        update_tool_call,
        update_user_message_text,
    )
    from acp.schema import PermissionOption, SessionInfo, ToolCallUpdate


_log = logging.getLogger(__name__)

T = TypeVar("T")
StopReason = Literal["end_turn", "max_turn_requests", "cancelled"]

_POLL_S: Final = 0.05
_TITLE_CHARS: Final = 80
_NOT_MADE: Final = "This call was not made: the user cancelled the run."


class AcpSession:
    """A branch that is open, with the thread that uses it."""

    workspace: Workspace

    def __init__(self, host: AcpHost, client: Client) -> None:
        self.id = ""
        self.cancellation = Cancellation()
        self._host = host
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="wink-acp")
        self._opened = ExitStack()
        self._sections: tuple[Section[None], ...] = ()
        self._record: RecordedRun | None = None
        self._is_running = False
        self._allowed: set[str] = set()
        self._n_asked = 0
        self._updates: asyncio.Queue[Any] = asyncio.Queue()
        self._pump = self._loop.create_task(self._send_updates())

    async def in_thread(self, work: Callable[[], T]) -> T:
        """The result of *work* on the thread of the workspace; errors are the client's."""
        try:
            return await self._loop.run_in_executor(self._pool, work)
        except WinkError as error:
            raise refused(str(error)) from error

    async def close(self) -> None:
        """Cancel the run, and close the workspace."""
        self.cancellation.cancel()
        await self._loop.run_in_executor(self._pool, self._close)
        self._pool.shutdown(wait=False)
        self._pump.cancel()

    def _close(self) -> None:
        is_new = self.id and self._record is None and self.workspace.head.number == 1
        self._opened.close()
        if is_new:
            Workspace.delete(self.workspace.info.id, storage=self._host.storage)

    async def _send_updates(self) -> None:
        while True:
            update = await self._updates.get()
            try:
                await self._client.session_update(session_id=self.id, update=update)
            except Exception:  # noqa: BLE001 - the border to the client: the next updates are sent
                _log.exception("An update could not be sent to the client")
            finally:
                self._updates.task_done()

    async def prompt(self, text: str) -> StopReason:
        """Run the agent until it answers, then ask whether to apply what it changed."""
        if self._is_running:
            raise refused("the session is busy: it runs another message")
        self._is_running = True
        self.cancellation = Cancellation()
        try:
            return await self.in_thread(partial(self._run, text, self.cancellation))
        finally:
            self._is_running = False
            await self._updates.join()

    async def replay(self) -> None:
        """Show the chat so far."""
        for update in await self.in_thread(lambda: list(self._replayed())):
            self._updates.put_nowait(update)
        await self._updates.join()

    # On the thread of the workspace

    def open(self, open_workspace: Callable[[], Workspace], servers: Sequence[Any]) -> None:
        """Open the workspace, and start the MCP servers that the client configured."""
        sections = [self._opened.enter_context(mcp_section(each)) for each in servers]
        self._sections = tuple(sections)
        self.workspace = self._opened.enter_context(open_workspace())
        branch = self.workspace.branch_name
        fork = "" if branch == MAIN_BRANCH else f"/{branch}"
        self.id = f"{self.workspace.info.id}{fork}"
        self._record = self._recorded()

    def _recorded(self) -> RecordedRun | None:
        """The run of the last message, or of the one that a rewind went back to."""
        position = self.workspace.documents("acp").read_all().get(self.workspace.branch_name)
        runs = {run.number: run for run in RecordedRun.all(self._folder)}
        return runs.get(position.content["run"]) if position else None

    def _note_position(self, record: RecordedRun | None) -> None:
        documents, branch = self.workspace.documents("acp"), self.workspace.branch_name
        documents.write(
            branch,
            {"run": record.number if record else 0},
            expected=documents.versions().get(branch),
            at=self.workspace.session.clock.now(),
        )
        self._record = record

    @property
    def _folder(self) -> Any:
        return self.workspace.folder.of_branch(self.workspace.branch_name)

    def fork(self) -> str:
        """Begin a fork with the same chat; its name."""
        taken = set(self.workspace.forks())
        name = next(f"chat-{n}" for n in range(1, len(taken) + 2) if f"chat-{n}" not in taken)
        self.workspace.fork(name)
        record, folder = self._record, self._folder
        if record is not None:
            shutil.copytree(folder.runs, folder.of_branch(name).runs)
            self.workspace.documents("acp").write(
                name,
                {"run": record.number},
                expected=None,
                at=self.workspace.session.clock.now(),
            )
        return name

    def rewind(self, n_prompts: int) -> int:
        """Go back before the last messages of the user; the number of the new entry."""
        record, target = self._record, self._record
        for n in range(n_prompts):
            if record is None:
                raise EntryMissingError(f"the chat has only {n} messages")
            target, record = record, record.previous
        assert target is not None  # noqa: S101 - there was at least one
        entry = self.workspace.restore(target.about.after_entry)
        self._note_position(record)
        return entry.number

    def _run(self, text: str, cancellation: Cancellation) -> StopReason:
        workspace, streamed = self.workspace, False

        def on_text(piece: str) -> None:
            nonlocal streamed
            streamed = True
            self._send(update_agent_message_text(piece))

        with ExitStack() as opened:
            adapter = opened.enter_context(self._host.adapter(on_text))
            record = RecordedRun.begin(self._folder, self._about(text, adapter.model_name))
            self._note_position(record)
            conversation = record.with_natives(
                tuple(_answered(record.conversation(workspace))), adapter.load_native
            )
            recorder = ScriptRecorder(
                adapter,
                record.script,
                append=True,
                on_native=record.keep_native,
                on_summary=record.keep_summary,
            )
            opened.enter_context(Watching(workspace, self._send))
            asking = MarkdownSection[None](
                title="Beyond the workspace",
                template="",
                children=[*self._host.sections(), *self._sections],
                policies=[AskUser(self._ask, self._allowed, cancellation)],
            )
            prompt = self._host.prompt(workspace, record.about.task, [asking])
            deadline, tracker = self._host.budgets(record)
            try:
                response = recorder.evaluate(
                    prompt,
                    session=workspace.session,
                    deadline=deadline,
                    budget_tracker=tracker,
                    conversation=conversation,
                    cancellation=cancellation,
                )
            except CallCancelledError:
                return "cancelled"
            except PromptEvaluationError as error:
                if error.phase != "budget":
                    raise
                self._send(update_agent_message_text(str(error)))
                return "max_turn_requests"
        if not streamed:
            self._send(update_agent_message_text(response.text))
        self._offer_changes(cancellation)
        return "cancelled" if cancellation.cancelled else "end_turn"

    def _about(self, text: str, model: str) -> RunAbout:
        number, previous = self.workspace.head.number, self._record
        if previous is None:
            return RunAbout(text, model, self._host.sandbox, number)
        return replace(previous.about, after_entry=number, follows=previous.number, message=text)

    def _offer_changes(self, cancellation: Cancellation) -> None:
        """Ask whether to apply what the branch changed to the directory of the client."""
        changes = self.workspace.source.preview()
        if not changes.paths or cancellation.cancelled:
            return
        source = self.workspace.info.source
        title = f"Apply {len(changes.paths)} changed paths to {source}"
        answer = self._ask(
            title, diffs(source, self.workspace.changes()), "edit", cancellation, always=False
        )
        if answer != ALLOW:
            return
        try:
            self.workspace.apply(previewed=changes)
        except ConflictError as error:
            self._send(update_agent_message_text(f"Nothing was applied: {error}"))

    def _ask(
        self,
        title: str,
        content: Sequence[Any],
        kind: Any,
        cancellation: Cancellation,
        *,
        always: bool = True,
    ) -> str:
        """The option that the user chose; ``reject`` after a cancellation."""
        self._n_asked += 1
        call_id = f"permission-{self._n_asked}"
        options = [PermissionOption(option_id=ALLOW, name="Allow", kind="allow_once")]
        if always:
            name = "Allow in this session"
            options.append(PermissionOption(option_id=ALWAYS, name=name, kind="allow_always"))
        options.append(PermissionOption(option_id=REJECT, name="Reject", kind="reject_once"))
        call = ToolCallUpdate(
            tool_call_id=call_id, title=title, kind=kind, status="pending", content=list(content)
        )
        self._send(start_tool_call(call_id, title, kind=kind, status="pending"))
        answer = self._waited(
            self._client.request_permission(session_id=self.id, tool_call=call, options=options),
            cancellation,
        )
        outcome = None if answer is None else getattr(answer.outcome, "option_id", None)
        chosen = str(outcome or REJECT)
        status = "failed" if chosen == REJECT else "completed"
        self._send(update_tool_call(call_id, status=status))
        return chosen

    def _waited(self, work: Coroutine[Any, Any, T], cancellation: Cancellation) -> T | None:
        """The result of *work* in the event loop; ``None`` if the run is cancelled first."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        while not future.done():
            wait([future], _POLL_S)
            if cancellation.cancelled:
                future.cancel()
                return None
        return future.result()

    def _send(self, update: Any) -> None:
        self._loop.call_soon_threadsafe(self._updates.put_nowait, update)

    def _replayed(self) -> Iterator[Any]:
        if self._record is None:
            return
        record, workspace = self._record, self.workspace
        yield update_user_message_text(record.about.task)
        messages, _ = record.own_messages(workspace)
        for message in (*record.earlier_messages(workspace), *messages):
            match message:
                case UserMessage():
                    yield update_user_message_text(message.text)
                case AssistantMessage():
                    if message.text:
                        yield update_agent_message_text(message.text)
                    for call in message.tool_calls:
                        kind = cast("Any", KINDS.get(call.name, "other"))
                        yield start_tool_call(call.id, call.name, kind=kind, status="completed")
                case _:
                    continue


def chats_of(folder: WorkspaceFolder) -> Iterator[SessionInfo]:
    """The sessions of a workspace that have a chat; none if it is damaged."""
    with suppress(WinkError), WorkspaceReader(folder) as reader:
        for branch, position in sorted(reader.documents("acp").read_all().items()):
            runs = {run.number: run for run in RecordedRun.all(folder.of_branch(branch))}
            run = runs.get(position.content["run"])
            if run is not None:
                fork = "" if branch == MAIN_BRANCH else f"/{branch}"
                yield SessionInfo(
                    session_id=f"{reader.info.id}{fork}",
                    cwd=str(reader.info.source),
                    title=run.about.task.split("\n")[0][:_TITLE_CHARS],
                )


def _answered(messages: Sequence[Message]) -> Iterator[Message]:
    """*messages* with an answer for each call that a cancelled run did not make."""
    open_calls: dict[str, str] = {}
    for message in messages:
        if isinstance(message, ToolMessage):
            open_calls.pop(message.call_id, None)
        else:
            for call_id, name in open_calls.items():
                yield ToolMessage(call_id, name, _NOT_MADE, success=False)
            open_calls = {}
        if isinstance(message, AssistantMessage):
            open_calls = {call.id: call.name for call in message.tool_calls}
        yield message
