"""Importing the package loads little, and all exported names exist."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import wink_workspace

HEAVY = ["pydantic", "pygit2", "podman", "asteval", "pydantic_ai", "mcp", "fsspec", "typer", "rich"]


def modules_after(statement: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after *statement*."""
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_loads_no_heavy_library() -> None:
    assert not modules_after("import wink_workspace") & set(HEAVY)


def test_star_import_loads_no_heavy_library() -> None:
    loaded = modules_after("from wink_workspace import *")
    assert "wink_workspace.runtime" in loaded
    assert not loaded & set(HEAVY)


def test_every_exported_name_can_be_imported() -> None:
    for name in wink_workspace.__all__:
        assert getattr(wink_workspace, name).__name__ == name
    assert set(wink_workspace.__all__) <= set(dir(wink_workspace))


def test_every_package_loads_each_name_of_its_export_list() -> None:
    root = Path(wink_workspace.__file__).parent
    for path in sorted(root.rglob("__init__.py")):
        name = ".".join((root.name, *path.parent.relative_to(root).parts))
        if name != "wink_workspace.sandbox.asteval.inside":  # only its server process loads it
            package = import_module(name)
            exported = set(getattr(package, "__all__", ()))
            assert exported <= set(dir(package)), name
            assert all(hasattr(package, each) for each in exported), name


def test_a_type_checker_sees_no_getattr_that_would_accept_a_misspelt_name() -> None:
    for package in Path(wink_workspace.__file__).parent.rglob("__init__.py"):
        for statement in ast.parse(package.read_text(encoding="utf-8")).body:
            seen = ast.unparse(statement).partition("if not TYPE_CHECKING:")[0]
            assert "__getattr__" not in seen, package


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Workspce'"):
        wink_workspace.Workspce  # noqa: B018 - the access is the test
