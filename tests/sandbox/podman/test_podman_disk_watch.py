"""When a command that fills the disk is stopped, and how seldom the tree is walked for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from wink_workspace.errors import FilesystemError
from wink_workspace.sandbox.podman import disk_watch
from wink_workspace.sandbox.podman.disk_watch import DiskWatch, Usage, usage_of

MIB = 1_048_576
MOST = Usage(100 * MIB, 1_000)


class Disk:
    """A disk whose free space is what a test says; it counts how often it is asked."""

    def __init__(self, n_bytes: int = 10_000 * MIB, n_entries: int = 1_000_000) -> None:
        self.free = (n_bytes, n_entries)

    def __call__(self, _: Path) -> tuple[int, int]:
        return self.free

    def take(self, n_bytes: int = 0, n_entries: int = 0) -> None:
        self.free = (self.free[0] - n_bytes, self.free[1] - n_entries)


def sparse(path: Path, n_bytes: int) -> None:
    with path.open("wb") as file:
        file.truncate(n_bytes)


def test_a_tree_that_stays_small_is_left_alone(tmp_path: Path) -> None:
    disk = Disk()
    watch = DiskWatch(tmp_path, most=MOST, free=disk)
    assert watch() is None
    disk.take(50 * MIB)  # by somebody else
    assert watch() is None


def test_a_tree_beyond_its_bytes_stops_the_command(tmp_path: Path) -> None:
    disk = Disk()
    watch = DiskWatch(tmp_path, most=MOST, free=disk)
    sparse(tmp_path / "large", 101 * MIB)
    assert watch() is None, "nothing on the disk says so yet"
    disk.take(101 * MIB)
    assert watch() == "the workspace grew beyond 104,857,600 bytes"


def test_a_tree_beyond_its_entries_stops_the_command(tmp_path: Path) -> None:
    disk = Disk()
    watch = DiskWatch(tmp_path, most=Usage(100 * MIB, 20), free=disk)
    for number in range(21):
        (tmp_path / str(number)).touch()
    disk.take(n_entries=21)
    assert watch() == "the workspace grew beyond 20 files and directories"


def test_a_disk_that_is_nearly_full_stops_the_command_whatever_the_tree_holds(
    tmp_path: Path,
) -> None:
    disk = Disk()
    watch = DiskWatch(tmp_path, most=MOST, free=disk)
    disk.take(9_800 * MIB)
    assert watch() == "the disk is nearly full"


def test_a_disk_that_was_small_from_the_start_is_used_nearly_to_its_end(tmp_path: Path) -> None:
    disk = Disk(40 * MIB)
    watch = DiskWatch(tmp_path, most=MOST, free=disk)
    disk.take(20 * MIB)
    assert watch() is None
    disk.take(19 * MIB)
    assert watch() == "the disk is nearly full"


def test_the_tree_is_walked_again_only_when_much_more_was_written(
    tmp_path: Path, monkeypatch
) -> None:
    disk = Disk()
    watch = DiskWatch(tmp_path, most=MOST, free=disk)
    walks: list[int] = []
    walk = watch.walk
    monkeypatch.setattr(watch, "walk", lambda: walks.append(1) or walk())
    for _ in range(100):
        disk.take(1 * MIB)
        assert watch() is None
    assert 1 <= len(walks) <= 16


def test_usage_counts_holes_and_shares_hard_links(tmp_path: Path) -> None:
    sparse(tmp_path / "a", 10 * MIB)
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("a")
    assert usage_of(tmp_path, most=MOST) == Usage(10 * MIB, 4)


@pytest.mark.parametrize("obstacle", ["keeps out", "moves"])
@pytest.mark.parametrize("taken", [{"n_bytes": 101 * MIB}, {"n_entries": 1_001}])
def test_a_tree_that_cannot_be_counted_is_judged_by_what_the_disk_has_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obstacle: str, taken: dict[str, int]
) -> None:
    """A command can lock its directories, or move them about, and fill the disk meanwhile."""

    def usage(_: Path, *, most: Usage, unreadable: Callable[[object], None]) -> Usage:
        if obstacle == "moves":
            raise FilesystemError("it moved")
        unreadable(("locked",))
        return Usage(0, 1)

    monkeypatch.setattr(disk_watch, "usage_of", usage)
    disk = Disk()
    watch = DiskWatch(tmp_path, most=MOST, free=disk)
    disk.take(60 * MIB, 600)
    assert watch() is None, "it may be within its limits"
    disk.take(**taken)
    assert "cannot be counted" in str(watch())
