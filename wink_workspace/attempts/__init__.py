"""Attempts: many tries at a task, each in a fork of a workspace; the best one is merged.

``Attempts`` coordinates; an ``Engine`` runs the attempts; a strategy chooses what runs next.
Importing this package loads nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .attempt_context import AttemptContext as AttemptContext
    from .attempt_reader import AttemptPhase as AttemptPhase
    from .attempt_reader import AttemptStatus as AttemptStatus
    from .attempt_reader import RunStatus as RunStatus
    from .attempt_reader import read_run as read_run
    from .attempt_reader import read_runs as read_runs
    from .budget import BudgetPool as BudgetPool
    from .budget import TurnBudget as TurnBudget
    from .coordinator import Attempts as Attempts
    from .engine_protocol import AttemptEvent as AttemptEvent
    from .engine_protocol import AttemptOutcome as AttemptOutcome
    from .engine_protocol import AttemptPlan as AttemptPlan
    from .engine_protocol import AttemptResult as AttemptResult
    from .engine_protocol import AttemptTask as AttemptTask
    from .engine_protocol import Cost as Cost
    from .engine_protocol import Engine as Engine
    from .engine_protocol import EventKind as EventKind
    from .engine_protocol import LogLine as LogLine
    from .engine_protocol import Score as Score
    from .engines import engine_at as engine_at
    from .local_engine import LocalEngine as LocalEngine
    from .ray_engine import RayEngine as RayEngine
    from .scoring import CommandScore as CommandScore
    from .strategies import Stop as Stop
    from .strategies import Strategy as Strategy
    from .strategies import best_of_n as best_of_n
    from .strategies import first_passing as first_passing
    from .strategies import successive_halving as successive_halving
    from .strategies import tree_search as tree_search

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
