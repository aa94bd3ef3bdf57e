"""Claude Code: hooks in its settings, and a slash command."""

from __future__ import annotations

from typing import Final

from .hook_format import AgentHooks

CLAUDE_CODE: Final = AgentHooks(
    name="claude-code",
    user_settings=".claude/settings.json",
    project_settings=".claude/settings.local.json",
    events={
        "SessionStart": "start",
        "PreToolUse": "begin",
        "PostToolUse": "end",
        "PostToolUseFailure": "end",
        "UserPromptSubmit": "pause",
        "Stop": "pause",
        "SessionEnd": "stop",
    },
    entry={"hooks": [{"type": "command", "command": "COMMAND", "timeout": 15}]},
    editors=frozenset({"Edit", "MultiEdit", "Write", "NotebookEdit"}),
    readers=frozenset(
        {
            *("Read", "Glob", "Grep", "LS", "NotebookRead", "WebFetch", "WebSearch", "TodoWrite"),
            *("BashOutput", "KillShell", "TaskOutput", "AskUserQuestion", "ExitPlanMode"),
            *("EnterPlanMode", "Task", "Agent", "ToolSearch"),
        }
    ),
    files={
        ".claude/commands/undo.md": (
            "---\ndescription: Undo the last step that changed files\n"
            "allowed-tools: Bash(wink-workspace undo:*)\n---\n"
            "!`wink-workspace undo $ARGUMENTS`\n\nSay in one line what was undone.\n"
        ),
        ".claude/commands/history.md": (
            "---\ndescription: List the steps of this project\n"
            "allowed-tools: Bash(wink-workspace log:*)\n---\n"
            "!`wink-workspace log $ARGUMENTS`\n\nShow this list as it is.\n"
        ),
    },
)
