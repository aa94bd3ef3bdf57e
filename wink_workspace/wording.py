"""How a number of things is put into words, for people and for models."""

from __future__ import annotations

__all__ = ["counted"]


def counted(n: int, noun: str, plural: str | None = None) -> str:
    """``1 file``, ``1,200 files``; *plural* is for a noun that takes more than an ``s``."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"
