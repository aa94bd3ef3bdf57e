"""Attempts: many tries at a task, each in a fork of a workspace; the best one is merged.

``Attempts`` coordinates; an ``Engine`` runs the attempts; a strategy chooses what runs next.
Importing this package loads nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .attempt_context import AttemptContext
    from .attempt_reader import AttemptPhase, AttemptStatus, RunStatus, read_run, read_runs
    from .budget import BudgetPool, TurnBudget
    from .coordinator import Attempts
    from .engine_protocol import (
        AttemptEvent,
        AttemptOutcome,
        AttemptPlan,
        AttemptResult,
        AttemptTask,
        Cost,
        Engine,
        EventKind,
        LogLine,
        Score,
    )
    from .engines import engine_at
    from .local_engine import LocalEngine
    from .ray_engine import RayEngine
    from .scoring import CommandScore
    from .strategies import (
        Stop,
        Strategy,
        best_of_n,
        first_passing,
        successive_halving,
        tree_search,
    )

__all__ = [
    "AttemptContext",
    "AttemptEvent",
    "AttemptOutcome",
    "AttemptPhase",
    "AttemptPlan",
    "AttemptResult",
    "AttemptStatus",
    "AttemptTask",
    "Attempts",
    "BudgetPool",
    "CommandScore",
    "Cost",
    "Engine",
    "EventKind",
    "LocalEngine",
    "LogLine",
    "RayEngine",
    "RunStatus",
    "Score",
    "Stop",
    "Strategy",
    "TurnBudget",
    "best_of_n",
    "engine_at",
    "first_passing",
    "read_run",
    "read_runs",
    "successive_halving",
    "tree_search",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
