"""The benchmarks can be collected: they use helpers of the tests, which may be renamed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_benchmark_is_collected() -> None:
    files = {path.name for path in (ROOT / "benchmarks").glob("bench_*.py")}
    options = ["-o", "python_files=bench_*.py", "-o", "python_functions=bench_*"]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *options, "benchmarks"]
    # The variables of a worker would make it one, and workers have no benchmarks
    own = {name: text for name, text in os.environ.items() if "XDIST" not in name}
    done = subprocess.run(command, cwd=ROOT, env=own, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {line.split("::")[0].split("/")[-1] for line in done.stdout.splitlines()} >= files
