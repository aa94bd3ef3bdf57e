"""The files of a branch on disk: written from the history, watched, moved aside when discarded.

``tree_history`` takes snapshots and restores them, ``derived_paths`` holds what the history does
not record, ``seen_statuses`` spares reading the files again.
"""
