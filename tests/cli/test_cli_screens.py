"""Screens of commands in a real terminal, as files.

``WRITE_SCREENS=1 pytest tests/cli/test_cli_screens.py`` writes the files again.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from screens import Project, normalised

from wink_workspace.attempts import read_runs
from wink_workspace.workspace import WorkspaceReader

GOLDEN = Path(__file__).parent / "screens"
COLUMNS = (60, 80, 120)


@pytest.fixture
def project() -> Iterator[Project]:
    """In a directory whose path has the same length each time, as it is on the screens."""
    with tempfile.TemporaryDirectory(prefix="screens-", dir="/tmp") as folder:
        yield Project(Path(folder))


@pytest.mark.behaviour(136)
@pytest.mark.xdist_group("screens")
@pytest.mark.share(1)
@pytest.mark.parametrize("columns", COLUMNS)
def test_screens_are_those_of_the_golden_files(project: Project, columns: int) -> None:
    during, after = project.run(columns)
    assert "asking the model" not in after
    assert after.count("The greeting is polite now.") == 1
    head = next(line for line in during.splitlines() if "shell_execute: wait" in line)
    assert head.endswith("s")
    assert after.count("+print('hello')") == 2, "with its call, and after d"
    workspace = project.workspace
    commands = {
        "log": ("log", workspace), "diff": ("diff", workspace), "list": ("list",),
        "log-stat": ("log", workspace, "--stat"), "log-graph": ("log", workspace, "--graph"),
    }  # fmt: skip
    shown = {"run": after, **project.screens(commands, columns)}
    compare(shown, {workspace: "0123456789ab", str(project.folder): "/home/me/programs"}, columns)


@pytest.mark.behaviour(136)
@pytest.mark.xdist_group("screens")
@pytest.mark.share(1)
@pytest.mark.parametrize("columns", COLUMNS)
def test_screens_of_attempts_are_those_of_the_golden_files(project: Project, columns: int) -> None:
    during, after = project.attempts(columns)
    workspace = project.workspace
    with WorkspaceReader(project.storage.folder(workspace)) as reader:
        (run,) = read_runs(reader)
    commands = {
        "attempts-list": ("attempts", "list"),
        "attempts-show": ("attempts", "show", "--workspace", workspace),
    }
    shown = {
        "attempts-live": during, "attempts": after, **project.screens(commands, columns)
    }  # fmt: skip
    names = {workspace: "0123456789ab", run.run_id: "01234567"}
    compare(shown, {**names, str(project.folder): "/home/me/programs"}, columns)


@pytest.mark.behaviour(136)
@pytest.mark.xdist_group("screens")
def test_screens_of_a_day_are_those_of_the_golden_files(project: Project) -> None:
    """Commands of the README in a git repository, with a message to a model on loopback."""
    shown = {f"day-{name}": text for name, text in project.day(80).items()}
    assert shown.pop("day-edited") == "\n"
    assert "> Greet the world, please.\n" in shown["day-run"]
    assert project.source.joinpath("src/app.py").read_text() == "print('HELLO, WORLD')\n"
    names = {project.workspace: "0123456789ab", str(project.folder): "/home/me/programs"}
    compare(shown, names, 80)


def compare(shown: dict[str, str], names: dict[str, str], columns: int) -> None:
    for name, text in shown.items():
        assert all(len(line) <= columns for line in text.splitlines())
        path = GOLDEN / f"{name}-{columns}.txt"
        found = normalised(text, names)
        if os.environ.get("WRITE_SCREENS"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(found)
        assert found == path.read_text(), name
