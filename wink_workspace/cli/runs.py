"""The commands that let an agent work: ``demo``, ``run``, ``tools``."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from wink_workspace.errors import UsageError

from .display import consoles, print_diff, show_calls
from .places import JsonOption, open_workspace, workspace_in

if TYPE_CHECKING:
    from .running import Run, RunReport

__all__ = ["demo", "run", "tools"]

# What runs need is imported inside the commands: it takes longer than most other commands do.


def demo(
    context: typer.Context,
    patch: Annotated[Path, typer.Option(help="Where to write the resulting patch.")] = Path(
        "wink-demo.patch"
    ),
) -> None:
    """Watch a scripted agent edit a real package, fail, be rolled back, and recover."""
    from .demo import play_demo

    out, _ = consoles(context.obj)
    play_demo(out, patch)


def run(
    context: typer.Context,
    script: Annotated[Path, typer.Option(help="The turns to play, as JSON lines.")],
    source: Annotated[
        Path | None, typer.Option(help="A directory to work on a copy of, in memory.")
    ] = None,
    workspace: Annotated[
        str | None, typer.Option(help="A workspace to work in; every call joins its history.")
    ] = None,
    in_place: Annotated[
        Path | None,
        typer.Option(help="A directory to work in itself; its workspace is made if need be."),
    ] = None,
    patch: Annotated[Path | None, typer.Option(help="Write the changes here as a patch.")] = None,
    json: JsonOption = False,
) -> None:
    """Play a script of a model's turns, over a copy of a directory or in a workspace."""
    from wink_workspace.adapters import ScriptedAdapter, load_script

    from .running import write_patch

    out, err = consoles(context.obj)
    if [source, workspace, in_place].count(None) != 2:
        raise UsageError(
            "a run is over one place", hint="Give one of --source, --workspace and --in-place."
        )
    adapter = ScriptedAdapter[None](load_script(script))
    with ExitStack() as opened:
        if in_place is not None:
            workspace = workspace_in(context.obj, in_place)
            err.print(f"in workspace {workspace}", markup=False)
        playing = _run(context, source, workspace, opened)
        live = context.obj.shows_progress
        report = playing.evaluate(
            adapter, display=lambda: show_calls(playing.session, err, live=live)
        )
    if patch is not None:
        write_patch(patch, report.patch)
    if json:
        from wink_workspace import serde

        out.print_json(serde.dump_json(_summary(report, patch)))
    else:
        _print_report(out, report, patch)


def _run(
    context: typer.Context, source: Path | None, workspace: str | None, opened: ExitStack
) -> Run:
    from .running import Run

    if workspace is None:
        return Run.over_copy(source or Path())
    place = opened.enter_context(open_workspace(context.obj, workspace))
    return Run(place.files, session=place.session)


def tools(context: typer.Context) -> None:
    """Print the tools that a run offers, with their schemas, as JSON."""
    from wink_workspace import serde
    from wink_workspace.filesystem import MemoryFilesystem
    from wink_workspace.prompt import Prompt

    from .running import file_sections

    out, _ = consoles(context.obj)
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
        print_diff(out, report.patch)
    n_failed = sum(not call.success for call in report.calls)
    out.print(
        f"{len(report.calls)} calls, {n_failed} undone; {len(report.changed_paths)} paths changed"
        + ("" if patch is None else f"; patch written to {patch}"),
        markup=False,
    )
    out.print(report.answer, markup=False)
