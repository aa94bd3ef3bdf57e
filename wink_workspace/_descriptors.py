"""Closes a file descriptor with the object that uses it."""

from __future__ import annotations

import os
import weakref
from typing import Any

__all__ = ["closed_with"]


def closed_with(owner: object, descriptor: int) -> weakref.finalize[[int], Any]:
    """Close *descriptor* when *owner* is deleted, or when the result is called before that.

    Not in ``__del__``: weak references are cleared after that, so another thread could be given an
    object whose descriptor is being closed. And not when the interpreter ends: what still runs then
    may use the object, and the number could belong to another file by that time.
    """
    finalizer = weakref.finalize(owner, os.close, descriptor)
    finalizer.atexit = False
    return finalizer
