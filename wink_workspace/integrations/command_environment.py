"""Files and commands of a workspace, under the paths that commands see, for a framework.

Rule 1: every change is one call. Inside of a call that the framework began, it is a savepoint of
that call: what fails or is stopped leaves no trace, also if the code of the call goes on.
Rule 2: reading makes no call, and does not wait for a call that is running.
Rule 3: work that blocks runs in another thread. A task that is cancelled waits for its rollback.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeVar

from wink_workspace.clock import Cancellation
from wink_workspace.errors import FilesystemError, PathEscapeError, ProgramError, UsageError
from wink_workspace.filesystem import FileStat, WorkspacePath
from wink_workspace.sandbox import CapturedOutput, ExecRequest, ExecResult, SandboxConfig
from wink_workspace.sections.command_results import CommandOutput, stopped_summary
from wink_workspace.workspace import Workspace

T = TypeVar("T")

ROOT: Final = "/workspace"
"""The root of the files, as commands see it."""

_NO_LIMIT_S: Final = 86_400.0
_RECORDED_BYTES: Final = 65_536


class _StoppedError(Exception):
    """The sandbox ended a command, so its call is rolled back."""


class CommandEnvironment:
    """See the module.

    Args:
        workspace: An open workspace.
        sandbox: Where commands run; by default in a container.

    Paths are absolute, or relative to ``ROOT``. ``..`` after a link climbs from its target. Methods
    raise as those of ``Filesystem``, and ``PathEscapeError`` for a path outside of ``ROOT``.
    """

    def __init__(self, workspace: Workspace, sandbox: SandboxConfig | None = None) -> None:
        self.workspace = workspace
        self.is_ended = False
        self._config = sandbox
        self._running: set[Cancellation] = set()

    async def change(
        self,
        label: str,
        work: Callable[[Cancellation], T],
        *,
        params: object = None,
    ) -> T:
        """The result of *work*, which changes files, in another thread and as one call.

        Raises what *work* raises, after the rollback.
        """
        self.check()
        cancellation = Cancellation()
        self._running.add(cancellation)
        try:
            return await self.workspace.run_async(
                work, cancellation, label=label, params=params, cancellation=cancellation
            )
        finally:
            self._running.discard(cancellation)

    def check(self) -> None:
        """Raise ``UsageError`` if ``end`` was called."""
        if self.is_ended:
            raise UsageError(
                f"the workspace {self.workspace.info.id} was deleted", hint="Create another one."
            )

    def end(self) -> None:
        """Refuse further changes, cancel those that are running, and wait for their rollback."""
        self.is_ended = True
        for cancellation in tuple(self._running):
            cancellation.cancel()
        self.workspace.commit_edits()  # waits for its turn

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str = ".",
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_s: float | None = None,
        output_bytes: int = 1_048_576,
        label: str = "",
    ) -> ExecResult:
        """Run a command as one call; see ``ExecRequest``. Without *timeout_s*, for up to a day.

        A command with another exit code than 0 is a result, and its changes are kept. If the
        sandbox ended it, that is a result, too, and its changes are undone.

        Raises:
            ProgramError: If there is no such program, or it cannot be executed.
            CallCancelledError: After ``end``.
            SandboxError: If the sandbox failed.
        """
        results: list[ExecResult] = []

        def work(cancellation: Cancellation) -> CommandOutput:
            request = ExecRequest(
                argv=tuple(argv),
                cwd=cwd,
                env=dict(env or {}),
                stdin=stdin,
                timeout_s=timeout_s or _NO_LIMIT_S,
                cancellation=cancellation,
                output_bytes=output_bytes,
            )
            return self._run(request, results)

        with suppress(_StoppedError):
            await self.change(label or "run", work, params={"argv": list(argv)})
        return results[0]

    def run_here(self, request: ExecRequest, *, label: str, params: object = None) -> ExecResult:
        """As ``run``, on this thread: for a framework that is not asynchronous."""
        self.check()
        results: list[ExecResult] = []
        with suppress(_StoppedError):
            self.workspace.run(self._run, request, results, label=label, params=params)
        return results[0]

    def _run(self, request: ExecRequest, results: list[ExecResult]) -> CommandOutput:
        """Run a command in a call; what the entry records."""
        result = self.workspace.sandbox(self._config).run(request)
        if request.cancellation is not None:
            request.cancellation.check()
        results.append(result)
        if result.timed_out or result.stopped:
            raise _StoppedError(stopped_summary(result, request.timeout_s))
        return CommandOutput.of(
            replace(result, stdout=_to_record(result.stdout), stderr=_to_record(result.stderr))
        )

    def path(self, given: str) -> WorkspacePath:
        """The path in the workspace, with all links resolved; it need not exist."""
        self.check()
        absolute = posixpath.join(ROOT, given)
        names = [name for name in absolute.split("/") if name not in ("", ".")]
        if names[:1] != [ROOT[1:]]:
            raise PathEscapeError(given)
        found = WorkspacePath(())
        for name in names[1:]:
            if name != "..":
                found = self.workspace.files.resolve(found / name)
            elif found.parts:
                found = found.parent
            else:
                raise PathEscapeError(given)
        return found

    def path_of_link(self, given: str) -> WorkspacePath:
        """As ``path``, without following a link at the end."""
        parent, name = posixpath.split(posixpath.join(ROOT, given).rstrip("/"))
        if name in ("", ".", "..") or parent == "/":
            return self.path(given)
        return self.path(parent) / name

    def absolute(self, path: WorkspacePath) -> str:
        """The absolute path, as commands see it."""
        return posixpath.join(ROOT, *path.parts)

    def stat(self, given: str) -> FileStat:
        """The metadata of what a path leads to."""
        return self.workspace.files.stat(self.path(given))

    def read_bytes(self, given: str) -> bytes:
        """The content of a file.

        Raises:
            PermissionError: If commands may not read it.
            OSError: If it is a pipe, a socket or a device.
        """
        path = self.path(given)
        self._check_mode(path, given, 0o400)
        try:
            return self.workspace.files.read_bytes(path)
        except FilesystemError as error:
            if isinstance(error, OSError):
                raise
            raise OSError(str(error)) from error

    def write_bytes(self, given: str, data: bytes) -> None:
        """Write a file inside of ``change``; missing directories are created.

        Raises:
            PermissionError: If commands may not write to it.
        """
        path = self.path(given)
        self._check_mode(path, given, 0o200)
        self.workspace.files.write_bytes(path, data)

    def _check_mode(self, path: WorkspacePath, given: str, wanted: int) -> None:
        """Refuse what commands, which run as the owner, could not do with a file."""
        mode = self.workspace.mode_of(path)
        if mode is not None and not mode & wanted:
            raise PermissionError(f"{given}: permission denied")


def _to_record(output: CapturedOutput) -> CapturedOutput:
    """What an entry keeps of an output: as much as of the output of a model's command."""
    kept = output.head + output.tail
    if len(kept) <= _RECORDED_BYTES:
        return output
    half = _RECORDED_BYTES // 2
    return CapturedOutput(kept[:half], kept[-half:], output.n_bytes, output.whole, output.n_whole)


def exit_code(result: ExecResult) -> int:
    """The exit code as a shell reports it: 128 and the number of the signal that ended it."""
    return result.exit_code if result.exit_code is not None else 128 + (result.signal or 0)


def exit_code_of_error(error: ProgramError) -> int:
    """The exit code of a shell for a program that is missing or cannot be executed."""
    return 127 if error.is_missing else 126


def text_of(output: CapturedOutput) -> str:
    """The text of an output; a byte that is not UTF-8 is U+FFFD.

    Raises:
        UsageError: If a part in its middle was not kept.
    """
    if output.n_missing:
        raise UsageError(
            f"{output.n_missing:,} of the {output.n_bytes:,} bytes of an output are missing",
            hint=f"Read {output.whole}." if output.whole else "Write the output to a file.",
        )
    return (output.head + output.tail).decode("utf-8", "replace")
