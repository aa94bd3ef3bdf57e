"""The host's side of file calls: what one evaluation may do with the workspace's files.

Rule 1: the child is hostile. The host parses each path, compares it with the declared ones, and
limits sizes and the number of calls.
Rule 2: if the filesystem or a limit refuses a call, the code gets an exception. The evaluation
continues.
"""

from __future__ import annotations

import json
from typing import Final, get_args

from wink_workspace.errors import (
    FilesystemError,
    LimitExceededError,
    PathEscapeError,
    ReadOnlyError,
    UsageError,
    WinkError,
)
from wink_workspace.filesystem import (
    FileKind,
    FileStat,
    Filesystem,
    WorkspacePath,
    WriteMode,
    parse_path,
)

from .evaluation import EvaluationRequest
from .evaluation_limits import AstevalConfig

WRITE_MODES: Final[tuple[WriteMode, ...]] = get_args(WriteMode)


class FileAccess:
    """Reads and writes the files of one evaluation.

    ``reads`` and ``writes`` are the files that the code has read and written.
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
        """The content of a file.

        Raises:
            WinkError: If it was not declared, is too large, or cannot be read.
        """
        files, path = self._count_call(), parse_path(given)
        if not self._is_read(path) and path not in self.writes:
            raise _undeclared(path, "reads")
        most = self._config.file_bytes
        data = files.read_bytes(path, limit=most + 1)
        if len(data) > most:
            raise LimitExceededError(
                f"{path} has more than {most:,} bytes",
                hint="Pass the part that the code needs as a global.",
            )
        self._count_bytes(len(data))
        self.reads[path] = None
        return data

    def write(self, given: str, data: bytes, mode: WriteMode) -> None:
        """Create, replace or extend a file.

        Raises:
            WinkError: If it was not declared, must be read first, or cannot be written.
        """
        files, path = self._count_call(), parse_path(given)
        if path not in self._request.writes:
            raise _undeclared(path, "writes")
        is_read_first = path not in self._request.reads or path in self.reads or path in self.writes
        if not is_read_first and mode != "create":  # which never replaces a file
            self._check_is_new(files, path)
        self._count_bytes(len(data))
        files.write_bytes(path, data, mode=mode, most_bytes=self._config.write_bytes)
        self.writes[path] = None

    def stat(self, given: str) -> bytes:
        """The kind of a path, its size, and whether it is executable, as a JSON array.

        Raises:
            WinkError: If it is neither declared nor above a declared file, or does not exist.
        """
        files, path = self._count_call(), parse_path(given)
        request = self._request
        if not (
            path in self.writes
            or self._is_read(path)
            or any(each.is_below(path) for each in (*request.reads, *request.writes))
        ):
            raise _undeclared(path, "reads")
        return _encoded(_metadata(files.stat(path)))

    def list(self, given: str) -> bytes:
        """The entries of a declared directory, each a JSON array of its name and ``stat``.

        Raises:
            WinkError: If it was not declared, or is not a directory.
        """
        files, path = self._count_call(), parse_path(given)
        if not self._is_read(path):
            raise _undeclared(path, "reads")
        rows = [[entry.path.name, *_metadata(entry)] for entry in files.list(path)]
        data = _encoded(rows)
        self._count_bytes(len(data))
        return data

    def mkdir(self, given: str) -> bytes:
        """Make a directory above a declared write.

        Raises:
            WinkError: If no declared write is below it, or it cannot be made.
        """
        files, path = self._count_call(), parse_path(given)
        if not any(each != path and each.is_below(path) for each in self._request.writes):
            raise _undeclared(path, "writes")
        files.mkdir(path, parents=False, exist_ok=False)
        return b""

    def _is_read(self, path: WorkspacePath) -> bool:
        return any(path.is_below(declared) for declared in self._request.reads)

    def _check_is_new(self, files: Filesystem, path: WorkspacePath) -> None:
        """Refuse to replace a file that the code may read but has not read."""
        if files.exists(path):
            raise ReadOnlyError(
                f"{path} exists and this code has not read it",
                hint="Read it before writing it, or leave it out of reads.",
            )

    def _count_call(self) -> Filesystem:
        self._n_calls += 1
        if self._n_calls > self._config.file_calls:
            raise LimitExceededError(
                f"the code made more than {self._config.file_calls} file calls",
                hint="Read and write fewer files, or use several evaluations.",
            )
        if self._files is None:
            raise FilesystemError(
                "no filesystem is bound to the prompt", hint="Pass the data as globals instead."
            )
        return self._files

    def _count_bytes(self, n_bytes: int) -> None:
        self._n_bytes += n_bytes
        if self._n_bytes > self._config.transfer_bytes:
            raise LimitExceededError(
                f"the code read and wrote more than {self._config.transfer_bytes:,} bytes",
                hint="Work on parts of the files, in several evaluations.",
            )


def python_error(error: WinkError) -> str:
    """The name of the Python exception that corresponds to *error*."""
    for kind in (
        FileNotFoundError,
        FileExistsError,
        IsADirectoryError,
        NotADirectoryError,
        PermissionError,
    ):
        if isinstance(error, kind):
            return kind.__name__
    if isinstance(error, PathEscapeError):  # as for a user without access to it
        return "PermissionError"
    return "ValueError" if isinstance(error, UsageError) else "OSError"


def _metadata(found: FileStat) -> list[object]:
    kind = "directory" if found.kind is FileKind.DIRECTORY else "file"
    return [kind, found.size_bytes, found.executable]


def _encoded(value: object) -> bytes:
    return json.dumps(value).encode("ascii")


def _undeclared(path: WorkspacePath, parameter: str) -> ReadOnlyError:
    return ReadOnlyError(f"{path} is not declared", hint=f"Name it in {parameter} and call again.")
