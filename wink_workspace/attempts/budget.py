"""One budget for all attempts of a run: reserved before a turn, returned after it.

Rule 1: a turn begins only if what is spent, what is reserved and what it asks for are within the
limits, or if nothing is reserved and the limit is not reached. So the limits are exceeded by at
most one turn, as long as every turn stays within what it reserved.
Rule 2: a turn that does not say what it needs reserves as much as the largest turn so far. If there
are limits, the first one runs alone, as nothing is known about turns then.
Rule 3: a reservation that is never returned counts as spent.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from wink_workspace.clock import Budget, BudgetTracker, TokenUsage
from wink_workspace.errors import BudgetExceededError, UsageError


@dataclass(frozen=True, slots=True)
class Spending:
    """Tokens and US dollars, spent or reserved."""

    usage: TokenUsage = TokenUsage()  # noqa: RUF009 - frozen, so it may be shared
    usd: Decimal = Decimal(0)

    def __post_init__(self) -> None:
        tokens = (self.usage.input_tokens, self.usage.output_tokens)
        if not self.usd.is_finite() or self.usd < 0 or min(tokens) < 0:
            raise UsageError(
                f"{tokens} tokens and ${self.usd} cannot be spent", hint="Use 0 or more."
            )

    def __add__(self, other: Spending) -> Spending:
        return Spending(self.usage + other.usage, self.usd + other.usd)


class Grant:
    """The answers to a request for a turn."""

    GRANTED: Final = "granted"
    WAIT: Final = "wait"
    """Ask again: other turns have reserved the rest."""
    SPENT: Final = "spent"


class BudgetPool:
    """The budget of a run; used by the coordinator's thread only.

    Args:
        budget: The limits.
        spent: What earlier processes spent or reserved.
    """

    def __init__(self, budget: Budget, spent: Spending | None = None) -> None:
        self.budget = budget
        self._tracker = BudgetTracker(budget, price=lambda _: Decimal(0))
        self._reserved: dict[tuple[int, int], Spending] = {}
        self._largest: Spending | None = None
        self._new: dict[tuple[int, int], Spending] = {}
        self.on_reserve: Callable[[int, Spending], object] = _ignore
        if spent is not None:
            self._tracker.resume(spent.usage, spent.usd)

    @property
    def spent(self) -> Spending:
        """What ended turns spent, and what is counted as spent."""
        return Spending(self._tracker.used, self._tracker.cost_usd or Decimal(0))

    @property
    def reserved(self) -> Spending:
        """What running turns have reserved."""
        return sum(self._reserved.values(), Spending())

    @property
    def is_spent(self) -> bool:
        """Whether a limit is reached, so that no turn may begin."""
        return self._reaches(self.spent)

    def request(self, number: int, epoch: int, wanted: Spending) -> str:
        """Ask for a turn of an attempt: ``GRANTED``, ``WAIT`` or ``SPENT``, see ``Grant``."""
        if self.is_spent:
            return Grant.SPENT
        is_unknown = wanted == Spending() and self._largest is None
        if wanted == Spending():
            wanted = self._largest or wanted
        others = {key: each for key, each in self._reserved.items() if key != (number, epoch)}
        total = self.spent + sum(others.values(), Spending()) + wanted
        if others and (not self._holds(total) or (is_unknown and self._limits(total))):
            return Grant.WAIT
        self.on_reserve(number, wanted)
        self._reserved[number, epoch] = wanted
        return Grant.GRANTED

    def end_turn(self, number: int, epoch: int, spent: Spending) -> None:
        """A turn ended: *spent* counts instead of what it reserved."""
        self._reserved.pop((number, epoch), None)
        self._count(number, epoch, spent)
        largest = self._largest or Spending()
        is_larger = spent.usage.total_tokens > largest.usage.total_tokens or spent.usd > largest.usd
        self._largest = spent if is_larger else largest

    def forfeit(self, number: int, epoch: int) -> None:
        """The worker of a turn is lost: what it reserved counts as spent."""
        self._count(number, epoch, self._reserved.pop((number, epoch), Spending()))

    def take_spent(self, number: int, epoch: int) -> Spending:
        """What an attempt spent since the last call of this, for its record."""
        return self._new.pop((number, epoch), Spending())

    def _count(self, number: int, epoch: int, spent: Spending) -> None:
        self._tracker.resume(spent.usage, spent.usd)
        self._new[number, epoch] = self._new.get((number, epoch), Spending()) + spent

    def _holds(self, total: Spending) -> bool:
        return all(spent <= limit for spent, limit in self._limits(total))

    def _reaches(self, total: Spending) -> bool:
        return any(spent >= limit for spent, limit in self._limits(total))

    def _limits(self, total: Spending) -> list[tuple[Decimal | int, Decimal | int]]:
        pairs = (
            (total.usage.total_tokens, self.budget.max_total_tokens),
            (total.usage.input_tokens, self.budget.max_input_tokens),
            (total.usage.output_tokens, self.budget.max_output_tokens),
            (total.usd, self.budget.max_cost_usd),
        )
        return [(spent, limit) for spent, limit in pairs if limit is not None]


def _ignore(number: int, spending: Spending) -> None:
    del number, spending


class TurnBudget:
    """The share of an attempt in the budget of its run; in the worker.

    Args:
        request: Asks for a turn and waits for the answer; see ``BudgetPool.request``.
        end_turn: Reports what a turn spent.
    """

    def __init__(
        self, request: Callable[[Spending], str], end_turn: Callable[[Spending], object]
    ) -> None:
        self._request = request
        self._end_turn = end_turn
        self.spent = Spending()

    @contextmanager
    def turn(
        self, usage: TokenUsage | None = None, usd: Decimal = Decimal(0)
    ) -> Generator[ModelTurnBudget]:
        """Reserve *usage* and *usd* for one turn; ``record`` in the block what it spent.

        Without arguments, as much as the largest turn so far is reserved. Waits while other
        attempts have reserved the rest.

        Raises:
            BudgetExceededError: If the budget is spent; the attempt should end. If it does not
                catch this, its outcome is ``stopped``.
        """
        if self._request(Spending(usage or TokenUsage(), usd)) == Grant.SPENT:
            raise BudgetExceededError("the budget of the attempts is spent")
        turn = ModelTurnBudget()
        try:
            yield turn
        finally:
            self.spent += turn.spent
            self._end_turn(turn.spent)


class ModelTurnBudget:
    """One turn; ``spent`` is what was recorded."""

    def __init__(self) -> None:
        self.spent = Spending()

    def record(self, usage: TokenUsage, usd: Decimal = Decimal(0)) -> None:
        """Add what one request spent."""
        self.spent += Spending(usage, usd)
