"""The section that lets a model run commands and Python over its files, walled in.

Rule 1: what a command says of itself is its result. A non-zero exit code is no failure of the
call, and what the command did stays, unless the section is told to undo it.
Rule 2: a command that the sandbox had to end (its time, the disk, a call that was cancelled)
fails its call, so that what it did is undone; the model gets what it had written until then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeVar, Unpack

from wink_workspace.errors import SandboxError, UsageError
from wink_workspace.filesystem import parse_path
from wink_workspace.prompt import (
    MarkdownSection,
    ReadBeforeWritePolicy,
    SectionOptions,
    Tool,
    ToolAnnotations,
    ToolContext,
    ToolExample,
    ToolHandler,
    ToolResult,
)
from wink_workspace.sandbox import (
    ExecRequest,
    ExecResult,
    PythonRequest,
    Sandbox,
)
from wink_workspace.sandbox.podman import PodmanConfig

from .commands import CommandOutput, CommandStream, stopped_summary
from .file_results import FileToolLimits
from .file_tools import file_tools
from .vfs import file_guidance

__all__ = ["EvaluatePythonParams", "PodmanSandboxSection", "ShellExecuteParams"]

P = TypeVar("P", "ShellExecuteParams", "EvaluatePythonParams")

_TIMEOUT: Final = (
    "Seconds after which it is ended, with all that it started; see above for the default and "
    "the most."
)


@dataclass(frozen=True, slots=True)
class ShellExecuteParams:
    """Parameters of ``shell_execute``."""

    command: str = field(
        metadata={
            "description": "One or more lines of shell, run in a shell of their own.",
            "min_length": 1,
        }
    )
    cwd: str = field(
        default=".", metadata={"description": "The directory to start in; the root by default."}
    )
    env: Mapping[str, str] = field(
        default_factory=lambda: MappingProxyType({}),
        metadata={"description": "Variables for this command alone."},
    )
    stdin: str = field(default="", metadata={"description": "What the command can read."})
    timeout_s: float | None = field(default=None, metadata={"description": _TIMEOUT, "gt": 0})

    def __post_init__(self) -> None:
        parse_path(self.cwd)


@dataclass(frozen=True, slots=True)
class EvaluatePythonParams:
    """Parameters of ``evaluate_python``."""

    code: str = field(
        metadata={
            "description": "A program. The value of its last line, if that is an expression, is "
            "shown. Nothing of it is left for the next one.",
            "min_length": 1,
        }
    )
    timeout_s: float | None = field(default=None, metadata={"description": _TIMEOUT, "gt": 0})


class PodmanSandboxSection(MarkdownSection[None]):
    """Commands and Python in a container over the workspace's files.

    Bind a workspace's resources to the prompt: its ``Sandbox`` runs the commands. A prompt
    without one raises ``PromptRenderError`` when it is rendered.

    Args:
        config: The image and the limits; the default ones, or the workspace's, when omitted.
        title: The heading.
        files: Whether the section brings the file tools too; not if another one does.
        prefix: Put before the name of every tool and before the default key.
        rollback_on_nonzero_exit: Whether a command that ends otherwise than with 0 fails its
            call, so that what it did is undone.
        limits: How much of an answer of a file tool the model sees at once.
        options: As for ``Section``. ``key`` is ``sandbox`` when omitted, and ``policies``, if
            there are file tools, a ``ReadBeforeWritePolicy``; give ``policies=()`` for none.
    """

    def __init__(
        self,
        config: PodmanConfig | None = None,
        *,
        title: str = "Sandbox",
        files: bool = True,
        prefix: str = "",
        rollback_on_nonzero_exit: bool = False,
        limits: FileToolLimits | None = None,
        **options: Unpack[SectionOptions[None]],
    ) -> None:
        limits = limits or FileToolLimits()
        policies = options.get("policies")
        if policies is None:
            policies = (ReadBeforeWritePolicy(),) if files else ()
        options["policies"] = policies
        options["key"] = options.get("key") or f"{prefix}sandbox"
        options["required_resources"] = (Sandbox, *options.get("required_resources", ()))
        declared = {} if config is None else {PodmanConfig: config}
        options["resources"] = {**declared, **(options.get("resources") or {})}
        known = config or PodmanConfig()
        guidance = _guidance(known, prefix, rolls_back=rollback_on_nonzero_exit)
        tools = _command_tools(known, prefix, rolls_back=rollback_on_nonzero_exit)
        if files:
            words = file_guidance(
                prefix=prefix,
                limits=limits,
                filesystem_limits=None,
                policies=policies,
            )
            guidance = f"{guidance}\n{words}"
            tools = (*file_tools(prefix=prefix, limits=limits), *tools)
        super().__init__(title, guidance, tools=tools, **options)


def _command_tools(
    config: PodmanConfig, prefix: str, *, rolls_back: bool
) -> tuple[Tool[Any, Any], ...]:
    def shell(
        params: ShellExecuteParams, sandbox: Sandbox, timeout_s: float, context: ToolContext
    ) -> ExecResult:
        request = ExecRequest(
            argv=(*sandbox.shell, params.command),
            cwd=params.cwd,
            env=params.env,
            stdin=params.stdin.encode("utf-8", "surrogateescape"),
            timeout_s=timeout_s,
            cancellation=context.cancellation,
            output_bytes=config.output_bytes,
        )
        return sandbox.run(request, observer=lambda _stream, _data: context.beat())

    def python(
        params: EvaluatePythonParams, sandbox: Sandbox, timeout_s: float, context: ToolContext
    ) -> ExecResult:
        request = PythonRequest(
            code=params.code,
            timeout_s=timeout_s,
            cancellation=context.cancellation,
            output_bytes=config.output_bytes,
        )
        return sandbox.evaluate(request, observer=lambda _stream, _data: context.beat())

    annotations = ToolAnnotations(
        read_only=False,
        destructive=True,
        idempotent=False,
        open_world=config.network != "none",
    )
    return (
        Tool[ShellExecuteParams, CommandOutput](
            name=f"{prefix}shell_execute",
            description="Run a command in the sandbox, over the files of the workspace. Gives its "
            "exit code and what it wrote.",
            handler=_in_sandbox(shell, config, rolls_back=rolls_back),
            annotations=annotations,
            examples=(_SHELL, _SHELL_FAILS),
        ),
        Tool[EvaluatePythonParams, CommandOutput](
            name=f"{prefix}evaluate_python",
            description="Run Python code in the sandbox, in an interpreter of its own. Gives what "
            "it printed, or its traceback.",
            handler=_in_sandbox(python, config, rolls_back=False),
            annotations=annotations,
            examples=(_PYTHON,),
        ),
    )


def _in_sandbox(
    act: Callable[[P, Sandbox, float, ToolContext], ExecResult],
    config: PodmanConfig,
    *,
    rolls_back: bool,
) -> ToolHandler[P, CommandOutput]:
    """A handler that gives *act* the sandbox, and the model how it went."""

    def handle(params: P, /, *, context: ToolContext) -> ToolResult[CommandOutput]:
        sandbox = context.resources.get(Sandbox)
        timeout_s = min(params.timeout_s or config.timeout_s, config.longest_timeout_s)
        try:
            sandbox.start(context.cancellation)  # may take seconds of what the run still has
            if context.deadline is not None:
                context.deadline.check()
                timeout_s = min(timeout_s, context.deadline.remaining_s())
            result = act(params, sandbox, timeout_s, context)
        except (SandboxError, UsageError) as error:
            return ToolResult.error(str(error))
        return _answer(result, timeout_s, rolls_back=rolls_back)

    return handle


def _answer(result: ExecResult, timeout_s: float, *, rolls_back: bool) -> ToolResult[CommandOutput]:
    value = CommandOutput.of(result)
    stopped = stopped_summary(result, timeout_s)
    if stopped is not None:
        return ToolResult(stopped, value, success=False)
    if rolls_back and not value.succeeded:
        return ToolResult(f"{value.summary()}. What it changed was undone.", value, success=False)
    return ToolResult.ok(value, value.summary())


def _guidance(config: PodmanConfig, prefix: str, *, rolls_back: bool) -> str:
    return _GUIDANCE.format(
        p=prefix,
        network="There is no network." if config.network == "none" else "There is a network.",
        nonzero=_UNDOES if rolls_back else _KEEPS,
        timeout_s=config.timeout_s,
        longest_timeout_s=config.longest_timeout_s,
        output_kib=config.output_bytes // 1_024,
        memory_mib=config.memory_bytes // 1_048_576,
        cpus=config.cpus,
        n_processes=config.n_processes,
        tmp_mib=config.tmp_bytes // 1_048_576,
        file_mib=config.file_bytes // 1_048_576,
        workspace_mib=config.workspace_bytes // 1_048_576,
    )


_KEEPS: Final = (
    "A command that ends with another code than 0 is a result like any other: what it did stays."
)
_UNDOES: Final = (
    "A command that ends with another code than 0 has changed nothing: what it did is undone."
)

_GUIDANCE: Final = """\
Commands run in a container of their own, in the same files that the file tools see. The root
of the workspace is `/workspace`; the rest of the system can only be read.

- `{p}shell_execute` runs a line of shell, or several. Each call is a new shell: directories,
  variables and functions of one are gone in the next. Nobody can answer questions, so use
  options such as `--yes`.
- `{p}evaluate_python` runs a Python program in a new interpreter; print what you want to see.
  An error comes back as a traceback.

{network} You are an ordinary user without rights. What a command leaves running is
ended with it, and `/tmp` is emptied after each command: only the workspace lasts.
{nonzero}
One that is ended by a limit has changed nothing.

Limits: {timeout_s:g} seconds a command unless `timeout_s` says otherwise, {longest_timeout_s:g} \
at most; {output_kib:,} KiB
of each stream are shown, and a line says where the rest is; {memory_mib:,} MiB of memory, \
{cpus:g} processors,
{n_processes:,} processes, {tmp_mib:,} MiB in `/tmp`, {file_mib:,} MiB a file, {workspace_mib:,} \
MiB in all.
"""

# Examples, in a workspace with two files: src/app.py of three lines and an empty README.md

_SHELL = ToolExample(
    description="Count the lines of the Python files",
    input=ShellExecuteParams("wc -l src/*.py"),
    output=CommandOutput(0, stdout=CommandStream("3 src/app.py\n")),
)
_SHELL_FAILS = ToolExample(
    description="A command that finds nothing ends with 1, which is an answer too",
    input=ShellExecuteParams("grep -n goodbye app.py", cwd="src", timeout_s=5),
    output=CommandOutput(1),
)
_PYTHON = ToolExample(
    description="Compute something about a file",
    input=EvaluatePythonParams(
        "from pathlib import Path\nlen(Path('src/app.py').read_text().splitlines())"
    ),
    output=CommandOutput(0, stdout=CommandStream("3\n")),
)
