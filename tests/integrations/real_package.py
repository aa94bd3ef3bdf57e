"""A real package that agents of the tests edit, break and repair."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pyflakes

FILE: Final = "pyflakes/messages.py"
ADDED: Final = "\n\nclass AddedByAgent(Message):\n    message = 'added by an agent'\n"
BROKEN: Final = "\n\nclass Broken(Message:\n"
CHECK: Final = ("python3", "-c", "import pyflakes.checker, pyflakes.messages as m; m.AddedByAgent")
"""A command that succeeds if the file has what the agent should add, and is not broken."""


def copy_package(folder: Path) -> Path:
    """A directory with the package, as an agent's source."""
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__", "test")
    shutil.copytree(Path(pyflakes.__file__).parent, source / "pyflakes", ignore=ignored)
    return source
