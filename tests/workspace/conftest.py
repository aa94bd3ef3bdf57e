"""One kill server for all tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kill_rig import Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The process that runs calls in children and kills them."""
    server = Server()
    yield server
    server.close()
