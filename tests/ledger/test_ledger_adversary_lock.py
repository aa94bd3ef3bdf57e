"""A lock that cannot be written is nobody's."""

from __future__ import annotations

import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ledger_support import NOW

from wink_workspace.errors import LedgerError
from wink_workspace.ledger.lock import WriterLock


@contextmanager
def _no_room() -> Generator[None]:
    """No file can be written, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_lock_that_cannot_be_written_can_be_had_once_there_is_room(tmp_path: Path) -> None:
    """By the same process, too: it would have to end before anybody could open the line."""
    lock = tmp_path / "lock"
    with _no_room(), pytest.raises(LedgerError, match="cannot be written") as caught:
        WriterLock(lock, what="the main line", now=NOW)
    assert "Make room on the disk" in caught.value.hint
    WriterLock(lock, what="the main line", now=NOW).release()
