"""A sandbox made of a Podman container: the only door to the ``podman`` library.

Importing this package loads neither that library nor anything that talks to an engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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

_HOME = {"PodmanSandbox": "sandbox", "PodmanService": "service"}


def __getattr__(name: str) -> object:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
