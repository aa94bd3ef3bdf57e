"""Hooks in the settings of agent programs: added, and removed, without touching anything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wink_workspace.errors import UsageError
from wink_workspace.guard.installing import Installation
from wink_workspace.guard.programs.registry import PROGRAMS
from wink_workspace.guard.settings_text import with_hooks, without_hooks

HOOK = {"PreToolUse": {"hooks": [{"command": "our hook"}]}, "Stop": {"hooks": ["our hook"]}}
COMMENTED = """{
  // mine
  "theme": "dark", /* "hooks": {} */
  "hooks": {"PreToolUse": [ {"command": "theirs ]}"}, ],},
}
"""
TEXTS = [
    "",
    "{}",
    "{}\n",
    '{"a": [1, {"b": "}"}]}',
    '{"hooks": {}}',
    '{"hooks": {"Stop": []}, "b": 1}',
]


@pytest.mark.parametrize("text", TEXTS)
def test_hooks_are_added_to_any_settings(text: str) -> None:
    found = json.loads(with_hooks(text, HOOK))
    before = json.loads(text or "{}")
    assert found.pop("hooks") == {name: [hook] for name, hook in HOOK.items()}
    before.pop("hooks", None)
    assert found == before


def test_comments_order_and_hooks_of_others_stay() -> None:
    text = with_hooks(COMMENTED, HOOK)
    assert text.startswith(COMMENTED[: COMMENTED.index(" ],},")])
    assert '"command": "theirs ]}"' in text
    assert text.count("our hook") == 2
    again = without_hooks(text, lambda each: "our hook" in each)
    assert "our hook" not in again
    assert "// mine" in again
    assert '"command": "theirs ]}"' in again
    assert "Stop" not in again


@pytest.mark.parametrize("text", ["[]", '{"hooks": []}', '{"hooks": {"Stop": 1}}', '{"hooks'])
def test_settings_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        with_hooks(text, HOOK)


@pytest.mark.parametrize("name", PROGRAMS)
def test_removing_restores_every_file_byte_for_byte(name: str, tmp_path: Path) -> None:
    program, home = PROGRAMS[name], tmp_path / "home"
    settings = home / program.user_settings
    settings.parent.mkdir(parents=True)
    before = None if program.own_file else COMMENTED
    if before is not None:
        settings.write_text(before)
    installation = Installation(tmp_path / "state", home)
    installation.install(program)
    installation.install(program)  # once more changes nothing
    assert [each.works for each in installation.files()] == [True] * (1 + len(program.files))
    assert str(installation.pipes.script) in settings.read_text()
    installation.remove(program)
    assert (settings.read_text() if settings.exists() else None) == before
    assert not [path for path in home.rglob("*") if path.is_file() and path != settings]
    assert installation.files() == []


def test_removing_from_settings_that_changed_since_takes_only_our_hooks(tmp_path: Path) -> None:
    program = PROGRAMS["claude-code"]
    installation = Installation(tmp_path / "state", tmp_path)
    installation.install(program)
    settings = tmp_path / program.user_settings
    fields = json.loads(settings.read_text())
    fields["hooks"]["Stop"].insert(0, {"hooks": [{"type": "command", "command": "theirs"}]})
    settings.write_text(json.dumps(fields | {"model": "opus"}))
    installation.remove(program)
    theirs = {"Stop": [{"hooks": [{"type": "command", "command": "theirs"}]}]}
    assert json.loads(settings.read_text()) == {"hooks": theirs, "model": "opus"}


def test_command_of_the_user_with_the_same_name_is_left_alone(tmp_path: Path) -> None:
    program = PROGRAMS["claude-code"]
    own = tmp_path / ".claude/commands/undo.md"
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    installation = Installation(tmp_path / "state", tmp_path)
    assert own not in installation.install(program)
    installation.remove(program)
    assert own.read_text() == "mine"


def test_project_settings_are_those_that_are_not_committed(tmp_path: Path) -> None:
    installation = Installation(tmp_path / "state", tmp_path / "home")
    project = tmp_path / "project"
    changed = installation.install(PROGRAMS["claude-code"], project)
    assert changed == [project / ".claude/settings.local.json"]
    with pytest.raises(UsageError, match="--user"):
        installation.install(PROGRAMS["codex"], project)
    installation.remove(PROGRAMS["claude-code"], project)
    assert not (project / ".claude/settings.local.json").exists()
