"""Every known way out of the sandbox is tried; it leaves no trace on the host or in the files.

The attempts are made by root and, in ``test_podman_rootless``, by an ordinary user.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack

import pytest
from escape_rig import *  # noqa: F403 - the attempts that are made against every sandbox
from escape_rig import SMALL, Target
from published_server import SECRET, PublishedServer

from wink_workspace.filesystem.overlay.mounting import overlay_support
from wink_workspace.sandbox.podman import PodmanConfig, PodmanService

pytestmark = [pytest.mark.xdist_group("podman-escapes"), pytest.mark.share(120)]  # of both modes


@pytest.fixture(scope="module", params=["overlay", pytest.param("copy", marks=pytest.mark.soak)])
def target(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    published_server: PublishedServer,
    service: PodmanService,
) -> Generator[Target]:
    """A branch on an overlay; in ``make soak`` also a plain copy."""
    folder = tmp_path_factory.mktemp("target")
    support = overlay_support(folder)
    mode = request.param if support.available else "copy"
    with ExitStack() as stack:
        config = PodmanConfig(**SMALL)
        server, engine = published_server.text, service.socket_path
        yield Target(folder, config, mode, stack, server=server, engine=engine)


def test_the_published_server_answers_outside_of_the_sandbox(
    published_server: PublishedServer,
) -> None:
    assert published_server.answer().strip() == SECRET
