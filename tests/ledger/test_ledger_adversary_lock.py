"""A lock that cannot be written has no owner."""

from __future__ import annotations

import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ledger_support import NOW

from wink_workspace.errors import LedgerError
from wink_workspace.ledger.store.lock import WriterLock


@contextmanager
def _full_disk() -> Generator[None]:
    """Make every write to a file fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_lock_that_could_not_be_written_can_be_acquired_once_there_is_room(tmp_path: Path) -> None:
    """Also by the same process: otherwise the branch would be locked until the process ends."""
    lock = tmp_path / "lock"
    with _full_disk(), pytest.raises(LedgerError, match="cannot be written") as caught:
        WriterLock(lock, what="the main line", now=NOW)
    assert "Make room on the disk" in caught.value.hint
    WriterLock(lock, what="the main line", now=NOW).release()
