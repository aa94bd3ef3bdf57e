"""Excessive use of time, memory, output and processes is ended; the next evaluation works."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from asteval_support import children_of, evaluate, n_descriptors, opened, server_pid

from wink_workspace.clock import Cancellation, Deadline, ManualClock
from wink_workspace.filesystem import MemoryFilesystem, parse_path
from wink_workspace.sandbox.asteval import (
    AstevalConfig,
    AstevalSandbox,
    EndReason,
    EvaluationRequest,
)
from wink_workspace.sandbox.asteval.launching import ServerProcess

TIMEOUT_S = 1.0
MEMORY_BYTES = 64 * 1_048_576
BACKTRACKING = "import re\nre.match('(a|a)*$', 'a' * 60 + 'b')"
NESTED = "x = []\nfor _ in range(100000):\n    x = [x]\n"

EXCESSES = [
    ("a loop", "while True: pass", EndReason.DEADLINE, EndReason.DEADLINE),
    ("a huge power", "9 ** 9 ** 9", EndReason.DEADLINE, EndReason.DEADLINE),
    ("a long text", "x = 'a' * 10**12", EndReason.MEMORY, EndReason.MEMORY),
    ("a long list", "x = [0] * 10**10", EndReason.MEMORY, EndReason.MEMORY),
    ("a growing list", "x = [0]\nwhile True:\n    x = x + x", EndReason.MEMORY, EndReason.MEMORY),
    ("a growing text", "x = 'ab'\nwhile True:\n    x = x.replace('a', 'aa' * 50)", EndReason.MEMORY,
     EndReason.MEMORY),
    ("a range made a list", "list(range(10**12))", EndReason.MEMORY, EndReason.MEMORY),
    ("a sum", "sum(range(10**13))", EndReason.DEADLINE, EndReason.DEADLINE),
    ("deep recursion", "def f(n): return f(n + 1)\nf(0)", EndReason.ERROR, EndReason.ERROR),
    ("deep values", NESTED + "x", EndReason.VALUE, None),
    ("deep values as text", NESTED + "repr(x)", EndReason.ERROR, EndReason.ERROR),
    ("sleep", "import time\ntime.sleep(100)", EndReason.DEADLINE, EndReason.DEADLINE),
    ("a flood of lines", "while True: print('x' * 100)", EndReason.OUTPUT, EndReason.OUTPUT),
    ("one long line", "print('x' * 100_000)", EndReason.OUTPUT, EndReason.OUTPUT),
    ("an expression that backtracks", BACKTRACKING, EndReason.DEADLINE, EndReason.DEADLINE),
    ("deep brackets", "(" * 5_000 + ")" * 5_000, EndReason.ERROR, EndReason.ERROR),
    ("many signs", "-" * 40_000 + "1", EndReason.ERROR, EndReason.ERROR),
    ("itertools forever", "import itertools\nlist(itertools.count())", EndReason.MEMORY,
     EndReason.MEMORY),
    ("a deadlock", "import collections\ncollections.deque(iter(int, 1), maxlen=0)",
     EndReason.DEADLINE, EndReason.DEADLINE),
    ("factorials", "import math\nmath.factorial(10**8)", EndReason.DEADLINE, EndReason.DEADLINE),
]  # fmt: skip
CASES = [
    pytest.param(interpreter, code, outcome, id=f"{name}-{interpreter}")
    for name, code, *outcomes in EXCESSES
    for interpreter, outcome in zip(("asteval", "python"), outcomes, strict=True)
]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[AstevalSandbox]:
    with opened(timeout_s=TIMEOUT_S, memory_bytes=MEMORY_BYTES) as made:
        yield made


@pytest.fixture(scope="module")
def sandboxes(sandbox: AstevalSandbox) -> Iterator[dict[str, AstevalSandbox]]:
    with opened(
        "python", timeout_s=TIMEOUT_S, memory_bytes=MEMORY_BYTES, use_numpy=False
    ) as python:
        yield {"asteval": sandbox, "python": python}


@pytest.mark.behaviour(60)
@pytest.mark.share(18)
@pytest.mark.parametrize(("interpreter", "code", "outcome"), CASES)
def test_an_excess_is_ended_with_its_reason_and_leaves_no_process(
    interpreter: str,
    code: str,
    outcome: EndReason | None,
    sandboxes: dict[str, AstevalSandbox],
) -> None:
    sandbox = sandboxes[interpreter]
    server = server_pid(sandbox)
    evaluation = evaluate(sandbox, f"print('begun')\n{code}")
    if outcome is None:
        assert evaluation.outcome in (
            EndReason.VALUE,
            EndReason.ERROR,
            EndReason.KILLED,
            EndReason.DEADLINE,
        )
    else:
        # On a loaded machine, the time limit may be reached before the memory limit
        assert evaluation.outcome in (outcome, EndReason.DEADLINE)
    if evaluation.error is None or evaluation.error.type != "SyntaxError":
        assert evaluation.stdout.startswith("begun\n")
    assert len(evaluation.stdout) <= sandbox.config.output_bytes
    assert len(children_of(server)) == 1
    assert evaluate(sandbox, "6 * 7").value.json == 42
    assert server_pid(sandbox) == server


@pytest.mark.behaviour(60)
def test_code_that_runs_too_long_is_ended_within_its_time(sandbox: AstevalSandbox) -> None:
    evaluation = evaluate(sandbox, "print('one')\nprint('two')\nwhile True: pass")
    assert evaluation.detail == "it was killed at its time limit of 1 s"
    assert evaluation.stdout == "one\ntwo\n"
    assert evaluation.usage.cpu_s < TIMEOUT_S + 2.0, "watchdog: it used no more processor time"


def test_the_memory_of_the_code_is_bounded(sandboxes: dict[str, AstevalSandbox]) -> None:
    code = "x = []\nwhile True: x.append(bytearray(1 << 20))"
    evaluation = evaluate(sandboxes["python"], code)
    assert evaluation.outcome in (EndReason.MEMORY, EndReason.DEADLINE)
    assert 0 < evaluation.usage.max_rss_bytes < MEMORY_BYTES + 64 * 1_048_576


def test_code_that_catches_memory_errors_continues_within_the_limit(
    sandbox: AstevalSandbox,
) -> None:
    code = "try:\n    x = [0] * 10**10\nexcept MemoryError:\n    x = 'none left'\nx"
    assert evaluate(sandbox, code).value.json == "none left"


def test_the_deadline_of_a_run_ends_an_evaluation_before_its_timeout() -> None:
    with opened(timeout_s=600.0) as sandbox:
        request = EvaluationRequest(code="while True: pass")
        evaluation = sandbox.evaluate(request, deadline=Deadline.after(0.3))
    assert evaluation.outcome is EndReason.DEADLINE


def test_an_evaluation_gets_the_time_that_is_left_after_the_server_started() -> None:
    clock = ManualClock()

    class SlowSandbox(AstevalSandbox):
        def _running(self) -> ServerProcess:
            clock.advance(5)
            return super()._running()

    with closing(SlowSandbox(clock=clock)) as sandbox:
        request = EvaluationRequest(code="1")
        assert sandbox.evaluate(request).outcome is EndReason.VALUE
        late = sandbox.evaluate(request, deadline=Deadline.after(5, clock=clock))
    assert late.outcome is EndReason.DEADLINE


def test_cancelled_code_is_killed_and_its_output_is_kept() -> None:
    cancellation = Cancellation()

    class Cancelling(MemoryFilesystem):
        """Cancels at the first write."""

        def write_bytes(self, *given: Any, **options: Any) -> None:
            super().write_bytes(*given, **options)
            cancellation.cancel()

    request = EvaluationRequest(
        code="print('one')\nwrite_text('new', 'x')\nwhile True: pass",
        writes=(parse_path("new"),),
    )
    with opened(timeout_s=600.0) as sandbox:
        server = server_pid(sandbox)
        evaluation = sandbox.evaluate(request, Cancelling(), cancellation=cancellation)
        assert len(children_of(server)) == 1, "only the spare child is left"
        assert evaluate(sandbox, "6 * 7").value.json == 42
    assert evaluation.outcome is EndReason.CANCELLED
    assert evaluation.stdout == "one\n"
    assert [str(path) for path in evaluation.writes] == ["new"]


def test_file_requests_are_bounded_in_number_and_bytes() -> None:
    files = MemoryFilesystem({"a": "x" * 1_000, "big": "x" * 5_000})
    read = {"reads": (".",), "files": files}
    with opened(file_calls=5, file_bytes=4_000, transfer_bytes=3_500) as sandbox:
        calls = evaluate(
            sandbox,
            "n = 0\nwhile True:\n    try:\n        n += 1\n        open('none')\n"
            "    except FileNotFoundError:\n        pass",
            **read,
        )
        assert calls.error.message.startswith("the code made more than 5 file calls")
        assert calls.error.type == "OSError"
        large = evaluate(sandbox, "read_text('big')", **read)
        assert large.error.message.endswith(
            "4,000 bytes. Pass the part that the code needs as a global."
        )
        much = evaluate(sandbox, "for _ in range(4): read_text('a')", **read)
        assert "read and wrote" in much.error.message


def test_results_are_truncated_with_a_count(sandbox: AstevalSandbox) -> None:
    evaluation = evaluate(sandbox, "a = list(range(50_000))\nb = 'x' * 50_000\nb")
    most = sandbox.config.value_chars
    assert len(evaluation.value.text) == most
    assert evaluation.value.n_missing >= 50_000 - most
    assert not evaluation.value.is_json
    assert len(evaluation.names["a"].text) <= most
    assert f"({evaluation.value.n_missing:,} more)" in str(evaluation.value)


@pytest.mark.parametrize("n_evaluations", [200, pytest.param(2_000, marks=pytest.mark.soak)])
def test_many_evaluations_leak_no_process_descriptor_or_memory(n_evaluations: int) -> None:
    """Counts the server's children, the descriptors of both, and the server's resident memory."""
    with opened() as sandbox:
        for _ in range(20):
            evaluate(sandbox, "1 + 1")
        server = server_pid(sandbox)
        before = (n_descriptors(), n_open(server))
        resident = resident_bytes(server)
        for n in range(n_evaluations):
            assert evaluate(sandbox, f"{n} + 1").value.json == n + 1
        assert server_pid(sandbox) == server
        for _ in range(200):  # the server may not have closed the last ones yet
            after = (n_descriptors(), n_open(server))
            if no_more := all(now <= then for now, then in zip(after, before, strict=True)):
                break
            time.sleep(0.05)
        assert no_more, (before, after)
        assert len(children_of(server)) == 1
        assert resident_bytes(server) - resident < 2 * 1_048_576
    assert children_of(server) == set()


def n_open(pid: int) -> int:
    """Return the number of open descriptors: the least of many counts, as it closes some late."""
    return min(sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()) for _ in range(100))


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4_096


def test_eight_threads_evaluate_at_once_and_get_their_own_results() -> None:
    with opened(timeout_s=30.0) as sandbox:
        server = server_pid(sandbox)
        before = n_descriptors()
        wrong: list[object] = []

        def work(worker: int) -> None:
            for n in range(25):
                files = MemoryFilesystem({"who": str(worker)})
                code = f"int(read_text('who')) * 1000 + {n}"
                found = evaluate(sandbox, code, files, reads=("who",))
                if found.value is None or found.value.json != worker * 1_000 + n:
                    wrong.append(found)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert n_descriptors() == before
        assert len(children_of(server)) == 1


@pytest.mark.parametrize("field", ["timeout_s", "memory_bytes", "output_bytes", "file_calls"])
def test_a_limit_that_is_not_positive_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        AstevalConfig(**{field: 0})


def test_a_layer_that_does_not_exist_cannot_be_required() -> None:
    with pytest.raises(ValueError, match="moat: no such layer"):
        AstevalConfig(required_layers=frozenset({"moat"}))
