"""The files of a project that its recipe names, as a build reads them on the host.

Rule 1: only regular files below the source are read; no link is followed, and sizes are bounded.
Rule 2: if the user confirmed the files of a project, a build ends if one of them has changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from wink_workspace.errors import FilesystemError, UsageError
from wink_workspace.filesystem import parse_path
from wink_workspace.filesystem.disk import DiskTree

__all__ = ["SourceFiles"]

_MOST_BYTES: Final = 8 * 1_048_576


class SourceFiles:
    """The text files of *source*.

    Args:
        source: The directory of the project.
        confirmed: The SHA-256 of each file that may be read, by its path; ``None`` for any file.
    """

    def __init__(self, source: Path, confirmed: Mapping[str, str] | None = None) -> None:
        self._source = source
        self._confirmed = confirmed

    def text(self, path: str) -> str:
        """The text of a file.

        Raises:
            UsageError: If it is not a small text file, or not what was confirmed.
        """
        try:
            with DiskTree(self._source) as tree, tree.open(parse_path(path)) as file:
                content = file.read(_MOST_BYTES + 1)
        except FilesystemError as error:
            raise UsageError(
                f"{path} cannot be read: {error.message}",
                hint="Name a text file of the source; links are not followed.",
            ) from error
        if len(content) > _MOST_BYTES:
            raise UsageError(
                f"{path} is larger than {_MOST_BYTES:,} bytes", hint="Use a smaller file."
            )
        if self._confirmed is not None and (
            self._confirmed.get(path) != hashlib.sha256(content).hexdigest()
        ):
            raise UsageError(
                f"{path} is not what was confirmed with the project's file",
                hint="Look at it, and confirm it with wink-workspace trust.",
            )
        try:
            return content.decode().replace("\r\n", "\n").replace("\r", "\n")
        except UnicodeDecodeError as error:
            raise UsageError(
                f"{path} cannot be read: not text", hint="Name a text file of the source."
            ) from error
