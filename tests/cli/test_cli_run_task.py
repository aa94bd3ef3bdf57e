"""``run TASK`` with the real SDKs and a fake provider: a real package is searched, fixed, applied."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_user import (
    ANTHROPIC,
    CHECK,
    DONE,
    FILE,
    FIX,
    PLAN,
    READ,
    RUNNER,
    SEARCH,
    SHORT_RUN,
    WIRES,
    CliUser,
    edit,
)
from model_server import KEY, Call, DroppedTurn, HangingTurn, HttpFailure, ModelServer, Step, Turn
from rich.console import Console

from wink_workspace.adapters.model import Retrying, TextDelta
from wink_workspace.cli.run.run_display import RunDisplay, RunFeed
from wink_workspace.environment import Environment
from wink_workspace.filesystem import DiskFilesystem
from wink_workspace.session import Session
from wink_workspace.workspace import RecordedRun, RunAbout


@pytest.mark.parametrize("model", WIRES)
def test_run_fixes_a_package_and_applies_it_despite_provider_and_model_errors(
    user: CliUser, model: str
) -> None:
    wrong = edit("{self.lineno}:", "{self.lineno + 2}:")
    again = edit("{self.lineno + 2}:", "{self.lineno + 1}:")
    other = edit("class ParseError(Exception):", "class ParseError(ValueError):")
    server = user.serve(
        Turn("A plan first.", (PLAN, SEARCH)),
        HttpFailure(503, "overloaded_error", "busy"),
        Turn("", (Call("edit_file", '{"file_path": "ini'), Call("fix_it", {}), READ)),
        DroppedTurn(Turn("Two edits of one file.", (wrong, other)), 5),
        Turn("Two edits of one file.", (wrong, other)),
        HttpFailure(429, "rate_limit_error", "slow"),
        Turn("", (CHECK,)),
        Turn("Off by one still.", (again, CHECK)),
        DONE,
    )
    out = user(
        "run", "Fix the line numbers.", "--repo", user.source, "--model", model,
        "--sandbox", "asteval", "--apply", "--yes",
    )  # fmt: skip
    assert len(server.requests) == 9
    assert user.faulty_file.read_text() == user.fixed_text.replace("(Exception)", "(ValueError)")
    assert "10 calls, 3 undone; 1 path changed" in out
    assert "+class ParseError(ValueError):" in out
    assert "The line numbers count from 1 now." in out
    for expected in ("A plan first.", "· 1. Find", "fix_it", "attempt 2", "1 path applied"):
        assert expected in user.err, expected
    assert "tokens: 60 in, 30 out" in user.err


def test_replayed_script_of_a_run_gives_the_same_tree(user: CliUser) -> None:
    fresh = user.tmp_path / "fresh"
    shutil.copytree(user.source, fresh)
    user.serve(
        Turn("", (PLAN, SEARCH, FIX)),
        Turn("", (READ, Call("edit_file", "{"), Call("nothing", {"a": 1}))),
        Turn("", (FIX, Call("write_file", {"file_path": "new.txt", "content": "é\n"}))),
        DONE,
    )
    recorded = user.tmp_path / "recorded.jsonl"
    user.run("--record", recorded)
    (first,) = user.workspaces
    script = user.tmp_path / "turns.jsonl"
    script.write_text(user("script", first))
    assert script.read_text() == recorded.read_text()
    user("run", "--script", script, "--repo", fresh)
    (second,) = set(user.workspaces) - {first}
    assert user.tree(second) == user.tree(first)
    assert len(user.server.requests) == 4, "no model was asked"


# Interrupted and resumed


def uninterrupted(user: CliUser, *turns: Turn) -> str:
    """The tree after a run that is not interrupted."""
    user.serve(*turns)
    user.run()
    return user.tree(user.workspaces[0])


@pytest.mark.share(5)
@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("n_events", [0, 2, 6])
def test_run_interrupted_during_a_turn_is_resumed_to_the_same_tree(
    user: CliUser, number: int, n_events: int
) -> None:
    expected = uninterrupted(user, *SHORT_RUN)
    steps: list[Step] = list(SHORT_RUN)
    interrupt = HangingTurn(
        SHORT_RUN[number], n_events, lambda: os.kill(os.getpid(), signal.SIGINT)
    )
    user.serve(*steps[:number], interrupt, *steps[number:])
    user.run(fails=130)
    assert "interrupted; nothing is half done" in user.err
    assert "--resume" in user.err
    out = user("run", "--repo", user.source, "--resume")
    assert "count from 1" in out
    assert user.tree(user.workspaces[0]) == expected
    assert user.faulty_file.read_text() == user.faulty_text, "not applied"
    conversation = json.dumps(user.server.requests[-1])
    assert ("The run was interrupted here" in conversation) == (number > 0)


def test_ctrl_c_during_a_call_undoes_it_and_resume_repeats_it(
    user: CliUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = uninterrupted(user, *SHORT_RUN)
    whole = DiskFilesystem.write_bytes

    def half(self: DiskFilesystem, path: str, data: bytes, **options: object) -> object:
        monkeypatch.setattr(DiskFilesystem, "write_bytes", whole)
        self.write_bytes(path, b"half")
        signal.raise_signal(signal.SIGINT)
        return self.write_bytes(path, data)

    write = Turn("", (Call("write_file", {"file_path": "new.txt", "content": "all of it"}),))
    user.serve(*SHORT_RUN[:2], write, DONE)
    monkeypatch.setattr(DiskFilesystem, "write_bytes", half)
    user.run(fails=130)
    assert user.tree(user.workspaces[0]) == expected, "the call left no trace"
    user("run", "--repo", user.source, "--resume")
    assert len(user.server.requests) == 4, "the model was not asked for the call again"
    assert "+all of it" in user("diff", user.workspaces[0])


def test_run_killed_while_the_model_answers_is_resumed_to_the_same_tree(user: CliUser) -> None:
    expected = uninterrupted(user, *SHORT_RUN)
    asked = HangingTurn(SHORT_RUN[1], 3, lambda: process.kill())
    user.serve(SHORT_RUN[0], asked, *SHORT_RUN[1:])
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNER, "run", "Fix.", "--repo", str(user.source), "--model", ANTHROPIC],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.wait(120) == -signal.SIGKILL
    user("run", "--repo", user.source, "--resume")
    assert user.tree(user.workspaces[0]) == expected


def test_resume_repeats_an_interrupted_call_and_drops_a_partly_written_turn(
    user: CliUser,
) -> None:
    user.serve(*SHORT_RUN)
    user.run()
    (which,) = user.workspaces
    expected = user.tree(which)
    run = RecordedRun.newest(user.storage.folder(which))
    assert run is not None
    lines = run.script.read_text().splitlines(keepends=True)
    die = (
        "import os, sys\n"
        "from wink_workspace.workspace import Workspace, WorkspaceStorage\n"
        "workspace = Workspace.open(sys.argv[2], storage=WorkspaceStorage(sys.argv[1]))\n"
        "workspace.undo()\n"
        "workspace._writer.begin('again', 'edit_file', workspace._clock.now())\n"
        "workspace.files.write_text('iniconfig/exceptions.py', 'half')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    last = json.loads(lines[1])
    last["tool_calls"][0]["id"] = "again"
    run.script.write_text(lines[0] + json.dumps(last) + "\n" + lines[2][:20])
    state = user.tmp_path / "state" / "wink-workspace"
    subprocess.run([sys.executable, "-c", die, str(state), which], check=False)
    user.serve(DONE)
    user("run", "--workspace", which, "--resume")
    assert user.tree(which) == expected
    assert len(user.server.requests) == 1, "the call was made before the model was asked"
    assert run.is_finished


def test_resumed_run_sends_signed_thoughts_to_the_same_model_only(user: CliUser) -> None:
    thinking = (Turn("", (READ,), thinking="Hm."), Turn("", (FIX,), thinking=f"Is it {KEY}?"))
    interrupt = HangingTurn(DONE, 0, lambda: os.kill(os.getpid(), signal.SIGINT))
    user.serve(*thinking, interrupt, interrupt, DONE)
    user.run(fails=130)
    user("run", "--repo", user.source, "--resume", "--model", "anthropic:another", fails=130)
    user("run", "--repo", user.source, "--resume")
    running, by_another, resumed = (
        [message["content"][0] for message in request["messages"] if message["role"] == "assistant"]
        for request in user.server.requests[2:]
    )
    assert [part["type"] for part in running] == ["thinking", "thinking"]
    assert (
        resumed[0] == running[0] == {"type": "thinking", "thinking": "Hm.", "signature": "signed-1"}
    )
    assert resumed[1]["type"] == "tool_use", "a thought with a secret is not stored"
    assert [part["type"] for part in by_another] == ["tool_use", "tool_use"], (
        "the thoughts belong to another model"
    )
    (which,) = user.workspaces
    kept = [path.read_text() for path in user.storage.folder(which).path.rglob("natives.jsonl")]
    assert "signed-1" in kept[0]
    assert KEY not in kept[0]


def test_unreadable_native_turn_is_replaced_by_its_text(user: CliUser) -> None:
    interrupt = HangingTurn(DONE, 0, lambda: os.kill(os.getpid(), signal.SIGINT))
    user.serve(*SHORT_RUN[:2], interrupt, DONE)
    user.run(fails=130)
    (which,) = user.workspaces
    (natives,) = user.storage.folder(which).path.rglob("natives.jsonl")
    natives.write_text('\n[1, "[{}]"]\n' + natives.read_text().splitlines()[2][:40])
    user("run", "--repo", user.source, "--resume")
    assert "Fixing." in json.dumps(user.server.requests[-1])


def test_run_out_of_tokens_is_resumed_with_a_larger_budget(user: CliUser) -> None:
    user.serve(*SHORT_RUN)
    user.run("--max-tokens", 29, fails=1)
    assert "30 total tokens used, 29 allowed" in user.err
    (which,) = user.workspaces
    user("run", "--workspace", which, "--resume", "--max-tokens", 29, fails=1)
    assert len(user.server.requests) == 2, "tokens of the first part count"
    user("run", "--workspace", which, "--resume", "--max-tokens", 100)
    assert "tokens: 30 in, 15 out" in user.err


def test_run_ends_at_its_deadline(user: CliUser) -> None:
    user.serve(SHORT_RUN[0], HangingTurn(SHORT_RUN[1]))
    user.run("--deadline", "1s", fails=1)
    assert "deadline" in user.err


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (HttpFailure(400, "invalid_request_error", "prompt is too long: 9 tokens"), "is too long"),
        (Turn("I will not.", ending="refusal"), "refused to answer"),
        (HttpFailure(401, "authentication_error", f"bad {KEY}"), "did not accept the key"),
    ],
)
def test_fatal_error_is_one_line_and_earlier_changes_are_kept(
    user: CliUser, step: Step, expected: str
) -> None:
    user.serve(SHORT_RUN[0], SHORT_RUN[1], step)
    user.run(fails=1)
    last = user.err.splitlines()[-1]
    assert last.startswith("wink-workspace: ")
    assert expected in last
    assert KEY not in user.err
    assert "lineno + 1" in user("diff", user.workspaces[0])


def test_resume_is_refused_without_an_interrupted_run(user: CliUser) -> None:
    user("run", "--repo", user.source, "--resume", "--model", ANTHROPIC, fails=2)
    assert "was interrupted" in user.err
    user.serve(*SHORT_RUN)
    user.run()
    (which,) = user.workspaces
    user("run", "--workspace", which, "--resume", fails=2)
    assert "finished" in user.err
    other = user("new", user.source).split(":")[0]
    user("run", "--workspace", other, "--resume", fails=2)
    assert "has no run to resume" in user.err
    user("script", other, fails=2)
    assert "has had no run" in user.err


# Changes after a run


def test_changes_stay_in_the_workspace_until_they_are_applied(user: CliUser) -> None:
    user.serve(*SHORT_RUN)
    user.run()
    (which,) = user.workspaces
    assert f"wink-workspace apply {which}" in user.err
    assert user.faulty_file.read_text() == user.faulty_text
    user("apply", which)
    assert user.faulty_file.read_text() == user.fixed_text


@pytest.mark.parametrize(("answer", "applied"), [("y\n", True), ("n\n", False)])
def test_user_is_asked_before_changes_are_applied(
    user: CliUser, monkeypatch: pytest.MonkeyPatch, answer: str, applied: bool
) -> None:
    class Keyboard(io.StringIO):
        def isatty(self) -> bool:
            return True

    user.serve(*SHORT_RUN)
    monkeypatch.setattr(sys, "stdin", Keyboard(answer))
    user.run()
    assert f"Apply to {user.source}?" in user.err
    assert user.faulty_file.read_text() == (user.fixed_text if applied else user.faulty_text)


def test_yes_option_applies_without_asking(user: CliUser) -> None:
    user.serve(*SHORT_RUN)
    user.run("--yes")
    assert user.faulty_file.read_text() == user.fixed_text


def test_run_without_changes_does_not_mention_apply(user: CliUser) -> None:
    user.serve(DONE)
    assert "0 calls" in user.run("--apply", "--yes")
    assert "apply" not in user.err


def test_changes_become_a_patch_or_a_branch(user: CliUser) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *arguments], cwd=user.source, check=True)
    user.serve(*SHORT_RUN, *SHORT_RUN)
    patch = user.tmp_path / "out.patch"
    user.run("--patch", patch)
    subprocess.run(["git", "apply", "--check", patch], cwd=user.source, check=True)
    user.run("--branch", "fixed", "--yes")
    shown = subprocess.run(
        ["git", "show", f"fixed:{FILE}"],
        cwd=user.source,
        check=True,
        capture_output=True,
        text=True,
    )
    assert shown.stdout == user.fixed_text
    assert user.faulty_file.read_text() == user.faulty_text
    subject = ["git", "log", "-1", "--format=%B", "fixed"]
    logged = subprocess.run(subject, cwd=user.source, check=True, capture_output=True, text=True)
    assert logged.stdout.strip() == "Fix the line numbers."
    user("apply", user.workspaces[0], "--branch", "again", "--commit-message", "Count from 1")
    subject[-1] = "again"
    logged = subprocess.run(subject, cwd=user.source, check=True, capture_output=True, text=True)
    assert logged.stdout.strip() == "Count from 1"
    user("apply", user.workspaces[0], "--commit-message", "x", fails=2)
    assert "new branch" in user.err


def test_a_long_task_becomes_a_short_subject_and_a_body() -> None:
    task = "Fix the line numbers in errors, which count from 0 and not from 1 as users expect."
    subject, empty, *body = RunAbout(task, "", "none", 1).commit_message.splitlines()
    assert subject.startswith("Fix the line numbers in errors, which")
    assert len(subject) <= 72
    assert empty == ""
    assert " ".join(body) == task


def test_run_in_place_changes_the_directory_itself(user: CliUser) -> None:
    user.serve(*SHORT_RUN, DONE)
    out = user.run("--in-place")
    assert user.faulty_file.read_text() == user.fixed_text
    assert "1 path changed" in out
    assert "0 paths changed" in user.run("--in-place"), "changes of an earlier run are not reported"


def test_run_in_a_named_workspace_in_place_refuses_apply_and_sandbox(user: CliUser) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *arguments], cwd=user.source, check=True)
    which = user("new", user.source, "--in-place").split(":")[0]
    given = ("run", "Fix.", "--workspace", which, "--model", ANTHROPIC, "--yes")
    user.serve(*SHORT_RUN)
    user(*given, "--apply", fails=2)
    assert "nothing to apply" in user.err
    user(*given, "--sandbox", "asteval", fails=2)
    assert "a workspace that is a copy" in user.err
    user(*given, "--branch", "fixed")
    assert "applied to branch fixed" in user.err
    assert user.faulty_file.read_text() == user.fixed_text


def test_run_on_a_temporary_copy_prints_the_diff_and_creates_no_workspace(user: CliUser) -> None:
    user.serve(*SHORT_RUN)
    out = user("run", "Fix.", "--source", user.source, "--model", ANTHROPIC)
    assert "lineno + 1" in out
    assert user.workspaces == []


def test_json_is_one_object_with_tokens_and_workspace(user: CliUser) -> None:
    user.serve(*SHORT_RUN)
    report = json.loads(user.run("--json"))
    assert report["usage"]["input_tokens"] == 30
    assert [report["workspace"]] == user.workspaces
    assert report["changed_paths"] == [FILE]


def test_model_is_read_from_the_environment(user: CliUser, monkeypatch: pytest.MonkeyPatch) -> None:
    user.serve(DONE)
    monkeypatch.setenv("WINK_WORKSPACE_MODEL", "openai:gpt-5")
    user("run", "Look around.", "--repo", user.source)
    assert "input" in user.server.requests[0], "the OpenAI protocol"


# Secrets


@pytest.mark.parametrize("sandbox", ["none", "asteval"])
def test_provider_key_is_in_no_record_script_or_output(user: CliUser, sandbox: str) -> None:
    (user.source / "leak.txt").write_text(f"key = {KEY}\n")
    leak = Call("read_file", {"file_path": "leak.txt"})
    note = Call("planning_setup_plan", {"objective": f"Use {KEY}", "initial_steps": ["Go"]})
    server = user.serve(Turn(f"I saw {KEY}.", (leak, note)), Turn(f"It is {KEY}."))
    out = user.run("--sandbox", sandbox)
    (which,) = user.workspaces
    assert KEY in "".join(server.headers[0].values()), "the provider gets it"
    assert f"key = {KEY}" not in json.dumps(server.requests), "the content of a file is redacted"
    assert KEY not in user.records(which)
    assert KEY not in user("script", which)
    assert KEY not in out + user.err


# Wrong usage


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["Fix."], "no model"),
        (["Fix.", "--repo", ".", "--source", "."], "one place"),
        (["--repo", "."], "nothing to do"),
        (["Fix.", "--repo", "."], "no model"),
        (["Fix.", "--repo", ".", "--model", "m:m", "--script", "x"], "one model"),
        (["Fix.", "--repo", ".", "--apply", "--patch", "x"], "one way"),
        (["Fix.", "--source", ".", "--apply"], "temporary copy"),
        (["Fix.", "--source", ".", "--in-place"], "--repo"),
        (["Fix.", "--workspace", "w"], "no workspace is called"),
        (["Fix.", "--repo", ".", "--in-place", "--apply"], "nothing to apply"),
        (["Fix.", "--repo", ".", "--resume"], "keeps its task"),
        (["Fix.", "--repo", ".", "--sandbox", "beach"], "'beach'"),
        (
            ["Fix.", "--repo", ".", "--in-place", "--sandbox", "podman"],
            "a workspace that is a copy",
        ),
        (["Fix.", "--source", ".", "--sandbox", "asteval"], "a workspace that is a copy"),
        (["Fix.", "--repo", ".", "--apply"], "--yes"),
        (["Fix.", "--repo", ".", "--branch", "b", "--json"], "--yes"),
        (
            ["Fix.", "--repo", ".", "--deadline", "soon"],
            "'soon' is not a time. Write it as",
        ),
        (["Fix.", "--repo", ".", "--deadline", "0m"], "'0m'"),
        (["Fix.", "--repo", ".", "--model", "anthropic:claude-sonnet-5"], "ANTHROPIC_API_KEY"),
    ],
)
def test_wrong_usage_is_one_line_and_creates_no_workspace(
    user: CliUser, monkeypatch: pytest.MonkeyPatch, arguments: list[str], expected: str
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    user("run", *arguments, fails=2)
    (line,) = user.err.splitlines()
    assert expected in line
    assert user.workspaces == []


# On a terminal


def test_terminal_shows_words_as_they_arrive_redacted_and_without_control_characters() -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, no_color=True, highlight=False)
    redact = Environment(variables={"KEY": KEY}).redactor()
    feed = RunFeed(RunDisplay(console, live=True, redact=redact), redact=redact)
    with feed.of(Session()):
        feed.on_model_event(TextDelta("Half a "))
        assert "Half a " in shown.getvalue()
        feed.on_model_event(TextDelta("sentence\x1b]0;title\x07"))
        feed.on_model_event(TextDelta(" with " + KEY[:9]))
        feed.on_model_event(TextDelta(KEY[9:] + " in it"))
        assert "with [KEY] in" in shown.getvalue()
        feed.on_model_event(Retrying(2, 3.0, "the connection broke"))
        feed.on_model_event(TextDelta("Again."))
    assert "in it\n… the connection broke; attempt 2 in 3s" in shown.getvalue()
    assert "\x1b]0" not in shown.getvalue()


@pytest.mark.parametrize(
    ("n_lines", "expected"), [(100, "\n  long.txt | +100 -0\n"), (54, "\n+line\n")]
)
def test_long_diff_of_a_call_is_a_diffstat(user: CliUser, n_lines: int, expected: str) -> None:
    long = Call("write_file", {"file_path": "long.txt", "content": "line\n" * n_lines})
    user.serve(Turn("", (long,)), DONE)
    user.run("--patch", user.tmp_path / "out.patch")
    assert expected in user.err


def test_piped_output_has_the_diff_and_progress_does_not_repeat_it(
    user: CliUser,
) -> None:
    user.serve(*SHORT_RUN)
    out = user.run()
    assert out.count("lineno + 1}:") == 1
    assert "lineno + 1}:" not in user.err
    assert "edit_file" in user.err


@pytest.mark.parametrize("command", [["demo"], ["run", "Fix.", "--source", ".", "--model", "m:n"]])
@pytest.mark.parametrize("target", ["missing/out.patch", "a-directory"])
def test_unwritable_patch_is_refused_before_the_run(
    user: CliUser, command: list[str], target: str
) -> None:
    (user.tmp_path / "a-directory").mkdir()
    out = user(*command, "--patch", user.tmp_path / target, fails=2)
    assert out == ""
    assert user.err.startswith("wink-workspace: the patch cannot be written to ")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--record", "."), "the turns cannot be written to .: it is a directory"),
        (("--branch", "fixed", "--yes"), "is not the top of a git repository"),
    ],
)
def test_options_that_would_fail_at_the_end_are_refused_before_the_copy(
    user: CliUser, options: tuple[str, ...], expected: str
) -> None:
    user.serve()
    user.run(*options, fails=2)
    assert expected in user.err
    assert user.workspaces == []
    assert not user.server.requests


def test_changes_with_a_conflict_stay_and_the_apply_command_is_printed(user: CliUser) -> None:
    class Meanwhile(ModelServer):
        def take(self, *asked: Any) -> tuple[int, Step]:
            user.faulty_file.write_text("another")
            return super().take(*asked)

    user.serve_by(Meanwhile(*SHORT_RUN))
    user.run("--apply", "--yes", fails=1)
    assert f"to apply: wink-workspace apply {user.workspaces[0]}" in user.err
    assert user.faulty_file.read_text() == "another"


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_patch_is_printed_and_the_old_file_stays_when_the_disk_is_full(
    user: CliUser, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    patch = user.tmp_path / "out.patch"
    patch.write_text("an earlier one\n")

    open_path = Path.open

    def full_disk(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if "out.patch" not in path.name or "w" not in mode:
            return open_path(path, mode, *arguments, **options)
        with open_path(path, mode) as file:
            file.write(b"a part of")
        return open_path(Path("/dev/full"), mode)

    monkeypatch.setattr(Path, "open", full_disk)
    user.serve(*SHORT_RUN)
    out = user.run("--patch", patch, *options, fails=2)
    assert "lineno + 1" in out
    assert "No space left on device" in user.err.splitlines()[-1]
    assert patch.read_text() == "an earlier one\n"
    assert [path.name for path in user.tmp_path.glob("*out.patch*")] == ["out.patch"]
