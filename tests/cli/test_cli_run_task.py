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
from wink_workspace.cli.run_display import RunDisplay
from wink_workspace.environment import Environment
from wink_workspace.filesystem import DiskFilesystem
from wink_workspace.session import Session
from wink_workspace.workspace import RecordedRun


@pytest.mark.parametrize("model", WIRES)
def test_run_fixes_a_package_and_applies_it_despite_provider_and_model_errors(
    desk: Desk, model: str
) -> None:
    wrong = edit("{self.lineno}:", "{self.lineno + 2}:")
    again = edit("{self.lineno + 2}:", "{self.lineno + 1}:")
    other = edit("class ParseError(Exception):", "class ParseError(ValueError):")
    server = desk.serve(
        Says("A plan first.", (PLAN, SEARCH)),
        Fails(503, "overloaded_error", "busy"),
        Says("", (Call("edit_file", '{"file_path": "ini'), Call("fix_it", {}), READ)),
        Drops(Says("Two edits of one file.", (wrong, other)), 5),
        Says("Two edits of one file.", (wrong, other)),
        Fails(429, "rate_limit_error", "slow"),
        Says("", (CHECK,)),
        Says("Off by one still.", (again, CHECK)),
        DONE,
    )
    out = desk(
        "run", "Fix the line numbers.", "--repo", desk.source, "--model", model,
        "--sandbox", "asteval", "--apply", "--yes",
    )  # fmt: skip
    assert len(server.requests) == 9
    assert desk.mended.read_text() == desk.right.replace("(Exception)", "(ValueError)")
    assert "10 calls, 3 undone; 1 path changed" in out
    assert "+class ParseError(ValueError):" in out
    assert "The line numbers count from 1 now." in out
    for expected in ("A plan first.", "· 1. Find", "fix_it", "attempt 2", "1 path applied"):
        assert expected in desk.err, expected
    assert "tokens: 60 in, 30 out" in desk.err


def test_replayed_script_of_a_run_gives_the_same_tree(desk: Desk) -> None:
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
    assert len(desk.server.requests) == 4, "no model was asked"


# Interrupted and resumed


def uninterrupted(desk: Desk, *turns: Says) -> str:
    """The tree after a run that is not interrupted."""
    desk.serve(*turns)
    desk.run()
    return desk.tree(desk.workspaces[0])


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("n_events", [0, 2, 6])
def test_run_interrupted_during_a_turn_is_resumed_to_the_same_tree(
    desk: Desk, number: int, n_events: int
) -> None:
    expected = uninterrupted(desk, *SHORT)
    steps: list[Step] = list(SHORT)
    interrupt = Hangs(SHORT[number], n_events, lambda: os.kill(os.getpid(), signal.SIGINT))
    desk.serve(*steps[:number], interrupt, *steps[number:])
    desk.run(fails=130)
    assert "interrupted; nothing is half done" in desk.err
    assert "--resume" in desk.err
    out = desk("run", "--repo", desk.source, "--resume")
    assert "count from 1" in out
    assert desk.tree(desk.workspaces[0]) == expected
    assert desk.mended.read_text() == desk.wrong, "not applied"
    conversation = json.dumps(desk.server.requests[-1])
    assert ("The run was interrupted here" in conversation) == (number > 0)


def test_ctrl_c_during_a_call_undoes_it_and_resume_repeats_it(
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
    assert desk.tree(desk.workspaces[0]) == expected, "the call left no trace"
    desk("run", "--repo", desk.source, "--resume")
    assert len(desk.server.requests) == 4, "the model was not asked for the call again"
    assert "+all of it" in desk("diff", desk.workspaces[0])


@pytest.mark.parametrize("number", [1, 2])
def test_killed_run_is_resumed_to_the_same_tree(desk: Desk, number: int) -> None:
    expected = uninterrupted(desk, *SHORT)
    steps: list[Step] = list(SHORT)
    asked = Hangs(SHORT[number], 3, lambda: process.kill())
    desk.serve(*steps[:number], asked, *steps[number:])
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNER, "run", "Fix.", "--repo", str(desk.source), "--model", ANTHROPIC],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.wait(120) == -signal.SIGKILL
    desk("run", "--repo", desk.source, "--resume")
    assert desk.tree(desk.workspaces[0]) == expected


def test_resume_repeats_an_interrupted_call_and_drops_a_partly_written_turn(
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
        "workspace = Workspace.open(sys.argv[2], storage=WorkspaceStorage(sys.argv[1]))\n"
        "workspace.undo()\n"
        "workspace._writer.begin('again', 'edit_file', workspace._clock.now())\n"
        "workspace.files.write_text('iniconfig/exceptions.py', 'half')\n"
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


def test_resumed_run_sends_signed_thoughts_to_the_same_model_only(desk: Desk) -> None:
    thinking = (Says("", (READ,), thinking="Hm."), Says("", (MEND,), thinking=f"Is it {KEY}?"))
    interrupt = Hangs(DONE, 0, lambda: os.kill(os.getpid(), signal.SIGINT))
    desk.serve(*thinking, interrupt, interrupt, DONE)
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
    assert resumed[1]["type"] == "tool_use", "a thought with a secret is not stored"
    assert [part["type"] for part in by_another] == ["tool_use", "tool_use"], (
        "the thoughts belong to another model"
    )
    (which,) = desk.workspaces
    kept = [path.read_text() for path in desk.storage.folder(which).path.rglob("natives.jsonl")]
    assert "signed-1" in kept[0]
    assert KEY not in kept[0]


def test_unreadable_native_turn_is_replaced_by_its_text(desk: Desk) -> None:
    interrupt = Hangs(DONE, 0, lambda: os.kill(os.getpid(), signal.SIGINT))
    desk.serve(*SHORT[:2], interrupt, DONE)
    desk.run(fails=130)
    (which,) = desk.workspaces
    (natives,) = desk.storage.folder(which).path.rglob("natives.jsonl")
    natives.write_text('\n[1, "[{}]"]\n' + natives.read_text().splitlines()[2][:40])
    desk("run", "--repo", desk.source, "--resume")
    assert "Mending." in json.dumps(desk.server.requests[-1])


def test_run_out_of_tokens_is_resumed_with_a_larger_budget(desk: Desk) -> None:
    desk.serve(*SHORT)
    desk.run("--max-tokens", 29, fails=1)
    assert "30 total tokens used, 29 allowed" in desk.err
    (which,) = desk.workspaces
    desk("run", "--workspace", which, "--resume", "--max-tokens", 29, fails=1)
    assert len(desk.server.requests) == 2, "tokens of the first part count"
    desk("run", "--workspace", which, "--resume", "--max-tokens", 100)
    assert "tokens: 30 in, 15 out" in desk.err


def test_run_ends_at_its_deadline(desk: Desk) -> None:
    desk.serve(SHORT[0], Hangs(SHORT[1]))
    desk.run("--deadline", "1s", fails=1)
    assert "deadline" in desk.err


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (Fails(400, "invalid_request_error", "prompt is too long: 9 tokens"), "is too long"),
        (Says("I will not.", ending="refusal"), "refused to answer"),
        (Fails(401, "authentication_error", f"bad {KEY}"), "did not accept the key"),
    ],
)
def test_fatal_error_is_one_line_and_earlier_changes_are_kept(
    desk: Desk, step: Step, expected: str
) -> None:
    desk.serve(SHORT[0], SHORT[1], step)
    desk.run(fails=1)
    last = desk.err.splitlines()[-1]
    assert last.startswith("wink-workspace: ")
    assert expected in last
    assert KEY not in desk.err
    assert "lineno + 1" in desk("diff", desk.workspaces[0])


def test_resume_is_refused_without_an_interrupted_run(desk: Desk) -> None:
    desk("run", "--repo", desk.source, "--resume", "--model", ANTHROPIC, fails=2)
    assert "was interrupted" in desk.err
    desk.serve(*SHORT)
    desk.run()
    (which,) = desk.workspaces
    desk("run", "--workspace", which, "--resume", fails=2)
    assert "finished" in desk.err
    other = desk("new", desk.source).split(":")[0]
    desk("run", "--workspace", other, "--resume", fails=2)
    assert "has no run to resume" in desk.err
    desk("script", other, fails=2)
    assert "has had no run" in desk.err


# Changes after a run


def test_changes_stay_in_the_workspace_until_they_are_applied(desk: Desk) -> None:
    desk.serve(*SHORT)
    desk.run()
    (which,) = desk.workspaces
    assert f"wink-workspace apply {which}" in desk.err
    assert desk.mended.read_text() == desk.wrong
    desk("apply", which)
    assert desk.mended.read_text() == desk.right


@pytest.mark.parametrize(("answer", "applied"), [("y\n", True), ("n\n", False)])
def test_user_is_asked_before_changes_are_applied(
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


def test_yes_option_applies_without_asking(desk: Desk) -> None:
    desk.serve(*SHORT)
    desk.run("--yes")
    assert desk.mended.read_text() == desk.right


def test_run_without_changes_does_not_mention_apply(desk: Desk) -> None:
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
    desk.run("--branch", "fixed", "--yes")
    shown = subprocess.run(
        ["git", "show", f"fixed:{FILE}"],
        cwd=desk.source,
        check=True,
        capture_output=True,
        text=True,
    )
    assert shown.stdout == desk.right
    assert desk.mended.read_text() == desk.wrong


def test_run_in_place_changes_the_directory_itself(desk: Desk) -> None:
    desk.serve(*SHORT, DONE)
    out = desk.run("--in-place")
    assert desk.mended.read_text() == desk.right
    assert "1 path changed" in out
    assert "0 paths changed" in desk.run("--in-place"), "changes of an earlier run are not reported"


def test_run_in_a_named_workspace_in_place_refuses_apply_and_sandbox(desk: Desk) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *arguments], cwd=desk.source, check=True)
    which = desk("new", desk.source, "--in-place").split(":")[0]
    given = ("run", "Fix.", "--workspace", which, "--model", ANTHROPIC, "--yes")
    desk.serve(*SHORT)
    desk(*given, "--apply", fails=2)
    assert "nothing to apply" in desk.err
    desk(*given, "--sandbox", "asteval", fails=2)
    assert "a workspace that is a copy" in desk.err
    desk(*given, "--branch", "fixed")
    assert "on branch fixed" in desk.err
    assert desk.mended.read_text() == desk.right


def test_run_in_memory_prints_the_diff_and_creates_no_workspace(desk: Desk) -> None:
    desk.serve(*SHORT)
    out = desk("run", "Fix.", "--source", desk.source, "--model", ANTHROPIC)
    assert "lineno + 1" in out
    assert desk.workspaces == []


def test_json_is_one_object_with_tokens_and_workspace(desk: Desk) -> None:
    desk.serve(*SHORT)
    report = json.loads(desk.run("--json"))
    assert report["usage"]["input_tokens"] == 30
    assert [report["workspace"]] == desk.workspaces
    assert report["changed_paths"] == [FILE]


def test_model_is_read_from_the_environment(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.serve(DONE)
    monkeypatch.setenv("WINK_WORKSPACE_MODEL", "openai:gpt-5")
    desk("run", "Look around.", "--repo", desk.source)
    assert "input" in desk.server.requests[0], "the OpenAI protocol"


# Secrets


@pytest.mark.parametrize("sandbox", ["none", "asteval"])
def test_provider_key_is_in_no_record_script_or_output(desk: Desk, sandbox: str) -> None:
    (desk.source / "leak.txt").write_text(f"key = {KEY}\n")
    leak = Call("read_file", {"file_path": "leak.txt"})
    note = Call("planning_setup_plan", {"objective": f"Use {KEY}", "initial_steps": ["Go"]})
    server = desk.serve(Says(f"I saw {KEY}.", (leak, note)), Says(f"It is {KEY}."))
    out = desk.run("--sandbox", sandbox)
    (which,) = desk.workspaces
    assert KEY in "".join(server.headers[0].values()), "the provider gets it"
    assert f"key = {KEY}" not in json.dumps(server.requests), "the content of a file is redacted"
    assert KEY not in desk.records(which)
    assert KEY not in desk("script", which)
    assert KEY not in out + desk.err


# Wrong usage


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["Fix."], "one place"),
        (["Fix.", "--repo", ".", "--source", "."], "one place"),
        (["--repo", "."], "nothing to do"),
        (["Fix.", "--repo", "."], "no model"),
        (["Fix.", "--repo", ".", "--model", "m:m", "--script", "x"], "one model"),
        (["Fix.", "--repo", ".", "--apply", "--patch", "x"], "one way"),
        (["Fix.", "--source", ".", "--apply"], "in memory"),
        (["Fix.", "--workspace", "w", "--in-place"], "--repo"),
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
    desk: Desk, monkeypatch: pytest.MonkeyPatch, arguments: list[str], expected: str
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    desk("run", *arguments, fails=2)
    (line,) = desk.err.splitlines()
    assert expected in line
    assert desk.workspaces == []


# On a terminal


def test_terminal_shows_words_as_they_arrive_redacted_and_without_control_characters() -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, no_color=True, highlight=False)
    redact = Environment(variables={"KEY": KEY}).redactor()
    display = RunDisplay(console, live=True, redact=redact)
    with display.showing(Session()):
        display.on_model_event(TextDelta("Half a "))
        assert "Half a " in shown.getvalue()
        display.on_model_event(TextDelta("sentence\x1b]0;title\x07"))
        display.on_model_event(TextDelta(" with " + KEY[:9]))
        display.on_model_event(TextDelta(KEY[9:] + " in it"))
        assert "with [KEY] in" in shown.getvalue()
        display.on_model_event(Retrying(2, 3.0, "the connection broke"))
        display.on_model_event(TextDelta("Again."))
    assert "in it\n… the connection broke; attempt 2 in 3 s" in shown.getvalue()
    assert "\x1b]0" not in shown.getvalue()


@pytest.mark.parametrize(
    ("n_lines", "expected"), [(100, "… 46 more lines\n"), (55, "… 1 more line\n")]
)
def test_long_diff_of_a_call_is_cut_with_a_count(desk: Desk, n_lines: int, expected: str) -> None:
    long = Call("write_file", {"file_path": "long.txt", "content": "line\n" * n_lines})
    desk.serve(Says("", (long,)), DONE)
    desk.run("--patch", desk.tmp_path / "out.patch")
    assert expected in desk.err


def test_piped_output_has_the_diff_and_progress_does_not_repeat_it(
    desk: Desk,
) -> None:
    desk.serve(*SHORT)
    out = desk.run()
    assert out.count("lineno + 1}:") == 1
    assert "lineno + 1}:" not in desk.err
    assert "edit_file" in desk.err


@pytest.mark.parametrize("command", [["demo"], ["run", "Fix.", "--source", ".", "--model", "m:n"]])
@pytest.mark.parametrize("target", ["missing/out.patch", "a-directory"])
def test_unwritable_patch_is_refused_before_the_run(
    desk: Desk, command: list[str], target: str
) -> None:
    (desk.tmp_path / "a-directory").mkdir()
    out = desk(*command, "--patch", desk.tmp_path / target, fails=2)
    assert out == ""
    assert desk.err.startswith("wink-workspace: the patch cannot be written to ")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--record", "."), "the turns cannot be written to .: it is a directory"),
        (("--branch", "fixed", "--yes"), "is not the top of a git repository"),
    ],
)
def test_options_that_would_fail_at_the_end_are_refused_before_the_copy(
    desk: Desk, options: tuple[str, ...], expected: str
) -> None:
    desk.serve()
    desk.run(*options, fails=2)
    assert expected in desk.err
    assert desk.workspaces == []
    assert not desk.server.requests


def test_changes_with_a_conflict_stay_and_the_apply_command_is_printed(desk: Desk) -> None:
    class Meanwhile(ModelServer):
        def take(self, *asked: Any) -> tuple[int, Step]:
            desk.mended.write_text("another")
            return super().take(*asked)

    desk.serve_by(Meanwhile(*SHORT))
    desk.run("--apply", "--yes", fails=1)
    assert f"to apply: wink-workspace apply {desk.workspaces[0]}" in desk.err
    assert desk.mended.read_text() == "another"


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_patch_is_printed_and_the_old_file_stays_when_the_disk_is_full(
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


def test_spans_of_a_run_go_to_the_exporter_of_the_environment(desk: Desk) -> None:
    desk.serve(*SHORT)
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, "run", "Fix.", "--source", str(desk.source), "--model", ANTHROPIC],
        env={**os.environ, "OTEL_TRACES_EXPORTER": "console"},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in ("invoke_agent run", "chat claude-sonnet-5", "execute_tool edit_file"):
        assert f'"name": "{name}"' in done.stderr
    assert '"name"' not in done.stdout
