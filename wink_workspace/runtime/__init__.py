"""Running tool calls: each one a transaction over the session and the files."""

from .call import CallOutcome, ToolCall
from .executor import ToolExecutor
from .journal import Journal, JournalEntry, MemoryJournal, PendingCall, Saved
from .transaction import SessionTransactions, Transaction, transactions_of

__all__ = [
    "CallOutcome",
    "Journal",
    "JournalEntry",
    "MemoryJournal",
    "PendingCall",
    "Saved",
    "SessionTransactions",
    "ToolCall",
    "ToolExecutor",
    "Transaction",
    "transactions_of",
]
