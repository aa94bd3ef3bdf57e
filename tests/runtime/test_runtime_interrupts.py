"""Ctrl-C interrupts a handler and nothing else."""

from __future__ import annotations

import contextlib
import dis
import functools
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from itertools import count
from types import FrameType

import pytest

from wink_workspace.runtime import interrupts
from wink_workspace.runtime.interrupts import DeferSigint, GuardedBlock

Entering = Callable[[DeferSigint], AbstractContextManager[None]]


def press_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def test_an_interrupt_is_deferred_until_the_block_ends() -> None:
    sigint = DeferSigint()
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt), sigint.deferred():
        press_ctrl_c()
        steps.append("the block continued")
    assert steps == ["the block continued"]


def test_an_interrupt_is_raised_at_once_in_a_delivering_block() -> None:
    sigint = DeferSigint()
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt), sigint.deferred(), sigint.delivered():
        press_ctrl_c()
        steps.append("not reached")
    assert steps == []


def test_a_deferred_interrupt_is_raised_when_a_delivering_block_begins() -> None:
    sigint = DeferSigint()
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt), sigint.deferred():
        press_ctrl_c()
        with sigint.delivered():
            steps.append("not reached")
    assert steps == []


def test_a_second_interrupt_is_deferred_during_the_rollback_after_the_first() -> None:
    sigint = DeferSigint()
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt), sigint.deferred():
        try:
            with sigint.delivered():
                press_ctrl_c()
        except KeyboardInterrupt:
            press_ctrl_c()
            steps.append("rolled back")
            raise
    assert steps == ["rolled back"]


def test_an_inner_deferring_block_delivers_at_its_end_to_the_block_around_it() -> None:
    sigint = DeferSigint()
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt), sigint.deferred(), sigint.delivered():
        with sigint.deferred():
            press_ctrl_c()
            steps.append("the inner call was completed")
        steps.append("not reached")
    assert steps == ["the inner call was completed"]


def test_the_previous_signal_handler_is_restored() -> None:
    before = signal.getsignal(signal.SIGINT)
    with DeferSigint().deferred():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_handler_that_does_not_raise_is_called_and_the_work_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    received: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, frame: received.append(number))
    try:
        sigint = DeferSigint()
        with sigint.deferred(), sigint.delivered():
            press_ctrl_c()
            press_ctrl_c()
    finally:
        signal.signal(signal.SIGINT, previous)
    assert received == [signal.SIGINT, signal.SIGINT]


def test_with_the_default_action_an_interrupt_raises_instead_of_ending_the_process() -> None:
    previous = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        sigint = DeferSigint()
        with pytest.raises(KeyboardInterrupt), sigint.deferred(), sigint.delivered():
            press_ctrl_c()
    finally:
        signal.signal(signal.SIGINT, previous)


def test_an_ignored_interrupt_stays_ignored() -> None:
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with DeferSigint().deferred():
            press_ctrl_c()
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, previous)


def test_installing_alone_defers_no_interrupt() -> None:
    sigint, n_raised = DeferSigint(), 0
    before = signal.getsignal(signal.SIGINT)
    with sigint.installed():
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                press_ctrl_c()
            n_raised += 1
    assert n_raised == 2
    assert signal.getsignal(signal.SIGINT) is before


def test_a_deferring_block_inside_an_installed_one_leaves_the_handler_installed() -> None:
    sigint, steps = DeferSigint(), []
    with sigint.installed():
        installed = signal.getsignal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), sigint.deferred():
            press_ctrl_c()
            steps.append("the call was completed")
        assert signal.getsignal(signal.SIGINT) == installed
    assert steps == ["the call was completed"]


def test_blocks_of_two_sessions_defer_and_restore_the_handler_in_any_order_of_ending() -> None:
    before, steps = signal.getsignal(signal.SIGINT), []
    for _ in range(2):
        first, second = DeferSigint().deferred(), DeferSigint().deferred()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        press_ctrl_c()
        steps.append("the second block continued")
        with pytest.raises(KeyboardInterrupt):
            second.__exit__(None, None, None)
        assert signal.getsignal(signal.SIGINT) is before
    assert len(steps) == 2


def test_an_interrupt_waits_for_every_session_that_defers_it() -> None:
    outer, inner, steps = DeferSigint(), DeferSigint(), []
    with pytest.raises(KeyboardInterrupt), outer.deferred():
        with inner.deferred():
            press_ctrl_c()
            with inner.delivered():
                steps.append("the outer session defers it")
        steps.append("still")
    assert steps == ["the outer session defers it", "still"]


def test_other_threads_do_not_change_the_signal_handler() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def work() -> None:
        with DeferSigint().deferred():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


@pytest.mark.parametrize("entered", [DeferSigint.deferred, DeferSigint.installed])
def test_a_block_of_another_thread_leaves_the_handler_that_the_main_thread_installed_meanwhile(
    entered: Entering,
) -> None:
    before, sigint = signal.getsignal(signal.SIGINT), DeferSigint()
    has_begun, may_end = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            with entered(sigint):
                has_begun.set()
                may_end.wait()
        except ValueError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    has_begun.wait()
    with sigint.installed():
        installed = signal.getsignal(signal.SIGINT)
        may_end.set()
        thread.join()
        assert signal.getsignal(signal.SIGINT) is installed
    assert errors == []
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_that_another_thread_defers_is_raised_when_the_handler_is_removed() -> None:
    sigint, steps = DeferSigint(), []
    has_begun, may_end = threading.Event(), threading.Event()

    def work() -> None:
        with sigint.deferred():
            has_begun.set()
            may_end.wait()

    thread = threading.Thread(target=work)
    thread.start()
    has_begun.wait()
    try:
        with pytest.raises(KeyboardInterrupt), sigint.installed():
            press_ctrl_c()
            steps.append("deferred")
    finally:
        may_end.set()
        thread.join()
    assert steps == ["deferred"]


def test_a_program_that_restores_the_handler_of_an_ended_block_can_still_be_interrupted() -> None:
    before, sigint = signal.getsignal(signal.SIGINT), DeferSigint()
    with sigint.deferred():
        of_the_block = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, of_the_block)
    try:
        with pytest.raises(KeyboardInterrupt), sigint.deferred(), sigint.delivered():
            press_ctrl_c()
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGINT, before)


_needs_opcodes = pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="the sweep counts opcodes as CPython 3.11 traces them"
)


def counts_opcodes(test: Callable[..., None]) -> Callable[..., None]:
    """Run the test in a generator, which has an exception state of its own.

    CPython 3.11 never clears the state of a handler that an interrupt ends at its first
    instruction. Tests that run later would be inside of that handler.
    """

    @functools.wraps(test)
    def confined(*args: object, **options: object) -> None:
        def body() -> Generator[None, None, None]:
            yield test(*args, **options)

        next(body())

    return _needs_opcodes(confined)


@counts_opcodes
@pytest.mark.parametrize(
    "entered", [DeferSigint.deferred, DeferSigint.installed], ids=["deferred", "installed"]
)
def test_an_interrupt_at_any_instant_leaves_the_state_unchanged(entered: Entering) -> None:
    """Send SIGINT after the n-th step of the block's own code, until there is no such step."""
    for n in count(1):
        sigint, before = DeferSigint(), signal.getsignal(signal.SIGINT)
        sender = SignalSender(n)
        with contextlib.suppress(KeyboardInterrupt), sender, entered(sigint):
            pass
        assert signal.getsignal(signal.SIGINT) == before, sender.where
        assert vars(sigint) == vars(DeferSigint()), sender.where
        assert not interrupts._handler.is_pending, sender.where
        if sender.where is None:
            assert n > 15
            return


@counts_opcodes
def test_an_interrupt_at_any_instant_of_a_delivering_block_leaves_the_outer_one_deferring() -> None:
    for n in count(1):
        sigint, sender = DeferSigint(), SignalSender(n)
        errors: list[BaseException] = []  # keeps the traceback alive
        with contextlib.suppress(KeyboardInterrupt), sigint.deferred():
            try:
                with sender, sigint.delivered():
                    pass
            except KeyboardInterrupt as error:
                errors.append(error)
            assert not sigint._delivers, sender.where
        errors.clear()
        assert sigint._delivers, sender.where
        if sender.where is None:
            assert n > 5
            return


class Block(GuardedBlock):
    """Counts how often its end ran."""

    n_ended = 0

    def __enter__(self) -> None:
        self.deliver_sigint()

    def _end(self, error: BaseException | None) -> bool:
        self.n_ended += 1
        return False


@counts_opcodes
def test_an_interrupt_at_any_instant_of_the_end_of_a_guarded_block_does_not_skip_it() -> None:
    for n in count(1):
        sigint, sender = DeferSigint(), SignalSender(n)
        block = Block(sigint)
        with contextlib.suppress(KeyboardInterrupt), sigint.deferred(), block, sender:
            pass
        assert block.n_ended == 1, sender.where
        with contextlib.suppress(KeyboardInterrupt), sigint.deferred():
            block = Block(sigint)
            block.__enter__()
            with sender:
                block.__exit__(None, None, None)
            assert block.n_ended == 1, sender.where
        if sender.where is None:
            assert n > 2
            return


def test_an_interrupt_as_an_asynchronous_block_begins_to_end_does_not_skip_its_end() -> None:
    sigint = DeferSigint()
    block = Block(sigint)
    with pytest.raises(KeyboardInterrupt), sigint.deferred():
        block.__enter__()
        ending = block.__aexit__(None, None, None)
        on_signal = signal.getsignal(signal.SIGINT)
        assert callable(on_signal)
        on_signal(signal.SIGINT, ending.cr_frame)  # as the interpreter where it enters the function
        with pytest.raises(StopIteration):
            ending.send(None)
        assert block.n_ended == 1
    assert block.n_ended == 1


class SignalSender:
    """Sends SIGINT at the n-th place where the interpreter checks for signals in these modules.

    Those places are the start of a function and the return from a call, where the next instruction
    is traced.
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
