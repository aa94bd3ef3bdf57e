"""Directories that are compared with an earlier index, by this process and by a filter."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from wink_workspace.filesystem.changes import FileIndex
from wink_workspace.filesystem.changes.index_file import decoded, encoded, row_of
from wink_workspace.filesystem.changes.unchanged import UnchangedDirectories
from wink_workspace.filesystem.disk.descriptors import Parts
from wink_workspace.filesystem.disk.tree import DiskTree

FILES = ("top.txt", "a/one", "a/two", "a/b/deep", "c/\udcff odd")


def files_in(top: Path) -> Path:
    for name in FILES:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(name[:1])
    (top / "a/link").symlink_to("one")
    (top / "empty").mkdir()
    return top


def indexed(tree: DiskTree) -> FileIndex:
    """The index of a walk that listed everything, long after the last change."""
    index = FileIndex()
    for listing in tree.listings():
        index.put_listing(listing.parts, listing.entries, sys.maxsize, own=listing.status)
    return index


def unchanged_in(tree: DiskTree, earlier: FileIndex) -> set[Parts]:
    """The directories that are found unchanged in a walk of them all."""
    found: set[Parts] = set()
    known = UnchangedDirectories(tree, earlier)
    for listing in tree.listings():
        if known.find(listing.parts, listing.fd) is not None:
            found.add(listing.parts)
    return found


def replaced(path: Path) -> None:
    """Another directory with the same files in the place of *path*."""
    path.rename(path.with_name("moved"))
    path.mkdir()
    for file in path.with_name("moved").iterdir():
        file.rename(path / file.name)


CHANGES: dict[str, tuple[Callable[[Path], object], set[Parts]]] = {
    "nothing": (lambda _: None, set()),
    "content": (lambda top: (top / "a/one").write_text("9"), {("a",)}),
    "mode of a file": (lambda top: (top / "a/b/deep").chmod(0o755), {("a", "b")}),
    "mode of a directory": (lambda top: (top / "a/b").chmod(0o700), {("a",), ("a", "b")}),
    "time": (lambda top: os.utime(top / "a/two", (1, 1)), {("a",)}),
    "new name": (lambda top: (top / "c/new").touch(), {("c",)}),
    "deleted name": (lambda top: (top / "a/link").unlink(), {("a",)}),
    "new directory": (lambda top: (top / "empty/new").mkdir(), {("empty",), ("empty", "new")}),
    "hard link elsewhere": (lambda top: os.link(top / "a/one", top / "c/x"), {("a",), ("c",)}),
    "file for a link": (
        lambda top: ((top / "a/link").unlink(), (top / "a/link").write_text("one")),
        {("a",)},
    ),
    "replaced directory": (lambda top: replaced(top / "c"), {(), ("c",), ("moved",)}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_only_directories_in_which_something_changed_are_listed_again(
    tmp_path: Path, name: str
) -> None:
    change, expected = CHANGES[name]
    top = files_in(tmp_path / "top")
    with DiskTree(top) as tree:
        earlier = indexed(tree)
        everything = {listing.parts for listing in tree.listings()}
        assert unchanged_in(tree, earlier) == everything
        change(top)
        now = {listing.parts for listing in tree.listings()}
        assert now - unchanged_in(tree, earlier) == expected


def test_a_directory_that_was_not_listed_as_a_whole_is_listed_again(tmp_path: Path) -> None:
    with DiskTree(files_in(tmp_path / "top")) as tree:
        earlier = indexed(tree)
        other = indexed(tree)
        earlier.forget(("a",), "two")
        assert unchanged_in(tree, earlier) == {(), ("a", "b"), ("c",), ("empty",)}
        other.keep_listed(earlier)
        assert unchanged_in(tree, other) == {(), ("a", "b"), ("c",), ("empty",)}
        os.utime(tree.root / "c")  # as if a file was made and deleted before another walk
        earlier.keep_listed(indexed(tree))
        assert earlier.known_listings().keys() == {(), ("a", "b"), ("empty",)}


def test_a_directory_that_had_just_changed_when_it_was_listed_is_listed_again(
    tmp_path: Path,
) -> None:
    with DiskTree(files_in(tmp_path / "top")) as tree:
        earlier = FileIndex()
        for listing in tree.listings():
            earlier.put_listing(listing.parts, listing.entries, 0, own=listing.status)
        assert unchanged_in(tree, earlier) == set()


@pytest.mark.parametrize("kind", [stat.S_IFREG, stat.S_IFDIR])
def test_inode_numbers_of_64_bits_are_compared(kind: int) -> None:
    """Those of directories do not count."""

    def with_inode(inode: int) -> os.stat_result:
        times = {"st_mtime_ns": -1, "st_ctime_ns": 5}
        return os.stat_result((kind | 0o755, inode, 0, 1, 0, 0, 7, 0, 0, 0), times)

    first, second = with_inode(2**64 - 2), with_inode(2**64 - 1)
    stored = decoded(encoded({"a": row_of(first)}))["a"]
    for found, is_same in ((first, True), (second, kind == stat.S_IFDIR)):
        assert (row_of(found) == stored) is is_same


def test_no_directory_counts_as_unchanged_where_directories_may_keep_their_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DiskTree(files_in(tmp_path)) as tree:
        earlier = indexed(tree)
        assert ("a",) in unchanged_in(tree, earlier)
    monkeypatch.setattr(DiskTree, "keeps_times", False)
    with DiskTree(tmp_path) as tree:
        assert unchanged_in(tree, earlier) == set()
