"""The cost of a call on disk and of opening, counted and not timed, so that it is exact."""

from __future__ import annotations

import errno
import gc
import os
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from types import FrameType

import pytest
from workspace_rig import Call, calls, die, doing, folder, made, reopened, storage

from wink_workspace.clock import ManualClock
from wink_workspace.errors import WinkError
from wink_workspace.filesystem import DiskTree
from wink_workspace.ledger.store.repository import GitRepository
from wink_workspace.prompt import FilesUsed
from wink_workspace.workspace import Workspace

BUDGETS = tomllib.loads(
    (Path(__file__).parents[2] / "benchmarks" / "budgets.toml").read_text(encoding="utf-8")
)
NO_CALLS = frozenset(("fspath", "geteuid", "getegid", "getpid"))


@dataclass
class Count:
    """The operations inside a block."""

    system_calls: int = 0
    new_files: int = 0
    functions: int = 0


@contextmanager
def counting() -> Iterator[Count]:
    """Count the system calls of this thread, the files that they make, and all functions."""
    count = Count()

    def profile(frame: FrameType, event: str, function: object) -> None:
        if event == "call":
            count.functions += 1
            code = frame.f_code  # two functions make system calls through ctypes
            count.system_calls += code.co_name == "open_beneath" or (
                code.co_name == "rename" and "system" in code.co_freevars
            )
        elif event == "c_call":
            count.functions += 1
            name = getattr(function, "__name__", "")
            if getattr(function, "__module__", None) in ("posix", "io", "_io"):
                count.system_calls += name not in NO_CALLS

    opened = os.open

    def opening(path: object, flags: int, *args: int, **options: int) -> int:
        count.new_files += bool(flags & os.O_EXCL)
        return opened(path, flags, *args, **options)

    os.open = opening
    gc.disable()  # its callbacks would be counted
    sys.setprofile(profile)
    try:
        yield count
    finally:
        sys.setprofile(None)
        gc.enable()
        os.open = opened


def later() -> ManualClock:
    """A clock that makes all files old, so that none is racily clean."""
    return ManualClock(datetime.now(UTC) + timedelta(hours=1))


def workspace_of(directory: Path, n_files: int) -> Workspace:
    files = {f"d{n // 500}/f{n % 500}.txt": b"file %d\n" % n for n in range(n_files)}
    return made(directory, files, clock=later())


def one(call: Call, kind: str, text: str) -> None:
    path = "d0/f0.txt"
    match kind:
        case "write_and_commit":
            assert call("write_file", file_path=path, content=text).result.success
        case "failed_call":
            edit = {"old_string": "no such text", "new_string": "x"}
            assert not call("edit_file", file_path=path, **edit).result.success
        case "read_only_call":
            assert call("read_file", file_path=path).result.success
        case _:
            assert not call("no_such_tool").result.success


def cost(directory: Path, kind: str, n_files: int) -> dict[str, int]:
    directory.mkdir()
    with workspace_of(directory, n_files) as workspace, calls(workspace) as call:
        make_object_directories(workspace)
        one(call, "read_only_call", "")
        for n in (1, 2):
            one(call, kind, f"{n} before\n")
        # The least of three: other work of the interpreter is not a cost of the call
        return min(
            (counted(workspace, call, kind, n) for n in range(3)), key=itemgetter("functions")
        )


def make_object_directories(workspace: Workspace) -> None:
    """Otherwise, the first object with a new prefix costs one system call more."""
    for prefix in range(256):
        (workspace._folder.ledger / "objects" / f"{prefix:02x}").mkdir(exist_ok=True)


def counted(workspace: Workspace, call: Call, kind: str, n: int) -> dict[str, int]:
    store = workspace._ledger.store
    n_objects = store.n_written
    with counting() as count:
        one(call, kind, f"{n} now\n")
    return {
        "objects": store.n_written - n_objects,
        "new_files": count.new_files,
        "system_calls": count.system_calls,
        "functions": count.functions,
    }


@pytest.mark.behaviour(38)
@pytest.mark.parametrize("kind", BUDGETS)
def test_call_costs_its_budget_with_a_hundred_and_with_three_thousand_files(
    tmp_path: Path, kind: str
) -> None:
    few, many = (cost(tmp_path / f"{n}", kind, n) for n in (100, 3_000))
    assert few == many
    budget = BUDGETS[kind]
    assert (few["objects"], few["new_files"]) == (budget["objects"], budget["new_files"])
    assert (
        few["system_calls"] <= budget["system_calls"]
    )  # pathlib makes more calls in some versions of Python


def test_read_only_call_writes_as_much_as_a_refused_call(tmp_path: Path) -> None:
    read, refused = BUDGETS["read_only_call"], BUDGETS["record_alone"]
    assert (read["objects"], read["new_files"]) == (refused["objects"], refused["new_files"])


@pytest.fixture
def opened_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    opened: list[str] = []
    real = DiskTree.open

    def opening(tree: DiskTree, path: object) -> object:
        opened.append(str(path))
        return real(tree, path)

    monkeypatch.setattr(DiskTree, "open", opening)
    return opened


def test_workspace_is_made_with_two_packs_and_opened_without_reading_a_file(
    tmp_path: Path, opened_files: list[str]
) -> None:
    n_files = 1_000
    with workspace_of(tmp_path, n_files) as workspace:
        assert workspace._ledger.store.n_written == 0
        assert workspace.changes() == ()
    assert workspace._ledger.store.n_written == 0
    packs = workspace._folder.ledger / "objects" / "pack"
    assert sorted(path.suffix for path in packs.iterdir()) in (
        [".idx", ".idx", ".pack", ".pack"],  # one with the files, one with the entry
        [".idx", ".idx", ".keep", ".pack", ".pack"],  # that of a base, and one with the entry
    )
    with reopened(tmp_path, clock=later()) as workspace:
        assert workspace.changes() == ()
    assert opened_files == []


def test_workspace_closed_soon_after_creation_is_opened_without_reading_a_file(
    tmp_path: Path, opened_files: list[str]
) -> None:
    clock = ManualClock(datetime.now(UTC))
    with made(tmp_path, {"a": b"1", "b": b"2"}, clock=clock) as workspace:
        with calls(workspace) as call:
            call("write_file", file_path="c", content="3")
        clock.advance(10)
    opened_files.clear()
    with reopened(tmp_path) as workspace:
        assert len(workspace.changes()) == 1
    assert opened_files == []


def test_fork_is_opened_for_the_first_time_without_reading_a_file(
    tmp_path: Path, opened_files: list[str]
) -> None:
    with workspace_of(tmp_path, 1_000) as workspace:
        workspace.fork("try")
        name, workspaces = workspace.info.id, storage(tmp_path)
        with Workspace.open(name, storage=workspaces, branch="try", clock=later()) as fork:
            assert fork.changes() == ()
            assert fork._ledger.store.n_written == 0
    assert opened_files == []


@pytest.fixture
def read_objects(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The objects of the ledger that were read."""
    seen: list[str] = []
    read = GitRepository.read

    def reading(repository: GitRepository, object_id: str) -> object:
        seen.append(object_id)
        return read(repository, object_id)

    monkeypatch.setattr(GitRepository, "read", reading)
    return seen


@pytest.mark.behaviour(80)
def test_cost_of_opening_after_a_crash_does_not_depend_on_the_number_of_calls(
    tmp_path: Path, read_objects: list[str], opened_files: list[str]
) -> None:
    counts: list[tuple[int, int]] = []
    for n_calls in (5, 29):  # the next entry is 7 or 31: both read one entry to know their skip
        (directory := tmp_path / f"{n_calls}").mkdir()
        with made(directory, {"d/a": b"1", "d/b": b"2"}, clock=later()):
            pass
        crashed = reopened(directory, clock=later())
        with calls(crashed) as call:
            for n in range(n_calls):
                assert call("write_file", file_path="new", content=f"{n}").result.success
        die(crashed)
        read_objects.clear()
        opened_files.clear()
        with reopened(directory, clock=later()) as workspace, calls(workspace) as call:
            assert call("read_file", file_path="new").result.success
            assert [entry.number for entry in workspace.log(limit=1)] == [n_calls + 2]
            counts.append((len(read_objects), len(opened_files)))
    assert counts[0] == counts[1]
    assert "new" in opened_files
    assert "d/a" not in opened_files


def test_reading_and_writing_a_file_costs_the_same_after_100_and_2_000_files_were_read(
    tmp_path: Path,
) -> None:
    with workspace_of(tmp_path, 2_100) as workspace, calls(workspace) as call:
        store = workspace._ledger.store
        make_object_directories(workspace)
        unread = iter(range(2_100))
        costs: list[tuple[int, int]] = []
        n_functions: list[int] = []
        bytes_: list[int] = []
        for n_read in (100, 2_000):
            while (n := next(unread)) < n_read:
                see_files(workspace, f"d{n // 500}/f{n % 500}.txt")
            (path, other) = (f"d4/f{n_read // 50 + n}.txt" for n in (0, 1))
            for each in (path, other):
                n_objects, n_bytes = store.n_written, store.written_bytes
                with counting() as count:
                    assert call("read_file", file_path=each).result.success
                    assert call("write_file", file_path=each, content="new\n").result.success
            costs.append((store.n_written - n_objects, count.system_calls))
            n_functions.append(count.functions)
            bytes_.append(store.written_bytes - n_bytes)
    assert costs[0] == costs[1]
    assert n_functions[1] <= 1.5 * n_functions[0]  # a part has 1 or 2 keys first, then about 31
    assert bytes_[1] <= bytes_[0] + 8_192


def see_files(workspace: Workspace, *paths: str) -> None:
    """Record that the model has seen files, as a call that reads them does."""
    files = workspace.files
    seen = tuple((path, files.identify(path)[1]) for path in paths)
    workspace.session.dispatch(FilesUsed(seen=seen))


def test_the_200th_undo_and_redo_in_a_row_read_as_much_as_the_10th(
    tmp_path: Path, read_objects: list[str]
) -> None:
    """The commits and trees; a packed content is read in another way than a loose one."""
    n_calls = 210
    with made(tmp_path, {"a": b""}, clock=later()) as workspace:
        store = workspace._ledger.store
        for n in range(n_calls):
            with workspace.call("write"):
                workspace.files.write_text("a", f"{n:04}")
        for move in (workspace.undo, workspace.redo):
            costs: list[Counter[str]] = []
            for n in range(n_calls):
                store.forget()  # the trees of the last calls are cached
                read_objects.clear()
                move()
                if n in (10, 200):
                    costs.append(Counter(store.repository.header(id_)[0] for id_ in read_objects))
            assert [costs[0][kind] for kind in ("commit", "tree")] == [
                costs[1][kind] for kind in ("commit", "tree")
            ]


def test_change_between_import_and_opening_is_seen(tmp_path: Path) -> None:
    with workspace_of(tmp_path, 3) as workspace:
        pass
    (workspace._folder.files / "d0" / "f1.txt").write_bytes(b"else!!\n")
    with reopened(tmp_path) as workspace:
        (change,) = workspace.changes()
    assert str(change.path) == "d0/f1.txt"


def test_import_that_cannot_be_written_leaves_no_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched, pytest.raises(WinkError, match="Make room"):
        patched.setattr(os, "write", full)
        workspace_of(tmp_path, 3)
    assert list(storage(tmp_path).all()) == []


def test_cost_after_restoring_a_directory_of_twice_the_depth_at_most_triples(
    tmp_path: Path,
) -> None:
    costs: list[int] = []
    for depth in (100, 200):
        (tmp_path / str(depth)).mkdir()
        with made(tmp_path / str(depth)) as workspace:
            chain = folder(tmp_path / str(depth)).files / "/".join("x" * depth)
            with calls(workspace, doing(lambda at=chain: at.mkdir(parents=True))) as call:
                assert call("act").result.success
                workspace.undo()
                workspace.redo()
                with counting() as count:
                    assert call("ls").result.success
            assert chain.is_dir()
            costs.append(count.system_calls)
    assert costs[1] < 3 * costs[0], costs
