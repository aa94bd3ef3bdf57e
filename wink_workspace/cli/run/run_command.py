"""The commands ``run``, ``script`` and ``tools``: a model or a script works on a directory.

A run works in a workspace, where every call is an entry of the history, or on a copy in memory.
The model adapter is created before anything is copied, so that a missing key leaves nothing
behind. What the run needs is imported inside the functions: it takes longer to load than most
other commands take to run.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

import typer

from wink_workspace.cli.sandbox.sandbox_options import check_sandbox
from wink_workspace.cli.screen.command_context import CommandContext, WorkspaceArgument
from wink_workspace.errors import UsageError
from wink_workspace.sandbox import AUTO_SANDBOX

from .run_options import RunOptions

_MAX_INPUT_BYTES: Final = 2**20


def run(context: CommandContext, options: RunOptions) -> None:
    """Let a model work on a task, or play a script; then show the changes, and apply them.

    Every call is a transaction and one entry of the workspace's history. No change leaves the
    workspace until you say so.
    """
    options.check(can_ask=context.can_ask)
    if options.message is not None:
        options = replace(options, message=_message(options.message))
    if options.attach:
        from .run_display import attach

        attach(context, repo=options.repo, workspace=options.workspace)
        return
    options = options.in_this_place(context)
    from wink_workspace.cli.past.workspaces import remove_finished_runs
    from wink_workspace.cli.sandbox.project import for_place
    from wink_workspace.cli.screen.console import check_output_file

    from .run_display import RunDisplay, RunFeed
    from .typed_messages import TypedMessages

    with ExitStack() as opened:
        opened.callback(context.export_spans())
        if options.patch is not None:
            check_output_file(options.patch)
        if options.record is not None:
            check_output_file(options.record, "the turns")
        context = for_place(
            context,
            options.workspace,
            options.repo or options.source,
            options.given,
            asks=not (options.yes or options.json),
        )
        check_sandbox(context.settings_for().sandbox or AUTO_SANDBOX, image=options.image)
        display = RunDisplay(
            context.err,
            live=context.shows_progress and not options.json,
            redact=context.redact,
            typed=TypedMessages() if context.can_ask and context.shows_progress else None,
        )
        feed = RunFeed(display, redact=context.redact)
        if options.source is None and options.message is None:  # it may be that of a finished run
            remove_finished_runs(context)
        if options.agent is None:
            from .run_model import run_model

            run_model(context, options, opened, display, feed)
        else:
            from .agent_run import run_program

            run_program(context, options, opened, display, feed)


def _message(given: str) -> str:
    """The text of --message."""
    from wink_workspace import serde
    from wink_workspace.workspace.runs.live_runs import check_message

    if given == "-":
        given = sys.stdin.buffer.read(_MAX_INPUT_BYTES).decode("utf-8", "surrogateescape")
    given = serde.well_formed(given)
    check_message(given)
    return given


def script(context: CommandContext, workspace: WorkspaceArgument) -> None:
    """Print the turns of the last run; run --script plays them again."""
    from wink_workspace.workspace import RecordedRun

    newest = RecordedRun.newest(context.folder(workspace))
    if newest is None:
        raise UsageError(f"{workspace} has had no run", hint="Start one with a task.")
    typer.echo(newest.script.read_text(encoding="utf-8"), nl=False)


def tools(context: CommandContext) -> None:
    """Print the tools that a run offers, with their schemas, as JSON."""
    from wink_workspace import serde
    from wink_workspace.filesystem import MemoryFilesystem
    from wink_workspace.prompt import Prompt
    from wink_workspace.sections import PlanningToolsSection, VfsToolsSection

    prompt = Prompt[None](
        ns="wink-workspace",
        key="run",
        sections=[VfsToolsSection(MemoryFilesystem()), PlanningToolsSection()],
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
    context.out.print_json(serde.dump_json(listed))
