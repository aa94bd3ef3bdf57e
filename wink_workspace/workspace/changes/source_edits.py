"""Whether the source of a workspace was edited since the workspace has its files.

Only times are compared, so that it costs little: a deletion is not noticed, and what was written in
the instant of the import neither. ``Workspace.sync`` compares contents.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from wink_workspace.workspace.place.storage import WorkspaceFolder


def was_source_edited(folder: WorkspaceFolder, *, since_s: float = 0.0) -> bool:
    """Whether a file was written after the import, or the last apply or sync.

    It ends at the first such file. Paths that the workspace does not record are ignored.

    Args:
        folder: The workspace.
        since_s: Ignore what was written before, in seconds since the epoch.
    """
    info = folder.info()
    if info.mode == "in_place":
        return False
    known = (folder.path / "about.json", folder.applied)
    since_s = max(since_s, *(path.stat().st_mtime for path in known if path.exists()))
    unrecorded, source = info.rules.unrecorded(), Path(info.source)
    below: list[tuple[str, ...]] = [()]
    while below:
        parts = below.pop()
        try:
            with os.scandir(source.joinpath(*parts)) as found:
                entries = {each.name: each for each in found if parts or each.name != ".git"}
        except OSError:  # deleted meanwhile, or not readable
            continue
        directories = {name for name, each in entries.items() if each.is_dir(follow_symlinks=False)}
        if unrecorded is not None:
            for name in unrecorded.hidden_in(parts, [*entries], [*directories]):
                del entries[name]
        below += ((*parts, name) for name in directories & entries.keys())
        for name in entries.keys() - directories:
            with suppress(OSError):
                if entries[name].stat(follow_symlinks=False).st_ctime > since_s:
                    return True
    return False
