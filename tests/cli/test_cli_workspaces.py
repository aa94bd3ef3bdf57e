"""Workspaces on disk from the command line: a whole story, and each command's answers."""

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

from wink_workspace.cli import display, main, workspaces
from wink_workspace.environment import Environment
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
MENDING = [EDIT, call("read_file", file_path="a.py"), EDIT, {"text": "Mended."}]


class Shell:
    """Runs commands with a state directory of their own."""

    def __init__(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.tmp_path = tmp_path
        self._capsys = capsys
        self.source = tmp_path / "source"
        self.source.mkdir()
        (self.source / "a.py").write_text("print('helo')\n")
        (self.source / "b.py").write_text("b\n")

    def __call__(self, *arguments: object, fails: int = 0) -> str:
        """What a command prints on stdout, or on stderr if it is to fail with this code."""
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
        """A process that begins a call in *workspace*, writes these files, and is killed."""
        die = (
            "import os, sys\n"
            "from wink_workspace.workspace import Workspace, WorkspaceStorage\n"
            "place = Workspace.open(sys.argv[2], storage=WorkspaceStorage(sys.argv[1]))\n"
            "place._writer.begin('c1', 'write_file', place._clock.now())\n"
            "for path in sys.argv[3:]:\n"
            "    place.files.write_text(path, 'half')\n"
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
def test_a_story_from_new_to_apply_changes_the_source_and_never_its_git(shell: Shell) -> None:
    shell.git("init", "-q", "-b", "main")
    shell.git("add", "-A")
    shell.git("commit", "-qm", "one")
    git_before = contents(shell.source / ".git")

    workspace = shell.new()
    assert "3 calls, 1 undone; 1 path changed" in shell.play(workspace, *MENDING)
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
    assert (shell.source / "a.py").read_text() == "print('helo')\n", "nothing was applied yet"
    assert "1 path applied" in shell("apply", workspace)
    assert (shell.source / "a.py").read_text() == "print('hello')\n"
    assert contents(shell.source / ".git") == git_before


def test_diff_prints_exact_bytes_that_git_applies(shell: Shell) -> None:
    workspace = shell.new()
    shell.play(workspace, *MENDING)
    patch = shell.tmp_path / "from-diff.patch"
    patch.write_text(shell("diff", workspace))
    shell.git("apply", str(patch))
    assert (shell.source / "a.py").read_text() == "print('hello')\n"


def test_list_names_every_workspace_and_rm_takes_one_away(shell: Shell) -> None:
    assert shell("list") == ""
    first, second = shell.new(), shell.new()
    listed = shell("list")
    assert first in listed
    assert second in listed
    assert str(shell.source) in listed
    shell("rm", first)
    assert [found["id"] for found in json.loads(shell("list", "--json"))] == [second]
    assert "no workspace is called" in shell("log", first, fails=2)


def test_fork_diff_and_rm_answer_programs_in_json(shell: Shell) -> None:
    workspace = shell.new()
    forked = json.loads(shell("fork", workspace, "try", "--json"))
    assert forked == {"workspace": workspace, "fork": "try", "name": f"{workspace}/try"}
    shell.play(forked["name"], *MENDING)
    differing = json.loads(shell("diff", forked["name"], "--json"))
    assert differing["paths"] == ["a.py"]
    assert "+print('hello')" in differing["diff"]
    assert json.loads(shell("diff", workspace, "--json")) == {
        "paths": [],
        "diff": "",
        "not_shown": [],
        "changes": [],
        "left_out": [],
    }
    assert json.loads(shell("rm", forked["name"], "--json")) == {"removed": forked["name"]}
    assert json.loads(shell("rm", workspace[:8], "--json")) == {"removed": workspace}


def test_log_gives_as_many_entries_as_asked_for(shell: Shell) -> None:
    workspace = shell.new()
    shell.play(workspace, *MENDING)
    lines = shell("log", workspace, "-n", 2).splitlines()
    assert len(lines) == 2
    assert "edit_file" in lines[0]


def test_show_with_json_has_record_and_diff(shell: Shell) -> None:
    workspace = shell.new()
    shell.play(workspace, *MENDING)
    shown = json.loads(shell("show", workspace, 4, "--json"))
    assert shown["record"]["params"]["file_path"] == "a.py"
    assert "+print('hello')" in shown["diff"]


def test_restore_of_one_path_leaves_the_others(shell: Shell) -> None:
    workspace = shell.new()
    more = call("write_file", file_path="c.py", content="c\n")
    shell.play(workspace, *MENDING[:-1], more, {"text": "Done."})
    assert "restore of entry 1" in shell("restore", workspace, 1, "a.py")
    changed = shell("diff", workspace)
    assert "c.py" in changed
    assert "a.py" not in changed


def test_restore_of_an_entry_that_is_not_there_changes_nothing(shell: Shell) -> None:
    workspace = shell.new()
    assert "no entry" in shell("restore", workspace, 7, fails=1)
    assert len(shell.entries(workspace)) == 1


def test_undo_of_nothing_says_so(shell: Shell) -> None:
    assert "nothing to undo" in shell("undo", shell.new(), fails=1)


def test_a_fork_has_its_own_files_and_goes_with_rm(shell: Shell) -> None:
    workspace = shell.new()
    fork = shell("fork", workspace, "try").strip()
    assert fork == f"{workspace}/try"
    shell.play(fork, *MENDING)
    assert "+print('hello')" in shell("diff", fork)
    assert shell("diff", workspace) == ""
    shell("rm", fork)
    assert "no fork" in shell("log", fork, fails=1)
    assert len(shell.entries(workspace)) == 1


def test_what_only_reads_works_while_another_has_the_workspace_open(shell: Shell) -> None:
    workspace = shell.new()
    with Workspace.open(workspace, storage=shell.storage):
        assert len(shell.entries(workspace)) == 1
        assert shell("diff", workspace) == ""
        assert shell("fork", workspace, "aside").strip() == f"{workspace}/aside"
        assert "in use by process" in shell("undo", workspace, fails=1)
        assert "in use by process" in shell("rm", workspace, fails=1)
        assert "in use by process" in shell("recover", workspace, fails=1)


def test_apply_to_a_changed_source_names_the_paths_and_writes_nothing(shell: Shell) -> None:
    workspace = shell.new()
    shell.play(workspace, *MENDING)
    (shell.source / "a.py").write_text("mine\n")
    assert "a.py" in shell("apply", workspace, fails=1)
    assert (shell.source / "a.py").read_text() == "mine\n"


def test_apply_writes_a_patch_or_makes_a_branch(shell: Shell) -> None:
    shell.git("init", "-q", "-b", "main")
    shell.git("add", "-A")
    shell.git("commit", "-qm", "one")
    workspace = shell.new()
    shell.play(workspace, *MENDING)
    patch = shell.tmp_path / "out.patch"
    assert "1 path written to" in shell("apply", workspace, "--patch", patch)
    shell.git("apply", "--check", str(patch))
    applied = json.loads(shell("apply", workspace, "--branch", "mended", "--json"))
    assert applied["paths"] == ["a.py"]
    assert shell.git("show", "mended:a.py") == "print('hello')\n"
    assert "there is a branch" in shell("apply", workspace, "--branch", "mended", fails=2)
    assert shell.git("status", "--short") == ""


def test_apply_one_way_at_a_time(shell: Shell) -> None:
    workspace = shell.new()
    both = shell("apply", workspace, "--patch", "x", "--branch", "y", fails=2)
    assert "one way at a time" in both


def test_gc_says_what_it_forgot(shell: Shell) -> None:
    workspace = shell.new()
    said = shell("gc", workspace)
    assert "0 entries and 0 thrown-away states forgotten; " in said
    assert "bytes freed" in said
    assert json.loads(shell("gc", workspace, "--json"))["ran"] is True


def test_gc_removes_what_a_killed_making_left(shell: Shell) -> None:
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


def test_a_terminal_is_shown_how_far_gc_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for is_shown in (True, False):
        text = StringIO()
        terminal = Console(file=text, force_terminal=True, width=120)
        monkeypatch.setattr(workspaces, "consoles", lambda _, to=terminal: (to, to))
        monkeypatch.setattr(Environment, "shows_progress", is_shown)
        with workspaces.measuring(Environment.from_os()) as steps:
            steps("deleting files", 17, 1_200)
        assert ("deleting files" in text.getvalue()) is is_shown
        assert ("17/1200" in text.getvalue()) is is_shown


def test_a_terminal_is_told_how_many_files_and_bytes_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for is_shown in (True, False):
        text = StringIO()
        terminal = Console(file=text, force_terminal=True, width=120)
        monkeypatch.setattr(display, "consoles", lambda _, to=terminal: (to, to))
        monkeypatch.setattr(Environment, "shows_progress", is_shown)
        with display.counting(Environment.from_os(), "copying x") as tell:
            tell(1_200, 34_567)
        assert ("1,200 files, 34,567 bytes" in text.getvalue()) is is_shown


def test_recover_reports_a_call_that_a_kill_interrupted(shell: Shell) -> None:
    workspace = shell.new()
    assert "nothing was left behind" in shell("recover", workspace)
    shell.kill_in_a_call(workspace, "half.txt")
    assert "write_file: interrupted" in shell("recover", workspace)
    assert shell("diff", workspace) == ""
    assert "nothing was left behind" in shell("recover", workspace)


def test_recover_says_that_an_apply_was_cut_short_until_another_finishes_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = shell.new()
    shell.play(workspace, *MENDING)
    with monkeypatch.context() as patched:
        for step in ("make", "take_back"):
            patched.setattr(
                f"wink_workspace.workspace.in_place.moving.Mover.{step}", lambda *_: 1 / 0
            )
        with pytest.raises(ZeroDivisionError):
            main(["apply", workspace])
    assert "apply again to finish it" in shell("recover", workspace)
    assert "1 path applied" in shell("apply", workspace)
    assert "nothing was left behind" in shell("recover", workspace)


def test_new_counts_one_file_as_one(shell: Shell) -> None:
    (shell.tmp_path / "small").mkdir()
    (shell.tmp_path / "small" / "a.py").touch()
    assert shell("new", shell.tmp_path / "small").endswith(", 1 file\n")


def test_workspace_in_place_from_its_beginning_to_its_end(shell: Shell) -> None:
    said = shell("new", shell.source, "--in-place")
    workspace = said.split(":")[0]
    assert f": in {shell.source}, 2 files" in said
    assert json.loads(shell("list", "--json"))[0]["mode"] == "in_place"
    assert "in place" in shell("list")
    assert workspace in shell("new", shell.source, "--in-place", fails=2)
    shell.play(workspace, *MENDING)
    assert (shell.source / "a.py").read_text() == "print('hello')\n"
    assert "patch" in shell("apply", workspace, fails=2)
    shell("undo", workspace)
    assert (shell.source / "a.py").read_text() == "print('helo')\n"
    shell("rm", workspace)
    assert shell("list") == ""
    assert (shell.source / "b.py").exists()


def test_a_command_in_place_is_refused_and_leaves_no_entry(shell: Shell) -> None:
    workspace = shell("new", "--in-place", shell.source).partition(":")[0]
    assert f"Fork {workspace}" in shell("exec", workspace, "--", "ls", fails=2)
    assert len(shell("log", workspace).splitlines()) == 1


def test_run_in_place_makes_one_workspace_and_finds_it_again(shell: Shell) -> None:
    script = shell.tmp_path / "s.jsonl"
    script.write_text("".join(json.dumps(turn) + "\n" for turn in MENDING))
    assert "Mended." in shell("run", "--script", script, "--repo", shell.source, "--in-place")
    assert (shell.source / "a.py").read_text() == "print('hello')\n"
    script.write_text('{"text": "x"}\n')
    shell("run", "--script", script, "--repo", shell.source, "--in-place")
    (workspace,) = json.loads(shell("list", "--json"))
    assert workspace["source"] == str(shell.source)


def test_recover_in_place_says_what_was_undone_and_what_was_left(shell: Shell) -> None:
    workspace = shell("new", shell.source, "--in-place").split(":")[0]
    shell.kill_in_a_call(workspace, "half.txt", "a.py", "b.py")
    (shell.source / "b.py").write_text("by hand\n")
    said = " ".join(shell("recover", workspace).split())
    assert "undone (2 paths); left as somebody else changed them: b.py" in said
    assert sorted(path.name for path in shell.source.iterdir()) == ["a.py", "b.py"]
    assert (shell.source / "a.py").read_text() == "print('helo')\n"
    assert (shell.source / "b.py").read_text() == "by hand\n"


def test_rm_of_a_workspace_whose_history_is_gone_needs_force(shell: Shell) -> None:
    workspace = shell.new()
    folder = shell.storage.folder(workspace)
    folder.ledger.rename(folder.path / "lost.git")
    shell("rm", workspace, fails=1)
    shell("rm", workspace, "--force")
    assert shell("list") == ""


def test_new_of_a_directory_that_is_not_there_is_wrong_usage(shell: Shell) -> None:
    assert "none" in shell("new", shell.tmp_path / "none", fails=2)
    assert shell("list") == ""


def test_new_names_what_could_not_be_copied(shell: Shell) -> None:
    os.mkfifo(shell.source / "pipe")
    assert "; could not be copied: pipe\n" in shell("new", shell.source)


def test_a_run_is_over_one_place(shell: Shell) -> None:
    script = shell.tmp_path / "s.jsonl"
    script.write_text('{"text": "x"}\n')
    assert "one place" in shell("run", "--script", script, fails=2)


def test_a_diff_in_pieces_is_printed_in_whole_lines_and_in_colour() -> None:
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
def test_one_file_that_is_too_large_hides_no_other_in_any_command(
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


def test_a_file_that_would_steer_the_terminal_does_not(shell: Shell) -> None:
    text = StringIO()
    terminal = Console(file=text, force_terminal=True, no_color=True, highlight=False)
    display.print_diff(terminal, lambda write: write(b"+\x1b]0;title\x07\n"))
    display.print_table(terminal, ("WHAT",), [("\x1b[2Jcleared",)])
    assert "\x1b]" not in text.getvalue()
    assert "\x1b[2J" not in text.getvalue()


def test_conflict_of_an_apply_is_shown_by_hunk_and_merge_writes_markers(shell: Shell) -> None:
    workspace = shell.new()
    shell.play(workspace, *MENDING)
    (shell.source / "a.py").write_text("print('mine')\n")
    said = shell("apply", workspace, fails=1)
    assert "<<<<<<< source\nprint('mine')\n" in said
    assert "=======\nprint('hello')\n>>>>>>> workspace\n" in said
    assert "1 path applied" in shell("apply", workspace, "--merge")
    assert (shell.source / "a.py").read_text() == (
        "<<<<<<< source\nprint('mine')\n=======\nprint('hello')\n>>>>>>> workspace\n"
    )
    assert "one way" in shell("apply", workspace, "--merge", "--branch", "b", fails=2)


def test_branches_are_merged_and_the_source_is_synced_as_one_entry_each(shell: Shell) -> None:
    workspace = shell.new()
    shell("fork", workspace, "bold")
    shell.play(f"{workspace}/bold", *MENDING)
    said = shell("merge", f"{workspace}/bold", "--into", workspace)
    assert "merge of bold, entry 4, 1 path changed" in said
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
    assert shell("sync", other) == "nothing is new\n"
