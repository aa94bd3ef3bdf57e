"""A project whose tests fail, and an agent that fixes it in the sandbox, after ``init`` alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wink_workspace.cli import main
from wink_workspace.environment import Environment

pytestmark = pytest.mark.xdist_group("podman-commands")

TESTS = ["python", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
FILES = {
    "pyproject.toml": '[project]\nname = "sums"\nversion = "1"\n',
    "src/sums.py": "def total(numbers):\n    return sum(numbers[1:])\n",
    "tests/test_sums.py": (
        "from sums import total\n\n\ndef test_total():\n    assert total([1, 2]) == 3\n"
    ),
}


def turn(name: str, **arguments: object) -> str:
    return json.dumps({"tool_calls": [{"name": name, "arguments": arguments}]})


@pytest.fixture
def project(environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    project = tmp_path / "project"
    for name, text in FILES.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(project)
    return project


@pytest.mark.behaviour(109)
def test_agent_makes_the_tests_of_a_failing_project_pass_after_init_alone(
    project: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["init"]) == 0
    assert main(["exec", "--temporary", "--", *TESTS]) == 1
    assert "1 failed" in capfd.readouterr().out
    turns = tmp_path / "turns.jsonl"
    edit = {"old_string": "numbers[1:]", "new_string": "numbers"}
    lines = [
        turn("shell_execute", command=" ".join(TESTS)),
        turn("read_file", file_path="src/sums.py"),
        turn("edit_file", file_path="src/sums.py", **edit),
        turn("shell_execute", command=" ".join(TESTS)),
        json.dumps({"text": "The tests pass."}),
    ]
    turns.write_text("\n".join(lines))

    assert (
        main(["run", "Make the tests pass.", "--repo", ".", "--script", str(turns), "--yes"]) == 0
    )

    printed = capfd.readouterr()
    assert "+    return sum(numbers)" in printed.out + printed.err
    assert (project / "src/sums.py").read_text() == "def total(numbers):\n    return sum(numbers)\n"
    assert main(["exec", "--temporary", "--", *TESTS]) == 0
    assert "1 passed" in capfd.readouterr().out
    assert sorted(path.name for path in project.iterdir()) == [
        *("pyproject.toml", "src", "tests", "wink-workspace.toml")
    ]
