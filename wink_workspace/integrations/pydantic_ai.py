"""Workspaces for agents of pydantic-ai: a backend, and a capability that makes tool calls entries.

``WinkWorkspaces`` gives agents workspaces. As a capability of an agent it makes each call of a tool
or an output function one call of the workspace: one entry, rolled back if the tool raises. An agent
that runs inside a tool works in the same workspace, and its calls are savepoints. ``backend``
attaches to a workspace by its ref, ``rewind`` goes back in conversation and files together.

Rule 1: a backend makes no I/O before its first operation, and never deletes a workspace.
Rule 2: a tool that changes files of the workspace in another way than through ``ctx.workspace``
uses ``Workspace.files``, inside of the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from wink_workspace.errors import (
    CallCancelledError,
    CallRefusedError,
    EntryMissingError,
    PathEscapeError,
    ProgramError,
    UsageError,
)
from wink_workspace.filesystem import FileKind, FileStat
from wink_workspace.prompt import ToolPolicy
from wink_workspace.sandbox import ExecResult
from wink_workspace.workspace import Workspace
from wink_workspace.workspace.program_calls import recorded

from .command_environment import ROOT, CommandEnvironment, exit_code, exit_code_of_error
from .frameworks import importing
from .open_workspaces import OpenWorkspaces, rewind_to

with importing("pydantic-ai"):
    from pydantic_ai import ModelRetry, RunContext
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import (
        ModelMessage,
        ToolCallPart,
        ToolReturnPart,
        WorkspaceRef,
    )
    from pydantic_ai.output import OutputContext
    from pydantic_ai.tools import ToolDefinition
    from pydantic_ai.workspaces import (
        CommandResult,
        FileEntry,
        WorkspaceBackend,
        WorkspaceOutputLimitError,
        WorkspaceTimeoutError,
        WorkspaceUnavailableError,
    )


T = TypeVar("T")

PROVIDER: Final = "wink"
"""The provider in the refs of our workspaces; the id is that of the workspace, or ``ID/FORK``."""

_OUTPUT_BYTES: Final = 10_485_760


class WinkBackend:
    """A workspace as pydantic-ai's ``WorkspaceBackend``, with commands and files.

    Every change is one call, or a part of the tool call in which it is made. A command that is
    cancelled or reaches its time limit is rolled back. Processes that a command leaves behind are
    ended with it; use a service of the sandbox for those. Commands and file operations raise the
    errors that ``WorkspaceBackend`` names.

    Args:
        workspaces: Opens the workspace.
        ref: The workspace to attach to; without it, the first operation creates one.
    """

    def __init__(self, workspaces: OpenWorkspaces, ref: WorkspaceRef | None = None) -> None:
        if ref is not None and ref.provider != PROVIDER:
            raise UsageError(
                f"{ref.provider!r} is not the provider of a workspace",
                hint=f"Pass a ref whose provider is {PROVIDER!r}.",
            )
        self._workspaces = workspaces
        self._ref = ref
        self._opening = asyncio.Lock()

    @property
    def ref(self) -> WorkspaceRef | None:
        """The ref of the workspace; ``None`` before it is created."""
        return self._ref

    async def environment(self) -> CommandEnvironment:
        """The open workspace; the first call creates it or attaches to it.

        Raises:
            WorkspaceUnavailableError: If it was deleted.
        """
        async with self._opening:
            if self._ref is None:
                name, environment = await asyncio.to_thread(self._workspaces.create)
                self._ref = WorkspaceRef(provider=PROVIDER, id=name)
                return environment
            try:
                return await asyncio.to_thread(self._workspaces.get, self._ref.id)
            except (EntryMissingError, UsageError) as error:
                raise WorkspaceUnavailableError(str(error)) from error

    async def working_dir(self) -> str:
        """``/workspace``."""
        await self.environment()
        return ROOT

    # Commands

    async def run(
        self,
        command: str | Sequence[str],
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        """Run a command; see ``SupportsCommands``."""
        if isinstance(command, str) is not shell:
            raise TypeError("a text needs shell=True, and a sequence of arguments shell=False")
        environment = await self.environment()
        argv = ("/bin/sh", "-c", command) if isinstance(command, str) else tuple(command)
        try:
            result = await environment.run(
                argv, env=env, timeout_s=timeout, output_bytes=_OUTPUT_BYTES, label="run"
            )
        except ProgramError as error:
            return CommandResult(
                exit_code=exit_code_of_error(error), stdout="", stderr=f"{error}\n"
            )
        except CallCancelledError as error:
            raise self._unavailable(environment, error) from error
        if environment.is_ended:
            raise WorkspaceUnavailableError("the workspace was deleted")
        return _command_result(result, timeout)

    # Files

    async def read_bytes(self, path: str) -> bytes:
        """The content of a file."""
        environment = await self.environment()
        return await self._read(environment, lambda: environment.read_bytes(path))

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Write a file."""
        environment = await self.environment()
        await self._change("write_bytes", path, lambda: environment.write_bytes(path, data))

    async def stat(self, path: str) -> FileEntry:
        """The metadata of a file or directory."""
        environment = await self.environment()
        return await self._read(environment, lambda: _entry(path, environment.stat(path)))

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        """The entries of a directory."""
        environment = await self.environment()

        def entries() -> list[FileEntry]:
            directory = environment.path(path)
            return [
                _entry_of_child(environment, each, f"{path.rstrip('/')}/{each.path.name}")
                for each in environment.workspace.files.list(directory)
            ]

        return await self._read(environment, entries)

    async def make_dir(self, path: str) -> None:
        """Create a directory and its missing parents."""
        environment = await self.environment()
        files = environment.workspace.files
        await self._change("make_dir", path, lambda: files.mkdir(environment.path(path)))

    async def remove(self, path: str) -> None:
        """Delete a file, a link, or a directory with everything in it."""
        environment = await self.environment()
        if f"{ROOT}/".startswith(f"{path.rstrip('/')}/"):
            raise ValueError(f"{path} is the working directory or above it")

        def delete() -> None:
            found = environment.path_of_link(path)
            if not found.parts:
                raise ValueError(f"{path} is the working directory")
            environment.workspace.files.delete(found, recursive=True)

        await self._change("remove", path, delete)

    async def exists(self, path: str) -> bool:
        """Whether a file or directory exists."""
        environment = await self.environment()
        try:
            await self._read(environment, lambda: environment.stat(path))
        except (OSError, PathEscapeError):
            return False
        return True

    async def realpath(self, path: str) -> str:
        """The path with all links resolved."""
        environment = await self.environment()
        return await self._read(environment, lambda: environment.absolute(environment.path(path)))

    async def _read(self, environment: CommandEnvironment, read: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(read)
        except UsageError as error:
            raise self._unavailable(environment, error) from error

    async def _change(self, label: str, path: str, change: Callable[[], object]) -> None:
        environment = await self.environment()
        try:
            await environment.change(label, lambda _: change(), params={"path": path})
        except (CallCancelledError, UsageError) as error:
            raise self._unavailable(environment, error) from error

    def _unavailable(self, environment: CommandEnvironment, error: Exception) -> Exception:
        """What to raise: *error*, unless the workspace was deleted meanwhile."""
        return WorkspaceUnavailableError(str(error)) if environment.is_ended else error


class WinkWorkspaces(OpenWorkspaces, AbstractCapability[Any]):
    """Gives agents workspaces, as a capability; each tool call of an agent is one entry.

    Use it in a ``with`` block. A run begins in a new workspace of *source*, or in the one whose ref
    is passed as ``workspace=`` or is in the message history.

    Args:
        source: The directory that new workspaces are made of.
        policies: Asked before each tool call. A refusal is a ``ModelRetry``: the model gets the
            reason, and the tool does not run.
        options: As for ``OpenWorkspaces``.
    """

    def __init__(
        self,
        source: str | None = None,
        *,
        policies: Sequence[ToolPolicy] = (),
        **options: Any,  # Any: those of OpenWorkspaces, each with its own type
    ) -> None:
        OpenWorkspaces.__init__(self, source, **options)
        self._policies = tuple(policies)

    def backend(self, ref: WorkspaceRef | None = None) -> WinkBackend:
        """A backend for a workspace; see ``WinkBackend``."""
        return WinkBackend(self, ref)

    def get_workspace(
        self, ctx: RunContext[Any], *, ref: WorkspaceRef | None
    ) -> WorkspaceBackend | None:
        """The backend of a run; ``None`` for the ref of another provider."""
        del ctx
        current = self.current() if ref is None else None  # an agent inside a tool
        if current is not None:
            ref = WorkspaceRef(provider=PROVIDER, id=current)
        return self.backend(ref) if ref is None or ref.provider == PROVIDER else None

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: Any,
        handler: Callable[[Any], Any],
    ) -> Any:
        """Run a tool as one call of the workspace."""
        del tool_def
        return await self._call(
            ctx, lambda: handler(args), call.tool_name, call.args_as_dict(), call.tool_call_id
        )

    async def wrap_output_process(
        self,
        ctx: RunContext[Any],
        *,
        output_context: OutputContext,
        output: Any,
        handler: Callable[[Any], Any],
    ) -> Any:
        """Run an output function as one call of the workspace; not on a part of the output."""
        if not output_context.has_function or ctx.partial_output:
            return await handler(output)
        name = output_context.function_name or "output"
        part = output_context.tool_call
        params, call_id = (part.args_as_dict(), part.tool_call_id) if part else (None, "")
        return await self._call(ctx, lambda: handler(output), name, params, call_id)

    async def _call(
        self,
        ctx: RunContext[Any],
        run: Callable[[], Any],
        name: str,
        params: object,
        call_id: str,
    ) -> Any:
        ref = ctx.workspace.ref
        if ref is None:  # the first tool call of a run creates the workspace
            await ctx.workspace.working_dir()
            ref = ctx.workspace.ref
        if ref is None or ref.provider != PROVIDER:
            return await run()
        environment = await WinkBackend(self, ref).environment()
        try:
            async with environment.workspace.call(
                name, params=params, policies=self._policies, call_id=call_id
            ) as entry:
                result = await run()
                entry.result(*recorded(result))
        except CallRefusedError as error:
            raise ModelRetry(str(error)) from error
        return result  # pyright: ignore[reportPossiblyUnboundVariable] - the block raises what it catches


def rewind(
    workspace: Workspace, messages: Sequence[ModelMessage], *, n_messages: int
) -> list[ModelMessage]:
    """Go back to the first *n_messages* of a conversation, in its files, too; those messages.

    The files and STATE become those after the last tool call in these messages, or before the first
    tool call after them. It is one more entry, so it can be undone. Pass the result as
    ``message_history`` of the next run.

    Raises:
        UsageError: If *n_messages* is negative.
        EntryMissingError: If the entries are no longer kept.
    """
    return rewind_to(workspace, messages, n_messages, _call_ids, noun="messages")


def _call_ids(messages: Sequence[ModelMessage]) -> Iterator[str]:
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                yield part.tool_call_id


def _command_result(result: ExecResult, timeout_s: float | None) -> CommandResult:
    stdout, stderr = (
        (stream.head + stream.tail).decode("utf-8", "replace")
        for stream in (result.stdout, result.stderr)
    )
    if result.timed_out:
        message = f"the command was ended after {timeout_s:g} s"
        raise WorkspaceTimeoutError(message, stdout=stdout, stderr=stderr)
    if result.stdout.n_missing or result.stderr.n_missing or result.stopped:
        message = result.stopped or f"the output has more than {_OUTPUT_BYTES:,} bytes"
        raise WorkspaceOutputLimitError(
            message, limit=_OUTPUT_BYTES, stdout=stdout[:65_536], stderr=stderr[:65_536]
        )
    return CommandResult(exit_code=exit_code(result), stdout=stdout, stderr=stderr)


def _entry(path: str, found: FileStat) -> FileEntry:
    is_dir = found.kind is FileKind.DIRECTORY
    name = path.rstrip("/").rpartition("/")[2]
    return FileEntry(name=name, path=path, is_dir=is_dir, size=None if is_dir else found.size_bytes)


def _entry_of_child(environment: CommandEnvironment, found: FileStat, path: str) -> FileEntry:
    """The entry of a listing; a link has the kind and the size of its target."""
    if found.kind is not FileKind.SYMLINK:
        return _entry(path, found)
    try:
        return _entry(path, environment.stat(path))
    except (OSError, PathEscapeError):  # a dangling link, a loop, or a link out of the workspace
        return FileEntry(name=found.path.name, path=path, is_dir=False, size=None)
