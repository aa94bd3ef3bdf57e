"""One command in a workspace's sandbox, as a call of its own: it fully happens or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from wink_workspace.errors import ProgramError, UsageError, WinkError
from wink_workspace.prompt import MarkdownSection, Prompt, Tool, ToolContext, ToolResult
from wink_workspace.runtime import ToolCall
from wink_workspace.sandbox import (
    ExecRequest,
    ExecResult,
    OutputObserver,
    Sandbox,
    SandboxConfig,
)
from wink_workspace.sections.commands import CommandOutput, stopped_summary
from wink_workspace.workspace import Workspace

__all__ = ["EXIT_STOPPED", "Execution", "exit_code_of"]

EXIT_STOPPED = 124  # as of timeout(1)
_EXIT_NOT_RUN, _EXIT_NOT_FOUND = 126, 127  # as of a shell
_TIMEOUT_S = 30.0
_EXIT_SIGNAL = 128  # as of a shell: this and the signal's number


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Parameters of the call: a program and its arguments."""

    argv: tuple[str, ...] = field(metadata={"description": "The program and its arguments."})


class Execution:
    """A command that is to run over a workspace.

    Args:
        argv: The program and its arguments.
        config: The sandbox and its limits.
        stdin: What it can read.
        timeout_s: When it is ended; 30 when left out.
        rollback: Whether what it did is undone if it ends with another code than 0.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        config: SandboxConfig,
        stdin: bytes = b"",
        timeout_s: float | None = None,
        rollback: bool = False,
    ) -> None:
        self._argv = tuple(argv)
        self._config = config
        self._stdin = stdin
        self._timeout_s = timeout_s or _TIMEOUT_S
        self._rollback = rollback
        self._observer: OutputObserver | None = None
        self._result: ExecResult | None = None
        self._error: WinkError | None = None

    def run(self, place: Workspace, observer: OutputObserver) -> tuple[int, str]:
        """Run it to its end; the exit code, and in words why it was undone, if it was.

        Raises:
            UsageError: If *place* is in place.
            WinkError: If it could not be run at all; nothing has changed.
        """
        resources = place.resources
        if Sandbox not in resources:
            raise UsageError(
                f"no commands run in place, in {place.info.source}",
                hint=f"Fork {place.info.id}: the files of a fork are a copy.",
            )
        self._observer = observer
        tool = Tool[CommandLine, CommandOutput](
            name="exec", description="Run a command in the sandbox.", handler=self._handle
        )
        section = MarkdownSection[None](title="Commands", template="`exec`.", tools=[tool])
        prompt = Prompt[None](ns="wink-workspace", key="exec", sections=[section])
        prompt.bind(resources={SandboxConfig: self._config})
        call_id = f"exec-{place.head.number + 1}"
        outcome = place.execute(prompt, ToolCall.of("exec", {"argv": list(self._argv)}, id=call_id))
        if self._error is not None:
            raise self._error
        if self._result is None:  # a policy or the deadline refused it
            raise WinkError(outcome.result.message)
        return _exit_code(self._result), "" if outcome.result.success else outcome.result.message

    def _handle(self, params: CommandLine, *, context: ToolContext) -> ToolResult[CommandOutput]:
        request = ExecRequest(
            argv=params.argv,
            stdin=self._stdin,
            timeout_s=self._timeout_s,
        )
        try:
            result = context.resources.get(Sandbox).run(request, observer=self._observer)
        except WinkError as error:
            self._error = error
            return ToolResult.error(str(error))
        self._result = result
        output = CommandOutput.of(result)
        stopped = stopped_summary(result, self._timeout_s)
        if stopped is not None:
            return ToolResult(stopped, output, success=False)
        if self._rollback and not output.succeeded:
            return ToolResult(
                f"{output.summary()}. What it changed was undone.", output, success=False
            )
        return ToolResult.ok(output, output.summary())


def exit_code_of(error: ProgramError) -> int:
    """What a shell ends with for a program that it cannot run."""
    return _EXIT_NOT_FOUND if error.is_missing else _EXIT_NOT_RUN


def _exit_code(result: ExecResult) -> int:
    if result.timed_out or result.stopped:
        return EXIT_STOPPED
    if result.signal is not None:
        return _EXIT_SIGNAL + result.signal
    return result.exit_code or 0
