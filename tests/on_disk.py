"""Directories on the machine's disk, for the packages that import this fixture.

Elsewhere they are in memory where there is enough (see ``conftest``): on a disk, most of the time
of a test that commits is spent in ``fsync``, which decides nothing while the machine stays up.
What a filesystem decides does need one: inode numbers, timestamps, the order of a directory.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tmp_path_factory(
    tmp_path_factory: pytest.TempPathFactory,
) -> Generator[pytest.TempPathFactory]:
    """The factory of ``tmp_path`` and of all that modules share, below ``TMPDIR``."""
    with tempfile.TemporaryDirectory(prefix="wink-tests-", ignore_cleanup_errors=True) as place:
        factory = copy.copy(tmp_path_factory)
        factory._basetemp = Path(place).resolve()
        yield factory
