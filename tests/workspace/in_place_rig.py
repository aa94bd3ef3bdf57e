"""Helpers for workspaces in place: the user's directory, its repository, and its state."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workspace_rig import Picture, picture, storage

from wink_workspace.workspace import Workspace

GIT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "PATH": os.environ["PATH"],
    **{f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


def git(directory: Path, *arguments: str) -> str:
    """The output of a git command, with the repository's own configuration only."""
    done = subprocess.run(
        ["git", *arguments], cwd=directory, env=GIT, check=True, capture_output=True, text=True
    )
    return done.stdout


def source_of(directory: Path) -> Path:
    """The user's directory."""
    return directory / "source"


def repository(directory: Path, files: Mapping[str, bytes]) -> Path:
    """A repository with *files* committed, in the user's directory."""
    source = source_of(directory)
    source.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content)
    git(source, "init", "-q", "-b", "main")
    git(source, "add", "-A")
    git(source, "commit", "-q", "-m", "start")
    return source


def begun(directory: Path, files: Mapping[str, bytes] | None = None, **options: Any) -> Workspace:
    """A new workspace in ``directory/source``, whose state is below *directory*."""
    source = source_of(directory)
    source.mkdir(parents=True, exist_ok=True)
    for name, content in (files or {}).items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content)
    return Workspace.create(source, storage=storage(directory), mode="in_place", **options)


def files_of(directory: Path) -> Picture:
    """Everything in the user's directory except its ``.git``."""
    return {
        path: at
        for path, at in picture(source_of(directory)).items()
        if path.split(b"/")[0] != b".git"
    }


def fingerprint_of(root: Path) -> str:
    """A digest of a whole tree: names, kinds, modes, contents, targets, modification times."""
    digest = hashlib.sha256()
    for path in sorted([root, *root.rglob("*")]):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        target = str(path.readlink()) if path.is_symlink() else ""
        facts = (str(path.relative_to(root)), status.st_mode, status.st_mtime_ns, target)
        digest.update(repr(facts).encode() + content)
    return digest.hexdigest()


def unfinished_in(root: Path) -> list[str]:
    """The names of unfinished files."""
    return [path.name for path in root.rglob(".wink-tmp-*")]
