"""``run --agent`` with the programs of this machine: no image is needed."""

from __future__ import annotations

from pathlib import Path

import pytest
from agent_contract import *  # noqa: F403 - the tests that every sandbox passes
from agent_contract import Machine
from model_server import KEY

from wink_workspace.cli import main
from wink_workspace.environment import Environment
from wink_workspace.errors import UsageError
from wink_workspace.sandbox.bubblewrap import BubblewrapConfig
from wink_workspace.sandbox.bubblewrap.host_view import find_program

pytestmark = pytest.mark.xdist_group("bubblewrap")

CLAUDE = """#!/bin/sh
echo "$ANTHROPIC_BASE_URL $ANTHROPIC_API_KEY $2" > found.txt
ls "${0%/*}" >> found.txt
echo finished
"""


@pytest.fixture
def backend() -> BubblewrapConfig:
    return BubblewrapConfig()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with ``claude`` as its own installer leaves it, and secrets beside it."""
    home = tmp_path / "home"
    versions = home / ".local/share/claude/versions"
    for folder in (versions, home / ".local/bin", home / "project/bin"):
        folder.mkdir(parents=True)
    for file in (versions / "2.0", versions / "secret", home / "project/bin/claude"):
        file.write_text(CLAUDE)
        file.chmod(0o755)
    (home / ".local/bin/claude").symlink_to(versions / "2.0")
    tmp_path.chmod(0o755)
    return home


def test_a_program_of_the_path_works_without_an_image_and_gets_no_key(
    machine: Machine, home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{home}/.local/bin:/usr/bin:/bin")
    with machine.provider(name="anthropic"):
        assert main([*machine.arguments_of("claude-code"), "--yes"]) == 0
    out, err = capfd.readouterr()
    assert "finished" in out
    with machine.opened() as workspace:
        found = workspace.files.read_text("found.txt").lines
    assert found == (
        "http://anthropic.wink.internal added-by-the-proxy Fix it.",
        "2.0",  # alone
    )
    assert KEY not in out + err
    assert machine.holds_no_key()


def test_a_program_is_shown_alone_and_never_taken_from_the_project(home: Path) -> None:
    config, project = BubblewrapConfig(), home / "project"

    def found(path: str) -> tuple[BubblewrapConfig, str]:
        variables = {"PATH": path}
        environment = Environment(variables=variables, home=home)
        return find_program(config, "claude", project, environment)

    for path in (f"{project}/bin", "bin", "", "."):
        with pytest.raises(UsageError, match="no claude on your PATH, outside of the project"):
            found(path)
    real = str(home / ".local/share/claude/versions/2.0")
    shown, program = found(f"{project}/bin:{home}/.local/bin")
    assert program == real
    assert [(each.source, each.target) for each in shown.mounts] == [(real, real)]
    installed = home / ".cargo/bin/claude"
    installed.parent.mkdir(parents=True)
    Path(real).rename(installed)
    assert found(str(installed.parent)) == (config, str(installed))
    package = home / "apps/lib/node_modules/claude/cli.js"
    package.parent.mkdir(parents=True)
    installed.rename(package)
    (home / "apps/bin").mkdir()
    (home / "apps/bin/claude").symlink_to(package)
    with pytest.raises(UsageError, match="commands cannot start claude") as caught:
        found(f"{home}/apps/bin")
    assert f"It is {package}, which commands do not see" in caught.value.hint
