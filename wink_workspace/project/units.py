"""Sizes and times as people write them: ``500M``, ``20GiB``, ``90s``, ``1h30m``."""

from __future__ import annotations

import re
from typing import Final

from wink_workspace.errors import UsageError

__all__ = ["parse_seconds", "parse_size"]

_SIZE: Final = re.compile(r"([0-9]{1,15})\s*([KMGT]?)(?:i?B)?", re.IGNORECASE | re.ASCII)
_TIME: Final = re.compile(
    r"(?:([0-9]{1,6})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?", re.ASCII
)


def parse_size(text: str) -> int:
    """The number of bytes in a size such as ``500M`` or ``20GiB``, in powers of 1,024.

    Raises:
        UsageError: If it is not a size, or zero.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise UsageError(f"{text!r} is not a size", hint="Write a size such as 500M or 20G.")
    return int(found[1]) * 1_024 ** " KMGT".index(found[2].upper() or " ")


def parse_seconds(text: str) -> float:
    """The number of seconds in a time such as ``90s``, ``30m``, ``1h30m`` or ``7d``.

    Raises:
        UsageError: If it is not a time, or zero.
    """
    found = _TIME.fullmatch(text.strip())
    days, hours, minutes, seconds = (
        (int(part or 0) for part in found.groups()) if found else (0, 0, 0, 0)
    )
    total = days * 86_400 + hours * 3600 + minutes * 60 + seconds
    if not total:
        raise UsageError(f"{text!r} is not a time", hint="Write it as 90s, 30m or 1h30m.")
    return float(total)
