"""What travels between a coordinator and the nodes of its cluster; all of it can be pickled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from wink_workspace.attempts.budget import Spending
from wink_workspace.attempts.engine_protocol import AttemptPlan, AttemptResult
from wink_workspace.attempts.forwarded_logs import LogLine

__all__ = ["WIRE_VERSION", "Base", "BaseMissing", "Finished", "NodeRules", "Requirements"]

WIRE_VERSION: Final = 3
"""Raise it with every change of these types, and of the form of bundles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRules:
    """What is the same for every task of a run.

    Attributes:
        plan: The plan; its folder means nothing on a node.
        files: The tree of files of the base.
        start: The entry with these files, from ``pack_start``.
        cache: The directory of the node's cache.
        cache_bytes: Its budget.
        progress_s: How often the entries of a running attempt are sent at most.
    """

    plan: AttemptPlan
    files: str
    start: bytes
    cache: str
    cache_bytes: int
    progress_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What a node must have.

    Attributes:
        python: The Python version, such as ``3.11``.
        version: The version of wink-workspace.
        wire: ``WIRE_VERSION``.
        functions: The attempt and the scorer, pickled.
        cache: The directory of the node's cache.
        sandbox: The name of a sandbox that must work there; empty for none.
        image: The image that it must have; empty for none.
        needs_overlay: Whether workspaces must be overlays there.
    """

    python: str
    version: str
    wire: int
    functions: bytes
    cache: str
    sandbox: str
    image: str
    needs_overlay: bool

    def fields(self) -> dict[str, Any]:
        """The same without types of ours, which a node of another version could not load."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """Where the bundle of the base is in the cluster.

    Attributes:
        parts: References to its parts.
        part_bytes: The size of each part but the last.
        n_bytes: The size of all.
    """

    parts: Sequence[Any]
    part_bytes: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class BaseMissing:
    """The node does not have the base: send the task again, with the base."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A task that ended.

    Attributes:
        result: The result.
        bundle: What the fork added, from ``pack_result``; empty if it could not be opened.
        turns: What each of its turns spent, in their order.
        lines: What it logged, in its order.
    """

    result: AttemptResult
    bundle: bytes
    turns: tuple[Spending, ...]
    lines: tuple[LogLine, ...]
