"""Workspaces and forks in the sandbox: both modes, git, the network list, and the history.

Run by root and, in ``test_bubblewrap_ordinary_user``, by an ordinary user.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest
from proxy_machine import ProxyMachine
from sandbox.podman.podman_machine import sandbox_place
from support import executor_of

from wink_workspace import BubblewrapConfig, Prompt, Workspace, WorkspaceStorage
from wink_workspace.cli import main
from wink_workspace.environment import Environment
from wink_workspace.project import Settings, sandbox_config
from wink_workspace.runtime import ToolCall
from wink_workspace.sandbox import ExecRequest, PythonRequest, ServiceConfig
from wink_workspace.sandbox.bubblewrap import BubblewrapSandbox
from wink_workspace.sections import BubblewrapSandboxSection

pytestmark = pytest.mark.xdist_group("bubblewrap")

GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C", "TZ": "UTC"}


def host(source: Path, command: str) -> str:
    who = {
        f"GIT_{role}_{key}": "a@b" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")
    }
    env = {"PATH": os.environ["PATH"], **GIT, **who}
    done = subprocess.run(
        ["sh", "-ec", command], cwd=source, env=env, capture_output=True, check=True
    )
    return done.stdout.decode()


def shell(workspace: Workspace, command: str) -> str:
    request = ExecRequest(argv=("/bin/sh", "-ec", command), env=GIT)
    result = workspace.sandbox(BubblewrapConfig()).run(request)
    assert result.exit_code == 0, result
    return (result.stdout.head + result.stdout.tail).decode()


@pytest.fixture(params=["overlay", "copy"])
def workspace(
    request: pytest.FixtureRequest, tmp_path: Path, environment: Environment
) -> Generator[Workspace]:
    """A workspace of a repository with a derived directory."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.py").write_text("a = 1\n")
    (source / ".gitignore").write_text("node_modules/\n")
    (source / "node_modules").mkdir()
    (source / "node_modules" / "tool").write_text("#!/bin/sh\necho a tool\n")
    (source / "node_modules" / "tool").chmod(0o755)
    host(source, "git init -q -b trunk; git add .; git commit -q -m one; git tag v1")
    storage = WorkspaceStorage(tmp_path / "state")
    with Workspace.create(source, storage=storage, mode=request.param) as workspace:
        yield workspace


def test_a_call_is_one_entry_at_the_path_of_the_source_and_can_be_undone(
    workspace: Workspace, tmp_path: Path
) -> None:
    with workspace.call("exec"):
        shown = shell(workspace, "pwd; node_modules/tool; echo 2 >> a.py; mkdir d; echo n > d/new")
    assert shown == f"{tmp_path}/source\na tool\n"
    assert [str(each.path) for each in workspace.changes()] == ["a.py", "d/new"]
    assert (tmp_path / "source" / "a.py").read_text() == "a = 1\n"
    workspace.undo()
    assert workspace.diff() == ""
    assert shell(workspace, "cat a.py; ls") == "a = 1\na.py\nnode_modules\n"


def test_a_fork_has_its_own_files_at_the_same_path(workspace: Workspace, tmp_path: Path) -> None:
    shell(workspace, "echo of main > a.py; pwd")
    with workspace.fork("try").open() as fork:
        assert shell(fork, "pwd; cat a.py; echo of fork > a.py") == f"{tmp_path}/source\nof main\n"
        assert shell(workspace, "cat a.py") == "of main\n"
        assert shell(fork, "cat a.py; ls node_modules") == "of fork\ntool\n"


def test_git_shows_what_git_on_the_host_shows(workspace: Workspace, tmp_path: Path) -> None:
    ask = "git log --format='%H %s %d'; git status --short; git describe --tags; git ls-files"
    assert shell(workspace, ask) == host(tmp_path / "source", ask)
    assert shell(workspace, "git rev-parse --show-toplevel") == f"{tmp_path}/source\n"
    assert shell(workspace, "git config --list | grep -c worktree || :") == "0\n"  # Cargo obeys it
    shell(workspace, "git checkout -q -b other; git commit -q --allow-empty -m two")
    assert shell(workspace, "git log --format=%s; git branch --show-current") == "one\ntrunk\n"


def test_a_model_runs_commands_and_python_through_the_section(
    workspace: Workspace, tmp_path: Path
) -> None:
    section = BubblewrapSandboxSection(rollback_on_nonzero_exit=True)
    prompt = Prompt[None](ns="t", key="p", sections=[section])
    prompt.bind(resources=workspace.resources)
    with prompt.resources:
        prompt.install(workspace.session)
        executor = executor_of(prompt, workspace.session)
        ran = executor.execute(ToolCall("shell_execute", command="pwd; touch kept"))
        assert ran.text == f"Exit code 0\n\n{tmp_path}/source\n"
        ran = executor.execute(ToolCall("evaluate_python", code="import a; a.a + 1"))
        assert ran.text == "Exit code 0\n\n2\n"
        ran = executor.execute(ToolCall("shell_execute", command="touch lost; exit 3"))
        assert not ran.event.success
    assert [str(each.path) for each in workspace.changes()] == ["kept"]


def test_files_belong_to_the_user_of_the_sandbox(workspace: Workspace) -> None:
    shell(workspace, "echo > made")
    owner = (workspace._opened.tree.root / "made").stat().st_uid
    assert owner == (2_100_001_000 if os.geteuid() == 0 else os.geteuid())


def test_exec_starts_in_the_current_directory_below_the_source(
    tmp_path: Path,
    environment: Environment,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    below = tmp_path / "source" / "packages" / "a"
    below.mkdir(parents=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    command = ["exec", "--sandbox", "bubblewrap", "--", "pwd"]
    for directory in (tmp_path / "source", below):
        (directory / "file").touch()
        monkeypatch.chdir(directory)
        assert main(command) == 0
        assert capfd.readouterr().out == f"{directory}\n"


def test_the_network_is_the_list_alone(tmp_path: Path, environment: Environment) -> None:
    get = (
        "import urllib.request, urllib.error\n"
        "for url in ('http://npm.wink.internal/x', 'http://evil.test/', 'http://127.0.0.1:9/'):\n"
        "    try:\n        print(urllib.request.urlopen(url, timeout=60).status)\n"
        "    except urllib.error.HTTPError as error:\n        print(error.code)\n"
        "    except OSError as error:\n        print('refused')\n"
    )
    with closing(ProxyMachine()) as machine:
        config = BubblewrapConfig(network=machine.rules)
        sandbox = BubblewrapSandbox(sandbox_place(tmp_path), config=config)
        sandbox._network_link = machine.link
        with closing(sandbox):
            result = sandbox.evaluate(PythonRequest(code=get, timeout_s=60))
            probes = {probe.name for probe in sandbox.report.probes}
        lines = result.stdout.head.decode().split()
        assert lines[:2] == ["200", "403"]
        assert lines[2] in ("403", "refused")
        assert [each.host for each in result.network][:2] == ["npm.wink.internal", "evil.test"]
        assert {"reach an unlisted host", "reach a host through the proxy"} <= probes


@pytest.mark.parametrize("name", ["bubblewrap", "podman"])
def test_declared_services_reach_the_sandbox(name: str) -> None:
    settings = Settings(services={"web": ServiceConfig(name="web", command="true")})
    assert sandbox_config(name, settings, {}).services == (settings.services["web"],)
