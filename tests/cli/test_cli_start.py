"""What the start of a command costs: the modules that it loads, and garbage collections."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

COMMAND = """
import atexit, gc, json, sys

def n_collections():
    return sum(each["collections"] for each in gc.get_stats())

def report():
    found = {"collections": n_collections() - before,
             "frozen": gc.get_freeze_count(),
             "threshold": gc.get_threshold(), "modules": [*sys.modules]}
    print(json.dumps(found), file=sys.stderr)

atexit.register(report)
from wink_workspace.cli import main
sys.argv[0] = "wink-workspace"
before = n_collections()
code = main()
{then}
sys.exit(code)
"""
MANY_OBJECTS = "kept = [[] for _ in range(500_000)]"


def start(home: Path, *arguments: str, then: str = "") -> dict[str, object]:
    """Run a command with an empty input; what its process reports at its end."""
    (home / "project").mkdir(exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", COMMAND.replace("{then}", then), *arguments],
        env=environment,
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    return json.loads(done.stderr.splitlines()[-1])


def test_garbage_collection_waits_until_a_command_has_loaded_its_modules(tmp_path: Path) -> None:
    found = start(tmp_path, "--help")
    assert found["threshold"] != [700, 10, 10]
    assert found["collections"] == 0


def test_the_end_of_a_command_searches_no_garbage(tmp_path: Path) -> None:
    """A search of all objects of a command takes about a tenth of its processor time."""
    found = start(tmp_path, "list")
    frozen = found["frozen"]
    assert isinstance(frozen, int)
    assert frozen > 10_000


def test_after_the_first_collection_the_thresholds_are_those_of_python(tmp_path: Path) -> None:
    found = start(tmp_path, "--help", then=MANY_OBJECTS)
    ordinary = subprocess.run(
        [sys.executable, "-c", "import gc; print(list(gc.get_threshold()))"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert found["threshold"] == json.loads(ordinary.stdout)


def test_a_server_over_stdio_loads_nothing_of_http_and_of_images(tmp_path: Path) -> None:
    modules = start(tmp_path, "mcp", "--repo", str(tmp_path / "project"), "--sandbox", "podman")[
        "modules"
    ]
    assert isinstance(modules, list)
    assert {"mcp.server", "wink_workspace.workspace.workspace"} <= {*modules}
    expensive = {
        "wink_workspace.http_server",
        "wink_workspace.sandbox.podman.building.project_images",
        "wink_workspace.sandbox.podman.podman_sandbox",
    }
    assert sorted(expensive & {*modules}) == []


def test_commands_of_a_workspace_load_neither_pygit2_nor_pydantic(tmp_path: Path) -> None:
    """Each takes longer to load than all else that these commands do."""
    (tmp_path / "project").mkdir()
    start(tmp_path, "new", str(tmp_path / "project"))
    project = str(tmp_path / "project")
    for command in (["list"], ["log", project], ["diff", project], ["show", project, "1"]):
        modules = start(tmp_path, *command)["modules"]
        assert isinstance(modules, list)
        assert sorted({"pydantic", "pygit2"} & {*modules}) == [], command
