"""The attempt of the command ``attempts``: a model, or a script, works on the task.

It is sent to other processes, which may run on other machines. It holds what it needs of the
environment, the keys of providers included; so it is never written to a disk.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from wink_workspace.adapters import (
    ModelRequest,
    ModelTurn,
    ProviderAdapter,
    ScriptRecorder,
)
from wink_workspace.attempts import AttemptContext, CommandScore, Score
from wink_workspace.cli.run.run_limits import RunLimits, price_of
from wink_workspace.cli.run.run_preparation import work_adapter
from wink_workspace.cli.screen.command_context import CommandContext
from wink_workspace.clock import TokenUsage
from wink_workspace.errors import WinkError
from wink_workspace.sandbox import SandboxConfig
from wink_workspace.workspace import RecordedRun, RunAbout, Workspace
from wink_workspace.workspace.runs.task_run import Run

if TYPE_CHECKING:
    from wink_workspace.attempts import TurnBudget


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAttempt:
    """Each attempt takes the next model or script of a list, and the first one after the last.

    Attributes:
        context: The environment and the settings of the command.
        task: What to do, without secrets.
        models: The names of models; empty if there are scripts.
        scripts: The turns of each script.
        sandbox: The name of the sandbox of the tools.
        config: Its configuration.
        limits: The limits of each attempt; tokens and money are limited for the whole run.
    """

    context: CommandContext
    task: str
    models: tuple[str, ...] = ()
    scripts: tuple[tuple[ModelTurn, ...], ...] = ()
    sandbox: str
    config: SandboxConfig | None
    limits: RunLimits

    def __call__(self, attempt: AttemptContext) -> None:
        """Work until the model is done; continues what an earlier worker of the attempt began.

        Errors are stored with the attempt, so secrets are redacted in them.
        """
        try:
            self._work(attempt)
        except WinkError as error:
            error.message = self.context.redact(error.message)
            raise

    def _work(self, attempt: AttemptContext) -> None:
        workspace = attempt.workspace
        run = Run.in_workspace(workspace, task=self.task, sandbox=self.sandbox, config=self.config)
        with ExitStack() as opened:
            record = self._record(attempt)
            if record.is_finished:  # the worker was lost while it scored
                return
            model = self._model(attempt.number)
            name = model if isinstance(model, str) else None
            rest = model if isinstance(model, str) else model[len(record.turns()) :]
            adapter = work_adapter(self.context, rest, self.limits, opened)
            conversation = record.conversation(workspace)
            run.evaluate(
                self._recorded(adapter, record, attempt.budget, price_of(name, self.limits)),
                conversation=record.with_natives(conversation, adapter.load_native),
            )

    def _model(self, number: int) -> str | tuple[ModelTurn, ...]:
        """The model or the script of an attempt."""
        choices = self.models or self.scripts
        return choices[(number - 1) % len(choices)]

    def _record(self, attempt: AttemptContext) -> RecordedRun:
        """The record of the attempt, which an earlier worker may have begun."""
        folder = attempt.workspace.folder.of_branch(attempt.workspace.branch_name)
        found = RecordedRun.newest(folder)
        if found is not None:
            found.drop_half_turn()
            return found
        model = self._model(attempt.number)
        about = RunAbout(
            task=self.task,
            model=model if isinstance(model, str) else "",
            sandbox=self.sandbox,
            after_entry=attempt.workspace.head.number,
        )
        return RecordedRun.begin(folder, self.limits.noted_in(about))

    @staticmethod
    def _recorded(
        adapter: ProviderAdapter[None],
        record: RecordedRun,
        budget: TurnBudget,
        price: Callable[[TokenUsage], Decimal | None],
    ) -> ProviderAdapter[None]:
        reserving = _ReservingAdapter(adapter, budget, price)
        return ScriptRecorder(
            reserving,
            record.script,
            append=True,
            on_native=record.keep_native,
            on_summary=record.keep_summary,
        )


@dataclass(frozen=True, slots=True)
class RedactedScore:
    """Scores by a command; what is stored of its output has no secrets."""

    command: CommandScore
    context: CommandContext

    def __call__(self, workspace: Workspace) -> Score:
        """Run the command in a fork that is deleted afterwards."""
        try:
            score = self.command(workspace)
        except WinkError as error:
            error.message = self.context.redact(error.message)
            raise
        return replace(score, detail=self.context.redact(score.detail))


class _ReservingAdapter(ProviderAdapter[None]):
    """Wraps an adapter, and reserves each turn from the budget of the run."""

    def __init__(
        self,
        adapter: ProviderAdapter[None],
        budget: TurnBudget,
        price: Callable[[TokenUsage], Decimal | None],
    ) -> None:
        super().__init__(
            limits=adapter.limits,
            heartbeat=adapter.heartbeat,
            redact=adapter.redact,
            traces_content=adapter.traces_content,
        )
        self.provider_name, self.model_name = adapter.provider_name, adapter.model_name
        self.context_tokens = adapter.context_tokens
        self.dump_native, self.load_native = adapter.dump_native, adapter.load_native
        self._adapter, self._budget, self._price = adapter, budget, price

    def complete(self, request: ModelRequest) -> ModelTurn:
        """The next turn of the adapter; ``BudgetExceededError`` ends the attempt."""
        with self._budget.turn() as turn:
            answer = self._adapter.complete(request)
            turn.record(answer.usage, self._price(answer.usage) or Decimal(0))
        return answer
