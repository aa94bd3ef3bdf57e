"""Workspaces on disk from the command line: a whole session, and each command on its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import MofNCompleteColumn

from wink_workspace.cli import main
from wink_workspace.cli.screen import display
from wink_workspace.environment import Environment
from wink_workspace.mcp_server.operations import OPERATIONS
from wink_workspace.prompt import ToolResult
from wink_workspace.workspace import Workspace, WorkspaceStorage

GIT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "PATH": "/usr/bin:/bin",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


def call(name: str, **arguments: object) -> dict[str, object]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


EDIT = call("edit_file", file_path="a.py", old_string="helo", new_string="hello")
FIXING = [EDIT, call("read_file", file_path="a.py"), EDIT, {"text": "Fixed."}]


class Shell:
    """Runs commands with a temporary state directory."""

    def __init__(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.tmp_path = tmp_path
        self._capsys = capsys
        self.source = tmp_path / "source"
        self.source.mkdir()
        (self.source / "a.py").write_text("print('helo')\n")
        (self.source / "b.py").write_text("b\n")

    def __call__(self, *arguments: object, fails: int = 0) -> str:
        """What a command prints: stdout, or stderr if it must fail with the code *fails*."""
        code = main([str(argument) for argument in arguments])
        captured = self._capsys.readouterr()
        self.err = captured.err
        assert code == fails, captured.err
        return captured.err if fails else captured.out

    def new(self) -> str:
        return self("new", self.source).split(":")[0]

    def play(self, workspace: str, *turns: dict[str, object]) -> str:
        script = self.tmp_path / "script.jsonl"
        script.write_text("".join(json.dumps(turn) + "\n" for turn in turns))
        return self("run", "--script", script, "--workspace", workspace)

    def git(self, *arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments],
            cwd=self.source,
            env=GIT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def kill_in_a_call(self, workspace: str, *paths: str) -> None:
        """Start a call in *workspace* in another process, write these files, and kill it."""
        die = (
            "import os, sys\n"
            "from wink_workspace.workspace import Workspace, WorkspaceStorage\n"
            "workspace = Workspace.open(sys.argv[2], storage=WorkspaceStorage(sys.argv[1]))\n"
            "workspace._writer.begin('c1', 'write_file', workspace._clock.now())\n"
            "for path in sys.argv[3:]:\n"
            "    workspace.files.write_text(path, 'half')\n"
            "os.kill(os.getpid(), 9)\n"
        )
        state = self.tmp_path / "state" / "wink-workspace"
        done = subprocess.run([sys.executable, "-c", die, str(state), workspace, *paths])
        assert done.returncode == -9

    def entries(self, workspace: str) -> list[dict[str, object]]:
        return json.loads(self("log", workspace, "--json"))

    @property
    def storage(self) -> WorkspaceStorage:
        return WorkspaceStorage(self.tmp_path / "state" / "wink-workspace")


@pytest.fixture
def shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Shell(tmp_path, capsys)


def contents(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@pytest.mark.behaviour(31)
def test_new_run_undo_redo_and_apply_change_the_source_and_never_its_git(shell: Shell) -> None:
    shell.git("init", "-q", "-b", "main")
    shell.git("add", "-A")
    shell.git("commit", "-qm", "one")
    git_before = contents(shell.source / ".git")

    workspace = shell.new()
    assert "3 calls, 1 undone; 1 path changed" in shell.play(workspace, *FIXING)
    numbered = [(entry["kind"], entry["outcome"]) for entry in shell.entries(workspace)]
    assert numbered == [
        ("call", "committed"),
        ("call", "committed"),
        ("call", "rolled_back"),
        ("import", None),
    ]
    assert "+print('hello')" in shell("show", workspace, 4)
    assert "Refused by policy" in shell("show", workspace, 2)
    assert "+print('hello')" in shell("diff", workspace)

    assert "undo of entry 4" in shell("undo", workspace)
    assert shell("diff", workspace) == ""
    assert "redo of entry 4" in shell("redo", workspace)
    assert (shell.source / "a.py").read_text() == "print('helo')\n", "not applied yet"
    assert "1 path applied" in shell("apply", workspace)
    assert (shell.source / "a.py").read_text() == "print('hello')\n"
    assert contents(shell.source / ".git") == git_before


def test_diff_prints_exact_bytes_that_git_applies(shell: Shell) -> None:
    workspace = shell.new()
    shell.play(workspace, *FIXING)
    patch = shell.tmp_path / "from-diff.patch"
    patch.write_text(shell("diff", workspace))
    shell.git("apply", str(patch))
    assert (shell.source / "a.py").read_text() == "print('hello')\n"


def test_list_names_every_workspace_until_rm_removes_it(shell: Shell) -> None:
    assert shell("list") == ""
    first, second = shell.new(), shell.new()
    listed = shell("list")
    assert first in listed
    assert second in listed
    assert str(shell.source) in listed
    shell("rm", first)
    assert [found["id"] for found in json.loads(shell("list", "--json"))] == [second]
    assert "no workspace is called" in shell("log", first, fails=2)


def test_fork_diff_and_rm_print_json(shell: Shell) -> None:
    workspace = shell.new()
    forked = json.loads(shell("fork", workspace, "try", "--json"))
    name = f"{workspace}/try"
    assert forked == {"workspace": workspace, "fork": "try", "name": name, "without": []}
    shell.play(forked["name"], *FIXING)
    differing = json.loads(shell("diff", forked["name"], "--json"))
    assert differing["paths"] == ["a.py"]
    assert "+print('hello')" in differing["diff"]
    assert json.loads(shell("diff", workspace, "--json")) == {
        "paths": [],
        "diff": "",
        "not_shown": [],
        "changes": [],
        "left_out": [],
        "derived": [],
    }
    assert json.loads(shell("rm", forked["name"], "--json")) == {"removed": forked["name"]}
    assert json.loads(shell("rm", workspace[:8], "--json")) == {"removed": workspace}


def test_log_lists_at_most_the_given_number_of_entries(shell: Shell) -> None:
    workspace = shell.new()
    shell.play(workspace, *FIXING)
    lines = shell("log", workspace, "-n", 2).splitlines()
    assert len(lines) == 2
    assert "edit_file" in lines[0]


def test_show_with_json_has_record_and_diff(shell: Shell) -> None:
    workspace = shell.new()
    shell.play(workspace, *FIXING)
    shown = json.loads(shell("show", workspace, 4, "--json"))
    assert shown["record"]["params"]["file_path"] == "a.py"
    assert "+print('hello')" in shown["diff"]


def test_restore_of_one_path_leaves_other_paths(shell: Shell) -> None:
    workspace = shell.new()
    more = call("write_file", file_path="c.py", content="c\n")
    shell.play(workspace, *FIXING[:-1], more, {"text": "Done."})
    assert "restore of entry 1" in shell("restore", workspace, 1, "a.py")
    changed = shell("diff", workspace)
    assert "c.py" in changed
    assert "a.py" not in changed


def test_restore_of_an_unknown_entry_changes_nothing(shell: Shell) -> None:
    workspace = shell.new()
    assert "no entry" in shell("restore", workspace, 7, fails=1)
    assert len(shell.entries(workspace)) == 1


@pytest.mark.parametrize("way", ["command", "json", "mcp"])
def test_undo_says_which_effects_outside_stay(shell: Shell, way: str) -> None:
    workspace, effect = shell.new(), "network: 1 request to a.test, 99 bytes sent"
    with Workspace.open(workspace, storage=shell.storage) as opened, opened.call("fetch") as call:
        opened.files.write_text("new", "x")
        call.tool_result = ToolResult.ok("done", outside_effects=(effect,))
    assert effect in shell("show", workspace, 2)
    if way == "command":
        shell("undo", workspace)
        assert f"not undone: {effect}" in shell.err
        shell("redo", workspace)
        assert "not undone" not in shell.err
    elif way == "json":
        assert json.loads(shell("undo", workspace, "--json"))["not_undone"] == [effect]
    else:
        (undo,) = (each for each in OPERATIONS if each.tool.name == "workspace_undo")
        with Workspace.open(workspace, storage=shell.storage) as opened:
            assert undo.run(opened, {}).render() == f"new\nnot undone: {effect}"


def test_undo_without_a_call_reports_that_there_is_nothing_to_undo(shell: Shell) -> None:
    assert "nothing to undo" in shell("undo", shell.new(), fails=1)


def test_fork_has_its_own_files_until_rm_removes_it(shell: Shell) -> None:
    workspace = shell.new()
    fork = shell("fork", workspace, "try").strip()
    assert fork == f"{workspace}/try"
    shell.play(fork, *FIXING)
    assert "+print('hello')" in shell("diff", fork)
    assert shell("diff", workspace) == ""
    shell("rm", fork)
    assert "no fork" in shell("log", fork, fails=1)
    assert len(shell.entries(workspace)) == 1


def test_reading_commands_work_while_another_process_has_the_workspace_open(shell: Shell) -> None:
    workspace = shell.new()
    with Workspace.open(workspace, storage=shell.storage):
        assert len(shell.entries(workspace)) == 1
        assert shell("diff", workspace) == ""
        assert shell("fork", workspace, "aside").strip() == f"{workspace}/aside"
        assert "in use by process" in shell("undo", workspace, fails=1)
        assert "in use by process" in shell("rm", workspace, fails=1)
        assert "in use by process" in shell("recover", workspace, fails=1)


def test_apply_with_a_conflict_names_the_path_and_writes_nothing(shell: Shell) -> None:
    workspace = shell.new()
    shell.play(workspace, *FIXING)
    (shell.source / "a.py").write_text("mine\n")
    assert "a.py" in shell("apply", workspace, fails=1)
    assert (shell.source / "a.py").read_text() == "mine\n"


def test_apply_writes_a_patch_or_creates_a_branch(shell: Shell) -> None:
    shell.git("init", "-q", "-b", "main")
    shell.git("add", "-A")
    shell.git("commit", "-qm", "one")
    workspace = shell.new()
    shell.play(workspace, *FIXING)
    patch = shell.tmp_path / "out.patch"
    assert "1 path written to" in shell("apply", workspace, "--patch", patch)
    shell.git("apply", "--check", str(patch))
    applied = json.loads(shell("apply", workspace, "--branch", "fixed", "--json"))
    assert applied["paths"] == ["a.py"]
    assert shell.git("show", "fixed:a.py") == "print('hello')\n"
    assert "exists already" in shell("apply", workspace, "--branch", "fixed", fails=2)
    assert shell.git("status", "--short") == ""


def test_apply_refuses_two_targets(shell: Shell) -> None:
    workspace = shell.new()
    both = shell("apply", workspace, "--patch", "x", "--branch", "y", fails=2)
    assert "one way at a time" in both


def test_gc_reports_what_it_forgot(shell: Shell) -> None:
    workspace = shell.new()
    printed = shell("gc", workspace)
    assert "0 entries and 0 discards forgotten; " in printed
    assert "bytes freed" in printed
    assert json.loads(shell("gc", workspace, "--json"))["ran"] is True


def test_gc_removes_the_unfinished_workspace_of_a_killed_process(shell: Shell) -> None:
    workspace = shell.new()
    make = (
        "import os, sys\n"
        "from wink_workspace.workspace import WorkspaceStorage\n"
        "WorkspaceStorage(sys.argv[1]).add(lambda _: os.kill(os.getpid(), 9))\n"
    )
    state = shell.tmp_path / "state" / "wink-workspace"
    subprocess.run([sys.executable, "-c", make, str(state)], check=False)
    assert "1 unfinished workspace of" in shell("gc", workspace)
    assert json.loads(shell("gc", workspace, "--json"))["unfinished_workspaces_removed"] == 0


def test_progress_bar_is_shown_on_a_terminal_only() -> None:
    for is_shown in (True, False):
        text = StringIO()
        terminal = Console(file=text, force_terminal=True, width=120)
        column = MofNCompleteColumn()
        with display.progress_bar(terminal, "reading", column, is_shown=is_shown) as update:
            update(description="deleting files", completed=17, total=1_200)
        assert ("deleting files" in text.getvalue()) is is_shown
        assert ("17/1200" in text.getvalue()) is is_shown


def test_new_and_gc_show_their_progress_on_a_terminal(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Environment, "shows_progress", True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "300")
    workspace = shell.new()
    assert "2 files, 16 bytes" in shell.err
    shell("gc", workspace)
    assert "1/1" in shell.err


def test_recover_reports_a_call_interrupted_by_a_kill(shell: Shell) -> None:
    workspace = shell.new()
    assert "nothing to recover" in shell("recover", workspace)
    shell.kill_in_a_call(workspace, "half.txt")
    assert "write_file: interrupted" in shell("recover", workspace)
    assert shell("diff", workspace) == ""
    assert "nothing to recover" in shell("recover", workspace)


def test_recover_reports_an_interrupted_apply_until_another_apply_finishes_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = shell.new()
    shell.play(workspace, *FIXING)
    with monkeypatch.context() as patched:
        for step in ("make", "take_back"):
            patched.setattr(
                f"wink_workspace.workspace.in_place.guarded_checkout.Checkout.{step}",
                lambda *_: 1 / 0,
            )
        with pytest.raises(ZeroDivisionError):
            main(["apply", workspace])
    assert "apply again to finish it" in shell("recover", workspace)
    assert "1 path applied" in shell("apply", workspace)
    assert "nothing to recover" in shell("recover", workspace)


def test_new_uses_the_singular_for_one_file(shell: Shell) -> None:
    (shell.tmp_path / "small").mkdir()
    (shell.tmp_path / "small" / "a.py").touch()
    assert shell("new", shell.tmp_path / "small").endswith(", 1 file\n")


def test_workspace_in_place_is_created_changed_undone_and_removed(shell: Shell) -> None:
    printed = shell("new", shell.source, "--in-place")
    workspace = printed.split(":")[0]
    assert f": in {shell.source}, 2 files" in printed
    assert json.loads(shell("list", "--json"))[0]["mode"] == "in_place"
    assert "in place" in shell("list")
    assert workspace in shell("new", shell.source, "--in-place", fails=2)
    shell.play(workspace, *FIXING)
    assert (shell.source / "a.py").read_text() == "print('hello')\n"
    assert "patch" in shell("apply", workspace, fails=2)
    shell("undo", workspace)
    assert (shell.source / "a.py").read_text() == "print('helo')\n"
    shell("rm", workspace)
    assert shell("list") == ""
    assert (shell.source / "b.py").exists()


def test_exec_in_place_is_refused_and_leaves_no_entry(shell: Shell) -> None:
    workspace = shell("new", "--in-place", shell.source).partition(":")[0]
    assert "Fork it" in shell("exec", workspace, "--", "ls", fails=2)
    assert len(shell("log", workspace).splitlines()) == 1


def test_run_in_place_creates_one_workspace_and_reuses_it(shell: Shell) -> None:
    script = shell.tmp_path / "s.jsonl"
    script.write_text("".join(json.dumps(turn) + "\n" for turn in FIXING))
    assert "Fixed." in shell("run", "--script", script, "--repo", shell.source, "--in-place")
    assert (shell.source / "a.py").read_text() == "print('hello')\n"
    script.write_text('{"text": "x"}\n')
    shell("run", "--script", script, "--repo", shell.source, "--in-place")
    (workspace,) = json.loads(shell("list", "--json"))
    assert workspace["source"] == str(shell.source)


def test_recover_in_place_reports_what_was_undone_and_what_was_left(shell: Shell) -> None:
    workspace = shell("new", shell.source, "--in-place").split(":")[0]
    shell.kill_in_a_call(workspace, "half.txt", "a.py", "b.py")
    (shell.source / "b.py").write_text("by hand\n")
    printed = " ".join(shell("recover", workspace).split())
    assert "undone (2 paths); changed by another program, so not undone: b.py" in printed
    assert sorted(path.name for path in shell.source.iterdir()) == ["a.py", "b.py"]
    assert (shell.source / "a.py").read_text() == "print('helo')\n"
    assert (shell.source / "b.py").read_text() == "by hand\n"


def test_rm_of_a_workspace_without_a_readable_history_needs_force(shell: Shell) -> None:
    workspace = shell.new()
    folder = shell.storage.folder(workspace)
    folder.ledger.rename(folder.path / "lost.git")
    shell("rm", workspace, fails=1)
    shell("rm", workspace, "--force")
    assert shell("list") == ""


def test_new_of_a_missing_directory_is_wrong_usage(shell: Shell) -> None:
    assert "none" in shell("new", shell.tmp_path / "none", fails=2)
    assert shell("list") == ""


def test_new_names_files_that_cannot_be_copied(shell: Shell) -> None:
    os.mkfifo(shell.source / "pipe")
    assert "; could not be copied: pipe\n" in shell("new", shell.source)


def test_diff_written_in_pieces_is_printed_in_whole_coloured_lines() -> None:
    text = StringIO()
    terminal = Console(file=text, force_terminal=True, color_system="standard", highlight=False)

    def pieces(write: Callable[[bytes], object]) -> tuple[str, ...]:
        for piece in ("@@ -1 +1 @@\n-a\r\n+\u00e4".encode()[:-1], b"\xa4\n", b" \x0bb"):
            write(piece)
        return ("big",)

    assert display.print_diff(terminal, pieces) == ("big",)
    assert text.getvalue() == (
        "\x1b[36m@@ -1 +1 @@\x1b[0m\n\x1b[31m-a\x1b[0m\n\x1b[32m+\u00e4\x1b[0m\n \ufffdb\n"
    )


@pytest.mark.parametrize(("json_option", "n_mib"), [((), 65), (("--json",), 5)])
def test_one_large_file_hides_no_other_file_in_any_command(
    shell: Shell, json_option: tuple[str, ...], n_mib: int
) -> None:
    workspace = shell.new()
    files = shell.storage.folder(workspace).files
    (files / "a.py").write_text("print('hello')\n")
    (files / "big.bin").touch()
    os.truncate(files / "big.bin", n_mib * 1_048_576)
    script = shell.tmp_path / "script.jsonl"
    turns = (call("write_file", file_path="new", content="x"), {"text": "Done."})
    script.write_text("".join(json.dumps(turn) + "\n" for turn in turns))

    run = ("run", "--script", script, "--workspace", workspace)
    for command in (run, ("diff", workspace), ("show", workspace, "2")):
        out = shell(*command, *json_option)
        fields = json.loads(out) if json_option else {}
        shown = fields.get("diff") or fields.get("patch") or out
        assert f"big.bin: {n_mib} MiB, not shown\n" in shown
        assert "+print('hello')\n" in shown
        assert "literal" not in shown
        assert fields.get("not_shown", ["big.bin"]) == ["big.bin"]
        assert json_option or "1 path too large to be shown: big.bin; use --" in shell.err
    if json_option:
        assert "literal 5242880" in shell("diff", workspace, "--full", *json_option)
        return
    patch = shell.tmp_path / "out.patch"
    shell("apply", workspace, "--patch", patch)
    assert b"literal 68157440" in patch.read_bytes()


def test_control_characters_of_files_are_replaced_on_a_terminal() -> None:
    text = StringIO()
    terminal = Console(file=text, force_terminal=True, no_color=True, highlight=False)
    display.print_diff(terminal, lambda write: write(b"+\x1b]0;title\x07\n"))
    display.print_table(terminal, ("WHAT",), [("\x1b[2Jcleared",)])
    assert "\x1b]" not in text.getvalue()
    assert "\x1b[2J" not in text.getvalue()


def test_apply_shows_conflicts_by_hunk_and_merge_option_writes_markers(shell: Shell) -> None:
    workspace = shell.new()
    shell.play(workspace, *FIXING)
    (shell.source / "a.py").write_text("print('mine')\n")
    printed = shell("apply", workspace, fails=1)
    assert "<<<<<<< source\nprint('mine')\n" in printed
    assert "=======\nprint('hello')\n>>>>>>> workspace\n" in printed
    assert "1 path applied" in shell("apply", workspace, "--merge")
    assert (shell.source / "a.py").read_text() == (
        "<<<<<<< source\nprint('mine')\n=======\nprint('hello')\n>>>>>>> workspace\n"
    )
    assert "one way" in shell("apply", workspace, "--merge", "--branch", "b", fails=2)


@pytest.mark.behaviour(88)
def test_merge_and_sync_are_one_entry_each(shell: Shell) -> None:
    workspace = shell.new()
    shell("fork", workspace, "bold")
    shell.play(f"{workspace}/bold", *FIXING)
    printed = shell("merge", f"{workspace}/bold", "--into", workspace)
    assert "merge of bold, entry 4, 1 path changed" in printed
    assert "+print('hello')" in shell("diff", workspace)
    (shell.source / "b.py").write_text("later\n")
    assert json.loads(shell("sync", workspace, "--json"))["kind"] == "sync"
    assert "later" not in shell("diff", workspace)
    for what in ("sync", "merge"):
        assert what in shell("undo", workspace)
    assert shell("diff", workspace) == ""
    other = shell.new()
    assert "not branches of one workspace" in shell(
        "merge", f"{workspace}/bold", "--into", other, fails=2
    )
    assert shell("sync", other) == "already up to date\n"


def test_new_names_derived_paths_and_leaves_out_excluded_ones(shell: Shell) -> None:
    (shell.source / "node_modules").mkdir()
    (shell.source / "node_modules/x.js").write_text("1\n")
    (shell.source / "gen.txt").write_text("made\n")
    (shell.source / "clip.mp4").write_text("video\n")
    (shell.source / ".env").write_text("KEY=1\n")
    options = ("--exclude", "*.mp4", "--derived", "/gen.txt")
    printed = shell("new", shell.source, *options)
    assert "derived, so copied and not recorded: .env, gen.txt, node_modules" in printed
    workspace = printed.split(":")[0]
    shell.play(workspace, call("write_file", file_path=".env.local", content="X"), {"text": "."})
    assert shell("diff", workspace) == ""
    assert "derived paths changed and are not part of this: .env.local" in shell.err
    assert json.loads(shell("apply", workspace, "--json"))["preview"]["derived"] == [".env.local"]
    undone = json.loads(shell("restore", workspace, "1", "--json"))
    assert undone["derived"] == [".env.local"]
    files = shell.storage.folder(workspace).files
    assert (files / "node_modules/x.js").exists()
    assert not (files / "clip.mp4").exists()
    assert "4 derived paths kept" in shell("checkpoint", workspace)
    shell("fork", workspace, "try")
    assert shell("diff", f"{workspace}/try") == ""
    forked = shell.storage.folder(workspace).of_branch("try").files
    assert (forked / ".env.local").read_text() == "X"


def test_new_with_no_derived_records_everything(shell: Shell) -> None:
    (shell.source / ".env").write_text("KEY=1\n")
    workspace = json.loads(shell("new", shell.source, "--no-derived", "--json"))
    assert workspace["derived"] == []
    imported = json.loads(shell("show", workspace["id"], 1, "--json"))
    assert imported["record"]["n_files"] == 3


def test_new_refuses_a_source_over_the_limit_and_names_the_largest_path(shell: Shell) -> None:
    (shell.source / "data").mkdir()
    (shell.source / "data/big.bin").write_bytes(b"x" * 20_000)
    refused = shell("new", shell.source, "--max-size", "10K", fails=2)
    assert "data/big.bin (20 KiB)" in refused
    assert "--exclude" in refused
    assert "is not a size" in shell("new", shell.source, "--max-size", "much", fails=2)
    assert "more than 1 file" in shell("new", shell.source, "--max-files", 1, fails=2)
    assert shell("list") == ""
    shell("new", shell.source, "--max-size", "10K", "--exclude", "data")


def test_new_in_place_refuses_excluded_paths(shell: Shell) -> None:
    refused = shell("new", shell.source, "--in-place", "--exclude", "data", fails=2)
    assert "copies nothing" in refused


def test_apply_undo_takes_the_last_apply_back(shell: Shell) -> None:
    workspace = shell.new()
    before = (shell.source / "a.py").read_text()
    shell.play(workspace, *FIXING)
    shell("apply", workspace)
    assert (shell.source / "a.py").read_text() != before
    shell("apply", workspace, "--undo", "--dry-run", fails=2)
    assert "1 path reverted in" in shell("apply", workspace, "--undo")
    assert (shell.source / "a.py").read_text() == before
    assert "nothing that the branch" in shell("apply", workspace, "--undo", fails=2)
    assert "1 path applied" in shell("apply", workspace)
    assert json.loads(shell("apply", workspace, "--undo", "--json"))["paths"] == ["a.py"]


def test_undo_of_a_named_entry_without_changes_to_files_says_so(shell: Shell) -> None:
    workspace = shell.new()
    with Workspace.open(workspace, storage=shell.storage) as opened:
        opened.run(opened.files.exists, "a.py", label="look")
    assert "undo of entry 2: look" in (printed := shell("undo", workspace, "2"))
    assert printed.endswith("; no file changed\n")
    shell("undo", workspace, fails=1)
    assert "nothing to undo" in shell.err
