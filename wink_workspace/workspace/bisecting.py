"""Finds the entry that broke a test, in a binary search over the history.

Rule 1: only entries that changed files are candidates. The newest one must fail the test; it is
tested first. So n candidates take at most 1 + log2(n) tests, rounded up.
Rule 2: every test runs in a fork of the entry, which is deleted afterwards. The workspace does not
change, except that edits made outside of calls are committed first.
Rule 3: an entry that cannot be tested is skipped, and its neighbours are tested instead. If only
skipped ones are left, all of them are suspects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from wink_workspace.errors import UsageError
from wink_workspace.ledger import LogEntry

from .workspace import Workspace


class Verdict(StrEnum):
    """The result of one test."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """This entry cannot be tested."""


@dataclass(frozen=True, slots=True)
class Bisection:
    """The result of a search.

    Attributes:
        suspects: The entries of which one is the first that fails, oldest first. It is one entry
            unless tests were skipped.
        last_passed: The newest entry before them that passed, ``None`` if the oldest one that is
            kept fails.
        n_tests: How many tests were run.
    """

    suspects: tuple[LogEntry, ...]
    last_passed: LogEntry | None
    n_tests: int


def bisect(
    workspace: Workspace,
    test: Callable[[Workspace], Verdict],
    *,
    good: int | str | None = None,
    on_verdict: Callable[[LogEntry, Verdict], object] | None = None,
) -> Bisection:
    """Find the first entry after which *test* fails.

    Args:
        workspace: An open workspace, of any branch.
        test: Looks at an open fork of an entry; it may change the fork.
        good: An entry that is known to pass; by default older ones are tested, too.
        on_verdict: Is called after each test.

    Raises:
        UsageError: If the newest entry does not fail, or nothing changed after *good*.
        EntryMissingError: If there is no entry *good*.
    """
    n_tests = 0

    def verdict_of(entry: LogEntry | None) -> tuple[LogEntry, Verdict]:
        nonlocal n_tests
        n_tests += 1
        with workspace.branches.temporary(at=None if entry is None else entry.number) as fork:
            tested, verdict = fork.head, test(fork)
        if on_verdict is not None:
            on_verdict(tested, verdict)
        return tested, verdict

    first = None if good is None else workspace.entry(good)
    newest, verdict = verdict_of(None)
    if verdict is not Verdict.FAILED:
        raise UsageError(
            f"the test does not fail at the newest entry, {newest.number}: it {verdict}",
            hint="Give a command that fails now; its exit code must not be 0 or 125.",
        )
    candidates = _candidates(workspace, newest, first)
    low, high = -1, len(candidates) - 1  # the newest that passed, the oldest that failed
    skipped: set[int] = set()
    while (n := _middle(low, high, skipped)) is not None:
        _, verdict = verdict_of(candidates[n])
        if verdict is Verdict.SKIPPED:
            skipped.add(n)
        elif verdict is Verdict.FAILED:
            high = n
        else:
            low = n
    last_passed = candidates[low] if low >= 0 else first
    return Bisection(tuple(candidates[low + 1 : high + 1]), last_passed, n_tests)


def _candidates(workspace: Workspace, newest: LogEntry, good: LogEntry | None) -> list[LogEntry]:
    """The entries after *good* that changed files, oldest first; the first is the oldest kept."""
    kept: list[LogEntry] = []
    for entry in workspace.log():
        if good is not None and entry.number <= good.number:
            break
        if entry.number <= newest.number:
            kept.append(entry)
    kept.reverse()
    before = None if good is None else good.files
    found: list[LogEntry] = []
    for entry in kept:
        if entry.files != before:
            found.append(entry)
        before = entry.files
    if not found:
        raise UsageError(
            f"no entry after {good and good.number} changed files, but the newest one fails",
            hint="Name an older entry that passed.",
        )
    return found


def _middle(low: int, high: int, skipped: set[int]) -> int | None:
    """The candidate nearest to the middle between *low* and *high* that was not skipped."""
    untested: Sequence[int] = [n for n in range(low + 1, high) if n not in skipped]
    middle = (low + high) // 2
    return min(untested, key=lambda n: abs(n - middle), default=None)
