"""Which workspace of a directory was used last: commands take it where none is named.

The time of the file ``used`` in a workspace is that of the last use. Its text is the branch that
the user chose, and empty if none was chosen. A workspace without it was used when it was made.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from .storage import WorkspaceInfo, WorkspaceStorage

_FILE: Final = "used"


def workspaces_of(storage: WorkspaceStorage, directory: Path) -> list[WorkspaceInfo]:
    """The workspaces of *directory*, or else of the nearest directory above; last used first."""
    by_source: dict[str, list[WorkspaceInfo]] = {}
    for info in storage.all():
        by_source.setdefault(os.path.realpath(info.source), []).append(info)
    here = directory.resolve()
    nearest = next((path for path in (here, *here.parents) if str(path) in by_source), here)

    def last_used_s(info: WorkspaceInfo) -> float:
        with suppress(OSError):
            return _file(storage, info).stat().st_mtime
        return info.created_at.timestamp()

    return sorted(by_source.get(str(nearest), ()), key=last_used_s, reverse=True)


def chosen_branch(storage: WorkspaceStorage, info: WorkspaceInfo) -> str | None:
    """The branch that the user chose; ``None`` if none was chosen."""
    with suppress(OSError):
        return _file(storage, info).read_text(encoding="utf-8") or None
    return None


def keep_use(storage: WorkspaceStorage, info: WorkspaceInfo, branch: str | None = None) -> None:
    """Record that it is used now, and with *branch* that the user chose this branch.

    A choice ends when another workspace of the directory is used.
    """
    is_last = workspaces_of(storage, Path(info.source))[:1] == [info]
    with suppress(OSError):  # such as a full disk, on which a history can still be read
        if branch is not None or not is_last:
            _file(storage, info).write_text(branch or "", encoding="utf-8")
        else:
            _file(storage, info).touch(mode=0o600)


def _file(storage: WorkspaceStorage, info: WorkspaceInfo) -> Path:
    return storage.folder_of(info).path / _FILE
