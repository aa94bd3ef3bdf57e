"""``run TASK`` interrupted by Ctrl-C or a kill at any moment: what remains, and what resumes."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator

import pytest
from model_server import Call, Says
from run_rig import CHECK, DONE, MEND, PLAN, READ, SEARCH, RunRig, edit
from run_signals import ring_around, striking_server

TURNS = (
    Says("A plan first.", (PLAN, SEARCH)),
    Says("", (READ,)),
    Says("Two edits of one file.", (MEND, edit("(Exception)", "(ValueError)"))),
    Says("", (Call("write_file", {"file_path": "new.txt", "content": "new\n"}), Call("fix_it"))),
    Says("", (Call("planning_update_step", {"step_id": 1, "status": "done"}),)),
    Says("", (Call("rm", {"path": "iniconfig/py.typed"}),)),
    DONE,
)
WRITES = "write_text('made.txt', 'made\\n'); write_text('new.txt', 'by code\\n')"
CODE = (
    Says("", (READ, MEND)),
    Says("Right now?", (CHECK,)),
    Says("", (Call("evaluate_python", {"code": WRITES, "writes": ["made.txt", "new.txt"]}),)),
    DONE,
)

Server = subprocess.Popen[str]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with striking_server() as process:
        yield process


def test_run_interrupted_at_any_moment_is_between_two_calls_and_resumes_to_the_same_end(
    user: RunRig, server: Server
) -> None:
    ring = ring_around(user, server, TURNS)
    assert len({files for files, *_ in ring.states}) == 5
    assert len(set(map(str, ring.states))) == 7
    ring.strikes(signal.SIGINT, 7)
    ring.strikes(signal.SIGKILL, 6)


def test_run_in_place_interrupted_at_any_moment_leaves_the_directory_between_two_calls(
    user: RunRig, server: Server
) -> None:
    ring = ring_around(user, server, TURNS, "--in-place")
    assert len({str(contents) for *_, contents in ring.states}) == 5
    ring.strikes(signal.SIGINT, 3)
    ring.strikes(signal.SIGKILL, 2)


def test_run_with_a_sandbox_interrupted_at_any_moment_leaves_no_process(
    user: RunRig, server: Server
) -> None:
    ring = ring_around(user, server, CODE, "--sandbox", "asteval")
    assert len({files for files, *_ in ring.states}) == 3
    ring.strikes(signal.SIGINT, 2)
    ring.strikes(signal.SIGKILL, 1)


@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize(
    ("turns", "options"),
    [(TURNS, ()), (TURNS, ("--in-place",)), (CODE, ("--sandbox", "asteval"))],
)
def test_run_interrupted_at_150_moments_resumes_to_the_same_end(
    user: RunRig, server: Server, turns: tuple[Says, ...], options: tuple[str, ...], number: int
) -> None:
    ring_around(user, server, turns, *options).strikes(number, 150)
