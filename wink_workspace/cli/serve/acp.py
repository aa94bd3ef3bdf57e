"""The command ``acp``: runs the agent for an editor that speaks the Agent Client Protocol."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wink_workspace.cli.run.run_limits import RunLimits, RunMeter, price_of
from wink_workspace.cli.run.run_preparation import known_model, turns_of, work_adapter
from wink_workspace.cli.sandbox.sandbox_options import (
    SANDBOX_HELP,
    ImageOption,
    chosen_sandbox,
    configured,
)
from wink_workspace.cli.screen.command_context import MODEL_VARIABLE, CommandContext
from wink_workspace.workspace.runs.task_run import run_prompt, sandbox_sections

if TYPE_CHECKING:
    from wink_workspace.adapters import ModelTurn, ProviderAdapter
    from wink_workspace.adapters.model import ModelEvent
    from wink_workspace.clock import BudgetTracker, Deadline
    from wink_workspace.workspace import RecordedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpOptions:
    """The options of ``acp``."""

    model: Annotated[
        str | None, typer.Option(help=f"PROVIDER:NAME of the model; or set {MODEL_VARIABLE}.")
    ] = None
    script: Annotated[
        Path | None, typer.Option(help="Play these turns, JSON lines, instead of asking a model.")
    ] = None
    sandbox: Annotated[str | None, typer.Option(help=SANDBOX_HELP)] = None
    image: ImageOption = None


def acp(context: CommandContext, options: AcpOptions) -> None:
    """Run the agent for an editor that speaks the Agent Client Protocol, over stdio."""
    from wink_workspace.integrations.acp import AcpHost, serve_acp
    from wink_workspace.project import Settings

    settings = context.settings_for()
    limits = RunLimits.of(Settings(), settings)
    name = None if options.script else known_model(context, options.model)
    sandbox = chosen_sandbox(context, options.sandbox or settings.sandbox, image=options.image)
    config = configured(context, sandbox, image=options.image)
    price = price_of(name, limits)

    def budgets(record: RecordedRun) -> tuple[Deadline | None, BudgetTracker | None]:
        meter = RunMeter(limits, price, record)
        return meter.deadline, meter.tracker

    serve_acp(
        AcpHost(
            storage=context.storage,
            adapter=_adapters(context, name or turns_of(options.script), limits),
            prompt=lambda workspace, task, more: run_prompt(workspace, task, (), more),
            sections=lambda: sandbox_sections(sandbox, config),
            sandbox=sandbox,
            config=context.config(),
            budgets=budgets,
        )
    )


def _adapters(
    context: CommandContext, model: str | Sequence[ModelTurn], limits: RunLimits
) -> Callable[[Callable[[str], None]], AbstractContextManager[ProviderAdapter[None]]]:
    """Opens the model, or the script that all messages of the user continue."""
    played = None if isinstance(model, str) else work_adapter(context, model, limits, ExitStack())

    @contextmanager
    def opened(on_text: Callable[[str], None]) -> Generator[ProviderAdapter[None]]:
        def on_event(event: ModelEvent) -> None:
            from wink_workspace.adapters.model import TextDelta

            if isinstance(event, TextDelta):
                on_text(event.text)

        with ExitStack() as closing:
            yield played or work_adapter(context, model, limits, closing, on_event=on_event)

    return opened
