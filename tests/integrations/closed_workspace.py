"""A workspace that no process has open, for tests of the fsspec filesystem."""

from __future__ import annotations

from pathlib import Path

import fsspec

from wink_workspace.integrations.fsspec import WinkFileSystem
from wink_workspace.session import Outcome
from wink_workspace.workspace import Workspace, WorkspaceStorage


class ClosedWorkspace:
    """A workspace of two files, closed, with the storage that it is in."""

    def __init__(self, folder: Path) -> None:
        source = folder / "source"
        source.mkdir()
        (source / "app.py").write_text("one\n")
        (source / "run.sh").write_text("echo\n")
        (source / "run.sh").chmod(0o755)
        self.storage = WorkspaceStorage(folder / "storage")
        with Workspace.create(source, storage=self.storage, mode="copy") as workspace:
            self.id = workspace.info.id

    def fs(self, **options: object) -> WinkFileSystem:
        return fsspec.filesystem("wink", workspace=self.id, storage=self.storage, **options)

    def open(self, branch: str = "main") -> Workspace:
        return Workspace.open(self.id, storage=self.storage, branch=branch)

    def log(self) -> list[tuple[str, Outcome | None]]:
        with self.open() as workspace:
            return [(entry.subject, entry.outcome) for entry in workspace.log()][:-1]
