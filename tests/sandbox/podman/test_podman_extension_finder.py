"""The finder of compiled modules in images of projects: what it finds, and what comes before it."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from wink_workspace.sandbox.podman.building.images import recipe_folder

PROGRAM = """\
import sys
sys.path[:0] = [{finder!r}, {source!r}]
import extension_finder
extension_finder.TOP = {top!r}
import importlib.metadata, importlib.util
import package
spec = importlib.util.find_spec("package._fast")
print(package.edited, spec and spec.origin, importlib.util.find_spec("package.plain"))
print(importlib.util.find_spec("package._absent"), importlib.util.find_spec("absent"))
print(importlib.metadata.version("package"))
"""


@pytest.mark.behaviour(141)
def test_compiled_modules_and_metadata_are_found_and_python_files_are_those_of_the_workspace(
    tmp_path: Path,
) -> None:
    source, top = tmp_path / "src", tmp_path / "extensions"
    for folder in (source, top):
        (folder / "package").mkdir(parents=True)
        (folder / "package/__init__.py").write_text(f"edited = {folder == source}\n")
    (top / "package/plain.py").touch()
    (top / "package-1.5.dist-info").mkdir()
    (top / "package-1.5.dist-info/METADATA").write_text("Name: package\nVersion: 1.5\n")
    built = f"package/_fast{EXTENSION_SUFFIXES[0]}"
    (top / built).touch()

    def found() -> list[str]:
        folder = str(recipe_folder("project"))
        program = PROGRAM.format(finder=folder, source=str(source), top=str(top))
        command = [sys.executable, "-I", "-c", program]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    assert found() == ["True", str(top / built), "None", "None", "None", "1.5"]
    (source / built).touch()
    assert found()[1] == str(source / built), "one that a command has built comes first"
