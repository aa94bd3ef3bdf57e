"""``init`` and ``trust``, and the settings of a project in the commands that work on it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import cast

import pytest
from cli_user import RUNNER, CliUser
from fake_sandbox import FakeBackend, registered
from model_server import Turn

import wink_workspace.cli
from wink_workspace.environment import Environment
from wink_workspace.sandbox import SANDBOXES, SandboxImage, SandboxImages
from wink_workspace.workspace import Workspace, WorkspaceStorage

ASKING = "sandbox = 'fake'\n[environment]\nGREETING = 'hi'\n[budgets]\nturns = 300\n"


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def asked(user: CliUser, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliUser:
    """A user whose project asks for settings."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("WINK_WORKSPACE_SANDBOX")  # it comes before the project's file
    (tmp_path / "config" / "wink-workspace").mkdir(parents=True)
    (tmp_path / "config" / "wink-workspace" / "config.toml").write_text("sandbox = 'none'\n")
    (user.source / "wink-workspace.toml").write_text(ASKING)
    return user


@pytest.fixture
def sandboxes() -> Iterator[FakeBackend]:
    with registered() as fake:
        yield fake


def play(user: CliUser, tmp_path: Path, *turns: dict[str, object]) -> Path:
    script = tmp_path / "turns.jsonl"
    script.write_text("".join(json.dumps(turn) + "\n" for turn in turns))
    return script


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(text))


def test_init_writes_a_file_that_counts_as_confirmed_and_is_never_overwritten(
    user: CliUser, tmp_path: Path
) -> None:
    (user.source / "requirements.txt").write_text("click\n")
    printed = user("init", user.source)
    assert "requirements.txt: Python packages" in printed
    text = (user.source / "wink-workspace.toml").read_text()
    assert 'requirements = ["requirements.txt"]' in text
    assert text in printed
    user("trust", user.source)
    assert "confirmed" in user.err
    user("init", user.source, fails=2)
    assert "exists already" in user.err
    assert (user.source / "wink-workspace.toml").read_text() == text
    (user.source / "requirements.txt").write_text("evil\n")
    user("trust", user.source, fails=1)
    assert "requirements.txt: 5 bytes, SHA-256 " in user.err


def test_trust_shows_what_is_asked_for_and_confirms_only_when_the_user_says_so(
    asked: CliUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked("trust", asked.source, fails=1)  # no terminal: nothing is asked
    assert "asks for 3 settings beyond yours" in asked.err
    assert '  line 3: environment.GREETING = "hi"' in asked.err
    answer(monkeypatch, "n\n")
    asked("trust", asked.source, fails=1)
    answer(monkeypatch, "y\n")
    asked("trust", asked.source)
    assert json.loads(asked("trust", asked.source, "--json"))["confirmed"]
    asked("trust", asked.source, "--revoke")
    monkeypatch.setenv("CI", "true")
    answer(monkeypatch, "y\n")
    assert not json.loads(asked("trust", asked.source, "--json", fails=1))["confirmed"]
    asked("trust", asked.source, "--yes")
    asked("trust", asked.source)
    asked("trust", asked.tmp_path, fails=2)


def test_linked_working_tree_has_its_history_after_one_confirmation(
    user: CliUser, tmp_path: Path
) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(user.source)]
    tree = tmp_path / "tree"
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(tree)], check=True)
    copies = tmp_path / "state/wink-workspace/git"
    user("new", tree)
    assert not list(copies.glob("1-*"))
    user("trust", tree, fails=1)  # no terminal: nothing is asked
    assert f"uses {user.source / '.git'}" in user.err
    user("trust", tree, "--yes")
    user("trust", tree)
    user("new", tree)
    assert len(list(copies.glob("1-*"))) == 1
    user("trust", tree, "--revoke")
    user("trust", tree, fails=1)


def test_what_was_typed_before_a_question_does_not_answer_it(asked: CliUser) -> None:
    keyboard, terminal = os.openpty()
    os.write(keyboard, b"y\n")
    command = [sys.executable, "-c", RUNNER, "trust", str(asked.source)]
    with subprocess.Popen(command, stdin=terminal, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        shown = ""
        while not shown.endswith("Confirm this? [y/N]:"):
            piece = process.stderr.read(1)
            assert piece, shown
            shown += piece
        os.write(keyboard, b"n\n")
        assert "not confirmed" in process.stderr.read()
    assert process.returncode == 1
    os.close(keyboard)
    os.close(terminal)


def test_every_question_is_asked_where_what_was_typed_before_is_discarded() -> None:
    package = Path(wink_workspace.cli.__file__).parent.parent
    asking = [
        path.name
        for path in package.rglob("*.py")
        if re.search(r"typer\.(prompt|confirm)\(|(?<!\w)input\(|console\.input", path.read_text())
    ]
    assert asking == ["console.py"]


@pytest.mark.behaviour(98)
def test_run_without_a_terminal_denies_and_names_line_and_command(
    asked: CliUser, tmp_path: Path, sandboxes: FakeBackend
) -> None:
    script = play(asked, tmp_path, {"text": "Done."})
    asked("run", "--script", script, "--repo", asked.source, "--patch", tmp_path / "p")
    assert 'line 1: sandbox = "fake"; line 3: environment.GREETING' in asked.err
    assert f"wink-workspace trust {asked.source}" in asked.err
    assert sandboxes.created == []


def test_run_at_a_terminal_asks_once(
    asked: CliUser, tmp_path: Path, sandboxes: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [{"name": "shell_execute", "arguments": {"command": "put a b"}}]
    script = play(asked, tmp_path, {"tool_calls": calls}, {"text": "Done."})
    arguments = ("run", "--script", script, "--repo", asked.source, "--patch", tmp_path / "p")
    answer(monkeypatch, "y\n")
    asked(*arguments)
    assert "Apply these settings" in asked.err
    assert " applied" not in asked.err
    assert len(sandboxes.created) == 1
    answer(monkeypatch, "")
    asked(*arguments)
    assert "Apply these settings" not in asked.err
    assert len(sandboxes.created) == 2


def test_budgets_of_a_project_end_a_run(asked: CliUser, tmp_path: Path) -> None:
    (asked.source / "wink-workspace.toml").write_text("[budgets]\nturns = 1\n")
    read = {"tool_calls": [{"name": "glob", "arguments": {"pattern": "*"}}]}
    script = play(asked, tmp_path, read, {"text": "Done."})
    asked("run", "--script", script, "--repo", asked.source, "--patch", tmp_path / "p", fails=1)
    assert "no final answer after 1 turn" in asked.err


def test_notes_of_the_workspace_are_in_the_prompt(asked: CliUser) -> None:
    (asked.source / "AGENTS.md").write_text("Indent with three spaces.\n")
    server = asked.serve(Turn("Nothing to do."))
    asked.run()
    assert "Indent with three spaces." in json.dumps(server.requests[0])


@pytest.mark.behaviour(100)
def test_exec_uses_the_settings_of_the_source_and_not_of_the_copy(
    asked: CliUser, sandboxes: FakeBackend
) -> None:
    name = asked("new", asked.source).split(":")[0]
    with Workspace.open(
        name, storage=WorkspaceStorage(asked.tmp_path / "state/wink-workspace")
    ) as w:
        w.files.write_text("wink-workspace.toml", "mounts = ['/:/mnt']\n")
    asked("exec", name, "--sandbox", "fake", "--", "put", "a", "b")
    assert "line 3: environment.GREETING" in asked.err
    (asked.source / "wink-workspace.toml").write_text("\nmounts = ['/:/mnt']\n")
    asked("exec", name, "--sandbox", "fake", "--", "put", "a", "b", fails=2)
    assert "wink-workspace.toml, line 2: a project cannot set mounts" in asked.err
    assert len(sandboxes.created) == 1
    asked("log", name)  # other commands do not read the project's file
    asked("undo", name)


def test_image_is_refused_for_a_sandbox_without_images(
    asked: CliUser, sandboxes: FakeBackend
) -> None:
    name = asked("new", asked.source).split(":")[0]
    asked("exec", name, "--sandbox", "fake", "--image", "x", "--", "put", "a", "b", fails=2)
    assert "has no images" in asked.err
    assert sandboxes.created == []


def test_new_leaves_out_what_the_project_excludes_and_what_an_option_does(
    asked: CliUser,
) -> None:
    (asked.source / "wink-workspace.toml").write_text("[paths]\nexclude = ['one']\n")
    for path in ("one", "two", "three"):
        (asked.source / path).write_text(path)
    name = asked("new", asked.source, "--exclude", "two").split(":")[0]
    with Workspace.open(
        name, storage=WorkspaceStorage(asked.tmp_path / "state/wink-workspace")
    ) as w:
        assert [w.files.exists(path) for path in ("one", "two", "three")] == [False, False, True]


def test_retention_of_the_users_file_applies_to_every_command(
    asked: CliUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    (asked.source / "wink-workspace.toml").unlink()
    name = asked("new", asked.source).split(":")[0]
    folder = asked.tmp_path / "config" / "wink-workspace"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text("[retention]\ndays = 'many'\n")
    asked("gc", name, fails=2)
    assert "config.toml, line 2: retention.days must be" in asked.err
    (folder / "config.toml").write_text("[retention]\ndays = 740000\n")
    asked("gc", name, fails=2)
    assert "config.toml, line 2: retention.days: max_age_days is more than 36,500" in asked.err
    (folder / "config.toml").write_text("[retention]\nsize = '1'\n")
    assert json.loads(asked("gc", name, "--json"))["ran"]


def test_sandbox_of_a_file_of_settings_is_left_out_in_place(
    asked: CliUser, tmp_path: Path, sandboxes: FakeBackend
) -> None:
    asked("trust", asked.source, "--yes")
    script = play(asked, tmp_path, {"text": "Done."})
    asked(
        "run", "--script", script, "--repo", asked.source, "--in-place", "--patch", tmp_path / "p"
    )
    assert sandboxes.created == []
    asked(
        "run",
        "--script",
        script,
        "--repo",
        asked.source,
        "--sandbox",
        "fake",
        "--in-place",
        fails=2,
    )


@pytest.mark.behaviour(140)
def test_doctor_shows_the_network_list_of_the_project_and_where_each_setting_is_from(
    asked: CliUser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SANDBOXES, "names", tuple)  # examining the built-in ones takes seconds
    own = tmp_path / "config/wink-workspace/config.toml"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(
        "network = ['pypi', 'api.example.org:443']\nprivate = ['api.example.org']\n"
        "[secrets.tracker]\nhost = 'tracker.example.org:443'\nvariable = 'TRACKER_TOKEN'\n"
    )
    (asked.source / "wink-workspace.toml").write_text(
        "network = ['pypi', 'npm']\nenvironment.GREETING = 'hi'\n[limits]\ntimeout = '5s'\n"
    )

    def found(*directory: object) -> dict[str, list[str]]:
        findings = json.loads(asked("doctor", *directory, "--json"))
        ours = [each for each in findings if each["part"] == "project"]
        return {each["name"]: [each["state"], each["detail"]] for each in ours}

    secret = "tracker.example.org:443 (with the secret tracker)"
    private = "private addresses allowed for api.example.org"
    project = found(asked.source)
    assert project["network"] == [
        "good",
        f"commands reach only pypi, {secret}; {private} (wink-workspace.toml, line 1, config.toml)",
    ]
    assert project["limits.timeout"] == ["good", "5.0 (wink-workspace.toml, line 4)"]
    assert project["not confirmed"] == [
        "limited",
        'line 1: network = "npm"; line 2: environment.GREETING = "hi"',
    ]
    assert asked("trust", asked.source, "--yes") == ""
    assert found(asked.source)["network"][1].startswith("commands reach only pypi, npm, tracker")
    monkeypatch.chdir(tmp_path)
    assert found() == {
        "network": [
            "good",
            f"commands reach only pypi, api.example.org:443, {secret}; {private} (config.toml)",
        ]
    }
    own.unlink()
    assert found() == {"network": ["good", "none"]}
    (asked.source / "wink-workspace.toml").write_text("mounts = ['/:/mnt']\n")
    findings = json.loads(asked("doctor", asked.source, "--json", fails=1))
    assert (findings[0]["state"], "line 1" in findings[0]["detail"]) == ("missing", True)


@pytest.mark.parametrize("answered", [None, "n\n"])
def test_image_build_fails_if_the_settings_of_the_project_stay_unconfirmed(
    asked: CliUser, monkeypatch: pytest.MonkeyPatch, answered: str | None
) -> None:
    """It would build another image than the project's."""
    (asked.source / "wink-workspace.toml").write_text("[image]\nset-up = ['make']\n")
    if answered is not None:
        answer(monkeypatch, answered)
    asked("image", "build", "--source", asked.source, fails=2)
    assert 'not confirmed: line 2: image.set-up = ["make"]' in asked.err
    assert f"wink-workspace trust {asked.source}" in asked.err


def test_programs_of_a_project_are_not_found(asked: CliUser, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(asked.source)
    (asked.source / "out").symlink_to("/usr/bin")
    inside = ("bin", "", ".", f"{asked.source}/bin", f"{tmp_path}/link", f"{asked.source}/out")
    outside = (f"{asked.source}-2/bin", "/usr/bin")
    environment = Environment(variables={"PATH": ":".join((*inside, *outside))})
    found = environment.outside(asked.source).variables["PATH"]
    assert found == ":".join(outside)


class NoImages:
    """Images of a sandbox that has built none."""

    names: tuple[str, ...] = ()
    built: SandboxImage | None = None

    def find_project(self, *_: object) -> SandboxImage | None:
        return self.built


@pytest.mark.behaviour(152)
def test_packages_of_the_host_that_cannot_run_inside_are_noted_with_the_remedy(
    asked: CliUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    (asked.source / "wink-workspace.toml").unlink()
    monkeypatch.setenv("WINK_WORKSPACE_SANDBOX", "fake")
    (asked.source / ".venv").mkdir()
    (asked.source / ".venv/pyvenv.cfg").write_text("home = /opt/python/bin\n")
    noted = "note: .venv cannot run in the sandbox: its Python is in /opt/python/bin"
    images = NoImages()

    def of_machine(_: Environment) -> SandboxImages:
        return cast("SandboxImages", images)

    backend = replace(FakeBackend().backend, images=of_machine)
    unregister = SANDBOXES.register(backend)
    try:
        name = asked("new", asked.source).split(":")[0]
        assert noted in asked.err
        assert f"wink-workspace image build --source {asked.source}" in asked.err
        asked("exec", name, "--", "put", "a", "b")
        assert asked.err.count(noted) == 1
        images.built = SandboxImage("localhost/p:1", "1", 1, "", str(asked.source), 1.0)
        asked("new", asked.source)
        assert "note:" not in asked.err
    finally:
        unregister()
