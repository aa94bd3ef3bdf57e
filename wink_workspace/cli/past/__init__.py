"""The commands for workspaces and their history: list, log, diff, apply, undo, blame, export."""
