"""All programs, by name."""

from __future__ import annotations

from typing import Final

from .claude_code import CLAUDE_CODE
from .codex import CODEX
from .cursor import CURSOR
from .gemini_cli import GEMINI_CLI
from .hook_format import AgentHooks
from .opencode import OPENCODE

PROGRAMS: Final[dict[str, AgentHooks]] = {
    each.name: each for each in (CLAUDE_CODE, CODEX, CURSOR, GEMINI_CLI, OPENCODE)
}
