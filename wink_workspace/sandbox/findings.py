"""Findings of ``wink-workspace doctor``: one for each thing that a sandbox needs of the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding", "State"]

State = Literal["good", "limited", "missing"]
"""``limited``: sandboxes work, but with fewer features. ``missing``: some do not work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        part: The backend that needs it, such as ``podman``.
        name: What was checked.
        state: The result.
        detail: What the check found.
        fix: What the user can do; empty if the state is ``good``.
    """

    part: str
    name: str
    state: State
    detail: str
    fix: str = ""
