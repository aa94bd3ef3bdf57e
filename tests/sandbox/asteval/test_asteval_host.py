"""How the host handles failures of the server and mistakes of the caller."""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Iterator

import pytest
from asteval_support import evaluate, opened, server_pid

from wink_workspace.clock import ManualClock
from wink_workspace.errors import LimitExceededError, SandboxBrokenError, UsageError
from wink_workspace.sandbox.asteval import AstevalSandbox, CodeError
from wink_workspace.sandbox.asteval import evaluator as host
from wink_workspace.sandbox.asteval.pipe_frames import encode_frame


@pytest.fixture(scope="module")
def sandbox() -> Iterator[AstevalSandbox]:
    with opened(timeout_s=30.0) as made:
        yield made


def kill_and_wait(pid: int) -> None:
    """Kill *pid* and wait until it is dead."""
    process = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    poll = select.poll()
    poll.register(process, select.POLLIN)
    assert poll.poll(30_000), "watchdog"
    os.close(process)


def test_a_server_whose_death_is_noticed_late_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with opened(timeout_s=30.0) as sandbox:
        server = server_pid(sandbox)
        # The moment between a death and its detection cannot be reproduced from outside.
        monkeypatch.setattr(host, "_is_over", lambda control: False)
        kill_and_wait(server)
        assert evaluate(sandbox, "6 * 7").value.json == 42
        assert server_pid(sandbox) != server


def test_the_time_limit_holds_while_data_keeps_arriving(
    sandbox: AstevalSandbox,
) -> None:
    server_pid(sandbox)
    clock = ManualClock()
    with host._Child(sandbox._server, sandbox.config, clock) as child:
        child.ready_layers()
        child.begin(30.0)
        child.send(encode_frame("probe"))
        poll = select.poll()
        poll.register(child._pipe, select.POLLIN)
        assert poll.poll(30_000), "watchdog"
        clock.advance(31.0)
        with pytest.raises(TimeoutError):
            child.receive(0)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b'{"failed": "no more processes"}', SandboxBrokenError),
        (b"", host._ServerGoneError),
        (b"rubbish", SandboxBrokenError),
        (b"[]", SandboxBrokenError),
    ],
)
def test_a_server_that_passes_no_descriptors_breaks_the_protocol(
    answer: bytes, kind: type[Exception]
) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            theirs.send(answer)
        with pytest.raises(kind):
            host._receive_child(ours)


def test_a_server_that_passes_too_few_descriptors_leaks_none() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count
        socket.send_fds(theirs, [b"{}"], [theirs.fileno()])
        with pytest.raises(SandboxBrokenError, match="run out"):
            host._receive_child(ours)
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - as above


def test_a_silent_server_fails_after_the_timeout() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        ours.settimeout(0.01)
        with pytest.raises(SandboxBrokenError, match="did not answer"):
            host._receive_child(ours)


@pytest.mark.parametrize("layers", [None, "x", [1], [["a", "b", "c"]], [["a", True]]])
def test_malformed_layers_are_refused(layers: object) -> None:
    with pytest.raises(SandboxBrokenError):
        host._layers(layers)


def test_names_that_cannot_be_sent_are_refused_as_the_callers_mistake(
    sandbox: AstevalSandbox,
) -> None:
    with pytest.raises(LimitExceededError, match="are too large"):
        evaluate(sandbox, "1", x="y" * 5_000_000)
    with pytest.raises(UsageError, match="cannot be sent"):
        evaluate(sandbox, "1", x=float("nan"))
    with pytest.raises(UsageError, match="cannot be a name"):
        evaluate(sandbox, "1", _x=1)


def test_a_signal_is_shown_by_name_or_number() -> None:
    assert host._signal_name(9) == "SIGKILL"
    assert host._signal_name(999) == "signal 999"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (CodeError("E", ""), "E"),
        (CodeError("E", "m", 2, 3, "\tab"), "line 2:\n    \tab\n    \t ^\nE: m"),
        (CodeError("E", "m", 2, 0, "ab"), "line 2:\n    ab\nE: m"),
    ],
)
def test_an_error_is_shown_with_a_caret_below_its_column(error: CodeError, text: str) -> None:
    assert str(error) == text


def test_a_long_line_is_shortened_around_its_error() -> None:
    shown = str(CodeError("E", "m", 1, 5_000, "x" * 4_999 + "!" + "x" * 5_000)).splitlines()
    assert len(shown[1]) < 200
    assert shown[1][shown[2].index("^")] == "!"
