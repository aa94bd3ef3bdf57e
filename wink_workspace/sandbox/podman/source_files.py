"""The files of a project from which its image is built: as they are, or as the user confirmed them.

The project's directory can change at any time, also between a confirmation and the build. So files
that a confirmation covers are not read again: their bytes are passed on to here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Final

from wink_workspace.errors import UsageError

__all__ = ["SourceFiles"]

_MOST_BYTES: Final = 8 * 1_048_576


class SourceFiles:
    """The files of one project.

    Args:
        directory: The directory of the project.
        confirmed: What the user has confirmed, by paths. Then a text that is not in it is not read
            from the directory. ``None`` if the user named the files in options.
    """

    def __init__(self, directory: Path, confirmed: Mapping[str, bytes] | None = None) -> None:
        self.directory = directory
        self._confirmed = confirmed

    @property
    def confirmed(self) -> Mapping[str, bytes]:
        """The files that the user has confirmed."""
        return MappingProxyType({}) if self._confirmed is None else self._confirmed

    def has(self, path: str) -> bool:
        """Whether the text of *path* can be read."""
        if self._confirmed is not None:
            return path in self._confirmed
        return (self.directory / path).is_file()

    def text(self, path: str) -> str:
        """The text of a file.

        Raises:
            UsageError: If it is missing, a link, large, not UTF-8, or was not confirmed.
        """
        if self._confirmed is None:
            content = self._read(path)
        else:
            found = self._confirmed.get(str(PurePosixPath(path)))
            if found is None:
                raise UsageError(
                    f"{path} is not a file that was confirmed",
                    hint="Name a file of the project, and confirm it with wink-workspace trust.",
                )
            content = found
        try:
            return content.decode()
        except ValueError as error:
            raise UsageError(
                f"{path} cannot be read: not text", hint="Name a text file of the source."
            ) from error

    def _read(self, path: str) -> bytes:
        file = self.directory
        for part in PurePosixPath(path).parts:
            file /= part
            if file.is_symlink():
                raise UsageError(f"{path} is a link", hint="Name the file itself.")
        try:
            with file.open("rb") as stream:
                content = stream.read(_MOST_BYTES + 1)
        except OSError as error:
            raise UsageError(
                f"{path} cannot be read: {error.strerror}", hint="Name a text file of the source."
            ) from error
        if len(content) > _MOST_BYTES:
            raise UsageError(
                f"{path} is larger than {_MOST_BYTES:,} bytes", hint="Use a smaller file."
            )
        return content
