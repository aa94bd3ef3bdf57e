"""A sandbox in a Podman container.

Importing the package loads no module that talks to an engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

from .config import DEFAULT_IMAGE, IMAGE_VERSION, PodmanConfig, ReadOnlyMount

if TYPE_CHECKING:
    from .sandbox import PodmanSandbox
    from .service import PodmanService

__all__ = [
    "DEFAULT_IMAGE",
    "IMAGE_VERSION",
    "PodmanConfig",
    "PodmanSandbox",
    "PodmanService",
    "ReadOnlyMount",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
