"""Changes reported by inotify: their cost, gaps in the events, and the fallback to a scan."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from disk_fixtures import as_ordinary_user, covers, later, path_of
from inotify_simple import INotify

from wink_workspace.clock import ManualClock
from wink_workspace.filesystem import ROOT, Dirty, DiskFilesystem, DiskTree, FileIndex, ScanTracker
from wink_workspace.filesystem.changes import instances
from wink_workspace.filesystem.changes.inotify import InotifyTracker, remote_filesystem


def dirty(*paths: str, below: tuple[str, ...] = (), reason: str | None = None) -> Dirty:
    return Dirty(frozenset(map(path_of, paths)), frozenset(map(path_of, below)), reason)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with files, and an empty one beside it."""
    (tmp_path / "root" / "d" / "sub").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    for name in ("f", "g", "d/f", "d/sub/f"):
        (tmp_path / "root" / name).write_text("before")
    return tmp_path / "root"


@pytest.fixture
def tracker(root: Path) -> Iterator[InotifyTracker]:
    opened = InotifyTracker(root, clock=later())
    opened.drain()
    yield opened
    opened.close()


@pytest.fixture
def files(root: Path, tracker: InotifyTracker) -> Iterator[DiskFilesystem]:
    with DiskTree(root, tracker=tracker) as tree:
        yield DiskFilesystem(tree)


@contextmanager
def opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def drain_and_count(tracker: InotifyTracker) -> tuple[Dirty, int]:
    """The report of a drain, and how many entries it visited."""
    before = tracker.n_visited
    drained = tracker.drain()
    return drained, tracker.n_visited - before


# Cost


def test_scan_does_not_report_files_that_became_clean_since_they_were_read(root: Path) -> None:
    clock = ManualClock(datetime.fromtimestamp((root / "f").stat().st_ctime, UTC))
    tracker = InotifyTracker(root, clock=clock)
    tracker.drain()
    clock.advance(60)
    assert tracker.drain() == dirty()
    (root / "new").mkdir()  # by another process, so the tracker scans
    found = tracker.drain()
    tracker.close()
    assert found.reason
    assert (found.paths, found.prefixes) == (frozenset(), {path_of("new")})


@pytest.mark.parametrize("make", [InotifyTracker, ScanTracker])
def test_only_new_directories_that_leave_are_not_read(
    root: Path, make: Callable[..., InotifyTracker | ScanTracker]
) -> None:
    tracker = make(root, clock=later())
    tracker.drain()
    before = tracker.n_visited
    for name in ("leaves", "stays"):
        (root / name / "sub").mkdir(parents=True)
        (root / name / "sub/f").write_text("new")
    (root / "d/sub/f").write_text("changed")
    found = tracker.drain(lambda parts: parts[0] in ("leaves", "d"))
    tracker.close()
    assert covers(found, path_of("leaves/sub/f"))
    assert covers(found, path_of("stays/sub/f"))
    assert covers(found, path_of("d/sub/f"))
    assert tracker.n_visited - before == len(("f", "g", "d", "d/f", "d/sub", "d/sub/f")) + 4


def test_racily_clean_file_without_later_events_becomes_clean(
    root: Path,
) -> None:
    """Otherwise a reopened workspace would read every recently changed file again."""
    clock = ManualClock(datetime.fromtimestamp((root / "f").stat().st_ctime, UTC))
    watching, scanning = (InotifyTracker(root, clock=clock, max_watches=most) for most in (None, 1))
    for tracker in (watching, scanning):
        tracker.drain()
        assert tracker.index is not None
        assert len(tracker.index.racily_clean) == 4
    clock.advance(1)
    watching.drain()
    assert watching.index is not None
    assert len(watching.index.racily_clean) == 4
    clock.advance(60)
    (root / "g").write_text("changed")
    assert watching.drain() == dirty("g")
    assert watching.index.racily_clean == set()
    assert scanning.drain().reason is not None
    assert len(scanning.index.racily_clean) == 0  # the scan a minute later found it unchanged
    for tracker in (watching, scanning):
        tracker.close()


@pytest.mark.behaviour(38)
@pytest.mark.parametrize("n_files", [10, 1_000])
def test_drain_visits_changed_entries_and_none_that_were_only_read(
    root: Path, tracker: InotifyTracker, files: DiskFilesystem, n_files: int
) -> None:
    for n in range(n_files):
        (root / "d" / str(n)).write_text("x")
    tracker.drain()
    files.read_text("d/3")
    files.glob("**/*")
    files.grep("x")
    files.fingerprint()
    assert drain_and_count(tracker) == (Dirty(), 0)
    files.write_text("d/3", "changed")
    files.edit("d/3", "changed", "again")
    # the file, and the names of two unfinished ones
    assert drain_and_count(tracker) == (dirty("d/3"), 3)
    files.write_text("new/deep/f", "x", mode="create")
    drained, n_visited = drain_and_count(tracker)
    assert (drained.prefixes, drained.reason) == ({path_of("new"), path_of("new/deep")}, None)
    assert n_visited == 3


def test_first_drain_reports_everything_or_with_an_index_the_changes_since(root: Path) -> None:
    first = InotifyTracker(root, clock=later())
    drained = first.drain()
    assert drained.everything
    assert "not watched until now" in (drained.reason or "")
    assert first.drain() == Dirty()
    index = first.index
    first.close()
    (root / "f").write_text("changed")
    second = InotifyTracker(root, index=index, clock=later())
    (root / "g").write_text("changed")
    drained = second.drain()
    assert drained.paths == {path_of("f"), path_of("g")}
    assert not drained.everything
    second.close()


def test_index_is_kept_up_to_date_without_scanning(
    root: Path, tracker: InotifyTracker, files: DiskFilesystem
) -> None:
    files.write_text("new/f", "x")
    files.move("d", "new/moved")
    files.delete("g")
    files.set_executable("f", True)
    assert tracker.drain().reason is None
    scanner = ScanTracker(root, clock=later())
    scanner.drain()
    assert tracker.index == scanner.index
    scanner.close()


# Exact reports


def test_changes_by_other_programs_are_reported_path_by_path(
    root: Path, tracker: InotifyTracker
) -> None:
    (root / "f").write_text("changed")
    (root / "d" / "f").chmod(0o755)
    (root / "d" / "sub" / "f").unlink()
    (root / "new").symlink_to("f")
    (root / "g").rename(root / "h")
    (root / "d" / "sub").chmod(0o700)
    assert tracker.drain() == dirty("f", "d/f", "d/sub/f", "new", "g", "h", "d/sub")
    assert tracker.drain() == Dirty()


def test_moved_directory_is_dirty_under_both_names_and_watched_under_the_new_one(
    root: Path, tracker: InotifyTracker
) -> None:
    (root / "d").rename(root / "e")
    (root / "e" / "sub" / "f").write_text("changed")
    assert tracker.drain() == dirty(below=("d", "e"))
    (root / "e" / "sub" / "f").write_text("changed again")
    assert tracker.drain() == dirty("e/sub/f")


def test_deleted_directory_is_dirty_with_all_that_was_below(
    root: Path, tracker: InotifyTracker
) -> None:
    (root / "d" / "sub" / "f").unlink()
    (root / "d" / "sub").rmdir()
    assert tracker.drain() == dirty(below=("d/sub",))
    (root / "d" / "sub").mkdir()
    tracker.drain()
    (root / "d" / "sub" / "f").touch()
    assert tracker.drain() == dirty("d/sub/f")


def test_noted_path_is_reported_once_and_may_be_noted_again(
    root: Path, tracker: InotifyTracker
) -> None:
    (root / "f").unlink()
    tracker.drain()
    tracker.note(path_of("f"))  # the caller could not use the first report
    assert tracker.drain() == dirty("f")
    tracker.note(path_of("f"))
    tracker.note(path_of("d"), below=True)
    assert tracker.drain() == dirty("f", below=("d",))
    tracker.note(ROOT, below=True)
    drained = tracker.drain()
    assert drained.everything
    assert drained.reason == "everything was noted as changed"
    assert tracker.drain() == Dirty()


# Changes without an event for the file


def rewrite(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.write(b"AFTER")


def through_a_new_link(root: Path) -> None:
    (root / "new").hardlink_to(root / "f")
    rewrite(root / "new")


def through_a_temporary_link(root: Path) -> None:
    (root / "d" / "temporary").hardlink_to(root / "f")
    rewrite(root / "d" / "temporary")
    (root / "d" / "temporary").unlink()


def through_a_temporary_link_that_another_replaces(root: Path) -> None:
    (root / "d" / "temporary").hardlink_to(root / "f")
    rewrite(root / "d" / "temporary")
    (root / "d" / "f").rename(root / "d" / "temporary")


def through_a_temporary_link_that_is_renamed(root: Path) -> None:
    (root / "temporary").hardlink_to(root / "f")
    (root / "temporary").rename(root / "d" / "renamed")
    rewrite(root / "d" / "renamed")
    (root / "d" / "renamed").unlink()


def through_a_temporary_link_that_moves_out(root: Path) -> None:
    (root / "temporary").hardlink_to(root / "f")
    rewrite(root / "temporary")
    (root / "temporary").rename(root.parent / "outside" / "gone")


def through_a_temporary_link_whose_directory_moves_out(root: Path) -> None:
    (root / "d" / "sub" / "temporary").hardlink_to(root / "f")
    rewrite(root / "d" / "sub" / "temporary")
    (root / "d" / "sub").rename(root.parent / "outside" / "gone")


def through_a_link_that_moves_in(root: Path) -> None:
    (root.parent / "outside" / "link").hardlink_to(root / "f")
    rewrite(root.parent / "outside" / "link")
    (root.parent / "outside" / "link").rename(root / "in")


def through_a_link_that_moves_in_and_is_deleted(root: Path) -> None:
    (root.parent / "outside" / "link").hardlink_to(root / "f")
    (root.parent / "outside" / "link").rename(root / "in")
    rewrite(root / "in")
    (root / "in").unlink()


def through_a_new_link_in_a_directory_that_moved(root: Path) -> None:
    (root / "d").rename(root / "e")
    (root / "e" / "link").hardlink_to(root / "f")
    rewrite(root / "e" / "link")


def through_a_link_in_the_place_of_a_directory(root: Path) -> None:
    (root / "d/sub/f").unlink()
    (root / "d/sub").rmdir()
    (root / "d/sub").hardlink_to(root / "f")
    rewrite(root / "d/sub")


def through_a_temporary_link_in_a_new_directory(root: Path) -> None:
    (root / "new").mkdir()
    (root / "new" / "temporary").hardlink_to(root / "f")
    rewrite(root / "new" / "temporary")
    (root / "new" / "temporary").unlink()


def through_a_temporary_link_in_a_temporary_directory(root: Path) -> None:
    through_a_temporary_link_in_a_new_directory(root)
    (root / "new").rmdir()


def through_a_temporary_link_in_a_directory_that_moves_in(root: Path) -> None:
    (root.parent / "outside" / "new").mkdir()
    (root.parent / "outside" / "new").rename(root / "new")
    (root / "new" / "temporary").hardlink_to(root / "f")
    rewrite(root / "new" / "temporary")
    (root / "new" / "temporary").unlink()


def through_a_temporary_link_under_an_old_name(root: Path) -> None:
    (root / "g").unlink()
    (root / "g").hardlink_to(root / "f")
    rewrite(root / "g")
    (root / "g").unlink()
    (root / "g").write_text("before")


HIDDEN_WRITES = [
    through_a_new_link,
    through_a_temporary_link,
    through_a_temporary_link_that_another_replaces,
    through_a_temporary_link_that_is_renamed,
    through_a_temporary_link_that_moves_out,
    through_a_temporary_link_whose_directory_moves_out,
    through_a_link_that_moves_in,
    through_a_link_that_moves_in_and_is_deleted,
    through_a_new_link_in_a_directory_that_moved,
    through_a_link_in_the_place_of_a_directory,
    through_a_temporary_link_in_a_new_directory,
    through_a_temporary_link_in_a_temporary_directory,
    through_a_temporary_link_in_a_directory_that_moves_in,
    through_a_temporary_link_under_an_old_name,
]


@pytest.mark.parametrize("write", HIDDEN_WRITES, ids=lambda write: write.__name__)
def test_write_is_found_though_no_event_names_the_file(
    root: Path, tracker: InotifyTracker, write: Callable[[Path], None]
) -> None:
    write(root)
    assert (root / "f").read_bytes() == b"AFTERe"
    drained = tracker.drain()
    assert covers(drained, path_of("f"))
    assert not covers(drained, path_of("untouched"))
    assert drained.reason
    for _ in range(2):
        drained = tracker.drain()
    assert drained == Dirty()


def test_all_names_of_a_file_are_dirty_when_one_is(root: Path, tracker: InotifyTracker) -> None:
    (root / "d" / "other").hardlink_to(root / "f")
    tracker.drain()
    rewrite(root / "d" / "other")
    assert tracker.drain() == dirty("f", "d/other")
    (root / "f").unlink()
    assert tracker.drain() == dirty("f", "d/other")  # it has one link less
    rewrite(root / "d" / "other")
    assert tracker.drain() == dirty("d/other")


def test_write_through_a_link_outside_is_found(root: Path, tracker: InotifyTracker) -> None:
    (root / "d" / "other").hardlink_to(root / "f")
    (root / "d" / "other").rename(root.parent / "outside" / "other")
    tracker.drain()
    rewrite(root.parent / "outside" / "other")
    assert tracker.drain() == dirty("f")


@pytest.mark.parametrize("name_is_taken", [False, True])
def test_write_through_a_deleted_link_is_found(
    root: Path, tracker: InotifyTracker, name_is_taken: bool
) -> None:
    """A program opened the file through that link before the last drain."""
    (root / "d" / "other").hardlink_to(root / "f")
    with (root / "d" / "other").open("r+b", buffering=0) as opened:
        (root / "d" / "other").unlink()
        if name_is_taken:
            (root / "d" / "other").touch()
        tracker.drain()
        assert tracker.drain() == Dirty()
        opened.write(b"AFTER")
        drained = tracker.drain()
    assert covers(drained, path_of("f"))
    assert drained.reason is not None


def test_directory_that_moved_out_is_no_longer_watched(root: Path, tracker: InotifyTracker) -> None:
    (root / "d").rename(root.parent / "outside" / "d")
    assert covers(tracker.drain(), path_of("d/sub/f"))
    rewrite(root.parent / "outside" / "d" / "sub" / "f")
    assert drain_and_count(tracker) == (Dirty(), 0)


def test_directory_with_linked_files_can_be_moved(root: Path, tracker: InotifyTracker) -> None:
    (root / "d" / "other").hardlink_to(root / "f")
    tracker.drain()
    (root / "d").rename(root / "e")
    drained = tracker.drain()
    assert covers(drained, path_of("e/other"))
    rewrite(root / "f")
    assert tracker.drain() == dirty("f", "e/other")


def test_directory_made_through_the_library_is_watched_from_the_start(
    root: Path, tracker: InotifyTracker, files: DiskFilesystem
) -> None:
    files.mkdir("ours")
    (root / "ours" / "temporary").hardlink_to(root / "f")
    rewrite(root / "ours" / "temporary")
    (root / "ours" / "temporary").unlink()
    drained = tracker.drain()
    assert covers(drained, path_of("f"))
    files.mkdir("again")
    assert tracker.drain() == dirty(below=("again",))
    files.mkdir("third")
    (root / "third" / "link").hardlink_to(root / "g")
    rewrite(root / "third" / "link")
    assert covers(tracker.drain(), path_of("g"))


def test_directory_that_another_program_replaced_is_not_taken_for_our_own(
    root: Path, tracker: InotifyTracker, files: DiskFilesystem
) -> None:
    files.mkdir("ours")
    (root / "ours").rmdir()
    (root / "ours").mkdir()
    (root / "ours" / "temporary").hardlink_to(root / "f")
    rewrite(root / "ours" / "temporary")
    (root / "ours" / "temporary").unlink()
    assert covers(tracker.drain(), path_of("f"))


def test_own_directory_that_vanishes_before_it_is_watched_is_ignored(
    tracker: InotifyTracker,
) -> None:
    tracker.directory_made(path_of("never/there"))
    assert tracker.drain() == Dirty()


# Falling back


def test_more_changes_than_the_queue_holds_are_found_by_a_scan(
    root: Path, tracker: InotifyTracker, caplog: pytest.LogCaptureFixture
) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for n in range(limit + 10):
        (root / "fg"[n % 2]).chmod(0o600 + n % 8)
    (root / "d" / "f").write_text("changed")
    drained = tracker.drain()
    assert drained.paths == {path_of("f"), path_of("g"), path_of("d/f")}
    assert "than the system can queue" in (drained.reason or "")
    assert "than the system can queue" in caplog.text
    (root / "d" / "sub" / "f").write_text("changed")
    assert tracker.drain() == dirty("d/sub/f")


def test_changes_that_need_several_reads_of_the_queue_are_found_without_a_scan(
    root: Path, tracker: InotifyTracker
) -> None:
    names = [f"{n:04}" + "x" * 246 for n in range(1_000)]  # some 290 bytes for each event
    for name in names:
        (root / "d" / name).touch()
    assert tracker.drain() == dirty(*(f"d/{name}" for name in names))
    (root / "f").write_text("changed")
    assert tracker.drain() == dirty("f")


def test_limit_of_watches_makes_every_drain_a_scan_and_is_logged_once(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = InotifyTracker(root, index=FileIndex(), max_watches=2, clock=later())
    tracker.drain()
    for name in ("f", "d/sub/f"):
        (root / name).write_text("changed")
        drained = tracker.drain()
        assert drained.paths == {path_of(name)}
        assert "at most 2" in (drained.reason or "")
    assert caplog.text.count("at most 2") == 1
    tracker.close()


def refusing(code: int) -> Callable[..., object]:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return refuse


@pytest.mark.parametrize(
    ("method", "code"), [("__init__", errno.EMFILE), ("add_watch", errno.ENOSPC)]
)
def test_directory_is_scanned_if_inotify_refuses_a_watch(
    root: Path, monkeypatch: pytest.MonkeyPatch, method: str, code: int
) -> None:
    instances._close_idle()  # otherwise no instance may have to be made
    monkeypatch.setattr(INotify, method, refusing(code))
    tracker = InotifyTracker(root, clock=later())
    tracker.drain()
    (root / "f").write_text("changed")
    drained = tracker.drain()
    assert drained.paths == {path_of("f")}
    assert os.strerror(code) in (drained.reason or "")
    tracker.close()


def test_an_instance_that_is_used_again_reports_nothing_of_its_former_tracker(
    root: Path, tmp_path: Path
) -> None:
    instances._close_idle()
    other = tmp_path / "other"
    other.mkdir()
    (other / "f").write_text("before")
    for n in range(3):
        first = InotifyTracker(root, clock=later())
        first.drain()
        rewrite(root / "f")  # an event that is never read
        first.close()
        assert len(instances._idle) == 1
        second = InotifyTracker(other, clock=later())
        assert not instances._idle
        second.drain()
        rewrite(root / "f")
        (other / "f").write_text(f"changed {n}")
        drained = second.drain()
        assert (drained.paths, drained.reason) == ({path_of("f")}, None)
        assert second.n_visited < 10
        second.close()


def test_a_process_keeps_one_instance_and_a_forked_child_none(root: Path) -> None:
    instances._close_idle()
    trackers = [InotifyTracker(root, clock=later()) for _ in range(3)]
    for tracker in trackers:
        tracker.close()
    assert len(instances._idle) == 1
    child = os.fork()
    if child == 0:
        os._exit(len(instances._idle))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(instances._idle) == 1


def test_limit_that_is_reached_later_is_noticed(
    root: Path, tracker: InotifyTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(INotify, "add_watch", refusing(errno.ENOSPC))
    (root / "d").rename(root / "e")
    assert os.strerror(errno.ENOSPC) in (tracker.drain().reason or "")
    rewrite(root / "e" / "sub" / "f")
    assert tracker.drain().paths == {path_of("e/sub/f")}


def test_missing_canary_event_causes_a_scan(
    root: Path, tracker: InotifyTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without_events:
        # No canary event arrives, so each drain waits until this time is over.
        without_events.setattr("wink_workspace.filesystem.changes.inotify._CANARY_WAIT_MS", 10)
        without_events.setattr(os, "utime", lambda _: None)
        tracker.drain()  # a missing canary is noticed without other changes, too
        (root / "f").write_text("changed")
        drained = tracker.drain()
    assert drained.paths == {path_of("f")}
    assert "no event arrived in time" in (drained.reason or "")
    (root / "g").write_text("changed")
    assert tracker.drain() == dirty("g")


def test_directory_that_cannot_be_read_makes_every_drain_a_scan(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strict = InotifyTracker(root, clock=later())
    accessible = InotifyTracker(root, clock=later(), make_accessible=True)
    for tracker in (strict, accessible):
        tracker.drain()
    (root / "d" / "sub").rename(root / "sub")
    (root / "sub").chmod(0o000)
    with as_ordinary_user(root):
        for _ in range(2):
            drained = strict.drain()
            assert covers(drained, path_of("sub/f"))
        assert drained.reason == "a directory cannot be read"
        for _ in range(2):
            drained = accessible.drain()
        assert drained.reason is None
    assert caplog.text.count("cannot be read") == 1
    for tracker in (strict, accessible):
        tracker.close()


def test_drain_that_is_interrupted_makes_the_next_one_report_everything(
    root: Path, tracker: InotifyTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "f").write_text("changed")
    with monkeypatch.context() as interrupted:
        interrupted.setattr(DiskTree, "statuses", refusing(errno.EINTR))
        with pytest.raises(OSError, match="Interrupted"):
            tracker.drain()
    drained = tracker.drain()
    assert drained.everything
    assert "drain was interrupted" in (drained.reason or "")
    assert tracker.drain() == Dirty()


def test_directory_that_is_moved_while_it_is_listed_causes_a_scan(
    root: Path, tracker: InotifyTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = DiskTree.listings

    def listings(tree: DiskTree, path: object = ROOT, **options: object) -> object:
        for listing in original(tree, path, **options):
            yield listing
            if path == path_of("e") and listing.parts == ("sub",):
                (root / "e" / "sub").rename(root / "sub")

    (root / "d").rename(root / "e")
    (root / "e" / "last").mkdir()
    tracker.drain()
    monkeypatch.setattr(DiskTree, "listings", listings)
    tracker.note(path_of("e"), below=True)
    drained = tracker.drain()
    assert "changed while they were read" in (drained.reason or "")
    assert covers(drained, path_of("e/sub/f"))
    assert covers(drained, path_of("sub/f"))


def test_directory_that_the_index_does_not_know_causes_a_scan(
    root: Path, tracker: InotifyTracker
) -> None:
    """This happens when a path changes between its event and the look at it."""
    assert tracker.index is not None
    tracker.index.forget((), "d")
    tracker.note(path_of("d"))
    drained = tracker.drain()
    assert covers(drained, path_of("d/sub/f"))
    assert drained.reason is not None


@pytest.mark.parametrize(
    ("kind", "remote"),
    [("ext4", False), ("tmpfs", False), ("nfs4", True), ("fuse.sshfs", True), ("9p", True)],
)
def test_remote_filesystems_are_recognised(kind: str, remote: bool) -> None:
    mounts = (
        "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
        f"36 35 98:7 /sub /mnt rw,noatime master:1 - {kind} server:/export rw,errors=continue\n"
    )
    reason = remote_filesystem(os.makedev(98, 7), mounts)
    assert (reason is not None) == remote
    assert remote_filesystem(os.makedev(0, 21), mounts) is None
    assert remote_filesystem(os.makedev(1, 1), mounts) is None


def test_drain_of_a_closed_tracker_reports_everything(root: Path) -> None:
    tracker = InotifyTracker(root, clock=later())
    tracker.close()
    tracker.close()
    assert tracker.drain().everything
