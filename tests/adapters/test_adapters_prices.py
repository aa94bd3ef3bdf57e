"""Prices and context windows of models, from data that come with a package."""

from __future__ import annotations

from decimal import Decimal

import pytest

from wink_workspace.adapters.prices import context_tokens_of, cost_of
from wink_workspace.clock import Budget, BudgetTracker, TokenUsage
from wink_workspace.errors import BudgetExceededError, UsageError


@pytest.mark.parametrize(
    "model", ["openai:gpt-5", "openai-chat:gpt-5", "anthropic:claude-opus-4-1"]
)
def test_the_price_of_a_known_model(model: str) -> None:
    plain = cost_of(TokenUsage(1_000_000, 1_000), model)
    cached = cost_of(TokenUsage(1_000_000, 1_000, cached_tokens=900_000), model)
    assert plain is not None
    assert cached is not None
    assert Decimal("0.1") < cached < plain < 100
    window = context_tokens_of(model)
    assert window is not None
    assert window >= 100_000


def test_contradictory_counts_of_cached_tokens_have_the_price_without_a_cache() -> None:
    usage = TokenUsage(1_000, 10, cached_tokens=2_000)
    assert cost_of(usage, "openai:gpt-5") == cost_of(TokenUsage(1_000, 10), "openai:gpt-5")


@pytest.mark.parametrize("model", ["anthropic:no-such-model", "nowhere:gpt-5", "scripted", ""])
def test_the_price_of_an_unknown_model_is_not_known(model: str) -> None:
    assert (cost_of(TokenUsage(1, 1), model), context_tokens_of(model)) == (None, None)


@pytest.mark.behaviour(116)
def test_a_budget_of_money_is_exceeded_by_the_least_amount_above_it() -> None:
    tracker = BudgetTracker(Budget(max_cost_usd=Decimal("0.02")), lambda _: Decimal("0.01"))
    tracker.record(TokenUsage(1, 1))
    tracker.record(TokenUsage(1, 1))
    tracker.check()
    tracker.resume(TokenUsage(), Decimal("0.0001"))
    with pytest.raises(BudgetExceededError, match=r"\$0.0201 used, \$0.02 allowed"):
        tracker.check()


@pytest.mark.behaviour(116)
def test_a_request_without_a_price_ends_a_run_whose_cost_is_limited() -> None:
    tracker = BudgetTracker(Budget(max_cost_usd=Decimal(5)), lambda _: None)
    tracker.check()
    tracker.record(TokenUsage(1, 1))
    with pytest.raises(BudgetExceededError, match="the cost is not known"):
        tracker.check()
    assert tracker.cost_usd is None


def test_a_budget_of_money_needs_prices() -> None:
    with pytest.raises(UsageError, match="no prices"):
        BudgetTracker(Budget(max_cost_usd=Decimal(5)))
