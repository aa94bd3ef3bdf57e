"""The command ``acp``: runs the agent for an editor that speaks the Agent Client Protocol."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wink_workspace.cli.run.run_evaluation import run_prompt
from wink_workspace.cli.run.run_limits import RunLimits, RunMeter, price_of
from wink_workspace.cli.sandbox.sandbox_options import (
    SANDBOX_HELP,
    ImageOption,
    chosen_sandbox,
    configured,
    sandbox_sections,
)
from wink_workspace.cli.screen.command_context import MODEL_VARIABLE, CommandContext
from wink_workspace.errors import UsageError

if TYPE_CHECKING:
    from wink_workspace.adapters import ProviderAdapter
    from wink_workspace.clock import BudgetTracker, Deadline
    from wink_workspace.prompt import Prompt, Section
    from wink_workspace.workspace import RecordedRun, Workspace

__all__ = ["AcpOptions", "acp"]


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
    name = None if options.script else options.model or settings.model
    if name is None and options.script is None:
        raise UsageError(
            "no model is named",
            hint=f"Give --model PROVIDER:NAME, such as anthropic:NAME, or set {MODEL_VARIABLE}.",
        )
    sandbox = chosen_sandbox(context, options.sandbox or settings.sandbox, image=options.image)
    config = configured(context, sandbox, image=options.image)
    price = price_of(name, limits)

    def prompt(workspace: Workspace, task: str, more: Sequence[Section[None]]) -> Prompt[None]:
        source = Path(workspace.info.source)
        made = run_prompt(task, workspace.files, (), more, source=source)
        return made.bind(resources=workspace.resources)

    def budgets(record: RecordedRun) -> tuple[Deadline | None, BudgetTracker | None]:
        meter = RunMeter(limits, price, record)
        return meter.deadline, meter.tracker

    serve_acp(
        AcpHost(
            storage=context.storage,
            adapter=_adapters(context, name, options.script, limits),
            prompt=prompt,
            sections=lambda: sandbox_sections(sandbox, config),
            sandbox=sandbox,
            config=context.config(),
            budgets=budgets,
        )
    )


def _adapters(
    context: CommandContext, name: str | None, script: Path | None, limits: RunLimits
) -> Callable[[Callable[[str], None]], AbstractContextManager[ProviderAdapter[None]]]:
    """Opens the model, or the script that all messages of the user continue."""
    settings: dict[str, Any] = {
        "limits": limits.of_loop(),
        "redact": context.redact,
        "traces_content": context.captures_content,
    }
    played: ProviderAdapter[None] | None = None
    if name is None:
        from wink_workspace.adapters import ScriptedAdapter, load_script

        assert script is not None  # noqa: S101 - otherwise there is a model
        played = ScriptedAdapter[None](load_script(script), **settings)

    @contextmanager
    def opened(on_text: Callable[[str], None]) -> Generator[ProviderAdapter[None]]:
        if played is not None or name is None:
            assert played is not None  # noqa: S101 - as above
            yield played
            return
        from wink_workspace.adapters.model import ModelAdapter, ModelEvent, TextDelta

        def on_event(event: ModelEvent) -> None:
            if isinstance(event, TextDelta):
                on_text(event.text)

        environment = context.environment
        with ModelAdapter[None](
            name, environment=environment, on_event=on_event, **settings
        ) as model:
            yield model

    return opened
