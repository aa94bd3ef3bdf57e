"""The sandbox tests run again as an ordinary user, whose containers are rootless.

They run in a separate pytest process of that user: in ``make test`` a share of them, chosen by the
``conftest.py`` beside this file. Without root, the other tests are rootless already.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import random_cases
from podman_machine import OrdinaryUser
from published_server import PublishedServer

pytestmark = pytest.mark.xdist_group("podman-rootless")

SUITES = {
    "escapes": "escapes",
    "sandbox": "sandbox",
    "spare": "spare",
    "calls": "calls",
    "crash": "crash",
    "network": "reaches or report or large",
    "waiting": "two_branches or serves_one",
    "shell": "isolation",
    "services": "started_queried or changes_nothing or of_its_own or killed_process",
    "host_paths": "sees_no_path or at_any_step",
    "git": "shows_what or end_with_it or list_of_mounts",
}
"""What is selected of each suite; its other tests do not depend on the user."""
HERE = Path(__file__).parent.relative_to(Path(__file__).parents[3])


@pytest.mark.behaviour(64)
@pytest.mark.parametrize("is_share", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_the_tests_pass_as_an_ordinary_user(
    is_share: bool, ordinary_user: OrdinaryUser, published_server: PublishedServer
) -> None:
    selected = [f"(test_podman_{name} and ({tests}))" for name, tests in SUITES.items()]
    run = {random_cases.RUN: os.environ.get(random_cases.RUN, "alone")} if is_share else {}
    done = ordinary_user.python(
        *("-m", "pytest", "-q", "-p", "no:benchmark", "-p", "no:cacheprovider"),
        *("-o", "addopts=--strict-markers", "-rs", "-k", " or ".join(selected)),
        *(str(HERE / f"test_podman_{name}.py") for name in SUITES),
        more={PublishedServer.VARIABLE: published_server.text, **run},
    )
    output = done.stdout[-8_000:] + done.stderr[-2_000:]
    assert done.returncode == 0, output
    passed = re.search(r"(\d+) passed", done.stdout)
    skipped = re.search(r"(\d+) skipped", done.stdout)
    assert passed is not None, output
    assert int(skipped[1] if skipped else 0) < int(passed[1]) / 10, output
