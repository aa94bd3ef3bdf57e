"""The sandbox ``wink`` for evaluations with inspect_ai: samples are forks of one workspace.

An entry point registers it, so ``sandbox="wink"`` works once the extra ``inspect`` is installed.
``sandbox=("wink", "DIRECTORY")`` begins with the files of a directory. Every command and every
written file is one entry, or a part of the call in which it is made (``WinkSandbox.call``). The
log of a sample has its diff as an info event whose source is ``wink``.

The workspace of a task is deleted at the end of the task, unless inspect_ai runs with
``--no-sandbox-cleanup``. It needs asyncio, the default of inspect_ai.
"""

from __future__ import annotations

import asyncio
import io
import posixpath
import tarfile
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final, Literal, overload

from wink_workspace.errors import PathEscapeError, ProgramError, UsageError
from wink_workspace.ledger import LogEntry
from wink_workspace.sandbox import CapturedOutput
from wink_workspace.workspace import Workspace
from wink_workspace.workspace.program_calls import WorkspaceCall

from .command_environment import CommandEnvironment, exit_code, exit_code_of_error
from .frameworks import importing

with importing("inspect"):
    from inspect_ai.log import transcript
    from inspect_ai.util import (
        ExecResult,
        OutputLimitExceededError,
        SandboxEnvironment,
        SandboxEnvironmentLimits,
        SandboxUserUnsupportedError,
        sandboxenv,
    )

    # The place of its program has no public name
    from inspect_ai.util._sandbox._cli import SANDBOX_CLI, SANDBOX_TOOLS_DIR


_OWN_USERS: Final = (None, "workspace", "1000")
_TEMPORARY_BYTES: Final = 16 * 2**20
_PARENT, _TOOLS = posixpath.split(SANDBOX_TOOLS_DIR)
_UNPACK: Final = "tar xzf -"
"""Part of the command with which inspect_ai unpacks its program from the input."""
_NOT_READ: Final = {
    "No such file or directory": FileNotFoundError,
    "Is a directory": IsADirectoryError,
    "Permission denied": PermissionError,
}


@dataclass(slots=True)
class _Task:
    """The workspace of a task, and its forks for samples."""

    workspace: Workspace
    begin: LogEntry
    samples: list[Workspace]


_tasks: dict[str, _Task] = {}
"""By directory, from ``task_init`` to ``task_cleanup``. Tasks of one run share a workspace."""


@sandboxenv(name="wink")  # pyright: ignore[reportUntypedClassDecorator] - returns the class
class WinkSandbox(SandboxEnvironment):
    """The sandbox of one sample; see the module.

    Attributes:
        workspace: The fork of the sample: its log, diff and undo.
    """

    def __init__(self, workspace: Workspace) -> None:
        super().__init__()
        self.workspace = workspace
        self._begin = workspace.head
        self._environment = CommandEnvironment(workspace)
        self._temporary: dict[str, bytes] = {}
        self._tools = b""

    def call(self, label: str, *, params: object = None) -> WorkspaceCall:
        """One call, for ``async with``: what a tool does in it is one entry, or leaves no trace."""
        return self.workspace.call(label, params=params)

    # Tasks and samples

    @classmethod
    async def task_init(cls, task_name: str, config: Any) -> None:
        """Make the workspace of a task."""
        del task_name
        await asyncio.to_thread(_begin_task, _directory(config))

    @classmethod
    async def task_cleanup(cls, task_name: str, config: Any, cleanup: bool) -> None:
        """Close the workspace of a task, and delete it."""
        del task_name
        task = _tasks.pop(_directory(config), None)
        if task is not None:
            async with AsyncExitStack() as ending:  # each step is taken, also if another one fails
                if cleanup:
                    ending.push_async_callback(
                        asyncio.to_thread, Workspace.delete, task.workspace.info.id
                    )
                for each in (task.workspace, *task.samples):  # of samples without a cleanup, too
                    ending.push_async_callback(asyncio.to_thread, each.close)

    @classmethod
    async def sample_init(
        cls, task_name: str, config: Any, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """Fork the workspace of the task."""
        del task_name, metadata
        task = _tasks[_directory(config)]

        def fork() -> Workspace:
            name = f"sample-{uuid.uuid4().hex[:12]}"
            task.workspace.fork(name, at=task.begin.number)
            sample = Workspace.open(task.workspace.info.id, branch=name)
            task.samples.append(sample)  # other samples begin meanwhile, so it may not be the last
            return sample

        return {"default": cls(await asyncio.to_thread(fork))}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: Any,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """Write the diff to the log, and close the fork."""
        del task_name, config, interrupted
        samples = [environment.as_type(cls) for environment in environments.values()]
        async with AsyncExitStack() as closing:
            for sample in samples:
                closing.push_async_callback(asyncio.to_thread, sample.workspace.close)
            for sample in samples:
                transcript().info({"diff": await asyncio.to_thread(sample.diff)}, source="wink")

    def diff(self) -> str:
        """What changed since the sample began, as a git-style diff."""
        return self.workspace.diff()

    # Commands and files

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,  # noqa: A002 - inspect_ai's interface
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a command; one that reaches its time limit is rolled back.

        Raises:
            UsageError: For ``bash_session`` and other tools of inspect_ai whose process would have
                to outlive a command.
        """
        del concurrency, timeout_retry  # the container is local: a second try would not help
        if user not in _OWN_USERS:
            raise SandboxUserUnsupportedError(f"commands run as one user, and not as {user!r}")
        data = input.encode() if isinstance(input, str) else input or b""
        if SANDBOX_CLI in cmd and data and b'"text_editor"' not in data:
            raise UsageError(
                "bash_session and other tools of inspect_ai need a process that stays in the"
                " sandbox, and nothing outside of the workspace outlives a command; use bash(),"
                " python() or text_editor()",
                hint="Or use a tool of your own that calls sandbox().exec.",
            )
        argv, stdin = self._with_temporary(cmd, data)
        try:
            result = await self._environment.run(
                argv,
                cwd=cwd or ".",
                env=env,
                stdin=stdin,
                timeout_s=timeout,
                output_bytes=SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE,
                label="exec",
            )
        except ProgramError as error:
            if not error.is_missing:
                raise PermissionError(str(error)) from error
            return ExecResult(False, exit_code_of_error(error), "", str(error))
        if result.timed_out:
            raise TimeoutError(f"the command was ended after {timeout} s")
        code = exit_code(result)
        if code == 0 and _names(cmd, _UNPACK) and _names(cmd, _TOOLS):
            self._tools = data
        return ExecResult(code == 0, code, _text(result.stdout), _text(result.stderr))

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file of the workspace, or a temporary one below ``/tmp`` such as a set-up script.

        A temporary file is executable. A later command that names it finds it as it was written.

        Raises:
            PermissionError: For another path outside, or more than 16 MiB of temporary files.
        """
        data = contents.encode() if isinstance(contents, str) else contents
        try:
            await self._environment.change(
                "write_file",
                lambda _: self._environment.write_bytes(file, data),
                params={"file": file},
            )
        except PathEscapeError as error:
            path = posixpath.normpath(file)
            kept = {**self._temporary, path: data}
            is_small = sum(map(len, kept.values())) <= _TEMPORARY_BYTES
            if not (path.startswith("/tmp/") and is_small):  # noqa: S108 - of the sandbox
                raise PermissionError(str(error)) from error
            self._temporary = kept

    def _with_temporary(self, argv: list[str], data: bytes = b"") -> tuple[list[str], bytes]:
        """A command and its input that make the files that it names: none survives a command."""
        named = {k: v for k, v in self._temporary.items() if _names(argv, k)}
        packed = [("/", _archive(named))] if named else []
        if _names(argv, _TOOLS):
            argv = [each.replace(_PARENT, "/tmp") for each in argv]  # noqa: S108 - of the sandbox
            packed.append((f"/tmp/{_TOOLS}", self._tools or _archive({})))  # noqa: S108 - likewise
        if not packed:
            return argv, data
        lines = [
            f"mkdir -p -m 700 {path}; head -c {len(archive)} | tar xzf - -C {path}"
            for path, archive in packed
        ]
        argv = ["/bin/sh", "-c", "\n".join((*lines, 'exec "$@"')), "sh", *argv]
        return argv, b"".join((*(archive for _, archive in packed), data))

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Read a file, also one of the container outside of the workspace."""
        try:
            size = await asyncio.to_thread(lambda: self._environment.stat(file).size_bytes)
            _check_size(size)
            data = await asyncio.to_thread(self._environment.read_bytes, file)
        except PathEscapeError:
            data = await self._read_outside(file)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{file}: no such file") from error
        return data.decode() if text else data

    async def _read_outside(self, file: str) -> bytes:
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        path = posixpath.normpath(file)
        argv, stdin = self._with_temporary(["cat", "--", path])
        result = await self._environment.run(argv, stdin=stdin, output_bytes=limit, label="read")
        if result.exit_code != 0:
            message = result.stderr.head.decode("utf-8", "replace").strip()
            kind = next((kind for text, kind in _NOT_READ.items() if text in message), OSError)
            raise kind(message)
        _check_size(result.stdout.n_bytes)
        return result.stdout.head + result.stdout.tail


def _directory(config: Any) -> str:
    """The directory of a configuration; empty for none."""
    if config is not None and not isinstance(config, str):
        raise UsageError(
            f"{config!r} is not a directory", hint="Use sandbox=('wink', 'DIRECTORY')."
        )
    return config or ""


def _begin_task(directory: str) -> None:
    if directory in _tasks:
        return
    if directory:
        workspace = Workspace.create(directory)
    else:
        with tempfile.TemporaryDirectory() as empty:
            workspace = Workspace.create(empty)
    _tasks[directory] = _Task(workspace, workspace.head, [])


def _names(argv: list[str], path: str) -> bool:
    return any(path in each for each in argv)


def _archive(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for path, data in files.items():
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size, member.mode = len(data), 0o700
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def _check_size(n_bytes: int) -> None:
    if n_bytes > SandboxEnvironmentLimits.MAX_READ_FILE_SIZE:
        raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)


def _text(output: CapturedOutput) -> str:
    text = (output.head + output.tail).decode("utf-8", "replace")
    if output.n_missing:
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR
        raise OutputLimitExceededError(limit, text)
    return text
