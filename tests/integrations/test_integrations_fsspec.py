"""Workspaces as an fsspec filesystem: URLs, entries, writes as calls, transactions."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from pathlib import Path

import fsspec
import pytest
from closed_workspace import ClosedWorkspace

from wink_workspace import MemoryFilesystem, UrlMount
from wink_workspace.errors import (
    EntryMissingError,
    FileChangedError,
    LedgerBusyError,
    ReadOnlyError,
    UsageError,
)
from wink_workspace.integrations.fsspec import WinkFileSystem
from wink_workspace.session import Outcome


@pytest.fixture
def closed(tmp_path: Path) -> ClosedWorkspace:
    return ClosedWorkspace(tmp_path)


# URLs


@pytest.mark.parametrize(
    ("url", "named", "path"),
    [
        ("wink://3f1", {"workspace": "3f1"}, ""),
        ("wink://3f1/a/b.txt", {"workspace": "3f1"}, "/a/b.txt"),
        ("wink://3f1@12/a", {"workspace": "3f1", "entry": "12"}, "/a"),
        ("wink://3f1/try-2@/a", {"workspace": "3f1", "branch": "try-2"}, "/a"),
        ("wink://3f1/t@4", {"workspace": "3f1", "branch": "t", "entry": "4"}, ""),
        ("wink://3f1@/a@b/c", {"workspace": "3f1"}, "/a@b/c"),
        ("wink://3f1/@types/x", {"workspace": "3f1"}, "/@types/x"),
        ("wink://3f1/d/a@b", {"workspace": "3f1"}, "/d/a@b"),
        ("/plain/path", {}, "/plain/path"),
    ],
)
def test_url_names_a_workspace_a_branch_an_entry_and_a_path(
    url: str, named: dict[str, str], path: str
) -> None:
    assert WinkFileSystem._get_kwargs_from_urls(url) == named
    stripped = WinkFileSystem._strip_protocol(url)
    assert WinkFileSystem._strip_protocol(stripped) == stripped
    if named:
        assert WinkFileSystem._get_kwargs_from_urls(f"wink://{stripped}") == named
        # The path in the workspace, which no public method returns
        assert f"/{WinkFileSystem(**named)._workspace_path(stripped)}".removesuffix("/") == path


@pytest.mark.parametrize(
    ("options", "path"),
    [({}, "/a/b"), ({}, "/a@b"), ({"entry": 3}, "/a"), ({"branch": "t"}, "/a@b"), ({}, "")],
)
def test_url_of_a_path_names_the_same_path_again(options: dict[str, object], path: str) -> None:
    fs = WinkFileSystem("3f1", **options)
    url = fs.unstrip_protocol(path)
    again = WinkFileSystem(**WinkFileSystem._get_kwargs_from_urls(url))
    assert again == fs
    # The path in the workspace, which no public method returns
    assert again._workspace_path(url) == path.removeprefix("/")


def test_datasets_finds_files_by_patterns_that_are_urls(closed: ClosedWorkspace) -> None:
    """It makes URLs of the results of a glob."""
    from datasets.data_files import resolve_pattern
    from datasets.download import DownloadConfig

    url, storage = f"wink://{closed.id}/data/part.csv", {"storage": closed.storage}
    closed.fs().pipe("/data/part.csv", b"a")
    config = DownloadConfig(storage_options={"wink": storage})
    for place in ("", "@2"):
        pattern = f"wink://{closed.id}{place}/data/*.csv"
        [found] = resolve_pattern(pattern, "", download_config=config)
        with fsspec.open(found, "r", **storage) as stream:
            assert stream.read() == "a"
    fs, path = fsspec.core.url_to_fs(url, **storage)
    assert [f"wink://{name}" for name in fs.glob(path.replace("part", "*"))] == [
        f"wink://{closed.id}@/data/part.csv"
    ]
    assert fs._parent(path) == f"{closed.id}@/data"
    assert fs.unstrip_protocol(path) == url


def test_url_without_a_workspace_is_refused_with_an_example() -> None:
    with pytest.raises(UsageError, match=r"names no workspace.*wink://3f1/a.txt"):
        fsspec.filesystem("wink")


def test_branch_that_does_not_exist_is_refused_with_the_url_of_the_path(
    closed: ClosedWorkspace,
) -> None:
    with pytest.raises(EntryMissingError, match=f"Write wink://{closed.id}@/a@b if it is a path"):
        fsspec.open(f"wink://{closed.id}/a@b", storage=closed.storage).open()


def test_entry_point_lets_fsspec_find_the_protocol() -> None:
    code = "import fsspec; print(fsspec.get_filesystem_class('wink').__name__)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "WinkFileSystem\n"


# Reading


def test_any_entry_of_any_branch_can_be_read(closed: ClosedWorkspace) -> None:
    with closed.open() as workspace:
        workspace.run(lambda: workspace.files.write_text("app.py", "two\n"))
        workspace.fork("try-2")
        workspace.run(lambda: workspace.files.write_text("app.py", "three\n"))

    def read(ref: str) -> str:
        return (
            fsspec.open(f"wink://{closed.id[:6]}{ref}/app.py", "r", storage=closed.storage)
            .open()
            .read()
        )

    assert [read(ref) for ref in ("", "@1", "@2", "@3", "/try-2@", "/try-2@1")] == [
        "three\n",
        "one\n",
        "two\n",
        "three\n",
        "two\n",
        "one\n",
    ]


def test_reading_sees_later_entries_while_another_program_has_the_workspace_open(
    closed: ClosedWorkspace,
) -> None:
    fs = closed.fs()
    assert fs.cat("/app.py") == b"one\n"
    with closed.open() as workspace:
        workspace.run(lambda: workspace.files.write_text("app.py", "two\n"))
        assert fs.cat("/app.py") == b"two\n"


def test_entry_has_links_modes_and_large_files(closed: ClosedWorkspace) -> None:
    large = bytes(range(256)) * 8_192
    with closed.open() as workspace, workspace.call("add") as call:
        call.files.symlink("link", "app.py")
        call.files.write_bytes("large.bin", large)
    with closed.open() as workspace:
        files = workspace.files_at()
        assert files.stat("run.sh").executable
        assert files.stat("link", follow=False).target == "app.py"
        assert (
            files.read_bytes("large.bin", offset=2_000_000, limit=4) == large[2_000_000:2_000_004]
        )
        with pytest.raises(ReadOnlyError):
            files.write_text("app.py", "x")
        with pytest.raises(EntryMissingError):
            workspace.files_at(99)


def test_mount_shows_an_entry_of_another_workspace(closed: ClosedWorkspace) -> None:
    mount = UrlMount(f"wink://{closed.id}@1", at="old", storage_options={"storage": closed.storage})
    assert MemoryFilesystem(mounts=[mount]).read_bytes("old/app.py") == b"one\n"


# Writing


@pytest.mark.behaviour(171)
def test_each_change_is_one_call_even_of_a_whole_directory(
    closed: ClosedWorkspace, tmp_path: Path
) -> None:
    local = tmp_path / "local"
    (local / "deep").mkdir(parents=True)
    (local / "a.txt").write_text("a")
    (local / "deep" / "b.txt").write_text("b")
    fs = closed.fs()
    fs.put(str(local), "/", recursive=True)
    fs.mv("/local", "/moved", recursive=True)
    with fs.open("/app.py", "ab") as stream:
        stream.write(b"more\n")
    fs.rm(["/moved/a.txt", "/run.sh"])
    assert sorted(fs.find("/")) == ["/app.py", "/moved/deep/b.txt"]
    assert [subject.partition(":")[0] for subject, _ in closed.log()] == [
        "fsspec delete",
        "fsspec write",
        "fsspec move",
        "fsspec put",
    ]


@pytest.mark.behaviour(171)
def test_change_that_fails_in_the_middle_leaves_no_trace(
    closed: ClosedWorkspace, tmp_path: Path
) -> None:
    (tmp_path / "good").write_text("good")
    fs = closed.fs()
    with pytest.raises(FileNotFoundError):
        fs.put([str(tmp_path / "good"), str(tmp_path / "missing")], ["/good", "/missing"])
    assert fs.ls("/", detail=False) == ["/app.py", "/run.sh"]
    assert closed.log()[0][1] is Outcome.ROLLED_BACK


def test_entry_cannot_be_changed(closed: ClosedWorkspace) -> None:
    with pytest.raises(ReadOnlyError, match="Leave the entry out of the URL"):
        closed.fs(entry=1).pipe("/app.py", b"")


def test_of_two_edits_of_one_file_at_once_the_second_is_refused(closed: ClosedWorkspace) -> None:
    first, second = closed.fs().open("/app.py", "r+b"), closed.fs().open("/app.py", "r+b")
    first.write(b"first")
    second.write(b"second")
    first.close()
    with pytest.raises(FileChangedError):
        second.close()
    assert closed.fs().cat("/app.py") == b"first"


def test_write_is_refused_while_another_program_has_the_branch_open(
    closed: ClosedWorkspace,
) -> None:
    with closed.open():
        with pytest.raises(LedgerBusyError):
            closed.fs().pipe("/app.py", b"")


# Transactions


def test_transaction_is_one_call(closed: ClosedWorkspace) -> None:
    fs, other = closed.fs(), closed.fs()
    with fs.transaction:
        with fs.open("/new.txt", "w") as stream:
            stream.write("new")
        fs.rm("/run.sh")
        left_open = fs.open("/open.txt", "wb")
        left_open.write(b"closed by the end")
        assert fs.cat("/new.txt") == b"new"
        assert other.ls("/", detail=False) == ["/app.py", "/run.sh"]
    assert other.ls("/", detail=False) == ["/app.py", "/new.txt", "/open.txt"]
    assert closed.log() == [("fsspec transaction: committed", Outcome.COMMITTED)]


def test_transaction_without_a_block_commits_at_its_end(closed: ClosedWorkspace) -> None:
    fs = closed.fs()
    fs.start_transaction()
    fs.pipe("/a", b"")
    fs.end_transaction()
    fs.pipe("/b", b"")
    assert len(closed.log()) == 2


@pytest.mark.behaviour(171)
@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_transaction_that_fails_leaves_no_trace(
    closed: ClosedWorkspace, error: type[BaseException]
) -> None:
    fs = closed.fs()
    with pytest.raises(error):
        with fs.transaction:
            fs.pipe("/a", b"")
            fs.open("/b", "wb").write(b"never closed")
            raise error
    assert fs.ls("/", detail=False) == ["/app.py", "/run.sh"]
    fs.pipe("/c", b"")
    assert [outcome for _, outcome in closed.log()] == [Outcome.COMMITTED, Outcome.ROLLED_BACK]


def test_transaction_that_is_discarded_leaves_no_trace(closed: ClosedWorkspace) -> None:
    fs = closed.fs()
    transaction = fs.start_transaction()
    fs.pipe("/a", b"")
    transaction.complete(commit=False)
    assert not fs.exists("/a")
    with pytest.raises(UsageError, match="over"):
        transaction.complete()


def test_transaction_that_cannot_begin_can_be_tried_again(closed: ClosedWorkspace) -> None:
    fs = closed.fs()
    with closed.open():
        with pytest.raises(LedgerBusyError):
            fs.start_transaction()
    with fs.transaction:
        fs.pipe("/a", b"")
    assert fs.exists("/a")


def test_write_that_cannot_end_rolls_the_transaction_back(closed: ClosedWorkspace) -> None:
    fs = closed.fs()
    with pytest.raises(FileExistsError):
        with fs.transaction:
            fs.pipe("/a", b"")
            stream = fs.open("/b", "xb")
            fs.pipe("/b", b"")
            stream.write(b"two")
    assert not fs.exists("/a")


def test_threads_that_use_a_filesystem_in_a_transaction_take_part_in_it(
    closed: ClosedWorkspace,
) -> None:
    fs, other = closed.fs(), closed.fs()
    problems: list[str] = []

    def work(number: int) -> None:
        fs.pipe(f"/{number}", b"x")
        if not fs.exists("/first") or other.exists("/first"):
            problems.append("a thread does not see the transaction, or another filesystem does")
        try:
            fs.start_transaction()
        except UsageError as error:
            problems.extend([] if "has begun" in str(error) else [str(error)])

    with fs.transaction:
        fs.pipe("/first", b"")
        threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
    assert problems == []
    assert sorted(fs.ls("/", detail=False))[:4] == ["/0", "/1", "/2", "/3"]
    assert closed.log() == [("fsspec transaction: committed", Outcome.COMMITTED)]


def test_pyarrow_writes_a_dataset_in_a_transaction(closed: ClosedWorkspace) -> None:
    import pyarrow as pa
    import pyarrow.dataset as ds

    fs = closed.fs()
    table = pa.table({"a": [1, 2], "b": ["x", "y"]})
    with fs.transaction:
        ds.write_dataset(table, "/p", filesystem=fs, format="parquet", partitioning=["b"])
        assert len(fs.find("/p")) == 2
    assert len(closed.log()) == 1


def test_filesystem_can_be_sent_to_another_process(closed: ClosedWorkspace) -> None:
    again = pickle.loads(pickle.dumps(WinkFileSystem(closed.id, branch="main", entry=1)))
    assert again == WinkFileSystem(closed.id, entry=1)
