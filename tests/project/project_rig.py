"""A project with a file of settings, and its user with another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from wink_workspace.environment import Environment
from wink_workspace.errors import UsageError
from wink_workspace.project import (
    PROJECT_FILE,
    USER_FILE,
    Confirmations,
    ProjectSettings,
    Settings,
    load_settings,
    own_settings,
)


class ProjectRig:
    """Directories of a project and of its user below *folder*."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = folder / "source"
        self.source.mkdir()
        self.variables: dict[str, str] = {}

    @property
    def environment(self) -> Environment:
        folders = {
            "XDG_STATE_HOME": str(self.folder / "state"),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
        }
        return Environment(variables={**folders, **self.variables}, home=self.folder)

    @property
    def confirmations(self) -> Confirmations:
        return Confirmations(self.environment.state_dir)

    def user(self, text: str) -> None:
        """Write the user's own file."""
        folder = self.environment.config_dir
        folder.mkdir(parents=True, exist_ok=True)
        (folder / USER_FILE).write_text(text)

    def file(self, path: str, content: str | bytes = "") -> Path:
        """Write a file of the project."""
        target = self.source / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        return target

    def write(self, text: str | bytes) -> None:
        """Write the project's own file."""
        self.file(PROJECT_FILE, text)

    def load(self, given: Settings | None = None) -> ProjectSettings:
        return load_settings(self.source, self.environment, given)

    def own(self) -> Settings:
        return own_settings(self.environment, self.source)

    def confirm(self) -> ProjectSettings:
        """Confirm what the project's file asks for now, as ``trust`` does."""
        loaded = self.load()
        assert loaded.file is not None
        requests = [each.text for each in (*loaded.granted, *loaded.denied)]
        self.confirmations.confirm(loaded.file, requests)
        return self.load()

    def problem(self) -> str:
        """The message with which the project's file is refused."""
        with pytest.raises(UsageError) as caught:
            self.load()
        return str(caught.value)
