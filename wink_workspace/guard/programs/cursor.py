"""Cursor: hooks in ``hooks.json``, one for each event without a matcher."""

from __future__ import annotations

from typing import Final

from .hook_format import AgentHooks

CURSOR: Final = AgentHooks(
    name="cursor",
    user_settings=".cursor/hooks.json",
    events={
        "sessionStart": "start",
        "preToolUse": "begin",
        "postToolUse": "end",
        "postToolUseFailure": "end",
        "beforeSubmitPrompt": "pause",
        "stop": "pause",
        "sessionEnd": "stop",
    },
    entry={"command": "COMMAND"},
    editors=frozenset({"Write", "Edit", "StrReplace", "Delete", "EditNotebook"}),
    readers=frozenset({"Read", "Grep", "Glob", "LS", "WebFetch", "WebSearch", "Task"}),
    path_keys=("file_path", "path", "target_file"),
)
