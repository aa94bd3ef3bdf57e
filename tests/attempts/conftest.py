"""A workspace with a package to fix, and one Ray cluster for all tests that need one."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import attempt_functions as do
import pytest
from ray_cluster import RayCluster

from wink_workspace.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    source = tmp_path / "source"
    for name, text in do.PACKAGE.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    with Workspace.temporary(source) as opened:
        yield opened


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[RayCluster]:
    """Two nodes, of which the first has the resource ``podman``; this process is connected."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own, in this process
        started = RayCluster()
        try:
            started.add_node(podman=1)
            started.add_node()
            started.connect()
            yield started
        finally:
            started.close()
            gc.collect()
