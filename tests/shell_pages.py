"""Pages of the documentation whose commands are run as a user would type them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from wink_workspace.cli import main

__all__ = ["blocks_of", "run_shell", "shell_of"]

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks_of(name: str, language: str, heading: str = "") -> list[str]:
    """The blocks of a page in one language, or those below a heading."""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert heading in text, f"{name} has no {heading!r}"
    text = text[text.index(heading) :]
    return [each["text"] for each in _BLOCK.finditer(text) if each["language"] == language]


def shell_of(name: str, heading: str = "") -> str:
    """All shell blocks of a page, or the first one below a heading."""
    found = blocks_of(name, "sh", heading)
    return found[0] if heading else "".join(found)


def run_shell(text: str, home: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Run commands in order as a user would type them, and return what they print.

    The id that `new` prints takes the place of the one in the text. Lines of other programs are run
    by a shell, except `cd`, which changes the directory of this process.
    """
    made, n_commands, others, printed = "3f1", 0, "", ""
    for line_of_shell in text.splitlines(keepends=True):
        if line_of_shell.startswith("cd "):
            subprocess.run(["sh", "-ec", others], check=True)
            others = ""
            os.chdir(line_of_shell.split()[1].replace("~", str(home), 1))
        elif not line_of_shell.startswith("wink-workspace "):
            others += line_of_shell
        if not line_of_shell.startswith("wink-workspace "):
            continue
        if others:
            subprocess.run(["sh", "-ec", others], check=True)
            others = ""
        words = shlex.split(line_of_shell.replace("3f1", made), comments=True)[1:]
        words = [word.replace("~", str(home), 1) if word[:1] == "~" else word for word in words]
        assert main(words) == 0, line_of_shell
        answer = capsys.readouterr().out
        if words[0] == "new":
            made = answer.partition(":")[0]
        printed += answer
        n_commands += 1
    if others:
        subprocess.run(["sh", "-ec", others], check=True)
    assert n_commands
    return printed
