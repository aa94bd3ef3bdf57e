"""Screens of ``run``, ``log``, ``diff`` and ``list`` in a real terminal, compared with golden files.

``WRITE_SCREENS=1 pytest tests/cli/test_cli_screens.py`` writes the files again.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from screens import Screen, normalised

from wink_workspace.workspace import WorkspaceStorage

GOLDEN = Path(__file__).parent / "screens"
TASK = "Say hello to the world, politely, in the greeting of the program, and test it"


def call(name: str, **arguments: object) -> dict[str, object]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


class Project:
    """A directory, a state directory, and a script of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = folder / "project"
        (self.source / "src").mkdir(parents=True)
        (self.source / "src/app.py").write_text("print('helo')\n")
        self.go_on = folder / "go-on"
        turns = [
            call("read_file", file_path="src/app.py"),
            call("edit_file", file_path="src/app.py", old_string="helo", new_string="hello"),
            call("edit_file", file_path="src/app.py", old_string="nothing", new_string="x"),
            call("shell_execute", command="wait for the test"),
            call("shell_execute", command="tests -q --with-a-long-option=" + "value" * 12),
            {"text": "The greeting is polite now."},
        ]
        self.script = folder / "turns.jsonl"
        self.script.write_text("".join(json.dumps(turn) + "\n" for turn in turns))
        self.environment = {
            "XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "config"),
            "HOME": str(folder), "PAGER": "cat", "CI": "", "LC_ALL": "C.UTF-8",
            "WINK_WORKSPACE_PAGER": "cat", "NO_COLOR": "", "SCREEN_GO_ON": str(self.go_on),
        }  # fmt: skip

    @contextmanager
    def screen(self, *arguments: object, columns: int) -> Iterator[Screen]:
        screen = Screen(*map(str, arguments), columns=columns, environment=self.environment)
        try:
            yield screen
        finally:
            screen.close()

    def run(self, columns: int) -> tuple[str, str]:
        """The screen while a command runs, and that after the run."""
        arguments = ("run", TASK, "--repo", self.source, "--script", self.script)
        with self.screen(*arguments, "--sandbox", "screen", columns=columns) as screen:
            during = screen.wait_for(
                lambda text: "shell_execute: wait" in text and "1 failed" in text
            )
            self.go_on.touch()
            screen.wait_for(lambda text: "[y,n,p,m,?]" in text)
            screen.type("n")
            after = screen.end()
            assert "\x1b[31m1 failed" not in screen.received
        return during, after

    @property
    def workspace(self) -> str:
        (info,) = WorkspaceStorage(self.folder / "state/wink-workspace").all()
        return info.id


@pytest.fixture
def project() -> Iterator[Project]:
    """In a directory whose path has the same length each time, as it is on the screens."""
    with tempfile.TemporaryDirectory(prefix="screens-", dir="/tmp") as folder:
        yield Project(Path(folder))


@pytest.mark.behaviour(136)
@pytest.mark.xdist_group("screens")
@pytest.mark.parametrize("columns", [80, 120])
def test_screens_are_those_of_the_golden_files(project: Project, columns: int) -> None:
    during, after = project.run(columns)
    assert "asking the model" not in after
    assert after.count("The greeting is polite now.") == 1
    head = next(line for line in during.splitlines() if "shell_execute: wait" in line)
    assert head.endswith(" s")
    shown = {"run": after}
    workspace = project.workspace
    for name, arguments in {
        "log": ("log", workspace), "diff": ("diff", workspace), "list": ("list",),
        "log-stat": ("log", workspace, "--stat"), "log-graph": ("log", workspace, "--graph"),
    }.items():  # fmt: skip
        with project.screen(*arguments, columns=columns) as screen:
            shown[name] = screen.end()
    names = {workspace: "0123456789ab", str(project.folder): "/home/me/programs"}
    for name, text in shown.items():
        assert all(len(line) <= columns for line in text.splitlines())
        path = GOLDEN / f"{name}-{columns}.txt"
        found = normalised(text, names)
        if os.environ.get("WRITE_SCREENS"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(found)
        assert found == path.read_text(), name
