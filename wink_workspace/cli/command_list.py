"""``wink-workspace --help`` and ``--version``: what there is, without loading any of it.

Rule: this imports no library. What a command does is the first sentence in its source.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap
from typing import Final

from wink_workspace.environment import Environment

HELP: Final = "A workspace for coding agents in which every tool call is a transaction."
EPILOG: Final = "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted."

COMMANDS: dict[str, dict[str, str]] = {
    "Runs": {
        "demo": "app.demo",
        "run": "run.run_command.run",
        "script": "run.run_command.script",
        "tools": "run.run_command.tools",
        "eval": "sandbox.sandboxes.evaluate",
        "mcp": "serve.mcp_command.mcp",
        "acp": "serve.acp.acp",
    },
    "Workspaces": {
        "new": "past.workspaces.create",
        "list": "past.workspaces.list_all",
        "use": "past.workspaces.use",
        "fork": "past.workspaces.fork",
        "checkpoint": "past.workspaces.checkpoint",
        "apply": "past.workspaces.apply",
        "merge": "past.workspaces.merge",
        "sync": "past.workspaces.sync",
        "mount": "past.workspaces.mount",
        "export": "past.bundle_commands.export",
        "import": "past.bundle_commands.import_bundle",
        "recover": "past.workspaces.recover",
        "repair": "past.workspaces.repair",
        "gc": "past.workspaces.gc",
        "rm": "past.workspaces.remove",
    },
    "Projects": {
        "guard": "serve.guard_command.guard",
        "init": "sandbox.project.init",
        "trust": "sandbox.project.trust",
    },
    "History": {
        "log": "past.history_commands.log",
        "show": "past.history_commands.show",
        "report": "past.history_commands.report",
        "diff": "past.history_commands.diff",
        "undo": "past.history_commands.undo",
        "redo": "past.history_commands.redo",
        "restore": "past.history_commands.restore",
        "discarded": "past.history_commands.discarded",
        "bisect": "past.bisect_and_blame.bisect",
        "blame": "past.bisect_and_blame.blame",
        "ui": "serve.ui.ui",
    },
    "Sandboxes": {
        "doctor": "sandbox.sandboxes.doctor",
        "version": "version.show_version",
        "exec": "sandbox.exec_command.execute",
        "shell": "sandbox.exec_command.shell",
        "port": "sandbox.port_command.port",
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Commands below one name; *default* is run if the first argument names none of them."""

    help: str
    panel: str
    commands: dict[str, str]
    default: str = ""


GROUPS = {
    "attempts": Group(
        help="Let models try a task several times, each in a fork, and keep the best attempt. "
        "`attempts TASK` is `attempts start TASK`.",
        panel="Runs",
        commands={
            "start": "tries.attempts_run.start",
            "list": "tries.attempts_stored_runs.list_runs",
            "show": "tries.attempts_stored_runs.show",
            "diff": "tries.attempts_stored_runs.diff",
            "keep": "tries.attempts_stored_runs.keep",
            "resume": "tries.attempts_run.resume",
            "rm": "tries.attempts_stored_runs.remove",
        },
        default="start",
    ),
    "image": Group(
        help="Build, list and delete the images of sandboxes.",
        panel="Sandboxes",
        commands={
            "build": "sandbox.sandboxes.build_images",
            "list": "sandbox.sandboxes.list_images",
            "prune": "sandbox.sandboxes.prune_images",
        },
    ),
}
"""Each command as ``module.function``: one invocation imports the module of its command only."""

_OPTIONS: Final = {
    "--version": "Print the version.",
    "--install-completion": "Install completion for the current shell.",
    "--show-completion": "Show completion for the current shell, to copy it or customize the "
    "installation.",
    "--help": "Show this message and exit.",
}
_LEAST_COLUMNS: Final = 40


def print_list() -> None:
    """Print the options and all commands, as wide as the terminal."""
    width = max(get_terminal_size().columns, _LEAST_COLUMNS)
    has_color = Environment.from_os().stdout_color
    panels = {"Options": _OPTIONS}
    for panel, commands in COMMANDS.items():
        groups = {name: group.help for name, group in GROUPS.items() if group.panel == panel}
        panels[panel] = {name: description(each) for name, each in commands.items()} | groups
    lines = ["", " Usage: wink-workspace [OPTIONS] COMMAND [ARGS]...", ""]
    lines += [f" {line}" for line in wrap(HELP, width - 2)] + [""]
    widest = max(len(name) for panel in COMMANDS for name in panels[panel])
    for title, rows in panels.items():
        names = 2 + (max(map(len, rows)) if rows is _OPTIONS else widest)
        lines += _panel(title, rows, (width - 4, names), has_color=has_color)
    lines += ["", *(f" {line}" for line in wrap(EPILOG, width - 2)), ""]
    sys.stdout.write("\n".join(lines) + "\n")


def description(command: str) -> str:
    """The docstring of ``module.function`` up to its first empty line, read from the source.

    Importing every module takes longer than all else.
    """
    module, _, function = command.rpartition(".")
    source = Path(__file__).parent.joinpath(f"{module.replace('.', '/')}.py")
    found = re.search(
        rf'^def {function}\(.*?"""(.+?)(?:\n\n|""")',
        source.read_text(encoding="utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    return " ".join(found[1].split()) if found else ""


def _panel(
    title: str, rows: dict[str, str], columns: tuple[int, int], *, has_color: bool
) -> Iterator[str]:
    """A box around *rows*; *columns* are its width inside, and that of the names in it."""
    inside, names = columns
    bold, plain = ("\x1b[1;36m", "\x1b[0m") if has_color else ("", "")
    yield f"╭─ {title} ".ljust(inside + 3, "─") + "╮"
    for name, text in rows.items():
        for n, line in enumerate(wrap(text, inside - names)):
            first = f"{bold}{name.ljust(names)}{plain}" if n == 0 else " " * names
            yield f"│ {first}{line.ljust(inside - names)} │"
    yield f"╰{'─' * (inside + 2)}╯"
