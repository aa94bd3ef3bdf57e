"""The images of Podman sandboxes, for the commands: our recipes by name, and those of projects."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from wink_workspace.clock import SYSTEM_CLOCK
from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxUnavailableError
from wink_workspace.sandbox.auto_choice import remember_image
from wink_workspace.sandbox.image_store import (
    ImageRecipe,
    PruneReport,
    SandboxImage,
    SandboxImageState,
)
from wink_workspace.sandbox.podman.engine.host_programs import Progress
from wink_workspace.sandbox.podman.engine.service import EngineError, shared_service

from .image_names import LAYER, is_second_name, newest_image
from .images import RECIPES, USUAL_RECIPES, ImageStore, image_of, recipe


class PodmanImages:
    """Our images by name; implements ``SandboxImages``.

    Args:
        environment: As for ``ImageStore``.
    """

    names = RECIPES
    usual_names = USUAL_RECIPES

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._store = ImageStore(environment)

    def reference(self, name: str) -> str:
        """See ``SandboxImages``."""
        return recipe(name).reference

    def find(self, name: str) -> SandboxImage | None:
        """See ``SandboxImages``."""
        return self._store.find(self.reference(name))

    def listed(self) -> tuple[SandboxImageState, ...]:
        """See ``SandboxImages``."""
        current = {recipe(name).reference: recipe(name).digest for name in self.names}
        found = {
            image.reference: image
            for image in self._store.all()
            if not image.reference.startswith(f"{LAYER}:") and not is_second_name(image.reference)
        }
        states = [
            SandboxImageState(
                image.reference, _state(current, image), image.size_bytes, image.created_s
            )
            for image in found.values()
        ]
        missing = [
            SandboxImageState(each, "missing", None) for each in current.keys() - found.keys()
        ]
        return tuple(sorted((*states, *missing), key=lambda state: state.reference))

    def build(
        self,
        name: str,
        *,
        base: str | None = None,
        rebuild: bool = False,
        progress: Progress | None = None,
    ) -> SandboxImage:
        """See ``SandboxImages``."""
        return self._store.build(recipe(name), base=base, rebuild=rebuild, progress=progress)

    def build_project(
        self,
        wanted: ImageRecipe,
        source: Path,
        *,
        rebuild: bool = False,
        confirmed: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> SandboxImage:
        """See ``SandboxImages``."""
        from .project_images import ProjectImages  # here, as it loads the sandbox

        images = ProjectImages(self._environment, self._store)
        built = images.build(
            wanted, source, rebuild=rebuild, confirmed=confirmed, progress=progress
        )
        remember_image(self._environment, source)
        return built

    def find_project(self, source: Path, wanted: ImageRecipe | None = None) -> SandboxImage | None:
        """See ``SandboxImages``."""
        name = newest_image(source, wanted)
        try:  # the engine that will run commands: it is faster than a process of ``podman``
            found = shared_service(self._environment).request(
                "GET", f"/images/{quote(name, safe='/')}/json"
            )
        except EngineError as error:
            if error.status == 404:
                return None
            raise SandboxUnavailableError(error.message, hint=error.hint) from error
        return image_of(found, name)

    def prune(
        self,
        *,
        older_s: float,
        keep_bytes: int | None = None,
        with_current: bool = False,
        dry_run: bool = False,
    ) -> PruneReport:
        """See ``SandboxImages``."""
        from .image_pruning import ImagePruner

        return ImagePruner(self._store).prune(
            older_s=older_s,
            keep_bytes=keep_bytes,
            with_current=with_current,
            dry_run=dry_run,
            now_s=SYSTEM_CLOCK.now().timestamp(),
        )


def _state(current: Mapping[str, str], image: SandboxImage) -> str:
    if image.source:
        return f"for {image.source}"
    wanted = current.get(image.reference)
    if wanted is None:
        return "of another version"
    return "current" if wanted == image.recipe_digest else "of an older recipe"
