"""The command, as a shell sees it: what it prints, writes and returns."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from wink_workspace.cli import main
from wink_workspace.cli.demo import NEW_NAME, OLD_NAME, PACKAGE

GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "PATH": "/usr/bin:/bin"}


def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "a.py").write_text("print('helo')\n")
    return folder


def script(tmp_path: Path, *turns: dict[str, object]) -> Path:
    path = tmp_path / "script.jsonl"
    path.write_text("".join(json.dumps(turn) + "\n" for turn in turns))
    return path


def call(name: str, **arguments: object) -> dict[str, object]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


EDIT = call("edit_file", file_path="a.py", old_string="helo", new_string="hello")
MENDING = [EDIT, call("read_file", file_path="a.py"), EDIT, {"text": "Mended."}]


def test_run_writes_a_patch_that_git_applies_to_the_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, patch = source(tmp_path), tmp_path / "out.patch"
    played = script(tmp_path, *MENDING)
    assert (
        main(["run", "--script", str(played), "--source", str(folder), "--patch", str(patch)]) == 0
    )
    out = capsys.readouterr().out
    assert "3 calls, 1 undone; 1 paths changed" in out
    assert "Mended." in out
    assert (folder / "a.py").read_text() == "print('helo')\n", "the source is only read"
    subprocess.run(["git", "apply", str(patch)], cwd=folder, env=GIT, check=True)
    assert (folder / "a.py").read_text() == "print('hello')\n"


def test_run_prints_the_patch_when_no_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    played = script(tmp_path, *MENDING)
    assert main(["run", "--script", str(played), "--source", str(source(tmp_path))]) == 0
    assert "+print('hello')" in capsys.readouterr().out


def test_run_with_json_prints_one_object_for_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    played = script(tmp_path, *MENDING)
    assert main(["run", "--script", str(played), "--source", str(source(tmp_path)), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["answer"] == "Mended."
    assert report["changed_paths"] == ["a.py"]
    assert "+print('hello')" in report["patch"]
    assert [(c["tool"], c["outcome"]) for c in report["calls"]] == [
        ("edit_file", "rolled_back"),
        ("read_file", "committed"),
        ("edit_file", "committed"),
    ]


def test_tools_prints_every_tool_with_its_schema_as_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["tools"]) == 0
    listed = {tool["name"]: tool for tool in json.loads(capsys.readouterr().out)}
    assert {"read_file", "edit_file", "apply_patch", "planning_setup_plan"} <= set(listed)
    assert listed["read_file"]["schema"]["properties"]["file_path"]["description"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fly"], "No such command"),
        (["run"], "--script"),
        (["run", "--script", "x", "--source"], "--source"),
        (["run", "--script", "no-such-file", "--source", "."], "no-such-file"),
        (["tools", "--wings"], "--wings"),
    ],
)
def test_wrong_usage_is_one_clear_line_and_exit_code_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("wink-workspace: ")
    assert says in line


def test_a_source_that_is_not_there_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    played = script(tmp_path, {"text": "x"})
    assert main(["run", "--script", str(played), "--source", str(tmp_path / "none")]) == 2
    assert "none" in capsys.readouterr().err


def test_a_patch_that_cannot_be_written_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    played = script(tmp_path, {"text": "x"})
    target = str(tmp_path / "no" / "such" / "dir.patch")
    arguments = ["run", "--script", str(played), "--source", str(source(tmp_path))]
    assert main([*arguments, "--patch", target]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_script_that_ends_too_early_is_a_failed_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    played = script(tmp_path, call("ls"))
    assert main(["run", "--script", str(played), "--source", str(source(tmp_path))]) == 1
    assert "the script is over" in capsys.readouterr().err


def test_demo_shows_failures_undone_and_a_patch_that_git_accepts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Podman, which it says; with it, ``test_podman_commands`` plays it to its end."""
    monkeypatch.setenv("PATH", str(tmp_path))
    patch = tmp_path / "demo.patch"
    assert main(["demo", "--patch", str(patch)]) == 0
    out = capsys.readouterr().out
    assert "Refused by policy" in out
    assert "evaluate_python" in out
    hashes = [line.split() for line in out.splitlines() if "content before" in line]
    assert len(hashes) == 3, "a refusal, a patch that does not apply, a handler that raises"
    assert all(words[2].rstrip(",") == words[4] for words in hashes)
    assert "applies to a fresh copy" in out
    assert "completed" in out
    assert "Podman is not used here: there is no podman on this machine" in out
    assert f"-def {OLD_NAME}(" in patch.read_text()
    assert f"+def {NEW_NAME}(" in patch.read_text()
    original = Path(__import__(PACKAGE).__file__).parent
    subprocess.run(["git", "apply", "--check", str(patch)], cwd=original, env=GIT, check=True)
