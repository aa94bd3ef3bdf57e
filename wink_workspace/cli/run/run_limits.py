"""The limits of a run: which apply, what a resumed run has used before, and how to continue.

An option comes first, then what the interrupted run had, then variables and files of settings, then
``RunBudgets``. So a resumed run keeps its limits unless an option raises them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from wink_workspace.clock import SYSTEM_CLOCK, Budget, BudgetTracker, Deadline, TokenUsage
from wink_workspace.counts import lasted
from wink_workspace.errors import PromptEvaluationError, UsageError

if TYPE_CHECKING:
    from wink_workspace.adapters import LoopLimits
    from wink_workspace.project import Settings
    from wink_workspace.workspace import RecordedRun, RunAbout


Price = Callable[[TokenUsage], Decimal | None]

_NAMES: Final = ("tokens", "turns", "time", "money")
_SETTINGS: Final = ("max_tokens", "max_turns", "deadline_s", "max_cost_usd")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """The limits of one run; see ``RunBudgets`` for the units."""

    tokens: int
    turns: int
    time: float
    money: Decimal | None
    context: int | None = None

    @classmethod
    def of(cls, given: Settings, settings: Settings, about: RunAbout | None = None) -> RunLimits:
        """The limits that apply.

        Args:
            given: What options set.
            settings: All settings.
            about: The interrupted run, if one is resumed.
        """
        from wink_workspace.project import RunBudgets

        found: dict[str, Any] = {}  # Any: each limit has its own type
        for name, setting in zip(_NAMES, _SETTINGS, strict=True):
            sources = (
                getattr(given, setting),
                None if about is None else getattr(about, setting),
                getattr(settings, setting),
                getattr(RunBudgets(), name),
            )
            found[name] = next((value for value in sources if value is not None), None)
        return cls(**found, context=settings.context_tokens)

    def noted_in(self, about: RunAbout) -> RunAbout:
        """*about* with these limits, to keep them when the run is resumed."""
        values = (self.tokens, self.turns, self.time, self.money)
        noted: dict[str, Any] = dict(zip(_SETTINGS, values, strict=True))
        return replace(about, **noted)

    def of_loop(self) -> LoopLimits:
        """The limits that the evaluation loop checks."""
        from wink_workspace.adapters import ContextLimits, LoopLimits

        return LoopLimits(max_turns=self.turns, context=ContextLimits(tokens=self.context))


def price_of(model: str | None, limits: RunLimits) -> Price:
    """Returns the cost of one request to *model*; a script, ``None``, costs nothing.

    Raises:
        UsageError: If the cost is limited, and the price of the model is not known.
    """
    if model is None:
        return lambda _: Decimal(0)
    from wink_workspace.adapters.prices import cost_of

    price = partial(cost_of, model=model)
    if limits.money is not None and price(TokenUsage()) is None:
        raise UsageError(
            f"the price of {model} is not known, so the cost of the run cannot be limited",
            hint="Limit the tokens with --max-tokens instead of --max-cost (or budgets.money), or"
            " name a model with a known price.",
        )
    return price


class RunMeter:
    """What one run uses, together with what it used before it was resumed.

    Args:
        limits: The limits of the run.
        price: The cost of one request.
        record: Where the use is kept.
    """

    def __init__(self, limits: RunLimits, price: Price, record: RecordedRun) -> None:
        self._limits = limits
        self._price = price
        self._record = record
        self.tracker = BudgetTracker(
            Budget(max_total_tokens=limits.tokens, max_cost_usd=limits.money), price
        )
        spent = record.spent(price)
        self._earlier_s = spent.elapsed_s
        self.tracker.resume(record.usage, spent.cost_usd)
        self._started_s = SYSTEM_CLOCK.monotonic_s()
        self.deadline = Deadline.after(max(0.0, limits.time - self._earlier_s))

    @property
    def elapsed_s(self) -> float:
        """Seconds that the run took, before and after it was resumed."""
        return self._earlier_s + SYSTEM_CLOCK.monotonic_s() - self._started_s

    def of_next(self, record: RecordedRun) -> RunMeter:
        """The meter of a run that continues this one, within the same limits."""
        return RunMeter(self._limits, self._price, record)

    def keep(self, n_turns: int) -> None:
        """Store what was used up to the end of the *n_turns*-th turn, or later."""
        self._record.keep_spent(n_turns, self.elapsed_s, self.tracker.cost_usd)

    def exceeded(self, error: PromptEvaluationError) -> str | None:
        """The option that would let the run continue after *error*; ``None`` if none would."""
        limits, cost = self._limits, self.tracker.cost_usd
        if error.phase == "turns":
            return f"--max-turns {2 * limits.turns}"
        if self.deadline.expired:
            return f"--deadline {lasted(max(10, 2 * limits.time))}"
        if error.phase != "budget":
            return None
        if self.tracker.used.total_tokens > limits.tokens:
            return f"--max-tokens {2 * self.tracker.used.total_tokens}"
        if limits.money is not None and cost is not None:
            return f"--max-cost {2 * max(limits.money, cost):.2f}"
        return None

    def explain(self, error: PromptEvaluationError, command: str) -> bool:
        """Make the hint of *error* say how to continue, if a limit ended the run.

        Args:
            error: What ended the run.
            command: The command that resumes it.
        """
        option = self.exceeded(error)
        if option is None:
            return False
        if self.deadline.expired:
            error.message = (
                f"the time of the run is over: {lasted(self.elapsed_s)} used,"
                f" {lasted(self._limits.time)} allowed"
            )
        used = self.tracker.used
        cost = self.tracker.cost_usd
        spent = "" if not cost else f", ${cost:.4f}"
        error.hint = (
            f"So far: {used.input_tokens:,} input and {used.output_tokens:,} output tokens"
            f"{spent}, {lasted(self.elapsed_s)}. The work is kept."
            f" Continue with: {command} {option}"
        )
        return True
