"""The command ``discarded``, and how ``gc`` and ``log`` report forgotten history."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from support import executor_of, tool

from wink_workspace.cli import main
from wink_workspace.clock import SYSTEM_CLOCK, ManualClock
from wink_workspace.ledger import Retention
from wink_workspace.prompt import MarkdownSection, Prompt, ToolResult
from wink_workspace.runtime import ToolCall
from wink_workspace.workspace import Workspace, WorkspaceConfig, WorkspaceStorage

Shell = Callable[..., tuple[str, str]]


@pytest.fixture
def shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    """Runs a command, and returns what it prints on stdout and stderr."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))

    def run(*arguments: object, exits: int = 0) -> tuple[str, str]:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert code == exits, captured.err
        return captured.out, captured.err

    return run


def create_workspace(tmp_path: Path, **options: object) -> Workspace:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a.txt").write_text("a\n")
    storage = WorkspaceStorage(tmp_path / "xdg/wink-workspace")
    return Workspace.create(tmp_path / "source", storage=storage, **options)  # type: ignore[arg-type] - passed on


def files_of(workspace: Workspace) -> Path:
    state = Path(workspace.info.source or "").parent / "xdg/wink-workspace"
    return WorkspaceStorage(state).folder(workspace.info.id).files


def fail_after_changes(workspace: Workspace) -> None:
    """Run a call that fails after it changed, created and deleted files."""
    root = files_of(workspace)

    def handle(params: object, *, context: object) -> ToolResult[None]:
        (root / "a.txt").write_text("broken\n")
        (root / "mine.txt").write_text("mine\n")
        (root / "large.bin").write_bytes(b"x" * 900)
        raise RuntimeError("it failed")

    section = MarkdownSection(title="Tools", template="Use it.", tools=[tool(handle)])
    prompt = Prompt(ns="tests", key="discards", sections=[section])
    prompt.bind(resources=workspace.resources)
    with prompt.resources:
        executor = executor_of(prompt, workspace.session)
        executor.execute(ToolCall("act"))


def test_files_discarded_by_a_failed_call_are_listed_shown_and_restored(
    shell: Shell, tmp_path: Path
) -> None:
    config = WorkspaceConfig(retention=Retention(discard_bytes=500))
    with create_workspace(tmp_path, config=config) as workspace:
        fail_after_changes(workspace)
        which, files = workspace.info.id, files_of(workspace)
        held, _ = shell("discarded", which)  # while this process has it open
        assert "2 paths: a.txt, mine.txt; 1 not kept" in held
    listed, _ = shell("discarded", which[:3])
    assert listed == held
    assert listed.split("\t")[0] == "1"
    assert listed.split("\t")[2] == "1"
    assert "rolled back: call-" in listed
    (fields,) = json.loads(shell("discarded", which, "--json")[0])
    assert (fields["discard"], fields["after_entry"]) == (1, 1)
    assert (fields["paths"], fields["deleted"]) == (["a.txt", "mine.txt"], [])
    assert fields["not_kept"]["files"][0]["path"] == "large.bin"
    shown, _ = shell("discarded", which, "show", 1)
    assert "+broken" in shown
    assert "+mine" in shown
    assert "not kept: large.bin, 900 bytes, over the limit for one rollback" in shown
    assert "large.bin (900 bytes, over the limit" in shell("show", which, 2)[0]
    printed, notes = shell("discarded", which, "restore", 1)
    assert printed == "entry 3: restore of discard 1\n"
    assert "1 discarded file not kept: large.bin" in notes
    assert (files / "mine.txt").read_text() == "mine\n"
    shell("undo", which)
    assert not (files / "mine.txt").exists()
    shell("discarded", which, "restore", fields["id"][:6], "mine.txt")
    assert (files / "a.txt").read_text() == "a\n"
    assert (files / "mine.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show",), "show needs a discard"),
        (("restore",), "restore needs a discard"),
        (("list", "1"), "list takes no discard"),
        (("show", "1", "a.txt"), "show takes no paths"),
    ],
)
def test_discarded_with_wrong_arguments_explains_its_usage(
    shell: Shell, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "project").mkdir()
    name = shell("new", tmp_path / "project")[0].partition(":")[0]
    assert message in shell("discarded", name, *arguments, exits=2)[1]


def test_gc_and_log_report_what_was_forgotten_and_why(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(SYSTEM_CLOCK.now() - timedelta(days=5))
    first = clock.now()
    with create_workspace(tmp_path, clock=clock) as workspace:
        which = workspace.info.id
        fail_after_changes(workspace)
        for day in range(1, 6):
            clock.moment = first + timedelta(days=day)
            (files_of(workspace) / "a.txt").write_text(f"{day}\n")
            # An entry of its own for each day; public calls commit several external edits as one.
            workspace._journal.absorb_external(())
    printed, _ = shell("gc", which)
    assert "forgotten:" not in printed
    assert "forgotten" not in shell("log", which)[0]
    monkeypatch.setenv("WINK_WORKSPACE_KEEP_DAYS", "2.5")
    printed, _ = shell("gc", which)
    when = first + timedelta(days=2)
    assert f"3 entries up to {when:%Y-%m-%d %H:%M} UTC and 1 discard forgotten: " in printed
    assert printed.endswith("4 older than 2.5 days\n")
    lines = shell("log", which)[0].splitlines()
    assert len(lines) == 4
    assert "\tforgotten\t" in lines[-1]
    assert f"entries up to 4, of {when:%Y-%m-%d %H:%M:%S} and before: 4 older than" in lines[-1]
    assert len(shell("log", which, "-n", 1)[0].splitlines()) == 1
    assert json.loads(shell("log", which, "--json")[0])[-1]["kind"] == "forgotten"
    oldest = json.loads(shell("log", which, "--json")[0])[-2]["number"]
    lost = "changes are not known any more: retention deleted the entry before it"
    assert lost in shell("log", which, "--stat")[0]
    assert lost in shell("show", which, oldest)[1]
    assert lost in shell("report", which)[0]
    assert "a.txt" in shell("show", which, oldest + 1)[0]
    printed, _ = shell("gc", which, "--keep-bytes", 1, "--json")
    done = json.loads(printed)
    assert done["n_entries_forgotten"] == 2
    assert done["reason"] == "2 over the limit of 1 bytes"
    monkeypatch.setenv("WINK_WORKSPACE_KEEP_DAYS", "many")
    assert "WINK_WORKSPACE_KEEP_DAYS: 'many' is not a number" in shell("gc", which, exits=2)[1]
