"""Commands from a shell: what they print, write and return."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest
from cli_user import RUNNER
from rich.console import Console
from support import terminal

import wink_workspace.cli
from wink_workspace.cli import main
from wink_workspace.cli.demo import NEW_NAME, OLD_NAME
from wink_workspace.cli.screen.display import print_table
from wink_workspace.cli.screen.live_area import print_call
from wink_workspace.session import Outcome, ToolInvoked
from wink_workspace.workspace.runs.live_runs import CallEnded

GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "PATH": "/usr/bin:/bin"}


def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "a.py").write_text("print('helo')\n")
    return folder


def script(tmp_path: Path, *turns: dict[str, object]) -> Path:
    path = tmp_path / "script.jsonl"
    path.write_text("".join(json.dumps(turn) + "\n" for turn in turns))
    return path


def call(name: str, **arguments: object) -> dict[str, object]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


def run_in_bash(tmp_path: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which ``W`` is the command."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "HOME": str(tmp_path),
    }
    command = shlex.join([sys.executable, "-c", RUNNER])
    return subprocess.run(
        ["bash", "-c", f'W() {{ {command} "$@"; }}; {line}'],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )


EDIT = call("edit_file", file_path="a.py", old_string="helo", new_string="hello")
FIXING = [EDIT, call("read_file", file_path="a.py"), EDIT, {"text": "Fixed."}]


def test_run_writes_a_patch_that_git_applies_to_the_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, patch = source(tmp_path), tmp_path / "out.patch"
    played = script(tmp_path, *FIXING)
    assert (
        main(["run", "--script", str(played), "--source", str(folder), "--patch", str(patch)]) == 0
    )
    out = capsys.readouterr().out
    assert "3 calls, 1 undone; 1 path changed" in out
    assert "Fixed." in out
    assert (folder / "a.py").read_text() == "print('helo')\n", "the source is only read"
    subprocess.run(["git", "apply", str(patch)], cwd=folder, env=GIT, check=True)
    assert (folder / "a.py").read_text() == "print('hello')\n"


def test_patch_is_written_to_a_pipe_or_to_a_file_that_keeps_its_mode(tmp_path: Path) -> None:
    source(tmp_path)
    script(tmp_path, *FIXING)
    run = "W run --script script.jsonl --source source --patch"
    (tmp_path / "out.patch").touch(mode=0o600)
    done = run_in_bash(tmp_path, f"{run} out.patch; {run} >(cat >&2)")
    assert done.stderr.count("+print('hello')") == 1
    assert "+print('hello')" in (tmp_path / "out.patch").read_text()
    assert (tmp_path / "out.patch").stat().st_mode & 0o777 == 0o600


def test_run_without_patch_option_prints_the_diff(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    played = script(tmp_path, *FIXING)
    assert main(["run", "--script", str(played), "--source", str(source(tmp_path))]) == 0
    assert "+print('hello')" in capsys.readouterr().out


def test_run_with_json_prints_one_object_for_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    played = script(tmp_path, *FIXING)
    assert main(["run", "--script", str(played), "--source", str(source(tmp_path)), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["answer"] == "Fixed."
    assert report["changed_paths"] == ["a.py"]
    assert "+print('hello')" in report["patch"]
    assert [(c["tool"], c["outcome"]) for c in report["calls"]] == [
        ("edit_file", "rolled_back"),
        ("read_file", "committed"),
        ("edit_file", "committed"),
    ]


def test_tools_prints_every_tool_with_its_schema_as_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["tools"]) == 0
    listed = {tool["name"]: tool for tool in json.loads(capsys.readouterr().out)}
    assert {"read_file", "edit_file", "apply_patch", "planning_setup_plan"} <= set(listed)
    assert listed["read_file"]["schema"]["properties"]["file_path"]["description"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["fly"], "No such command"),
        (["run"], "--script"),
        (["run", "--script", "x", "--source"], "--source"),
        (["run", "--script", "no-such-file", "--source", "."], "no-such-file"),
        (["tools", "--wings"], "--wings"),
    ],
)
def test_wrong_usage_prints_one_line_and_exits_with_2(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("wink-workspace: ")
    assert expected in line


def test_missing_source_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    played = script(tmp_path, {"text": "x"})
    assert main(["run", "--script", str(played), "--source", str(tmp_path / "none")]) == 2
    assert "none" in capsys.readouterr().err


def test_unwritable_patch_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    played = script(tmp_path, {"text": "x"})
    target = str(tmp_path / "no" / "such" / "dir.patch")
    arguments = ["run", "--script", str(played), "--source", str(source(tmp_path))]
    assert main([*arguments, "--patch", target]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_script_without_a_last_answer_fails_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    played = script(tmp_path, call("ls"))
    assert main(["run", "--script", str(played), "--source", str(source(tmp_path))]) == 1
    assert "the script ended" in capsys.readouterr().err


def test_demo_shows_that_failed_calls_are_undone_and_writes_a_valid_patch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Podman, which is reported; ``test_podman_commands`` plays it with Podman."""
    monkeypatch.setenv("PATH", str(tmp_path))
    patch = tmp_path / "demo.patch"
    assert main(["demo", "--patch", str(patch)]) == 0
    out = capsys.readouterr().out
    assert "Refused by policy" in out
    assert "evaluate_python" in out
    hashes = [line.split() for line in out.splitlines() if "content before" in line]
    assert len(hashes) == 3, "a refusal, a patch that does not apply, a handler that raises"
    assert all(words[2].rstrip(",") == words[4].rstrip(":") for words in hashes)
    assert "applies to a fresh copy" in out
    assert "completed" in out
    assert "The sandbox podman is not used here: there is no podman on the PATH" in out
    assert f"-def {OLD_NAME}(" in patch.read_text()
    assert f"+def {NEW_NAME}(" in patch.read_text()
    _, _, advice = out.partition("Try it: ")
    checked = subprocess.run(
        shlex.split(advice.splitlines()[0]), env=GIT, check=True, capture_output=True
    )
    assert b"checking file" in checked.stdout


def test_escape_sequences_in_tool_names_and_arguments_do_not_reach_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    escapes = "\x1b]0;owned\x07\x9b2J\u202e"
    played = script(
        tmp_path,
        call(f"no_{escapes}_tool", path=escapes),
        call("read_file", file_path=escapes),
        {"text": f"Done. {escapes}"},
    )
    with monkeypatch.context() as streams, terminal(streams) as shown:
        assert main(["run", "--script", str(played), "--source", str(source(tmp_path))]) == 0
        printed = shown()
    assert b"no_" in printed
    assert b"owned" in printed
    for unwanted in ("\x1b]", "\x07", "\x9b", "\u202e"):
        assert unwanted.encode() not in printed


def test_failed_call_is_wrapped_on_a_terminal_and_keeps_its_hint() -> None:
    text = "\n".join(["it does not apply:", *["    | some line"] * 40, "Read it again. " * 8])
    event = ToolInvoked(
        call_id="1",
        tool="apply_patch",
        prompt="p",
        params=None,
        success=False,
        message=text,
        value=None,
        rendered_text="",
        text=text,
        outcome=Outcome.ROLLED_BACK,
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        duration_s=0.1,
    )
    for is_terminal in (True, False):
        shown = io.StringIO()
        print_call(
            Console(
                file=shown,
                width=80,
                force_terminal=is_terminal,
                no_color=True,
                highlight=False,
                soft_wrap=True,
            ),
            CallEnded.of(event),
        )
        lines = shown.getvalue().splitlines()
        assert "Read it again." in lines[-1]
        assert len(lines) == 1 if not is_terminal else len(lines) < 12
        assert not is_terminal or max(map(len, lines)) < 100, "including colour codes"


def test_no_command_shows_the_help_without_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    shown = capsys.readouterr()
    assert "Usage" in shown.out + shown.err
    assert "See wink-workspace" not in shown.err


def test_version_option_prints_the_version_of_the_distribution(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"{version('wink-workspace')}\n"


def test_help_is_wrapped_to_the_width_of_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["run", "--help"]) == 0
    assert "change leaves the workspace until you say so." in capsys.readouterr().out


def test_wrong_usage_names_the_help_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show"]) == 2
    assert capsys.readouterr().err.endswith("'entry'. See wink-workspace show --help.\n")


def test_misspelt_command_gets_a_suggestion(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["lst"]) == 2
    assert "Did you mean 'list'? See wink-workspace --help." in capsys.readouterr().err


def test_unwritable_state_directory_is_named_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")
    assert main(["new", str(source(tmp_path))]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "/proc/none" in line
    assert "XDG_STATE_HOME" in line


def test_characters_missing_in_the_encoding_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(shown, encoding="ascii"))
    played = script(tmp_path, *FIXING)
    assert main(["run", "--script", str(played), "--source", str(source(tmp_path))]) == 0
    sys.stderr.flush()
    assert b"? edit_file" in shown.getvalue()


def test_ctrl_c_during_the_import_exits_with_130_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Interrupts:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "wink_workspace.cli.app":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "wink_workspace.cli.app", raising=False)
    monkeypatch.delattr(wink_workspace.cli, "app", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupts(), *sys.meta_path])
    assert main(["list"]) == 130


@pytest.mark.share(1)
@pytest.mark.parametrize("key", ["Ctrl-C", "Ctrl-D"])
def test_interrupted_question_ends_the_run_and_prints_how_to_apply_later(
    tmp_path: Path, key: str
) -> None:
    folder, printed = source(tmp_path), tmp_path / "printed"
    script(tmp_path, *FIXING)
    keyboard, terminal = os.openpty()
    with printed.open("wb") as output:
        run = subprocess.Popen(
            [sys.executable, "-c", RUNNER, "run", "--script", "script.jsonl", "--repo", "source"],
            env={"XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)},
            cwd=tmp_path,
            stdin=terminal,
            stdout=output,
            stderr=output,
            # make, or a background shell, may start the tests with SIGINT ignored
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    try:
        for _ in range(300):  # repeated, because Python sometimes misses the first one
            if printed.read_text().rstrip().endswith("[y,n,p,d,m,?]"):
                if key == "Ctrl-C":
                    run.send_signal(signal.SIGINT)
                else:
                    os.write(keyboard, b"\x04")
            with suppress(subprocess.TimeoutExpired):
                run.wait(0.2)
                break
        assert run.returncode == 130, printed.read_text()
    finally:
        run.kill()
        run.wait()
        os.close(keyboard)
        os.close(terminal)
    last = printed.read_text().rpartition("[y/N]")[2]
    assert "to apply: wink-workspace apply" in last
    assert "interrupted" in last
    assert "Traceback" not in last
    assert (folder / "a.py").read_text() == "print('helo')\n"


def test_changes_are_applied_when_the_reader_of_the_diff_closes_the_pipe(tmp_path: Path) -> None:
    folder = source(tmp_path)
    long = call("write_file", file_path="long.txt", content="line\n" * 50_000)
    script(tmp_path, EDIT, long, {"text": "Done."})
    done = run_in_bash(tmp_path, "W run --script script.jsonl --repo source --yes | head -1")
    assert done.stdout.startswith("diff --git")
    assert (folder / "long.txt").exists()
    assert "Traceback" not in done.stderr


def test_list_separates_fields_by_tabs_and_closed_output_is_not_an_error(
    tmp_path: Path,
) -> None:
    source(tmp_path)
    line = "W new source --mode copy; W list | cut -f 3,4; W diff $(W list | cut -f1) >&-; echo $?"
    done = run_in_bash(tmp_path, line)
    assert done.stdout.splitlines()[1:] == [f"copy\t{tmp_path}/source", "0"]
    assert done.stderr == ""


def test_full_output_device_is_reported(tmp_path: Path) -> None:
    done = run_in_bash(tmp_path, "W tools > /dev/full; echo $?")
    assert done.stdout == "1\n"
    assert "the output" in done.stderr
    assert "XDG_STATE_HOME" not in done.stderr


def test_resume_in_place_without_an_earlier_run_creates_no_workspace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert main(["run", "--repo", str(source(tmp_path)), "--in-place", "--resume"]) == 2
    assert "there was no run in" in capsys.readouterr().err
    assert main(["list"]) == 0
    assert capsys.readouterr().out == ""


def test_terminal_too_narrow_for_a_table_shows_every_field() -> None:
    shown = io.StringIO()
    console = Console(file=shown, width=20, force_terminal=True, highlight=False, soft_wrap=True)
    print_table(console, ("ENTRY", "WHEN", "WHAT"), [("12", "2026-01-01 10:00:00", "a call")])
    assert shown.getvalue() == "12  2026-01-01 10:00:00\n    a call\n"
