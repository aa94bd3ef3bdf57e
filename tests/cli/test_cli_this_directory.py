"""Commands without an id take the workspace of the current directory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from wink_workspace.cli import main

Shell = Callable[..., str]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "a.txt").write_text("one\n")
    (tmp_path / "turns.jsonl").write_text(
        '{"tool_calls": [{"name": "write_file",'
        ' "arguments": {"file_path": "new.txt", "content": "new"}}]}\n{"text": "Done."}\n'
    )
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(project)
    return project


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    def run(*arguments: object, fails: int = 0) -> str:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert code == fails, captured
        return captured.err if fails else captured.out

    return run


def run(shell: Shell, project: Path, *more: object) -> str:
    """A new workspace of the project with one change, or another run in the same; its id."""
    script = project.parent / "turns.jsonl"
    shell("run", "--script", script, "--sandbox", "none", *more)
    return used(shell)


def used(shell: Shell) -> str:
    return shell("use").partition(":")[0]


def test_commands_take_the_workspace_of_the_directory_and_those_above(
    shell: Shell, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(shell, project)
    monkeypatch.chdir(project / "src")
    assert "new.txt" in shell("diff")
    assert "write_file" in shell("log", "-n", 1)
    assert "write_file" in shell("show", 2)
    assert "undo" in shell("undo", 2)
    shell("redo")
    shell("apply")
    assert (project / "new.txt").read_text() == "new"


def test_a_command_that_changes_names_the_workspace_that_it_took(
    shell: Shell, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = run(shell, project)
    capsys.readouterr()
    assert main(["undo"]) == 0
    assert f"workspace {name} of {project}" in capsys.readouterr().err
    assert main(["redo", name]) == 0
    assert "workspace" not in capsys.readouterr().err


def test_each_run_is_a_new_workspace_until_one_is_chosen(shell: Shell, project: Path) -> None:
    first = run(shell, project)
    second = run(shell, project)
    assert first != second
    shell("use", first[:6])
    assert run(shell, project) == first
    assert run(shell, project, "--repo", ".") not in (first, second)
    assert used(shell) not in (first, second)


def test_a_workspace_that_is_named_is_the_last_one_used(shell: Shell, project: Path) -> None:
    first = run(shell, project)
    second = run(shell, project)
    assert used(shell) == second
    shell("log", first)
    assert used(shell) == first
    listed = json.loads(shell("list", ".", "--json"))
    assert [each["id"] for each in listed] == [first, second]
    assert json.loads(shell("list", project.parent, "--json")) == []


def test_paths_are_names_and_so_are_forks(shell: Shell, project: Path) -> None:
    name = run(shell, project)
    assert shell("fork", "try-2") == f"{name}/try-2\n"
    shell("undo", "try-2")
    assert shell("diff", "try-2") == ""
    for each in (".", project, "./src", name[:5], "main"):
        assert "new.txt" in shell("diff", each)
    assert shell("diff", project / "try-2") == ""
    shell("use", "try-2")
    assert shell("diff") == ""
    shell("rm", f"{name}/try-2")
    assert "new.txt" in shell("diff")


def test_a_fork_is_merged_into_the_main_branch(shell: Shell, project: Path) -> None:
    run(shell, project)
    shell("fork", "try-2")
    shell("undo", "try-2")
    assert "new.txt" in shell("diff")
    shell("merge", "try-2")
    assert shell("diff") == ""


def test_short_numbers_are_entries(shell: Shell, project: Path) -> None:
    run(shell, project)
    shell("restore", 1, "new.txt")
    assert shell("diff") == ""
    shell("restore", 2)
    assert "new.txt" in shell("diff")


@pytest.mark.parametrize("command", [["log"], ["undo"], ["apply"], ["fork", "x"], ["show", "1"]])
def test_without_a_workspace_the_error_says_how_to_make_one(
    shell: Shell, project: Path, command: list[str]
) -> None:
    message = shell(*command, fails=2)
    assert f"{project} has no workspace yet" in message
    assert "wink-workspace run" in message


def test_only_an_id_is_removed(shell: Shell, project: Path) -> None:
    name = run(shell, project)
    assert "rm needs an id" in shell("rm", ".", fails=2)
    assert "name one workspace" in shell("rm", fails=2)
    shell("rm", name)
    assert json.loads(shell("list", "--json")) == []


def test_garbage_of_all_workspaces_is_collected(shell: Shell, project: Path) -> None:
    names = {run(shell, project), run(shell, project)}
    assert json.loads(shell("gc", "--json"))["workspaces"].keys() == names


def test_a_name_of_two_is_refused(shell: Shell, project: Path) -> None:
    name = run(shell, project)
    shell("fork", name, name[:4])
    assert f"{name}/{name[:4]}" in shell("diff", name[:4], fails=2)


def test_first_workspace_of_a_directory_in_a_repository_has_the_whole_repository(
    shell: Shell, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / ".git").mkdir()
    monkeypatch.chdir(project / "src")
    run(shell, project)
    assert shell("use").rstrip().endswith(f": {project}")


def test_repository_of_the_home_is_not_the_project_of_a_directory_in_it(
    shell: Shell, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(project))
    (project / ".git").mkdir()
    monkeypatch.chdir(project / "src")
    run(shell, project)
    assert shell("use").rstrip().endswith(f": {project / 'src'}")
