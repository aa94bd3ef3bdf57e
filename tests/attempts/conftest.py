"""One Ray cluster for all tests that need one; they run in one process."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest
from ray_cluster import RayCluster


@pytest.fixture(scope="session")
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
