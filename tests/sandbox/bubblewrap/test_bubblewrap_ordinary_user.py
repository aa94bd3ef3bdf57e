"""The tests of the sandbox run again as an ordinary user, in a separate pytest process."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import random_cases
from sandbox.podman.podman_machine import OrdinaryUser

pytestmark = pytest.mark.xdist_group("bubblewrap-user")

HERE = Path(__file__).parent.relative_to(Path(__file__).parents[3])


def test_the_tests_pass_as_an_ordinary_user(ordinary_user: OrdinaryUser) -> None:
    done = ordinary_user.python(
        *("-m", "pytest", "-q", "-p", "no:benchmark", "-p", "no:cacheprovider"),
        *("-o", "addopts=--strict-markers", "-rs", str(HERE)),
        *("--deselect", str(HERE / Path(__file__).name)),
        *("--deselect", str(HERE / "test_bubblewrap_projects.py")),  # has this user, too
        *("--deselect", str(HERE / "test_bubblewrap_other_users.py")),  # likewise
        more={random_cases.RUN: os.environ.get(random_cases.RUN, "0"), "BUBBLEWRAP_SHARE": "70"},
    )
    output = done.stdout[-8_000:] + done.stderr[-2_000:]
    assert done.returncode == 0, output
    assert sum(map(int, re.findall(r"(\d+) (?:passed|skipped)", done.stdout))) == 70, output
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert all("have no freezer" in line for line in skipped), output
