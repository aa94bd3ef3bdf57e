"""Reading what happened: entries, their files, who wrote a line, and the timeline of all branches.

Nothing here writes, and nothing needs an open workspace.
"""
