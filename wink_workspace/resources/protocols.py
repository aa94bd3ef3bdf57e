"""Optional protocols of resources: closing, and saving and restoring state."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

__all__ = ["Closeable", "Snapshotable"]


@runtime_checkable
class Closeable(Protocol):
    """A resource that must be closed when it is no longer needed."""

    def close(self) -> None:
        """Release what it holds. Called once, on the thread that ends its scope."""
        ...


@runtime_checkable
class Snapshotable(Protocol):
    """A resource whose state a transaction can save and restore.

    ``snapshot`` must be cheap: it runs before every call. ``restore`` must leave the resource
    equal to the moment of the token, however often it is called.
    """

    def snapshot(self) -> object:
        """A token for the present state."""
        ...

    def restore(self, token: object) -> None:
        """Restore the state of *token*."""
        ...
