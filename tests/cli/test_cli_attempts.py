"""The commands ``attempts …`` on a real package, with scripts and with the API of a model."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import fake_sandbox
import pytest
from cli_user import ANTHROPIC, DONE, FILE, FIX, READ, CliUser, edit
from model_server import KEY, Call, Turn

from wink_workspace.attempts import Attempts
from wink_workspace.workspace import Workspace

SCORE = f"find {FILE} 'lineno + 1'"
WRONG = edit("{self.lineno}:", "{self.lineno - 1}:")
WIDER = edit("class ParseError(Exception):", "class ParseError(ValueError):")
NOTE = Call("write_file", {"file_path": "notes.md", "content": "fixed\n"})


class Keyboard(StringIO):
    """Answers, typed on a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch):
    def typing(*answers: str) -> Keyboard:
        keyboard = Keyboard("".join(f"{answer}\n" for answer in answers))
        monkeypatch.setattr(sys, "stdin", keyboard)
        return keyboard

    return typing


@pytest.fixture(autouse=True)
def sandbox() -> Iterator[None]:
    with fake_sandbox.registered():
        yield


def script(user: CliUser, name: str, *turns: tuple[Call, ...], tokens: int = 10) -> Path:
    """A script whose turns make these calls, then end."""
    lines = [
        {
            "tool_calls": [{"name": each.name, "arguments": each.arguments} for each in calls],
            "usage": {"input_tokens": tokens - 1, "output_tokens": 1},
        }
        for calls in turns
    ]
    path = user.tmp_path / f"{name}.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in [*lines, {"text": "Done."}]))
    return path


def attempts(user: CliUser, *arguments: object, fails: int = 0) -> str:
    return user(
        "attempts", "Fix the line numbers.", "--repo", user.source, "--sandbox", "fake",
        *arguments, fails=fails,
    )  # fmt: skip


def run_of(user: CliUser, *arguments: object) -> dict[str, object]:
    found: dict[str, object] = json.loads(
        user("attempts", "show", "--repo", user.source, "--json", *arguments)
    )
    return found


@pytest.mark.behaviour(180)
def test_the_best_attempt_is_kept_and_applied_and_the_others_stay_as_branches(
    user: CliUser,
) -> None:
    wrong = script(user, "wrong", (READ,), (WRONG,))
    right = script(user, "right", (READ,), (FIX, NOTE))
    out = attempts(
        user, "--n", 3, "--script", wrong, "--script", right, "--score", SCORE, "--yes"
    )  # fmt: skip
    assert user.faulty_file.read_text() == user.fixed_text
    assert "score without changes: 0, exit code 1" in user.err
    assert "attempt 2: finished, score 1 ✓, 3 calls, 20 tokens" in user.err
    assert "3 attempts: 3 finished; 1 passed; 60 tokens; best: attempt 2" in out
    assert "attempt 2 kept, as entry" in user.err
    assert "2 paths applied" in user.err

    (workspace,) = user.workspaces
    assert f"{workspace}\t" in user("attempts", "list")
    assert json.loads(user("attempts", "list", "--json"))[0]["workspace"] == workspace
    shown = user("attempts", "show", "--workspace", workspace)
    assert "3\tfinished\t0\t2\t20\t" in shown
    assert "wrong.jsonl; exit code 1: fake:" in shown
    assert "+{self.lineno - 1}" not in user("attempts", "diff", 2, "--workspace", workspace)
    assert "lineno - 1" in user("attempts", "diff", 1, 2, "--workspace", workspace)
    user("attempts", "keep", 2, "--workspace", workspace)
    assert "has nothing that is not merged already" in user.err
    user("attempts", "rm", "--workspace", workspace)
    with Workspace.open(workspace, storage=user.storage) as opened:
        assert opened.forks() == ()
    user("attempts", "list")
    assert "no runs of attempts" in user.err


@pytest.mark.behaviour(181)
def test_a_run_that_spent_its_budget_is_resumed_where_it_ended(user: CliUser) -> None:
    right = script(user, "right", (READ,), (FIX,), (NOTE,), tokens=100)
    attempts(user, "--n", 2, "--script", right, "--max-tokens", 150, "--workers", 1, fails=1)
    assert "the budget is spent, and the run is not complete" in user.err
    assert "no attempt finished" in user.err
    before = run_of(user)
    assert [each["phase"] for each in before["attempts"]] == ["stopped", "waiting"]  # type: ignore[index]
    assert before["usage"]["input_tokens"] + before["usage"]["output_tokens"] == 200  # type: ignore[index]

    out = user("attempts", "resume", "--repo", user.source, "--max-tokens", 1_000)
    assert "2 attempts: 2 finished; 0 passed; 600 tokens" in out
    after = run_of(user)
    assert [each["n_calls"] for each in after["attempts"]] == [3, 3]  # type: ignore[index]
    (workspace,) = user.workspaces
    with Workspace.open(workspace, storage=user.storage) as opened:
        (run_id,) = Attempts.run_ids(opened)
        first = Attempts.open(opened, run_id).results[0]
    with Workspace.open(workspace, storage=user.storage, branch=first.branch) as fork:
        assert [e.tool for e in fork.log() if e.tool] == ["write_file", "edit_file", "read_file"]


@pytest.mark.behaviour(182)
def test_models_take_turns_and_no_key_is_stored(user: CliUser) -> None:
    user.serve(*[step for _ in range(2) for step in (Turn("", (READ,)), Turn("", (FIX,)), DONE)])
    user(
        "attempts", f"Fix it with {KEY}.", "--repo", user.source, "--n", 2, "--sandbox", "none",
        "--models", f"{ANTHROPIC},{ANTHROPIC}", "--workers", 1, "--max-cost", 1, "--keep", "none",
    )  # fmt: skip
    assert len(user.server.requests) == 6
    run = run_of(user)
    assert run["about"]["models"] == [ANTHROPIC, ANTHROPIC]  # type: ignore[index]
    assert KEY not in json.dumps(run)
    assert float(str(run["cost_usd"])) > 0
    for path in (user.tmp_path / "state").rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


@pytest.fixture
def two(user: CliUser) -> Path:
    """A run whose two attempts edit the same line in different ways, and more."""
    one = script(user, "one", (READ,), (FIX, WIDER, NOTE))
    other = script(user, "other", (READ,), (WRONG,))
    attempts(user, "--n", 2, "--script", one, "--script", other, "--keep", "none")
    return user.source


@pytest.mark.behaviour(183)
def test_parts_of_an_attempt_are_kept_and_a_conflict_changes_nothing(
    user: CliUser, two: Path, typed
) -> None:
    keep = ("attempts", "keep", "--repo", two)
    user(*keep, 1, "--path", "notes.md")
    (workspace,) = user.workspaces
    assert "notes.md" in user("diff", workspace)
    assert "lineno + 1" not in user("diff", workspace)

    keyboard = typed("n", "y", "n")  # of the two hunks, the second; and not the file again
    user(*keep, 1, "-p")
    assert not keyboard.read()
    assert "lineno + 1" in user("diff", workspace)
    assert "ValueError" not in user("diff", workspace)

    before = user("log", workspace)
    user(*keep, 2, fails=1)
    assert "conflicts with other changes" in user.err
    assert "<<<<<<<" in user.err
    assert user("log", workspace) == before

    user(*keep)  # the best, which is the first: what is left of it
    assert "ValueError" in user("diff", workspace)


def test_the_user_is_asked_which_attempt_to_keep_and_what_to_apply(user: CliUser, typed) -> None:
    one = script(user, "one", (READ,), (WRONG,))
    other = script(user, "other", (READ,), (FIX,))
    keyboard = typed("?", "9", "d", "2", "y", "m", "n")
    out = attempts(user, "--n", 2, "--script", one, "--script", other)
    assert not keyboard.read()
    assert "lineno - 1" in out
    assert "NUMBER - look at another attempt" in user.err
    assert "attempt 2 kept" in user.err
    assert "send the model a message" not in user.err
    assert "to apply: wink-workspace apply" in user.err
    assert user.faulty_file.read_text() == user.faulty_text


def test_no_attempt_is_applied_unasked_if_none_passed(user: CliUser) -> None:
    wrong = script(user, "wrong", (READ,), (WRONG,))
    attempts(user, "--n", 1, "--script", wrong, "--score", SCORE, "--yes", fails=1)
    assert "no attempt passed; keep the best with: wink-workspace attempts keep 1" in user.err
    assert user.faulty_file.read_text() == user.faulty_text


def test_the_run_ends_at_the_first_attempt_that_passes(user: CliUser) -> None:
    right = script(user, "right", (READ,), (FIX,))
    out = attempts(
        user, "--n", 5, "--script", right, "--score", SCORE, "--first", "--workers", 1,
        "--keep", "none", "--json",
    )  # fmt: skip
    phases = [each["phase"] for each in json.loads(out)["attempts"]]
    assert phases == ["finished"] + ["waiting"] * 4
    assert "not complete" not in user.err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--n", 0), "0 attempts were asked for"),
        (("--n", 10_001), "10001 attempts were asked for"),
        (("--engine", "nowhere"), "there is no engine 'nowhere'"),
        (("--junit", "x.xml"), "without a command nothing is scored"),
        (("--score", "'"), "cannot be split"),
        (("--score", "true", "--sandbox", "none"), "without a sandbox no command can run"),
        (("--keep", "ask"), "nothing can be asked here"),
        (("--models", "a:b"), "one kind of model"),
        (("--branch", "new", "--yes"), "cannot get a branch"),
        (("--script", "missing.jsonl"), "cannot read the script"),
        (("--workspace", "0" * 12), "no workspace is called"),
    ],
)
def test_a_wrong_option_is_one_error_and_creates_nothing(
    user: CliUser, arguments: tuple[object, ...], error: str
) -> None:
    attempts(user, "--script", script(user, "any"), *arguments, fails=2)
    assert error in user.err
    assert user.err.count("wink-workspace:") == 1
    assert user.workspaces == []


def test_a_scorer_that_cannot_run_ends_the_command_before_the_first_turn(user: CliUser) -> None:
    right = script(user, "right", (READ,))
    attempts(user, "--script", right, "--score", "cat nothing", fails=1)
    user("attempts", "show", "--repo", user.source, fails=2)
    assert "there is no run of attempts" in user.err


def test_a_run_that_does_not_exist_is_one_error(user: CliUser) -> None:
    for command in (("show",), ("diff", 1), ("keep",), ("resume",), ("rm",)):
        user("attempts", *command, "--repo", user.source, fails=2)
        assert "there is no run of attempts" in user.err


def test_a_run_of_another_program_is_shown_but_not_resumed(user: CliUser) -> None:
    from attempt_program import nothing

    with Workspace.create(user.source, storage=user.storage) as workspace:
        list(Attempts(workspace, n=1).run(nothing))
    assert run_of(user)["about"] == {}
    user("attempts", "resume", "--repo", user.source, fails=2)
    assert "was not begun by this command" in user.err


@pytest.mark.xdist_group("ray")  # so that only one process loads it
@pytest.mark.behaviour(200)
def test_an_engine_that_cannot_be_reached_is_one_clear_error_and_begins_no_run(
    user: CliUser,
) -> None:
    if not os.environ.get("CI"):
        pytest.importorskip("ray", reason="ray has no wheel for this Python; see the extra `ray`")
    right = script(user, "right", (READ,))
    for address, exit_code, hint in (
        ("ray://127.0.0.1:1", 1, "or correct the address"),
        ("elsewhere", 2, "Use local, or ray://HOST:PORT"),
    ):
        attempts(user, "--script", right, "--engine", address, fails=exit_code)
        assert hint in user.err
        assert "continue with" not in user.err
        assert "Traceback" not in user.err
    assert user("attempts", "list", "--json").strip() == "[]"
