"""Lets Python find the compiled modules and the metadata of a project in the image.

Both are below ``/opt/project/extensions``. This file is copied into the images of
projects, and runs there with the Python of the image. The Python files of the project are those of
the workspace, so that edits of them apply. A compiled module beside them, which a command has
built, comes before one that is found here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder, ModuleSpec
from types import ModuleType

TOP = "/opt/project/extensions"


class ExtensionFinder:
    """Comes last in ``sys.meta_path``."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The compiled module of that name."""
        del path, target
        folder = "/".join([TOP, *name.split(".")[:-1]])
        return FileFinder(folder, (ExtensionFileLoader, EXTENSION_SUFFIXES)).find_spec(name)

    @staticmethod
    def find_distributions(
        context: metadata.DistributionFinder.Context | None = None,
    ) -> Iterable[metadata.Distribution]:
        """The metadata of the project, such as its version and its plugins."""
        name = None if context is None else context.name
        found = metadata.DistributionFinder.Context(name=name, path=[TOP])
        return metadata.MetadataPathFinder.find_distributions(found)


sys.meta_path.append(ExtensionFinder)
