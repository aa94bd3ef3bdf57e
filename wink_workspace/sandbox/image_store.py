"""The images of a backend: what is known of them, and how they are built and deleted."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final, Literal, Protocol, Self

from wink_workspace.errors import UsageError

# ----------------------------------------------------------------------------------- image recipe

# What a project adds to an image: a description, without any engine.
#
# A recipe comes from a project's file or from options of the command line. Its steps run isolated,
# with package registries that they can only read; the instructions of ``containerfile`` have no
# network.


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


# ------------------------------------------------------------------------------------ image store


@dataclass(frozen=True, slots=True)
class SandboxImage:
    """An image in a backend's store.

    Attributes:
        reference: Its name, with the tag.
        id: The engine's identifier.
        size_bytes: Its size with everything that it shares with other images.
        recipe_digest: A digest of the recipe; empty if it has none.
        source: The directory of the project that it was built for; empty if for none.
        created_s: When it was built, in seconds since 1970; 0 if that is not known.
        agents: The agent programs that it has.
    """

    reference: str
    id: str
    size_bytes: int
    recipe_digest: str
    source: str = ""
    created_s: float = 0.0
    agents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SandboxImageState:
    """Whether an image matches its recipe, or which project it is for.

    Attributes:
        reference: Its name, with the tag.
        state: A few words.
        size_bytes: As in ``SandboxImage``; ``None`` if it is missing.
        created_s: As in ``SandboxImage``; ``None`` if it is missing.
    """

    reference: str
    state: str
    size_bytes: int | None
    created_s: float | None = None


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An image, or a file or directory of a build's cache.

    Attributes:
        name: A name of the image, or the path in the cache.
        kind: Which of the two.
        size_bytes: Its size; for an image with everything that it shares with other images.
        used_s: When a build last made or used it, in seconds since 1970.
        kept_because: Why it was not deleted; empty if it was.
    """

    name: str
    kind: Literal["image", "cache"]
    size_bytes: int
    used_s: float
    kept_because: str = ""


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What ``SandboxImages.prune`` deleted, or would delete.

    Attributes:
        removed: What was deleted, the least recently used first.
        kept: What is old enough and was not deleted, with the reason.
        freed_bytes: At least how much that frees: layers that remaining images share stay.
    """

    removed: tuple[StoredItem, ...]
    kept: tuple[StoredItem, ...]
    freed_bytes: int


class SandboxImages(Protocol):
    """The images from which a backend starts its sandboxes."""

    @property
    def names(self) -> tuple[str, ...]:
        """The images that can be built."""
        ...

    @property
    def usual_names(self) -> tuple[str, ...]:
        """The images that are built unless the caller names others."""
        ...

    def reference(self, name: str) -> str:
        """The reference of the image *name*; raises ``UsageError`` if there is none."""
        ...

    def find(self, name: str) -> SandboxImage | None:
        """The image *name*, if it has been built."""
        ...

    def listed(self) -> tuple[SandboxImageState, ...]:
        """Every image that has a recipe, built or not, ordered by reference."""
        ...

    def build(
        self,
        name: str,
        *,
        base: str | None = None,
        rebuild: bool = False,
        progress: Callable[[str], None] | None = None,
    ) -> SandboxImage:
        """The image *name*, built first unless it matches its recipe.

        Args:
            name: One of ``names``.
            base: A public image to start from.
            rebuild: Whether to build it even if it matches.
            progress: Is called with each line of the build's output.

        Raises:
            SandboxUnavailableError: If it cannot be built.
        """
        ...

    def build_project(
        self,
        wanted: ImageRecipe,
        source: Path,
        *,
        rebuild: bool = False,
        confirmed: Mapping[str, str] | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> SandboxImage:
        """The image of a recipe for the project in *source*; steps that exist are not repeated.

        Args:
            wanted: The recipe.
            source: The directory of the project.
            rebuild: Whether to repeat all steps, with new downloads.
            confirmed: The SHA-256 of each file of the source that this machine may read for it,
                by its path; ``None`` for any file.
            progress: Is called with each line of the build's output.

        Raises:
            SandboxUnavailableError: If a step fails.
            UsageError: If a file of the recipe is missing or not allowed.
        """
        ...

    def find_project(self, source: Path, wanted: ImageRecipe | None = None) -> SandboxImage | None:
        """The image that was last built for the project in *source*; ``None`` if none was.

        With *wanted*, the one that was last built from this recipe.
        """
        ...

    def prune(
        self,
        *,
        older_s: float,
        keep_bytes: int | None = None,
        with_current: bool = False,
        dry_run: bool = False,
    ) -> PruneReport:
        """Delete images and caches of builds that were not used for a time.

        An image that a container uses is kept.

        Args:
            older_s: Delete what no build has used for this many seconds.
            keep_bytes: Delete also the least recently used of the rest, until what may be deleted
                has at most this many bytes; ``None`` for no limit.
            with_current: Whether to delete images that are found for a project whose directory
                exists.
            dry_run: Only report what would be deleted.

        Raises:
            SandboxUnavailableError: If the engine is not installed or fails.
        """
        ...
