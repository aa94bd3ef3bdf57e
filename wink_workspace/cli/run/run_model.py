"""``run`` with a model or a script."""

from __future__ import annotations

from contextlib import ExitStack

from wink_workspace.adapters import ProviderAdapter
from wink_workspace.cli.screen.command_context import CommandContext
from wink_workspace.counts import lasted
from wink_workspace.errors import PromptEvaluationError
from wink_workspace.workspace.runs.task_run import RunReport

from .run_display import RunDisplay, RunFeed, diff_of, print_place, published
from .run_end import finish
from .run_limits import RunMeter
from .run_options import RunOptions
from .run_preparation import PreparedRun, continued, prepare, recorded


def run_model(
    context: CommandContext,
    options: RunOptions,
    opened: ExitStack,
    display: RunDisplay,
    feed: RunFeed,
) -> None:
    """Let the model work, and continue with each message of the user."""
    prepared, model, meter = prepare(context, options, opened, feed.on_model_event)
    display.diff_of = diff_of(context, options, prepared)
    adapter = recorded(options, prepared, model, meter)
    report = _evaluate(context, prepared, adapter, meter, feed)
    while message := finish(context, options, prepared, report, feed):
        prepared = continued(context, prepared, model, message)
        meter = meter.of_next(prepared.record)
        adapter = recorded(options, prepared, model, meter, append=True)
        report = _evaluate(context, prepared, adapter, meter, feed)


def _evaluate(
    context: CommandContext,
    prepared: PreparedRun,
    adapter: ProviderAdapter[None],
    meter: RunMeter,
    feed: RunFeed,
) -> RunReport:
    """Run to the end; show and publish what happens."""
    err = context.err
    print_place(context, prepared)
    try:
        with published(prepared, prepared.record, feed, context.redact) as messages:
            return prepared.run.evaluate(
                adapter,
                deadline=meter.deadline,
                budget_tracker=meter.tracker,
                conversation=prepared.conversation,
                messages=messages,
            )
    except (PromptEvaluationError, KeyboardInterrupt) as error:
        command = f"wink-workspace run --workspace {prepared.name} --resume"
        if not prepared.name:  # it is temporary
            raise
        if isinstance(error, KeyboardInterrupt) or not meter.explain(error, command):
            err.print(f"resume with: {command}", markup=False)
        raise
    finally:
        meter.keep(len(prepared.record.turns()))
        used = meter.tracker.used
        footer = f"elapsed: {lasted(meter.elapsed_s)}"
        if used.total_tokens:
            cached = f" ({used.cached_tokens:,} cached)" if used.cached_tokens else ""
            footer += f", tokens: {used.input_tokens:,} in{cached}, {used.output_tokens:,} out"
        if meter.tracker.cost_usd:
            footer += f", cost: ${meter.tracker.cost_usd:.4f}"
        err.print(footer)
