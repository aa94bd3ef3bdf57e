"""Changes found by scanning: the report of a drain, the index, and its stored form."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from disk_fixtures import as_ordinary_user, covers, deep_tree, later, path_of

from wink_workspace.clock import ManualClock
from wink_workspace.filesystem import (
    ROOT,
    Dirty,
    DiskTree,
    FileIndex,
    ScanTracker,
    open_tracker,
)
from wink_workspace.filesystem.changes.index import IndexedTree, Status


def dirty(*paths: str, below: tuple[str, ...] = (), reason: str | None = None) -> Dirty:
    return Dirty(frozenset(map(path_of, paths)), frozenset(map(path_of, below)), reason)


def found(tracker: ScanTracker) -> Dirty:
    """The dirty paths, without the reason that a scan always gives."""
    drained = tracker.drain()
    return Dirty(drained.paths, drained.prefixes)


@pytest.fixture
def tracker(tmp_path: Path) -> Iterator[ScanTracker]:
    """A tracker that has indexed a directory with a file and an empty directory."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_text("before")
    (tmp_path / "void").mkdir()
    opened = ScanTracker(tmp_path, clock=later())
    opened.drain()
    yield opened
    opened.close()


# Dirty


def test_prefix_covers_itself_and_what_is_below_and_a_path_only_itself() -> None:
    some = dirty("a", below=("b",))
    covered = [path for path in ("a", "a/x", "b", "b/x/y", "bc") if covers(some, path_of(path))]
    assert covered == ["a", "b", "b/x/y"]
    assert not some.everything
    assert Dirty.all("why").everything
    assert covers(Dirty.all("why"), path_of("x/y"))
    assert some
    assert not Dirty(reason="why")


def test_union_covers_what_either_covers() -> None:
    both = dirty("a", reason="one") | dirty("b", below=("c",)) | dirty(reason="two")
    assert both == dirty("a", "b", below=("c",), reason="one; two")
    assert (Dirty() | Dirty()).reason is None


# Scanning


def test_first_drain_reports_everything_and_the_next_the_changes(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    tracker = ScanTracker(tmp_path, clock=later())
    assert tracker.drain().everything
    assert found(tracker) == Dirty()
    (tmp_path / "f").write_text("y")
    assert found(tracker) == dirty("f")
    assert found(tracker) == Dirty()
    tracker.close()


def test_every_kind_of_change_is_found(tracker: ScanTracker, tmp_path: Path) -> None:
    (tmp_path / "d" / "new").write_text("x")
    assert found(tracker) == dirty("d/new")
    (tmp_path / "d" / "new").chmod(0o755)
    assert found(tracker) == dirty("d/new")
    (tmp_path / "d" / "new").unlink()
    assert found(tracker) == dirty("d/new")
    (tmp_path / "void").rmdir()
    assert found(tracker) == dirty(below=("void",))
    (tmp_path / "void").symlink_to("d")
    assert found(tracker) == dirty("void")
    (tmp_path / "d").rename(tmp_path / "e")
    assert found(tracker) == dirty(below=("d", "e"))
    (tmp_path / "e").chmod(0o700)
    assert found(tracker) == dirty("e")
    (tmp_path / "e" / "f").unlink()
    (tmp_path / "e" / "f").mkdir()
    assert found(tracker) == dirty(below=("e/f",))
    os.mkfifo(tmp_path / "pipe")
    assert found(tracker) == dirty("pipe")


def test_content_of_the_same_size_and_time_is_found(tracker: ScanTracker, tmp_path: Path) -> None:
    file = tmp_path / "d" / "f"
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    file.write_text("BEFORE")
    os.utime(file, ns=times)
    assert found(tracker) == dirty("d/f")


def test_racily_clean_file_is_reported_again(tmp_path: Path) -> None:
    """By the right time, the timestamps of all these files are too recent to be trusted."""
    clock = ManualClock(datetime.now(UTC))
    for name in ("f", "g", "l"):
        (tmp_path / name).write_text("x")
    tracker = ScanTracker(tmp_path, clock=clock)
    tracker.drain()
    assert found(tracker) == dirty("f", "g", "l")
    tracker.close()


def test_noted_path_is_reported_once(tracker: ScanTracker) -> None:
    tracker.note(path_of("d/f"))
    tracker.note(path_of("void"), below=True)
    tracker.expect("name")
    tracker.directory_made(path_of("void"))
    assert found(tracker) == dirty("d/f", below=("void",))
    assert found(tracker) == Dirty()


def test_every_drain_gives_its_reason_and_counts_visited_entries(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    tracker = ScanTracker(tmp_path, reason="it is a test", clock=later())
    assert tracker.drain().reason == "it is a test; there is no earlier state to compare with"
    assert tracker.drain().reason == "it is a test"
    assert tracker.n_visited == 2
    tracker.close()


def test_tree_of_any_depth_is_scanned(tracker: ScanTracker, tmp_path: Path) -> None:
    with deep_tree(tmp_path, 2_000):
        assert found(tracker) == dirty(below=("deep",))
        assert tracker.index is not None
        assert len(tracker.index.directories) == 2_003


def test_directory_that_cannot_be_read_counts_as_changed(tmp_path: Path) -> None:
    (tmp_path / "closed" / "inner").mkdir(parents=True)
    (tmp_path / "open").mkdir()
    strict = ScanTracker(tmp_path, clock=later())
    accessible = ScanTracker(tmp_path, clock=later(), make_accessible=True)
    for tracker in (strict, accessible):
        tracker.drain()
    (tmp_path / "closed").chmod(0o000)
    with as_ordinary_user(tmp_path):
        for _ in range(2):
            assert path_of("closed") in found(strict).prefixes
        # closed by the test, then made accessible by the tracker
        assert found(accessible) == found(accessible) == dirty("closed")
        assert found(accessible) == Dirty()
        assert found(strict).prefixes == {path_of("closed")}
    for tracker in (strict, accessible):
        tracker.close()


def test_unreadable_root_makes_everything_dirty_until_it_is_readable(
    tracker: ScanTracker, tmp_path: Path
) -> None:
    tmp_path.chmod(0o000)
    with as_ordinary_user(tmp_path):
        assert found(tracker) == dirty(below=()) | Dirty(prefixes=frozenset((ROOT,)))
        assert tracker.index is not None
        assert tracker.index.unreadable == {()}
    tmp_path.chmod(0o700)
    assert found(tracker).everything
    assert found(tracker) == Dirty()


def test_directories_that_keep_moving_make_everything_dirty(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "c").mkdir()

    def move(parts: tuple[str, ...], _: int) -> None:
        if parts in (("a", "b"), ("c", "b")):
            other = "c" if parts[0] == "a" else "a"
            (tmp_path / parts[0] / "b").rename(tmp_path / other / "b")

    with DiskTree(tmp_path) as tree:
        indexed = IndexedTree(tree, FileIndex(), later())
        moved = indexed.look_at_all(move)
        assert moved.everything
        assert "all the time" in (moved.reason or "")
        assert indexed.index is None
        assert "no earlier state" in (indexed.look_at_all().reason or "")
        assert indexed.look_at_all() == Dirty()


# The stored index


@pytest.fixture
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state") / "index"


def test_stored_index_shows_what_changed_between_two_trackers(
    tracker: ScanTracker, tmp_path: Path, stored: Path
) -> None:
    (tmp_path / os.fsdecode(b"\xff\n")).hardlink_to(tmp_path / "d" / "f")
    tracker.drain()
    assert tracker.index is not None
    tracker.index.save(stored)
    loaded = FileIndex.load(stored)
    assert loaded == tracker.index
    assert list(stored.parent.iterdir()) == [stored]
    (tmp_path / "new").touch()
    other = ScanTracker(tmp_path, index=loaded, clock=later())
    assert found(other) == dirty("new")
    other.close()


def test_stored_index_keeps_racily_clean_and_unreadable_entries(
    tmp_path: Path, stored: Path
) -> None:
    clock = ManualClock(datetime.now(UTC))
    (tmp_path / "closed").mkdir()
    (tmp_path / "young").touch()
    (tmp_path / "closed").chmod(0o000)
    tracker = ScanTracker(tmp_path, clock=clock)
    with as_ordinary_user(tmp_path):
        tracker.drain()
    assert tracker.index is not None
    tracker.index.save(stored)
    loaded = FileIndex.load(stored)
    assert loaded == tracker.index
    assert loaded is not None
    assert (loaded.racily_clean, loaded.unreadable) == ({((), "young")}, {("closed",)})
    tracker.close()


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-10],
        lambda content: content[:-10] + b"0" + content[-9:],
        lambda content: content.replace(b"[5, ", b"[4, ", 1),
        lambda content: b"\x00\xff" + content,
        lambda content: content.replace(b"\n", b" "),
    ],
)
def test_damaged_index_is_ignored_and_logged(
    tracker: ScanTracker, stored: Path, caplog: pytest.LogCaptureFixture, damage
) -> None:
    assert tracker.index is not None
    tracker.index.save(stored)
    stored.write_bytes(damage(stored.read_bytes()))
    assert FileIndex.load(stored) is None
    assert "ignoring the file index" in caplog.text


def test_missing_index_is_ignored_without_a_log_line(
    stored: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert FileIndex.load(stored) is None
    assert not caplog.text
    stored.mkdir()
    assert FileIndex.load(stored) is None
    assert "ignoring the file index" in caplog.text


# Choosing a tracker


def test_events_are_used_unless_a_scan_is_forced(tmp_path: Path) -> None:
    watching, scanning = open_tracker(tmp_path), open_tracker(tmp_path, force_scan=True)
    assert isinstance(scanning, ScanTracker)
    assert not isinstance(watching, ScanTracker)
    for tracker in (watching, scanning):
        tracker.close()


def test_system_without_inotify_is_scanned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "wink_workspace.filesystem.changes.inotify", None)
    tracker = open_tracker(tmp_path)
    assert isinstance(tracker, ScanTracker)
    assert "has no inotify" in (tracker.drain().reason or "")
    assert "has no inotify" in caplog.text
    tracker.close()


# Filesystems that do not keep times


def test_scan_reports_again_what_changed_with_the_newest_change_if_a_server_sets_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clock may be late and coarse, so the next change may get the same time."""
    monkeypatch.setattr(DiskTree, "keeps_times", False)
    (tmp_path / "d").mkdir()
    for name in ("d/one", "two"):
        (tmp_path / name).write_text("1")
    tracker = ScanTracker(tmp_path, clock=later())
    found(tracker)
    assert found(tracker) == dirty("d/one", "two")
    index = tracker.index
    tracker.close()
    again = ScanTracker(tmp_path, index=index, clock=later())
    assert found(again) == dirty("d/one", "two")
    again.close()


def test_only_the_last_two_seconds_of_changes_are_doubted() -> None:
    index, seconds = FileIndex(), 10**9
    for directory, name, changed_s in (((), "old", 7), ((), "new", 9), (("d",), "newest", 11)):
        index.put(directory, {name: Status(0o100644, changed_ns=changed_s * seconds)}, 20 * seconds)
    index.doubt_newest()
    assert index.racily_clean == {((), "new"), (("d",), "newest")}
