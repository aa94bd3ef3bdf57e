"""The commands ``bisect`` and ``blame``: which entry broke a command, and which wrote a line.

Neither changes the workspace, except that ``bisect`` commits edits made outside of calls first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from wink_workspace.cli.sandbox.project import for_workspace
from wink_workspace.cli.sandbox.sandbox_options import ImageOption, RunnerOption, running_config
from wink_workspace.cli.screen.command_context import (
    CommandContext,
    JsonOption,
    WorkspaceArgument,
    entry_fields,
    print_json,
)
from wink_workspace.cli.screen.display import printable
from wink_workspace.counts import counted
from wink_workspace.sandbox import ExecRequest, ExecResult, SandboxConfig

if TYPE_CHECKING:
    from wink_workspace.ledger import LogEntry
    from wink_workspace.workspace import Bisection, BlamedLine, Verdict, Workspace


_TIMEOUT_S: Final = 300.0
_OUTPUT_BYTES: Final = 4_096
_EXIT_SKIPPED: Final = 125  # as in `git bisect run`
_MAX_WRITER_CHARS: Final = 28


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectOptions:
    """The options of ``bisect``."""

    workspace: WorkspaceArgument
    command: Annotated[list[str], typer.Argument(help="After --, the program and its arguments.")]
    good: Annotated[
        str | None,
        typer.Option("--good", help="An entry at which the command is known to succeed."),
    ] = None
    timeout_s: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=0.001,
            help="Seconds until a test is ended, which then failed; 300 by default.",
        ),
    ] = None
    image: ImageOption = None
    sandbox: RunnerOption = None
    json: JsonOption = False


def bisect(context: CommandContext, options: BisectOptions) -> None:
    """Find the entry that broke a command, in a binary search over the history.

    The command runs in a sandbox, in a fork for each test that is deleted afterwards. As in git,
    exit code 0 means that it works, 125 that this entry cannot be tested, any other that it fails.
    """
    from wink_workspace.project import Settings
    from wink_workspace.sections.command_results import CommandOutput
    from wink_workspace.workspace import bisect as search

    given = Settings(sandbox=options.sandbox, base=options.image)
    context = for_workspace(context, options.workspace, given, asks=not options.json)
    config = running_config(context, options.sandbox, image=options.image)
    tests: list[dict[str, object]] = []
    outputs: dict[int, str] = {}
    last, output = "", ""

    def test(fork: Workspace) -> Verdict:
        nonlocal last, output
        with context.spinner(f"testing entry {fork.head.number}"):
            result = _run(fork, config, options)
        verdict, last = _verdict(result)
        output = CommandOutput.of(result).render()
        return verdict

    def show(entry: LogEntry, verdict: Verdict) -> None:
        outputs[entry.number] = output
        tests.append({"number": entry.number, "verdict": verdict.value, "detail": last})
        if not options.json:
            line = f"entry {entry.number} {verdict} ({last}): {printable(entry.subject)}"
            context.err.print(line, markup=False, style="dim")

    with context.open(options.workspace) as workspace:
        found = search(workspace, test, good=options.good, on_verdict=show)
    if options.json:
        print_json(
            {
                "suspects": [entry_fields(entry) for entry in found.suspects],
                "last_passed": found.last_passed and found.last_passed.number,
                "tests": tests,
                "output": outputs.get(found.suspects[0].number, ""),
            }
        )
        return
    if failing := outputs.get(found.suspects[0].number, "").strip():
        context.out.print(printable(failing), markup=False, style="dim")
    _print_result(context, options.workspace, found)


def _run(fork: Workspace, config: SandboxConfig, options: BisectOptions) -> ExecResult:
    request = ExecRequest(
        argv=tuple(options.command),
        timeout_s=options.timeout_s or _TIMEOUT_S,
        output_bytes=_OUTPUT_BYTES,
    )
    results: list[ExecResult] = []
    with fork.call("bisect", params={"argv": request.argv}):
        results.append(fork.sandbox(config).run(request))
    return results[0]


def _verdict(result: ExecResult) -> tuple[Verdict, str]:
    """The verdict, and what it follows from."""
    from wink_workspace.workspace import Verdict

    if result.timed_out or result.stopped:
        return Verdict.FAILED, "timed out" if result.timed_out else f"stopped: {result.stopped}"
    if result.signal is not None:
        return Verdict.FAILED, f"signal {result.signal}"
    detail = f"exit code {result.exit_code}"
    if result.exit_code == _EXIT_SKIPPED:
        return Verdict.SKIPPED, detail
    return Verdict.FAILED if result.exit_code else Verdict.PASSED, detail


def _print_result(context: CommandContext, workspace: str, found: Bisection) -> None:
    out = context.out
    if len(found.suspects) == 1:
        (entry,) = found.suspects
        out.print(f"first failing entry: {_line(entry)}", markup=False)
    else:
        out.print("the first failing entry is one of these, as tests were skipped:")
        for entry in found.suspects:
            out.print(f"  {_line(entry)}", markup=False)
    if found.last_passed is None:
        out.print("no older entry is kept, so it may have failed before", markup=False)
    else:
        out.print(f"last passing entry:  {_line(found.last_passed)}", markup=False)
    number = found.suspects[-1].number
    out.print(f"{counted(found.n_tests, 'test')}; see: wink-workspace show {workspace} {number}")


def _line(entry: LogEntry) -> str:
    return f"{entry.number}  {printable(entry.subject)}"


def blame(
    context: CommandContext,
    workspace: WorkspaceArgument,
    path: Annotated[str, typer.Argument(help="A file of the workspace.")],
    at: Annotated[
        str | None, typer.Option("--at", help="Look at the file after this entry.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show for each line of a file the entry that wrote it.

    Undo, redo, restore and merge do not count: a line that they bring back belongs to the entry
    that wrote it. ^ marks lines that may be older than the oldest entry that is kept.
    """
    with context.read(workspace) as reader:
        lines = reader.blame(path, at=at)
    if json:
        print_json([_line_fields(number, line) for number, line in enumerate(lines, 1)])
        return
    writers = [_writer(line) for line in lines]
    width = max(map(len, writers), default=0)
    digits = len(str(len(lines)))
    for number, (line, writer) in enumerate(zip(lines, writers, strict=True), 1):
        text = printable(_text(line).rstrip("\r\n"))
        context.out.print(f"{writer:<{width}}  {number:>{digits}}) {text}", markup=False)


def _writer(line: BlamedLine) -> str:
    entry = line.entry
    what = printable(entry.tool or entry.kind.value)[:_MAX_WRITER_CHARS]
    at = f"{entry.at.astimezone():%Y-%m-%d %H:%M}"
    return f"{'^' if line.is_older else ''}{entry.number} {at} {what}"


def _line_fields(number: int, line: BlamedLine) -> dict[str, object]:
    return {
        "line": number,
        "text": _text(line),
        "entry": line.entry.number,
        "id": line.entry.id,
        "kind": line.entry.kind.value,
        "tool": line.entry.tool,
        "is_older": line.is_older,
    }


def _text(line: BlamedLine) -> str:
    return line.text.decode("utf-8", "backslashreplace")
