"""``run TASK --sandbox podman``: the model's test fails, it fixes the code, and the test passes."""

from __future__ import annotations

import shutil
from pathlib import Path

import iniconfig
import pytest
from model_server import KEY, Call, ModelServer, Turn

from wink_workspace.cli import main
from wink_workspace.environment import Environment

FILE = "iniconfig/exceptions.py"
CHECK = (
    "python3 -B -c \"import iniconfig; assert str(iniconfig.ParseError('f', 0, 'm')) == 'f:1: m'\""
)


def shell(command: str) -> Call:
    return Call("shell_execute", {"command": command})


def test_a_model_runs_a_failing_test_fixes_the_code_and_sees_no_key(
    environment: Environment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = tmp_path / "source"
    shutil.copytree(Path(iniconfig.__file__).parent, source / "iniconfig")
    faulty_file = source / FILE
    fixed_text = faulty_file.read_text()
    faulty_file.write_text(fixed_text.replace("self.lineno + 1", "self.lineno"))
    old, new = "{self.lineno}:", "{self.lineno + 1}:"
    steps = (
        Turn("Does it fail?", (shell(CHECK), shell("env"), Call("read_file", {"file_path": FILE}))),
        Turn("", (Call("edit_file", {"file_path": FILE, "old_string": old, "new_string": new}),)),
        Turn("", (shell(CHECK + " && echo passed"),)),
        Turn("Fixed."),
    )
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with ModelServer(*steps) as server:
        for name, value in server.variables.items():
            monkeypatch.setenv(name, value)
        arguments = ["run", "Fix it.", "--repo", str(source), "--sandbox", "podman", "--yes"]
        code = main([*arguments, "--model", "anthropic:claude-sonnet-5"])
    err = capsys.readouterr().err
    assert code == 0, err
    first_answers, _, last_answers = (str(request["messages"]) for request in server.requests[1:])
    assert "AssertionError" in first_answers
    assert "PATH=" in first_answers
    assert KEY not in first_answers
    assert "API_KEY" not in first_answers
    assert "passed" in last_answers
    assert faulty_file.read_text() == fixed_text
