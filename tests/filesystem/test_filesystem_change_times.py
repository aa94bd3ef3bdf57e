"""Racily clean files: the time before which a change proves that a status is still right."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from wink_workspace.clock import SYSTEM_CLOCK, ManualClock
from wink_workspace.filesystem import DiskTree
from wink_workspace.filesystem.changes.inotify import InotifyTracker, has_mount_below
from wink_workspace.filesystem.disk import descriptors
from wink_workspace.filesystem.disk.fingerprint_cache import ChangeTimes
from wink_workspace.filesystem.paths import ROOT

_COARSE = 5  # CLOCK_REALTIME_COARSE


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[DiskTree]:
    with DiskTree(tmp_path) as opened:
        if not ChangeTimes(opened, SYSTEM_CLOCK, is_local=True).is_exact:
            pytest.skip("this filesystem rounds its times")
        yield opened


def wait_for_tick() -> None:
    """Until the kernel's coarse clock is past all times that files have now: some milliseconds.

    One step is not enough: the clock steps by whole ticks, so the time of its next step may be
    before the finer time that a file has just got.
    """
    for _ in range(2):
        now_ns = time.clock_gettime_ns(_COARSE)
        while time.clock_gettime_ns(_COARSE) == now_ns:
            pass


def test_change_after_a_status_that_is_not_racily_clean_alters_the_change_time(
    tree: DiskTree,
) -> None:
    times = ChangeTimes(tree, SYSTEM_CLOCK, is_local=True)
    file = tree.root / "f"
    n_proven = 0
    for n in range(300):
        if n % 100 == 0:
            file.write_text("before")
            wait_for_tick()
        else:
            file.write_text(f"{n:06}")
        racy_ns = times.racy_from_ns()
        before = file.stat().st_ctime_ns
        file.write_text("second")
        if before < racy_ns:
            n_proven += 1
            assert file.stat().st_ctime_ns != before
    assert n_proven >= 3


@pytest.mark.behaviour(97)
def test_files_are_racily_clean_only_until_the_next_tick_of_the_clock(tree: DiskTree) -> None:
    """So a bulk change is not read again: before, it was for two seconds."""
    for n in range(200):
        (tree.root / f"f{n}").write_text("new")
    wait_for_tick()
    tracker = InotifyTracker(tree.root)
    index = tracker.index
    tracker.close()
    assert index is not None
    assert index.racily_clean == set()
    opened = InotifyTracker(tree.root, index=index)
    assert not opened.drain().paths
    opened.close()


def test_file_that_changes_in_the_tick_of_its_scan_is_reported_again(tree: DiskTree) -> None:
    """Its size and inode stay; the content is written and read in less than a tick."""
    file = tree.root / "f"
    for n in range(50):
        file.write_bytes(b"%03d" % n)
        tracker = InotifyTracker(tree.root)
        index = tracker.index
        tracker.close()
        with file.open("r+b") as changed:
            changed.write(b"new")
        later = InotifyTracker(tree.root, index=index)
        found = later.drain()
        later.close()
        assert [str(path) for path in found.paths] == ["f"]


def test_other_clocks_and_filesystems_have_a_window_of_two_seconds(tmp_path: Path) -> None:
    clock = ManualClock(datetime.fromtimestamp(1_000, UTC))
    with DiskTree(tmp_path) as tree, DiskTree("/proc") as without_unnamed_files:
        for times in (
            ChangeTimes(tree, clock, is_local=True),
            ChangeTimes(tree, clock, is_local=False),
        ):
            assert times.racy_from_ns() == 998 * 10**9
        assert not ChangeTimes(tree, SYSTEM_CLOCK, is_local=False).is_exact
        assert not ChangeTimes(without_unnamed_files, SYSTEM_CLOCK, is_local=True).is_exact


def test_filesystem_that_rounds_its_times_has_a_window_of_two_seconds(
    tree: DiskTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = os.fstat

    def rounded(file: int) -> os.stat_result:
        found = status(file)
        fields = {"st_ctime_ns": found.st_ctime_ns // 10**9 * 10**9, "st_mtime_ns": 0}
        return os.stat_result(tuple(found), fields)

    monkeypatch.setattr(os, "fstat", rounded)
    times = ChangeTimes(tree, SYSTEM_CLOCK, is_local=True)
    assert not times.is_exact
    assert times.racy_from_ns() < time.time_ns() - 10**9


@pytest.mark.parametrize(
    ("point", "is_below"),
    [
        ("/a/b/c", True),
        ("/a/b", False),
        ("/a/bc", False),
        ("/a/b/with\\040space", True),
        ("/", False),
    ],
)
def test_mounts_below_a_root_are_recognised(point: str, is_below: bool) -> None:
    mounts = f"36 35 98:7 / {point} rw - ext4 /dev/x rw\n"
    assert has_mount_below(Path("/a/b"), mounts) == is_below


def test_mount_below_a_root_with_a_space_is_recognised() -> None:
    mounts = "36 35 98:7 / /a/b\\040c/d rw - ext4 /dev/x rw\n"
    assert has_mount_below(Path("/a/b c"), mounts)
    assert not has_mount_below(Path("/a/b"), mounts)


@pytest.mark.parametrize(
    ("kind", "below", "expected"),
    [
        ("ext4", "", True),
        ("xfs", "", True),
        ("overlay", "tmpfs", True),
        ("ext4", "nfs4", False),
        ("vfat", "", False),
        ("fuse.gcsfuse", "", False),
        ("9p", "", False),
        ("", "", True),  # a detached mount: an overlay of ours
        ("", "nfs4", False),
    ],
)
def test_only_known_filesystems_keep_the_times_of_files_and_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, below: str, expected: bool
) -> None:
    root = tmp_path / "a folder"
    (root / "sub").mkdir(parents=True)
    at = str(root).replace(" ", "\\040")
    with DiskTree(root) as tree, tree.opened(ROOT) as directory:
        about = Path(f"/proc/self/fdinfo/{directory}").read_text()
        mount_id = about.partition("mnt_id:")[2].split()[0]
        mounts = [f"1{mount_id} 1 0:7 / {at}-other rw shared:1 - nfs4 server:/ rw"]
        if kind:
            mounts.append(f"{mount_id} 1 0:8 / / rw shared:1 - {kind} /dev/x rw")
        if below:
            mounts.append(f"2{mount_id} 1 0:9 / {at}/sub rw - {below} none rw")
        monkeypatch.setattr(descriptors, "read_mounts", lambda: "\n".join(mounts))
        assert tree.keeps_times == expected
