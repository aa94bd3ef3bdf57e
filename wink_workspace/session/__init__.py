"""Typed immutable state that only events change: slices, reducers, snapshots, dispatch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .chunked_map import ChunkedMap, InnerNode, Leaf, MapPart
    from .events import (
        TELEMETRY_EVENTS,
        ExternalChange,
        Outcome,
        PolicyVerdict,
        PromptExecuted,
        PromptRendered,
        SliceWritten,
        ToolInvoked,
        WorkspaceRestored,
    )
    from .progress import OutputLines, ToolOutput, ToolStarted, call_subject
    from .reducers import (
        Reducer,
        append_all,
        reducer,
        replace_latest,
        replace_latest_by,
        upsert_by,
    )
    from .session import (
        Dispatcher,
        EventBus,
        Session,
        SessionProtocol,
        SessionSnapshot,
        SliceAccessor,
    )
    from .slices import (
        CHUNK_VALUES,
        Append,
        Clear,
        Replace,
        ReplaceAt,
        SliceKind,
        SliceOp,
        SliceView,
    )

__all__ = [
    "CHUNK_VALUES",
    "TELEMETRY_EVENTS",
    "Append",
    "ChunkedMap",
    "Clear",
    "Dispatcher",
    "EventBus",
    "ExternalChange",
    "InnerNode",
    "Leaf",
    "MapPart",
    "Outcome",
    "OutputLines",
    "PolicyVerdict",
    "PromptExecuted",
    "PromptRendered",
    "Reducer",
    "Replace",
    "ReplaceAt",
    "Session",
    "SessionProtocol",
    "SessionSnapshot",
    "SliceAccessor",
    "SliceKind",
    "SliceOp",
    "SliceView",
    "SliceWritten",
    "ToolInvoked",
    "ToolOutput",
    "ToolStarted",
    "WorkspaceRestored",
    "append_all",
    "call_subject",
    "reducer",
    "replace_latest",
    "replace_latest_by",
    "upsert_by",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
