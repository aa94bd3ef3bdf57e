"""How many random cases ``make test`` makes, and which points of a sweep it takes.

``make soak`` makes all of them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

in_soak = False
"""Set before tests are imported."""

RUN = "PYTEST_XDIST_TESTRUNUID"
"""The variable with the name of a run with workers; only such a run leaves cases out."""


def run_seed() -> str:
    """Return what the choices of this run depend on: in CI the same in every run."""
    return "suite" if os.environ.get("CI") else os.environ[RUN]


def examples(n: int) -> int:
    """Return how many of *n* cases to make in this run."""
    return n if in_soak else max(10, n // 4)


def some(points: Iterable[T], n: int) -> list[T]:
    """Return *n* of *points* in their order; all in soak and without workers.

    It is for tests with the mark ``sweep``.
    """
    every = list(points)
    if in_soak or RUN not in os.environ or n >= len(every):
        return every
    seed = f"{run_seed()} {os.environ.get('PYTEST_CURRENT_TEST')} {every}"
    chosen = random.Random(seed).sample(range(len(every)), n)
    return [every[index] for index in sorted(chosen)]
