"""How a section is shown."""

from __future__ import annotations

from enum import StrEnum


class SectionVisibility(StrEnum):
    """How much of a section is shown."""

    FULL = "full"
    SUMMARY = "summary"
