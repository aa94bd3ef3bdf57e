"""Codex: hooks in ``hooks.json``, which has only hooks; it asks the user to trust new ones."""

from __future__ import annotations

from typing import Final

from .hook_format import AgentHooks

CODEX: Final = AgentHooks(
    name="codex",
    user_settings=".codex/hooks.json",
    events={
        "SessionStart": "start",
        "PreToolUse": "begin",
        "PostToolUse": "end",
        "UserPromptSubmit": "pause",
        "Stop": "pause",
    },
    entry={"hooks": [{"type": "command", "command": "COMMAND", "timeout": 15}]},
    editors=frozenset({"apply_patch"}),
    readers=frozenset({"update_plan", "view_image", "web_search"}),
    files={
        ".codex/prompts/undo.md": "Run `wink-workspace undo`, and say what was undone.\n",
        ".codex/prompts/history.md": "Run `wink-workspace log`, and show the list as it is.\n",
    },
)
