"""Workspaces for the OpenAI Agents SDK: a sandbox client, snapshots, tools, and calls as entries.

``WinkSandboxClient`` gives a ``SandboxAgent`` a workspace. ``WinkFilesystem`` and ``WinkShell`` are
the SDK's capabilities whose tool calls are one entry each. ``shell_tool`` and ``patch_tool`` work
without a sandbox session, and ``in_call`` makes the calls of any other tool entries.

Rule 1: a snapshot of a session is an entry of its workspace, so persisting one copies no file. A
session that is resumed from an older state gets the files of its entry back.
Rule 2: a client never deletes a workspace: ``delete`` only ends its session.
Rule 3: inside of a tool call, each change by the session, and each call of another tool, such as
that of an agent inside the tool, is a savepoint of that call.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import io
import json
import tarfile
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast

from wink_workspace.errors import FilesystemError, PatchError, ProgramError, UsageError
from wink_workspace.filesystem import FileKind, FileStat, Filesystem, touched_paths
from wink_workspace.sandbox import ExecResult as OurExecResult
from wink_workspace.sections.command_results import CommandStream, stopped_summary
from wink_workspace.workspace import Workspace
from wink_workspace.workspace.program_calls import call_around, recorded

from .command_environment import ROOT, CommandEnvironment, exit_code, exit_code_of_error
from .frameworks import importing
from .open_workspaces import OpenWorkspaces, rewind_to

with importing("openai-agents"):
    from agents.editor import ApplyPatchOperation, ApplyPatchResult
    from agents.items import TResponseInputItem
    from agents.run_context import RunContextWrapper
    from agents.sandbox.capabilities import Filesystem as FilesystemCapability
    from agents.sandbox.capabilities import Shell as ShellCapability
    from agents.sandbox.errors import (
        ExecTimeoutError,
        ExecTransportError,
        WorkspaceReadNotFoundError,
    )
    from agents.sandbox.files import EntryKind, FileEntry
    from agents.sandbox.manifest import Manifest
    from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
    from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
    from agents.sandbox.session.sandbox_session import SandboxSession
    from agents.sandbox.session.sandbox_session_state import SandboxSessionState
    from agents.sandbox.snapshot import (
        LocalSnapshotSpec,
        SnapshotBase,
        SnapshotSpec,
        resolve_snapshot,
    )
    from agents.sandbox.snapshot_defaults import default_local_snapshot_base_dir
    from agents.sandbox.types import ExecResult, Permissions, User
    from agents.tool import (
        ApplyPatchTool,
        CustomTool,
        FunctionTool,
        ShellCallOutcome,
        ShellCommandOutput,
        ShellCommandRequest,
        ShellResult,
        ShellTool,
        Tool,
        set_function_tool_failure_error_function,
        with_function_tool_failure_error_handler,
    )
    from agents.tool_context import ToolContext


T = TypeVar("T")
AnyTool = TypeVar("AnyTool", FunctionTool, CustomTool)

_OUTPUT_BYTES: Final = 10_485_760
_OWNER: Final = "workspace"
_KINDS: Final = {
    FileKind.DIRECTORY: EntryKind.DIRECTORY,
    FileKind.FILE: EntryKind.FILE,
    FileKind.SYMLINK: EntryKind.SYMLINK,
}


# Snapshots


class WinkSnapshot(SnapshotBase):
    """An entry of the workspace of a session; only sessions of ``WinkSandboxClient`` have one.

    Attributes:
        entry: The id of the entry; empty before the session ended for the first time.
    """

    type: str = "wink"
    entry: str = ""

    async def restorable(self, *, dependencies: Any = None) -> bool:
        """Whether there is an entry."""
        del dependencies
        return bool(self.entry)

    async def persist(self, data: io.IOBase, *, dependencies: Any = None) -> None:
        """Refuse the archive of another client's session."""
        del data, dependencies
        raise _not_ours()

    async def restore(self, *, dependencies: Any = None) -> io.IOBase:
        """Refuse to make an archive for another client's session."""
        del dependencies
        raise _not_ours()


class WinkSnapshotSpec(SnapshotSpec):
    """Snapshots that are entries. It is the default of ``WinkSandboxClient``."""

    type: str = "wink"

    def build(self, snapshot_id: str) -> SnapshotBase:
        """A snapshot without an entry."""
        return WinkSnapshot(id=snapshot_id)


def _not_ours() -> UsageError:
    return UsageError(
        "a WinkSnapshot is an entry of a workspace, and this session has none",
        hint="Use WinkSandboxClient, or another kind of snapshot.",
    )


# Sessions


class WinkSandboxOptions(BaseSandboxClientOptions):
    """The options of a session.

    Attributes:
        workspace: The name of an existing workspace, ``ID`` or ``ID/FORK``; a new one if empty.
    """

    type: str = "wink"
    workspace: str = ""


class WinkSandboxState(SandboxSessionState):
    """The state of a session.

    Attributes:
        workspace: The name of its workspace.
    """

    type: Literal["wink"] = "wink"  # pyright: ignore[reportIncompatibleVariableOverride] - the SDK finds the class by it
    workspace: str


class WinkSandboxClient(BaseSandboxClient[WinkSandboxOptions | None]):
    """Gives sandbox agents workspaces.

    Args:
        workspaces: Opens and creates them. ``workspaces.get(name)`` has the history of one; the
            name is in the state of its session.
    """

    backend_id = "wink"
    supports_default_options = True

    def __init__(self, workspaces: OpenWorkspaces) -> None:
        self.workspaces = workspaces

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: WinkSandboxOptions | None = None,
    ) -> SandboxSession:
        """A session in a new workspace, or in the one of *options*.

        Raises:
            UsageError: If the root of *manifest* is not ``/workspace``.
        """
        manifest = self._validate_manifest_for_create(manifest or Manifest())
        if manifest.root.rstrip("/") != ROOT:
            raise UsageError(
                f"the files of a workspace cannot be at {manifest.root}",
                hint=f"Use a manifest whose root is {ROOT}.",
            )
        name = options.workspace if options else ""
        if not name:
            name, _ = await asyncio.to_thread(self.workspaces.create)
        session_id = uuid.uuid4()
        if snapshot is None or _is_default(snapshot):
            snapshot = WinkSnapshotSpec()
        state = WinkSandboxState(
            session_id=session_id,
            snapshot=resolve_snapshot(snapshot, str(session_id)),
            manifest=manifest,
            workspace=name,
        )
        return await self.resume(state)

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """The session of a state; if that is older than the workspace, with the older files.

        Raises as ``Workspace.open``, and ``UsageError`` for the state of another client.
        """
        if not isinstance(state, WinkSandboxState):
            raise UsageError(
                f"the state is that of a session of {state.type!r}",
                hint="Pass the state of a session of WinkSandboxClient.",
            )
        environment = await asyncio.to_thread(self.workspaces.get, state.workspace)
        return self._wrap_session(WinkSandboxSession(state, environment))

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Do nothing: the workspace stays; see ``OpenWorkspaces.delete``."""
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        """The state of a session from its JSON form."""
        return self._deserialize_session_state_payload(payload, WinkSandboxState)


def _is_default(snapshot: SnapshotSpec | SnapshotBase) -> bool:
    """Whether it is what the runner passes if its user chose no snapshot."""
    return (
        isinstance(snapshot, LocalSnapshotSpec)
        and snapshot.base_path == default_local_snapshot_base_dir()
    )


class WinkSandboxSession(BaseSandboxSession):
    """A session in a workspace; every change is one call, or a part of a tool's call.

    Commands run as one user. One that reaches its time limit, or that is cancelled, is rolled back.

    Args:
        state: Its state.
        environment: Its workspace.
    """

    state: WinkSandboxState

    def __init__(self, state: WinkSandboxState, environment: CommandEnvironment) -> None:
        self.state = state  # pyright: ignore[reportIncompatibleVariableOverride] - as in the SDK's own
        self.environment = environment
        self._is_running = False

    @property
    def workspace(self) -> Workspace:
        """Its log, diff, undo, apply."""
        return self.environment.workspace

    # Start and end

    async def running(self) -> bool:
        """Whether it was started, and has not ended."""
        return self._is_running and not self.environment.is_ended

    async def _after_start(self) -> None:
        self._is_running = True

    async def _shutdown_backend(self) -> None:
        self._is_running = False

    async def _start_workspace(self) -> None:
        snapshot = self.state.snapshot
        if isinstance(snapshot, WinkSnapshot) and snapshot.entry:
            await asyncio.to_thread(self._restore, snapshot.entry)
            return
        manifest = self.state.manifest
        if manifest.entries or manifest.users or manifest.groups or await snapshot.restorable():
            async with self.workspace.call("start a sandbox session"):
                await super()._start_workspace()

    def _restore(self, entry: str) -> None:
        if self.workspace.head.id != entry:
            self.workspace.restore(entry)

    async def _persist_snapshot(self) -> None:
        snapshot = self.state.snapshot
        if not isinstance(snapshot, WinkSnapshot):
            await super()._persist_snapshot()
            return
        await asyncio.to_thread(self.workspace.commit_edits)
        entry = snapshot.model_copy(update={"entry": self.workspace.head.id})
        self.state.snapshot = entry

    def _should_compute_snapshot_fingerprint_on_persist(self) -> bool:
        return False  # it would run commands, and only saves a restore

    async def persist_workspace(self) -> io.IOBase:
        """The files as a tar archive, for a snapshot that is not an entry."""
        return await asyncio.to_thread(_archive, self.workspace.files)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Add the files of a tar archive.

        Raises:
            UsageError: If it has something else than files, directories and links.
            PathEscapeError: If a path leads out of the workspace.
        """
        files = self.workspace.files
        await self.environment.change("unpack", lambda _: _unpack(cast("Any", data), files))

    # Commands and files

    async def _exec_internal(
        self, *command: str | Path, timeout: float | None = None
    ) -> ExecResult:
        argv = [str(each) for each in command]
        env = await self.state.manifest.environment.resolve()
        try:
            result = await self.environment.run(
                argv, env=env, timeout_s=timeout, output_bytes=_OUTPUT_BYTES, label="exec"
            )
        except ProgramError as error:
            message = f"{error}\n".encode()
            return ExecResult(stdout=b"", stderr=message, exit_code=exit_code_of_error(error))
        if result.timed_out:
            call = call_around(self.workspace.session, "exec_command")
            if call is not None:  # the tool answers with a text
                call.fail(f"the command was ended after {timeout} s")
            raise ExecTimeoutError(command=argv, timeout_s=timeout)
        if result.stopped:
            raise ExecTransportError(command=argv, context={"reason": result.stopped})
        stdout, stderr = (
            CommandStream.of(each).render().encode() if each.n_missing else each.head + each.tail
            for each in (result.stdout, result.stderr)
        )
        return ExecResult(stdout=stdout, stderr=stderr, exit_code=exit_code(result))

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        """The content of a file; raises ``WorkspaceReadNotFoundError`` if it is missing."""
        _check_user(user)
        try:
            return io.BytesIO(await self._read(path, self.environment.read_bytes))
        except FileNotFoundError as error:
            raise WorkspaceReadNotFoundError(path=Path(path), cause=error) from error

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        """Write a file; missing directories are created."""
        _check_user(user)
        content = cast("Any", data).read()
        content = content.encode() if isinstance(content, str) else bytes(content)
        await self._change("write", path, lambda name: self.environment.write_bytes(name, content))

    async def mkdir(
        self, path: Path | str, *, parents: bool = False, user: str | User | None = None
    ) -> None:
        """Create a directory; with *parents* it may exist."""
        _check_user(user)
        files = self.workspace.files
        await self._change(
            "mkdir",
            path,
            lambda name: files.mkdir(
                self.environment.path(name), parents=parents, exist_ok=parents
            ),
        )

    async def rm(
        self, path: Path | str, *, recursive: bool = False, user: str | User | None = None
    ) -> None:
        """Delete a file or link, or with *recursive* a directory, which may be missing."""
        _check_user(user)

        def delete(name: str) -> None:
            with suppress(*(FileNotFoundError,) if recursive else ()):
                found = self.environment.path_of_link(name)
                self.workspace.files.delete(found, recursive=recursive)

        await self._change("rm", path, delete)

    async def mv(
        self,
        source: Path | str,
        destination: Path | str,
        *,
        user: str | User | None = None,
    ) -> None:
        """Rename a file or link; an existing file is replaced."""
        _check_user(user)
        target = str(self.normalize_path(destination, for_write=True))

        def move(name: str) -> None:
            of_link = self.environment.path_of_link
            self.workspace.files.move(of_link(name), of_link(target), overwrite=True)

        await self._change("mv", source, move)

    async def ls(self, path: Path | str, *, user: str | User | None = None) -> list[FileEntry]:
        """The entries of a directory, or the one of a file."""
        _check_user(user)

        def entries(name: str) -> list[FileEntry]:
            found = self.workspace.files.stat(self.environment.path(name))
            is_dir = found.kind is FileKind.DIRECTORY
            return [
                self._file_entry(each)
                for each in (self.workspace.files.list(found.path) if is_dir else (found,))
            ]

        return await self._read(path, entries)

    async def same_file(
        self,
        left: Path | str,
        right: Path | str,
        *,
        follow_symlinks: bool = True,
        user: str | User | None = None,
    ) -> bool:
        """Whether two paths lead to the same existing file; there are no hard links."""
        _check_user(user)

        def compare(name: str) -> bool:
            pair = (name, str(self.normalize_path(right)))
            if not follow_symlinks:
                found = [self.environment.path_of_link(each) for each in pair]
                is_link = self.workspace.files.stat(found[0], follow=False).kind is FileKind.SYMLINK
                return found[0] == found[1] and not is_link
            paths = {self.environment.path(each) for each in pair}
            return len(paths) == 1 and self.workspace.files.exists(paths.pop())

        return await self._read(left, compare)

    def _file_entry(self, found: FileStat) -> FileEntry:
        is_dir = found.kind is FileKind.DIRECTORY
        mode = self.workspace.mode_of(found.path)
        if mode is None:
            mode = 0o755 if is_dir or found.executable else 0o644
        permissions = Permissions.from_mode(mode & 0o777)
        return FileEntry(
            path=self.environment.absolute(found.path),
            permissions=permissions.model_copy(update={"directory": is_dir}),
            owner=_OWNER,
            group=_OWNER,
            size=found.size_bytes,
            kind=_KINDS[found.kind],
        )

    async def _read(self, path: Path | str, work: Callable[[str], T]) -> T:
        return await asyncio.to_thread(work, str(self.normalize_path(path)))

    async def _change(self, label: str, path: Path | str, work: Callable[[str], object]) -> None:
        name = str(self.normalize_path(path, for_write=True))
        await self.environment.change(label, lambda _: work(name), params={"path": name})


def _check_user(user: str | User | None) -> None:
    name = user.name if isinstance(user, User) else user
    if name not in (None, _OWNER):
        raise UsageError(
            f"there is no user {name!r} in a workspace", hint="Leave the user out: there is one."
        )


def _archive(files: Filesystem) -> io.IOBase:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for found in files.walk():
            member = tarfile.TarInfo(str(found.path))
            member.mode = 0o755 if found.executable else 0o644
            content = b""
            match found.kind:
                case FileKind.DIRECTORY:
                    member.type, member.mode = tarfile.DIRTYPE, 0o755
                case FileKind.SYMLINK:
                    member.type, member.linkname = tarfile.SYMTYPE, found.target or ""
                case FileKind.FILE:
                    content = files.read_bytes(found.path)
                    member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    stream.seek(0)
    return stream


def _unpack(stream: Any, files: Filesystem) -> None:
    with tarfile.open(fileobj=stream, mode="r|*") as archive:
        for member in archive:
            path = member.name.removeprefix("./").rstrip("/") or "."
            if member.isdir():
                files.mkdir(path)
            elif member.issym():
                files.symlink(path, member.linkname)
            elif member.isfile():
                content = archive.extractfile(member)
                files.write_bytes(path, content.read() if content else b"")
                files.set_executable(path, bool(member.mode & 0o100))
            else:
                raise UsageError(
                    f"{member.name} in the archive is not a file, directory or link",
                    hint="Leave it out of the archive.",
                )


# Tools


def in_call(workspace: Workspace, tool: AnyTool) -> AnyTool:
    """A copy of *tool* whose calls are one entry each.

    A tool that raises leaves no trace, and the model gets the error as without this function.
    Parallel calls take turns. A tool that is not asynchronous runs in a thread, which a cancelled
    run cannot stop; what it writes after that is an external edit.
    """
    copied = copy.copy(tool)
    if isinstance(copied, CustomTool):
        copied.on_invoke_tool = _calling(workspace, copied.name, copied.on_invoke_tool)
        return copied
    raising = set_function_tool_failure_error_function(copy.copy(copied), None)
    copied.on_invoke_tool = with_function_tool_failure_error_handler(
        _calling(workspace, copied.name, raising.on_invoke_tool),
        _ignore,  # the entry has the error
    )
    return copy.copy(copied)  # binds the handler of errors to the copy


def _ignore(*_: object) -> None: ...


def _calling(
    workspace: Workspace, name: str, invoke: Callable[[Any, str], Any]
) -> Callable[[Any, str], Awaitable[Any]]:
    async def invoke_in_call(context: ToolContext[Any], given: str) -> Any:
        calling = workspace.call(name, params=_params(given), call_id=context.tool_call_id)
        result: Any = None  # the block raises what it catches
        async with calling as call:
            result = invoke(context, given)
            if inspect.isawaitable(result):
                result = await result
            if call.tool_result.success:
                call.result(*recorded(result))
        return result

    return invoke_in_call


def _params(given: str) -> object:
    try:
        return json.loads(given) if given else None
    except ValueError:
        return {"input": given}


class WinkFilesystem(FilesystemCapability):
    """The SDK's capability for files, for sessions of ``WinkSandboxClient``: calls are entries."""

    def tools(self) -> list[Tool]:
        """Its tools."""
        return _in_calls(self.session, super().tools())


class WinkShell(ShellCapability):
    """The SDK's capability for commands, for sessions of ``WinkSandboxClient``: calls are entries.

    A command that reaches its time limit is undone. None continues after its tool call; use a
    service of the sandbox for that.
    """

    def tools(self) -> list[Tool]:
        """Its tools."""
        return _in_calls(self.session, super().tools())


def _in_calls(session: BaseSandboxSession | None, tools: Sequence[Tool]) -> list[Tool]:
    inner = getattr(session, "_inner", session)
    if not isinstance(inner, WinkSandboxSession):
        raise UsageError(
            "this capability needs a session in a workspace", hint="Use WinkSandboxClient."
        )
    return [in_call(inner.workspace, cast("FunctionTool", tool)) for tool in tools]


def shell_tool(environment: CommandEnvironment, **options: Any) -> ShellTool:
    """The SDK's ``ShellTool``, whose commands run in the sandbox of a workspace.

    All commands of one tool call are one entry. One that reaches its time limit undoes all of them.

    Args:
        environment: The workspace, as ``OpenWorkspaces`` returns it.
        options: Those of ``ShellTool``.
    """

    async def execute(request: ShellCommandRequest) -> ShellResult:
        action, outputs = request.data.action, list[ShellCommandOutput]()
        timeout_s = action.timeout_ms / 1000 if action.timeout_ms else None
        params = {"commands": action.commands}
        calling = environment.workspace.call("shell", params=params, call_id=request.data.call_id)
        async with calling as call:
            for command in action.commands:
                outputs.append(await _run(environment, command, timeout_s))
                if outputs[-1].outcome.type == "timeout" or outputs[-1].exit_code is None:
                    call.fail(outputs[-1].stderr)
                    break
            else:
                codes = [{"command": each.command, "exit_code": each.exit_code} for each in outputs]
                call.result(codes)
        return ShellResult(outputs, max_output_length=action.max_output_length)

    return ShellTool(executor=execute, **options)


async def _run(
    environment: CommandEnvironment, command: str, timeout_s: float | None
) -> ShellCommandOutput:
    try:
        result = await environment.run(
            ("/bin/sh", "-c", command), timeout_s=timeout_s, output_bytes=_OUTPUT_BYTES
        )
    except ProgramError as error:
        outcome = ShellCallOutcome("exit", exit_code_of_error(error))
        return ShellCommandOutput(stderr=str(error), outcome=outcome, command=command)
    stdout, stderr = (CommandStream.of(each).render() for each in (result.stdout, result.stderr))
    stopped = stopped_summary(result, timeout_s or 0)
    if stopped is not None:
        stderr = f"{stderr}\n{stopped}".lstrip()
    return ShellCommandOutput(stdout, stderr, _outcome(result), command)


def _outcome(result: OurExecResult) -> ShellCallOutcome:
    if result.timed_out:
        return ShellCallOutcome("timeout")
    return ShellCallOutcome("exit", None if result.stopped else exit_code(result))


def patch_tool(environment: CommandEnvironment, **options: Any) -> ApplyPatchTool:
    """The SDK's ``ApplyPatchTool``, which changes the files of a workspace; see ``shell_tool``.

    Each operation is one entry. Patches are applied with our rules: a hunk that fits at several
    places, or at none, is refused with the nearest lines.
    """
    editor = _PatchEditor(environment)
    editor.needs_approval = options.pop("needs_approval", False)
    return ApplyPatchTool(editor=editor, needs_approval=editor.note_call, **options)


class _PatchEditor:
    """Implements ``ApplyPatchEditor``."""

    needs_approval: bool | Callable[..., Any] = False

    def __init__(self, environment: CommandEnvironment) -> None:
        self._environment = environment
        self._call_ids: dict[int, str] = {}

    async def note_call(
        self, context: RunContextWrapper[Any], operation: ApplyPatchOperation, call_id: str
    ) -> bool:
        """Note the id of the call, which only the question for an approval gets."""
        self._call_ids[id(operation)] = call_id
        needed = self.needs_approval
        if callable(needed):
            needed = needed(context, operation, call_id)
        return bool(await needed if inspect.isawaitable(needed) else needed)

    async def create_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        """Create a file from the lines of a diff."""
        return await self._apply(operation, "Add File")

    async def update_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        """Change a file, and perhaps move it."""
        return await self._apply(operation, "Update File")

    async def delete_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        """Delete a file."""
        return await self._apply(operation, "Delete File")

    async def _apply(self, operation: ApplyPatchOperation, verb: str) -> ApplyPatchResult:
        params = {"type": operation.type, "path": operation.path, "diff": operation.diff}
        call_id = self._call_ids.pop(id(operation), "")
        workspace = self._environment.workspace
        try:
            async with workspace.call("apply_patch", params=params, call_id=call_id):
                patch = await asyncio.to_thread(self._patch, operation, verb)
                await asyncio.to_thread(workspace.files.apply_patch, patch)
        except (FilesystemError, UsageError) as error:
            return ApplyPatchResult("failed", f"{error} {error.hint}".strip())
        return ApplyPatchResult("completed", f"{verb.split()[0]} {operation.path}")

    def _patch(self, operation: ApplyPatchOperation, verb: str) -> str:
        """The operation as a patch of our format, which names no other path.

        A diff could contain the headers of further files, for which no approval was given.
        """
        path = self._environment.path_of_link(operation.path)
        wanted, lines = {path}, ["*** Begin Patch", f"*** {verb}: ./{path}"]
        if operation.move_to:
            target = self._environment.path_of_link(operation.move_to)
            wanted.add(target)
            lines.append(f"*** Move to: ./{target}")
        if operation.diff and operation.type != "delete_file":
            lines.append(operation.diff.removesuffix("\n"))
        patch = "\n".join((*lines, "*** End Patch", ""))
        if set(touched_paths(patch)) != wanted:
            raise PatchError(
                f"the diff for {operation.path} names other files",
                hint="Send one operation for each file.",
            )
        return patch


def rewind(
    workspace: Workspace, items: Sequence[TResponseInputItem], *, n_items: int
) -> list[TResponseInputItem]:
    """Go back to the first *n_items* of a conversation, in its files, too; those items.

    The files and STATE become those after the last tool call in these items, or before the first
    tool call after them. It is one more entry, so it can be undone. Pass the result as the input of
    the next run.

    Args:
        workspace: The workspace of the tools.
        items: The conversation, from ``to_input_list``.
        n_items: How many items to keep.

    Raises:
        UsageError: If *n_items* is negative.
        EntryMissingError: If the entries are no longer kept.
    """
    return rewind_to(workspace, items, n_items, _call_ids, noun="items")


def _call_ids(items: Sequence[TResponseInputItem]) -> Iterator[str]:
    for item in items:
        if str(item.get("type")).endswith("_output"):
            yield str(item.get("call_id"))
