"""The cost of a call in place does not depend on the size of the directory or its repository."""

from __future__ import annotations

from pathlib import Path

import pytest
from in_place_rig import begun, repository, source_of
from workspace_rig import calls, doing


def steps_of(tmp_path: Path, n_files: int) -> tuple[int, int, int]:
    """Examined entries, written objects, and journal lines of three calls."""
    files = {f"d{n // 50}/{n}.txt": b"x\n" for n in range(n_files)}
    with begun(tmp_path, {"a.txt": b"one\n", **files}) as workspace:
        journal = workspace._writer.effects
        n_lines = 0
        real = journal._append

        def counted(*args: object, **kwargs: object) -> None:
            nonlocal n_lines
            n_lines += 1
            real(*args, **kwargs)  # pyright: ignore[reportArgumentType] - the same arguments

        journal._append = counted
        fail = doing(lambda: workspace.files.write_text("a.txt", "spoilt"), fails=True)
        with calls(workspace, fail) as call:
            call("ls")
            call("ls")
            tracker, store = workspace._opened.tracker, workspace._ledger.store
            before = tracker.n_visited, store.n_written
            call("write_file", file_path="n.txt", content="x")
            call("act")
            call("ls", path="d0")
            return tracker.n_visited - before[0], store.n_written - before[1], n_lines


@pytest.mark.behaviour(38)
def test_calls_in_a_large_directory_take_the_steps_of_those_in_a_small_one(tmp_path: Path) -> None:
    small, large = steps_of(tmp_path / "small", 60), steps_of(tmp_path / "large", 1_000)
    assert small == large
    # Two lines each (unfinished file, effect) for the write, the failing call, and its rollback.
    assert small[2] == 6


def test_repository_of_the_user_is_not_read(tmp_path: Path) -> None:
    source = repository(tmp_path, {"a.txt": b"one\n", "b.txt": b"b\n"})
    for n in range(300):
        (source / ".git" / f"junk-{n}").write_bytes(b"x")
    with begun(tmp_path) as workspace:
        assert workspace._opened.tracker.n_visited <= 4
        assert source_of(tmp_path).is_dir()
