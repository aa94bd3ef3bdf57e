"""``run --resume --message``: a run that has ended continues in another process with a message."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from cli_user import DONE, FIX, READ, SHORT_RUN, CliUser, edit
from model_server import KEY, HangingTurn, HttpFailure, Turn

from wink_workspace.cli.serve.ui import BackgroundRun
from wink_workspace.errors import UsageError
from wink_workspace.workspace import RecordedRun, RunAbout, Workspace

MESSAGE = "Derive it from ValueError."
AGAIN = edit("class ParseError(Exception):", "class ParseError(ValueError):")


def say(user: CliUser, message: str = MESSAGE, *options: object, fails: int = 0) -> str:
    return user(
        "run", "--repo", user.source, "--resume", "--message", message, *options, fails=fails
    )


def newest(user: CliUser) -> RecordedRun:
    run = RecordedRun.newest(user.storage.folder(user.workspaces[0]))
    assert run is not None
    return run


def blocks(request: dict[str, Any]) -> list[tuple[str, str]]:
    """Who says what: the type and the text of each block of a request."""
    return [
        (f"{message['role']} {block['type']}", block.get("text", ""))
        for message in request["messages"]
        for block in message["content"]
    ]


@pytest.mark.behaviour(212)
def test_a_message_continues_a_finished_run_with_its_conversation_files_and_limits(
    user: CliUser,
) -> None:
    user.serve(*SHORT_RUN)
    user.run("--max-turns", 5, "--sandbox", "none")
    server = user.serve(Turn("As you wish.", (AGAIN,)), Turn("Both are done."), DONE)
    assert "Both are done." in say(user)
    expected = user.fixed_text.replace("(Exception)", "(ValueError)")
    with Workspace.open(user.workspaces[0], storage=user.storage) as workspace:
        assert workspace.files.read_bytes("iniconfig/exceptions.py").decode() == expected
    sent = json.dumps(server.requests[0])
    for text in ("Reading.", "count from 1 now", MESSAGE, "Fix the line"):
        assert text in sent, text
    about = newest(user).about
    assert (about.follows, about.message, about.max_turns) == (1, MESSAGE, 5)
    assert about.sandbox == "none"
    say(user, fails=1)
    assert "--resume --max-turns 10" in user.err.replace("\n", " ")
    assert len(server.requests) == 2, "the turns of all parts count"


@pytest.mark.behaviour(212)
@pytest.mark.parametrize("number", [0, 1])
def test_a_message_resumes_an_interrupted_run_and_the_model_gets_it(
    user: CliUser, number: int
) -> None:
    """Also before its first turn."""
    hanging = HangingTurn(SHORT_RUN[number], 2, lambda: os.kill(os.getpid(), signal.SIGINT))
    user.serve(*SHORT_RUN[:number], hanging)
    user.run(fails=130)
    assert newest(user).problem == "interrupted"
    server = user.serve(*SHORT_RUN[number:])
    say(user)
    texts = [text for kind, text in blocks(server.requests[0]) if kind == "user text"]
    assert texts.count(MESSAGE) == 1
    assert newest(user).is_finished
    assert newest(user).problem == ""
    assert newest(user).number == 1


def test_a_message_follows_the_answers_of_calls_that_are_repeated(user: CliUser) -> None:
    """Providers refuse a message between calls and their answers."""
    user.serve(Turn("Fixing.", (READ, FIX)), DONE)
    user.run()
    which, run = user.workspaces[0], newest(user)
    turn = json.loads(run.script.read_text().splitlines()[0])
    turn["tool_calls"][1]["id"] = "not answered"
    run.script.write_text(json.dumps(turn) + "\n")
    with Workspace.open(which, storage=user.storage) as workspace:
        workspace.undo()
    server = user.serve(DONE)
    say(user)
    assert [kind for kind, _ in blocks(server.requests[0])][-4:] == [
        "assistant tool_use", "user tool_result", "user tool_result", "user text",
    ]  # fmt: skip
    assert blocks(server.requests[0])[-1][1] == MESSAGE


def test_a_message_that_could_not_be_sent_is_kept_for_the_next_start(user: CliUser) -> None:
    user.serve(*SHORT_RUN)
    user.run()
    user.serve(HttpFailure(400, message="no such model"))
    say(user, fails=1)
    assert "no such model" in newest(user).problem
    server = user.serve(DONE)
    user("run", "--repo", user.source, "--resume")
    assert blocks(server.requests[0])[-1] == ("user text", MESSAGE)


def test_without_a_key_nothing_is_recorded(user: CliUser, monkeypatch: pytest.MonkeyPatch) -> None:
    user.serve(*SHORT_RUN)
    user.run()
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    say(user, fails=2)
    assert "ANTHROPIC_API_KEY" in user.err
    assert newest(user).number == 1
    assert newest(user).is_finished


def test_a_message_is_read_from_standard_input_and_its_secrets_are_redacted(
    user: CliUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.serve(*SHORT_RUN)
    user.run()
    typed = io.TextIOWrapper(io.BytesIO(f"Use {KEY}.\nAnd be kind.".encode()))
    monkeypatch.setattr("sys.stdin", typed)
    server = user.serve(DONE)
    say(user, "-")
    (text,) = [text for kind, text in blocks(server.requests[0])[-1:] if kind == "user text"]
    assert text.startswith("Use [")
    assert text.endswith("And be kind.")
    for path in user.storage.folder(user.workspaces[0]).runs.rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--workspace", "ID", "--message", "x"), "there is nothing to do"),
        (("Fix.", "--workspace", "ID", "--message", "x"), "--message continues the last run"),
        (("--workspace", "ID", "--resume", "--message", " "), "the message is empty"),
        (("--workspace", "ID", "--resume", "--message", "x" * 65_537), "over 64 KiB"),
        (("--workspace", "ID", "--resume", "--message", "x"), "has no run to resume"),
        (("--repo", "SOURCE", "--resume", "--message", "x"), "there was no run over"),
        (("--attach", "--message", "x"), "--attach only watches a run"),
        (("--workspace", "ID", "--agent", "codex", "--resume", "--message", "x"), "of a model"),
    ],
)
def test_a_message_without_a_run_to_continue_is_refused(
    user: CliUser, arguments: tuple[str, ...], problem: str
) -> None:
    with Workspace.create(user.source, storage=user.storage) as workspace:
        which = workspace.info.id
    named = {"SOURCE": str(user.source), "ID": which}
    user("run", *(named.get(each, each) for each in arguments), fails=2)
    assert problem in " ".join(user.err.split())


def test_a_message_to_an_agent_program_is_refused(user: CliUser) -> None:
    with Workspace.create(user.source, storage=user.storage) as workspace:
        folder = user.storage.folder(workspace.info.id)
        run = RecordedRun.begin(folder, RunAbout("t", "codex", "podman", 1, is_agent=True))
        run.keep_answer("Done.")
    say(user, fails=2)
    assert "one of an agent program" in user.err
    assert newest(user).number == 1


def test_the_module_is_the_command() -> None:
    command = [sys.executable, "-P", "-m", "wink_workspace.cli", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip()


def background(user: CliUser, message: str = MESSAGE) -> BackgroundRun:
    """A process of the last run, or of a workspace that does not exist, which has ended."""
    name = (user.workspaces or ["abc"])[0]
    process = BackgroundRun(name, message, dict(os.environ))
    process._waiting.join(60)
    return process


def test_a_run_in_the_background_takes_its_message_and_ends(user: CliUser) -> None:
    user.serve(*SHORT_RUN)
    user.run()
    server = user.serve(DONE)
    assert background(user).ending() == ""
    assert blocks(server.requests[0])[-1] == ("user text", MESSAGE)
    user("run", "--workspace", user.workspaces[0], "--resume", fails=2)
    assert "the run is finished. Continue it with --message" in user.err


def test_the_last_error_of_a_run_in_the_background_is_kept(
    user: CliUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = background(user).ending()
    assert problem is not None
    assert problem.startswith("no workspace is called 'abc'.")
    monkeypatch.setattr(sys, "executable", str(user.tmp_path / "gone"))
    with pytest.raises(UsageError, match="cannot be started: No such file"):
        background(user)
