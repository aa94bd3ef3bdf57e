"""The abstract suite of fsspec, run on ``wink://``.

All of it passes, so there is no list of cases that cannot.
"""

from __future__ import annotations

import pytest
from closed_workspace import ClosedWorkspace
from fsspec_suite import *  # noqa: F403 - the suite is its classes

from wink_workspace.integrations.fsspec import WinkFileSystem


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> WinkFileSystem:
    """One workspace for all cases; making one for each takes most of the time."""
    return ClosedWorkspace(tmp_path_factory.mktemp("abstract")).fs()


@pytest.fixture
def implementation(shared: WinkFileSystem) -> WinkFileSystem:
    if shared.ls("/"):
        shared.rm("/", recursive=True)
    return shared
