"""Workspaces in the user's own directory, which other programs change at the same time.

``user_repository`` finds the user's repository; ``call_effects`` records what a call did;
``in_place_tree`` changes the directory with checks; ``in_place_history`` rolls back and moves
between states; ``in_place_filesystem`` serves the tools.
"""
