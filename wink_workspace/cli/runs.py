"""The commands that show what an agent does, did and can do: ``demo``, ``script``, ``tools``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wink_workspace.errors import UsageError

from .display import consoles
from .places import WorkspaceArgument, line_of, storage_of

__all__ = ["demo", "script", "tools"]

# What runs need is imported inside the commands: it takes longer than most other commands do.


def demo(
    context: typer.Context,
    patch: Annotated[Path, typer.Option(help="Where to write the resulting patch.")] = Path(
        "wink-demo.patch"
    ),
    build: Annotated[
        bool, typer.Option("--build", help="Build the sandbox's image if it is missing.")
    ] = False,
) -> None:
    """Watch a scripted agent edit a real package, fail, be rolled back, and recover."""
    from .demo import play_demo
    from .demo_sandbox import play_sandbox_demo

    out, _ = consoles(context.obj)
    play_demo(out, patch)
    play_sandbox_demo(out, context.obj, build=build)


def script(context: typer.Context, workspace: WorkspaceArgument) -> None:
    """Print the turns of the last run; run --script plays them again."""
    from wink_workspace.workspace import RecordedRun

    which, line = line_of(workspace)
    run = RecordedRun.newest(storage_of(context.obj).folder(which).of_line(line))
    if run is None:
        raise UsageError(f"{workspace} has had no run", hint="Begin one with a task.")
    typer.echo(run.script.read_text(encoding="utf-8"), nl=False)


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
