"""Before changes are applied, the user sees the paths, their changes and their risks."""

from __future__ import annotations

import json
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from test_cli_workspaces import FIXING, Shell, call

from wink_workspace.cli.screen import preview
from wink_workspace.workspace import Workspace

CHANGES = (
    call("write_file", file_path="new/tool.py", content="1\n2\n"),
    call("write_file", file_path="Makefile", content="all:\n"),
    call("rm", path="b.py"),
    call("write_file", file_path="x.log", content="noise\n"),
)


@pytest.fixture
def shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    shell = Shell(tmp_path, capsys)
    (shell.source / ".gitignore").write_text("*.log\n")
    return shell


def script(shell: Shell) -> Path:
    path = shell.tmp_path / "changes.jsonl"
    turns = (*CHANGES, *FIXING)
    path.write_text("".join(json.dumps(turn) + "\n" for turn in turns))
    return path


def changed_workspace(shell: Shell) -> str:
    """A workspace with an added, a changed, a removed and an ignored path."""
    workspace = shell.new()
    shell.play(workspace, *CHANGES, *FIXING[:-1], {"text": "Fixed."})
    return workspace


def shown(text: str) -> list[str]:
    """The lines of a preview, with one space between words."""
    return [" ".join(line.split()) for line in text.splitlines()]


PREVIEW = [
    "A +1 Makefile",
    "! build file",
    "M +1 -1 a.py",
    "D -1 b.py",
    "A +2 new/tool.py",
    "4 paths: 2 added, 1 changed, 1 removed; +4 -2 lines",
    "1 can run something on your machine (!)",
    "left out: x.log: ignored",
]


def test_dry_run_shows_every_path_and_writes_nothing(shell: Shell) -> None:
    workspace = changed_workspace(shell)
    before = sorted(path.name for path in shell.source.rglob("*"))
    assert shown(shell("apply", workspace, "--dry-run")) == PREVIEW
    assert shown(shell("diff", workspace, "--stat")) == PREVIEW
    patch = shell.tmp_path / "p.patch"
    assert shown(shell("apply", workspace, "--patch", patch, "--dry-run")) == PREVIEW
    assert not patch.exists()
    assert sorted(path.name for path in shell.source.rglob("*")) == before


def test_apply_shows_the_paths_before_it_writes(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = changed_workspace(shell)
    applying = Workspace.apply
    seen: list[str] = []

    def apply(workspace: Workspace, *arguments: object, **options: object) -> object:
        seen.append(capsys.readouterr().err)
        return applying(workspace, *arguments, **options)  # pyright: ignore[reportArgumentType] - as given

    monkeypatch.setattr(Workspace, "apply", apply)
    assert "4 paths applied to" in shell("apply", workspace)
    assert shown(seen[0]) == PREVIEW


def test_every_command_reports_the_same_paths_as_json(shell: Shell) -> None:
    shell.git("init", "-q", "-b", "main")
    shell.git("add", "-A")
    shell.git("commit", "-qm", "one")
    repo = ("--repo", shell.source, "--script", script(shell), "--json")
    run = json.loads(shell("run", *repo))
    workspace = run["workspace"]
    diff = json.loads(shell("diff", workspace, "--json"))
    stat = json.loads(shell("diff", workspace, "--stat", "--json"))
    dry = json.loads(shell("apply", workspace, "--dry-run", "--json"))
    patch = json.loads(shell("apply", workspace, "--patch", shell.tmp_path / "p", "--json"))
    branch = json.loads(shell("apply", workspace, "--branch", "agent", "--json"))
    applied = json.loads(shell("apply", workspace, "--json"))
    temporary = json.loads(
        shell("run", "--source", shell.tmp_path / "copy", *repo[2:]) if copy_source(shell) else ""
    )
    expected = ["Makefile", "a.py", "b.py", "new/tool.py"]
    assert run["changed_paths"] == temporary["changed_paths"] == expected
    for answer in (diff, stat, dry, patch, branch, applied):
        assert answer["paths"] == expected
    previews = [each["preview"] for each in (run, dry, patch, branch, applied, temporary)]
    for each in (*previews, diff, stat):
        assert [change["path"] for change in each["changes"]] == expected
        assert each["left_out"] == [{"path": "x.log", "reason": "ignored", "n_files": 1}]
    assert previews[0]["changes"][0] == {
        "path": "Makefile",
        "status": "added",
        "detail": "",
        "lines_added": 1,
        "lines_removed": 0,
        "is_binary": False,
        "n_bytes": 5,
        "risks": ["build file"],
    }
    assert dry["to"] is None
    assert applied["left_out"] == ["x.log"]


def copy_source(shell: Shell) -> bool:
    """Create the source as it was, in another directory."""
    folder = shell.tmp_path / "copy"
    folder.mkdir()
    for name, content in {"a.py": "print('helo')\n", ".gitignore": "*.log\n"}.items():
        (folder / name).write_text(content)
    (folder / "b.py").write_text("x = 1\n")
    return True


def test_include_ignored_applies_ignored_files_in_every_command(shell: Shell) -> None:
    workspace = changed_workspace(shell)
    assert "x.log" in json.loads(shell("diff", workspace, "--include-ignored", "--json"))["paths"]
    assert "5 paths applied" in shell("apply", workspace, "--include-ignored")
    assert (shell.source / "x.log").exists()
    run = ("run", "--script", script(shell), "--include-ignored", "--json")
    assert copy_source(shell)
    temporary = json.loads(shell(*run, "--source", shell.tmp_path / "copy"))
    assert "x.log" in temporary["changed_paths"]


class Keyboard(StringIO):
    """A keyboard, which is a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_question_comes_after_the_preview(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []

    def ask(question: str, **_: object) -> str:
        seen.append(capsys.readouterr().err)
        assert question.startswith("Apply to ")
        return "y"

    monkeypatch.setattr(sys, "stdin", Keyboard())
    monkeypatch.setattr("typer.prompt", ask)
    shell("run", "--script", script(shell), "--repo", shell.source)
    assert shown(seen[0])[-len(PREVIEW) :] == PREVIEW
    assert (shell.source / "Makefile").exists()


def printed(shell: Shell, workspace: str, *, width: int = 80, **options: int | None) -> str:
    text = StringIO()
    console = Console(file=text, force_terminal=True, color_system=None, width=width)
    console.soft_wrap = True
    with Workspace.open(workspace, storage=shell.storage) as opened:
        preview.print_preview(console, opened.source.preview(), **options)
    return text.getvalue()


def test_names_cannot_imitate_other_lines_or_control_the_terminal(shell: Shell) -> None:
    workspace = shell.new()
    with Workspace.open(workspace, storage=shell.storage) as opened:
        files = shell.storage.folder(workspace).files
        for name in ("a\nD      -1 b.py", "\x1b[2J", "\u202egpj.exe"):
            (files / name).write_text("x\n")
        (files / "l").symlink_to("/etc/\x1b]0;x")
        assert len(opened.source.preview().paths) == 4
    text = printed(shell, workspace)
    assert "\x1b[2J" not in text
    assert "\u202e" not in text
    assert "\nD" not in text
    assert '"a\\nD      -1 b.py"' in text
    assert "! link that leaves the directory" in text


def test_preview_fits_into_eighty_columns(shell: Shell) -> None:
    workspace = changed_workspace(shell)
    assert max(len(line) for line in printed(shell, workspace).splitlines()) < 80


def test_long_preview_shows_runnable_and_removed_paths_first(shell: Shell) -> None:
    workspace = changed_workspace(shell)
    lines = shown(printed(shell, workspace, max_paths=2))
    assert lines[:4] == ["A +1 Makefile", "! build file", "D -1 b.py", "… and 2 more paths: see diff --stat"]  # fmt: skip
    assert lines[4].startswith("4 paths:")
