"""``list``, ``rm --applied``, and the removal of workspaces that were made for one run."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from cli_user import DONE, FIX, READ, CliUser
from model_server import Turn

from wink_workspace.clock import SYSTEM_CLOCK
from wink_workspace.workspace import Workspace, summaries

SHORT = (Turn("", (READ, FIX)), DONE)


def later(**age: float):
    return SYSTEM_CLOCK.now() + timedelta(**age)


def states(user: CliUser) -> dict[str, str]:
    return {each["id"]: each["state"] for each in json.loads(user("list", "--json"))}


@pytest.fixture
def played(user: CliUser, tmp_path: Path) -> CliUser:
    """A user whose runs play a script that fixes the project."""
    turns = [
        {"tool_calls": [{"name": "read_file", "arguments": READ.arguments}]},
        {"tool_calls": [{"name": "edit_file", "arguments": FIX.arguments}]},
        {"text": "Fixed."},
    ]
    script = tmp_path / "turns.jsonl"
    script.write_text("".join(json.dumps(turn) + "\n" for turn in turns))
    return user


def run(user: CliUser, *arguments: object) -> str:
    """Run the script; returns the id of the new workspace."""
    before = set(user.workspaces)
    user(
        "run",
        "Fix it.",
        "--script",
        user.tmp_path / "turns.jsonl",
        "--repo",
        user.source,
        *arguments,
    )
    (new,) = set(user.workspaces) - before
    return new


@pytest.mark.behaviour(137)
def test_list_shows_task_state_changes_and_size(played: CliUser) -> None:
    empty = played("new", played.source).partition(":")[0]
    left = run(played)
    assert states(played) == {empty: "unchanged", left: "to apply"}
    found = {each["id"]: each for each in json.loads(played("list", "--json"))}
    assert (found[left]["task"], found[left]["n_changes"]) == ("Fix it.", 1)
    assert found[left]["size_bytes"] > 1_000
    played("apply", left)
    assert states(played)[left] == "applied"
    line = next(line for line in played("list").splitlines() if left in line)
    assert line.split("\t")[4:6] == ["applied", "0"]
    (played.storage.folder(left).ledger / "HEAD").unlink()
    assert states(played)[left] == "damaged"


@pytest.mark.behaviour(138)
def test_rm_applied_removes_only_what_has_nothing_left_to_apply(played: CliUser) -> None:
    left, applied = run(played), run(played, "--yes")
    forked = run(played)
    played("apply", forked)
    played("fork", forked, "other")
    with Workspace.open(forked, storage=played.storage, branch="other") as fork:
        with fork.call("more") as call:
            call.files.write_text("more.txt", "x\n")
    assert "0 workspaces removed" in played("rm", "--applied", "--older", "7d")
    assert "1 workspace removed" in played("rm", "--applied")
    assert set(played.workspaces) == {left, forked}
    assert applied not in played.workspaces
    played("rm", left, "--applied", fails=2)
    played("rm", fails=2)
    played("rm", left, "--older", "7d", fails=2)


@pytest.mark.behaviour(138)
def test_workspace_of_an_old_run_is_removed_if_nothing_is_lost(played: CliUser) -> None:
    def remaining(**age: float) -> set[str]:
        summaries.remove_finished(played.storage, now=later(**age))
        return set(played.workspaces)

    own = played("new", played.source).partition(":")[0]
    done, left, edited, used, forked = (run(played) for _ in range(5))
    for each in (done, edited, used, forked):
        played("apply", each)
    with Workspace.open(edited, storage=played.storage) as workspace:
        workspace.files.write_text("mine.txt", "mine\n")  # outside of any call
        workspace.undo()
    played("run", "--workspace", used, "--script", played.tmp_path / "turns.jsonl", "--yes")
    played("fork", forked, "other")
    with Workspace.open(forked, storage=played.storage, branch="other") as fork:
        with fork.call("more") as call:
            call.files.write_text("more.txt", "x\n")
    everything = {own, done, left, edited, used, forked}
    assert remaining(days=6) == everything
    with Workspace.open(done, storage=played.storage):
        assert remaining(days=8) == everything, "it is in use"
    assert remaining(days=8) == everything - {done}


def test_run_reports_what_it_removed_in_one_line(
    played: CliUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run(played, "--yes")
    monkeypatch.setattr(summaries, "KEPT_AFTER_RUN", timedelta(0))
    run(played)
    assert f"removed 1 workspace of old runs, with nothing left to apply: {done}\n" in played.err


@pytest.mark.parametrize("path", ["made.log", ".env"])
def test_rm_applied_keeps_what_apply_leaves_out(played: CliUser, path: str) -> None:
    """One path is ignored by the source, the other one is derived."""
    (played.source / ".gitignore").write_text("*.log\n")
    (played.source / ".env").write_text("A=1\n")
    applied = run(played, "--yes")
    with Workspace.open(applied, storage=played.storage) as workspace:
        with workspace.call("more") as call:
            call.files.write_text(path, "A=2\n")
    assert "0 workspaces removed" in played("rm", "--applied")
    assert summaries.remove_finished(played.storage, now=later(days=8)) == ()
    assert list(played.workspaces) == [applied]
