"""What models cost, and how large their context windows are, from the package ``genai-prices``.

The data come with the installed package; nothing is downloaded. They are list prices: discounts,
taxes and the prices of other services behind the same names are not known.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from wink_workspace.clock import TokenUsage

if TYPE_CHECKING:
    from genai_prices.types import PriceCalculation


def cost_of(usage: TokenUsage, model: str) -> Decimal | None:
    """What one request cost, in US dollars; ``None`` if the price is not known.

    Args:
        usage: The tokens of one request. Some prices depend on its size, so add costs, not tokens.
        model: ``PROVIDER:NAME``.
    """
    try:
        found = _priced(usage, model)
    except ValueError:  # contradictory counts of cached tokens: none of them is cheaper then
        found = _priced(TokenUsage(usage.input_tokens, usage.output_tokens), model)
    return None if found is None else found.total_price


def context_tokens_of(model: str) -> int | None:
    """The size of the context window of ``PROVIDER:NAME`` in tokens; ``None`` if not known."""
    found = _priced(TokenUsage(), model)
    return None if found is None else found.model.context_window


def _priced(usage: TokenUsage, model: str) -> PriceCalculation | None:
    try:
        from genai_prices import Usage, calc_price
    except ImportError:  # it comes with the extra "models"
        return None
    provider, _, name = model.partition(":")
    counts = Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_written_tokens,
    )
    try:
        return calc_price(counts, name, provider_id=provider)
    except LookupError:
        return None
