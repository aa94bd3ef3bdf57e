"""Importing the package loads little, and all exported names exist."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import wink_workspace
from wink_workspace.cli import app, command_list

HEAVY = ["pydantic", "pygit2", "asteval", "pydantic_ai", "mcp", "fsspec", "typer", "rich"]


def modules_after(statement: str, **variables: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after *statement*."""
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_importing_the_package_loads_no_heavy_library() -> None:
    assert not modules_after("import wink_workspace") & set(HEAVY)


def test_star_import_loads_no_heavy_library() -> None:
    loaded = modules_after("from wink_workspace import *")
    assert "wink_workspace.runtime" in loaded
    assert not loaded & set(HEAVY)


OF_EVERY_COMMAND = {"pygit2", "asteval", "pydantic_ai", "mcp", "fsspec", "jinja2"}
OF_AGENTS = {
    f"wink_workspace.{name}"
    for name in (
        "adapters.core", "prompt.prompt", "runtime.executor", "sandbox.backends", "sections.vfs",
        "session.session", "workspace.workspace",
    )
}  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "most", "not_loaded"),
    [
        (["--help"], 6, {"pydantic", "rich", "typer"}),
        (["--version"], 3, {"pydantic", "rich", "typer"}),
        (["list"], 92, OF_AGENTS | {"pydantic"}),
        (["log", "none"], 37, OF_AGENTS | {"pydantic"}),
        (["run", "--help"], 27, OF_AGENTS - {"wink_workspace.sandbox.backends"}),
        (["mcp", "--help"], 20, {"anyio", "starlette", "wink_workspace.filesystem.disk"}),
        (["exec", "--help"], 22, {"wink_workspace.filesystem.disk"}),
    ],
)
def test_command_loads_only_what_it_needs(
    arguments: list[str], most: int, not_loaded: set[str], tmp_path: Path
) -> None:
    """Modules are counted, because times differ from run to run."""
    code = f"""
from contextlib import redirect_stdout
import io
from wink_workspace.cli import main
with redirect_stdout(io.StringIO()):
    main({arguments!r})
"""
    loaded = modules_after(code, HOME=str(tmp_path))
    own = {name for name in loaded if name.startswith("wink_workspace")}
    assert not loaded & (not_loaded | OF_EVERY_COMMAND)
    assert len(own) <= most, sorted(own)


def test_mcp_server_lists_its_tools_without_the_modules_of_calls() -> None:
    """Most of these modules define many dataclasses, and each takes a third of a millisecond."""
    code = (
        "import wink_workspace.mcp_server.request_handlers\n"
        "from wink_workspace.mcp_server.catalog import Catalog\nCatalog().tools"
    )
    loaded = modules_after(code)
    own = {name for name in loaded if name.startswith("wink_workspace.")}
    assert "wink_workspace.mcp_server.request_handlers" in own
    assert not own & {
        f"wink_workspace.{name}"
        for name in (
            "filesystem.diff.rendering", "filesystem.edits", "filesystem.memory",
            "filesystem.mounts", "filesystem.patch.planning", "ledger", "mcp_server.branches",
            "mcp_server.operations", "prompt.overrides", "runtime.calls", "runtime.executor",
            "sandbox.network", "sandbox.protocol", "sandbox.services", "sections.sandbox",
            "session.events", "session.session", "workspace.workspace",
        )
    }  # fmt: skip
    assert len(own) <= 73, sorted(own)


def test_sandbox_is_ready_for_a_command_without_sections_and_proxy() -> None:
    loaded = modules_after(
        "from wink_workspace.sandbox import SANDBOXES\nSANDBOXES.get('podman')\n"
        "import wink_workspace.sandbox.podman.podman_sandbox"
    )
    assert not loaded & {
        "asyncio", "h11", "requests", "wink_workspace.prompt.tool",
        "wink_workspace.sandbox.network_proxy.link", "wink_workspace.sections.podman",
    }  # fmt: skip


def test_list_of_commands_has_the_descriptions_of_their_functions() -> None:
    for names in command_list.COMMANDS.values():
        for command in names.values():
            # Private: the list of commands is read from their sources, and only it is.
            documented = (app._load(command).__doc__ or "").partition("\n\n")[0]
            assert command_list.description(command) == " ".join(documented.split()), command


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
            hidden = {each for each in exported if isinstance(getattr(package, each), ModuleType)}
            assert not hidden, f"{name}: a module hides what the name is for"


def test_a_type_checker_sees_no_getattr_that_would_accept_a_misspelt_name() -> None:
    for package in Path(wink_workspace.__file__).parent.rglob("__init__.py"):
        for statement in ast.parse(package.read_text(encoding="utf-8")).body:
            seen = ast.unparse(statement).partition("if not TYPE_CHECKING:")[0]
            assert "__getattr__" not in seen, package


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Workspce'"):
        wink_workspace.Workspce  # noqa: B018 - the access is the test
