"""What the hooks of agent programs have in common."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, cast

EventKind = Literal["start", "begin", "end", "pause", "stop"]
"""A conversation begins; a call begins or ends; all calls of a conversation have ended; it ends."""

_PATCHED: Final = re.compile(
    r"^\*\*\* (?:Add|Update|Delete) File: (.+)$|^\*\*\* Move to: (.+)$", re.MULTILINE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentHooks:
    """How one program is guarded.

    Attributes:
        name: Its name on the command line.
        user_settings: The file of the user's settings with hooks, relative to the home.
        project_settings: The file of a project's settings that is not committed; empty if the
            program has none.
        events: The kind of each of its events.
        entry: The hook of an event, with ``COMMAND`` in the place of the command.
        editors: The tools that change only what they name.
        readers: The tools that change nothing.
        path_keys: The arguments that name paths.
        files: More files below the home, such as a command for undo.
        own_file: Whether ``user_settings`` is a file of ours alone, whose text is ``entry``.
    """

    name: str
    user_settings: str
    project_settings: str = ""
    events: Mapping[str, EventKind]
    entry: object = ""
    editors: frozenset[str] = frozenset()
    readers: frozenset[str] = frozenset()
    path_keys: tuple[str, ...] = ("file_path", "notebook_path", "path")
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    own_file: bool = False

    def hooks(self, command: str) -> dict[str, object]:
        """The hook of each event, which runs *command*."""
        return {event: _with_command(self.entry, command) for event in self.events}

    def kind(self, fields: Mapping[str, Any]) -> EventKind | None:
        """The kind of an event; ``None`` for one that does not matter."""
        return self.events.get(str(fields.get("hook_event_name", "")))

    def paths_in(self, tool: str, params: object) -> list[str]:
        """The paths that a call names, as it names them; none for a tool that changes nothing."""
        if tool in self.readers or not isinstance(params, dict):
            return []
        given = cast("dict[str, object]", params)
        named = [given[key] for key in self.path_keys if isinstance(given.get(key), str)]
        for value in given.values():
            if isinstance(value, str) and value.startswith("*** Begin Patch"):
                named += [new or moved for new, moved in _PATCHED.findall(value)]
        return [str(each).strip() for each in named]

    def is_broad(self, tool: str) -> bool:
        """Whether a call of *tool* can change what it does not name."""
        return tool not in self.editors and tool not in self.readers


def session_of(fields: Mapping[str, Any]) -> str:
    """The conversation of an event."""
    return str(fields.get("session_id") or fields.get("conversation_id") or "")


def directory_of(fields: Mapping[str, Any]) -> Path | None:
    """Where the program works; ``None`` if the event does not say it."""
    roots: object = fields.get("workspace_roots")
    first: object = cast("list[object]", roots)[0] if isinstance(roots, list) and roots else None
    found = fields.get("cwd") or first
    return Path(str(found)) if found and Path(str(found)).is_absolute() else None


def _with_command(entry: object, command: str) -> object:
    if entry == "COMMAND":
        return command
    if isinstance(entry, dict):
        given = cast("dict[str, object]", entry)
        return {name: _with_command(each, command) for name, each in given.items()}
    if isinstance(entry, list):
        return [_with_command(each, command) for each in cast("list[object]", entry)]
    return entry
