"""The reference of the command: a page in Markdown, and the manual page in roff.

Both are made from the same help that ``--help`` prints, so they cannot differ from it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import typer

from wink_workspace.cli.app import application

__all__ = ["Command", "commands", "manual_page", "markdown_page"]

_HEAD = """\
# The command

Every command of `wink-workspace` with its arguments and options. `scripts/write_reference` writes
this page and the manual page from the help that `--help` prints.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted. Errors are one line on standard error.
"""
_COMMON = 3
"""A parameter of so many commands is described once, before them."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its name with that of its group, its panel, its help and its parameters."""

    name: str
    panel: str
    usage: str
    paragraphs: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...]


def commands() -> Iterator[Command]:
    """Every command, a group before its own, with all of a panel together."""
    group: Any = typer.main.get_command(application())  # Any: typer does not publish its classes
    panels = dict.fromkeys(found.rich_help_panel or "" for found in group.commands.values())
    for panel in panels:
        for name, found in group.commands.items():
            if (found.rich_help_panel or "") == panel:
                yield _command(name, panel, found)
                for child, command in getattr(found, "commands", {}).items():
                    yield _command(f"{name} {child}", panel, command)


def _command(name: str, panel: str, found: Any) -> Command:
    context = typer.Context(found, info_name=name)
    records = [each.get_help_record(context) for each in found.get_params(context)]
    usage = " ".join(found.collect_usage_pieces(context)).translate(str.maketrans("{}", "<>"))
    return Command(
        name,
        panel,
        f"wink-workspace {name} {usage}",
        tuple((found.help or "").split("\n\n")),
        tuple(record for record in records if record and record[0] != "--help"),
    )


def markdown_page() -> str:
    """The text of ``docs/reference/command.md``."""
    every = list(commands())
    uses = Counter(parameter for each in every for parameter in each.parameters)
    common = {
        name: help_ for (name, help_), n_uses in reversed(uses.most_common()) if n_uses >= _COMMON
    }
    parts = [_HEAD, "## Common arguments and options\n", _items(sorted(common.items()))]
    panel = ""
    for command in every:
        if command.panel != panel:
            panel = command.panel
            parts.append(f"## {panel}\n")
        parts.append(f"### wink-workspace {command.name}\n")
        if not command.usage.endswith(("[OPTIONS]", "[ARGS]...")):  # else its heading says it
            parts.append(f"`{command.usage.replace(' [OPTIONS]', '')}`\n")
        parts.extend(f"{_text(paragraph)}\n" for paragraph in command.paragraphs)
        shared = [each for each in command.parameters if each in common.items()]
        own = [each for each in command.parameters if each not in shared]
        if own:
            parts.append(_items(own))
        if shared:
            names = ", ".join(f"`{re.split(' (?=[A-Z<])', name)[0]}`" for name, _ in shared)
            parts.append(f"Common: {names}.\n")
    return "\n".join(parts)


def _items(parameters: Iterable[tuple[str, str]]) -> str:
    return "".join(f"- `{name}`: {_text(help_)}\n" for name, help_ in parameters)


def _text(text: str) -> str:
    """Help as Markdown: one line, with what Markdown or HTML would interpret escaped."""
    return re.sub(r"([*_`|<\[])", r"\\\1", " ".join(text.split()))


def manual_page(version: str) -> str:
    """The text of the manual page ``wink-workspace(1)``."""
    parts = [
        f'.TH WINK-WORKSPACE 1 "" "wink_workspace {version}" "User commands"',
        ".SH NAME",
        r"wink\-workspace \- a workspace for coding agents; every tool call is a transaction",
        ".SH SYNOPSIS",
        r".B wink\-workspace",
        r"\fICOMMAND\fR [\fIOPTIONS\fR] [\fIARGUMENTS\fR]",
        ".SH DESCRIPTION",
        "An agent works in a copy of a directory. Every tool call is one transaction over its",
        "files and the state of the session: a call that fails changes nothing. The history",
        "can be read, undone, forked and merged, and",
        ".B apply",
        "writes the changes to the directory.",
    ]
    panel = ""
    for each in commands():
        if each.panel != panel:
            panel = each.panel
            parts.append(f".SH {_roff(panel.upper())}")
        parts.append(f".SS {_roff(each.usage)}")
        parts.append("\n.PP\n".join(_roff(paragraph) for paragraph in each.paragraphs))
        for name, help_ in each.parameters:
            parts += [".TP", rf"\fB{_roff(name)}\fR", _roff(" ".join(help_.split()))]
    parts += [
        ".SH EXIT STATUS",
        "0 done, 1 failed, 2 wrong usage, 130 interrupted.",
        ".SH FILES",
        r"\fI~/.local/state/wink\-workspace\fR has all workspaces,",
        r"\fI~/.config/wink\-workspace/config.toml\fR your settings, and",
        r"\fIwink\-workspace.toml\fR those of a project.",
    ]
    return "\n".join(parts) + "\n"


def _roff(text: str) -> str:
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"^([.'])", r"\\&\1", escaped, flags=re.MULTILINE)
