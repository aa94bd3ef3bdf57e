"""Settings of the whole test suite.

Property tests use the same examples in every CI run, so that a green commit stays green. Local
runs and ``make soak`` generate new ones; ``make soak`` runs all of them with four times as many.

Workspaces are plain copies unless a test asks for overlays: many tests look into the folder of a
closed workspace, and an overlay shows its files only while it is mounted. The tests that matter for
both run on both; ``WINK_WORKSPACE_MODE=overlay`` runs all others on overlays, too.

Commands use no sandbox unless a test names one: checking which one works here takes seconds.

Each process that runs tests is in a network namespace with loopback only; see ``loopback``.

Of a corpus or suite with the mark ``share(n)``, ``make test`` runs *n* cases: in CI always the same,
otherwise others each time. ``make soak`` runs the rest, and pytest without workers all. A test with
the mark ``sweep`` does the same with the points of its loop; see ``random_cases``.

Groups of tests run first, those in ``FIRST_GROUPS`` before the others, so that no long one is left
for the end and only one worker waits for the sandbox images.

Coverage is measured in the processes that run tests. In the Python processes that these start it
takes 0.1 s each, so it is measured there only in the directories ``MEASURED_PROCESSES``.

Temporary directories are in memory if there is room; see ``on_disk``. ``make soak``,
``--basetemp`` and ``PYTEST_DEBUG_TEMPROOT`` put all of them on a disk.
"""

from __future__ import annotations

import gc
import os
import random
import re
import signal
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import loopback
import pytest
import random_cases
from hypothesis import HealthCheck, is_hypothesis_test, settings

MEMORY = Path("/dev/shm")
ENOUGH_BYTES = 4 * 2**30
"""Several times what two workers use at once."""


FIRST_GROUPS = ("podman", "browser", "ray")
MEASURED_PROCESSES = {"attempts", "mcp_server", "web"}
"""The directories of tests of code that mostly runs in processes of its own."""
COVERAGE = "COVERAGE_PROCESS_CONFIG"
"""The variable by which coverage's ``subprocess`` patch measures a new process."""
coverage_settings = os.environ.get(COVERAGE)


def has_room_in_memory() -> bool:
    """Return whether ``/dev/shm`` has room for test files and allows execution."""
    try:
        room = os.statvfs(MEMORY)
        free = re.search(r"MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        return False
    is_memory = re.search(rf" {MEMORY} tmpfs ", Path("/proc/mounts").read_text())
    n_bytes = min(room.f_bavail * room.f_frsize, int(free[1]) * 1024 if free else 0)
    return bool(is_memory) and n_bytes >= ENOUGH_BYTES and not room.f_flag & os.ST_NOEXEC


def pytest_configure(config: pytest.Config) -> None:
    """Choose network, temporary files and random cases; handle Ctrl-C also in the background."""
    only_coordinates = bool(config.getoption("numprocesses", None))  # workers run the tests
    config.option.loadscopereorder = False  # groups are ordered by `place_in_run`
    if os.geteuid() == 0 and not only_coordinates and not loopback.enter():
        raise pytest.UsageError("root cannot make a network namespace; run as an ordinary user")
    os.environ.setdefault("WINK_WORKSPACE_MODE", "copy")
    os.environ.setdefault("WINK_WORKSPACE_SANDBOX", "none")
    random_cases.in_soak = "soak" in asked_marks(config)
    settings.register_profile(
        "suite",
        max_examples=random_cases.examples(100),
        deadline=None,
        derandomize=bool(os.environ.get("CI")),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    settings.load_profile("suite")
    if not random_cases.in_soak and has_room_in_memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def asked_marks(config: pytest.Config) -> set[str]:
    """Return the names in the option ``-m``."""
    return set(re.findall(r"\w+", config.getoption("markexpr")))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that only ``make soak`` and ``make clients`` run, which name their mark."""
    if random_cases.RUN in os.environ:
        leave_rest_to_soak(items, seed=random_cases.run_seed())
    if random_cases.in_soak:
        for item in items:
            is_random = isinstance(item, pytest.Function) and is_hypothesis_test(item.obj)
            if is_random or item.get_closest_marker("sweep"):
                item.add_marker("soak")
    not_asked = {"soak", "clients"} - asked_marks(config)
    left_out = {item: None for item in items if any(map(item.get_closest_marker, not_asked))}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = sorted((item for item in items if item not in left_out), key=place_in_run)


def place_in_run(item: pytest.Item) -> int:
    """Return the sort key of a test; see the module."""
    group = item.get_closest_marker("xdist_group")
    if group is None:
        return len(FIRST_GROUPS) + 1
    name = group.args[0]
    return FIRST_GROUPS.index(name) if name in FIRST_GROUPS else len(FIRST_GROUPS)


def leave_rest_to_soak(items: Sequence[pytest.Item], *, seed: str) -> None:
    """Mark the cases that are not in the share of their function, class or module."""
    shared: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        for node, mark in item.iter_markers_with_node("share"):
            shared[node.nodeid.partition("[")[0], mark.args[0]].append(item)
    for (name, n_cases), cases in shared.items():
        chosen = random.Random(f"{seed} {name}").sample(cases, min(n_cases, len(cases)))
        for item in set(cases).difference(chosen):
            item.add_marker("soak")


def pytest_collection_finish() -> None:
    """Let later garbage collections skip modules and tests, which live as long as the process."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Choose whether processes that the test starts are measured."""
    if coverage_settings is not None and MEASURED_PROCESSES & set(item.path.parts):
        os.environ[COVERAGE] = coverage_settings
    else:
        os.environ.pop(COVERAGE, None)


@pytest.fixture
def left_streams() -> Iterator[None]:
    """Collects what inspect_ai left in a test, before the next one that collects fails for it."""
    yield
    gc.collect()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current and the home directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path
