"""The time of a call on disk, from 100 to 50,000 files, beside plain git.

Run by ``make bench``. The ids have the number of files, at most 1,000 a directory. The git
commands do the same work: one file changed, and everything kept. The exact counts are in
``budgets.toml``.

ext4 searches for a free inode past all those that were deleted within the last minutes, so right
after a large ``rm -r`` a new file takes 0.25 ms in place of 0.03. ``raw_new_file`` measures this:
subtract the difference, times ``n_new_files``, or wait. ``flatness`` runs the sizes in turns, so
that all of them use the disk in the same state.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

import pygit2
import pytest

from wink_workspace.adapters import ScriptedAdapter
from wink_workspace.prompt import MarkdownSection, Prompt, Tool, ToolContext, ToolResult
from wink_workspace.runtime import CallOutcome, ToolCall, ToolExecutor
from wink_workspace.sections import VfsToolsSection
from wink_workspace.sections.file_results import FileWindow
from wink_workspace.workspace import Workspace, WorkspaceStorage

SIZES = [100, 1_000, 10_000, 50_000]
WIDTH = 1_000  # files a directory
ROUNDS = 50
RACILY_CLEAN_S = 2.1  # until then a file is racily clean, and each read hashes it
GIT_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "bench",
    "GIT_AUTHOR_EMAIL": "bench@localhost",
    "GIT_COMMITTER_NAME": "bench",
    "GIT_COMMITTER_EMAIL": "bench@localhost",
}


def write_and_fail(params: None, *, context: ToolContext) -> ToolResult[None]:
    assert context.filesystem is not None
    context.filesystem.write_text("d0/f0.txt", "to be taken back\n")
    return ToolResult.error("this always fails")


SHOWN = FileWindow("d0/f1.txt", 1, ("file 1",) * 20)


def do_nothing(params: None, *, context: ToolContext) -> ToolResult[FileWindow]:
    return ToolResult.ok(SHOWN, SHOWN.summary())


FAILING = Tool[None, None](name="write_and_fail", description="Fail.", handler=write_and_fail)
IDLE = Tool[None, FileWindow](name="do_nothing", description="Do nothing.", handler=do_nothing)


@dataclass
class Bench:
    """An open workspace with the file tools, and calls by name."""

    workspace: Workspace
    executor: ToolExecutor
    numbers: Iterator[int]

    def call(self, name: str, **arguments: object) -> CallOutcome:
        return self.executor.execute(ToolCall.of(name, arguments, id=f"c{next(self.numbers)}"))

    def write(self) -> None:
        content = f"{next(self.numbers)}\n"
        outcome = self.call("write_file", file_path="d0/f0.txt", content=content)
        assert outcome.result.success, outcome.text

    def fail(self) -> None:
        edit = {"old_string": "no such text", "new_string": "x"}
        assert not self.call("edit_file", file_path="d0/f0.txt", **edit).result.success

    def write_and_fail(self) -> None:
        assert not self.call("write_and_fail").result.success

    def read(self) -> None:
        outcome = self.call("read_file", file_path="d0/f0.txt")
        assert outcome.result.success, outcome.text

    def read_another(self) -> None:
        outcome = self.call("read_file", file_path="d0/f1.txt")
        assert outcome.result.success, outcome.text

    def nothing(self) -> None:
        assert self.call("do_nothing").result.success


@pytest.fixture(scope="module", params=SIZES, ids=lambda n: f"{n}_files")
def size(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, int], Path]:
    @cache
    def source(n_files: int, width: int) -> Path:
        root = tmp_path_factory.mktemp("source")
        for n in range(n_files):
            folder = root / f"d{n // width}"
            folder.mkdir(exist_ok=True)
            (folder / f"f{n % width}.txt").write_text(f"file {n}\n" * 20)
        return root

    return source


@pytest.fixture(scope="module")
def benches(
    sources: Callable[[int, int], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Bench]]:
    """Workspaces by number of files and files per directory; each is opened once."""
    with ExitStack() as stack:

        @cache
        def opened(n_files: int, width: int = WIDTH) -> Bench:
            storage = WorkspaceStorage(tmp_path_factory.mktemp("state"))
            source = sources(n_files, width)
            workspace = stack.enter_context(Workspace.create(source, storage=storage))
            own = MarkdownSection(title="Own", template="Own tools.", tools=(FAILING, IDLE))
            prompt = Prompt(name="bench", sections=[own, VfsToolsSection(workspace.files)])
            prompt.install(workspace.session)
            stack.enter_context(prompt.resources)
            executor = ToolExecutor(
                prompt=prompt,
                rendered_prompt=prompt.render(session=workspace.session),
                adapter=ScriptedAdapter(()),
                session=workspace.session,
            )
            bench = Bench(workspace, executor, count(1))
            sleep(RACILY_CLEAN_S)
            bench.read()
            return bench

        yield opened


@pytest.fixture
def source(size: int, sources: Callable[[int, int], Path]) -> Path:
    return sources(size, WIDTH)


@pytest.fixture
def bench(size: int, benches: Callable[..., Bench]) -> Bench:
    return benches(size)


@pytest.fixture(scope="module")
def repository(
    size: int, sources: Callable[[int, int], Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The same files in a plain git repository."""
    work = tmp_path_factory.mktemp("git") / "work"
    subprocess.run(["cp", "-r", sources(size, WIDTH), work], check=True)
    git(work, "init", "-q")
    git(work, "config", "gc.auto", "0")  # else git packs in the background between two rounds
    git(work, "add", "-A")
    git(work, "commit", "-qm", "all")
    return work


def git(work: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=work, env=GIT_ENVIRONMENT, check=True)


def measure(benchmark, bench: Bench, call: Callable[[], None]) -> None:
    """Measure calls of one kind, and the exact counts of one of them."""
    store = bench.workspace._ledger.store
    call()
    n_objects, n_packs = store.n_written, len(store.packs.paths())
    call()
    benchmark.extra_info["n_objects_a_call"] = store.n_written - n_objects
    benchmark.extra_info["n_new_files_in_the_ledger"] = len(store.packs.paths()) - n_packs
    benchmark.pedantic(call, rounds=ROUNDS, warmup_rounds=3)


def bench_disk_write_and_commit(benchmark, bench: Bench) -> None:
    """One file written by a call, committed with the session."""
    bench.read()
    measure(benchmark, bench, bench.write)


def bench_disk_failed_call(benchmark, bench: Bench) -> None:
    """An edit that is refused and recorded."""
    bench.read()
    measure(benchmark, bench, bench.fail)


def bench_disk_failed_call_that_wrote(benchmark, bench: Bench) -> None:
    """A file written by a call that then fails: discarded, rolled back, recorded."""
    bench.read()
    measure(benchmark, bench, bench.write_and_fail)


def bench_disk_read_only_call(benchmark, bench: Bench) -> None:
    """A read of a file that did not change recently, recorded."""
    measure(benchmark, bench, bench.read_another)


def bench_disk_read_of_what_was_just_written(benchmark, bench: Bench) -> None:
    """A read of a file that was just written: it is racily clean, so its content is hashed."""

    def written() -> None:
        bench.read()
        bench.write()

    benchmark.pedantic(bench.read, setup=written, rounds=ROUNDS, warmup_rounds=3)


def bench_disk_record_alone(benchmark, bench: Bench) -> None:
    """A call that reads nothing, with the record of a read: subtract it from a read."""
    measure(benchmark, bench, bench.nothing)


def take_turns(benchmark, calls: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Run the calls in turns in each round, as the speed of a machine drifts.

    Returns the median of each call in µs.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}

    def turns() -> None:
        for name, call in calls.items():
            start = perf_counter()
            call()
            seconds[name].append(perf_counter() - start)

    benchmark.pedantic(turns, rounds=4 * ROUNDS, warmup_rounds=3)
    medians = {name: 1e6 * median(taken[3:]) for name, taken in seconds.items()}
    benchmark.extra_info.update({f"median_us_{name}": us for name, us in medians.items()})
    return medians


@pytest.mark.parametrize("kind", ["write", "read_another", "fail", "write_and_fail", "nothing"])
def bench_disk_flatness(
    benchmark, benches: Callable[..., Bench], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One call in each of the sizes, which should take the same time.

    The ratio is the slowest median divided by the fastest.
    """
    opened = {n_files: benches(n_files) for n_files in SIZES}
    for bench in opened.values():
        bench.read()  # a file must be read before it is written
    calls = {f"{n:,} files": getattr(bench, kind) for n, bench in opened.items()}
    medians = take_turns(benchmark, calls)
    ratio = benchmark.extra_info["ratio"] = max(medians.values()) / min(medians.values())
    shown = "  ".join(f"{name} {us:,.0f} us" for name, us in medians.items())
    with capsys.disabled():
        print(f"\n{kind}: {shown}  ratio {ratio:.2f}")


def bench_disk_read_beyond_its_record(
    benchmark, bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """A read, and a call with the same record that reads nothing, in turn."""
    medians = take_turns(benchmark, {"read": bench.read_another, "record": bench.nothing})
    beyond = benchmark.extra_info["beyond_us"] = medians["read"] - medians["record"]
    with capsys.disabled():
        print(f"\nread {medians['read']:,.0f} us, {beyond:,.0f} us beyond its record")


@pytest.mark.parametrize("kind", ["write", "read_another", "write_and_fail"])
@pytest.mark.parametrize("width", [10_000, 50_000])
def bench_disk_one_directory(
    benchmark, benches: Callable[..., Bench], width: int, kind: str
) -> None:
    """All files in one directory: one tree object lists them all, so the time follows its size."""
    bench = benches(width, width)
    bench.read()
    measure(benchmark, bench, getattr(bench, kind))


def bench_raw_new_file(benchmark, bench: Bench) -> None:
    """One new file beside the objects of the ledger, without code of the library."""
    numbers = count(1)
    directory = bench.workspace._folder.ledger / "objects"

    def make() -> None:
        (directory / f"tmp_obj_{next(numbers)}").touch()

    benchmark.pedantic(make, rounds=ROUNDS, warmup_rounds=3)


def bench_disk_undo(benchmark, bench: Bench) -> None:
    """Undo the newest write."""

    def written() -> None:
        bench.read()
        bench.write()

    benchmark.pedantic(bench.workspace.undo, setup=written, rounds=10, warmup_rounds=1)


def bench_disk_redo(benchmark, bench: Bench) -> None:
    """Redo the newest undo."""

    def undone() -> None:
        bench.read()
        bench.write()
        bench.workspace.undo()

    benchmark.pedantic(bench.workspace.redo, setup=undone, rounds=10, warmup_rounds=1)


def bench_disk_fork(benchmark, bench: Bench) -> None:
    """A new branch; its files are created when it is first opened."""
    numbers = count(1)
    benchmark.pedantic(
        lambda: bench.workspace.fork(f"fork-{next(numbers)}"), rounds=10, warmup_rounds=1
    )


def bench_disk_open_fork(benchmark, bench: Bench) -> None:
    """A fork opened for the first time, with all its files."""
    numbers = count(1)
    folder = bench.workspace._folder

    def fork() -> tuple[tuple[str], dict[str, object]]:
        name = f"opened-{next(numbers)}"
        bench.workspace.fork(name)
        return (name,), {}

    benchmark.pedantic(
        lambda name: Workspace(folder, branch=name).close(), setup=fork, rounds=2, warmup_rounds=0
    )


def bench_disk_import(benchmark, source: Path, tmp_path: Path) -> None:
    """Copy a directory, put it under history, and open it."""
    storage = WorkspaceStorage(tmp_path)
    benchmark.pedantic(
        lambda: Workspace.create(source, storage=storage).close(), rounds=3, warmup_rounds=0
    )


def bench_disk_open(benchmark, source: Path, tmp_path: Path) -> None:
    """A workspace opened again."""
    storage = WorkspaceStorage(tmp_path)
    with Workspace.create(source, storage=storage) as workspace:
        name = workspace.info.id
    benchmark.pedantic(
        lambda: Workspace.open(name, storage=storage).close(), rounds=5, warmup_rounds=1
    )


def bench_git_command_add_and_commit(benchmark, repository: Path) -> None:
    """``git add -A && git commit`` for one changed file."""
    numbers = count(1)

    def commit() -> None:
        (repository / "d0/f0.txt").write_text(f"{next(numbers)}\n")
        git(repository, "add", "-A")
        git(repository, "commit", "-qm", "one")

    benchmark.pedantic(commit, rounds=5, warmup_rounds=1)


def bench_git_command_reset_and_clean(benchmark, repository: Path) -> None:
    """``git reset --hard && git clean -fdx`` for one changed file."""

    def undo() -> None:
        (repository / "d0/f0.txt").write_text("changed\n")
        git(repository, "reset", "-q", "--hard")
        git(repository, "clean", "-qfdx")

    benchmark.pedantic(undo, rounds=5, warmup_rounds=1)


def bench_pygit2_add_all(benchmark, repository: Path) -> None:
    """pygit2's ``index.add_all`` and ``write_tree`` for one changed file."""
    numbers = count(1)

    def add() -> None:
        (repository / "d0/f0.txt").write_text(f"pygit2 {next(numbers)}\n")
        opened = pygit2.Repository(repository)
        opened.index.add_all()
        opened.index.write_tree()

    benchmark.pedantic(add, rounds=5, warmup_rounds=1)


def bench_git_command_clone_local(benchmark, repository: Path, tmp_path: Path) -> None:
    """``git clone --local``, to compare with an import."""
    numbers = count(1)
    benchmark.pedantic(
        lambda: git(tmp_path, "clone", "-q", "--local", str(repository), f"c{next(numbers)}"),
        rounds=3,
        warmup_rounds=0,
    )


@pytest.mark.parametrize("n_calls", [10, 10_000])
def bench_disk_close(
    benchmark, n_calls: int, sources: Callable[[int, int], Path], tmp_path
) -> None:
    """Closing after many calls costs what it costs after a few: maintenance runs between calls."""
    source = sources(100, WIDTH)

    def setup() -> tuple[tuple[Workspace], dict[str, object]]:
        workspace = Workspace.create(source, storage=WorkspaceStorage(tmp_path))
        for n in range(n_calls):
            with workspace.call("write", params={"n": n}) as call:
                call.files.write_text(f"d0/f{n % 100}.txt", f"{n}\n")
                call.result("written")
        return (workspace,), {}

    benchmark.pedantic(Workspace.close, setup=setup, rounds=3)
