"""Typed immutable state that only events change: slices, reducers, snapshots, dispatch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .chunked_map import ChunkedMap as ChunkedMap
    from .chunked_map import InnerNode as InnerNode
    from .chunked_map import Leaf as Leaf
    from .chunked_map import MapPart as MapPart
    from .events import TELEMETRY_EVENTS as TELEMETRY_EVENTS
    from .events import ExternalChange as ExternalChange
    from .events import Outcome as Outcome
    from .events import PolicyVerdict as PolicyVerdict
    from .events import PromptExecuted as PromptExecuted
    from .events import PromptRendered as PromptRendered
    from .events import SliceWritten as SliceWritten
    from .events import ToolInvoked as ToolInvoked
    from .events import WorkspaceRestored as WorkspaceRestored
    from .progress import OutputLines as OutputLines
    from .progress import ToolOutput as ToolOutput
    from .progress import ToolStarted as ToolStarted
    from .progress import call_subject as call_subject
    from .reducers import Reducer as Reducer
    from .reducers import append_all as append_all
    from .reducers import reducer as reducer
    from .reducers import replace_latest as replace_latest
    from .reducers import replace_latest_by as replace_latest_by
    from .reducers import upsert_by as upsert_by
    from .session import Dispatcher as Dispatcher
    from .session import EventBus as EventBus
    from .session import Session as Session
    from .session import SessionProtocol as SessionProtocol
    from .session import SessionSnapshot as SessionSnapshot
    from .session import SliceAccessor as SliceAccessor
    from .slices import CHUNK_VALUES as CHUNK_VALUES
    from .slices import Append as Append
    from .slices import Clear as Clear
    from .slices import Replace as Replace
    from .slices import ReplaceAt as ReplaceAt
    from .slices import SliceKind as SliceKind
    from .slices import SliceOp as SliceOp
    from .slices import SliceView as SliceView

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
