"""What a tool hands back, and how a model reads it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, is_dataclass
from typing import Generic, Never, Protocol, TypeVar, runtime_checkable
from weakref import WeakSet

from wink_workspace import serde

from ._generics import firmly_frozen

__all__ = ["ToolRenderableResult", "ToolResult"]

_log = logging.getLogger(__name__)
_warned_types: WeakSet[type] = WeakSet()

R_co = TypeVar("R_co", covariant=True)
V = TypeVar("V")


@runtime_checkable
class ToolRenderableResult(Protocol):
    """A value that knows how a model reads it best."""

    def render(self) -> str:
        """The text that the model sees; the same text every time."""
        ...


@firmly_frozen
@dataclass(frozen=True, slots=True)
class ToolResult(Generic[R_co]):
    """The outcome of one call, as its handler reports it.

    Attributes:
        message: One short text for the model: what was done, or why not and what to do next.
        value: The typed result. A success carries a value of the tool's result type; a failure
            carries ``None``, or details of the error.
        success: ``False`` undoes everything that the call did.
        exclude_value_from_context: Keep the value from the model, which then sees the message
            alone; events and the ledger still record it. Meant for size, not for secrets.
    """

    message: str
    value: R_co | None = None
    success: bool = True
    exclude_value_from_context: bool = False

    @staticmethod
    def ok(value: V, message: str = "", *, exclude_value_from_context: bool = False) -> ToolResult[V]:
        """A success."""
        return ToolResult(
            message, value, exclude_value_from_context=exclude_value_from_context
        )

    @staticmethod
    def error(message: str) -> ToolResult[Never]:
        """A failure without a value; say in *message* what to do next."""
        return ToolResult(message, success=False)

    def render(self) -> str:
        """The value as text: its own ``render()`` if it has one, else JSON.

        A string is itself and ``None`` is ``""``. A ``render()`` that raises, or gives
        something other than a string, is logged and JSON takes its place. JSON leaves out
        fields that are ``None``.

        Raises:
            SchemaError: If JSON has to do and the value holds something it cannot express.
        """
        raise NotImplementedError

    def provider_text(self, rendered: str | None = None) -> str:
        """What the model sees: the message, a blank line, the rendered value.

        Args:
            rendered: What ``render()`` gave before, when the caller has it already.
        """
        raise NotImplementedError
