"""The Agent Client Protocol: an editor such as Zed runs our agent over standard streams.

Rule 1: a session is a branch of a workspace, ``3f1c…`` or ``3f1c…/fork``. Its chat is the branch's
recorded runs, one for each message of the user. The client's directory is read to import it, and
written only after the user allowed that.
Rule 2: files, commands and terminals are those of the workspace and its sandbox. Nothing is asked
of the client but permissions: it is not asked to read, write or run anything.
Rule 3: a workspace is used on the one thread of its session. What the client sees of a run passes
through a queue, so it arrives in order and before the answer to the message.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast

from wink_workspace.adapters import (
    AssistantMessage,
    Message,
    ProviderAdapter,
    ScriptRecorder,
    ToolMessage,
    UserMessage,
)
from wink_workspace.clock import BudgetTracker, Cancellation, Deadline
from wink_workspace.errors import (
    CallCancelledError,
    ConflictError,
    EntryMissingError,
    PromptEvaluationError,
    UsageError,
    WinkError,
)
from wink_workspace.filesystem import FileChange, FileKind
from wink_workspace.ledger import MAIN_BRANCH
from wink_workspace.mcp_client import McpSection
from wink_workspace.prompt import (
    MarkdownSection,
    PolicyDecision,
    Prompt,
    Section,
    Tool,
    ToolContext,
    ToolPolicy,
)
from wink_workspace.sections import Plan
from wink_workspace.session import ToolInvoked
from wink_workspace.session.progress import ToolOutput, ToolStarted
from wink_workspace.workspace import (
    RecordedRun,
    RunAbout,
    Workspace,
    WorkspaceConfig,
    WorkspaceStorage,
)

from .frameworks import importing

with importing("acp"):
    from acp import PROTOCOL_VERSION, Agent, Client, RequestError, run_agent
    from acp.helpers import (
        plan_entry,
        start_tool_call,
        text_block,
        tool_content,
        tool_diff_content,
        update_agent_message_text,
        update_plan,
        update_tool_call,
        update_user_message_text,
    )
    from acp.schema import (
        AgentCapabilities,
        CloseSessionResponse,
        EmbeddedResourceContentBlock,
        ForkSessionResponse,
        HttpMcpServer,
        Implementation,
        InitializeResponse,
        LoadSessionResponse,
        McpCapabilities,
        McpServerStdio,
        NewSessionResponse,
        PermissionOption,
        PromptCapabilities,
        PromptResponse,
        ResourceContentBlock,
        SessionCapabilities,
        SessionCloseCapabilities,
        SessionForkCapabilities,
        TextContentBlock,
        TextResourceContents,
        ToolCallUpdate,
    )

__all__ = ["AcpAgent", "AcpHost", "serve_acp"]

T = TypeVar("T")
StopReason = Literal["end_turn", "max_turn_requests", "cancelled"]
Send = Callable[[Any], None]

_POLL_S: Final = 0.05
_MOST_DIFFS: Final = 20
_DIFF_BYTES: Final = 65_536
_TEXT_CHARS: Final = 10_000
_KINDS: Final = {
    "read_file": "read",
    "ls": "read",
    "glob": "search",
    "grep": "search",
    "write_file": "edit",
    "edit_file": "edit",
    "apply_patch": "edit",
    "mv": "move",
    "rm": "delete",
    "shell_execute": "execute",
    "evaluate_python": "execute",
}
_STATUS: Final = {"pending": "pending", "in_progress": "in_progress", "done": "completed"}
_ALLOW, _ALWAYS, _REJECT = "allow", "always", "reject"
_NOT_MADE: Final = "This call was not made: the user cancelled the run."
_REWIND: Final = "wink/rewind"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpHost:
    """What an agent works with.

    Attributes:
        storage: Where its workspaces are stored.
        adapter: Opens the model for one message of the user. It calls its argument with each piece
            of text that the model streams.
        prompt: Makes the prompt of a run: from the workspace, its task, and sections whose tools
            need a permission if they reach beyond the workspace.
        sections: Those sections, such as one for commands; new ones for each run.
        sandbox: The name of the sandbox, for the record.
        config: The settings of workspaces.
        budgets: The deadline and the budget of a run.
    """

    storage: WorkspaceStorage
    adapter: Callable[[Callable[[str], None]], AbstractContextManager[ProviderAdapter[None]]]
    prompt: Callable[[Workspace, str, Sequence[Section[None]]], Prompt[None]]
    sections: Callable[[], Sequence[Section[None]]] = tuple
    sandbox: str = "none"
    config: WorkspaceConfig | None = None
    budgets: Callable[[RecordedRun], tuple[Deadline | None, BudgetTracker | None]] = lambda _: (
        None,
        None,
    )


def serve_acp(host: AcpHost) -> None:
    """Serve one client on the standard streams until it disconnects.

    Raises:
        UsageError: If they are not pipes.
    """
    modes = [os.fstat(stream.fileno()).st_mode for stream in (sys.stdin, sys.stdout)]
    if not all(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) for mode in modes):
        raise UsageError(
            "the standard streams are not pipes", hint="Let an editor start this command."
        )
    asyncio.run(_serve(AcpAgent(host)))


async def _serve(agent: AcpAgent) -> None:
    try:
        # The protocol's class lists methods that an agent may leave out.
        await run_agent(cast("Agent", agent), use_unstable_protocol=True)  # for session/fork
    finally:
        await agent.close()


class AcpAgent:
    """An agent of the protocol whose sessions are branches.

    Args:
        host: What it works with.
    """

    def __init__(self, host: AcpHost) -> None:
        self._host = host
        self._sessions: dict[str, _Session] = {}
        self._client: Client | None = None

    def on_connect(self, conn: Client) -> None:
        """Note the client."""
        self._client = conn

    async def close(self) -> None:
        """Cancel what runs, and close every session."""
        for session in [*self._sessions.values()]:
            await session.close()
        self._sessions.clear()

    # Requests

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        """The version and the capabilities of this agent."""
        del protocol_version
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=Implementation(name="wink-workspace", version="1"),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True),
                session_capabilities=SessionCapabilities(
                    fork=SessionForkCapabilities(), close=SessionCloseCapabilities()
                ),
                field_meta={"wink": {"methods": [_REWIND]}},
            ),
        )

    async def new_session(
        self, cwd: str, mcp_servers: list[Any] | None = None, **_: Any
    ) -> NewSessionResponse:
        """A new workspace with a copy of the directory."""
        source = _directory(cwd)

        def create() -> Workspace:
            return Workspace.create(source, storage=self._host.storage, config=self._host.config)

        session = await self._opened(create, mcp_servers)
        return NewSessionResponse(session_id=session.id)

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: list[Any] | None = None, **_: Any
    ) -> LoadSessionResponse:
        """Open a branch again, and show its chat."""
        source = _directory(cwd)
        session = self._sessions.get(session_id)
        if session is None:
            session = await self._opened(partial(self._open, session_id), mcp_servers)
        if Path(session.workspace.info.source) != source:
            await self.close_session(session.id)
            raise _refused(f"session {session_id} belongs to {session.workspace.info.source}")
        await session.replay()
        return LoadSessionResponse()

    async def fork_session(
        self, session_id: str, cwd: str, mcp_servers: list[Any] | None = None, **_: Any
    ) -> ForkSessionResponse:
        """A fork of the branch, with the chat so far."""
        _directory(cwd)
        parent = self._session(session_id)
        name = await parent.in_thread(parent.fork)
        workspace_id = parent.workspace.info.id
        session = await self._opened(partial(self._open, f"{workspace_id}/{name}"), mcp_servers)
        return ForkSessionResponse(session_id=session.id)

    async def close_session(self, session_id: str, **_: Any) -> CloseSessionResponse:
        """Cancel what runs in a session, and close its workspace."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            await session.close()
        return CloseSessionResponse()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        """Run the agent on a message of the user."""
        session, text = self._session(session_id), _text_of(prompt)
        return PromptResponse(stop_reason=await session.prompt(text))

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Cancel the run of a session; the call in progress is rolled back."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.cancellation.cancel()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """``wink/rewind`` goes back in chat and files, before the last ``prompts`` messages.

        Takes ``sessionId`` and ``prompts`` (1 by default); returns the number of the new ``entry``.
        """
        if method.removeprefix("_") != _REWIND:
            raise RequestError.method_not_found(method)
        session, n_prompts = self._session(str(params.get("sessionId"))), params.get("prompts", 1)
        if type(n_prompts) is not int or n_prompts < 1:
            raise _refused("prompts is the number of messages to go back, at least 1")
        return {"entry": await session.in_thread(partial(session.rewind, n_prompts))}

    # Sessions

    def _session(self, session_id: str) -> _Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise _refused(f"there is no open session {session_id}")
        return session

    def _open(self, session_id: str) -> Workspace:
        workspace_id, _, fork = session_id.partition("/")
        return Workspace.open(
            workspace_id,
            branch=fork or MAIN_BRANCH,
            storage=self._host.storage,
            config=self._host.config,
        )

    async def _opened(
        self, open_workspace: Callable[[], Workspace], servers: list[Any] | None
    ) -> _Session:
        assert self._client is not None  # noqa: S101 - it sent the request
        session = _Session(self._host, self._client)
        try:
            await session.in_thread(partial(session.open, open_workspace, servers or []))
        except BaseException:
            await session.close()
            raise
        self._sessions[session.id] = session
        return session


class _Session:
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
            raise _refused(str(error)) from error

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
            finally:
                self._updates.task_done()

    async def prompt(self, text: str) -> StopReason:
        """Run the agent until it answers, then ask whether to apply what it changed."""
        if self._is_running:
            raise _refused("the session is busy: it runs another message")
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
        sections = [self._opened.enter_context(_mcp_section(each)) for each in servers]
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
            expected=documents.read_all().get(branch),
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
                adapter, record.script, append=True, on_native=record.keep_native
            )
            opened.enter_context(_Watching(workspace, self._send))
            asking = MarkdownSection[None](
                title="Beyond the workspace",
                template="",
                children=[*self._host.sections(), *self._sections],
                policies=[_AskUser(self._ask, self._allowed, cancellation)],
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
        changes = self.workspace.preview()
        if not changes.paths or cancellation.cancelled:
            return
        source = self.workspace.info.source
        title = f"Apply {len(changes.paths)} changed paths to {source}"
        answer = self._ask(
            title, _diffs(source, self.workspace.changes()), "edit", cancellation, always=False
        )
        if answer != _ALLOW:
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
        options = [PermissionOption(option_id=_ALLOW, name="Allow", kind="allow_once")]
        if always:
            name = "Allow in this session"
            options.append(PermissionOption(option_id=_ALWAYS, name=name, kind="allow_always"))
        options.append(PermissionOption(option_id=_REJECT, name="Reject", kind="reject_once"))
        call = ToolCallUpdate(
            tool_call_id=call_id, title=title, kind=kind, status="pending", content=list(content)
        )
        self._send(start_tool_call(call_id, title, kind=kind, status="pending"))
        answer = self._waited(
            self._client.request_permission(session_id=self.id, tool_call=call, options=options),
            cancellation,
        )
        outcome = None if answer is None else getattr(answer.outcome, "option_id", None)
        chosen = str(outcome or _REJECT)
        status = "failed" if chosen == _REJECT else "completed"
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
                        kind = cast("Any", _KINDS.get(call.name, "other"))
                        yield start_tool_call(call.id, call.name, kind=kind, status="completed")
                case _:
                    continue


class _AskUser(ToolPolicy):
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
        content = [tool_content(text_block(str(params)[:_TEXT_CHARS]))]
        chosen = self._ask(f"Allow {tool.name}?", content, "execute", self._cancellation)
        if chosen == _ALWAYS:
            self._allowed.add(tool.name)
        if chosen in (_ALLOW, _ALWAYS):
            return PolicyDecision.allow()
        return PolicyDecision.deny("the user did not allow it")


@dataclass(slots=True)
class _Watching:
    """Sends what happens in a session while a run lasts."""

    workspace: Workspace
    send: Send
    _stops: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])
    _started: set[str] = field(default_factory=set[str])
    _plan: Plan | None = None

    def __enter__(self) -> None:
        session = self.workspace.session
        self._plan = session[Plan].latest()
        subscribe = session.dispatcher.subscribe
        self._stops += [
            subscribe(ToolStarted, self._on_start),
            subscribe(ToolOutput, self._on_output),
            subscribe(ToolInvoked, self._on_end),
        ]

    def __exit__(self, *_: object) -> None:
        for stop in self._stops:
            stop()

    def _on_start(self, event: ToolStarted) -> None:
        if not event.depth:
            self._start(event.call_id, event.tool, event.subject)

    def _start(self, call_id: str, tool: str, subject: str) -> None:
        self._started.add(call_id)
        kind = cast("Any", _KINDS.get(tool, "other"))
        self.send(
            start_tool_call(call_id, f"{tool} {subject}".strip(), kind=kind, status="in_progress")
        )

    def _on_output(self, event: ToolOutput) -> None:
        content = [tool_content(text_block("\n".join(event.lines)))]
        self.send(update_tool_call(event.call_id, content=content))

    def _on_end(self, event: ToolInvoked) -> None:
        if event.depth:
            return
        if event.call_id not in self._started:
            self._start(event.call_id, event.tool, "")
        content: list[Any] = [tool_content(text_block(event.text[:_TEXT_CHARS]))]
        head = self.workspace.head
        if event.success and head.call_id == event.call_id:
            content += _diffs(self.workspace.info.source, self.workspace.changes_of(head))
        status = "completed" if event.success else "failed"
        self.send(update_tool_call(event.call_id, status=status, content=content))
        plan = self.workspace.session[Plan].latest()
        if plan is not None and plan != self._plan:
            steps = [plan_entry(s.title, status=cast("Any", _STATUS[s.status])) for s in plan.steps]
            self.send(update_plan(steps))
        self._plan = plan


def _diffs(source: str, changes: Sequence[FileChange]) -> list[Any]:
    """The changes of text files as diffs of the client's paths."""
    found: list[Any] = []
    for change in changes:
        texts = [
            None if state is None or state.kind is not FileKind.FILE else _text(state.data)
            for state in (change.before, change.after)
        ]
        if any(texts) and len(found) < _MOST_DIFFS:
            path = str(Path(source, *change.path.parts))
            found.append(tool_diff_content(path, texts[1] or "", texts[0]))
    return found


def _text(data: bytes) -> str | None:
    if len(data) > _DIFF_BYTES:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


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


def _text_of(blocks: Sequence[Any]) -> str:
    """The message of the user as text."""
    parts: list[str] = []
    for block in blocks:
        match block:
            case TextContentBlock():
                parts.append(block.text)
            case ResourceContentBlock():
                parts.append(f"[{block.name}]({block.uri})")
            case EmbeddedResourceContentBlock(resource=TextResourceContents() as resource):
                parts.append(f"{resource.uri}:\n```\n{resource.text}\n```")
            case _:
                raise _refused("the message has a part that is not text")
    text = "\n".join(parts).strip()
    if not text:
        raise _refused("the message is empty")
    return text


def _mcp_section(server: Any) -> McpSection:
    """The section of a server in the client's configuration."""
    name = "".join(c if c.isalnum() and c.isascii() else "-" for c in server.name.lower())[:24]
    match server:
        case McpServerStdio():
            env = {each.name: each.value for each in server.env}
            return McpSection(name, command=(server.command, *server.args), env=env)
        case HttpMcpServer():
            headers = {each.name: each.value for each in server.headers}
            return McpSection(name, url=server.url, headers=headers)
        case _:
            raise UsageError(
                f"the MCP server {server.name} has a transport that is not supported",
                hint="Use stdio or HTTP.",
            )


def _directory(cwd: str) -> Path:
    path = Path(cwd)
    if not path.is_absolute() or not path.is_dir():
        raise _refused(f"{cwd} is not an absolute path of a directory")
    return path


def _refused(message: str) -> RequestError:
    details: Mapping[str, str] = {"details": message}
    return RequestError(-32602, message, dict(details))
