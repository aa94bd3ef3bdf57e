"""What a project adds to an image: a description, without any engine.

A recipe comes from a project's file or from options of the command line. Its steps run isolated,
with package registries that they can only read; the instructions of ``containerfile`` have no
network.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import PurePosixPath
from typing import Final, Self

from wink_workspace.errors import UsageError

__all__ = ["AGENT_NAMES", "NODE_LOCKS", "ImageRecipe"]

AGENT_NAMES: Final = ("claude-code", "codex", "opencode")
"""The agent programs that an image can have."""

NODE_LOCKS: Final = ("package-lock.json", "pnpm-lock.yaml", "yarn.lock")
"""The names of lock files of Node."""

_PACKAGE: Final = re.compile(
    r"[a-z0-9][a-z0-9+.-]*[a-z0-9+](=[A-Za-z0-9.+~:-]+)?"
)  # apt removes a-
_IMAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")
_MOST: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRecipe:
    """How the image of a project is built.

    Attributes:
        base: One of our images by its short name (``python``, ``build``, ``node``), or the name of
            an image in the engine's store. It is not used if there is a ``containerfile``.
        packages: Debian packages, each with an optional ``=version``.
        requirements: Files with Python requirements; paths in the source.
        lock: A lock file with exact versions: ``requirements.txt`` with hashes, ``uv.lock``, or one
            of ``NODE_LOCKS``; a path in the source.
        containerfile: A Containerfile whose image is the base; a path in the source.
        set_up: Shell commands that run last, in a copy of the source.
        agents: Agent programs of npm, of ``AGENT_NAMES``.

    Raises:
        UsageError: If a value is invalid: a package with other characters, a path that leads
            outside of the source, an agent program that is not known, too many values.
    """

    base: str = "python"
    packages: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    lock: str | None = None
    containerfile: str | None = None
    set_up: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _IMAGE.fullmatch(self.base):
            raise UsageError(
                f"{self.base!r} is not the name of an image", hint="Use a name such as python."
            )
        for package in self.packages:
            if not _PACKAGE.fullmatch(package):
                raise UsageError(
                    f"{package!r} is not the name of a Debian package",
                    hint="Use names such as gcc, separated by commas.",
                )
        for path in self.files:
            if path.startswith("/") or ".." in PurePosixPath(path).parts or "\0" in path:
                raise UsageError(
                    f"{path!r} is not a path in the source",
                    hint="Use a relative path without '..'.",
                )
        for command in self.set_up:
            if not command.strip() or "\0" in command:
                raise UsageError(
                    f"{command!r} is not a shell command", hint="Write one command for each step."
                )
        for agent in self.agents:
            if agent not in AGENT_NAMES:
                raise UsageError(
                    f"no image can have the agent program {agent!r}",
                    hint=f"Use {', '.join(AGENT_NAMES)}; install others in a set-up command.",
                )
        for values in (self.packages, self.requirements, self.set_up, self.agents):
            if len(values) > _MOST:
                raise UsageError(
                    f"the recipe has {len(values):,} values in one list",
                    hint=f"Use at most {_MOST}.",
                )

    @property
    def files(self) -> tuple[str, ...]:
        """The files of the source that the recipe names."""
        named = (*self.requirements, self.lock, self.containerfile)
        return tuple(path for path in named if path is not None)

    @property
    def digest(self) -> str:
        """The same for two recipes with the same values, whatever their files contain."""
        values = {**asdict(self), "agents": sorted(set(self.agents))}
        if not self.agents:  # as before this field existed, so that older images are found
            del values["agents"]
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:32]

    def with_agents(self, names: Iterable[str]) -> Self:
        """The same with the agent programs *names*, too; ``UsageError`` for an unknown one."""
        return replace(self, agents=tuple(dict.fromkeys((*self.agents, *names))))
