"""LangChain deepagents: files, commands and transactions of a workspace.

``WorkspaceBackend`` has the file tools of a deep agent, ``WorkspaceSandbox`` also ``execute``, in
the sandbox of the workspace. ``WorkspaceMiddleware`` makes each tool call one transaction; without
it, each change of a file is one.

Rule 1: paths are those that commands see, below the root of the workspace (``/workspace`` in a
container). Other paths are refused, because no rollback would restore what is there.
Rule 2: a tool runs in another thread, or in another task, than the middleware around it. So the
open call is found by a context variable, which follows into both, and the tool works in it.
Rule 3: the state of the graph has the entry after its last tool call, so a checkpoint names an
entry. When a run continues from an older checkpoint, the files are restored to its entry first.
"""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Final, NotRequired, TypedDict, TypeVar, cast

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
from wink_workspace.ledger import EntryKind
from wink_workspace.sandbox import ExecRequest, SandboxConfig
from wink_workspace.sections.commands import CommandOutput, stopped_summary
from wink_workspace.workspace import Workspace, WorkspaceCall
from wink_workspace.workspace.calls import in_thread

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
    from langchain_core.messages import AIMessage, ToolMessage
    from langchain_core.runnables import RunnableConfig
    from langgraph.config import get_config
    from langgraph.types import Command

__all__ = [
    "WorkspaceBackend",
    "WorkspaceMiddleware",
    "WorkspaceSandbox",
    "WorkspaceState",
    "checkpoint_at",
]

T = TypeVar("T")

_NOT_UNIQUE: Final = (
    "Error: String '{}' appears multiple times. Use replace_all=True to replace all occurrences."
)
_WENT_BACK: Final = "went back to "
_COMMAND_TIMEOUT_S: Final = 120
_OUTPUT_BYTES: Final = 1_048_576
_TEXT_BYTES: Final = 16_777_216
_TIMEOUT_EXIT: Final = 124


@dataclass(slots=True)
class _OpenCall:
    """The call in which a tool runs."""

    workspace: Workspace
    call: WorkspaceCall
    is_open: bool = True


_open_call: ContextVar[_OpenCall | None] = ContextVar("wink_workspace_deepagents", default=None)


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

    def _open_call(self) -> WorkspaceCall | None:
        found = _open_call.get()
        is_ours = found is not None and found.is_open and found.workspace is self._workspace
        return found.call if found is not None and is_ours else None

    @contextmanager
    def _changing(self, what: str, **params: object) -> Generator[WorkspaceCall]:
        """The call of the middleware, or one of its own."""
        opened = self._open_call()
        if opened is not None:
            yield opened
            return
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
    other. When a run continues from an older checkpoint, the files are restored to its entry.

    Args:
        workspace: The workspace of the agent's backend.
        skip: Tools that are not wrapped; by default ``task``, whose subagent makes its own calls.
    """

    state_schema = WorkspaceState

    def __init__(self, workspace: Workspace, *, skip: Sequence[str] = ("task",)) -> None:
        super().__init__()
        self._workspace = workspace
        self._skip = frozenset(skip)
        self._following = threading.Lock()  # parallel calls must not both restore

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
        if not self._is_inside():  # there it would wait for a restore that waits for the call
            self._follow(state, _thread_of(get_config()))
        return None

    async def abefore_model(self, state: WorkspaceState, runtime: Any) -> dict[str, Any] | None:
        """As ``before_model``."""
        return self.before_model(state, runtime)

    def wrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]],
    ) -> ToolMessage | Command[Any]:
        """Run the tool in a call of the workspace."""
        if not self._is_wrapped(request):
            return handler(request)
        self._follow_request(request)
        result: ToolMessage | Command[Any] = Command()  # the block raises what it catches
        with self._call(request) as call, _opened(self._workspace, call):
            result = handler(request)
            _note(call, result)
        return self._with_entry(result)

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        """As ``wrap_tool_call``; a cancelled task is rolled back."""
        if not self._is_wrapped(request):
            return await handler(request)
        self._follow_request(request)
        result: ToolMessage | Command[Any] = Command()
        async with self._call(request) as call:
            with _opened(self._workspace, call):
                result = await handler(request)
                _note(call, result)
        return self._with_entry(result)

    def _is_wrapped(self, request: ToolCallRequest) -> bool:
        return request.tool_call["name"] not in self._skip and not self._is_inside()

    def _is_inside(self) -> bool:
        """Whether a tool call of the workspace is open here: in its tool, or an agent inside it."""
        opened = _open_call.get()
        return opened is not None and opened.is_open and opened.workspace is self._workspace

    def _call(self, request: ToolCallRequest) -> WorkspaceCall:
        tool_call = request.tool_call
        call = self._workspace.call(tool_call["name"], params=tool_call["args"])
        call.call_id = f"{_thread_of(_config_of(request))}{tool_call['id']}"
        return call

    def _entry(self) -> EntryOfState:
        head = self._workspace.head
        return {"id": head.id, "number": head.number}

    def _with_entry(self, result: ToolMessage | Command[Any]) -> Command[Any]:
        """The result, as an update that also names the entry."""
        entry = {"wink_entry": self._entry()}
        if isinstance(result, ToolMessage):
            return Command(update={"messages": [result], **entry})
        update: Any = result.update
        return replace(result, update={**update, **entry}) if isinstance(update, dict) else result

    # Going back

    def _follow_request(self, request: ToolCallRequest) -> None:
        state = cast("WorkspaceState", request.state)
        answered = [each for each in state["messages"] if isinstance(each, AIMessage)][-1:]
        ids = {str(call["id"]) for message in answered for call in message.tool_calls}
        parallel = frozenset(ids - {str(request.tool_call["id"])})
        self._follow(state, _thread_of(_config_of(request)), parallel)

    def _follow(
        self, state: WorkspaceState, thread: str, parallel: frozenset[str] = frozenset()
    ) -> None:
        """Restore the files of the state's entry if the conversation went back to it.

        It did if its thread made a tool call after that entry that is not a *parallel* call of the
        same turn.
        """
        known = state.get("wink_entry")
        if known:  # a channel begins empty
            with self._following:
                self._restore_if_back(known, thread, parallel)

    def _restore_if_back(self, known: EntryOfState, thread: str, parallel: frozenset[str]) -> None:
        went_back = f"{thread}{_WENT_BACK}{known['number']}"
        for entry in self._workspace.log():
            if entry.number <= known["number"] or entry.call_id == went_back:
                return
            is_own = entry.kind is EntryKind.CALL and entry.call_id.startswith(thread)
            if is_own and entry.call_id.removeprefix(thread) not in parallel:
                break
        else:
            return
        self._workspace.restore(known["id"])
        note = self._workspace.call("go back", params=known)
        note.call_id = went_back
        with note:
            pass  # the entry is for the next look at the log


def _config_of(request: ToolCallRequest) -> RunnableConfig:
    return cast("Any", request).runtime.config  # its type has parameters that are not known


def _thread_of(config: RunnableConfig) -> str:
    """The beginning of the ids of all calls of a thread."""
    return f"langgraph:{config.get('configurable', {}).get('thread_id', '')}:"


@contextmanager
def _opened(workspace: Workspace, call: WorkspaceCall) -> Generator[None]:
    """Let tools find the call, also in other threads and tasks."""
    opened = _OpenCall(workspace, call)
    token = _open_call.set(opened)
    try:
        yield
    finally:
        opened.is_open = False
        _open_call.reset(token)


def _note(call: WorkspaceCall, result: ToolMessage | Command[Any]) -> None:
    """Record the result; an error rolls the call back."""
    messages: list[Any] = [result]
    if not isinstance(result, ToolMessage):
        update: Any = result.update
        messages = cast("Any", update).get("messages", []) if isinstance(update, dict) else []
    for message in messages:
        if isinstance(message, ToolMessage):
            text = str(message.content)
            call.fail(text) if message.status == "error" else call.result(text)


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
