"""After a run, and with ``apply -p``: choose files and hunks, edit a hunk, or continue the run."""

from __future__ import annotations

import json
import sys
from io import StringIO
from pathlib import Path

import pytest
from cli_user import DONE, FIX, READ, SHORT_RUN, CliUser, edit
from model_server import Turn

from wink_workspace.workspace import RecordedRun, Workspace

LINES = [f"line {n}\n" for n in range(50)]
CHANGED = [0, 10, 20, 30, 49]
TURN_TOKENS = 10


class Keyboard(StringIO):
    """Answers, typed on a terminal."""

    def __init__(self, *answers: str) -> None:
        super().__init__("".join(f"{answer}\n" for answer in answers))

    def isatty(self) -> bool:
        return True


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch):
    def typing(*answers: str) -> Keyboard:
        keyboard = Keyboard(*answers)
        monkeypatch.setattr(sys, "stdin", keyboard)
        return keyboard

    return typing


def with_changed(*which: int) -> str:
    lines = list(LINES)
    for n in which:
        lines[CHANGED[n]] = f"CHANGED {n}\n"
    return "".join(lines)


@pytest.fixture
def five(user: CliUser) -> str:
    """A workspace with five changed hunks, an added and a removed file."""
    (user.source / "a.txt").write_text("".join(LINES))
    (user.source / "gone.txt").write_text("old\n")
    workspace = user("new", user.source).partition(":")[0]
    with Workspace.open(workspace, storage=user.storage) as opened, opened.call("edit") as call:
        call.files.write_text("a.txt", with_changed(0, 1, 2, 3, 4))
        call.files.write_text("b.txt", "new\n")
        call.files.delete("gone.txt")
    return workspace


@pytest.mark.behaviour(118)
def test_two_of_five_hunks_are_applied_and_the_rest_later(user: CliUser, five: str, typed) -> None:
    keyboard = typed("n", "y", "?", "n", "y", "n", "n", "n")
    assert "1 path applied" in user("apply", "-p", five)
    assert not keyboard.read(), "every answer was read"
    assert "e - edit the hunk" in user.err
    assert (user.source / "a.txt").read_text() == with_changed(1, 3)
    assert not (user.source / "b.txt").exists()

    typed("n", "a", "y", "y")
    assert "3 paths applied" in user("apply", "--interactive", five)
    assert (user.source / "a.txt").read_text() == with_changed(1, 2, 3, 4)
    assert not (user.source / "gone.txt").exists()

    assert "1 path applied" in user("apply", five)
    assert (user.source / "a.txt").read_text() == with_changed(0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("answers", "hunks"),
    [(["d", "n", "n"], ()), (["y", "q"], (0,)), (["n", "a", "q"], (1, 2, 3, 4)), (["q"], ())],
)
def test_answers_that_decide_on_several_hunks(
    user: CliUser, five: str, typed, answers: list[str], hunks: tuple[int, ...]
) -> None:
    typed(*answers)
    user("apply", "-p", five)
    assert (user.source / "a.txt").read_text() == with_changed(*hunks)
    assert ("nothing chosen" in user.err) is (not hunks)


def test_end_of_the_input_applies_nothing(user: CliUser, five: str, typed) -> None:
    typed("y", "y")
    user("apply", "-p", five, fails=130)
    assert (user.source / "a.txt").read_text() == with_changed()


def test_hunk_is_edited_in_the_users_editor(
    user: CliUser, five: str, typed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i "$WITH" "$2"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", f"{editor} --wait")
    monkeypatch.setenv("WITH", "s/^+CHANGED.*/+mine/")
    typed("e", "q")
    user("apply", "-p", five)
    assert (user.source / "a.txt").read_text() == with_changed().replace("line 0\n", "mine\n")

    monkeypatch.setenv("WITH", "s/^-line/-other/")
    typed("n", "e", "q")
    user("apply", "-p", five)
    assert "has other old lines" in user.err
    monkeypatch.setenv("VISUAL", "false")
    typed("n", "e", "q")
    user("apply", "-p", five)
    assert "ended with exit code 1" in user.err


def test_interactive_needs_a_terminal(user: CliUser, five: str) -> None:
    user("apply", "-p", five, fails=2)
    assert "nothing can be asked here" in user.err


# After a run


def test_choice_after_a_run_applies_the_chosen_file(user: CliUser, typed) -> None:
    other = edit("class ParseError(Exception):", "class ParseError(ValueError):")
    user.serve(Turn("", (READ, FIX, other)), DONE)
    typed("?", "p", "y", "n")
    user.run()
    assert "m - send the model a message" in user.err
    assert "1 path applied" in user.err
    (workspace,) = user.workspaces
    assert f"the rest can be applied later: wink-workspace apply -p {workspace}" in user.err
    assert "ParseError(ValueError)" in user.faulty_file.read_text()
    assert user.faulty_file.read_text() != user.fixed_text


@pytest.mark.behaviour(119)
def test_message_continues_the_conversation_and_its_files(user: CliUser, typed) -> None:
    again = edit("class ParseError(Exception):", "class ParseError(ValueError):")
    server = user.serve(*SHORT_RUN, Turn("As you wish.", (again,)), Turn("Both are done."))
    typed("m", "Derive it from ValueError.", "y")
    out = user.run()
    assert "Both are done." in out
    expected = user.fixed_text.replace("(Exception)", "(ValueError)")
    assert user.faulty_file.read_text() == expected
    sent = json.dumps(server.requests[3])
    for text in ("Reading.", "count from 1 now", "Derive it from ValueError.", "Fix the line"):
        assert text in sent, text
    (workspace,) = user.workspaces
    run = RecordedRun.newest(user.storage.folder(workspace))
    assert run is not None
    assert run.is_finished
    assert (run.about.follows, run.about.message) == (1, "Derive it from ValueError.")
    assert run.usage.input_tokens == 5 * TURN_TOKENS


@pytest.mark.behaviour(119)
def test_interrupted_continuation_is_resumed_with_the_whole_conversation(
    user: CliUser, typed
) -> None:
    user.serve(*SHORT_RUN)  # the message has no turn: the provider fails
    typed("m", "And now?")
    user.run(fails=1)
    server = user.serve(DONE)
    typed("y")
    user("run", "--repo", user.source, "--resume")
    sent = json.dumps(server.requests[0])
    assert sent.index("Reading.") < sent.index("And now?")
    assert user.faulty_file.read_text() == user.fixed_text
