"""The time of isolated Python, beside the same without isolation.

Run by ``make bench``. Compare variants within one run only.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from wink_workspace.filesystem import MemoryFilesystem, parse_path
from wink_workspace.sandbox.asteval import (
    AstevalConfig,
    AstevalSandbox,
    EvaluationRequest,
    PythonConfig,
)

ROUNDS = 200
SIMPLE = EvaluationRequest(code="1+1")
PAUSE_S = 0.02
DEADLINE_S = 0.3
HANGS = {
    "loop": ("while True: pass", AstevalConfig),
    "power": ("9 ** 9 ** 9", PythonConfig),
    "backtracking": ("import re\nre.match('(a|a)*$', 'a' * 60 + 'b')", AstevalConfig),
    "sleep": ("import time\ntime.sleep(60)", AstevalConfig),
}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[AstevalSandbox]:
    made = AstevalSandbox()
    assert made.report.layers
    yield made
    made.close()


def bench_asteval_isolated(benchmark, sandbox: AstevalSandbox) -> None:
    """``1+1``, each time in a new child, one after the other."""
    found = benchmark.pedantic(sandbox.evaluate, args=(SIMPLE,), rounds=ROUNDS, warmup_rounds=20)
    benchmark.extra_info["n_processes_started_per_evaluation"] = 1
    benchmark.extra_info["n_layers"] = sum(layer.is_active for layer in found.isolation.layers)


def bench_asteval_isolated_after_a_pause(benchmark, sandbox: AstevalSandbox) -> None:
    """The same after a pause in which the next child gets ready, as between a model's calls."""
    benchmark.pedantic(
        sandbox.evaluate,
        args=(SIMPLE,),
        setup=lambda: time.sleep(PAUSE_S),
        rounds=ROUNDS,
        warmup_rounds=20,
    )


@pytest.mark.parametrize("use_numpy", [False, True])
def bench_asteval_isolated_python(benchmark, use_numpy: bool) -> None:
    """The same with Python itself in the same isolation."""
    with closing(AstevalSandbox(PythonConfig(use_numpy=use_numpy))) as made:
        benchmark.pedantic(made.evaluate, args=(SIMPLE,), rounds=ROUNDS, warmup_rounds=20)


def bench_asteval_in_process(benchmark) -> None:
    """Plain asteval in this process, without isolation."""
    import asteval

    interpreter = asteval.Interpreter(use_numpy=False)
    benchmark.pedantic(interpreter, args=("1+1",), rounds=ROUNDS, warmup_rounds=20)


def bench_asteval_in_process_new_each_time(benchmark) -> None:
    """The same with a new interpreter for each evaluation, so that names are not shared."""
    import asteval

    benchmark.pedantic(
        lambda: asteval.Interpreter(use_numpy=False)("1+1"), rounds=ROUNDS, warmup_rounds=20
    )


def bench_asteval_fresh_python(benchmark) -> None:
    """``python -I -S -c 1+1``: a process without isolation."""
    command = [sys.executable, "-I", "-S", "-c", "print(1+1)"]
    benchmark.pedantic(
        lambda: subprocess.run(command, check=True, capture_output=True, env={}),
        rounds=50,
        warmup_rounds=3,
    )


def bench_asteval_monty(benchmark) -> None:
    """pydantic-monty, if installed: a worker from its pool for each evaluation."""
    monty = pytest.importorskip("pydantic_monty")
    with monty.Monty() as pool:

        def evaluate() -> None:
            with pool.checkout() as session:
                session.feed_run("1+1")

        benchmark.pedantic(evaluate, rounds=ROUNDS, warmup_rounds=20)


def bench_asteval_server_start(benchmark) -> None:
    """Start a server with imports and all probes of the isolation, and end it."""

    def start() -> None:
        made = AstevalSandbox()
        assert not made.report.holes
        made.close()

    benchmark.pedantic(start, rounds=10, warmup_rounds=1)


def bench_asteval_thousand_file_reads(benchmark, sandbox: AstevalSandbox) -> None:
    """1,000 reads of a small file through the pipe, in one evaluation."""
    files = MemoryFilesystem({"a.txt": "hello\n" * 10})
    request = EvaluationRequest(
        code="n = 0\nfor _ in range(1000):\n    n += len(read_text('a.txt'))\nn",
        reads=(parse_path("a.txt"),),
    )
    found = benchmark.pedantic(sandbox.evaluate, args=(request, files), rounds=10, warmup_rounds=1)
    assert found.value.json == 60_000
    benchmark.extra_info["n_file_calls"] = 1_000


@pytest.mark.parametrize("hang", HANGS)
def bench_asteval_killed(benchmark, hang: str) -> None:
    """The time from the start of a hang to its end; its timeout is 300 ms."""
    code, config = HANGS[hang]
    request = EvaluationRequest(code=code)
    made = AstevalSandbox(config(timeout_s=DEADLINE_S))
    found = benchmark.pedantic(made.evaluate, args=(request,), rounds=5, warmup_rounds=1)
    assert found.outcome == "deadline"
    benchmark.extra_info["deadline_us"] = DEADLINE_S * 1e6
    made.close()
