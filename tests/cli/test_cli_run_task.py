"""``run TASK`` with real SDKs and a server of ours: a real package is searched, broken, mended, applied."""

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
from model_server import KEY, Call, Drops, Fails, Hangs, ModelServer, Says, Step
from rich.console import Console
from run_desk import (
    ANTHROPIC,
    CHECK,
    DONE,
    FILE,
    MEND,
    PLAN,
    READ,
    RUNNER,
    SEARCH,
    SHORT,
    WIRES,
    Desk,
    edit,
)

from wink_workspace.adapters.model import Retrying, TextDelta
from wink_workspace.cli.following import Follower
from wink_workspace.environment import Environment
from wink_workspace.filesystem import DiskFilesystem
from wink_workspace.session import Session
from wink_workspace.workspace import RecordedRun


@pytest.mark.parametrize("model", WIRES)
def test_a_package_is_searched_edited_checked_mended_and_applied_through_all_mishaps(
    desk: Desk, model: str
) -> None:
    wrong = edit("{self.lineno}:", "{self.lineno + 2}:")
    again = edit("{self.lineno + 2}:", "{self.lineno + 1}:")
    other = edit("class ParseError(Exception):", "class ParseError(ValueError):")
    server = desk.serve(
        Says("A plan first.", (PLAN, SEARCH)),
        Fails(503, "overloaded_error", "busy"),
        Says("", (Call("edit_file", '{"file_path": "ini'), Call("mend_it", {}), READ)),
        Drops(Says("Two edits of one file.", (wrong, other)), 5),
        Says("Two edits of one file.", (wrong, other)),
        Fails(429, "rate_limit_error", "slow"),
        Says("", (CHECK,)),
        Says("Off by one still.", (again, CHECK)),
        DONE,
    )
    out = desk(
        "run", "Mend the line numbers.", "--repo", desk.source, "--model", model,
        "--sandbox", "asteval", "--apply", "--yes",
    )  # fmt: skip
    assert len(server.requests) == 9
    assert desk.mended.read_text() == desk.right.replace("(Exception)", "(ValueError)")
    assert "10 calls, 3 undone; 1 path changed" in out
    assert "+class ParseError(ValueError):" in out
    assert "The line numbers count from 1 now." in out
    for said in ("A plan first.", "· 1. Find", "mend_it", "attempt 2", "1 path applied"):
        assert said in desk.err, said
    assert "tokens: 60 in, 30 out" in desk.err


def test_a_replay_of_the_script_of_a_run_gives_the_same_tree(desk: Desk) -> None:
    fresh = desk.tmp_path / "fresh"
    shutil.copytree(desk.source, fresh)
    desk.serve(
        Says("", (PLAN, SEARCH, MEND)),
        Says("", (READ, Call("edit_file", "{"), Call("nothing", {"a": 1}))),
        Says("", (MEND, Call("write_file", {"file_path": "new.txt", "content": "é\n"}))),
        DONE,
    )
    recorded = desk.tmp_path / "recorded.jsonl"
    desk.run("--record", recorded)
    (first,) = desk.workspaces
    script = desk.tmp_path / "turns.jsonl"
    script.write_text(desk("script", first))
    assert script.read_text() == recorded.read_text()
    desk("run", "--script", script, "--repo", fresh)
    (second,) = set(desk.workspaces) - {first}
    assert desk.tree(second) == desk.tree(first)
    assert len(desk.server.requests) == 4, "nobody was asked"


# Interrupted and resumed


def uninterrupted(desk: Desk, *turns: Says) -> str:
    """The tree that a run without any mishap gives."""
    desk.serve(*turns)
    desk.run()
    return desk.tree(desk.workspaces[0])


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("n_events", [0, 2, 6])
def test_ctrl_c_while_the_model_speaks_is_resumed_to_the_same_end(
    desk: Desk, number: int, n_events: int
) -> None:
    expected = uninterrupted(desk, *SHORT)
    steps: list[Step] = list(SHORT)
    strike = Hangs(SHORT[number], n_events, lambda: os.kill(os.getpid(), signal.SIGINT))
    desk.serve(*steps[:number], strike, *steps[number:])
    desk.run(fails=130)
    assert "interrupted; nothing is half done" in desk.err
    assert "--resume" in desk.err
    out = desk("run", "--repo", desk.source, "--resume")
    assert "count from 1" in out
    assert desk.tree(desk.workspaces[0]) == expected
    assert desk.mended.read_text() == desk.wrong, "nothing was applied"
    told = json.dumps(desk.server.requests[-1])
    assert ("The run was interrupted here" in told) == (number > 0)


def test_ctrl_c_while_a_tool_works_undoes_the_call_and_resuming_makes_it_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = uninterrupted(desk, *SHORT)
    whole = DiskFilesystem.write_bytes

    def half(self: DiskFilesystem, path: str, data: bytes, **options: object) -> object:
        monkeypatch.setattr(DiskFilesystem, "write_bytes", whole)
        self.write_bytes(path, b"half")
        signal.raise_signal(signal.SIGINT)
        return self.write_bytes(path, data)

    write = Says("", (Call("write_file", {"file_path": "new.txt", "content": "all of it"}),))
    desk.serve(*SHORT[:2], write, DONE)
    monkeypatch.setattr(DiskFilesystem, "write_bytes", half)
    desk.run(fails=130)
    assert desk.tree(desk.workspaces[0]) == expected, "nothing of the call is left"
    desk("run", "--repo", desk.source, "--resume")
    assert len(desk.server.requests) == 4, "the model was not asked for the call again"
    assert "+all of it" in desk("diff", desk.workspaces[0])


@pytest.mark.parametrize("number", [1, 2])
def test_a_killed_run_is_resumed_to_the_same_end(desk: Desk, number: int) -> None:
    expected = uninterrupted(desk, *SHORT)
    steps: list[Step] = list(SHORT)
    asked = Hangs(SHORT[number], 3, lambda: process.kill())
    desk.serve(*steps[:number], asked, *steps[number:])
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNER, "run", "Mend.", "--repo", str(desk.source), "--model", ANTHROPIC],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.wait(120) == -signal.SIGKILL
    desk("run", "--repo", desk.source, "--resume")
    assert desk.tree(desk.workspaces[0]) == expected


def test_a_call_that_a_kill_interrupted_is_made_again_and_a_half_written_turn_is_not(
    desk: Desk,
) -> None:
    desk.serve(*SHORT)
    desk.run()
    (which,) = desk.workspaces
    expected = desk.tree(which)
    run = RecordedRun.newest(desk.storage.folder(which))
    assert run is not None
    lines = run.script.read_text().splitlines(keepends=True)
    die = (
        "import os, sys\n"
        "from wink_workspace.workspace import Workspace, WorkspaceStorage\n"
        "place = Workspace.open(sys.argv[2], storage=WorkspaceStorage(sys.argv[1]))\n"
        "place.undo()\n"
        "place._writer.begin('again', 'edit_file', place._clock.now())\n"
        "place.files.write_text('iniconfig/exceptions.py', 'half')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    last = json.loads(lines[1])
    last["tool_calls"][0]["id"] = "again"
    run.script.write_text(lines[0] + json.dumps(last) + "\n" + lines[2][:20])
    state = desk.tmp_path / "state" / "wink-workspace"
    subprocess.run([sys.executable, "-c", die, str(state), which], check=False)
    desk.serve(DONE)
    desk("run", "--workspace", which, "--resume")
    assert desk.tree(which) == expected
    assert len(desk.server.requests) == 1, "the call was made before the model was asked"
    assert run.is_finished


def test_signed_thoughts_go_back_to_their_model_when_a_run_is_resumed(desk: Desk) -> None:
    thinking = (Says("", (READ,), thinking="Hm."), Says("", (MEND,), thinking=f"Is it {KEY}?"))
    strike = Hangs(DONE, 0, lambda: os.kill(os.getpid(), signal.SIGINT))
    desk.serve(*thinking, strike, strike, DONE)
    desk.run(fails=130)
    desk("run", "--repo", desk.source, "--resume", "--model", "anthropic:another", fails=130)
    desk("run", "--repo", desk.source, "--resume")
    running, by_another, resumed = (
        [message["content"][0] for message in request["messages"] if message["role"] == "assistant"]
        for request in desk.server.requests[2:]
    )
    assert [part["type"] for part in running] == ["thinking", "thinking"]
    assert (
        resumed[0] == running[0] == {"type": "thinking", "thinking": "Hm.", "signature": "signed-1"}
    )
    assert resumed[1]["type"] == "tool_use", "what holds a secret is not kept"
    assert [part["type"] for part in by_another] == ["tool_use", "tool_use"], (
        "the thoughts of others"
    )
    (which,) = desk.workspaces
    kept = [path.read_text() for path in desk.storage.folder(which).path.rglob("natives.jsonl")]
    assert "signed-1" in kept[0]
    assert KEY not in kept[0]


def test_a_form_of_a_turn_that_nobody_can_read_is_done_without(desk: Desk) -> None:
    strike = Hangs(DONE, 0, lambda: os.kill(os.getpid(), signal.SIGINT))
    desk.serve(*SHORT[:2], strike, DONE)
    desk.run(fails=130)
    (which,) = desk.workspaces
    (natives,) = desk.storage.folder(which).path.rglob("natives.jsonl")
    natives.write_text('\n[1, "[{}]"]\n' + natives.read_text().splitlines()[2][:40])
    desk("run", "--repo", desk.source, "--resume")
    assert "Mending." in json.dumps(desk.server.requests[-1])


def test_a_run_that_spent_its_tokens_is_resumed_with_more_of_them(desk: Desk) -> None:
    desk.serve(*SHORT)
    desk.run("--max-tokens", 29, fails=1)
    assert "30 total tokens used, 29 allowed" in desk.err
    (which,) = desk.workspaces
    desk("run", "--workspace", which, "--resume", "--max-tokens", 29, fails=1)
    assert len(desk.server.requests) == 2, "what was spent is spent"
    desk("run", "--workspace", which, "--resume", "--max-tokens", 100)
    assert "tokens: 30 in, 15 out" in desk.err


def test_a_run_is_left_at_its_deadline(desk: Desk) -> None:
    desk.serve(SHORT[0], Hangs(SHORT[1]))
    desk.run("--deadline", "1s", fails=1)
    assert "deadline" in desk.err


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (Fails(400, "invalid_request_error", "prompt is too long: 9 tokens"), "is too long"),
        (Says("I will not.", ending="refusal"), "refused to answer"),
        (Fails(401, "authentication_error", f"bad {KEY}"), "did not accept the key"),
    ],
)
def test_what_ends_a_run_is_said_in_one_line_and_what_was_done_is_kept(
    desk: Desk, step: Step, says: str
) -> None:
    desk.serve(SHORT[0], SHORT[1], step)
    desk.run(fails=1)
    last = desk.err.splitlines()[-1]
    assert last.startswith("wink-workspace: ")
    assert says in last
    assert KEY not in desk.err
    assert "lineno + 1" in desk("diff", desk.workspaces[0])


def test_only_an_interrupted_run_is_resumed(desk: Desk) -> None:
    desk("run", "--repo", desk.source, "--resume", "--model", ANTHROPIC, fails=2)
    assert "was interrupted" in desk.err
    desk.serve(*SHORT)
    desk.run()
    (which,) = desk.workspaces
    desk("run", "--workspace", which, "--resume", fails=2)
    assert "finished" in desk.err
    other = desk("new", desk.source).split(":")[0]
    desk("run", "--workspace", other, "--resume", fails=2)
    assert "has no run" in desk.err
    desk("script", other, fails=2)
    assert "has had no run" in desk.err


# What becomes of the changes


def test_changes_stay_in_the_workspace_until_asked_for(desk: Desk) -> None:
    desk.serve(*SHORT)
    desk.run()
    (which,) = desk.workspaces
    assert f"wink-workspace apply {which}" in desk.err
    assert desk.mended.read_text() == desk.wrong
    desk("apply", which)
    assert desk.mended.read_text() == desk.right


@pytest.mark.parametrize(("answer", "applied"), [("y\n", True), ("n\n", False)])
def test_a_person_is_asked_before_anything_is_applied(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, answer: str, applied: bool
) -> None:
    class Keyboard(io.StringIO):
        def isatty(self) -> bool:
            return True

    desk.serve(*SHORT)
    monkeypatch.setattr(sys, "stdin", Keyboard(answer))
    desk.run()
    assert f"Apply to {desk.source}?" in desk.err
    assert desk.mended.read_text() == (desk.right if applied else desk.wrong)


def test_yes_applies_unasked(desk: Desk) -> None:
    desk.serve(*SHORT)
    desk.run("--yes")
    assert desk.mended.read_text() == desk.right


def test_a_run_that_changed_nothing_leaves_nothing_to_apply(desk: Desk) -> None:
    desk.serve(DONE)
    assert "0 calls" in desk.run("--apply", "--yes")
    assert "apply" not in desk.err


def test_changes_become_a_patch_or_a_branch(desk: Desk) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *arguments], cwd=desk.source, check=True)
    desk.serve(*SHORT, *SHORT)
    patch = desk.tmp_path / "out.patch"
    desk.run("--patch", patch)
    subprocess.run(["git", "apply", "--check", patch], cwd=desk.source, check=True)
    desk.run("--branch", "mended", "--yes")
    shown = subprocess.run(
        ["git", "show", f"mended:{FILE}"],
        cwd=desk.source,
        check=True,
        capture_output=True,
        text=True,
    )
    assert shown.stdout == desk.right
    assert desk.mended.read_text() == desk.wrong


def test_in_place_the_directory_itself_is_changed(desk: Desk) -> None:
    desk.serve(*SHORT, DONE)
    out = desk.run("--in-place")
    assert desk.mended.read_text() == desk.right
    assert "1 path changed" in out
    assert "0 paths changed" in desk.run("--in-place"), "what an earlier run did is not this one's"


def test_a_workspace_in_place_is_gone_on_with_by_its_name(desk: Desk) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *arguments], cwd=desk.source, check=True)
    which = desk("new", desk.source, "--in-place").split(":")[0]
    given = ("run", "Mend.", "--workspace", which, "--model", ANTHROPIC, "--yes")
    desk.serve(*SHORT)
    desk(*given, "--apply", fails=2)
    assert "nothing to apply" in desk.err
    desk(*given, "--sandbox", "asteval", fails=2)
    assert "own copy" in desk.err
    desk(*given, "--branch", "mended")
    assert "on branch mended" in desk.err
    assert desk.mended.read_text() == desk.right


def test_a_copy_in_memory_takes_a_task_too(desk: Desk) -> None:
    desk.serve(*SHORT)
    out = desk("run", "Mend.", "--source", desk.source, "--model", ANTHROPIC)
    assert "lineno + 1" in out
    assert desk.workspaces == []


def test_json_is_one_object_with_tokens_and_workspace(desk: Desk) -> None:
    desk.serve(*SHORT)
    report = json.loads(desk.run("--json"))
    assert report["usage"]["input_tokens"] == 30
    assert [report["workspace"]] == desk.workspaces
    assert report["changed_paths"] == [FILE]


def test_the_model_may_be_named_by_the_environment(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.serve(DONE)
    monkeypatch.setenv("WINK_WORKSPACE_MODEL", "openai:gpt-5")
    desk("run", "Look around.", "--repo", desk.source)
    assert "input" in desk.server.requests[0], "OpenAI's wire"


# Secrets


@pytest.mark.parametrize("sandbox", ["none", "asteval"])
def test_a_key_is_in_no_record_script_or_output(desk: Desk, sandbox: str) -> None:
    (desk.source / "leak.txt").write_text(f"key = {KEY}\n")
    leak = Call("read_file", {"file_path": "leak.txt"})
    note = Call("planning_setup_plan", {"objective": f"Use {KEY}", "initial_steps": ["Go"]})
    server = desk.serve(Says(f"I saw {KEY}.", (leak, note)), Says(f"It is {KEY}."))
    out = desk.run("--sandbox", sandbox)
    (which,) = desk.workspaces
    assert KEY in "".join(server.headers[0].values()), "the provider alone knows it"
    assert f"key = {KEY}" not in json.dumps(server.requests), "what a tool read is not sent on"
    assert KEY not in desk.records(which)
    assert KEY not in desk("script", which)
    assert KEY not in out + desk.err


# Wrong usage


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["Mend."], "one place"),
        (["Mend.", "--repo", ".", "--source", "."], "one place"),
        (["--repo", "."], "nothing to do"),
        (["Mend.", "--repo", "."], "no model"),
        (["Mend.", "--repo", ".", "--model", "m:m", "--script", "x"], "one model"),
        (["Mend.", "--repo", ".", "--apply", "--patch", "x"], "one way"),
        (["Mend.", "--source", ".", "--apply"], "in memory"),
        (["Mend.", "--workspace", "w", "--in-place"], "--repo"),
        (["Mend.", "--repo", ".", "--in-place", "--apply"], "nothing to apply"),
        (["Mend.", "--repo", ".", "--resume"], "has its task"),
        (["Mend.", "--repo", ".", "--sandbox", "beach"], "'beach'"),
        (["Mend.", "--repo", ".", "--in-place", "--sandbox", "podman"], "own copy"),
        (["Mend.", "--source", ".", "--sandbox", "asteval"], "own copy"),
        (["Mend.", "--repo", ".", "--apply"], "--yes"),
        (["Mend.", "--repo", ".", "--branch", "b", "--json"], "--yes"),
        (
            ["Mend.", "--repo", ".", "--deadline", "soon"],
            "'soon' is no length of time. Write it as",
        ),
        (["Mend.", "--repo", ".", "--deadline", "0m"], "'0m'"),
        (["Mend.", "--repo", ".", "--model", "anthropic:claude-sonnet-5"], "ANTHROPIC_API_KEY"),
    ],
)
def test_wrong_usage_is_one_line_and_makes_no_workspace(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    desk("run", *arguments, fails=2)
    (line,) = desk.err.splitlines()
    assert says in line
    assert desk.workspaces == []


# On a terminal


def test_a_terminal_gets_the_models_words_as_they_come_and_no_control_characters() -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, no_color=True, highlight=False)
    redact = Environment(variables={"KEY": KEY}).redactor()
    follower = Follower(console, live=True, redact=redact)
    with follower.following(Session()):
        follower.tell(TextDelta("Half a "))
        assert "Half a " in shown.getvalue()
        follower.tell(TextDelta("sentence\x1b]0;title\x07"))
        follower.tell(TextDelta(" with " + KEY[:9]))
        follower.tell(TextDelta(KEY[9:] + " in it"))
        assert "with [KEY] in" in shown.getvalue()
        follower.tell(Retrying(2, 3.0, "the connection broke"))
        follower.tell(TextDelta("Again."))
    assert "in it\n… the connection broke; attempt 2 in 3 s" in shown.getvalue()
    assert "\x1b]0" not in shown.getvalue()


@pytest.mark.parametrize(("n_lines", "said"), [(100, "… 46 more lines\n"), (55, "… 1 more line\n")])
def test_a_long_diff_is_cut_and_says_so(desk: Desk, n_lines: int, said: str) -> None:
    long = Call("write_file", {"file_path": "long.txt", "content": "line\n" * n_lines})
    desk.serve(Says("", (long,)), DONE)
    desk.run("--patch", desk.tmp_path / "out.patch")
    assert said in desk.err


def test_what_goes_into_a_pipe_holds_the_diff_and_what_is_told_meanwhile_does_not(
    desk: Desk,
) -> None:
    desk.serve(*SHORT)
    out = desk.run()
    assert out.count("lineno + 1}:") == 1
    assert "lineno + 1}:" not in desk.err
    assert "edit_file" in desk.err


@pytest.mark.parametrize("command", [["demo"], ["run", "Mend.", "--source", ".", "--model", "m:n"]])
@pytest.mark.parametrize("place", ["missing/out.patch", "a-directory"])
def test_a_patch_that_cannot_be_written_is_refused_before_anything_runs(
    desk: Desk, command: list[str], place: str
) -> None:
    (desk.tmp_path / "a-directory").mkdir()
    out = desk(*command, "--patch", desk.tmp_path / place, fails=2)
    assert out == ""
    assert desk.err.startswith("wink-workspace: the patch cannot be written to ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--record", "."), "the turns cannot be written to .: it is a directory"),
        (("--branch", "mended", "--yes"), "is not the top of a git repository"),
    ],
)
def test_what_a_run_could_not_do_at_its_end_is_refused_before_anything_is_copied(
    desk: Desk, options: tuple[str, ...], said: str
) -> None:
    desk.serve()
    desk.run(*options, fails=2)
    assert said in desk.err
    assert desk.workspaces == []
    assert not desk.server.requests


def test_changes_that_cannot_be_applied_stay_and_it_is_said_how_to_apply_them(desk: Desk) -> None:
    class Meanwhile(ModelServer):
        def take(self, *asked: Any) -> tuple[int, Step]:
            desk.mended.write_text("another")
            return super().take(*asked)

    desk.serve_by(Meanwhile(*SHORT))
    desk.run("--apply", "--yes", fails=1)
    assert f"to apply: wink-workspace apply {desk.workspaces[0]}" in desk.err
    assert desk.mended.read_text() == "another"


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_patch_for_which_there_is_no_room_is_printed_and_what_was_there_stays(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    patch = desk.tmp_path / "out.patch"
    patch.write_text("an earlier one\n")

    open_path = Path.open

    def no_room(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if "out.patch" not in path.name or "w" not in mode:
            return open_path(path, mode, *arguments, **options)
        with open_path(path, mode) as file:
            file.write(b"a part of")
        return open_path(Path("/dev/full"), mode)

    monkeypatch.setattr(Path, "open", no_room)
    desk.serve(*SHORT)
    out = desk.run("--patch", patch, *options, fails=2)
    assert "lineno + 1" in out
    assert "No space left on device" in desk.err.splitlines()[-1]
    assert patch.read_text() == "an earlier one\n"
    assert [path.name for path in desk.tmp_path.glob("*out.patch*")] == ["out.patch"]


def test_spans_of_a_run_go_where_the_environment_says(desk: Desk) -> None:
    desk.serve(*SHORT)
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, "run", "Mend.", "--source", str(desk.source), "--model", ANTHROPIC],
        env={**os.environ, "OTEL_TRACES_EXPORTER": "console"},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in ("invoke_agent run", "chat claude-sonnet-5", "execute_tool edit_file"):
        assert f'"name": "{name}"' in done.stderr
    assert '"name"' not in done.stdout
