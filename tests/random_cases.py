"""How many random cases a property makes: a quarter in ``make test``, all in ``make soak``."""

from __future__ import annotations

in_soak = False
"""Set before tests are imported."""


def examples(n: int) -> int:
    """Return how many of *n* cases to make in this run."""
    return n if in_soak else max(10, n // 4)
