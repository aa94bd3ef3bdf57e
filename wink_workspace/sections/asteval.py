"""The section that lets a model evaluate isolated Python with the workspace's files.

Its configuration chooses asteval or Python itself.

A call declares the files that its code reads and writes, so policies can check them before it runs.
Writes are part of the call: an evaluation that does not finish fails the call, and the files are
restored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Final, Unpack

from wink_workspace.environment import Environment
from wink_workspace.errors import FilesystemError, SandboxError, UsageError
from wink_workspace.filesystem import Filesystem, WorkspacePath, parse_path
from wink_workspace.prompt import (
    FileUse,
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
from wink_workspace.resources import Binding
from wink_workspace.sandbox import Finding, SandboxBackend
from wink_workspace.sandbox.asteval import (
    AstevalConfig,
    AstevalSandbox,
    EndReason,
    Evaluation,
    EvaluationRequest,
    PythonConfig,
)
from wink_workspace.serde import JsonValue

_MAX_PATHS: Final = 1_000


@dataclass(frozen=True, slots=True)
class AstevalParams:
    """Parameters of ``evaluate_python``."""

    path_params: ClassVar[tuple[str, ...]] = ("reads", "writes")

    code: str = field(
        metadata={
            "description": "Python. The value of the last line is returned if it is an expression."
        }
    )
    globals: Mapping[str, JsonValue] = field(
        default_factory=dict[str, JsonValue],
        metadata={"description": "Global names for the code, with JSON values."},
    )
    reads: tuple[str, ...] = field(
        default=(),
        metadata={
            "description": "Files that the code reads; a directory includes everything below it.",
            "max_length": _MAX_PATHS,
        },
    )
    writes: tuple[str, ...] = field(
        default=(),
        metadata={
            "description": "Files that the code creates or replaces, each by its own path. If the "
            "code reads a file before it replaces it, declare the file in reads, too.",
            "max_length": _MAX_PATHS,
        },
    )

    def __post_init__(self) -> None:
        self.file_use()

    def file_use(self) -> FileUse:
        """The declared files.

        A file that is declared in both lists counts only as a read. The sandbox lets the code
        replace it only after the code has read it in the same call.
        """
        reads, writes = self.paths()
        return FileUse(reads=reads, writes=tuple(path for path in writes if path not in reads))

    def paths(self) -> tuple[tuple[WorkspacePath, ...], tuple[WorkspacePath, ...]]:
        """The files to read and those to write, parsed."""
        return tuple(map(parse_path, self.reads)), tuple(map(parse_path, self.writes))


@dataclass(frozen=True, slots=True, kw_only=True)
class AstevalResult:
    """The result of an evaluation.

    Attributes:
        value: The ``repr`` of the last expression's value; ``None`` if there was none.
        value_json: The value as JSON, if possible; tuples are lists.
        stdout: Its standard output.
        stderr: Its standard error.
        globals: The global names at the end, each with its value's ``repr``.
        reads: Files that it has read.
        writes: Files that it has written.
        error: Why it failed; empty if it did not.
        duration_s: How long it took.
        layers: The isolation layers that were active.
        missing_layers: Optional isolation layers that this machine does not support.
    """

    value: str | None = None
    value_json: JsonValue = None
    stdout: str = ""
    stderr: str = ""
    globals: Mapping[str, str] = field(default_factory=dict[str, str])
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    error: str = ""
    duration_s: float = field(default=0.0, compare=False)
    layers: tuple[str, ...] = field(default=(), compare=False)
    missing_layers: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, evaluation: Evaluation) -> AstevalResult:
        """The result of *evaluation*, as programs and the record of the call get it."""
        value, isolation = evaluation.value, evaluation.isolation
        return cls(
            value=None if value is None else str(value),
            value_json=None if value is None else value.json,
            stdout=evaluation.stdout,
            stderr=evaluation.stderr,
            globals={name: str(shown) for name, shown in evaluation.names.items()},
            reads=tuple(map(str, evaluation.reads)),
            writes=tuple(map(str, evaluation.writes)),
            error=evaluation.detail if evaluation.error is None else str(evaluation.error),
            duration_s=evaluation.usage.duration_s,
            layers=tuple(layer.name for layer in isolation.layers if layer.is_active),
            missing_layers=tuple(layer.name for layer in isolation.missing),
        )

    def render(self) -> str:
        """The value, the output, the global names, and the files that were used."""
        parts = [
            *([f"value: {self.value}"] if self.value is not None else []),
            *([f"printed:{_block(self.stdout)}"] if self.stdout else []),
            *([f"printed to stderr:{_block(self.stderr)}"] if self.stderr else []),
            *([f"{name} = {text}" for name, text in self.globals.items()]),
            *([f"read {', '.join(self.reads)}"] if self.reads else []),
            *([f"wrote {', '.join(self.writes)}"] if self.writes else []),
        ]
        return "\n".join(parts) or "no value, and nothing was printed"


def _block(text: str) -> str:
    """*text* after a heading: one line beside it, several lines below it."""
    shown = text.rstrip()
    return f"\n{shown}" if "\n" in shown else f" {shown}"


class AstevalSection(MarkdownSection[None]):
    """Python for calculations and for work on many files, without a container.

    Args:
        sandbox: Evaluates the code; the caller closes it. By default one is created at the first
            use and closed with the prompt's resources.
        config: Limits and required layers of a sandbox that is created here. With a
            ``PythonConfig`` Python itself evaluates the code, in the same isolation.
        filesystem: The files, as for ``VfsToolsSection``; by default those of the prompt.
        title: The heading.
        prefix: A prefix of the tool's name and of the default key.
        options: As for ``Section``. ``key`` is ``python`` by default, and ``policies`` a
            ``ReadBeforeWritePolicy``; use ``policies=()`` for none.

    Raises:
        UsageError: If both *sandbox* and *config* are given.
    """

    def __init__(
        self,
        sandbox: AstevalSandbox | None = None,
        *,
        config: AstevalConfig | None = None,
        filesystem: Filesystem | Binding[Filesystem] | None = None,
        title: str = "Python",
        prefix: str = "",
        **options: Unpack[SectionOptions[None]],
    ) -> None:
        if sandbox is not None and config is not None:
            raise UsageError(
                "a sandbox already has a configuration", hint="Pass either sandbox or config."
            )
        limits = (config or AstevalConfig()) if sandbox is None else sandbox.config
        policies = options.get("policies")
        options["policies"] = (ReadBeforeWritePolicy(),) if policies is None else policies
        options["key"] = options.get("key") or f"{prefix}python"
        options["resources"] = {
            AstevalSandbox: Binding(AstevalSandbox, lambda _: AstevalSandbox(limits))
            if sandbox is None
            else sandbox,
            **({} if filesystem is None else {Filesystem: filesystem}),
            **(options.get("resources") or {}),
        }
        super().__init__(
            title,
            _GUIDANCE.format(
                p=prefix,
                language=_LANGUAGE[limits.backend],
                timeout_s=limits.timeout_s,
                memory_mib=limits.memory_bytes // 1_048_576,
                output_bytes=limits.output_bytes,
                code_chars=limits.code_chars,
                file_mib=limits.file_bytes / 1_048_576,
            ),
            tools=(_tool(prefix, limits),),
            **options,
        )


def _tool(prefix: str, config: AstevalConfig) -> Tool[AstevalParams, AstevalResult]:
    return Tool[AstevalParams, AstevalResult](
        name=f"{prefix}evaluate_python",
        description="Evaluate Python for calculations and work on files; imports only from "
        f"{_IMPORTS[config.backend]}. Declare the files that it reads and writes.",
        handler=_HANDLER,
        annotations=ToolAnnotations(
            read_only=False, destructive=True, idempotent=False, open_world=False
        ),
        examples=(_CALCULATE, _ANALYSE, _MAKE),
    )


def _evaluate(params: AstevalParams, *, context: ToolContext) -> ToolResult[AstevalResult]:
    reads, writes = params.paths()
    request = EvaluationRequest(code=params.code, names=params.globals, reads=reads, writes=writes)
    sandbox = context.resources.get(AstevalSandbox)
    context.beat()
    try:
        evaluation = sandbox.evaluate(
            request,
            context.filesystem,
            deadline=context.deadline,
            cancellation=context.cancellation,
        )
    except (SandboxError, UsageError, FilesystemError) as error:
        return ToolResult.error(str(error))
    context.beat()
    if evaluation.outcome is EndReason.VALUE:
        return ToolResult.ok(AstevalResult.of(evaluation))
    if context.deadline is not None:
        context.deadline.check()
    return ToolResult(
        _failure(evaluation),
        AstevalResult.of(evaluation),
        success=False,
        exclude_value_from_context=True,
    )


def _failure(evaluation: Evaluation) -> str:
    """The error, the output before it, and advice."""
    what = evaluation.detail if evaluation.error is None else str(evaluation.error)
    printed = [
        f"printed before the error{stream}:\n{text.rstrip()}"
        for stream, text in (("", evaluation.stdout), (" (stderr)", evaluation.stderr))
        if text
    ]
    changed = "The files it wrote were restored." if evaluation.writes else "No file was changed."
    advice = " ".join(part for part in (changed, _ADVICE.get(evaluation.outcome, "")) if part)
    return "\n".join([f"{evaluation.outcome.value}: {what}", *printed, advice])


_HANDLER: Final[ToolHandler[AstevalParams, AstevalResult]] = _evaluate

_ADVICE: Final = {
    EndReason.DEADLINE: "Do less in one call, or use a faster algorithm.",
    EndReason.MEMORY: "Work on smaller parts of the data, and keep less of it in memory.",
    EndReason.OUTPUT: "Print less: a summary, or the first lines. Write the rest to a file.",
    EndReason.KILLED: "Try another way, such as a loop instead of a deep recursion.",
}

_IMPORTS: Final = {
    "asteval": "a part of the standard library",
    "python": "the standard library, and numpy if it is installed",
}
_LANGUAGE: Final = {
    "asteval": """\
- Supported: `if`, `for`, `while`, `def`, `lambda`, comprehensions, `try`, `with` and f-strings.
  Not supported: classes, `match` and `async`.
- You can import the common names of `math`, `statistics`, `json`, `re`, `datetime`, `collections`,
  `itertools`, `functools`, `random`, `csv`, `decimal`, `fractions`, `string`, `textwrap`, `hashlib`
  and a few other modules. There are no other packages, no network and no processes.
- Files: `read_text(path)`, `write_text(path, text)` and `open(path, mode)`, with paths relative""",
    "python": """\
- The whole language of Python, and most of its standard library; numpy if it is installed. There
  are no other packages, no network, no threads and no processes. `asyncio` has tasks and timers.
- Files: `open`, `pathlib`, `glob`, `read_text(path)`, `write_text(path, text)`, paths relative""",
}

_GUIDANCE: Final = """\
`{p}evaluate_python` evaluates Python: arithmetic, statistics, text, and work on files that is
easier in code than with single edits. Each call starts a new interpreter; pass values in
`globals`, or keep them in a file.

- The result has the value of the last line, if it is an expression, and the printed text.
{language}
  to the workspace's root. Every file must be declared in `reads` or `writes`. To change one,
  declare it in both, read it, and write it in the same call.

A call that fails changes nothing. Limits: {timeout_s:g} seconds, {memory_mib:,} MiB of memory,
{output_bytes:,} bytes printed, {code_chars:,} characters of code, {file_mib:g} MiB per file read.
"""

_CALCULATE: Final = ToolExample(
    description="Calculate with values from globals",
    input=AstevalParams(
        "import statistics\nround(statistics.mean(prices) * 1.19, 2)",
        globals={"prices": [9.5, 12.0, 7.25]},
    ),
    output=AstevalResult(value="11.4", value_json=11.4, globals={"prices": "[9.5, 12.0, 7.25]"}),
)
_ANALYSE: Final = ToolExample(
    description="Count something in a file",
    input=AstevalParams(
        "text = read_text('src/app.py')\nprint(text.count('print'), 'times')\n"
        "len(text.splitlines())",
        reads=("src/app.py",),
    ),
    output=AstevalResult(
        value="3",
        value_json=3,
        stdout="1 times\n",
        globals={"text": "\"def main():\\n    print('hello')\\n    return 0\\n\""},
        reads=("src/app.py",),
    ),
)
_MAKE: Final = ToolExample(
    description="Write computed values to a file",
    input=AstevalParams(
        "import json\nwrite_text('squares.json', json.dumps([n * n for n in range(5)]))",
        writes=("squares.json",),
    ),
    output=AstevalResult(value="16", value_json=16, writes=("squares.json",)),
)


def _examine(config: AstevalConfig, environment: Environment) -> tuple[Finding, ...]:
    from wink_workspace.sandbox.asteval.python_diagnosis import examine

    del environment  # the server does not get it
    return examine(config)


ASTEVAL: Final = SandboxBackend(
    name="asteval",
    config=AstevalConfig,
    section=lambda config: AstevalSection(config=config),
    examine=partial(_examine, AstevalConfig()),
)
"""The backend for the registry. It runs no commands, so it creates no ``Sandbox``."""

PYTHON: Final = SandboxBackend(
    name="python",
    config=PythonConfig,
    section=lambda config: AstevalSection(config=config),
    examine=partial(_examine, PythonConfig()),
)
"""The same with Python itself as the interpreter."""
