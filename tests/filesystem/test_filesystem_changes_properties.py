"""Random changes of a directory: no tracker misses one, and both have the same index."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import disk_disturbance
import pytest
from disk_disturbance import Disturbance, all_content
from disk_fixtures import covers, later, path_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from random_cases import examples

from wink_workspace.errors import WinkError
from wink_workspace.filesystem import Dirty, DiskFilesystem, DiskTree, ScanTracker
from wink_workspace.filesystem.changes import ChangeTracker
from wink_workspace.filesystem.changes.inotify import InotifyTracker
from wink_workspace.filesystem.overlay.mounting import Mounter, OverlayMount, overlay_support
from wink_workspace.filesystem.overlay.tracking import OverlayTracker


class Observed:
    """A directory, both kinds of tracker, and the content at the last check.

    With *overlay*, it is a mounted branch whose base has the first content.
    """

    def __init__(self, top: Path, seed: int, *, overlay: bool) -> None:
        self.root, self.outside = top / "base/files", top / "base/outside"
        self.root.mkdir(parents=True)
        self.outside.mkdir()
        self.rng = random.Random(seed)
        Disturbance(self.root, self.outside, self.rng).change(30)
        clock = later()
        self.mount: OverlayMount | None = None
        self.inotify: ChangeTracker
        self.scanned: ChangeTracker
        if overlay:
            base, upper = self.root, top / "upper/files"
            upper.mkdir(parents=True)
            (top / "work").mkdir()
            self.mount = Mounter.shared().mount([top / "base"], top / "upper", top / "work")
            self.root, self.outside = self.mount.path / "files", self.mount.path / "outside"
            forget = self.mount.forget_names
            self.inotify = OverlayTracker(base, upper, forget_names=forget, clock=clock)
            self.scanned = OverlayTracker(base, upper, force_scan=True, clock=clock)
        else:
            self.inotify = InotifyTracker(self.root, clock=clock)
            self.scanned = ScanTracker(self.root, clock=clock)
        self.disturbance = Disturbance(self.root, self.outside, self.rng)
        self.tree = DiskTree(self.root, tracker=self.inotify)
        self.files = DiskFilesystem(self.tree)
        self.inotify.drain()
        self.scanned.drain()
        self._before = all_content(self.root)
        self._probe = top / "probe"

    def close(self) -> None:
        self.inotify.close()
        self.scanned.close()
        self.tree.close()
        if self.mount is not None:
            self.mount.close()

    def wait_for_new_timestamp(self) -> None:
        """Wait for the filesystem's clock, so that a later change has a new timestamp."""
        self._probe.touch()
        before = self._probe.stat().st_ctime_ns
        while self._probe.stat().st_ctime_ns == before:
            self._probe.touch()

    def check(self) -> None:
        """Compare the reports of both trackers with the changes since the last check."""
        after = all_content(self.root)
        changed = {
            path
            for path in self._before.keys() | after.keys()
            if self._before.get(path) != after.get(path)
        }
        inotify, scanned = self.inotify.drain(), self.scanned.drain()
        assert [path for path in changed if not covers(inotify, path_of(path))] == []
        assert [path for path in changed if not covers(scanned, path_of(path))] == []
        known = self._before.keys() | after.keys()
        assert covered(scanned, known) <= covered(inotify, known)
        assert self.inotify.index == self.scanned.index
        self._before = after

    def change_through_library(self, rng: random.Random) -> None:
        """Make one random change through the library; it may fail."""
        names = [*self._before, "new", "new/deep/er"]
        one, other = rng.choice(names), rng.choice(names)
        with suppress(WinkError):
            rng.choice(
                (
                    lambda: self.files.write_text(one, str(rng.random())),
                    lambda: self.files.write_text(one, "x", mode="create"),
                    lambda: self.files.write_text(one, "x", mode="append"),
                    lambda: self.files.delete(one, recursive=True),
                    lambda: self.files.move(one, other, overwrite=True),
                    lambda: self.files.mkdir(one),
                    lambda: self.files.symlink(one, "new"),
                    lambda: self.files.set_executable(one, rng.random() < 0.5),
                    lambda: self.tree.put_file(path_of(one), [b"restored"], executable=True),
                    lambda: self.tree.put_directory(path_of(one)),
                    lambda: self.tree.put_symlink(path_of(one), "restored"),
                    lambda: self.tree.remove(path_of(one)),
                )
            )()


def covered(dirty: Dirty, paths: set[str]) -> set[str]:
    return {path for path in paths if covers(dirty, path_of(path))}


@contextmanager
def observed(seed: int, *, overlay: bool) -> Iterator[Observed]:
    with TemporaryDirectory() as top:
        if overlay and not (support := overlay_support(Path(top))).available:
            pytest.skip(support.reason)
        both = Observed(Path(top), seed, overlay=overlay)
        try:
            yield both
        finally:
            both.close()


FORMS = pytest.mark.parametrize("overlay", [False, True], ids=["copy", "overlay"])
seeds = st.integers(0, 2**32)


@FORMS
@given(seed=seeds, rounds=st.lists(st.integers(0, 8), min_size=1, max_size=6))
@settings(max_examples=examples(40), deadline=None)
def test_no_change_by_any_program_is_missed(seed: int, rounds: list[int], overlay: bool) -> None:
    with observed(seed, overlay=overlay) as both:
        for n_changes in rounds:
            both.wait_for_new_timestamp()
            both.disturbance.change(n_changes)
            both.check()


@FORMS
@example(seed=5, rounds=[2, 7, 6, 8, 6, 2])  # a hard link takes the place of a directory
@given(seed=seeds, rounds=st.lists(st.integers(1, 8), min_size=1, max_size=6))
@settings(max_examples=examples(30), deadline=None)
def test_no_change_is_missed_when_the_library_and_other_programs_alternate(
    seed: int, rounds: list[int], overlay: bool
) -> None:
    rng = random.Random(seed)
    with observed(seed, overlay=overlay) as both:
        for n_changes in rounds:
            both.wait_for_new_timestamp()
            for _ in range(n_changes):
                if rng.random() < 0.6:
                    both.change_through_library(rng)
                else:
                    both.disturbance.change(1)
            both.check()


@FORMS
@pytest.mark.parametrize("seed", range(3))
def test_no_change_of_another_process_is_missed(seed: int, overlay: bool) -> None:
    with observed(seed, overlay=overlay) as both:
        for n_changes in (1, 10, 300):
            both.wait_for_new_timestamp()
            program = [sys.executable, disk_disturbance.__file__, both.root, both.outside]
            subprocess.run([*program, str(seed), str(n_changes)], check=True)
            both.check()


@FORMS
@pytest.mark.soak
def test_no_change_is_missed_in_many_rounds(overlay: bool) -> None:
    for seed in range(300):
        rng = random.Random(seed)
        with observed(seed, overlay=overlay) as both:
            for _ in range(12):
                both.wait_for_new_timestamp()
                both.disturbance.change(rng.choice((0, 1, 1, 2, 3, 6, 20)))
                for _ in range(rng.randrange(3)):
                    both.change_through_library(rng)
                both.check()


def test_each_kind_of_disturbance_happens(tmp_path: Path) -> None:
    """Otherwise the tests above could pass without any change."""
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").mkdir()
    disturbance = Disturbance(tmp_path / "root", tmp_path / "outside", random.Random(1))
    remaining = list(dict.fromkeys(disturbance.kinds))
    for _ in range(300):
        if not remaining:
            break
        disturbance.change(1)
        for change in list(remaining):
            with suppress(OSError, IndexError, ValueError):
                change()
                remaining.remove(change)
    assert remaining == []
