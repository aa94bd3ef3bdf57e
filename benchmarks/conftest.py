"""Write ``out/latest.json``: name -> min, median, p90, n, unit, and the exact counts.

A benchmark reports exact counts (files touched, bytes hashed, snapshots shared) with
``benchmark.extra_info``. Tests may assert counts, never times.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

OUT = Path(__file__).parent / "out" / "latest.json"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Collect the results of pytest-benchmark."""
    measured = getattr(session.config, "_benchmarksession", None)
    if measured is None or not measured.benchmarks:
        return
    OUT.parent.mkdir(exist_ok=True)
    report = {bench.name: _row(bench) for bench in measured.benchmarks if bench}
    OUT.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _row(bench: object) -> dict[str, object]:
    data = sorted(bench.stats.data)
    return {
        "min": data[0] * 1e6,
        "median": statistics.median(data) * 1e6,
        "p90": data[min(len(data) - 1, int(len(data) * 0.9))] * 1e6,
        "n": len(data),
        "unit": "us",
        **bench.extra_info,
    }
