"""A sandbox in a Podman container. This package alone imports the ``podman`` library.

Importing the package loads neither that library nor any module that talks to an engine.
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
