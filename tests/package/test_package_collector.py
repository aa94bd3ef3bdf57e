"""Collections are paused for a block, and only for it."""

from __future__ import annotations

import gc
from contextlib import suppress

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
