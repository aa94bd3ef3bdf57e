"""The image of wink_workspace: built from wheels without network; the command works in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Generator
from pathlib import Path

import pytest
from loopback import package_registries
from podman_machine import TREE, WATCHDOG_S

from wink_workspace.environment import Environment

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("podman-toolkit")]

NAME = f"localhost/wink-workspace/tests-toolkit-{os.getpid()}:latest"  # each worker has its own


def run_podman(environment: Environment, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["podman", *arguments],
        env=dict(environment.variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
    )


def podman(environment: Environment, *arguments: str) -> str:
    done = run_podman(environment, *arguments)
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
    return done.stdout


def wheels(folder: Path, python: str) -> None:
    """Download the wheels of all dependencies for that version of Python."""
    project = tomllib.loads((TREE / "pyproject.toml").read_text())
    needed = [
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["mcp"],
        *project["build-system"]["requires"],
    ]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    with package_registries():
        subprocess.run(
            [
                *pip,
                "--only-binary=:all:",
                f"--python-version={python}",
                f"--dest={folder}",
                *needed,
            ],
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
    # This may fail while the engine removes the last container; the next build reuses the name
    run_podman(engine_environment, "rmi", "--force", NAME)


def test_the_command_prints_help_in_the_image(
    toolkit: str, engine_environment: Environment
) -> None:
    output = podman(engine_environment, "run", "--rm", "--network=none", toolkit, "--help")
    assert "doctor" in output
    assert "demo" in output


def test_demo_runs_in_the_image_and_reports_the_missing_engine(
    toolkit: str, engine_environment: Environment
) -> None:
    output = podman(engine_environment, "run", "--rm", "--network=none", toolkit, "demo")
    assert "applies to a fresh copy" in output
    assert "podman is not used here" in output


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


def test_recipes_of_images_are_installed(toolkit: str, engine_environment: Environment) -> None:
    code = "from wink_workspace.sandbox.podman.building.images import recipe; print(recipe('python').packages)"
    run = ("run", "--rm", "--network=none", "--entrypoint=python", toolkit, "-c", code)
    assert "ripgrep" in podman(engine_environment, *run)
