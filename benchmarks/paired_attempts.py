"""The cost of an attempt without a container, beside a git worktree with a process.

Run ``.venv/bin/python benchmarks/paired_attempts.py [FILES] [ATTEMPTS]``; prints one line for each.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from wink_workspace.attempts import AttemptContext, Attempts, LocalEngine
from wink_workspace.workspace import Workspace


def attempt(context: AttemptContext) -> None:
    with context.workspace.call("edit") as call:
        context.workspace.files.write_bytes("d0/f0.txt", b"%d" % context.number)
        call.result("edited")


def make_source(root: Path, n_files: int) -> None:
    for n in range(n_files):
        path = root / f"d{n // 100}" / f"f{n}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{n}\n" * 20)


def attempts_s(source: Path, n: int, workers: int) -> float:
    """Seconds for each attempt, without those that start the workers."""
    with Workspace.temporary(source) as workspace:
        attempts = Attempts(workspace, n=n + workers, engine=LocalEngine(workers=workers))
        times = [time.perf_counter() for _ in attempts.run(attempt)]
        return (times[-1] - times[workers - 1]) / n


def worktrees_s(source: Path, n: int) -> float:
    """Seconds for each worktree in which a process edits a file and commits."""

    def git(*arguments: str, cwd: Path = source) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
            cwd=cwd,
            check=True,
            capture_output=True,
        )

    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "first")
    tree = source.with_name("tree")
    begun = time.perf_counter()
    for k in range(n):
        git("worktree", "add", "-q", "-b", f"b{k}", str(tree))
        (tree / "d0/f0.txt").write_text(str(k))
        git("commit", "-qam", "edit", cwd=tree)
        git("worktree", "remove", "--force", str(tree))
    return (time.perf_counter() - begun) / n


def main(n_files: int, n: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        make_source(source, n_files)
        for workers in (1, 2):
            print(
                f"{n_files:,} files, {workers} workers: "
                f"{attempts_s(source, n, workers) * 1e3:.1f} ms"
            )
        print(f"{n_files:,} files, git worktree: {worktrees_s(source, min(n, 50)) * 1e3:.1f} ms")


if __name__ == "__main__":
    main(*map(int, [*sys.argv[1:], *("10000", "200")[len(sys.argv) - 1 :]]))
