"""What the ledger's modules ask of the disk: whole files, syncing, failures in our own terms."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from wink_workspace.errors import LedgerError

__all__ = ["ledger_failures", "sync", "write_whole"]


@contextmanager
def ledger_failures(what: str) -> Generator[None]:
    """Raise what ``OSError`` the block raises as a ``LedgerError`` that begins with *what*."""
    try:
        yield
    except OSError as error:
        raise LedgerError(
            f"{what}: {error.strerror or error}",
            hint="Make room on the disk or mend the permissions, then try again.",
        ) from error


def sync(path: str | Path) -> None:
    """Make a file, or the names in a directory, survive a loss of power."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_whole(
    path: Path, data: bytes, *, durable: bool, before_rename: Callable[[], None] = lambda: None
) -> None:
    """Give *path* the content *data*; whatever happens, it has either the old or the new one."""
    unfinished = path.with_name(path.name + ".new")
    unfinished.write_bytes(data)
    if durable:
        sync(unfinished)
    before_rename()
    unfinished.replace(path)
    if durable:
        sync(path.parent)
