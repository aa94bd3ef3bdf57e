"""Directories on the machine's disk, for the packages that import this fixture.

Other packages use memory if it is large enough (see ``conftest``): on a disk, tests that commit
spend most of their time in ``fsync``, which has no visible effect unless the machine crashes.
Tests of inode numbers, timestamps and directory order need a real disk.
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
    """The factory of ``tmp_path`` and of directories that modules share, below ``TMPDIR``."""
    with tempfile.TemporaryDirectory(prefix="wink-tests-", ignore_cleanup_errors=True) as directory:
        factory = copy.copy(tmp_path_factory)
        factory._basetemp = Path(directory).resolve()
        yield factory
