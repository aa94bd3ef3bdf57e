"""What a resource may offer to those who look after it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

__all__ = ["Closeable", "Snapshotable"]


@runtime_checkable
class Closeable(Protocol):
    """A resource that has something to give back when it is no longer needed."""

    def close(self) -> None:
        """Give it back. Called once, on the thread that ends the resource's life."""
        ...


@runtime_checkable
class Snapshotable(Protocol):
    """A resource whose state a transaction can save and put back.

    ``snapshot`` must be cheap: it runs before every call. ``restore`` must leave the resource
    equal to the moment of the token, however often it is called.
    """

    def snapshot(self) -> object:
        """A token for the present state."""
        ...

    def restore(self, token: object) -> None:
        """Put the state of *token* back."""
        ...
