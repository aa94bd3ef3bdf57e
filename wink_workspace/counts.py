"""Counts and sizes in words, for users and for models."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["counted", "lasted", "listed", "sized"]


def counted(n: int, noun: str, plural: str | None = None) -> str:
    """``1 file``, ``1,200 files``; *plural* is for a noun that takes more than an ``s``."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def sized(n_bytes: int) -> str:
    """``512 bytes``, ``3 KiB``, ``65 MiB``, ``2 GiB``, rounded to whole units."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if n_bytes >= 1_024**power:
            return f"{n_bytes / 1_024**power:,.0f} {unit}"
    return counted(n_bytes, "byte")


def lasted(seconds: float) -> str:
    """``0.3s``, ``42s``, ``8m``, ``1h30m``, ``3d4h``: two units, as options take them."""
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    left, parts = int(seconds), list[str]()
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        n, left = divmod(left, size)
        parts += [f"{n}{unit}" if n else ""] if n or parts else []
    return "".join(parts[:2])


def listed(names: Sequence[object], limit: int) -> str:
    """``a.py, b.py, …``: at most *limit* of *names*."""
    return ", ".join(map(str, names[:limit])) + (", …" if len(names) > limit else "")
