"""``run TASK --sandbox podman``: a model's tests fail, it mends the code, and they pass."""

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


def test_a_model_runs_a_failing_test_mends_the_code_and_sees_no_key(
    environment: Environment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = tmp_path / "source"
    shutil.copytree(Path(iniconfig.__file__).parent, source / "iniconfig")
    mended = source / FILE
    right = mended.read_text()
    mended.write_text(right.replace("self.lineno + 1", "self.lineno"))
    old, new = "{self.lineno}:", "{self.lineno + 1}:"
    steps = (
        Turn("Does it fail?", (shell(CHECK), shell("env"), Call("read_file", {"file_path": FILE}))),
        Turn("", (Call("edit_file", {"file_path": FILE, "old_string": old, "new_string": new}),)),
        Turn("", (shell(CHECK + " && echo passed"),)),
        Turn("Mended."),
    )
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with ModelServer(*steps) as server:
        for name, value in server.variables.items():
            monkeypatch.setenv(name, value)
        asked_for = ["run", "Mend it.", "--repo", str(source), "--sandbox", "podman", "--yes"]
        code = main([*asked_for, "--model", "anthropic:claude-sonnet-5"])
    err = capsys.readouterr().err
    assert code == 0, err
    asked, _, checked = (str(request["messages"]) for request in server.requests[1:])
    assert "AssertionError" in asked
    assert "PATH=" in asked
    assert KEY not in asked
    assert "API_KEY" not in asked
    assert "passed" in checked
    assert mended.read_text() == right
