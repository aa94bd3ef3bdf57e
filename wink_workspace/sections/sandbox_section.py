"""The section that lets a model run commands and Python in the workspace's sandbox.

Rule 1: a non-zero exit code does not fail the call. The command's changes are kept, unless the
section is configured to undo them.
Rule 2: a command that the sandbox had to end (time limit, full disk, cancelled call) fails its
call, so that its changes are undone. The model gets its output so far.
Rule 3: the limits here apply to a model. A program's own calls of a sandbox have only the sandbox's
limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeVar, Unpack

from wink_workspace.errors import SandboxError, UsageError
from wink_workspace.filesystem import parse_path
from wink_workspace.prompt import (
    MarkdownSection,
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
    SandboxConfig,
    ServiceConfig,
)

from .command_results import CommandOutput, CommandStream, stopped_summary
from .service_section import background_name, services_of

P = TypeVar("P", "ShellExecuteParams", "EvaluatePythonParams")
S = TypeVar("S", bound="ShellExecuteParams")

_TIMEOUT: Final = "Time limit in seconds."


@dataclass(frozen=True, slots=True)
class ShellExecuteParams:
    """Parameters of ``shell_execute``."""

    path_params: ClassVar[tuple[str, ...]] = ("cwd",)

    command: str = field(
        metadata={
            "description": "One or more lines of shell, run in a new shell.",
            "min_length": 1,
        }
    )
    cwd: str = field(default=".", metadata={"description": "The working directory."})
    env: Mapping[str, str] = field(
        default_factory=lambda: MappingProxyType({}),
        metadata={"description": "Environment variables for this command only."},
    )
    stdin: str = field(default="", metadata={"description": "The standard input of the command."})
    timeout_s: float | None = field(default=None, metadata={"description": _TIMEOUT, "gt": 0})

    def __post_init__(self) -> None:
        parse_path(self.cwd)


@dataclass(frozen=True, slots=True)
class ServiceShellParams(ShellExecuteParams):
    """Parameters of ``shell_execute`` in a sandbox with terminals and services."""

    tty: bool = field(
        default=False,
        metadata={
            "description": "Run it in a terminal of 80 columns without input; all output is in "
            "stdout."
        },
    )
    background: bool = field(
        default=False,
        metadata={
            "description": "Do not wait for it: it runs as a service named background-1 and so on, "
            "which can only read the workspace."
        },
    )


@dataclass(frozen=True, slots=True)
class EvaluatePythonParams:
    """Parameters of ``evaluate_python``."""

    code: str = field(
        metadata={
            "description": "A program. The value of its last line is shown if it is an "
            "expression. Its variables are not kept for the next call.",
            "min_length": 1,
        }
    )
    timeout_s: float | None = field(default=None, metadata={"description": _TIMEOUT, "gt": 0})


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLimits:
    """The limits of a model's commands.

    Attributes:
        timeout_s: Time limit of a command for which the model sets none.
        longest_timeout_s: The longest time limit that the model can set.
        output_bytes: How much of each stream a result contains.
        stdin_bytes: The longest standard input.
        request_bytes: The longest command with its variables, or code.
    """

    timeout_s: float = 30.0
    longest_timeout_s: float = 600.0
    output_bytes: int = 65_536
    stdin_bytes: int = 16_777_216
    request_bytes: int = 1_048_576


class SandboxSection(MarkdownSection[None]):
    """Commands with the workspace's files, in the sandbox that *config* configures.

    Bind a workspace's resources to the prompt: its ``Sandbox`` runs the commands. A prompt
    without one raises ``PromptRenderError`` when it is rendered.

    Args:
        config: The configuration of the sandbox; by default the workspace's.
        guidance: What a model must know about it, as a Markdown template.
        tools: The tools, from ``command_tools``, and perhaps others.
        title: The heading.
        options: As for ``Section``. ``key`` is ``sandbox`` by default.
    """

    def __init__(
        self,
        config: SandboxConfig | None,
        guidance: str,
        *,
        tools: tuple[Tool[Any, Any], ...],
        title: str = "Sandbox",
        **options: Unpack[SectionOptions[None]],
    ) -> None:
        options["key"] = options.get("key") or "sandbox"
        options["required_resources"] = (Sandbox, *options.get("required_resources", ()))
        declared = {} if config is None else {SandboxConfig: config}
        options["resources"] = {**declared, **(options.get("resources") or {})}
        super().__init__(title, guidance, tools=tools, **options)


def command_tools(
    limits: CommandLimits | None = None,
    *,
    prefix: str = "",
    with_python: bool = True,
    with_services: bool = False,
    open_world: bool = False,
    rollback_on_nonzero_exit: bool = False,
) -> tuple[Tool[Any, Any], ...]:
    """``shell_execute``, and ``evaluate_python`` for a sandbox that can run Python.

    Args:
        limits: The limits of a model's commands.
        prefix: A prefix of the name of every tool.
        with_python: Whether the sandbox implements ``evaluate``.
        with_services: Whether the sandbox has terminals and services; ``service_tools`` are its
            other tools.
        open_world: Whether commands can use a network.
        rollback_on_nonzero_exit: Whether a command with another exit code than 0 fails its call,
            so that its changes are undone.
    """
    limits = limits or CommandLimits()

    def shell(
        params: ShellExecuteParams, sandbox: Sandbox, timeout_s: float, context: ToolContext
    ) -> ExecResult:
        variables = (f"{name}={value}" for name, value in params.env.items())
        stdin = params.stdin.encode("utf-8", "surrogateescape")
        _check_request(limits, params.command, *variables)
        if len(stdin) > limits.stdin_bytes:
            raise UsageError(
                f"the input is longer than the {limits.stdin_bytes:,} bytes that are allowed",
                hint="Write it to a file and let the command read that.",
            )
        request = ExecRequest(
            argv=(*sandbox.shell, params.command),
            cwd=params.cwd,
            env=params.env,
            stdin=stdin,
            timeout_s=timeout_s,
            cancellation=context.cancellation,
            output_bytes=limits.output_bytes,
            terminal=isinstance(params, ServiceShellParams) and params.tty,
        )
        return sandbox.run(request, observer=context.output)

    def python(
        params: EvaluatePythonParams, sandbox: Sandbox, timeout_s: float, context: ToolContext
    ) -> ExecResult:
        _check_request(limits, params.code)
        request = PythonRequest(
            code=params.code,
            timeout_s=timeout_s,
            cancellation=context.cancellation,
            output_bytes=limits.output_bytes,
        )
        return sandbox.evaluate(request, observer=context.output)

    annotations = ToolAnnotations(
        read_only=False, destructive=True, idempotent=False, open_world=open_world
    )
    in_foreground = _in_sandbox(shell, limits, rolls_back=rollback_on_nonzero_exit)

    def in_either(
        params: ServiceShellParams, /, *, context: ToolContext
    ) -> ToolResult[CommandOutput]:
        if params.background:
            return _in_background(params, limits, context)
        return in_foreground(params, context=context)

    name = f"{prefix}shell_execute"
    description = (
        "Run a shell command in the sandbox, with the files of the workspace. Returns its exit code"
        " and output."
    )
    shell_execute: Tool[Any, CommandOutput] = (
        Tool[ServiceShellParams, CommandOutput](
            name=name,
            description=description,
            handler=in_either,
            annotations=annotations,
            examples=_shell_examples(ServiceShellParams),
        )
        if with_services
        else Tool[ShellExecuteParams, CommandOutput](
            name=name,
            description=description,
            handler=in_foreground,
            annotations=annotations,
            examples=_shell_examples(ShellExecuteParams),
        )
    )
    if not with_python:
        return (shell_execute,)
    evaluate_python = Tool[EvaluatePythonParams, CommandOutput](
        name=f"{prefix}evaluate_python",
        description="Run Python code in the sandbox, in a new interpreter. Returns what it "
        "printed, or its traceback.",
        handler=_in_sandbox(python, limits, rolls_back=False),
        annotations=annotations,
        examples=(_PYTHON,),
    )
    return (shell_execute, evaluate_python)


def _in_background(
    params: ServiceShellParams, limits: CommandLimits, context: ToolContext
) -> ToolResult[CommandOutput]:
    """Start the command as a service."""
    try:
        if params.tty or params.stdin or params.timeout_s is not None:
            raise UsageError(
                "a command in the background has no terminal, input or time limit",
                hint="Leave out tty, stdin and timeout_s.",
            )
        variables = (f"{name}={value}" for name, value in params.env.items())
        _check_request(limits, params.command, *variables)
        services = services_of(context)
        config = ServiceConfig(
            name=background_name(services),
            command=params.command,
            cwd=params.cwd,
            env=params.env,
        )
        services.start(config, cancellation=context.cancellation)
    except (SandboxError, UsageError) as error:
        return ToolResult.error(str(error))
    output = CommandOutput(exit_code=None, service=config.name)
    return ToolResult.ok(output, output.summary())


def _check_request(limits: CommandLimits, *parts: str) -> None:
    n_bytes = sum(len(part.encode("utf-8", "surrogatepass")) for part in parts)
    if n_bytes > limits.request_bytes:
        raise UsageError(
            f"the command has {n_bytes:,} bytes, {limits.request_bytes:,} are allowed",
            hint="Write it to a file and run the file.",
        )


def _in_sandbox(
    run: Callable[[P, Sandbox, float, ToolContext], ExecResult],
    limits: CommandLimits,
    *,
    rolls_back: bool,
) -> ToolHandler[P, CommandOutput]:
    """A handler that calls *run* with the prompt's sandbox and returns the result."""

    def handle(params: P, /, *, context: ToolContext) -> ToolResult[CommandOutput]:
        sandbox = context.resources.get(Sandbox)
        timeout_s = min(params.timeout_s or limits.timeout_s, limits.longest_timeout_s)
        try:
            sandbox.start(context.cancellation)  # may take seconds of the remaining time
            if context.deadline is not None:
                context.deadline.check()
                timeout_s = min(timeout_s, context.deadline.remaining_s())
            result = run(params, sandbox, timeout_s, context)
        except (SandboxError, UsageError) as error:
            return ToolResult.error(str(error))
        return _answer(result, timeout_s, rolls_back=rolls_back)

    return handle


def _answer(result: ExecResult, timeout_s: float, *, rolls_back: bool) -> ToolResult[CommandOutput]:
    value = CommandOutput.of(result)
    stopped = stopped_summary(result, timeout_s)
    if stopped is None and rolls_back and not value.succeeded:
        stopped = f"{value.summary()}. Its changes were undone."
    return ToolResult(
        stopped or value.summary(),
        value,
        success=stopped is None,
        outside_effects=value.outside_effects,
    )


# Examples, in a workspace with two files: src/app.py of three lines and an empty README.md


def _shell_examples(params: type[S]) -> tuple[ToolExample[S, CommandOutput], ...]:
    return (
        ToolExample(
            description="Count the lines of the Python files",
            input=params("wc -l src/*.py"),
            output=CommandOutput(0, stdout=CommandStream("3 src/app.py\n")),
        ),
        ToolExample(
            description="A search that finds nothing has exit code 1, which is a normal result",
            input=params("grep -n goodbye app.py", cwd="src", timeout_s=5),
            output=CommandOutput(1),
        ),
    )


_PYTHON = ToolExample(
    description="Compute something about a file",
    input=EvaluatePythonParams(
        "from pathlib import Path\nlen(Path('src/app.py').read_text().splitlines())"
    ),
    output=CommandOutput(0, stdout=CommandStream("3\n")),
)
