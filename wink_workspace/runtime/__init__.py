"""Run tool calls, each one a transaction over the session and the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .call import CallOutcome as CallOutcome
    from .call import ToolCall as ToolCall
    from .call_boundary import Boundary as Boundary
    from .call_boundary import CallBoundary as CallBoundary
    from .call_boundary import CallScope as CallScope
    from .call_boundary import error_text as error_text
    from .call_spans import CallSpan as CallSpan
    from .call_spans import RemoteClient as RemoteClient
    from .call_spans import call_span as call_span
    from .executor import ToolExecutor as ToolExecutor
    from .journal import Journal as Journal
    from .journal import JournalEntry as JournalEntry
    from .journal import MemoryJournal as MemoryJournal
    from .journal import PendingCall as PendingCall
    from .journal import Saved as Saved
    from .long_results import MOST_TEXT_CHARS as MOST_TEXT_CHARS
    from .long_results import shortened as shortened
    from .redaction import Redaction as Redaction
    from .transaction import SessionTransactions as SessionTransactions
    from .transaction import Transaction as Transaction
    from .transaction import current_task as current_task
    from .transaction import transactions_of as transactions_of

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
