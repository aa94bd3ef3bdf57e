"""The names of the images of projects, and of the steps that built them.

The name of a project's image is a digest of the path of its source. Its tag is a digest of the
recipe and what it read. The tag ``current`` is on the one that was built last, ``recipe-DIGEST`` on
the one that was built last from a recipe.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

from wink_workspace.sandbox.image_store import ImageRecipe

LAYER: Final = "localhost/wink-workspace/layer"
"""The name, without a tag, of the images of steps."""

_CURRENT: Final = "current"
_OF_RECIPE: Final = "recipe-"


def project_name(source: Path) -> str:
    """The name, without a tag, of the images of the project in that directory."""
    path = os.fsencode(source.resolve())
    return f"localhost/wink-workspace/project-{hashlib.sha256(path).hexdigest()[:16]}"


def newest_image(source: Path, wanted: ImageRecipe | None = None) -> str:
    """The name of the image that was last built for a project; with *wanted*, from this recipe."""
    tag = _CURRENT if wanted is None else f"{_OF_RECIPE}{wanted.digest}"
    return f"{project_name(source)}:{tag}"


def is_second_name(reference: str) -> bool:
    """Whether the name of a project's image is one that is moved to the newest image."""
    tag = reference.rpartition(":")[2]
    return tag == _CURRENT or tag.startswith(_OF_RECIPE)
