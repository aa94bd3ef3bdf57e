"""Files that a command writes for the user, such as a patch: checked early, written whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from wink_workspace.errors import UsageError

__all__ = ["check_output_file", "write_patch"]

_T = TypeVar("_T")


def check_output_file(path: Path, what: str = "the patch") -> None:
    """Raise ``UsageError`` if *path* can obviously not be written; *what* names the content."""
    if path.is_dir():
        raise _not_writable(what, path, "it is a directory")
    if not path.parent.is_dir():
        raise _not_writable(what, path, f"there is no directory {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise _not_writable(what, path, "permission denied")


def write_patch(path: Path, write_to: Callable[[Callable[[bytes], object]], _T]) -> _T:
    """Write the patch that *write_to* writes to *path*, and give its result.

    A regular file is replaced atomically. A pipe, a device, or a file whose directory is not
    writable is written directly, so an error may leave it partly written.

    Raises:
        UsageError: If it cannot be written.
    """
    try:
        target = path.resolve()
        if path.exists() and not (path.is_file() and os.access(target.parent, os.W_OK)):
            with path.open("wb") as file:
                return write_to(file.write)
        unfinished = target.with_name(f".{target.name}.{os.getpid()}.new")
        try:
            with unfinished.open("wb") as file:
                result = write_to(file.write)
            if target.exists():
                unfinished.chmod(target.stat().st_mode & 0o777)
            unfinished.replace(target)
            return result
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise _not_writable("the patch", path, error.strerror or str(error)) from error


def _not_writable(what: str, path: Path, why: str) -> UsageError:
    return UsageError(
        f"{what} cannot be written to {path}: {why}",
        hint="Name a file in a writable directory on a disk with free space.",
    )
