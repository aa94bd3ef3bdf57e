"""Hidden paths are never listed or changed, and changes of them are not reported."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
from disk_fixtures import covers

from wink_workspace.errors import FileMissingError, ReadOnlyError
from wink_workspace.filesystem import WorkspacePath, parse_path
from wink_workspace.filesystem.changes.scan import open_tracker
from wink_workspace.filesystem.disk.tree import DiskTree


class Hidden:
    """Hides ``secret`` at the top, and ``sub/own``."""

    def hides(self, parts: tuple[str, ...], *, is_directory: bool = True) -> bool:
        return parts[:1] == ("secret",) or parts[:2] == ("sub", "own")

    def hidden_in(
        self, directory: tuple[str, ...], names: Sequence[str], directories: Sequence[str]
    ) -> Collection[str]:
        return [name for name in names if self.hides((*directory, name))]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("secret/in/x", "sub/own/y", "sub/own.txt", "secrets"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    return tmp_path


def test_hidden_paths_are_in_no_listing_and_no_walk(root: Path) -> None:
    with DiskTree(root, hidden=Hidden()) as tree:
        names = [entry.path.name for entry in tree.entries(parse_path("."))]
        assert names == ["secrets", "sub"]
        assert [str(entry.path) for entry in tree.walk()] == ["secrets", "sub", "sub/own.txt"]
        assert [entry.path.name for entry in tree.entries(parse_path("sub"))] == ["own.txt"]
        many = [f"missing{n}" for n in range(100)]
        for names in (["secret", "secrets"], ["secret", "secrets", *many]):
            assert tree.statuses(parse_path("."), names).keys() == {"secrets"}


@pytest.mark.parametrize("path", ["secret", "secret/in/x", "sub/own", "sub/own/y"])
def test_hidden_path_is_missing_for_readers_and_read_only_for_writers(
    root: Path, path: str
) -> None:
    hidden = parse_path(path)
    with DiskTree(root, hidden=Hidden()) as tree:
        assert tree.entry(hidden) is None
        assert tree.statuses(hidden.parent, [hidden.name]) == {}
        with pytest.raises(FileMissingError):
            tree.open(hidden)
        with pytest.raises(FileMissingError):
            tree.entries(hidden)
        for change in (
            lambda: tree.write_file(hidden, [b"y"]),
            lambda: tree.make_directory(hidden),
            lambda: tree.make_symlink(hidden, "x"),
            lambda: tree.delete(hidden, recursive=True),
            lambda: tree.move(hidden, parse_path("moved")),
            lambda: tree.move(parse_path("secrets"), hidden),
            lambda: tree.set_executable(hidden, executable=True),
        ):
            with pytest.raises(ReadOnlyError):
                change()
    assert (root / "secret/in/x").read_bytes() == (root / "sub/own/y").read_bytes() == b"x"


@pytest.mark.parametrize("force_scan", [True, False])
def test_changes_of_hidden_paths_are_not_reported(root: Path, force_scan: bool) -> None:
    tracker = open_tracker(root, hidden=Hidden(), force_scan=force_scan)
    tracker.drain()
    (root / "secret/in/x").write_bytes(b"changed")
    (root / "sub/own/new").mkdir()
    (root / "sub/own.txt").write_bytes(b"changed")
    dirty = tracker.drain()
    tracker.close()
    assert covers(dirty, parse_path("sub/own.txt"))
    shown = {path for path in dirty.paths | dirty.prefixes if Hidden().hides(path.parts)}
    assert shown == set()
    assert WorkspacePath(()) not in dirty.prefixes
