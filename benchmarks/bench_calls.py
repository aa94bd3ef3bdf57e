"""The time of a call, which must not grow with earlier calls or the number of files.

Run by ``make bench``. Compare variants within one run only.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support import Note, SmallWorkspace, Text, small_workspace

from wink_workspace.filesystem import MemoryFilesystem
from wink_workspace.prompt import Tool, ToolContext, ToolResult
from wink_workspace.runtime import transactions_of
from wink_workspace.session import Session

ROUNDS = 300


def nothing(params: Text, *, context: ToolContext) -> ToolResult[None]:
    return ToolResult.ok(None)


def write(params: Text, *, context: ToolContext) -> ToolResult[None]:
    assert context.filesystem is not None
    context.filesystem.write_text("d0/f0.txt", params.text)
    return ToolResult.error("undo") if params.text == "undo" else ToolResult.ok(None)


def read(params: Text, *, context: ToolContext) -> ToolResult[None]:
    assert context.filesystem is not None
    context.filesystem.read_text("d0/f0.txt")
    return ToolResult.ok(None)


TOOLS = [
    Tool[Text, None](name=handler.__name__, description="Bench", handler=handler)
    for handler in (nothing, write, read)
]


def files(n_files: int) -> dict[str, str]:
    """*n_files* small files, 1,000 a directory."""
    return {f"d{n // 1_000}/f{n % 1_000}.txt": f"file {n}\n" for n in range(n_files)}


@pytest.fixture(params=[100, 10_000, 100_000], ids=lambda n: f"{n}_files")
def workspace(request: pytest.FixtureRequest) -> Iterator[SmallWorkspace]:
    with small_workspace(*TOOLS, files=files(request.param)) as opened:
        yield opened


@pytest.mark.parametrize("n_earlier", [5, 5_000])
def bench_no_op_call(benchmark, n_earlier: int) -> None:
    """A call that does nothing, after few and after many others, as a run makes them.

    A run installs its handler for Ctrl-C once, around all of its calls; so does this.
    """
    with small_workspace(*TOOLS) as opened, transactions_of(opened.session).sigint.installed():
        for _ in range(n_earlier):
            opened.call("nothing")
        benchmark.pedantic(opened.call, args=("nothing",), rounds=ROUNDS, warmup_rounds=20)
        benchmark.extra_info["n_records"] = len(opened.records)


def bench_call_that_writes(benchmark, workspace: SmallWorkspace) -> None:
    """One write, committed."""
    texts = iter(range(10_000))
    benchmark.pedantic(
        lambda: workspace.call("write", text=f"x{next(texts)}"), rounds=ROUNDS, warmup_rounds=20
    )


def bench_call_that_fails_after_a_write(benchmark, workspace: SmallWorkspace) -> None:
    """One write, rolled back."""
    benchmark.pedantic(
        workspace.call, args=("write",), kwargs={"text": "undo"}, rounds=ROUNDS, warmup_rounds=20
    )


def bench_call_that_reads(benchmark, workspace: SmallWorkspace) -> None:
    """One read."""
    benchmark.pedantic(workspace.call, args=("read",), rounds=ROUNDS, warmup_rounds=20)


@pytest.mark.parametrize("n_files", [100, 100_000])
def bench_snapshot_and_restore_of_files(benchmark, n_files: int) -> None:
    """A snapshot, and a restore after one write."""
    filesystem = MemoryFilesystem(files(n_files))

    def changed() -> tuple[tuple[object], dict[str, object]]:
        token = filesystem.snapshot()
        filesystem.write_text("d0/f0.txt", "changed")
        return (token,), {}

    benchmark.pedantic(
        lambda token: (filesystem.snapshot(), filesystem.restore(token)),
        setup=changed,
        rounds=ROUNDS,
    )
    benchmark.extra_info["n_paths_that_differ_after_one_write"] = _n_changes(filesystem)


def _n_changes(filesystem: MemoryFilesystem) -> int:
    before = filesystem.snapshot()
    filesystem.write_text("d0/f0.txt", "counted")
    return len(filesystem.changes(before))


@pytest.mark.parametrize("n_items", [10, 100_000])
def bench_snapshot_and_restore_of_a_session(benchmark, n_items: int) -> None:
    """A snapshot of a session, and a restore after one append."""
    session = Session()
    session[Note].seed(Note(str(n)) for n in range(n_items))

    def changed() -> tuple[tuple[object], dict[str, object]]:
        token = session.snapshot()
        session[Note].append(Note("changed"))
        return (token,), {}

    benchmark.pedantic(
        lambda token: (session.snapshot(), session.restore(token)), setup=changed, rounds=ROUNDS
    )


@pytest.mark.parametrize("n_items", [10, 100_000])
def bench_append_to_a_slice(benchmark, n_items: int) -> None:
    """One more event, after few and after many."""
    session = Session()
    session[Note].seed(Note(str(n)) for n in range(n_items))
    benchmark.pedantic(session[Note].append, args=(Note("more"),), rounds=ROUNDS, warmup_rounds=20)
