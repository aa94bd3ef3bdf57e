"""A directory copied as a whole, each file read once."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from disk_fixtures import NOBODY, as_ordinary_user

from wink_workspace.errors import FilesystemError, ReadOnlyError
from wink_workspace.filesystem import DiskTree
from wink_workspace.filesystem.disk import copying
from wink_workspace.filesystem.disk.copying import TreeCopy


class Contents:
    """Keeps contents as they are, and counts."""

    def __init__(self) -> None:
        self.n_large = 0

    def keep(self, content: bytes) -> bytes:
        return content

    def keep_large(self, file: int) -> bytes:
        self.n_large += 1
        return os.read(file, 1 << 30)


class Copying:
    """A place to copy from, and one to copy to."""

    def __init__(self, top: Path) -> None:
        self.source, self.target = top / "source", top / "target"
        self.source.mkdir()
        self.target.mkdir()
        self.contents = Contents()
        self.kept: dict[str, bytes | None] = {}
        self.statuses: dict[str, os.stat_result] = {}
        self.targets: dict[str, str] = {}
        self.skipped: list[str] = []

    def run(self, *, left_out: tuple[str, ...] = (), as_root: bool = True) -> None:
        with (
            DiskTree(self.source) as original,
            DiskTree(self.target) as copy,
            nullcontext() if as_root else as_ordinary_user(self.source.parent),
        ):
            for part in TreeCopy(original, copy, self.contents, left_out=left_out).run():
                self.skipped += part.skipped
                for entry in part.entries:
                    path = "/".join((*part.directory, entry.name))
                    self.statuses[path] = entry.status
                    if entry.target is not None:
                        self.targets[path] = entry.target
                    elif not stat.S_ISDIR(entry.status.st_mode):
                        self.kept[path] = entry.kept

    def assert_told_what_is_there(self) -> None:
        found = {os.fsdecode(os.path.relpath(p, self.target)) for p in self.target.rglob("*")}
        assert found == self.statuses.keys()
        for path, status in self.statuses.items():
            now = (self.target / path).lstat()
            assert (now.st_mode, now.st_ino, now.st_size) == (
                *(status.st_mode, status.st_ino, status.st_size),
            )
            assert (now.st_mtime_ns, now.st_ctime_ns) == (
                status.st_mtime_ns,
                status.st_ctime_ns,
            ) or (stat.S_ISDIR(now.st_mode))
        for path, content in self.kept.items():
            assert (self.target / path).read_bytes() == content
        for path, target in self.targets.items():
            assert str((self.target / path).readlink()) == target


@pytest.fixture
def place(tmp_path: Path) -> Copying:
    return Copying(tmp_path)


@pytest.fixture(params=[0o022, 0o077, 0o000], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_copy_has_every_entry_with_the_modes_that_are_kept(place: Copying) -> None:
    for n in range(200):  # several batches
        directory = place.source / f"d{n % 3}" / "deeper"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{n}.txt").write_bytes(b"%d" % n * n)
    (place.source / "empty").mkdir(mode=0o700)
    (place.source / "tool").write_bytes(b"#!/bin/sh\n")
    (place.source / "tool").chmod(0o4755)
    (place.source / "private").write_bytes(b"")
    (place.source / "private").chmod(0o600)
    (place.source / os.fsdecode(b"not-utf-8-\xff")).write_bytes(b"x")
    (place.source / "link").symlink_to("/nowhere")
    place.run()
    place.assert_told_what_is_there()
    assert len(place.kept) == 203
    modes = {path: stat.S_IMODE(status.st_mode) for path, status in place.statuses.items()}
    assert modes["tool"] == modes["empty"] == modes["d0/deeper"] == 0o755
    assert modes["private"] == modes["d0/deeper/0.txt"] == 0o644
    assert place.targets == {"link": "/nowhere"}
    assert place.skipped == []


def test_large_files_are_never_in_memory_as_a_whole(
    place: Copying, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Files above the real limit are too large for a test.
    monkeypatch.setattr(copying, "_LARGE_BYTES", 1_000)
    (place.source / "large").write_bytes(b"large" * 1_000)
    (place.source / "small").write_bytes(b"small")
    place.run()
    place.assert_told_what_is_there()
    assert place.contents.n_large == 1


def test_system_that_copies_nothing_between_two_files_is_helped(
    place: Copying, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise OSError(errno.EXDEV, "not between these two")

    # Files above the real limit are too large for a test.
    monkeypatch.setattr(copying, "_LARGE_BYTES", 1_000)
    monkeypatch.setattr(os, "copy_file_range", refused)
    (place.source / "large").write_bytes(b"large" * 1_000)
    place.run()
    place.assert_told_what_is_there()


def test_file_that_grows_while_it_is_read_is_copied_as_far_as_it_was_read(
    place: Copying, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place.source / "log"
    path.write_bytes(b"one\n")
    read = os.read

    def growing(file: int, n_bytes: int) -> bytes:
        if path.stat().st_size < 8:
            with path.open("ab") as stream:
                stream.write(b"two\n")
        return read(file, n_bytes)

    monkeypatch.setattr(os, "read", growing)
    place.run()
    monkeypatch.undo()
    assert place.kept["log"] == b"one\ntwo\n"
    place.assert_told_what_is_there()


def test_names_left_out_are_left_out_at_the_top_alone(place: Copying) -> None:
    for name in (".git", "nested/.git"):
        (place.source / name).mkdir(parents=True)
        (place.source / name / "HEAD").write_bytes(b"ref\n")
    place.run(left_out=(".git",))
    assert place.statuses.keys() == {"nested", "nested/.git", "nested/.git/HEAD"}


def test_what_cannot_be_read_or_kept_is_skipped_and_told(place: Copying) -> None:
    os.mkfifo(place.source / "pipe")
    (place.source / "closed").mkdir(mode=0o000)
    (place.source / "secret").write_bytes(b"x")
    (place.source / "secret").chmod(0)
    (place.source / "large secret").write_bytes(b"x" * (8 << 20))
    (place.source / "large secret").chmod(0)
    (place.source / "open").write_bytes(b"x")
    place.run(as_root=False)
    place.assert_told_what_is_there()
    assert sorted(place.skipped) == ["closed", "large secret", "pipe", "secret"]
    assert place.statuses.keys() == {"closed", "open"}


def test_directory_that_cannot_be_read_at_all_is_not_copied(place: Copying) -> None:
    place.source.chmod(0o000)
    with pytest.raises(ReadOnlyError, match="source cannot be read"):
        place.run(as_root=False)


@pytest.mark.parametrize("name", ["small", "large", "link", "directory"])
def test_copy_that_cannot_be_written_ends_with_the_reason(
    place: Copying, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # Files above the real limit are too large for a test.
    monkeypatch.setattr(copying, "_LARGE_BYTES", 1_000)
    (place.source / "small").write_bytes(b"x")
    (place.source / "large").write_bytes(b"x" * 2_000)
    (place.source / "link").symlink_to("small")
    (place.source / "directory").mkdir()
    (place.target / name).touch()
    with pytest.raises(FilesystemError, match=f"{name} exists already"):
        place.run()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_copy_made_by_root_belongs_to_the_owner_of_its_directory(place: Copying) -> None:
    (place.source / "d").mkdir()
    (place.source / "d" / "f").write_bytes(b"x")
    os.chown(place.target, NOBODY, NOBODY)
    place.run()
    place.assert_told_what_is_there()
    for name in ("d", "d/f"):
        status = (place.target / name).stat()
        assert (status.st_uid, status.st_gid) == (NOBODY, NOBODY)
