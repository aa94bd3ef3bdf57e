"""The budgets of a run that no option, variable or file sets."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

__all__ = ["RunBudgets"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBudgets:
    """When a run ends that does not end by itself; what a resumed run used before counts.

    Attributes:
        tokens: Input and output tokens of all turns; input that a cache served counts.
        turns: Turns of the model.
        time: Seconds, without the time between an interruption and the resumption.
        money: US dollars, at list prices; ``None`` for no limit.
    """

    tokens: int = 5_000_000
    turns: int = 200
    time: float = 7_200.0
    money: Decimal | None = None
