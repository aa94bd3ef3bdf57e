"""What an examination of this machine found: one line for each thing that sandboxes need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding", "State"]

State = Literal["good", "limited", "missing"]
"""``limited``: sandboxes work, with less than could be had. ``missing``: some do not work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        part: What needs it, such as ``podman``.
        name: What it is.
        state: Whether it is as it should be.
        detail: What was found.
        fix: What to do about it, unless it is good.
    """

    part: str
    name: str
    state: State
    detail: str
    fix: str = ""
