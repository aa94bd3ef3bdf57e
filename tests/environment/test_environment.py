"""``Environment``: variables, folders and terminals of a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wink_workspace.environment import Environment
from wink_workspace.errors import UsageError

HOME = Path("/home/ada")


@pytest.mark.parametrize(
    ("name", "variable", "below_home"),
    [
        ("state_dir", "XDG_STATE_HOME", ".local/state"),
        ("cache_dir", "XDG_CACHE_HOME", ".cache"),
    ],
)
class TestFolders:
    def test_default_folder_is_below_home(self, name: str, variable: str, below_home: str) -> None:
        folder = HOME / below_home / "wink-workspace"
        assert getattr(Environment(home=HOME), name) == folder
        assert getattr(Environment(home=HOME, variables={variable: "relative"}), name) == folder

    def test_folder_is_that_of_its_variable(
        self, name: str, variable: str, below_home: str
    ) -> None:
        environment = Environment(variables={variable: "/srv"})
        assert getattr(environment, name) == Path("/srv/wink-workspace")

    def test_folder_without_any_home_is_refused(
        self, name: str, variable: str, below_home: str
    ) -> None:
        with pytest.raises(UsageError, match=f"Set HOME or {variable}"):
            getattr(Environment(), name)


@pytest.mark.parametrize(
    ("variables", "is_terminal", "color"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, True, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
    ],
)
def test_color_is_for_terminals_unless_the_user_says_otherwise(
    variables: dict[str, str], is_terminal: bool, color: bool
) -> None:
    assert Environment(variables=variables, stdout_is_terminal=is_terminal).stdout_color is color
    assert Environment(variables=variables, stderr_is_terminal=is_terminal).stderr_color is color


@pytest.mark.parametrize(
    ("variables", "is_ci"),
    [({}, False), ({"CI": "true"}, True), ({"CI": "1"}, True), ({"CI": "False"}, False)],
)
def test_automatic_build_is_detected_by_its_variable(
    variables: dict[str, str], is_ci: bool
) -> None:
    assert Environment(variables=variables).is_ci is is_ci


@pytest.mark.parametrize(
    ("variables", "is_terminal", "shown"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"CI": "1"}, True, False),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_progress_is_shown_only_on_a_terminal_that_can_redraw(
    variables: dict[str, str], is_terminal: bool, shown: bool
) -> None:
    environment = Environment(variables=variables, stderr_is_terminal=is_terminal)
    assert environment.shows_progress is shown


def test_repr_does_not_show_secrets() -> None:
    assert "hunter2" not in repr(Environment(variables={"TOKEN": "hunter2"}))


def test_environment_is_a_copy_of_that_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setattr(sys, "stdout", None)
    environment = Environment.from_os()
    monkeypatch.setenv("HOME", "/home/bob")
    assert environment.home == HOME
    assert environment.variables["HOME"] == "/home/ada"
    assert not environment.stdout_is_terminal


def test_user_without_any_home_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert Environment.from_os().home is None


def test_closed_or_redirected_output_is_not_a_terminal() -> None:
    program = (
        "import sys; sys.stderr.close(); from wink_workspace.environment import Environment;"
        "e = Environment.from_os(); print(e.stdout_is_terminal, e.stderr_is_terminal)"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True, env=os.environ
    )
    assert finished.stdout.split() == ["False", "False"]
