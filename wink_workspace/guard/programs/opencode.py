"""opencode: a plugin, which runs in the program and talks to the guard by the same script."""

from __future__ import annotations

from typing import Final

from .hook_format import AgentHooks

_PLUGIN: Final = """\
// Written by `wink-workspace guard`. Reports each tool call.
import { spawn } from "node:child_process"

export const WinkWorkspaceGuard = async ({ directory }) => {
  const report = (event, fields) =>
    new Promise((resolve) => {
      const hook = spawn("/bin/sh", ["-c", COMMAND], { stdio: ["pipe", "ignore", "ignore"] })
      const timer = setTimeout(() => hook.kill(), 15000)
      hook.on("close", () => (clearTimeout(timer), resolve()))
      hook.on("error", resolve)
      hook.stdin.on("error", () => {})
      hook.stdin.end(JSON.stringify({ hook_event_name: event, cwd: directory, ...fields }))
    })
  return {
    event: async ({ event }) => {
      if (event.type === "session.idle")
        await report("idle", { session_id: event.properties?.sessionID })
    },
    "tool.execute.before": async (call, output) =>
      report("before", {
        session_id: call.sessionID, tool_use_id: call.callID, tool_name: call.tool,
        tool_input: output?.args,
      }),
    "tool.execute.after": async (call, result) =>
      report("after", {
        session_id: call.sessionID, tool_use_id: call.callID, tool_name: call.tool,
        tool_input: call.args, tool_response: result?.output,
      }),
  }
}
"""

OPENCODE: Final = AgentHooks(
    name="opencode",
    user_settings=".config/opencode/plugin/wink-workspace-guard.js",
    events={"before": "begin", "after": "end", "idle": "pause"},
    entry=_PLUGIN,
    editors=frozenset({"edit", "write", "patch", "multiedit", "apply_patch"}),
    readers=frozenset(
        {"read", "list", "glob", "grep", "webfetch", "todowrite", "todoread", "task"}
    ),
    path_keys=("filePath", "path"),
    files={
        ".config/opencode/command/undo-step.md": (
            "---\ndescription: Undo the last step that changed files\n---\n"
            "!`wink-workspace undo $ARGUMENTS`\n\nSay in one line what was undone.\n"
        ),
    },
    own_file=True,
)
