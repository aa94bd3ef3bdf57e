"""The command ``guard``: hooks for an agent program, and undo while it works."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_user import CliUser

from wink_workspace.filesystem import parse_path
from wink_workspace.guard import GuardedProject, ObservedCall
from wink_workspace.guard.hook_pipes import HookPipes
from wink_workspace.workspace import WorkspaceStorage


@pytest.fixture
def user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CliUser:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    found = CliUser(tmp_path, capsys, monkeypatch)
    (found.source / ".git").mkdir()
    monkeypatch.chdir(found.source)
    return found


def project(user: CliUser) -> GuardedProject:
    storage = WorkspaceStorage(user.tmp_path / "state/wink-workspace")
    return GuardedProject(storage, user.source)


def test_guard_writes_hooks_records_the_project_and_says_what_to_do(user: CliUser) -> None:
    assert "No program is guarded" in user("guard")
    shown = user("guard", "claude-code")
    settings = user.source / ".claude/settings.local.json"
    assert f"hooks in {settings}" in shown
    assert "wink-workspace undo" in shown
    shown = user("guard")
    assert "works" in shown
    assert str(user.source) in shown
    assert f"removed from {settings}" in user("guard", "claude-code", "--remove")
    assert not settings.exists()
    assert "has no hooks of ours" in user("guard", "claude-code", "--remove")


def test_undo_keeps_uncertain_paths_and_says_so(user: CliUser) -> None:
    user("guard", "codex")
    guarded = project(user)
    edit = parse_path("iniconfig/exceptions.py")
    guarded.begin(ObservedCall(id="1", tool="Edit", paths=(edit,), is_broad=False))
    user.faulty_file.write_text(user.fixed_text)
    guarded.end("1")
    guarded.begin(ObservedCall(id="2", tool="Bash"))
    (user.source / "made.txt").write_text("who?")
    guarded.end("2")
    guarded.release()
    user("undo", fails=1)
    assert "made.txt" in user.err
    assert "--uncertain" in user.err
    user("undo", ".", "2")
    assert user.faulty_file.read_text() == user.faulty_text
    assert (user.source / "made.txt").exists()
    user("undo", ".", "3", "--uncertain")
    assert not (user.source / "made.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("vim",), "no hooks for 'vim'"),
        (("codex", "--project"), "--user"),
        (("claude-code", "--project", "--user"), "exclude each other"),
    ],
)
def test_mistakes_say_what_to_do(user: CliUser, arguments: tuple[str, ...], words: str) -> None:
    user("guard", *arguments, fails=2)
    assert words in user.err


def test_home_is_not_a_project(user: CliUser, monkeypatch: pytest.MonkeyPatch) -> None:
    home = user.tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    user("guard", "codex", fails=2)
    assert "is not a project" in user.err
    assert not HookPipes(user.tmp_path / "state/wink-workspace/guard").script.exists()
