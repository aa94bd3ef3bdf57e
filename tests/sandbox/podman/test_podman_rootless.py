"""The tests of the sandbox once more, by an ordinary user, whose containers are rootless.

They run in a pytest of that user's. Run as root, both halves are covered; run by an ordinary
user, the other tests are this half already.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from podman_machine import OrdinaryUser
from published_server import PublishedServer

pytestmark = pytest.mark.xdist_group("podman-rootless")

HERE = Path(__file__).parent.relative_to(Path(__file__).parents[3])


@pytest.mark.behaviour(64)
@pytest.mark.parametrize("suite", ["escapes", "sandbox", "spare", "calls", "crash"])
def test_what_holds_for_root_holds_for_an_ordinary_user(
    suite: str, ordinary_user: OrdinaryUser, published_server: PublishedServer
) -> None:
    done = ordinary_user.python(
        *("-m", "pytest", "-q", "-p", "no:benchmark", "-p", "no:cacheprovider"),
        *("-o", "addopts=--strict-markers", "-rs", str(HERE / f"test_podman_{suite}.py")),
        more={PublishedServer.VARIABLE: published_server.text},
    )
    told = done.stdout[-8_000:] + done.stderr[-2_000:]
    assert done.returncode == 0, told
    passed = re.search(r"(\d+) passed", done.stdout)
    skipped = re.search(r"(\d+) skipped", done.stdout)
    assert passed is not None, told
    assert int(skipped[1] if skipped else 0) < int(passed[1]) / 10, told
