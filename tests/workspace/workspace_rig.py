"""Helpers for tests of workspaces: create them, run calls by name, compare whole trees."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from support import executor_of, tool

from wink_workspace.prompt import MarkdownSection, Prompt, Tool, ToolResult
from wink_workspace.runtime import CallOutcome, ToolCall
from wink_workspace.sections import PlanningToolsSection, VfsToolsSection
from wink_workspace.workspace import Workspace, WorkspaceFolder, WorkspaceStorage

Call = Callable[..., CallOutcome]
Picture = dict[bytes, tuple[str, int, bytes]]

_ids = count(1)


def made(directory: Path, files: Mapping[str, bytes] | None = None, **options: Any) -> Workspace:
    """A new workspace with *files*, whose state is below *directory*."""
    source = directory / "source"
    source.mkdir(exist_ok=True)
    for name, content in (files or {}).items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content)
    return Workspace.create(source, storage=storage(directory), **options)


def storage(directory: Path) -> WorkspaceStorage:
    return WorkspaceStorage(directory / "state")


def folder(directory: Path) -> WorkspaceFolder:
    """The folder of the only workspace below *directory*."""
    (info,) = storage(directory).all()
    return storage(directory).folder(info.id)


def reopened(directory: Path, **options: Any) -> Workspace:
    """The only workspace below *directory*, open once more."""
    (info,) = storage(directory).all()
    return Workspace.open(info.id, storage=storage(directory), **options)


def die(workspace: Workspace) -> None:
    """Release the locks as the death of the process would, without saving anything."""
    workspace._close()


@contextmanager
def calls(
    workspace: Workspace, *tools: Tool[Any, Any], prefix: str = "call", **options: Any
) -> Iterator[Call]:
    """Yield a function that runs a call by the tool's name, also of file and planning tools.

    *options* are those of the section with the file tools.
    """
    sections = [VfsToolsSection(workspace.files, **options), PlanningToolsSection()]
    own = MarkdownSection(title="Tools", template="Use them.", tools=tools)
    prompt = Prompt(ns="tests", key="calls", sections=[own, *sections] if tools else sections)
    prompt.bind(resources=workspace.resources)
    prompt.install(workspace.session)
    with prompt.resources:
        executor = executor_of(prompt, workspace.session)

        def call(name: str, /, **arguments: object) -> CallOutcome:
            return executor.execute(ToolCall.of(name, arguments, id=f"{prefix}-{next(_ids)}"))

        yield call


def doing(act: Callable[[], object], *, name: str = "act", fails: bool = False) -> Tool[Any, Any]:
    """A tool that runs *act*, and then succeeds or *fails*."""

    def handle(params: object, *, context: object) -> ToolResult[None]:
        del params, context
        act()
        if fails:
            raise RuntimeError("the handler failed")
        return ToolResult[None].ok(None, message="done")

    return tool(handle, name=name)


def picture(root: Path) -> Picture:
    """Every path below *root*: its kind, its permissions, and its content or target."""
    found: Picture = {}
    todo = [os.fsencode(root)]
    while todo:
        for entry in os.scandir(todo.pop()):
            status = entry.stat(follow_symlinks=False)
            mode, kind, content = stat.S_IMODE(status.st_mode), "other", b""
            if entry.is_symlink():
                kind, mode, content = "link", 0, os.readlink(entry.path)  # noqa: PTH115 - bytes
            elif entry.is_dir():
                kind = "directory"
                todo.append(entry.path)
            elif entry.is_file():
                kind, content = "file", Path(os.fsdecode(entry.path)).read_bytes()
            found[os.path.relpath(entry.path, os.fsencode(root))] = kind, mode, content
    return found


def assert_same(before: Picture, after: Picture) -> None:
    """The two trees are equal; the message names the paths that differ, without contents."""
    differing = sorted(path for path in before | after if before.get(path) != after.get(path))
    assert not differing, [
        (path, (before.get(path) or ("none",))[:2], (after.get(path) or ("none",))[:2])
        for path in differing
    ]


def assert_fsck_clean(ledger: Path) -> None:
    """Plain git finds no errors; unreachable objects are allowed."""
    done = subprocess.run(
        ["git", "-C", str(ledger), "fsck", "--strict", "--full", "--no-dangling"],
        capture_output=True,
        env={
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
        },
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b""), done.stderr  # stderr has also deprecations
