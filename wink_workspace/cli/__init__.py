"""The command ``wink-workspace``.

Exit codes: 0 done; 1 failed (a run that ended early, a conflict, a workspace in use); 2 wrong
usage, also a file or directory that cannot be used; 130 interrupted by Ctrl-C. ``exec`` returns
the exit code of its command.
"""

from __future__ import annotations

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code.

    Args:
        arguments: The arguments after the command's name; those of the process when omitted.
    """
    try:
        from .app import run_command  # here, so that importing the package loads no typer
    except KeyboardInterrupt:  # nothing has started yet
        return 130
    return run_command(arguments)
