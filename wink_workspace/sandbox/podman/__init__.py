"""A sandbox in a Podman container.

Importing the package loads no module that talks to an engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from wink_workspace.sandbox.commands.command_config import ReadOnlyMount as ReadOnlyMount

    from .engine.podman_config import DEFAULT_IMAGE as DEFAULT_IMAGE
    from .engine.podman_config import IMAGE_VERSION as IMAGE_VERSION
    from .engine.podman_config import PodmanConfig as PodmanConfig
    from .engine.service import PodmanService as PodmanService
    from .podman_sandbox import PodmanSandbox as PodmanSandbox

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
