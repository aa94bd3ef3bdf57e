"""Closes what an object has opened: with the object, or at the end of a block."""

from __future__ import annotations

import os
import weakref
from typing import Any, Self

__all__ = ["ClosedAfterBlock", "closed_with", "put_at", "put_nothing_at"]


def closed_with(owner: object, descriptor: int) -> weakref.finalize[[int], Any]:
    """Close *descriptor* when *owner* is deleted, or when the result is called before that.

    Not in ``__del__``: weak references are cleared after that, so another thread could be given an
    object whose descriptor is being closed. And not when the interpreter ends: what still runs then
    may use the object, and the number could belong to another file by that time.
    """
    finalizer = weakref.finalize(owner, os.close, descriptor)
    finalizer.atexit = False
    return finalizer


def put_at(descriptor: int, opened: int) -> None:
    """Let *descriptor* be what *opened* is, at once for all threads, and close *opened*."""
    os.dup2(opened, descriptor, inheritable=False)
    os.close(opened)


def put_nothing_at(descriptor: int) -> None:
    """Close what *descriptor* is, and keep the number; no path can be opened below it."""
    put_at(descriptor, os.open(os.devnull, os.O_PATH | os.O_CLOEXEC))


class ClosedAfterBlock:
    """An object that can be used with ``with``; the end of the block closes it."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what the object has opened."""
        raise NotImplementedError
