"""The image of the toolkit itself: built without network from wheels, and its command works in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Generator
from pathlib import Path

import pytest
from podman_machine import TREE, WATCHDOG_S

from wink_workspace.environment import Environment

pytestmark = pytest.mark.xdist_group("podman-toolkit")

NAME = f"localhost/wink-workspace/tests-toolkit-{os.getpid()}:latest"  # each worker has its own


def asked(environment: Environment, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["podman", *arguments],
        env=dict(environment.variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
    )


def podman(environment: Environment, *arguments: str) -> str:
    done = asked(environment, *arguments)
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
    return done.stdout


def wheels(folder: Path, python: str) -> None:
    """What the toolkit needs for that Python, from wherever this machine's pip gets it."""
    project = tomllib.loads((TREE / "pyproject.toml").read_text())
    needed = [
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["mcp"],
        *project["build-system"]["requires"],
    ]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "--only-binary=:all:", f"--python-version={python}", f"--dest={folder}", *needed],
        check=True,
        timeout=WATCHDOG_S,
    )


@pytest.fixture(scope="module")
def toolkit(
    engine_environment: Environment, python_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Generator[str]:
    folder = tmp_path_factory.mktemp("wheels")
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    run = ("run", "--rm", "--network=none", python_image, "python3", "-c", code)
    wheels(folder, podman(engine_environment, *run).strip())
    podman(
        engine_environment,
        *("build", "--quiet", "--network=none", "--pull=never", "--layers=false"),
        *(f"--build-arg=BASE={python_image}", f"--volume={folder}:/wheels:ro", f"--tag={NAME}"),
        str(TREE),
    )
    yield NAME
    # The engine may still be removing the last container; the next build takes the name anyway
    asked(engine_environment, "rmi", "--force", NAME)


def test_the_command_says_in_the_image_what_it_can_do(
    toolkit: str, engine_environment: Environment
) -> None:
    said = podman(engine_environment, "run", "--rm", "--network=none", toolkit, "--help")
    assert "doctor" in said
    assert "demo" in said


def test_the_demonstration_runs_in_the_image_and_says_that_there_is_no_engine(
    toolkit: str, engine_environment: Environment
) -> None:
    said = podman(engine_environment, "run", "--rm", "--network=none", toolkit, "demo")
    assert "applies to a fresh copy" in said
    assert "podman is not used here" in said
    assert "pyflakes" not in said  # what is missing first is the engine


def test_the_server_answers_in_the_image(
    toolkit: str, engine_environment: Environment, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    tmp_path.chmod(0o755)
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "tests", "version": "1"},
        },
    }
    done = subprocess.run(
        [
            *("podman", "run", "--rm", "--interactive", "--network=none"),
            *(f"--volume={tmp_path}:/repo:ro", toolkit, "mcp", "--repo=/repo", "--sandbox=none"),
        ],
        env=dict(engine_environment.variables),
        input=json.dumps(hello) + "\n",
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
    )
    answer = json.loads(done.stdout.splitlines()[0])
    assert answer["result"]["capabilities"]["tools"], done.stderr


def test_recipes_of_images_are_part_of_what_is_installed(
    toolkit: str, engine_environment: Environment
) -> None:
    code = (
        "from wink_workspace.sandbox.podman.images import recipe; print(recipe('python').packages)"
    )
    run = ("run", "--rm", "--network=none", "--entrypoint=python", toolkit, "-c", code)
    assert "ripgrep" in podman(engine_environment, *run)
