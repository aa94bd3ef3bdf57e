"""One process that kills for all tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kill_rig import Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The process that runs and kills."""
    server = Server()
    yield server
    server.close()
