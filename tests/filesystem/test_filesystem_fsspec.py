"""The fsspec view reads and writes the workspace's files by the workspace's rules."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from wink_workspace.errors import InvalidPathError, ReadOnlyError, UsageError
from wink_workspace.filesystem import FilesystemLimits, HostMount, MemoryFilesystem


@pytest.fixture
def files() -> MemoryFilesystem:
    return MemoryFilesystem({"a.txt": "text", "d/b.txt": "inner"})


def test_view_and_workspace_see_each_others_changes(files: MemoryFilesystem) -> None:
    view = files.as_fsspec()
    token = files.snapshot()
    view.pipe("d/new.txt", b"from the view")
    files.write_text("own.txt", "from the workspace")
    assert files.read_bytes("d/new.txt") == b"from the view"
    assert view.find("") == ["/a.txt", "/d/b.txt", "/d/new.txt", "/own.txt"]
    files.restore(token)
    assert view.find("/") == ["/a.txt", "/d/b.txt"]


def test_instances_are_isolated_and_neither_cached_nor_pickled(files: MemoryFilesystem) -> None:
    one, two = MemoryFilesystem().as_fsspec(), MemoryFilesystem().as_fsspec()
    one.pipe("a", b"1")
    assert not two.exists("a")
    assert one != two
    assert files.as_fsspec() is not files.as_fsspec()
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(one)


@pytest.mark.parametrize("name", ["a.txt", "/a.txt", "//a.txt/", "wink://a.txt", "wink:///a.txt"])
def test_names_may_begin_at_the_root(files: MemoryFilesystem, name: str) -> None:
    view = files.as_fsspec()
    assert view.cat(name) == b"text"
    assert view.info(name) == {"name": "/a.txt", "size": 4, "type": "file"}


@pytest.mark.behaviour(41)
def test_path_that_leads_outside_is_refused(files: MemoryFilesystem) -> None:
    view = files.as_fsspec()
    for call in (view.info, view.ls, view.cat_file, view.mkdir, view.rm_file, view.rmdir):
        with pytest.raises(InvalidPathError):
            call("../secret")
    with pytest.raises(InvalidPathError):
        view.open("d/../../x", "wb").close()


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("wb", b"new"), ("ab", b"textnew"), ("r+b", b"newt"), ("w+b", b"new"), ("a+b", b"textnew")],
)
def test_file_is_written_when_it_is_closed(
    files: MemoryFilesystem, mode: str, expected: bytes
) -> None:
    view = files.as_fsspec()
    with view.open("a.txt", mode) as file:
        file.write(b"new")
        assert files.read_bytes("a.txt") == b"text"
    file.close()
    assert files.read_bytes("a.txt") == expected


def test_text_mode_works_and_unknown_modes_are_refused(files: MemoryFilesystem) -> None:
    view = files.as_fsspec()
    with view.open("new.txt", "w", encoding="utf-8") as file:
        file.write("é")
    with view.open("new.txt", "r", encoding="utf-8") as file:
        assert file.read() == "é"
    with pytest.raises(UsageError, match="zb"):
        view.open("a.txt", "zb")
    for mode in ("wb", "xb", "ab"):
        with pytest.raises(OSError, match=r"exists|directory"):
            view.open("d", mode)
    with pytest.raises(FileNotFoundError):
        view.open("missing", "rb")


def test_transaction_takes_effect_as_a_whole_or_not_at_all(files: MemoryFilesystem) -> None:
    view = files.as_fsspec()
    with view.transaction:
        view.pipe("a.txt", b"1")
        with view.open("b.txt", "wb") as file:
            file.write(b"2")
        assert not files.exists("b.txt")
    assert files.read_bytes("b.txt") == b"2"
    with pytest.raises(RuntimeError, match="on purpose"), view.transaction:
        with view.open("c.txt", "wb") as file:
            file.write(b"3")
        raise RuntimeError("on purpose")
    assert not files.exists("c.txt")


def test_write_limit_does_not_apply_to_the_view() -> None:
    files = MemoryFilesystem(limits=FilesystemLimits(write_bytes=2))
    files.as_fsspec().pipe("a", b"longer")
    assert files.read_bytes("a") == b"longer"
    assert files.limits.write_bytes == 2
    MemoryFilesystem().as_fsspec().pipe("a", b"x" * 2_000_000)


@pytest.mark.behaviour(53)
def test_read_only_files_are_read_only_in_the_view() -> None:
    view = MemoryFilesystem({"a": "x", "d/b": ""}, read_only=True).as_fsspec()
    for call in (
        lambda: view.pipe("a", b""),
        lambda: view.rm("a"),
        lambda: view.rm("d", recursive=True),
        lambda: view.mkdir("new"),
        lambda: view.makedirs("new"),
        lambda: view.cp_file("a", "b"),
        lambda: view.mv("a", "b"),
        lambda: view.touch("new"),
    ):
        with pytest.raises(ReadOnlyError):
            call()
    assert view.cat("a") == b"x"


def test_links_are_shown_and_not_followed(files: MemoryFilesystem, tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc")
    files = MemoryFilesystem({"d/a.txt": "text"}, mounts=[HostMount(tmp_path)])
    files.symlink("file", "d/a.txt")
    files.symlink("dir", "d")
    files.symlink("loop", "loop")
    view = files.as_fsspec()
    assert {entry["name"]: entry["type"] for entry in view.ls("")} == {
        "/d": "directory",
        "/dir": "link",
        "/file": "file",
        "/loop": "link",
        "/out": "link",
    }
    assert view.info("file") == {
        "name": "/file",
        "size": 4,
        "type": "file",
        "islink": True,
        "destination": "d/a.txt",
    }
    assert view.find("") == ["/d/a.txt", "/dir", "/file", "/loop", "/out"]
    view.cp_file("dir", "copied")
    assert files.stat("copied", follow=False).target == "d"
    view.rm("dir", recursive=True)
    assert files.read_bytes("d/a.txt") == b"text"


def test_copy_keeps_the_executable_bit(files: MemoryFilesystem) -> None:
    files.set_executable("a.txt", True)
    files.as_fsspec().cp("a.txt", "new/copy.txt")
    assert files.stat("new/copy.txt").executable


def test_directories_are_made_and_deleted_as_requested(files: MemoryFilesystem) -> None:
    view = files.as_fsspec()
    view.mkdir("x/y")
    with pytest.raises(FileExistsError):
        view.mkdir("x/y")
    with pytest.raises(FileExistsError):
        view.makedirs("x/y")
    view.makedirs("x/y", exist_ok=True)
    with pytest.raises(FileNotFoundError):
        view.mkdir("p/q", create_parents=False)
    view.rmdir("x/y")
    with pytest.raises(OSError, match="not empty"):
        view.rmdir("d")
    with pytest.raises(NotADirectoryError):
        view.rmdir("a.txt")
    assert view.ls("a.txt", detail=False) == ["/a.txt"]
    assert view.ls("/", detail=False) == ["/a.txt", "/d", "/x"]
    view.rm(["a.txt", "/d/b.txt"])
    assert view.find("", withdirs=True) == ["/d", "/x"]
    view.rm("/", recursive=True)
    assert files.list() == ()
