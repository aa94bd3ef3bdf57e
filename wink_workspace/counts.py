"""Counts and sizes in words, for users and for models."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["counted", "listed", "sized"]


def counted(n: int, noun: str, plural: str | None = None) -> str:
    """``1 file``, ``1,200 files``; *plural* is for a noun that takes more than an ``s``."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def sized(n_bytes: int) -> str:
    """``512 bytes``, ``3 KiB``, ``65 MiB``, ``2 GiB``, rounded to whole units."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if n_bytes >= 1_024**power:
            return f"{n_bytes / 1_024**power:,.0f} {unit}"
    return counted(n_bytes, "byte")


def listed(names: Sequence[object], limit: int) -> str:
    """``a.py, b.py, …``: at most *limit* of *names*."""
    return ", ".join(map(str, names[:limit])) + (", …" if len(names) > limit else "")
