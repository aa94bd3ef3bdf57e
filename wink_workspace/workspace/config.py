"""How a workspace behaves."""

from __future__ import annotations

from dataclasses import dataclass

from wink_workspace.filesystem import FilesystemLimits
from wink_workspace.ledger import Retention

__all__ = ["WorkspaceConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceConfig:
    """How a workspace behaves.

    Attributes:
        limits: Bounds on single file operations.
        retention: How much history is kept.
        durable: Whether a committed call survives a loss of power, not only the death of the
            process; each call then waits for the device.
        force_scan: Look at every file after each call instead of being told of changes.
    """

    limits: FilesystemLimits = FilesystemLimits()  # noqa: RUF009 - frozen, so it may be shared
    retention: Retention = Retention()  # noqa: RUF009 - likewise
    durable: bool = False
    force_scan: bool = False
