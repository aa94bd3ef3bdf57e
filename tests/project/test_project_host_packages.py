"""Virtual environments and ``node_modules`` of the host: which can run in a sandbox."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from project_rig import ProjectRig

from wink_workspace.project import unusable_packages
from wink_workspace.project.host_packages import IMAGE_PYTHON

MAC = b"\xcf\xfa\xed\xfe" + bytes(16)
WINDOWS = b"MZ" + bytes(18)
SPARC = b"\x7fELF\x02\x02\x01" + bytes(11) + b"\0\x2b"


def environment(project: ProjectRig, *links: str, name: str = ".venv") -> None:
    """Write a virtual environment whose ``python`` is a chain of links."""
    project.file(f"{name}/pyvenv.cfg", "home = /usr/bin\n")
    project.file(f"{name}/lib/python{IMAGE_PYTHON}/site-packages/a.py")
    folder = project.source / name / "bin"
    folder.mkdir()
    for at, to in zip(["python", *links], links, strict=False):
        (folder / at).symlink_to(to)


def reasons(project: ProjectRig) -> list[str]:
    return [str(each) for each in unusable_packages(project.source)]


@pytest.mark.behaviour(152)
@pytest.mark.parametrize(
    "python", ["/home/me/.pyenv/versions/3.12/bin/python", "/usr/bin/python3.99", "/opt/x"]
)
def test_environment_whose_python_is_not_in_the_image_is_recognised(
    project: ProjectRig, python: str
) -> None:
    environment(project, "python3", python)
    assert reasons(project) == [
        f".venv cannot run in the sandbox: its Python is {python}, which is not in the image"
    ]


@pytest.mark.parametrize("python", ["/usr/bin/python3", f"/usr/bin/python{IMAGE_PYTHON}"])
def test_environment_of_the_images_python_is_usable(project: ProjectRig, python: str) -> None:
    environment(project, "python3", python)
    assert reasons(project) == []


def test_environment_for_another_version_or_platform_is_recognised(project: ProjectRig) -> None:
    environment(project, "/usr/bin/python3", name="venv")
    (project.source / f"venv/lib/python{IMAGE_PYTHON}").rename(
        project.source / "venv/lib/python3.2"
    )
    environment(project, "/usr/bin/python3")
    project.file(f".venv/lib/python{IMAGE_PYTHON}/site-packages/b.so", SPARC)
    project.file("env/pyvenv.cfg")
    project.file("env/Scripts/python.exe", WINDOWS)
    assert [(each.path, each.reason) for each in unusable_packages(project.source)] == [
        (".venv", f"lib/python{IMAGE_PYTHON}/site-packages/b.so is for Linux on another processor"),
        ("venv", f"its packages are not for Python {IMAGE_PYTHON}, which the image has"),
        ("env", "it is for Windows"),
    ]


@pytest.mark.parametrize(
    ("content", "platform"), [(MAC, "macOS"), (WINDOWS, "Windows")], ids=["mac", "windows"]
)
def test_node_module_compiled_for_another_platform_is_recognised(
    project: ProjectRig, content: bytes, platform: str
) -> None:
    project.file("node_modules/a/build/a.node", content)
    assert reasons(project) == [
        f"node_modules cannot run in the sandbox: node_modules/a/build/a.node is for {platform}"
    ]


@pytest.mark.parametrize(
    ("systems", "is_usable"),
    [(["darwin"], False), (["!linux"], False), (["!win32"], True), (["linux", "darwin"], True)],
)
def test_list_of_npm_says_which_systems_a_package_is_for(
    project: ProjectRig, systems: list[str], is_usable: bool
) -> None:
    packages = {"node_modules/@esbuild/x": {"os": systems}, "node_modules/b": {}}
    project.file("node_modules/.package-lock.json", json.dumps({"packages": packages}))
    assert (reasons(project) == []) is is_usable


def test_hostile_directories_fail_nothing_and_links_are_not_followed(
    project: ProjectRig, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a.node").write_bytes(MAC)
    project.file("node_modules/.package-lock.json", "[" * 100_000)
    (project.source / "node_modules/a").symlink_to(elsewhere)
    (project.source / "node_modules/b.node").symlink_to(elsewhere / "a.node")
    os.mkfifo(project.source / "node_modules/c.node")
    environment(project, "python3", "python")  # a cycle
    project.file("venv/pyvenv.cfg")
    (project.source / "env").symlink_to(elsewhere)
    assert reasons(project) == []
