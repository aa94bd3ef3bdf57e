"""Helpers for tests of workspaces on disk: a source, calls by name, and trees as values."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from wink_workspace import (
    Prompt,
    ScriptedAdapter,
    ToolCall,
    ToolExecutor,
    VfsToolsSection,
)
from wink_workspace.workspace import Workspace, WorkspaceStorage

GIT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "PATH": "/usr/bin:/bin",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
}

_ids = count(1)


def git(folder: Path, *arguments: str) -> str:
    """The output of a git command."""
    return subprocess.run(
        ["git", *arguments], cwd=folder, env=GIT, check=True, capture_output=True, text=True
    ).stdout


def make_tree(root: Path, files: Mapping[str, str | bytes | None]) -> Path:
    """Create files by path; ``None`` is an empty directory, ``-> target`` a link, ``#!`` executable."""
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        match content:
            case None:
                path.mkdir()
            case str() if content.startswith("-> "):
                path.symlink_to(content[3:])
            case _:
                path.write_bytes(content.encode() if isinstance(content, str) else content)
                path.chmod(0o755 if path.read_bytes().startswith(b"#!") else 0o644)
    return root


def tree_of(root: Path) -> dict[str, object]:
    """Every path below *root* with kind, mode and content."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name, mode = str(path.relative_to(root)), oct(path.lstat().st_mode)
        if path.is_symlink():
            found[name] = str(path.readlink())
        else:
            found[name] = (mode, path.read_bytes() if path.is_file() else None)
    return found


@contextmanager
def executor(workspace: Workspace):
    """Yield a function that runs calls on *workspace* by name, like those of a model."""
    prompt = Prompt[None](ns="t", key="w", sections=[VfsToolsSection(workspace.files)])
    with prompt.resources:
        prompt.install(workspace.session)
        rendered = prompt.render(session=workspace.session)
        runs = ToolExecutor(
            prompt=prompt,
            rendered_prompt=rendered,
            adapter=ScriptedAdapter(()),
            session=workspace.session,
        )

        def call(name: str, /, **arguments: object) -> str:
            return runs.execute(ToolCall.of(name, arguments, id=f"c{next(_ids)}")).text

        yield call


def write(workspace: Workspace, **contents: str) -> None:
    """One committed call for each file."""
    with executor(workspace) as call:
        for path, content in contents.items():
            call("write_file", file_path=path, content=content)


def created(tmp_path: Path, files: Mapping[str, str | bytes | None], **options: Any) -> Workspace:
    """A workspace of a source with *files*, at ``tmp_path/source``."""
    source = make_tree(tmp_path / "source", files)
    return Workspace.create(source, storage=WorkspaceStorage(tmp_path / "state"), **options)


def state(tmp_path: Path) -> WorkspaceStorage:
    """Where ``created`` keeps its workspaces."""
    return WorkspaceStorage(tmp_path / "state")


def is_root() -> bool:
    """Whether file modes do not restrict this process, as for root."""
    return os.geteuid() == 0
