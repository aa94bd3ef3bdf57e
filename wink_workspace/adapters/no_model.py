"""What stands in for an adapter where tools are called without a model."""

from __future__ import annotations

from wink_workspace.errors import PromptEvaluationError

from .core import ProviderAdapter
from .messages import ModelRequest, ModelTurn

__all__ = ["NoModelAdapter"]


class NoModelAdapter(ProviderAdapter[None]):
    """Refuses to evaluate: who calls the tools is a program, or the model of a remote client."""

    provider_name = "none"
    model_name = "none"

    def complete(self, request: ModelRequest) -> ModelTurn:  # noqa: ARG002 - the signature of the base class
        """Raise ``PromptEvaluationError``."""
        raise PromptEvaluationError(
            "a tool asked for a model, and there is none on this side",
            phase="request",
            hint="Offer this tool in a run with a model adapter.",
        )
