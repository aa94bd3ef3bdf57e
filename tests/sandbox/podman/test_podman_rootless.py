"""The sandbox tests run again as an ordinary user, whose containers are rootless.

They run in a separate pytest process of that user. Without root, the other tests are rootless
already.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from podman_machine import OrdinaryUser
from published_server import PublishedServer

pytestmark = pytest.mark.xdist_group("podman-rootless")

ONLY = {
    "network": "reaches or report or large",
    "waiting": "two_branches or serves_one",
    "git": "shows_what or end_with_it or list_of_mounts",
    "shell": "isolation",
    "host_paths": "sees_no_path or at_any_step",
    "services": "started_queried or changes_nothing or of_its_own or killed_process",
}
"""What is selected of a suite whose other tests do not depend on the user."""
HERE = Path(__file__).parent.relative_to(Path(__file__).parents[3])


@pytest.mark.behaviour(64)
@pytest.mark.parametrize(
    "suite",
    [
        *("escapes", "sandbox", "spare", "calls", "crash", "network", "waiting", "shell"),
        *("services", "host_paths", "git"),
    ],
)
def test_the_tests_pass_as_an_ordinary_user(
    suite: str, ordinary_user: OrdinaryUser, published_server: PublishedServer
) -> None:
    done = ordinary_user.python(
        *("-m", "pytest", "-q", "-p", "no:benchmark", "-p", "no:cacheprovider"),
        *("-o", "addopts=--strict-markers", "-rs", str(HERE / f"test_podman_{suite}.py")),
        *(("-k", ONLY[suite]) if suite in ONLY else ()),
        more={PublishedServer.VARIABLE: published_server.text},
    )
    output = done.stdout[-8_000:] + done.stderr[-2_000:]
    assert done.returncode == 0, output
    passed = re.search(r"(\d+) passed", done.stdout)
    skipped = re.search(r"(\d+) skipped", done.stdout)
    assert passed is not None, output
    assert int(skipped[1] if skipped else 0) < int(passed[1]) / 10, output
