"""No program of this machine gets a file of a project, or is found in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
from package_server import package_server
from watched_programs import Started, programs_of

from wink_workspace.environment import Environment
from wink_workspace.sandbox.podman.building.image_names import project_name
from wink_workspace.sandbox.podman.building.images import ImageStore

pytestmark = [pytest.mark.xdist_group("podman-projects"), pytest.mark.behaviour(106)]

PROGRAMS = (
    *("podman", "git", "pip", "npm", "node", "uv", "apt-get", "apt-config", "cp", "nsenter"),
    *("runc", "crun", "conmon", "catatonit", "newuidmap", "python3", "sh", "less", "ldconfig"),
    *("mount", "umount", "unshare", "fusermount3", "mkfs.ext4", "cargo", "go", "mvn", "gradle"),
)
"""Names that a project has programs of, beside those of this machine."""
CLIENTS = {
    "git",
    "pip",
    "npm",
    "node",
    "uv",
    "pnpm",
    "yarn",
    "cargo",
    "go",
    "mvn",
    "gradle",
    "java",
}
"""What reads a project's files runs in containers only."""
TURNS = [
    {"tool_calls": [{"name": "shell_execute", "arguments": {"command": "git status; cat n.txt"}}]},
    {"text": "Done."},
]


def test_no_program_of_this_machine_gets_a_file_of_the_project_or_is_found_in_it(
    environment: Environment, tmp_path: Path
) -> None:
    """All run in ``/``; only the engine and its own programs run elsewhere, and in containers."""
    project, log, turns = tmp_path / "project", tmp_path / "log", tmp_path / "turns.jsonl"
    (project / "bin").mkdir(parents=True)
    (project / "fake").write_text("#!/bin/sh\nexit 77\n")
    (project / "fake").chmod(0o755)
    installed = (Path(each).glob("*") for each in os.get_exec_path())
    for name in {*PROGRAMS, *(each.name for each in chain.from_iterable(installed))}:
        (project / "bin" / name).symlink_to("../fake")
    (project / ".npmrc").write_text("git=./bin/git\n")
    (project / ".envrc").write_text("./fake\n")
    subprocess.run(["git", "init", "-q", project], check=True)
    hostile = "[core]\n\tfsmonitor = ./fake\n\tpager = ./fake\n\thooksPath = bin\n"
    for file in (project / ".gitconfig", project / ".git/config"):
        with file.open("a") as config:
            config.write(hostile)
    (project / "requirements.txt").write_text("wink-tests-dependency\n")
    (project / "n.txt").write_text("1\n")
    (tmp_path / "link").symlink_to(project / "bin")
    turns.write_text("".join(f"{json.dumps(each)}\n" for each in TURNS))
    started: list[Started] = []
    with package_server() as server:
        server.add_python("wink-tests-dependency", {"wink_tests_dependency.py": "answer = 42\n"})
        env = {
            **environment.variables,
            **server.variables,
            "PATH": f"bin:{project}/bin:{tmp_path}/link:{os.environ['PATH']}",
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
        }
        for command in (
            ["init"],
            ["image", "build"],
            ["exec", "--temporary", "--", "python", "-c", "import wink_tests_dependency"],
            ["run", "Look.", "--repo", ".", "--script", str(turns), "--yes"],
        ):
            argv = [sys.executable, "-P", "-m", "wink_workspace.cli", *command]
            started += programs_of(argv, cwd=project, env=env, log=log)[1:]
    store = ImageStore(environment)
    made = [each for each in store.by_name() if each.startswith(f"{project_name(project)}:")]
    assert made
    store.programs.podman("rmi", "--force", *made)
    assert sum(each.path.endswith("/podman") for each in started) >= 3
    found_there = [each for each in started if not each.path.startswith("/")]
    found_there += [
        each for each in started if each.path.startswith((str(project), f"{tmp_path}/l"))
    ]
    assert found_there == []
    assert [each for each in started if each.directory.startswith(str(tmp_path))] == []
    others = [each for each in started if not is_of_the_engine(each)]
    assert {each.directory for each in others} == {"/"}
    given = [each for each in others if str(tmp_path) in f"{each.call} {each.input}"]
    assert given == []
    assert {each.path.rpartition("/")[2] for each in started} & CLIENTS == set()


def is_of_the_engine(started: Started) -> bool:
    """Whether it is Podman, or what that starts."""
    name = started.path.rpartition("/")[2]
    return name in ("podman", "conmon", "runc", "crun", "catatonit", "exe")
