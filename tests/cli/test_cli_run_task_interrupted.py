"""``run TASK`` interrupted by Ctrl-C or a kill at any moment: what remains, and what resumes."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator

import pytest
from cli_user import CHECK, DONE, FIX, PLAN, READ, SEARCH, CliUser, edit
from model_server import Call, Turn
from run_signals import prepare_interrupted_run, run_server

TURNS = (
    Turn("A plan first.", (PLAN, SEARCH)),
    Turn("", (READ,)),
    Turn("Two edits of one file.", (FIX, edit("(Exception)", "(ValueError)"))),
    Turn("", (Call("write_file", {"file_path": "new.txt", "content": "new\n"}), Call("fix_it"))),
    Turn("", (Call("planning_update_step", {"step_id": 1, "status": "done"}),)),
    Turn("", (Call("rm", {"path": "iniconfig/py.typed"}),)),
    DONE,
)
WRITES = "write_text('made.txt', 'made\\n'); write_text('new.txt', 'by code\\n')"
CODE = (
    Turn("", (READ, FIX)),
    Turn("Right now?", (CHECK,)),
    Turn("", (Call("evaluate_python", {"code": WRITES, "writes": ["made.txt", "new.txt"]}),)),
    DONE,
)

Server = subprocess.Popen[str]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with run_server() as process:
        yield process


def test_run_interrupted_at_any_moment_is_between_two_calls_and_resumes_to_the_same_end(
    user: CliUser, server: Server
) -> None:
    run = prepare_interrupted_run(user, server, TURNS)
    assert len({files for files, *_ in run.states}) == 5
    assert len(set(map(str, run.states))) == 7
    run.interrupt_at_random(signal.SIGINT, 1)
    run.interrupt_at_random(signal.SIGKILL, 1)


def test_run_in_place_interrupted_at_any_moment_leaves_the_directory_between_two_calls(
    user: CliUser, server: Server
) -> None:
    run = prepare_interrupted_run(user, server, TURNS, "--in-place")
    assert len({str(contents) for *_, contents in run.states}) == 5
    run.interrupt_at_random(signal.SIGINT, 1)
    run.interrupt_at_random(signal.SIGKILL, 1)


def test_run_with_a_sandbox_interrupted_at_any_moment_leaves_no_process(
    user: CliUser, server: Server
) -> None:
    run = prepare_interrupted_run(user, server, CODE, "--sandbox", "asteval")
    assert len({files for files, *_ in run.states}) == 3
    run.interrupt_at_random(signal.SIGINT, 1)
    run.interrupt_at_random(signal.SIGKILL, 1)


@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize(
    ("turns", "options"),
    [(TURNS, ()), (TURNS, ("--in-place",)), (CODE, ("--sandbox", "asteval"))],
)
def test_run_interrupted_at_150_moments_resumes_to_the_same_end(
    user: CliUser, server: Server, turns: tuple[Turn, ...], options: tuple[str, ...], number: int
) -> None:
    prepare_interrupted_run(user, server, turns, *options).interrupt_at_random(number, 150)
