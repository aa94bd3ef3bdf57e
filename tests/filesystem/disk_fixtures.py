"""Helpers for tests of directories on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from wink_workspace.clock import ManualClock
from wink_workspace.filesystem import Dirty, DiskTree, WorkspacePath

UNPRIVILEGED_UID = 65_534


def later() -> ManualClock:
    """A clock one hour ahead, so that everything on disk is old."""
    return ManualClock(datetime.now(UTC) + timedelta(hours=1))


def path_of(text: str) -> WorkspacePath:
    """A path of any depth."""
    return WorkspacePath(tuple(text.split("/")))


def covers(dirty: Dirty, path: WorkspacePath) -> bool:
    """Whether *path* may have changed."""
    return path in dirty.paths or not dirty.prefixes.isdisjoint((path, *path.ancestors()))


@contextmanager
def as_ordinary_user(root: Path) -> Iterator[None]:
    """Give *root* to an unprivileged user and run as that user: modes do not bind uid 0."""
    if os.geteuid() != 0:
        yield
        return
    for directory, names, files in os.walk(root):
        for name in (".", *names, *files):
            os.chown(
                Path(directory, name), UNPRIVILEGED_UID, UNPRIVILEGED_UID, follow_symlinks=False
            )
    os.setegid(UNPRIVILEGED_UID)
    os.seteuid(UNPRIVILEGED_UID)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@contextmanager
def deep_tree(root: Path, n_levels: int) -> Iterator[None]:
    """A chain of directories deeper than any path may be long, with a file at its end.

    It is removed at the end; pytest cannot remove it.
    """
    here = os.open(root, os.O_RDONLY)
    for _ in range(n_levels):
        os.mkdir("deep", dir_fd=here)
        above, here = here, os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(above)
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    try:
        yield
    finally:
        with DiskTree(root) as tree:
            tree.remove(path_of("deep"))
