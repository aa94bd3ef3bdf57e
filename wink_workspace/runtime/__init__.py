"""Run tool calls, each one a transaction over the session and the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .call import CallOutcome, ToolCall
    from .call_boundary import Boundary, CallBoundary, CallScope, error_text
    from .call_spans import CallSpan, RemoteClient, call_span
    from .executor import ToolExecutor
    from .journal import Journal, JournalEntry, MemoryJournal, PendingCall, Saved
    from .long_results import MOST_TEXT_CHARS, shortened
    from .redaction import Redaction
    from .transaction import SessionTransactions, Transaction, current_task, transactions_of

__all__ = [
    "MOST_TEXT_CHARS",
    "Boundary",
    "CallBoundary",
    "CallOutcome",
    "CallScope",
    "CallSpan",
    "Journal",
    "JournalEntry",
    "MemoryJournal",
    "PendingCall",
    "Redaction",
    "RemoteClient",
    "Saved",
    "SessionTransactions",
    "ToolCall",
    "ToolExecutor",
    "Transaction",
    "call_span",
    "current_task",
    "error_text",
    "shortened",
    "transactions_of",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
