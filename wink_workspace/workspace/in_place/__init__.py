"""Workspaces in the user's own directory, which other programs change at the same time.

``user_repository`` finds the user's repository; ``call_effects`` records what a call did; ``tree``
changes the directory with checks; ``history`` rolls back and moves between states; ``filesystem``
serves the tools; ``importing`` creates the workspace.
"""
