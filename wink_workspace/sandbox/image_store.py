"""The images of a backend: what is known of them, and how they are built and deleted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from .image_recipe import ImageRecipe

__all__ = ["PruneReport", "SandboxImage", "SandboxImageState", "SandboxImages", "StoredItem"]


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
