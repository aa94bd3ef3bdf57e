"""Collections are paused for a block, and only for it."""

from __future__ import annotations

import gc
import subprocess
import sys
from contextlib import suppress

import pytest

from wink_workspace._collector import CollectorPaused


def test_collector_runs_again_after_the_outermost_block_also_after_an_error() -> None:
    assert gc.isenabled()
    with CollectorPaused():
        with CollectorPaused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with suppress(ValueError), CollectorPaused():
        raise ValueError
    assert gc.isenabled()


def test_collector_that_the_program_disabled_stays_disabled() -> None:
    gc.disable()
    try:
        with CollectorPaused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


FORKED_MEANWHILE = """
import gc, os, sys, threading
from wink_workspace._collector import CollectorPaused

if sys.argv[1] == "disabled":
    gc.disable()
is_paused, may_end = threading.Event(), threading.Event()

def pause():
    with CollectorPaused():
        is_paused.set()
        may_end.wait()

thread = threading.Thread(target=pause)
thread.start()
is_paused.wait()
child = os.fork()
if child == 0:
    os._exit(gc.isenabled())
may_end.set()
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), int(gc.isenabled()))
"""


@pytest.mark.parametrize(("program", "printed"), [("enabled", "1 1"), ("disabled", "0 0")])
def test_a_child_forked_during_a_pause_collects_if_its_parent_does(
    program: str, printed: str
) -> None:
    command = [sys.executable, "-c", FORKED_MEANWHILE, program]
    assert subprocess.check_output(command, text=True).strip() == printed
