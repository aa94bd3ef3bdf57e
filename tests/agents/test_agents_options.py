"""Options of ``run --agent`` that contradict each other, and what is refused before a copy is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from wink_workspace.cli import main
from wink_workspace.workspace import RecordedRun, RunAbout, Workspace, WorkspaceStorage


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    (tmp_path / "repo").mkdir()
    return str(tmp_path / "repo")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--script", "x"), "a run has one model"),
        (("--agent", "sh", "--model", "a:b"), "the model of the agent program 'sh' cannot be"),
        (("--in-place",), "an agent program needs a sandbox"),
        (("--sandbox", "python"), "the sandbox 'python' runs no commands"),
        (("--max-tokens", "5"), "the tokens of an agent program are not known"),
        (("--max-cost", "5"), "the tokens of an agent program are not known"),
        (("--record", "turns.jsonl"), "the turns of an agent program are not known"),
        (("--agent", " "), "the command of the agent is empty"),
        (("--image", "a", "--sandbox", "podman"), "the variable ANTHROPIC_API_KEY of the secret"),
    ],
    ids=lambda value: value[0].lstrip("-") if isinstance(value, tuple) and value else "",
)
def test_what_an_agent_program_cannot_have_is_refused_before_anything_is_copied(
    repo: str, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], problem: str
) -> None:
    assert main(["run", "Task", "--repo", repo, "--agent", "claude-code", *options]) == 2
    assert problem in capsys.readouterr().err
    storage = WorkspaceStorage(Path(repo).parent / "state/wink-workspace")
    assert list(storage.all()) == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--script", "x"), "attempts have one kind of model"),
        (("--sandbox", "python"), "the sandbox 'python' runs no commands"),
        (("--max-tokens", "5"), "the tokens of an agent program are not known"),
        (("--engine", "ray://127.0.0.1:1"), "an agent program runs on this machine"),
        (
            ("--agent", "sh", "--models", "a", "--sandbox", "podman"),
            "the model of the agent program 'sh' cannot be",
        ),
    ],
    ids=lambda value: value[0].lstrip("-") if isinstance(value, tuple) else "",
)
def test_what_attempts_of_an_agent_program_cannot_have_is_refused_before_anything_is_copied(
    repo: str, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], problem: str
) -> None:
    assert main(["attempts", "Task", "--repo", repo, "--agent", "codex", *options]) == 2
    assert problem in capsys.readouterr().err
    storage = WorkspaceStorage(Path(repo).parent / "state/wink-workspace")
    assert list(storage.all()) == []


@pytest.mark.behaviour(210)
@pytest.mark.parametrize(
    ("is_agent", "agent", "problem"),
    [
        (True, "codex", "has ended"),
        (True, "claude-code", "was not one of claude-code"),
        (False, "codex", "was not one of codex"),
    ],
)
def test_only_an_interrupted_run_of_the_same_program_is_resumed(
    repo: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_agent: bool,
    agent: str,
    problem: str,
) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "any-secret-of-24-letters")
    storage = WorkspaceStorage(Path(repo).parent / "state/wink-workspace")
    with Workspace.create(Path(repo), storage=storage) as workspace:
        about = RunAbout(
            task="Task", model="codex", sandbox="podman", after_entry=1, is_agent=is_agent
        )
        RecordedRun.begin(workspace.folder.of_branch("main"), about).keep_answer("Done.")
        name = workspace.info.id
    options = ("--agent", agent, "--image", "a", "--sandbox", "podman", "--resume")
    assert main(["run", "--workspace", name, *options]) == 2
    assert problem in " ".join(capsys.readouterr().err.split())


def test_an_interrupted_run_of_an_agent_program_is_not_resumed_with_a_model(
    repo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = WorkspaceStorage(Path(repo).parent / "state/wink-workspace")
    with Workspace.create(Path(repo), storage=storage) as workspace:
        about = RunAbout(task="Task", model="codex", sandbox="podman", after_entry=1, is_agent=True)
        RecordedRun.begin(workspace.folder.of_branch("main"), about)
    assert main(["run", "--repo", repo, "--resume"]) == 2
    assert "was one of an agent program" in capsys.readouterr().err
