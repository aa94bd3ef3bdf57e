"""Virtual environments and ``node_modules`` of the host: which can run in a sandbox."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from project_rig import ProjectRig

from wink_workspace.project import unusable_packages
from wink_workspace.project.host_packages import IMAGE_PYTHON


def environment(project: ProjectRig, name: str, home: str, version: str = IMAGE_PYTHON) -> None:
    """Write a virtual environment as ``venv`` does."""
    project.file(f"{name}/pyvenv.cfg", f"home = {home}\nversion = {version}.2\n")
    project.file(f"{name}/lib/python{version}/site-packages/a.py")


@pytest.mark.behaviour(152)
@pytest.mark.parametrize("home", ["/home/me/.pyenv/versions/3.12/bin", "/opt/x", r"C:\Python"])
def test_environment_whose_python_is_not_in_the_image_is_recognised(
    project: ProjectRig, home: str
) -> None:
    environment(project, ".venv", home)
    assert unusable_packages(project.source) == (
        f".venv cannot run in the sandbox: its Python is in {home}, which is not in the image",
    )


def test_environment_of_the_images_python_is_usable_and_of_another_version_is_not(
    project: ProjectRig,
) -> None:
    environment(project, ".venv", "/usr/bin")
    assert unusable_packages(project.source) == ()
    environment(project, "venv", "/usr/bin", "3.2")
    (found,) = unusable_packages(project.source)
    assert found.startswith(
        f"venv cannot run in the sandbox: its packages are not for Python {IMAGE_PYTHON}"
    )


@pytest.mark.parametrize(
    ("systems", "is_usable"),
    [(["darwin"], False), (["!linux"], False), (["!win32"], True), (["linux", "darwin"], True)],
)
def test_list_of_npm_says_which_systems_a_package_is_for(
    project: ProjectRig, systems: list[str], is_usable: bool
) -> None:
    packages = {"node_modules/@esbuild/x": {"os": systems}, "node_modules/b": {}, "c": 1}
    project.file("node_modules/.package-lock.json", json.dumps({"packages": packages}))
    found = unusable_packages(project.source)
    assert (found == ()) is is_usable
    assert is_usable or f"node_modules/@esbuild/x is for {systems[0]}" in found[0]


def test_hostile_directories_fail_nothing_and_links_are_not_followed(
    project: ProjectRig, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "pyvenv.cfg").write_text("home = /opt/x\n")
    project.file("node_modules/.package-lock.json", "[" * 100_000)
    (project.source / ".venv").mkdir()
    (project.source / ".venv/pyvenv.cfg").symlink_to(elsewhere / "pyvenv.cfg")
    (project.source / "venv").mkdir()
    os.mkfifo(project.source / "venv/pyvenv.cfg")
    (project.source / "env").symlink_to(elsewhere)
    assert unusable_packages(project.source) == ()
