"""Directories on the machine's disk, for the packages that import this fixture.

Other packages use memory if it is large enough (see ``conftest``): on a disk, tests that commit
spend most of their time in ``fsync``, which has no visible effect unless the machine crashes.
Tests of inode numbers, timestamps and directory order need a real disk.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest

from wink_workspace.errors import FilesystemError
from wink_workspace.workspace.place.shared_folders import delete_tree


@pytest.fixture(scope="session")
def tmp_path_factory(
    tmp_path_factory: pytest.TempPathFactory,
) -> Generator[pytest.TempPathFactory]:
    """The factory of ``tmp_path`` and of directories that modules share, below ``TMPDIR``."""
    directory = Path(tempfile.mkdtemp(prefix="wink-tests-")).resolve()
    factory = copy.copy(tmp_path_factory)
    factory._basetemp = directory
    yield factory
    with suppress(FilesystemError):
        delete_tree(directory)  # rmtree is limited to some hundred nested directories
