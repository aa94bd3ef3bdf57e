"""``DiskTree``: operations on single entries of a host directory."""

from __future__ import annotations

import errno
import os
import resource
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from disk_fixtures import UNPRIVILEGED_UID, as_ordinary_user, deep_tree, path_of

from wink_workspace.errors import (
    DirectoryExpectedError,
    FileExpectedError,
    FileMissingError,
    FilesystemError,
    LinkError,
    PathExistsError,
    ReadOnlyError,
    UsageError,
)
from wink_workspace.filesystem import (
    ROOT,
    DiskTree,
    FileKind,
    WorkspacePath,
    parse_path,
)
from wink_workspace.filesystem.disk import descriptors

F = path_of("f")


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[DiskTree]:
    with DiskTree(tmp_path) as opened:
        yield opened


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def names_of(tree: DiskTree, path: WorkspacePath = ROOT) -> list[str]:
    return [entry.path.name for entry in tree.entries(path)]


def content_of(tree: DiskTree, path: WorkspacePath) -> bytes:
    with tree.open(path) as stream:
        return stream.read()


# Reading


def test_entry_has_the_kind_size_mode_and_target(tree: DiskTree, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "f").write_bytes(b"12345")
    (tmp_path / "f").chmod(0o750)
    (tmp_path / "g").hardlink_to(tmp_path / "f")
    (tmp_path / "l").symlink_to("nowhere")
    file, link = tree.entry(F), tree.entry(path_of("l"))
    assert file is not None
    assert (file.kind, file.size_bytes, file.mode, file.executable, file.n_links) == (
        FileKind.FILE,
        5,
        0o750,
        True,
        2,
    )
    assert file.changed_ns == (tmp_path / "f").stat().st_ctime_ns
    assert link is not None
    assert (link.kind, link.target, link.executable) == (FileKind.SYMLINK, "nowhere", False)
    assert [entry.kind for entry in tree.entries(ROOT)] == ["directory", "file", "file", "symlink"]
    root = tree.entry(ROOT)
    assert root is not None
    assert root.kind is FileKind.DIRECTORY


def test_entry_below_a_file_or_with_a_too_long_name_is_none(tree: DiskTree) -> None:
    tree.put_file(F, [b""])
    for path in ("missing", "f/below", "missing/below", "n" * 300):
        assert tree.entry(path_of(path)) is None
    assert tree.statuses(path_of("missing"), ["a"]) == {}


def test_walk_gives_parents_first_and_names_in_order(tree: DiskTree, tmp_path: Path) -> None:
    for name in ("b/2", "b/1", "a/x/y", "c"):
        tree.put_file(path_of(name), [b""])
    (tmp_path / "a" / "link").symlink_to("../b")
    found = [str(entry.path) for entry in tree.walk()]
    assert found == ["a", "b", "c", "a/link", "a/x", "a/x/y", "b/1", "b/2"]
    assert [str(entry.path) for entry in tree.walk(path_of("b"))] == ["b/1", "b/2"]


def test_names_that_are_not_utf_8_are_read_and_written_as_surrogates(
    tree: DiskTree, tmp_path: Path
) -> None:
    name = os.fsdecode(b"caf\xe9\n")
    (tmp_path / name).touch()
    (tmp_path / "link").symlink_to(os.fsdecode(b"\xff"))
    found = [(entry.path.name, entry.target) for entry in tree.entries(ROOT)]
    assert found == [("caf\udce9\n", None), ("link", "\udcff")]
    tree.move(path_of("caf\udce9\n"), path_of("\udcfe"))
    assert sorted(map(os.fsencode, tmp_path.iterdir())) == [
        os.fsencode(tmp_path) + name for name in (b"/link", b"/\xfe")
    ]


def test_only_regular_files_are_opened(tree: DiskTree, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "d").mkdir()
    (tmp_path / "l").symlink_to("f")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
    for name, error in (
        ("pipe", FilesystemError),
        ("socket", FilesystemError),
        ("d", FileExpectedError),
        ("l", LinkError),
        ("missing", FileMissingError),
    ):
        with pytest.raises(error):
            tree.open(path_of(name))
    assert [entry.kind for entry in tree.entries(ROOT)] == ["directory", "symlink", None, None]


def test_link_inside_a_path_is_not_followed(tree: DiskTree, tmp_path: Path) -> None:
    tree.put_file(path_of("real/f"), [b"x"])
    (tmp_path / "l").symlink_to("real")
    assert tree.entry(path_of("l/f")) is None
    with pytest.raises(DirectoryExpectedError):
        tree.open(path_of("l/f"))
    with pytest.raises(DirectoryExpectedError):
        tree.write_file(path_of("l/f"), [b"y"])
    assert content_of(tree, path_of("real/f")) == b"x"


@pytest.mark.parametrize("has_openat2", [True, False], ids=["openat2", "openat"])
def test_directories_are_opened_the_same_way_with_and_without_openat2(
    tree: DiskTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_openat2: bool
) -> None:
    if not has_openat2:
        # Act as a kernel without the system call.
        monkeypatch.setattr(descriptors, "_OPENAT2", 1_000_000)
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "a" / "link").symlink_to("b")
    tree.write_file(path_of("a/b/c/f"), [b"x"])
    tree.write_file(path_of("a/b/f"), [b"x"])
    assert content_of(tree, path_of("a/b/f")) == b"x"
    for nowhere in ("a/link/f", "a/link/c/f", "a/b/f/g", "a/missing/f"):
        assert tree.entry(path_of(nowhere)) is None
    for error, nowhere in (
        (DirectoryExpectedError, "a/link/f"),
        (DirectoryExpectedError, "a/link/c/f"),
        (DirectoryExpectedError, "a/b/f/g"),
        (FileMissingError, "a/missing/f"),
    ):
        with pytest.raises(error):
            tree.open(path_of(nowhere))
    deep = WorkspacePath(("n" * 200,) * 30)
    tree.put_file(deep / "f", [b"deep"])
    assert content_of(tree, deep / "f") == b"deep"


def test_directories_closed_to_their_owner_are_made_accessible(tmp_path: Path) -> None:
    with DiskTree(tmp_path, make_accessible=True) as tree:
        tree.put_file(path_of("a/b/c/f"), [b"x"])
        (tmp_path / "a" / "b").chmod(0o400)
        (tmp_path / "a").chmod(0o500)
        with as_ordinary_user(tmp_path):
            assert content_of(tree, path_of("a/b/c/f")) == b"x"
    assert (mode_of(tmp_path / "a" / "b"), mode_of(tmp_path / "a" / "b" / "c")) == (0o700, 0o755)


def test_partial_writes_are_continued_to_the_end(
    tree: DiskTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:3]))
    tree.write_file(F, [b"one by one, ", b"", b"piece by piece"])
    assert content_of(tree, F) == b"one by one, piece by piece"


def test_directory_that_is_moved_away_while_it_is_walked_stops_the_walk(
    tree: DiskTree, tmp_path: Path
) -> None:
    for name in ("a/b/c", "a/d/e", "elsewhere/x"):
        tree.put_file(path_of(name), [b""])
    with pytest.raises(FilesystemError, match="all the time"):
        for listing in tree.listings():
            if listing.parts == ("a", "b"):
                (tmp_path / "a" / "b").rename(tmp_path / "elsewhere" / "b")


def test_walk_skips_directories_that_vanish_or_become_files(tree: DiskTree, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    seen = []
    for listing in tree.listings():
        seen.append(listing.parts)
        if not listing.parts:
            (tmp_path / "a").rmdir()
            (tmp_path / "b").rmdir()
            (tmp_path / "b").touch()
    assert seen == [(), ("c",)]


# Writing


def test_file_keeps_its_mode_and_new_ones_ignore_the_umask(tree: DiskTree, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        tree.write_file(F, [b"1"])
        tree.make_directory(path_of("d"))
    finally:
        os.umask(before)
    assert (mode_of(tmp_path / "f"), mode_of(tmp_path / "d")) == (0o644, 0o755)
    (tmp_path / "f").chmod(0o4751)
    tree.write_file(F, [b"2", b"3"])
    assert (mode_of(tmp_path / "f"), content_of(tree, F)) == (0o751, b"23")
    tree.write_file(F, [b"4"], mode="append")
    assert (mode_of(tmp_path / "f"), content_of(tree, F)) == (0o751, b"234")
    tree.write_file(F, [b"5"], executable=False)
    assert mode_of(tmp_path / "f") == 0o644


def test_create_refuses_a_name_that_exists(tree: DiskTree, tmp_path: Path) -> None:
    (tmp_path / "l").symlink_to("nowhere")
    (tmp_path / "d").mkdir()
    tree.write_file(F, [b"first"], mode="create")
    for name in ("f", "l", "d"):
        with pytest.raises(PathExistsError):
            tree.write_file(path_of(name), [b"second"], mode="create")
    assert content_of(tree, F) == b"first"
    assert names_of(tree) == ["d", "f", "l"]


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EINVAL])
def test_files_are_written_on_a_filesystem_without_renameat2(
    tree: DiskTree, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    # Act as a filesystem that lacks the call.
    monkeypatch.setattr(descriptors, "_renameat2", lambda: lambda *_: code)
    tree.write_file(F, [b"first"], mode="create")
    with pytest.raises(PathExistsError):
        tree.write_file(F, [b"second"], mode="create")
    tree.write_file(F, [b"third"])
    assert content_of(tree, F) == b"third"
    assert names_of(tree) == ["f"]


def test_file_does_not_replace_a_directory(tree: DiskTree) -> None:
    tree.put_file(path_of("d/f"), [b"x"])
    with pytest.raises(FileExpectedError):
        tree.write_file(path_of("d"), [b"y"])
    assert [str(entry.path) for entry in tree.walk()] == ["d", "d/f"]


def test_write_leaves_other_names_of_the_file_alone(tree: DiskTree, tmp_path: Path) -> None:
    tree.put_file(F, [b"before"])
    (tmp_path / "other").hardlink_to(tmp_path / "f")
    tree.write_file(F, [b"after"])
    tree.write_file(path_of("other"), [b"!"], mode="append")
    assert content_of(tree, F) == b"after"
    assert content_of(tree, path_of("other")) == b"before!"


@contextmanager
def largest_file(n_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("mode", ["create", "overwrite", "append"])
def test_write_that_fails_leaves_what_was_there_and_nothing_else(tree: DiskTree, mode: str) -> None:
    if mode != "create":
        tree.put_file(F, [b"before"])
    with largest_file(50_000), pytest.raises(FilesystemError, match="f: File too large"):
        tree.write_file(F, [b"x" * 40_000, b"y" * 20_000], mode=mode)
    assert names_of(tree) == ([] if mode == "create" else ["f"])
    assert mode == "create" or content_of(tree, F) == b"before"


def test_content_that_fails_half_way_leaves_nothing(tree: DiskTree) -> None:
    def content() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tree.write_file(F, content())
    assert names_of(tree) == []


def test_durable_tree_does_the_same(tmp_path: Path) -> None:
    with DiskTree(tmp_path, durable=True) as tree:
        tree.put_file(path_of("d/f"), [b"x"])
        tree.put_symlink(path_of("l"), "d")
        tree.move(path_of("d/f"), path_of("f"))
        tree.remove(path_of("d"))
        assert names_of(tree) == ["f", "l"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files for others")
def test_entries_made_by_root_belong_to_the_owner_of_the_directory(
    tree: DiskTree, tmp_path: Path
) -> None:
    (tmp_path / "d").mkdir()
    os.chown(tmp_path / "d", UNPRIVILEGED_UID, UNPRIVILEGED_UID)
    tree.write_file(path_of("d/new"), [b"x"])
    tree.make_directory(path_of("d/sub"))
    tree.write_file(F, [b"x"])
    os.chown(tmp_path / "f", UNPRIVILEGED_UID, 0)
    tree.write_file(F, [b"y"])
    owners = [(tmp_path / name).stat().st_uid for name in ("d/new", "d/sub", "f")]
    assert owners == [UNPRIVILEGED_UID, UNPRIVILEGED_UID, UNPRIVILEGED_UID]
    assert (tmp_path / "f").stat().st_gid == 0


def test_executable_bit_is_set_for_those_who_may_read(tree: DiskTree, tmp_path: Path) -> None:
    for before, executable, after in (
        (0o644, True, 0o755),
        (0o640, True, 0o750),
        (0o000, True, 0o100),
        (0o755, False, 0o644),
    ):
        tree.put_file(F, [b""])
        (tmp_path / "f").chmod(before)
        tree.set_executable(F, executable=executable)
        assert mode_of(tmp_path / "f") == after
    (tmp_path / "l").symlink_to("f")
    for name, error in (("l", LinkError), ("", UsageError)):
        with pytest.raises(error):
            tree.set_executable(parse_path(name), executable=True)
    tree.make_directory(path_of("d"))
    with pytest.raises(FileExpectedError):
        tree.set_executable(path_of("d"), executable=True)


# Moving and deleting


def test_move_between_two_names_of_one_file_leaves_the_second(
    tree: DiskTree, tmp_path: Path
) -> None:
    tree.put_file(F, [b"x"])
    (tmp_path / "g").hardlink_to(tmp_path / "f")
    tree.move(F, path_of("g"))
    tree.move(path_of("g"), path_of("g"))
    assert names_of(tree) == ["g"]


def test_move_names_the_missing_source_or_directory(tree: DiskTree) -> None:
    with pytest.raises(FileMissingError, match="missing does not exist"):
        tree.move(path_of("missing"), F)
    tree.put_file(F, [b""])
    with pytest.raises(FileMissingError, match="no/where does not exist"):
        tree.move(F, path_of("no/where"))


def test_directory_of_any_depth_is_deleted(tree: DiskTree, tmp_path: Path) -> None:
    with deep_tree(tmp_path, 3_000):
        assert sum(1 for _ in tree.listings()) == 3_001
        tree.delete(path_of("deep"), recursive=True)
        assert names_of(tree) == []


def test_closed_and_read_only_directories_are_deleted(tree: DiskTree, tmp_path: Path) -> None:
    for name in ("d/closed/inner/f", "d/readable/f"):
        tree.put_file(path_of(name), [b""])
    (tmp_path / "d" / "readable").chmod(0o500)
    (tmp_path / "d" / "closed" / "inner").chmod(0o000)
    (tmp_path / "d" / "closed").chmod(0o000)
    with as_ordinary_user(tmp_path):
        tree.delete(path_of("d"), recursive=True)
        assert names_of(tree) == []


def test_directory_that_gains_files_meanwhile_is_deleted(
    tree: DiskTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.put_file(path_of("d/sub/f"), [b""])
    original = os.rmdir
    late = iter(range(3))

    def rmdir(name: str, *, dir_fd: int) -> None:
        if next(late, None) is not None:
            (tmp_path / "d" / "sub" / "late").touch()
        original(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", rmdir)
    tree.delete(path_of("d"), recursive=True)
    assert names_of(tree) == []


def test_deleting_a_directory_that_is_never_empty_fails(
    tree: DiskTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.put_file(path_of("d/f"), [b""])

    def full(_: str, *, dir_fd: int) -> None:
        tree.put_file(path_of("d/again"), [b""])
        raise OSError(39, "Directory not empty")

    monkeypatch.setattr(os, "rmdir", full)
    with pytest.raises(FilesystemError, match="all the time"):
        tree.delete(path_of("d"), recursive=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a directory of another user")
def test_deleting_a_directory_of_another_user_is_refused_with_the_reason(
    tree: DiskTree, tmp_path: Path
) -> None:
    tree.put_file(path_of("d/f"), [b""])
    with as_ordinary_user(tmp_path):
        os.seteuid(0)
        os.chown(tmp_path / "d", 0, 0)
        os.seteuid(UNPRIVILEGED_UID)
        with pytest.raises(ReadOnlyError, match="permission denied"):
            tree.delete(path_of("d"), recursive=True)
    assert names_of(tree, path_of("d")) == ["f"]


# Putting over existing entries

OBSTACLES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda host_path: None,
    "file": lambda host_path: host_path.write_bytes(b"in the way"),
    "closed file": lambda host_path: (host_path.touch(), host_path.chmod(0)),
    "directory": lambda host_path: host_path.mkdir(),
    "full directory": lambda host_path: (host_path / "a" / "b").mkdir(parents=True),
    "link": lambda host_path: host_path.symlink_to("/etc"),
    "pipe": lambda host_path: os.mkfifo(host_path),
}


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_put_replaces_any_existing_entry(tree: DiskTree, tmp_path: Path, obstacle: str) -> None:
    host_path, path = tmp_path / "p", path_of("p")

    def put_obstacle() -> None:
        tree.remove(path)
        OBSTACLES[obstacle](host_path)

    put_obstacle()
    tree.put_file(path, [b"content"], executable=True)
    assert (host_path.read_bytes(), mode_of(host_path)) == (b"content", 0o755)
    put_obstacle()
    tree.put_symlink(path, "target")
    assert host_path.readlink() == Path("target")
    put_obstacle()
    tree.put_directory(path)
    assert (host_path.is_dir(), host_path.is_symlink(), mode_of(host_path)) == (True, False, 0o755)
    assert (host_path / "a" / "b").exists() == (obstacle == "full directory")
    put_obstacle()
    tree.remove(path)
    assert names_of(tree) == []


@pytest.mark.parametrize("obstacle", sorted(OBSTACLES.keys() - {"directory", "full directory"}))
def test_put_replaces_an_entry_where_a_parent_directory_is_needed(
    tree: DiskTree, tmp_path: Path, obstacle: str
) -> None:
    tree.put_directory(path_of("a"))
    OBSTACLES[obstacle](tmp_path / "a" / "b")
    tree.put_file(path_of("a/b/c/f"), [b"x"])
    assert (tmp_path / "a" / "b" / "c" / "f").read_bytes() == b"x"


def test_put_mode_and_put_directory_leave_the_content_alone(tree: DiskTree, tmp_path: Path) -> None:
    tree.put_file(path_of("d/f"), [b"x"])
    (tmp_path / "d" / "f").chmod(0o4600)
    (tmp_path / "d").chmod(0o1777)
    inode = (tmp_path / "d" / "f").stat().st_ino
    tree.put_mode(path_of("d/f"), executable=False)
    tree.put_directory(path_of("d"))
    assert (mode_of(tmp_path / "d"), mode_of(tmp_path / "d" / "f")) == (0o755, 0o644)
    assert (tmp_path / "d" / "f").stat().st_ino == inode
    with pytest.raises(UsageError):
        tree.remove(ROOT)


# Modes that deny access to the owner


def test_modes_are_respected_unless_entries_may_be_made_accessible(tmp_path: Path) -> None:
    with DiskTree(tmp_path) as tree, DiskTree(tmp_path, make_accessible=True) as accessible:
        for name in ("closed/inner/f", "d/f"):
            tree.put_file(path_of(name), [b"x"])
        (tmp_path / "closed" / "inner").chmod(0o000)
        (tmp_path / "closed").chmod(0o000)
        (tmp_path / "d" / "f").chmod(0o000)
        (tmp_path / "d").chmod(0o500)
        with as_ordinary_user(tmp_path):
            for refused in (
                lambda: tree.open(path_of("d/f")),
                lambda: tree.entries(path_of("closed")),
                lambda: tree.entry(path_of("closed/inner")),
                lambda: list(tree.walk()),
                lambda: tree.write_file(path_of("d/g"), [b""]),
            ):
                with pytest.raises(ReadOnlyError, match="permission denied"):
                    refused()
            assert content_of(accessible, path_of("d/f")) == b"x"
            assert len(list(accessible.walk())) == 5
            accessible.move(path_of("closed/inner"), path_of("d/inner"))
            accessible.write_file(path_of("d/g"), [b""])
    assert [mode_of(tmp_path / name) for name in ("d", "d/f", "d/inner")] == [0o700, 0o600, 0o700]


def test_closed_root_is_made_accessible(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with DiskTree(root, make_accessible=True) as tree:
        tree.put_file(F, [b"x"])
        root.chmod(0o000)
        with as_ordinary_user(root):
            assert names_of(tree) == ["f"]
    assert mode_of(root) == 0o700


# Opening and closing


def test_root_must_be_a_directory(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(FileMissingError):
        DiskTree(tmp_path / "missing")
    with pytest.raises(DirectoryExpectedError):
        DiskTree(tmp_path / "f")


def test_root_stays_the_same_directory_when_it_is_renamed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with DiskTree(tmp_path / "link") as tree:
        (tmp_path / "link").unlink()
        (tmp_path / "real").rename(tmp_path / "moved")
        tree.put_file(F, [b"x"])
    assert (tmp_path / "moved" / "f").read_bytes() == b"x"


def test_closed_tree_refuses_every_operation(tree: DiskTree) -> None:
    tree.close()
    tree.close()
    with pytest.raises(FilesystemError):
        tree.put_file(F, [b""])
    with pytest.raises(FilesystemError):
        tree.entries(ROOT)
