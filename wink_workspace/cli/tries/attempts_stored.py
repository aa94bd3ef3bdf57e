"""What is stored with a run of attempts, and what runs it: functions, engine and limits.

What a run needs to be continued is stored with it, without secrets. The settings are read again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from wink_workspace.cli.run.run_limits import RunLimits, price_of
from wink_workspace.cli.run.run_options import WorkOptions
from wink_workspace.cli.sandbox.sandbox_options import (
    chosen_sandbox,
    configured,
    running_config,
    running_name,
)
from wink_workspace.cli.screen.command_context import CommandContext
from wink_workspace.clock import Budget
from wink_workspace.errors import UsageError

from .attempts_options import RunningOptions, StartOptions

if TYPE_CHECKING:
    from wink_workspace.attempts import Engine, RunStatus
    from wink_workspace.cli.run.agent_run import AgentAttempt

    from .model_attempt import ModelAttempt, RedactedScore


_SCORE_MARGIN_S: Final = 60.0
"""The sandbox ends a scorer after its time; the attempt ends it after so much more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptsWork:
    """What runs the attempts of a run, from now on.

    Attributes:
        attempt: The function that every attempt runs.
        scorer: The scorer; ``None`` if nothing is scored.
        engine: Where they run.
        budget: The limits of all attempts together.
        score_timeout_s: When a scorer is ended.
        deadline_s: When the run is ended.
        first: Whether it ends when an attempt has passed.
    """

    attempt: ModelAttempt | AgentAttempt
    scorer: RedactedScore | None
    engine: Engine
    budget: Budget
    score_timeout_s: float
    deadline_s: float
    first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """What a run needs to be continued; JSON, without secrets."""

    task: str
    models: tuple[str, ...]
    scripts: tuple[str, ...]
    sandbox: str
    score: str
    junit: str
    score_timeout_s: float
    first: bool
    max_turns: int
    deadline_s: float
    agent: str = ""

    @classmethod
    def of(cls, context: CommandContext, options: StartOptions, limits: RunLimits) -> Self:
        """For a new run."""
        names = [name.strip() for name in (options.models or "").split(",") if name.strip()]
        models = tuple(names)
        choose = running_name if options.agent else chosen_sandbox
        if not (names or options.script or options.agent):
            from wink_workspace.cli.run.run_preparation import known_model

            models = (known_model(context, None),)
        return cls(
            task=context.redact(options.task),
            models=() if options.script else models,
            scripts=tuple(str(path.absolute()) for path in options.script or ()),
            sandbox=choose(context, context.settings_for().sandbox, image=options.image),
            score=context.redact(options.score),
            junit=options.junit,
            score_timeout_s=options.score_timeout_s,
            first=options.first,
            max_turns=limits.turns,
            deadline_s=limits.time,
            agent=options.agent or "",
        )

    @classmethod
    def parse(cls, run: RunStatus) -> Self:
        """Of a run that the command began.

        Raises:
            UsageError: If another program began it.
        """
        try:
            about = dict(run.about)
            about["models"], about["scripts"] = tuple(about["models"]), tuple(about["scripts"])
            return cls(**about)
        except (KeyError, TypeError) as error:
            raise UsageError(
                f"run {run.run_id} was not begun by this command",
                hint="Continue it with Attempts.open in the program that began it.",
            ) from error

    def work(
        self, context: CommandContext, options: RunningOptions, limits: RunLimits
    ) -> AttemptsWork:
        """What runs these attempts.

        Raises:
            UsageError: If there is no such script, sandbox or engine, or the cost is limited and
                the price of a model is not known.
        """
        from wink_workspace.attempts import engine_at

        make = self._agent_attempt if self.agent else self._model_attempt
        attempt = make(context, options, limits)
        return AttemptsWork(
            attempt=attempt,
            scorer=self._scorer(context, options),
            engine=engine_at(options.engine, workers=options.workers, sandbox=attempt.config),
            budget=Budget(max_total_tokens=limits.tokens, max_cost_usd=limits.money),
            score_timeout_s=self.score_timeout_s + _SCORE_MARGIN_S,
            deadline_s=limits.time,
            first=self.first,
        )

    def _model_attempt(
        self, context: CommandContext, options: RunningOptions, limits: RunLimits
    ) -> ModelAttempt:
        from wink_workspace.adapters import load_script

        from .model_attempt import ModelAttempt

        for model in self.models:
            price_of(model, limits)  # refuses a limit of the cost if the price is not known
        return ModelAttempt(
            context=context,
            task=self.task,
            models=self.models,
            scripts=tuple(load_script(path) for path in self.scripts),
            sandbox=self.sandbox,
            config=configured(context, self.sandbox, image=options.image),
            limits=limits,
        )

    def _agent_attempt(
        self, context: CommandContext, options: RunningOptions, limits: RunLimits
    ) -> AgentAttempt:
        from wink_workspace.agents import AgentProgram
        from wink_workspace.cli.run.agent_run import AgentAttempt, ContainedAgent

        programs = [AgentProgram.named(self.agent, model=name) for name in self.models or ("",)]
        given = replace(
            options.given, sandbox=self.sandbox, max_turns=limits.turns, deadline_s=limits.time
        )
        agents = (ContainedAgent(context, each, given, options.image) for each in programs)
        return AgentAttempt(agents=tuple(agents), task=self.task)

    def _scorer(self, context: CommandContext, options: WorkOptions) -> RedactedScore | None:
        from wink_workspace.attempts import CommandScore

        from .model_attempt import RedactedScore

        if not self.score:
            return None
        command = CommandScore(
            self.score,
            junit=self.junit,
            timeout_s=self.score_timeout_s,
            sandbox=running_config(context, options.sandbox, image=options.image),
        )
        return RedactedScore(command, context)
