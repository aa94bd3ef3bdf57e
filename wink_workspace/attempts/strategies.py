"""Strategies: which attempts run next, given those that ended; and when a run stops early.

A strategy is called when every attempt that it chose has ended. Its answer depends on its arguments
only, so a run that is resumed continues in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from .engine_protocol import AttemptResult, Score

Strategy = Callable[[int, Sequence[AttemptResult]], Sequence[int]]
"""Returns the numbers to run next: new ones from 1 to n, or ended ones for one more round.

An empty answer ends the run. n grows by the attempts that ``context.branch`` asked for."""

Stop = Callable[[Sequence[AttemptResult]], bool]
"""Whether the run may stop, given the results so far; asked after each one."""


class Ranked(Protocol):
    """A result, or the status of an attempt."""

    @property
    def number(self) -> int:
        """Its place among the attempts, from 1."""
        ...

    @property
    def score(self) -> Score | None:
        """What was measured; ``None`` without a score."""
        ...

    @property
    def passed(self) -> bool:
        """Whether its run and its checks succeeded."""
        ...


def rank(result: Ranked) -> tuple[bool, float, int]:
    """The best result has the highest rank: passed, then score, then the lowest number."""
    value = float("-inf") if result.score is None else result.score.value
    return result.passed, value, -result.number


def best_of_n(n: int, results: Sequence[AttemptResult]) -> Sequence[int]:
    """Run every attempt once; *n* is the number of attempts, *results* are those so far.

    Returns the numbers of the attempts to run next, from 0; none ends the search.
    """
    ended = {result.number for result in results}
    return [number for number in range(1, n + 1) if number not in ended]


def tree_search(n: int, results: Sequence[AttemptResult]) -> Sequence[int]:
    """Run every attempt once, then those that ``context.branch`` asked for in the better half.

    *n* is the number of attempts at the beginning, *results* are those so far; see ``Strategy``.
    """
    if not (waiting := best_of_n(n, results)):
        return ()
    roots = n - sum(result.n_children for result in results)
    if not results:
        return waiting[:roots]
    chosen = sorted((result for result in results if result.n_children), key=rank, reverse=True)
    better = {result.number for result in chosen[: -(-len(chosen) // 2)]}
    following, allowed = roots + 1, list[int]()
    for result in sorted(results, key=lambda each: each.number):
        children = range(following, following + result.n_children)
        following = children.stop
        if result.number in better:
            allowed += [number for number in children if number in waiting]
    return allowed


def successive_halving(n: int, results: Sequence[AttemptResult]) -> Sequence[int]:
    """Run every attempt once, then the better half for one more round, until one is left.

    *n* is the number of attempts at the beginning, *results* are those so far; see
    ``Strategy``. The function is called again on the same branch, with a higher ``context.round``.
    """
    if first := best_of_n(n, results):
        return first
    last = max(result.round for result in results)
    there = sorted((each for each in results if each.round == last), key=rank, reverse=True)
    return [] if len(there) == 1 else [each.number for each in there[: -(-len(there) // 2)]]


def first_passing(results: Sequence[AttemptResult]) -> bool:
    """Stop as soon as one attempt passes: whether one of the *results* so far has."""
    return any(result.passed for result in results)
