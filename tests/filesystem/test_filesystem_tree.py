"""Trees share unchanged nodes, so a snapshot costs only what differs."""

from __future__ import annotations

import pytest
from immutables import Map

from wink_workspace.errors import DirectoryExpectedError, FileMissingError, PathExistsError
from wink_workspace.filesystem import FileKind, MemoryFilesystem, parse_path
from wink_workspace.filesystem.memory_tree import (
    Directory,
    File,
    Node,
    RemoteDirectory,
    TreeSnapshot,
    merged,
    replaced,
    tree_changes,
    tree_of,
)

WIDE = {f"d{n // 100}/s{n % 10}/f{n}.txt": str(n) for n in range(10_000)}


class ListedOnce:
    """The entries of a remote directory; counts how often they are loaded."""

    def __init__(self, children: dict[str, Node]) -> None:
        self.identity = "remote"
        self.children = children
        self.n_loaded = 0

    def load(self) -> Map[str, Node]:
        self.n_loaded += 1
        return Map(self.children)


def nodes_of(*roots: Directory) -> set[int]:
    """Every distinct node that is reachable."""
    seen: dict[int, Node] = {}
    todo: list[Node] = list(roots)
    while todo:
        node = todo.pop()
        if id(node) not in seen:
            seen[id(node)] = node
            todo += node.children.values() if isinstance(node, Directory) else ()
    return set(seen)


def root_of(token: object) -> Directory:
    assert isinstance(token, TreeSnapshot)
    return token.root


@pytest.mark.behaviour(37)
def test_many_snapshots_hold_one_tree_and_the_changed_nodes() -> None:
    files = MemoryFilesystem(WIDE)
    tokens = [files.snapshot()]
    n_nodes = len(nodes_of(root_of(tokens[0])))
    for n in range(100):
        files.write_text("d7/s0/f700.txt", f"version {n}")
        tokens.append(files.snapshot())
    together = nodes_of(*(root_of(token) for token in tokens))
    assert len(together) == n_nodes + 100 * 4  # root, d7, s0 and the file


@pytest.mark.behaviour(38)
def test_comparing_visits_only_rebuilt_nodes() -> None:
    files = MemoryFilesystem(WIDE)
    before = files.snapshot()
    files.write_text("d7/s0/f700.txt", "changed")
    old, new = root_of(before), root_of(files.snapshot())
    rebuilt = nodes_of(new) - nodes_of(old)
    assert len(rebuilt) == 4
    assert [str(change.path) for change in files.changes(before)] == ["d7/s0/f700.txt"]


def test_writing_the_same_content_changes_nothing() -> None:
    files = MemoryFilesystem({"a": "x"})
    token = files.snapshot()
    files.write_text("a", "x")
    files.write_text("a", "", mode="append")
    files.set_executable("a", False)
    assert files.snapshot() is token


def test_remote_directory_is_listed_once_and_only_when_its_entries_are_needed() -> None:
    source = ListedOnce({"a": File(b"a")})
    before = tree_of({parse_path("far"): RemoteDirectory(source), parse_path("near"): File(b"")})
    after = replaced(before, parse_path("near"), File(b"x"))
    fingerprint = before.fingerprint
    assert [str(change.path) for change in tree_changes(before, after)] == ["near"]
    assert source.n_loaded == 0
    changed = replaced(after, parse_path("far/b"), File(b"b"))
    assert [str(change.path) for change in tree_changes(after, changed)] == ["far/b"]
    assert source.n_loaded == 1
    assert before.fingerprint == fingerprint != changed.fingerprint


def test_tree_stays_the_same_object_when_nothing_in_it_is_replaced() -> None:
    leaf = File(b"")
    root = tree_of({parse_path("a/b"): leaf})
    assert replaced(root, parse_path("a/b"), leaf) is root
    assert replaced(root, parse_path("a/none"), None) is root


def test_node_cannot_be_put_below_a_file_or_a_missing_directory() -> None:
    root = tree_of({parse_path("a"): File(b"")})
    with pytest.raises(DirectoryExpectedError, match="a is not a directory"):
        replaced(root, parse_path("a/b"), File(b""))
    with pytest.raises(FileMissingError, match="x does not exist"):
        replaced(root, parse_path("x/b"), File(b""))
    with pytest.raises(DirectoryExpectedError):
        tree_of({parse_path("a"): File(b""), parse_path("a/b/c"): File(b"")})


def test_merging_joins_directories_and_refuses_everything_else() -> None:
    one = tree_of({parse_path("d/a"): File(b"a"), parse_path("e"): Directory()})
    two = tree_of({parse_path("d/b"): File(b"b"), parse_path("e/f"): File(b"f")})
    joined = merged(one, two)
    changes = tree_changes(None, joined)
    assert [str(change.path) for change in changes] == [".", "d", "d/a", "d/b", "e", "e/f"]
    with pytest.raises(PathExistsError, match="d/a"):
        merged(one, tree_of({parse_path("d/a"): File(b"a")}))
    with pytest.raises(PathExistsError, match="d"):
        merged(one, tree_of({parse_path("d"): RemoteDirectory(ListedOnce({}))}))


def test_change_of_kind_is_one_change() -> None:
    before = tree_of({parse_path("a/b"): File(b"")})
    after = tree_of({parse_path("a"): File(b"now a file")})
    assert [
        (str(change.path), change.before and change.before.kind, change.after and change.after.kind)
        for change in tree_changes(before, after)
    ] == [("a", FileKind.DIRECTORY, FileKind.FILE), ("a/b", FileKind.FILE, None)]
