"""Gemini CLI: hooks in its settings, whose times are in milliseconds."""

from __future__ import annotations

from typing import Final

from .hook_format import AgentHooks

GEMINI_CLI: Final = AgentHooks(
    name="gemini",
    user_settings=".gemini/settings.json",
    events={
        "SessionStart": "start",
        "BeforeTool": "begin",
        "AfterTool": "end",
        "BeforeAgent": "pause",
        "AfterAgent": "pause",
        "SessionEnd": "stop",
    },
    entry={"hooks": [{"type": "command", "command": "COMMAND", "timeout": 15_000}]},
    editors=frozenset({"replace", "write_file"}),
    readers=frozenset(
        {
            *("read_file", "read_many_files", "list_directory", "glob", "search_file_content"),
            *("google_web_search", "web_fetch", "write_todos", "grep_search"),
        }
    ),
    path_keys=("file_path", "absolute_path", "path"),
    files={
        ".gemini/commands/undo.toml": (
            'description = "Undo the last step that changed files"\n'
            'prompt = "!{wink-workspace undo {{args}}}\\n\\nSay in one line what was undone."\n'
        ),
        ".gemini/commands/history.toml": (
            'description = "List the steps of this project"\n'
            'prompt = "!{wink-workspace log {{args}}}\\n\\nShow this list as it is."\n'
        ),
    },
)
