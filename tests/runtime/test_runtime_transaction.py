"""Transactions restore every participant, newest first, or raise."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator
from contextlib import contextmanager

import pytest

from wink_workspace.errors import PoisonedError, RollbackError
from wink_workspace.runtime import Transaction, transactions_of
from wink_workspace.runtime.transaction import SessionTransactions
from wink_workspace.session import Session


class Cell:
    """The smallest participant: one value, a log of its restores, and a switchable fault."""

    def __init__(self, value: str, log: list[str] | None = None) -> None:
        self.value = value
        self.log = [] if log is None else log
        self.broken = False

    def snapshot(self) -> object:
        return self.value

    def restore(self, token: object) -> None:
        if self.broken:
            raise OSError(f"{self.value} cannot be restored")
        self.log.append(self.value)
        self.value = str(token)


@contextmanager
def opened(
    transactions: SessionTransactions, cell: Cell, *, discard: Callable[[], object] = lambda: None
) -> Generator[Transaction]:
    """Open a transaction with one participant; it is rolled back unless the block commits it."""
    transaction = Transaction(discard=discard)
    transactions.begin(transaction)
    try:
        transactions.join([cell])
        yield transaction
    finally:
        transactions.end(transaction)


def test_rollback_restores_newest_first() -> None:
    log: list[str] = []
    cells = [Cell("a", log), Cell("b", log), Cell("c", log)]
    transaction = Transaction()
    for cell in cells:
        transaction.join(cell)
    transaction.rollback()
    assert log == ["c", "b", "a"]


def test_a_participant_keeps_the_snapshot_of_its_first_joining() -> None:
    cell = Cell("before")
    transaction = Transaction()
    transaction.join(cell)
    cell.value = "after"
    transaction.join(cell)
    transaction.rollback()
    assert cell.value == "before"


@pytest.mark.behaviour(34)
def test_a_rollback_restores_every_participant_that_does_not_fail() -> None:
    for broken in itertools.product([False, True], repeat=3):
        cells = [Cell("before") for _ in broken]
        transaction = Transaction()
        for cell, fails in zip(cells, broken, strict=True):
            transaction.join(cell)
            cell.value, cell.broken = "after", fails
        if any(broken):
            with pytest.raises(RollbackError) as caught:
                transaction.rollback()
            assert len(caught.value.failures) == sum(broken)
        else:
            transaction.rollback()
        assert [cell.value for cell in cells] == ["after" if b else "before" for b in broken]


def test_discard_runs_before_any_participant_is_restored() -> None:
    log: list[str] = []
    transaction = Transaction(discard=lambda: log.append("discard"))
    transaction.join(Cell("restore", log))
    transaction.rollback()
    assert log == ["discard", "restore"]


@pytest.mark.parametrize("error", [OSError("stuck"), KeyboardInterrupt()])
def test_every_participant_is_restored_even_if_discarding_fails(error: BaseException) -> None:
    def discard() -> None:
        raise error

    cell = Cell("before")
    transactions = transactions_of(Session())
    with pytest.raises(type(error)):
        with transactions.turn(), opened(transactions, cell, discard=discard):
            cell.value = "after"
    assert cell.value == "before"
    with transactions.turn():
        pass


def test_recovering_does_not_discard_a_second_time() -> None:
    cell, log = Cell("before"), list[str]()
    transactions = transactions_of(Session())
    with pytest.raises(RollbackError):
        with transactions.turn():
            with opened(transactions, cell, discard=lambda: log.append("discard")):
                cell.value, cell.broken = "after", True
    cell.broken = False
    transactions.recover()
    assert (cell.value, log) == ("before", ["discard"])


def test_leaving_the_block_without_a_commit_rolls_back() -> None:
    cell = Cell("before")
    transactions = transactions_of(Session())
    with transactions.turn(), opened(transactions, cell):
        cell.value = "after"
    assert cell.value == "before"


def test_leaving_the_block_after_a_commit_keeps_the_changes() -> None:
    cell = Cell("before")
    transactions = transactions_of(Session())
    with transactions.turn(), opened(transactions, cell) as span:
        cell.value = "after"
        span.commit()
    assert cell.value == "after"


def test_a_participant_that_joins_a_savepoint_joins_the_outer_transactions() -> None:
    outer_cell, inner_cell = Cell("outer before"), Cell("inner before")
    transactions = transactions_of(Session())
    with transactions.turn(), opened(transactions, outer_cell):
        with opened(transactions, inner_cell) as inner:
            inner_cell.value = "inner after"
            inner.commit()
        assert inner_cell.value == "inner after"
    assert inner_cell.value == "inner before"


def test_a_failed_rollback_poisons_the_session_until_it_is_recovered() -> None:
    cell = Cell("before")
    transactions = transactions_of(Session())
    with pytest.raises(RollbackError):
        with transactions.turn(), opened(transactions, cell):
            cell.value, cell.broken = "after", True
    with pytest.raises(PoisonedError), transactions.turn():
        pass
    with pytest.raises(RollbackError):
        transactions.recover()
    cell.broken = False
    transactions.recover()
    assert cell.value == "before"
    with transactions.turn():
        pass


def test_a_successful_outer_rollback_repairs_a_failed_inner_one() -> None:
    cell = Cell("before")
    transactions = transactions_of(Session())
    with transactions.turn(), opened(transactions, cell):
        with pytest.raises(RollbackError):
            with opened(transactions, cell):
                cell.value, cell.broken = "after", True
        cell.broken = False
    assert cell.value == "before"
    with transactions.turn():
        pass


def test_recovering_without_a_failed_rollback_changes_nothing() -> None:
    cell = Cell("before")
    transactions = transactions_of(Session())
    with transactions.turn(), opened(transactions, cell) as work:
        cell.value = "after"
        transactions.recover()
        work.commit()
    transactions.recover()
    assert (cell.value, cell.log) == ("after", [])


def test_every_executor_on_one_session_shares_its_transactions() -> None:
    session = Session()
    assert transactions_of(session) is transactions_of(session)
    assert transactions_of(session) is not transactions_of(Session())
