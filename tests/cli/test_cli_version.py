"""``version`` prints what a bug report needs."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version

import pytest

from wink_workspace.cli import main


def test_version_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == version("wink-workspace") + "\n"


def test_version_as_json_names_the_libraries_and_what_the_kernel_offers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["version", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert platform.python_version() in found["python"]
    assert found["libraries"]["pygit2"] == version("pygit2")
    assert found["libraries"]["mcp"] == version("mcp")
    assert "pytest" not in found["libraries"]
    assert found["overlays"]["reason"]
    assert set(found["kernel"]) == {"cgroup2", "lsm", "max_user_namespaces", "seccomp"}
    assert "kill_process" in found["kernel"]["seccomp"]


def test_a_shell_completes_the_options_of_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_WINK_WORKSPACE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "wink-workspace run --max-t")
    monkeypatch.setenv("COMP_CWORD", "2")
    with pytest.raises(SystemExit, match="0"):
        main([])
    assert capsys.readouterr().out.split() == ["--max-tokens", "--max-turns"]
