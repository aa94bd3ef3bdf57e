"""Two commands that are measured in turns: the benchmark is the difference of each pair."""

from __future__ import annotations

import statistics

__all__ = ["report"]


def report(benchmark: object, seconds: dict[str, list[float]], *, less: str) -> None:
    """Pass the differences of ``ours`` and *less* to pytest-benchmark, which cannot take pairs."""
    benchmark._timer = lambda: 0.0
    benchmark.pedantic(lambda: None, rounds=1)
    pairs = zip(seconds["ours"], seconds[less], strict=True)
    benchmark.stats.stats.data[:] = [ours - other for ours, other in pairs]
    for name, times in seconds.items():
        benchmark.extra_info[f"{name}_p50_us"] = statistics.median(times) * 1e6
        benchmark.extra_info[f"{name}_p95_us"] = statistics.quantiles(times, n=20)[-1] * 1e6
