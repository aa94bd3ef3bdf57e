"""One kill server for all tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kill_rig import Server
from overlay_files import close_shown, show_files


@pytest.fixture(autouse=True, scope="session")
def _shown_files() -> Iterator[None]:
    """Let all tests look into branches on overlays."""
    with pytest.MonkeyPatch.context() as patch:
        show_files(patch)
        yield
        close_shown()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The process that runs calls in children and kills them."""
    server = Server()
    yield server
    server.close()
