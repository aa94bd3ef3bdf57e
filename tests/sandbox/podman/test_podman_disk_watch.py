"""The disk watch: when it stops a command, and how rarely it walks the tree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from wink_workspace.errors import FilesystemError
from wink_workspace.sandbox.commands import disk_watch
from wink_workspace.sandbox.commands.disk_watch import DiskWatch, Usage, usage_of

MIB = 1_048_576
MOST = Usage(100 * MIB, 1_000)


class FakeDisk:
    """A fake disk whose free space the test sets."""

    def __init__(self, n_bytes: int = 10_000 * MIB, n_entries: int = 1_000_000) -> None:
        self.free = (n_bytes, n_entries)

    def __call__(self, _: Path) -> tuple[int, int]:
        return self.free

    def use(self, n_bytes: int = 0, n_entries: int = 0) -> None:
        self.free = (self.free[0] - n_bytes, self.free[1] - n_entries)


def sparse(path: Path, n_bytes: int) -> None:
    with path.open("wb") as file:
        file.truncate(n_bytes)


def test_a_small_tree_does_not_stop_the_command(tmp_path: Path) -> None:
    disk = FakeDisk()
    watch = DiskWatch(tmp_path, most=MOST, free=disk)
    assert watch() is None
    disk.use(50 * MIB)  # used by another process
    assert watch() is None


def test_a_tree_above_its_byte_limit_stops_the_command(tmp_path: Path) -> None:
    disk = FakeDisk()
    watch = DiskWatch(tmp_path, most=MOST, free=disk)
    sparse(tmp_path / "large", 101 * MIB)
    assert watch() is None, "free space has not changed yet"
    disk.use(101 * MIB)
    assert watch() == "the workspace grew beyond 104,857,600 bytes"


def test_a_tree_above_its_entry_limit_stops_the_command(tmp_path: Path) -> None:
    disk = FakeDisk()
    watch = DiskWatch(tmp_path, most=Usage(100 * MIB, 20), free=disk)
    for number in range(21):
        (tmp_path / str(number)).touch()
    disk.use(n_entries=21)
    assert watch() == "the workspace grew beyond 20 files and directories"


def test_a_nearly_full_disk_stops_the_command(
    tmp_path: Path,
) -> None:
    disk = FakeDisk()
    watch = DiskWatch(tmp_path, most=MOST, free=disk)
    disk.use(9_800 * MIB)
    assert watch() == "the disk is nearly full"


def test_a_small_disk_may_be_used_until_it_is_nearly_full(tmp_path: Path) -> None:
    disk = FakeDisk(40 * MIB)
    watch = DiskWatch(tmp_path, most=MOST, free=disk)
    disk.use(20 * MIB)
    assert watch() is None
    disk.use(19 * MIB)
    assert watch() == "the disk is nearly full"


def test_the_tree_is_walked_only_after_much_more_was_written(tmp_path: Path, monkeypatch) -> None:
    disk = FakeDisk()
    watch = DiskWatch(tmp_path, most=MOST, free=disk)
    walks: list[int] = []
    look = watch.walk
    monkeypatch.setattr(watch, "walk", lambda: walks.append(1) or look())
    for _ in range(100):
        disk.use(1 * MIB)
        assert watch() is None
    assert 1 <= len(walks) <= 16


def test_usage_counts_holes_and_counts_hard_links_once(tmp_path: Path) -> None:
    sparse(tmp_path / "a", 10 * MIB)
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("a")
    assert usage_of(tmp_path, most=MOST) == Usage(10 * MIB, 4)


@pytest.mark.parametrize("obstacle", ["keeps out", "moves"])
@pytest.mark.parametrize("taken", [{"n_bytes": 101 * MIB}, {"n_entries": 1_001}])
def test_a_tree_that_cannot_be_counted_is_judged_by_lost_disk_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obstacle: str, taken: dict[str, int]
) -> None:
    """A command can lock or move its directories, and fill the disk meanwhile."""

    def usage(_: Path, *, most: Usage, unreadable: Callable[[object], None]) -> Usage:
        if obstacle == "moves":
            raise FilesystemError("it moved")
        unreadable(("locked",))
        return Usage(0, 1)

    monkeypatch.setattr(disk_watch, "usage_of", usage)
    disk = FakeDisk()
    watch = DiskWatch(tmp_path, most=MOST, free=disk)
    disk.use(60 * MIB, 600)
    assert watch() is None, "the tree may be within its limits"
    disk.use(**taken)
    assert "cannot be counted" in str(watch())
