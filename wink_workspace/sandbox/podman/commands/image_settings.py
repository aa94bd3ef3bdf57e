"""What an image sets for commands: its ``ENV`` with ``PATH``, and its ``WORKDIR``.

Its ``USER`` is not used: commands always have the same ordinary user. Of its variables, those of
``RESERVED`` are not used either, because they describe that user. None of them applies to the
runner, which protects itself from commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote

from wink_workspace.sandbox.commands.command_runs import VARIABLES
from wink_workspace.sandbox.git_directory import WORKSPACE_PATH
from wink_workspace.sandbox.podman.engine.service import EngineError, PodmanService

RESERVED: Final = frozenset(VARIABLES) - {"PATH", "LANG"}
"""Variables that an image cannot set."""


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """The settings of an image that apply to commands.

    Attributes:
        env: Its variables, without the reserved ones.
        directory: Its ``WORKDIR`` relative to the workspace's root; ``.`` for the root, and for a
            directory outside of the workspace, in which the workspace's files are not found.
        id: The id of the image; empty if the engine does not have it.
    """

    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    directory: str = "."
    id: str = ""

    @classmethod
    def of(cls, service: PodmanService, image: str) -> ImageSettings:
        """Those of an image; none if the engine does not have it."""
        try:
            found: Mapping[str, Any] = service.request(  # Any: the engine's JSON
                "GET", f"/images/{quote(image, safe='/')}/json"
            )
        except EngineError:
            return cls()  # creating a container of it fails with the reason
        config: Mapping[str, Any] = found.get("Config") or {}
        parsed = cls.parse(config.get("Env") or (), config.get("WorkingDir") or "/")
        return replace(parsed, id=str(found["Id"]))

    @classmethod
    def parse(cls, variables: list[str] | tuple[str, ...], directory: str) -> ImageSettings:
        """Those of an image with these ``NAME=value`` and this ``WORKDIR``."""
        pairs = (variable.partition("=") for variable in variables if "\0" not in variable)
        env = {name: value for name, _, value in pairs if name and name not in RESERVED}
        if not env.get("PATH", "/"):
            del env["PATH"]
        path = PurePosixPath(directory)
        is_inside = path.is_relative_to(WORKSPACE_PATH) and ".." not in path.parts
        inside = str(path.relative_to(WORKSPACE_PATH)) if is_inside else "."
        return cls(MappingProxyType(env), inside)

    def variables(self, *more: Mapping[str, str]) -> dict[str, str]:
        """The environment of a command to whose variables the configuration and request add."""
        env = {**VARIABLES, **self.env}
        for each in more:
            env |= each
        return env

    def directory_in(self, files: Path) -> str:
        """The directory in which commands start that name none: the root if *files* lacks it."""
        path = files
        for part in PurePosixPath(self.directory).parts:
            path /= part
            if path.is_symlink() or not path.is_dir():
                return "."
        return self.directory
