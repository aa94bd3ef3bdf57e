"""An attempt of a program that uses the library; in a module, so that workers can load it."""

from __future__ import annotations

from wink_workspace.attempts import AttemptContext


def nothing(context: AttemptContext) -> None:
    """Change nothing."""
