"""``wink-workspace eval``: Python over a workspace, as one entry of its history."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wink_workspace.cli import main


class Shell:
    """Runs commands over one workspace, and returns what they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.workspace = ""
        self.err = ""

    def __call__(self, *arguments: str, fails: int = 0) -> str:
        assert main(list(arguments)) == fails
        captured = self._capsys.readouterr()
        self.err = captured.err
        return captured.out

    def evaluate(self, *arguments: str, fails: int = 0) -> str:
        return self("eval", self.workspace, *arguments, fails=fails)


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_text("one\ntwo\n")
    shell = Shell(capsys)
    shell.workspace = shell("new", str(source)).partition(":")[0]
    return shell


def test_code_reads_every_file_and_its_output_and_value_are_printed(shell: Shell) -> None:
    code = "lines = read_text('a.txt').split()\nprint(*lines)\nlen(lines)"
    assert shell.evaluate("-c", code) == "one two\n2\n"


def test_writes_of_code_are_an_entry_that_can_be_undone(shell: Shell) -> None:
    code = "write_text('a.txt', read_text('a.txt').upper())"
    shell.evaluate("-c", code, "--writes", "a.txt")
    assert "+ONE" in shell("diff", shell.workspace)
    assert "evaluate_python" in shell("log", shell.workspace)
    shell("undo", shell.workspace)
    assert shell("diff", shell.workspace) == ""


def test_code_that_fails_after_a_write_changes_no_file_and_exits_with_1(shell: Shell) -> None:
    code = "write_text('b.txt', 'x')\nprint('so far')\n1 / 0"
    assert shell.evaluate("-c", code, "--writes", "b.txt", fails=1) == "so far\n"
    assert "line 3:\n    1 / 0\n    ^\nZeroDivisionError" in shell.err
    assert shell("diff", shell.workspace) == ""


def test_code_from_a_file_returns_its_result_as_json(shell: Shell, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("x = [1, 2]\n{'sum': sum(x)}\n")
    found = json.loads(shell.evaluate(str(script), "--json"))
    assert found["success"]
    assert found["result"]["value_json"] == {"sum": 3}
    assert found["result"]["globals"] == {"x": "[1, 2]"}


def test_code_is_read_from_standard_input(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text("6 * 7")
    with script.open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert shell.evaluate("-") == "42\n"


def test_options_limit_time_and_files(shell: Shell) -> None:
    shell.evaluate("-c", "while True: pass", "--timeout", "0.2", fails=1)
    assert "deadline: it was killed at its time limit of 0.2 s" in shell.err
    shell.evaluate("-c", "read_text('a.txt')", "--reads", "b.txt", fails=1)
    assert "not declared" in shell.err


@pytest.mark.parametrize("arguments", [[], ["-c", "1", "x.py"], ["no-such-file.py"]])
def test_wrong_usage_exits_with_2(shell: Shell, arguments: list[str]) -> None:
    shell.evaluate(*arguments, fails=2)
    assert shell.err.startswith("wink-workspace: ")


def test_python_itself_evaluates_code_that_asteval_does_not_support(shell: Shell) -> None:
    code = "class A:\n    n = 3\nfrom pathlib import Path\nA.n * len(Path('a.txt').read_text())"
    assert "classes" not in shell.evaluate("-c", code, "--sandbox", "python")
    assert shell.evaluate("-c", code, "--sandbox", "python") == "24\n"
    shell.evaluate("-c", code, fails=1)
    assert "cannot be used here" in shell.err


def test_a_sandbox_that_evaluates_no_python_over_files_is_refused(shell: Shell) -> None:
    shell.evaluate("-c", "1", "--sandbox", "podman", fails=2)
    assert "cannot use the sandbox 'podman'" in shell.err
    assert "asteval, python" in shell.err
