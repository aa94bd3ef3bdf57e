"""Undo for agent programs that work in the user's own directory, by way of their hooks.

A program's hook runs a short script before and after each of its tool calls. The script passes the
event to one process for each user, which records the project in a workspace in place: each call is
an entry with the paths that it changed.

``open_calls`` decides whose a change is; ``guarded_project`` makes the entries; ``hook_pipes`` is
how scripts and the process talk; ``guard_process`` is that process; ``installing`` writes and
removes hooks; ``programs`` describes the programs.

Rule 1: what may be a person's work is never undone without asking.
Rule 2: a hook that fails, or that waits too long, does not stop the agent.
Rule 3: nothing is written into the project, except the settings that ``--project`` names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .guarded_project import GuardedProject as GuardedProject
    from .open_calls import ObservedCall as ObservedCall

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
