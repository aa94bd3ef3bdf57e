"""How much of a diff is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wink_workspace.errors import UsageError

__all__ = ["DEFAULT_DIFF_LIMITS", "DiffLimits"]

_MIB: Final = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLimits:
    """Limits on the work and the memory for one diff, which also bound the time.

    A path above a limit is named in one line; the others are shown. All limits count work, not
    time, so that the same diff is always shown in the same way.

    Attributes:
        path_bytes: Largest content, before or after, that is read into memory.
        path_binary_bytes: Largest binary content that is shown.
        path_lines: Most lines, before or after, between the first and the last difference.
        total_bytes: Most bytes read for all paths.
        total_lines: Most lines compared for all paths, both sides together.
        piece_lines: Most lines that are compared at once, both sides together. A longer part is
            split at lines that occur once in both. A piece that is still longer counts as
            replaced.
        rename_bytes: Most bytes read, for all paths, to find files that were renamed and changed.
        rename_lines: Most lines read for that.
    """

    path_bytes: int = 64 * _MIB
    path_binary_bytes: int = 4 * _MIB
    path_lines: int = 1_000_000
    total_bytes: int = 256 * _MIB
    total_lines: int = 2_000_000
    piece_lines: int = 524_288
    rename_bytes: int = 16 * _MIB
    rename_lines: int = 500_000

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} is {getattr(self, name)}", hint="Use a positive number.")


DEFAULT_DIFF_LIMITS: Final = DiffLimits()
