"""Ctrl-C strikes a handler and nothing else."""

from __future__ import annotations

import contextlib
import dis
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import count
from types import FrameType

import pytest

from wink_workspace.runtime import interrupts
from wink_workspace.runtime.interrupts import DeferSigint, GuardedBlock


def press_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def test_an_interrupt_is_held_back_until_the_closed_block_ends() -> None:
    gate = DeferSigint()
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt), gate.closed():
        press_ctrl_c()
        steps.append("the block went on")
    assert steps == ["the block went on"]


def test_an_interrupt_strikes_at_once_where_the_gate_is_open() -> None:
    gate = DeferSigint()
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt), gate.closed(), gate.open():
        press_ctrl_c()
        steps.append("not reached")
    assert steps == []


def test_an_interrupt_held_back_strikes_when_the_gate_opens() -> None:
    gate = DeferSigint()
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt), gate.closed():
        press_ctrl_c()
        with gate.open():
            steps.append("not reached")
    assert steps == []


def test_the_first_interrupt_shuts_the_gate_so_that_a_second_cannot_hit_the_rollback() -> None:
    gate = DeferSigint()
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt), gate.closed():
        try:
            with gate.open():
                press_ctrl_c()
        except KeyboardInterrupt:
            press_ctrl_c()
            steps.append("rolled back")
            raise
    assert steps == ["rolled back"]


def test_an_inner_closed_block_delivers_to_the_open_one_around_it() -> None:
    gate = DeferSigint()
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt), gate.closed(), gate.open():
        with gate.closed():
            press_ctrl_c()
            steps.append("the inner call was completed")
        steps.append("not reached")
    assert steps == ["the inner call was completed"]


def test_the_handler_that_was_there_before_is_back_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT)
    with DeferSigint().closed():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_a_handler_that_does_not_raise_is_called_and_the_work_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        gate = DeferSigint()
        with gate.closed(), gate.open():
            press_ctrl_c()
            press_ctrl_c()
    finally:
        signal.signal(signal.SIGINT, previous)
    assert heard == [signal.SIGINT, signal.SIGINT]


def test_with_the_default_action_a_handler_is_unwound_rather_than_the_process_ended() -> None:
    previous = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        gate = DeferSigint()
        with pytest.raises(KeyboardInterrupt), gate.closed(), gate.open():
            press_ctrl_c()
    finally:
        signal.signal(signal.SIGINT, previous)


def test_an_ignored_interrupt_stays_ignored() -> None:
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with DeferSigint().closed():
            press_ctrl_c()
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, previous)


def test_an_installed_gate_alone_lets_every_interrupt_strike() -> None:
    gate, n_struck = DeferSigint(), 0
    before = signal.getsignal(signal.SIGINT)
    with gate.installed():
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                press_ctrl_c()
            n_struck += 1
    assert n_struck == 2
    assert signal.getsignal(signal.SIGINT) is before


def test_a_call_inside_an_installed_gate_is_protected_and_leaves_it_installed() -> None:
    gate, steps = DeferSigint(), []
    with gate.installed():
        installed = signal.getsignal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), gate.closed():
            press_ctrl_c()
            steps.append("the call was completed")
        assert signal.getsignal(signal.SIGINT) == installed
    assert steps == ["the call was completed"]


def test_other_threads_leave_the_signal_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def work() -> None:
        with DeferSigint().closed():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


counts_opcodes = pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="the sweep counts opcodes as CPython 3.11 traces them"
)

Entering = Callable[[DeferSigint], AbstractContextManager[None]]


@counts_opcodes
@pytest.mark.parametrize(
    "entered", [DeferSigint.closed, DeferSigint.installed], ids=["closed", "installed"]
)
def test_an_interrupt_at_any_instant_leaves_the_gate_as_it_was(entered: Entering) -> None:
    """Strike after the n-th step of the gate's own code, until there is no such step."""
    for n in count(1):
        gate, before = DeferSigint(), signal.getsignal(signal.SIGINT)
        striker = Striker(n)
        with contextlib.suppress(KeyboardInterrupt), striker, entered(gate):
            pass
        assert signal.getsignal(signal.SIGINT) == before, striker.where
        assert vars(gate) == vars(DeferSigint()) | {"_previous": gate._previous}, striker.where
        if striker.where is None:
            assert n > 15
            return


@counts_opcodes
def test_an_interrupt_at_any_instant_of_an_opening_leaves_the_gate_shut_around_it() -> None:
    for n in count(1):
        gate, striker = DeferSigint(), Striker(n)
        kept: list[BaseException] = []  # as a traceback that somebody holds on to
        with contextlib.suppress(KeyboardInterrupt), gate.closed():
            try:
                with striker, gate.open():
                    pass
            except KeyboardInterrupt as error:
                kept.append(error)
            assert not gate._open, striker.where
        kept.clear()
        assert gate._open, striker.where
        if striker.where is None:
            assert n > 5
            return


class Block(GuardedBlock):
    """Counts how often its end ran."""

    n_ended = 0

    def __enter__(self) -> None:
        self.open_gate()

    def _end(self, error: BaseException | None) -> bool:
        self.n_ended += 1
        return False


@counts_opcodes
def test_an_interrupt_at_any_instant_of_the_end_of_a_guarded_block_does_not_skip_it() -> None:
    for n in count(1):
        gate, striker = DeferSigint(), Striker(n)
        block = Block(gate)
        with contextlib.suppress(KeyboardInterrupt), gate.closed(), block, striker:
            pass
        assert block.n_ended == 1, striker.where
        with contextlib.suppress(KeyboardInterrupt), gate.closed():
            block = Block(gate)
            block.__enter__()
            with striker:
                block.__exit__(None, None, None)
            assert block.n_ended == 1, striker.where
        if striker.where is None:
            assert n > 2
            return


def test_an_interrupt_as_an_asynchronous_block_begins_to_end_does_not_skip_its_end() -> None:
    gate = DeferSigint()
    block = Block(gate)
    with pytest.raises(KeyboardInterrupt), gate.closed():
        block.__enter__()
        ending = block.__aexit__(None, None, None)
        on_signal = signal.getsignal(signal.SIGINT)
        assert callable(on_signal)
        on_signal(signal.SIGINT, ending.cr_frame)  # as the interpreter where it enters the function
        with pytest.raises(StopIteration):
            ending.send(None)
        assert block.n_ended == 1
    assert block.n_ended == 1


class Striker:
    """Sends SIGINT at the n-th place where the interpreter would look for one in the gate.

    Those places are the start of a function and the return from a call, which is where the
    next instruction is traced.
    """

    def __init__(self, n: int) -> None:
        self._n_left = n
        self._due: set[FrameType] = set()
        self._tracer = sys.gettrace()
        self.where: tuple[str, int] | None = None

    def __enter__(self) -> None:
        sys.settrace(self._called)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._tracer)
        self._due.clear()

    def _called(self, frame: FrameType, event: str, argument: object) -> object:
        if frame.f_code.co_filename not in (interrupts.__file__, contextlib.__file__):
            return None
        frame.f_trace_opcodes = True
        self._due.add(frame)
        return self._traced

    def _traced(self, frame: FrameType, event: str, argument: object) -> object:
        if event != "opcode":
            return self._traced
        self._n_left -= frame in self._due
        if frame in self._due and self._n_left == 0:
            self.where = (frame.f_code.co_name, frame.f_lineno)
            sys.settrace(None)
            press_ctrl_c()
        self._due.discard(frame)
        if dis.opname[frame.f_code.co_code[frame.f_lasti]] in ("CALL", "CALL_KW", "RESUME"):
            self._due.add(frame)
        return self._traced
