"""The commands, their options, and how they end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from typer.exceptions import TyperException

from wink_workspace import serde
from wink_workspace.adapters import ScriptedAdapter, load_script
from wink_workspace.environment import Environment
from wink_workspace.errors import MountError, ScriptError, UsageError, WinkError
from wink_workspace.filesystem import MemoryFilesystem
from wink_workspace.prompt import Prompt

from .demo import play_demo
from .display import consoles, show_calls
from .running import Run, RunReport, file_sections, write_patch

__all__ = ["run_command"]

EXIT_RUN_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

_EPILOG = "Exit codes: 0 done, 1 the run ended early, 2 wrong usage, 130 interrupted."

app = typer.Typer(
    help="A workspace for coding agents in which every tool call is a transaction.",
    epilog=_EPILOG,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def run_command(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; whatever goes wrong is one line on stderr."""
    environment = Environment.from_os()
    _, err = _consoles(environment)
    try:
        code = app(arguments, standalone_mode=False, obj=environment, prog_name="wink-workspace")
    except TyperException as error:
        return _end(err, f"{error.format_message()} See wink-workspace --help.", EXIT_USAGE)
    except (MountError, ScriptError, UsageError) as error:
        return _end(err, str(error), EXIT_USAGE)
    except WinkError as error:
        return _end(err, str(error), EXIT_RUN_FAILED)
    except KeyboardInterrupt:
        return _end(err, "interrupted; nothing is half done", EXIT_INTERRUPTED)
    return code if isinstance(code, int) else 0


@app.command(epilog=_EPILOG)
def demo(
    context: typer.Context,
    patch: Annotated[Path, typer.Option(help="Where to write the resulting patch.")] = Path(
        "wink-demo.patch"
    ),
) -> None:
    """Watch a scripted agent edit a real package, fail, be rolled back, and recover."""
    out, _ = _consoles(context.obj)
    play_demo(out, patch)


@app.command(epilog=_EPILOG)
def run(
    context: typer.Context,
    script: Annotated[Path, typer.Option(help="The turns to play, as JSON lines.")],
    source: Annotated[Path, typer.Option(help="The directory to work on; it is only read.")],
    patch: Annotated[Path | None, typer.Option(help="Write the changes here as a patch.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Play a script of a model's turns over a copy of a directory."""
    environment: Environment = context.obj
    out, err = _consoles(environment)
    adapter = ScriptedAdapter[None](load_script(script))
    session_run = Run(source)
    report = session_run.evaluate(
        adapter,
        display=lambda: show_calls(session_run.session, err, live=environment.shows_progress),
    )
    if patch is not None:
        write_patch(patch, report.patch)
    if json:
        out.print_json(serde.dump_json(_summary(report, patch)))
    else:
        _print_report(out, report, patch)


@app.command(epilog=_EPILOG)
def tools(context: typer.Context) -> None:
    """Print the tools that a run offers, with their schemas, as JSON."""
    out, _ = _consoles(context.obj)
    prompt = Prompt[None](
        ns="wink-workspace", key="run", sections=file_sections(MemoryFilesystem())
    )
    rendered = prompt.render()
    listed = [
        {
            "name": tool.name,
            "description": tool.description,
            "schema": rendered.tool_schema(tool.name),
            "examples": [serde.dump(example) for example in tool.examples],
        }
        for tool in rendered.tools
    ]
    out.print_json(serde.dump_json(listed))


def _consoles(environment: Environment) -> tuple[Console, Console]:
    return consoles(stdout_color=environment.stdout_color, stderr_color=environment.stderr_color)


def _end(console: Console, message: str, code: int) -> int:
    console.print(f"wink-workspace: {' '.join(message.split())}", markup=False, style="red")
    return code


def _summary(report: RunReport, patch: Path | None) -> dict[str, object]:
    return {
        "answer": report.answer,
        "calls": [
            {
                "id": call.call_id,
                "tool": call.tool,
                "success": call.success,
                "outcome": call.outcome,
                "duration_s": call.duration_s,
                "text": call.text,
            }
            for call in report.calls
        ],
        "changed_paths": list(report.changed_paths),
        "patch": report.patch if patch is None else str(patch),
    }


def _print_report(out: Console, report: RunReport, patch: Path | None) -> None:
    if patch is None:
        sys.stdout.write(report.patch.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
    n_failed = sum(not call.success for call in report.calls)
    out.print(
        f"{len(report.calls)} calls, {n_failed} undone; {len(report.changed_paths)} paths changed"
        + ("" if patch is None else f"; patch written to {patch}"),
        markup=False,
    )
    out.print(report.answer, markup=False)
