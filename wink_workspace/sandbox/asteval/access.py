"""The host's side of the file calls: what one evaluation may do to the workspace's files.

Rule 1: the child is hostile. Paths are parsed here, and compared with what was declared; sizes
and numbers of calls are bounded here.
Rule 2: what the filesystem or a limit refuses goes back as an exception for the code. It is the
evaluation's affair and not the end of it.
"""

from __future__ import annotations

from typing import Final

from wink_workspace.errors import (
    FilesystemError,
    LimitExceededError,
    ReadOnlyError,
    UsageError,
    WinkError,
)
from wink_workspace.filesystem import Filesystem, WorkspacePath, WriteMode, parse_path

from .config import AstevalConfig
from .evaluation import EvaluationRequest

__all__ = ["WRITE_MODES", "FileAccess", "python_error"]

WRITE_MODES: Final[dict[str, WriteMode]] = {
    "create": "create",
    "overwrite": "overwrite",
    "append": "append",
}


class FileAccess:
    """Reads and writes of one evaluation.

    ``reads`` and ``writes`` are the files that it did read and write.
    """

    def __init__(
        self, files: Filesystem | None, request: EvaluationRequest, config: AstevalConfig
    ) -> None:
        self._files = files
        self._request = request
        self._config = config
        self._n_calls = 0
        self._n_bytes = 0
        self.reads: dict[WorkspacePath, None] = {}
        self.writes: dict[WorkspacePath, None] = {}

    def read(self, given: str) -> bytes:
        """All of a file.

        Raises:
            WinkError: If it was not declared, is too large, or cannot be read.
        """
        files, path = self._counted(), parse_path(given)
        declared = any(path.is_below(place) for place in self._request.reads)
        if not declared and path not in self.writes:
            raise _undeclared(path, "reads")
        most = self._config.file_bytes
        if files.stat(path).size_bytes > most:
            raise _too_large(path, most)
        data = files.read_bytes(path, limit=most + 1)
        if len(data) > most:  # it has grown since
            raise _too_large(path, most)
        self._transferred(len(data))
        self.reads[path] = None
        return data

    def write(self, given: str, data: bytes, mode: WriteMode) -> None:
        """Make, replace or extend a file.

        Raises:
            WinkError: If it was not declared, or must be read first, or cannot be written.
        """
        files, path = self._counted(), parse_path(given)
        if path not in self._request.writes:
            raise _undeclared(path, "writes")
        if path in self._request.reads and path not in self.reads and path not in self.writes:
            self._check_new(files, path)
        self._transferred(len(data))
        files.write_bytes(path, data, mode=mode, most_bytes=self._config.write_bytes)
        self.writes[path] = None

    def _check_new(self, files: Filesystem, path: WorkspacePath) -> None:
        """A file that the code may read and write is not replaced unread."""
        if files.exists(path):
            raise ReadOnlyError(
                f"{path} exists and this code has not read it",
                hint="Read it before writing it, or leave it out of reads.",
            )

    def _counted(self) -> Filesystem:
        self._n_calls += 1
        if self._n_calls > self._config.file_calls:
            raise LimitExceededError(
                f"more than {self._config.file_calls} file calls",
                hint="Read and write fewer files, or do it in several calls.",
            )
        if self._files is None:
            raise FilesystemError(
                "no filesystem is bound to the prompt", hint="Pass what the code needs as globals."
            )
        return self._files

    def _transferred(self, n_bytes: int) -> None:
        self._n_bytes += n_bytes
        if self._n_bytes > self._config.transfer_bytes:
            raise LimitExceededError(
                f"more than {self._config.transfer_bytes:,} bytes read and written",
                hint="Work on parts of the files, in several calls.",
            )


def python_error(error: WinkError) -> str:
    """The exception that Python code expects for *error*."""
    for kind in (
        FileNotFoundError,
        FileExistsError,
        IsADirectoryError,
        NotADirectoryError,
        PermissionError,
    ):
        if isinstance(error, kind):
            return kind.__name__
    return "ValueError" if isinstance(error, UsageError) else "OSError"


def _undeclared(path: WorkspacePath, parameter: str) -> ReadOnlyError:
    return ReadOnlyError(f"{path} is not declared", hint=f"Name it in {parameter} and call again.")


def _too_large(path: WorkspacePath, most: int) -> LimitExceededError:
    return LimitExceededError(
        f"{path} has more than {most:,} bytes",
        hint="Pass the part that is needed as a global.",
    )
