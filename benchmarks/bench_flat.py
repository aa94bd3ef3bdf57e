"""Costs that must not grow: with files that were read, calls that were made, and undos in a row.

And ``grep`` beside ``git grep``, with the same result. Run by ``make bench``. All are measured in
turns with their reference, and report the medians. The tests check the counts
(``tests/workspace/test_workspace_cost.py``). ``--basetemp`` chooses the filesystem.
"""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter

import pytest
from bench_workspace import GIT_ENVIRONMENT, git

from wink_workspace.adapters import ScriptedAdapter
from wink_workspace.filesystem import DiskFilesystem, FilesystemLimits
from wink_workspace.prompt import Prompt
from wink_workspace.runtime import ToolCall, ToolExecutor
from wink_workspace.sections import VfsToolsSection
from wink_workspace.workspace import Workspace, WorkspaceStorage

Call = Callable[..., None]


@contextmanager
def workspace_of(directory: Path, n_files: int) -> Iterator[tuple[Workspace, Call]]:
    """A workspace of files ``d<n>/f<n>.txt``, and a function that runs a tool call."""
    source = directory / "source"
    for n in range(n_files):
        folder = source / f"d{n // 100}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{n % 100}.txt").write_text(f"file {n}\n" * 20)
    numbers = count(1)
    with ExitStack() as stack:
        storage = WorkspaceStorage(directory / "state")
        workspace = stack.enter_context(Workspace.create(source, storage=storage))
        prompt = Prompt(name="bench", sections=[VfsToolsSection(workspace.files)])
        prompt.install(workspace.session)
        stack.enter_context(prompt.resources)
        executor = ToolExecutor(
            prompt=prompt,
            rendered_prompt=prompt.render(session=workspace.session),
            adapter=ScriptedAdapter(()),
            session=workspace.session,
        )

        def call(name: str, **arguments: object) -> None:
            made = ToolCall.of(name, arguments, id=f"c{next(numbers)}")
            assert executor.execute(made).result.success

        yield workspace, call


def read_and_write(call: Call, n: int) -> None:
    path = f"d{n // 100}/f{n % 100}.txt"
    call("read_file", file_path=path)
    call("write_file", file_path=path, content="new\n")


def report(benchmark, capsys: pytest.CaptureFixture[str], seconds: dict[str, list[float]]) -> None:
    """The medians in ms, and their ratios to the first one."""
    medians = {name: 1_000 * median(taken) for name, taken in seconds.items()}
    first = next(iter(medians.values()))
    benchmark.extra_info.update({f"median_ms_{name}": ms for name, ms in medians.items()})
    benchmark.extra_info.update({f"ratio_{name}": ms / first for name, ms in medians.items()})
    shown = "  ".join(f"{name} {ms:.2f} ms ({ms / first:.2f})" for name, ms in medians.items())
    with capsys.disabled():
        print(f"\n{benchmark.name}: {shown}")


def bench_read_and_write_after_many_reads(benchmark, tmp_path: Path, capsys) -> None:
    """A file is read and written, after 100 and after 2,000 files were read."""
    with ExitStack() as stack:
        opened: dict[str, tuple[Call, Iterator[int]]] = {}
        for n_read in (100, 2_000):
            (directory := tmp_path / f"{n_read}").mkdir()
            _, call = stack.enter_context(workspace_of(directory, 2_300))
            for n in range(n_read):
                call("read_file", file_path=f"d{n // 100}/f{n % 100}.txt")
            opened[f"{n_read} files read"] = call, count(2_000)
        take_turns(
            benchmark,
            capsys,
            {
                name: lambda call=call, numbers=numbers: read_and_write(call, next(numbers))
                for name, (call, numbers) in opened.items()
            },
            rounds=200,
        )


def bench_read_and_write_after_10_000_calls(benchmark, tmp_path: Path, capsys) -> None:
    """A file is read and written, after 100 and after 10,000 calls."""
    with ExitStack() as stack:
        opened: dict[str, tuple[Call, Iterator[int]]] = {}
        for n_calls in (100, 10_000):
            (directory := tmp_path / f"{n_calls}").mkdir()
            _, call = stack.enter_context(workspace_of(directory, 400))
            for n in range(n_calls // 2):
                read_and_write(call, n % 100)
            opened[f"{n_calls} calls"] = call, count(100)
        take_turns(
            benchmark,
            capsys,
            {
                name: lambda call=call, numbers=numbers: read_and_write(call, next(numbers))
                for name, (call, numbers) in opened.items()
            },
            rounds=200,
        )


def take_turns(benchmark, capsys, calls: dict[str, Callable[[], None]], *, rounds: int) -> None:
    seconds: dict[str, list[float]] = {name: [] for name in calls}

    def turns() -> None:
        for name, call in calls.items():
            start = perf_counter()
            call()
            seconds[name].append(perf_counter() - start)

    benchmark.pedantic(turns, rounds=rounds)
    report(benchmark, capsys, seconds)


@pytest.mark.parametrize("move", ["undo", "redo"])
def bench_800_undos_in_a_row(benchmark, tmp_path: Path, capsys, move: str) -> None:
    """The first 100 and the last 100 of 800."""
    seconds: list[float] = []
    with workspace_of(tmp_path, 1) as (workspace, _):
        for n in range(800):
            with workspace.call("write"):
                workspace.files.write_text(f"n{n % 40}.txt", f"{n}\n")
        if move == "redo":
            for _ in range(800):
                workspace.undo()
        act = getattr(workspace, move)

        def one() -> None:
            start = perf_counter()
            act()
            seconds.append(perf_counter() - start)

        benchmark.pedantic(one, rounds=800)
    report(benchmark, capsys, {"first 100": seconds[:100], "last 100": seconds[-100:]})


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """100,000 small files, and the arguments of git for them; git's data is elsewhere."""
    root = tmp_path_factory.mktemp("searched")
    for n in range(100_000):
        folder = root / f"d{n // 1_000}"
        folder.mkdir(exist_ok=True)
        (folder / f"f{n % 1_000}.txt").write_text(f"file {n}\nsome line of text {n * 7}\n" * 8)
    arguments = ["--git-dir", str(tmp_path_factory.mktemp("git") / "git"), "--work-tree", str(root)]
    git(root, *arguments, "init", "-q")
    git(root, *arguments, "add", "-A")
    git(root, *arguments, "commit", "-qm", "all")
    return root, arguments


def processor_s() -> float:
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


@pytest.mark.parametrize(
    ("option", "pattern"),
    [
        ("-F", "file 99999"),
        ("-F", "no such text"),
        ("-E", "text 69993$"),
        ("-E", "file (12345|54321)$"),
        ("-E", "[0-9]9999$"),
    ],
)
def bench_grep(
    benchmark, searched: tuple[Path, list[str]], capsys, option: str, pattern: str
) -> None:
    """``grep`` beside ``git grep``, which finds the same lines; also the time of the processor."""
    root, arguments = searched
    limits = FilesystemLimits(grep_matches=100_000, search_timeout_s=300)
    seconds: dict[str, list[float]] = {"git": [], "ours": []}
    processor: dict[str, list[float]] = {"git processor": [], "ours processor": []}
    with DiskFilesystem(root, limits=limits) as files:

        def by_git() -> set[tuple[str, ...]]:
            command = ["git", *arguments, "grep", "-n", option, pattern]
            done = subprocess.run(
                command, cwd=root, env=GIT_ENVIRONMENT, capture_output=True, text=True, check=False
            )
            return {tuple(line.split(":", 2)) for line in done.stdout.splitlines()}

        def by_us() -> set[tuple[str, ...]]:
            found = files.grep(pattern)
            assert found.n_files == 100_000
            return {(str(match.path), str(match.line), match.text) for match in found.matches}

        def turn() -> None:
            results: list[set[tuple[str, ...]]] = []
            for name, search in (("git", by_git), ("ours", by_us)):
                start, used = perf_counter(), processor_s()
                results.append(search())
                seconds[name].append(perf_counter() - start)
                processor[f"{name} processor"].append(processor_s() - used)
            assert results[0] == results[1]

        benchmark.pedantic(turn, rounds=9, warmup_rounds=1)
    report(benchmark, capsys, seconds)
    report(benchmark, capsys, processor)
