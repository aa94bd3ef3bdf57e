"""Workspaces in the user's own directory, where people and their programs work meanwhile.

``own_git`` says what is out of bounds; ``call_effects`` what a call did; ``tree`` changes the
directory with all due care; ``history`` takes back and moves; ``filesystem`` is what tools see;
``importing`` begins.
"""
