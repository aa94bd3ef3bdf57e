"""LangChain deepagents: files, commands and transactions of a workspace.

``WorkspaceBackend`` has the file tools of a deep agent, ``WorkspaceSandbox`` also ``execute``, in
the sandbox of the workspace. ``WorkspaceMiddleware`` makes each tool call one transaction; without
it, each change of a file is one.

Rule 1: paths are those that commands see, below the root of the workspace (``/workspace`` in a
container). Other paths are refused, because no rollback would restore what is there.
Rule 2: a tool runs in another thread, or in another task, than the middleware around it. It works
in the open call all the same: what the backend does, and each call of an agent inside the tool, is
a savepoint. ``task`` makes no call of its own: the calls of its subagent are entries.
Rule 3: the state of the graph has the entry after its last tool call, so a checkpoint names an
entry. A conversation went back if its thread has a checkpoint with a later entry than the present
state. Then the files are restored to the entry of the state first. Without a checkpointer, no
conversation goes back.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import re
import threading
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final, NotRequired, TypedDict, TypeVar, cast
from weakref import WeakKeyDictionary

from wink_workspace.clock import Cancellation
from wink_workspace.errors import (
    DirectoryExpectedError,
    EntryMissingError,
    FileExpectedError,
    FileMissingError,
    FilesystemError,
    InvalidPathError,
    ReadOnlyError,
    SandboxError,
    UsageError,
    WinkError,
)
from wink_workspace.filesystem import FileKind, FileStat, WorkspacePath, parse_path
from wink_workspace.runtime import transactions_of
from wink_workspace.sandbox import ExecRequest, SandboxConfig
from wink_workspace.sections.command_results import CommandOutput, stopped_summary
from wink_workspace.workspace import Workspace, WorkspaceCall
from wink_workspace.workspace.program_calls import call_around, in_thread

from .command_environment import ROOT, exit_code
from .frameworks import importing

with importing("deepagents"):
    from deepagents.backends.protocol import (
        BackendProtocol,
        DeleteResult,
        EditResult,
        ExecuteResponse,
        FileData,
        FileDownloadResponse,
        FileInfo,
        FileUploadResponse,
        GlobResult,
        GrepMatch,
        GrepResult,
        LsResult,
        ReadResult,
        SandboxBackendProtocol,
        WriteResult,
    )
    from deepagents.backends.sandbox import MAX_BINARY_BYTES
    from deepagents.backends.utils import _get_backend_read_file_type as file_type_of
    from deepagents.backends.utils import (
        check_empty_content,
        compile_grep_include_glob,
        perform_string_replacement,
        slice_read_response,
    )
    from langchain.agents.middleware import AgentMiddleware
    from langchain.agents.middleware.types import AgentState, ToolCallRequest
    from langchain_core.messages import ToolMessage
    from langchain_core.runnables import RunnableConfig
    from langgraph.config import get_config
    from langgraph.types import Command


T = TypeVar("T")

_NOT_UNIQUE: Final = (
    "Error: String '{}' appears multiple times. Use replace_all=True to replace all occurrences."
)
_WENT_BACK: Final = "went back to "
_COMMAND_TIMEOUT_S: Final = 120
_OUTPUT_BYTES: Final = 1_048_576
_TEXT_BYTES: Final = 16_777_216
_TIMEOUT_EXIT: Final = 124


class WorkspaceBackend(BackendProtocol):
    """The files of a workspace; pass it to ``create_deep_agent`` as ``backend``.

    Args:
        workspace: An open workspace.
        root: The absolute path that stands for its root in all paths.
    """

    def __init__(self, workspace: Workspace, *, root: str = ROOT) -> None:
        self._workspace = workspace
        self._root = root.rstrip("/")

    # Paths and calls

    def _path(self, path: str | None) -> WorkspacePath:
        """The workspace path of an absolute one; raises ``InvalidPathError`` for any other."""
        given = re.sub("/{2,}", "/", path or self._root)
        if given.rstrip("/") == self._root or given == "/":
            return parse_path(".")
        if not given.startswith(f"{self._root}/"):
            raise InvalidPathError(
                f"{path!r} is not below {self._root}",
                hint=f"Use an absolute path below {self._root}.",
            )
        return parse_path(given.removeprefix(f"{self._root}/").rstrip("/"))

    def _shown(self, path: WorkspacePath) -> str:
        return "/".join((self._root, *path.parts))

    @contextmanager
    def _changing(self, what: str, **params: object) -> Generator[WorkspaceCall]:
        """A call, or a savepoint of the one of the middleware."""
        with self._workspace.call(what, params=params) as call:
            yield call

    async def _in_thread(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Run *function* in a thread; a cancelled task waits for its end, so no write is late."""
        return await in_thread(partial(function, *arguments, **options), Cancellation())

    # Reading

    def ls(self, path: str) -> LsResult:
        """The entries of a directory."""
        try:
            return LsResult(entries=[self._info(each) for each in self._listed(path)])
        except (FilesystemError, UsageError) as error:
            return LsResult(error=str(error))

    def _listed(self, path: str) -> Iterator[FileStat]:
        yield from self._workspace.files.list(self._path(path))

    def _info(self, entry: FileStat) -> FileInfo:
        is_dir = entry.kind is FileKind.DIRECTORY
        return FileInfo(path=self._shown(entry.path), is_dir=is_dir, size=entry.size_bytes)

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """Some lines of a text file, or a whole file of another type, as base64."""
        files = self._workspace.files
        try:
            path = self._path(file_path)
            is_text = file_type_of(file_path) == "text"
            size_bytes = files.stat(path).size_bytes
            if size_bytes > (_TEXT_BYTES if is_text else MAX_BINARY_BYTES):
                kind = "Text" if is_text else "Binary"
                most = _TEXT_BYTES if is_text else MAX_BINARY_BYTES
                what = f"{kind} file exceeds maximum preview size of {most} bytes"
                return ReadResult(error=f"File '{file_path}': {what}")
            data = files.read_bytes(path)
        except (FileMissingError, DirectoryExpectedError, FileExpectedError):
            return ReadResult(error=f"File '{file_path}' not found")
        except (FilesystemError, UsageError) as error:
            return ReadResult(error=str(error))
        if not is_text:
            encoded = base64.standard_b64encode(data).decode("ascii")
            return ReadResult(file_data=FileData(content=encoded, encoding="base64"))
        try:
            content = data.decode()
        except UnicodeDecodeError:
            return ReadResult(error=f"Error reading file '{file_path}': it is not UTF-8 text")
        empty = check_empty_content(content)
        if empty:
            return ReadResult(file_data=FileData(content=empty, encoding="utf-8"))
        window = slice_read_response(FileData(content=content, encoding="utf-8"), offset, limit)
        if window.file_data is not None and window.next_offset is not None:
            # Lines are joined by line ends: only the last window shows how the file ends.
            window.file_data["content"] = window.file_data["content"].removesuffix("\n")
        return window

    def grep(
        self,
        pattern: str,
        path: str | None = None,
        glob: str | None = None,
        *,
        max_count: int | None = None,
    ) -> GrepResult:
        """The lines that contain a text."""
        matches: list[GrepMatch] = []
        truncated = False
        files = self._workspace.files
        try:
            base = self._path(path)
            expression = re.escape(pattern)
            wanted = [base] if glob is None else [each.path for each in self._found(base, glob)]
            for each in wanted:
                found = files.grep(expression, each)
                truncated = truncated or found.truncated or found.timed_out_s is not None
                matches += [
                    GrepMatch(path=self._shown(match.path), line=match.line, text=match.text)
                    for match in found.matches
                ]
                if max_count is not None and len(matches) > max_count:
                    return GrepResult(matches=matches[:max_count], truncated=True)
        except FileMissingError:
            return GrepResult(matches=[])
        except (FilesystemError, UsageError, ValueError) as error:
            return GrepResult(error=str(error))
        return GrepResult(matches=matches, truncated=truncated)

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        """The files whose path matches a pattern."""
        try:
            found = self._found(self._path(path), pattern)
            return GlobResult(matches=[self._info(each) for each in found])
        except FileMissingError:
            return GlobResult(matches=[])
        except (FilesystemError, UsageError, ValueError) as error:
            return GlobResult(error=str(error))

    def _found(self, base: WorkspacePath, pattern: str) -> list[FileStat]:
        """The files below *base* that match a pattern of deepagents."""
        matches = compile_grep_include_glob(pattern)
        n_above = len(base.parts)
        return [
            entry
            for entry in self._workspace.files.walk(base)
            if entry.kind is FileKind.FILE and matches("/".join(entry.path.parts[n_above:]))
        ]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """The content of files."""
        return [self._downloaded(path) for path in paths]

    def _downloaded(self, path: str) -> FileDownloadResponse:
        try:
            content = self._workspace.files.read_bytes(self._path(path))
        except WinkError as error:
            return FileDownloadResponse(path=path, error=_code(error))
        return FileDownloadResponse(path=path, content=content)

    # Changes

    def write(self, file_path: str, content: str) -> WriteResult:
        """Write a whole text file."""
        try:
            path = self._path(file_path)
            with self._changing("write_file", file_path=file_path) as call:
                call.files.write_bytes(path, content.encode("utf-8", "surrogateescape"))
        except (FilesystemError, UsageError) as error:
            return WriteResult(error=str(error))
        return WriteResult(path=file_path)

    def edit(
        self, file_path: str, old_string: str, new_string: str, replace_all: bool = False
    ) -> EditResult:
        """Replace a text in a file."""
        try:
            path = self._path(file_path)
            with self._changing("edit_file", file_path=file_path) as call:
                before = call.files.read_bytes(path).decode()
                edited = perform_string_replacement(before, old_string, new_string, replace_all)
                if isinstance(edited, str) and before.count(old_string) > 1:
                    edited = _NOT_UNIQUE.format(old_string)
                if isinstance(edited, str):
                    call.fail(edited)
                    return EditResult(error=edited)
                content, n_replaced = edited
                call.files.write_bytes(path, content.encode())
        except FileMissingError:
            return EditResult(error=f"Error: File '{file_path}' not found")
        except UnicodeDecodeError:
            return EditResult(error=f"Error: File '{file_path}' is not a text file")
        except (FilesystemError, UsageError) as error:
            return EditResult(error=str(error))
        return EditResult(path=file_path, occurrences=n_replaced)

    def delete(self, file_path: str) -> DeleteResult:
        """Delete a file, or a directory with everything below it."""
        try:
            path = self._path(file_path)
            with self._changing("delete", file_path=file_path) as call:
                call.files.delete(path, recursive=True)
        except (FilesystemError, UsageError) as error:
            return DeleteResult(error=str(error))
        return DeleteResult(path=file_path)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Write files, all in one call; one that cannot be written does not undo the others."""
        answers: list[FileUploadResponse] = []
        with self._changing("upload_files", paths=[path for path, _ in files]) as call:
            for path, content in files:
                try:
                    call.files.write_bytes(self._path(path), content)
                    answers.append(FileUploadResponse(path=path))
                except WinkError as error:
                    answers.append(FileUploadResponse(path=path, error=_code(error)))
        return answers

    # The same in asyncio

    async def als(self, path: str) -> LsResult:
        """As ``ls``."""
        return await self._in_thread(self.ls, path)

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """As ``read``."""
        return await self._in_thread(self.read, file_path, offset, limit)

    async def agrep(
        self,
        pattern: str,
        path: str | None = None,
        glob: str | None = None,
        *,
        max_count: int | None = None,
    ) -> GrepResult:
        """As ``grep``."""
        return await self._in_thread(self.grep, pattern, path, glob, max_count=max_count)

    async def aglob(self, pattern: str, path: str | None = None) -> GlobResult:
        """As ``glob``."""
        return await self._in_thread(self.glob, pattern, path)

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        """As ``write``."""
        return await self._in_thread(self.write, file_path, content)

    async def aedit(
        self, file_path: str, old_string: str, new_string: str, replace_all: bool = False
    ) -> EditResult:
        """As ``edit``."""
        return await self._in_thread(self.edit, file_path, old_string, new_string, replace_all)

    async def adelete(self, file_path: str) -> DeleteResult:
        """As ``delete``."""
        return await self._in_thread(self.delete, file_path)

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """As ``upload_files``."""
        return await self._in_thread(self.upload_files, files)

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """As ``download_files``."""
        return await self._in_thread(self.download_files, paths)


class WorkspaceSandbox(WorkspaceBackend, SandboxBackendProtocol):
    """The files of a workspace, and commands in its sandbox.

    Args:
        workspace: An open workspace that is not in place.
        config: The sandbox; the default one when omitted.
        root: Where the sandbox shows the files.

    Raises:
        UsageError: If the workspace cannot run commands.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        config: SandboxConfig | None = None,
        root: str = ROOT,
    ) -> None:
        super().__init__(workspace, root=root)
        self._sandbox = workspace.sandbox(config)

    @property
    def id(self) -> str:
        """The workspace and its branch."""
        return f"wink-{self._workspace.info.id}-{self._workspace.branch_name}"

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a shell command; one that is stopped, such as by its time limit, is rolled back."""
        return self._execute(command, timeout, Cancellation())

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """As ``execute``; a cancelled task ends the command."""
        cancellation = Cancellation()
        return await in_thread(partial(self._execute, command, timeout, cancellation), cancellation)

    def _execute(
        self, command: str, timeout: int | None, cancellation: Cancellation
    ) -> ExecuteResponse:
        timeout_s = float(timeout or _COMMAND_TIMEOUT_S)
        request = ExecRequest(
            argv=(*self._sandbox.shell, command),
            timeout_s=timeout_s,
            cancellation=cancellation,
            output_bytes=_OUTPUT_BYTES,
            merge_stderr=True,
        )
        with self._changing("execute", command=command) as call:
            try:
                result = self._sandbox.run(request)
            except SandboxError as error:
                call.fail(str(error))
                return ExecuteResponse(output=str(error), exit_code=None)
            output = CommandOutput.of(result)
            for effect in output.outside_effects:
                call.note_outside_effect(effect)
            text = output.stdout.render()
            stopped = stopped_summary(result, timeout_s)
            if stopped is not None:
                call.fail(stopped)
        if stopped is not None:
            around = call_around(self._workspace.session, "execute")
            if around is not None:  # the tool answers with a text
                around.fail(stopped)
            return ExecuteResponse(output=f"{text}\n{stopped}", exit_code=_TIMEOUT_EXIT)
        return ExecuteResponse(text, exit_code(result), truncated=bool(output.stdout.n_missing))


def _code(error: WinkError) -> str:
    """The code that deepagents has for an error, or its text."""
    match error:
        case FileMissingError() | DirectoryExpectedError():
            return "file_not_found"
        case FileExpectedError():
            return "is_directory"
        case ReadOnlyError():
            return "permission_denied"
        case InvalidPathError():
            return "invalid_path"
        case _:
            return str(error)


# Transactions


class EntryOfState(TypedDict):
    """An entry of the history, in the state of a graph."""

    id: str
    number: int


def _later(one: EntryOfState, other: EntryOfState) -> EntryOfState:
    """The later of two entries; parallel tool calls each add one. The first one is empty."""
    return other if not one or other["number"] >= one["number"] else one


class WorkspaceState(AgentState[Any]):
    """The state of an agent with the entry after its last tool call."""

    wink_entry: NotRequired[Annotated[EntryOfState, _later]]


class WorkspaceMiddleware(AgentMiddleware[WorkspaceState, Any]):
    """Makes each tool call one transaction of a workspace.

    A tool that raises, or answers with an error, changes no file. Parallel calls run one after the
    other. When a run continues from an older checkpoint, the files are restored to its entry. The
    subagents of ``task`` that deepagents builds get the same.

    Args:
        workspace: The workspace of the agent's backend.
        skip: Tools that are not wrapped; by default ``task``, whose subagent makes its own calls.
    """

    state_schema = WorkspaceState

    def __init__(self, workspace: Workspace, *, skip: Sequence[str] = ("task",)) -> None:
        super().__init__()
        self._workspace = workspace
        self._skip = frozenset(skip)

    def before_agent(self, state: WorkspaceState, runtime: Any) -> dict[str, Any] | None:
        """Note the entry at which a conversation begins."""
        del runtime
        return None if state.get("wink_entry") else {"wink_entry": self._entry()}

    async def abefore_agent(self, state: WorkspaceState, runtime: Any) -> dict[str, Any] | None:
        """As ``before_agent``."""
        return self.before_agent(state, runtime)

    def before_model(self, state: WorkspaceState, runtime: Any) -> dict[str, Any] | None:
        """Restore the files if the conversation went back; not inside a tool call."""
        del runtime
        return {"wink_entry": self._entry()} if self._follow(state, get_config()) else None

    async def abefore_model(self, state: WorkspaceState, runtime: Any) -> dict[str, Any] | None:
        """As ``before_model``, in another thread: it may wait for the call of another task."""
        return await asyncio.to_thread(self.before_model, state, runtime)

    def wrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]],
    ) -> ToolMessage | Command[Any]:
        """Run the tool in a call of the workspace."""
        self._prepare(request)
        return self._with_entry(self._run(request, handler), request)

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        """As ``wrap_tool_call``; a cancelled task is rolled back."""
        await asyncio.to_thread(self._prepare, request)
        return self._with_entry(await self._arun(request, handler), request)

    def _run(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]],
    ) -> ToolMessage | Command[Any]:
        if request.tool_call["name"] in self._skip:
            return handler(request)
        result: ToolMessage | Command[Any] = Command()  # the block raises what it catches
        with self._call(request) as call:
            result = handler(request)
            _note(call, result)
        return result

    async def _arun(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        if request.tool_call["name"] in self._skip:
            return await handler(request)
        result: ToolMessage | Command[Any] = Command()
        async with self._call(request) as call:
            result = await handler(request)
            _note(call, result)
        return result

    def _prepare(self, request: ToolCallRequest) -> None:
        self._follow(cast("WorkspaceState", request.state), _config_of(request))
        if request.tool_call["name"] == "task":
            for node in _tool_nodes_of_subagents(request.tool):
                wrap, awrap = node._wrap_tool_call, node._awrap_tool_call  # noqa: SLF001 - no other way
                if not isinstance(wrap, partial):  # else it is ours
                    node._wrap_tool_call = partial(_around, self._run, wrap)  # noqa: SLF001
                    node._awrap_tool_call = partial(_around, self._arun, awrap)  # noqa: SLF001

    def _call(self, request: ToolCallRequest) -> WorkspaceCall:
        tool_call = request.tool_call
        call = self._workspace.call(tool_call["name"], params=tool_call["args"])
        call.call_id = f"{_thread_of(_config_of(request))}{tool_call['id']}"
        return call

    def _entry(self) -> EntryOfState:
        head = self._workspace.head
        return {"id": head.id, "number": head.number}

    def _with_entry(
        self, result: ToolMessage | Command[Any], request: ToolCallRequest
    ) -> ToolMessage | Command[Any]:
        """The result, as an update that also names the entry."""
        if request.tool_call["name"] in self._skip:
            return result
        entry = {"wink_entry": self._entry()}
        if isinstance(result, ToolMessage):
            return Command(update={"messages": [result], **entry})
        update: Any = result.update
        return replace(result, update={**update, **entry}) if isinstance(update, dict) else result

    # Going back

    def _follow(self, state: WorkspaceState, config: RunnableConfig) -> bool:
        """Restore the files of the state's entry if the conversation went back to it; whether so.

        Not inside of a call, which a restore would wait for.
        """
        known = state.get("wink_entry")
        is_inside_call = transactions_of(self._workspace.session).around() is not None
        if not known or is_inside_call or not _went_back(known, config):
            return False
        with _following.setdefault(self._workspace, threading.Lock()):  # parallel calls go once
            checkpoint = config.get("configurable", {}).get("checkpoint_map", {}).get("", "")
            went_back = f"{_thread_of(config)}{_WENT_BACK}{known['number']} at {checkpoint}"
            for entry in self._workspace.log():
                if entry.number <= known["number"]:
                    break
                if entry.call_id == went_back:
                    return True
            self._workspace.restore(known["id"])
            with self._workspace.call("go back", params=known, call_id=went_back):
                pass  # the entry is for the parallel calls of this step
        return True


_following: WeakKeyDictionary[Workspace, threading.Lock] = WeakKeyDictionary()


def _went_back(known: EntryOfState, config: RunnableConfig) -> bool:
    """Whether the thread has a checkpoint with a later entry than *known*, that of the state.

    Along a thread entries never get earlier. So the newest checkpoints, down to the last one before
    the state's entry, show it.
    """
    given = config.get("configurable", {})
    checkpointer = given.get("__pregel_checkpointer")
    if checkpointer is None:
        return False
    namespace = str(given.get("checkpoint_ns", "")).rpartition("|")[0]  # without the node's own
    thread = {"thread_id": given.get("thread_id"), "checkpoint_ns": namespace}
    for saved in checkpointer.list({"configurable": thread}):
        found = saved.checkpoint["channel_values"].get("wink_entry")
        if not found or found["number"] != known["number"]:
            return bool(found) and found["number"] > known["number"]
    return False


def _tool_nodes_of_subagents(tool: Any) -> Iterator[Any]:
    """The nodes of subagents without our middleware; only the function of ``task`` has them."""
    function = getattr(tool, "func", None)
    found: Any = inspect.getclosurevars(function).nonlocals if function is not None else {}
    for graph in found.get("subagent_graphs", {}).values():
        node = getattr(graph, "nodes", {}).get("tools")
        if node is not None and "wink_entry" not in graph.channels:
            yield node.bound


def _around(
    run: Callable[[ToolCallRequest, Callable[[ToolCallRequest], Any]], Any],
    wrapper: Callable[..., Any],
    request: ToolCallRequest,
    handler: Callable[..., Any],
) -> Any:
    return run(request, lambda changed: wrapper(changed, handler))


def _config_of(request: ToolCallRequest) -> RunnableConfig:
    return cast("Any", request).runtime.config  # its type has parameters that are not known


def _thread_of(config: RunnableConfig) -> str:
    """The beginning of the ids of all calls of a thread."""
    return f"langgraph:{config.get('configurable', {}).get('thread_id', '')}:"


def _note(call: WorkspaceCall, result: ToolMessage | Command[Any]) -> None:
    """Record the result; an error rolls the call back."""
    messages: list[Any] = [result]
    if not isinstance(result, ToolMessage):
        update: Any = result.update
        messages = cast("Any", update).get("messages", []) if isinstance(update, dict) else []
    for message in messages:
        if isinstance(message, ToolMessage):
            text = str(message.content)
            if message.status == "error":
                call.fail(text)
            elif call.tool_result.success:
                call.result(text)


def checkpoint_at(graph: Any, config: RunnableConfig, entry: int | str) -> RunnableConfig:
    """The configuration of a thread's checkpoint after the tool call that made an entry.

    Invoke *graph*, a compiled graph with a checkpointer, with it to continue from there; the
    middleware restores the files.

    Raises:
        EntryMissingError: If no checkpoint of the thread names the entry.
    """
    found: RunnableConfig | None = None
    for snapshot in graph.get_state_history(config):  # newest first; later turns name it, too
        known = snapshot.values.get("wink_entry")
        if known and entry in (known["number"], known["id"]):
            found = snapshot.config
    if found is None:
        raise EntryMissingError(f"no checkpoint of this thread names entry {entry}")
    return found
