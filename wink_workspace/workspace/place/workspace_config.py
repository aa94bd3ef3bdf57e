"""The settings of a workspace."""

from __future__ import annotations

from dataclasses import dataclass

from wink_workspace.filesystem import FilesystemLimits
from wink_workspace.ledger import Retention

from .path_rules import ImportConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceConfig:
    """The settings of a workspace.

    Attributes:
        limits: Bounds on single file operations.
        retention: How much history is kept.
        durable: Whether a committed call survives a power loss, not only the death of the
            process. Each call then waits for the device.
        fold_above: Number of entries in the own layer of a branch on an overlay; above it, opening
            the branch makes a new base of its newest entry.
        force_scan: Scan all files after each call, without change events of the system.
        imported: Which paths a new copy takes from its source, and which of them it records.
    """

    limits: FilesystemLimits = FilesystemLimits()  # noqa: RUF009 - frozen, so it may be shared
    retention: Retention = Retention()  # noqa: RUF009 - likewise
    durable: bool = False
    force_scan: bool = False
    fold_above: int = 10_000
    imported: ImportConfig = ImportConfig()  # noqa: RUF009 - likewise
