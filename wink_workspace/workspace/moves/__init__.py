"""Changes of the history itself: undo, redo, restore, merge, sync, fork, and recovery.

Each move is one entry with the same transaction as a call.
"""
