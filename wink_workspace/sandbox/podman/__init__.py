"""A sandbox in a Podman container.

Importing the package loads no module that talks to an engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

from .engine.podman_config import DEFAULT_IMAGE, IMAGE_VERSION, PodmanConfig, ReadOnlyMount

if TYPE_CHECKING:
    from .engine.service import PodmanService
    from .podman_sandbox import PodmanSandbox

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
