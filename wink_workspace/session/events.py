"""The telemetry events, and the event of a direct write to a slice.

An event is a frozen dataclass in the past tense. The telemetry events (``TELEMETRY_EVENTS``)
are LOG slices of every session from the start, so a rollback never erases them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from wink_workspace.clock import TokenUsage

from .slices import SliceOp


class Outcome(StrEnum):
    """The outcome of a call."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    UNKNOWN = "unknown"
    """The call failed, or a crash interrupted it, when an effect outside may have begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVerdict:
    """One policy's decision about one call; ``reason`` is empty if it gave none."""

    policy: str
    allowed: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInvoked:
    """The record of one tool call, failed or not; exactly one per call.

    ``params`` is the parsed object, or the raw arguments if parsing failed. ``rendered_text`` is
    the rendered value only (``""`` for ``None``), ``text`` what the provider saw. ``error`` is the
    traceback of an exception in the call. ``decisions`` are those of the policies, in the order in
    which they were asked. ``depth`` is 0 for a call of the model, and 1 more for
    each call around it. ``notes`` list discarded files that a rollback could not keep, and
    ``outside_effects`` what neither a rollback nor an undo takes back. ``uncertain_paths`` changed
    while another program's call ran, by the call or not.
    """

    call_id: str
    tool: str
    prompt: str
    params: object
    success: bool
    message: str
    value: object
    rendered_text: str
    text: str
    outcome: Outcome
    started_at: datetime
    duration_s: float
    decisions: tuple[PolicyVerdict, ...] = ()
    error: str | None = None
    depth: int = 0
    notes: tuple[str, ...] = ()
    outside_effects: tuple[str, ...] = ()
    uncertain_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRendered:
    """A prompt was rendered; ``tools`` are the names of its tools, in order."""

    prompt: str
    text: str
    tools: tuple[str, ...]
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptExecuted:
    """A run ended with an answer; ``output`` is its parsed form, ``None`` for plain text."""

    prompt: str
    text: str
    output: object
    usage: TokenUsage
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalChange:
    """``paths`` were edited outside of any call, between two calls."""

    paths: tuple[str, ...]
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceRestored:
    """An undo, redo or restore changed ``paths``; ``reason`` says which and why."""

    reason: str
    paths: tuple[str, ...]
    at: datetime


@dataclass(frozen=True, slots=True)
class SliceWritten:
    """The slice ``slice_type`` was written by ``seed``, ``append`` or ``clear``, with ``op``."""

    slice_type: type[object]
    op: SliceOp[object]


TELEMETRY_EVENTS: tuple[type[object], ...] = (
    ToolInvoked,
    PromptRendered,
    PromptExecuted,
    ExternalChange,
    WorkspaceRestored,
)
