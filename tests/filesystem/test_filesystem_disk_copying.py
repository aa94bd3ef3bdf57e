"""``TreeCopy`` copies a directory and reads each file once."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from disk_fixtures import UNPRIVILEGED_UID, as_ordinary_user

from wink_workspace.errors import FilesystemError, ReadOnlyError
from wink_workspace.filesystem import DiskTree
from wink_workspace.filesystem.disk import copying
from wink_workspace.filesystem.disk.copying import TreeCopy
from wink_workspace.filesystem.disk.tree import HiddenPaths
from wink_workspace.workspace.place.path_rules import OWN_REPOSITORY


class Contents:
    """Returns contents unchanged and counts the large ones."""

    def __init__(self) -> None:
        self.n_large = 0

    def keep(self, content: bytes) -> bytes:
        return content

    def keep_large(self, file: int) -> bytes:
        self.n_large += 1
        return os.read(file, 1 << 30)


class Copier:
    """A source and a target directory, and the report of a copy between them."""

    def __init__(self, top: Path) -> None:
        self.source, self.target = top / "source", top / "target"
        self.source.mkdir()
        self.target.mkdir()
        self.contents = Contents()
        self.kept: dict[str, bytes | None] = {}
        self.statuses: dict[str, os.stat_result] = {}
        self.targets: dict[str, str] = {}
        self.skipped: list[str] = []

    def run(self, *, hidden: HiddenPaths | None = None, as_root: bool = True) -> None:
        with (
            DiskTree(self.source, hidden=hidden) as original,
            DiskTree(self.target) as copy,
            nullcontext() if as_root else as_ordinary_user(self.source.parent),
        ):
            for part in TreeCopy(original, copy, self.contents).run():
                self.skipped += part.skipped
                for entry in part.entries:
                    path = "/".join((*part.directory, entry.name))
                    self.statuses[path] = entry.status
                    if entry.target is not None:
                        self.targets[path] = entry.target
                    elif not stat.S_ISDIR(entry.status.st_mode):
                        self.kept[path] = entry.kept

    def assert_report_matches_target(self) -> None:
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
def copier(tmp_path: Path) -> Copier:
    return Copier(tmp_path)


@pytest.fixture(params=[0o022, 0o077, 0o000], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_copy_has_every_entry_with_the_modes_that_are_kept(copier: Copier) -> None:
    for n in range(200):  # several batches
        directory = copier.source / f"d{n % 3}" / "deeper"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{n}.txt").write_bytes(b"%d" % n * n)
    (copier.source / "empty").mkdir(mode=0o700)
    (copier.source / "tool").write_bytes(b"#!/bin/sh\n")
    (copier.source / "tool").chmod(0o4755)
    (copier.source / "private").write_bytes(b"")
    (copier.source / "private").chmod(0o600)
    (copier.source / os.fsdecode(b"not-utf-8-\xff")).write_bytes(b"x")
    (copier.source / "link").symlink_to("/nowhere")
    copier.run()
    copier.assert_report_matches_target()
    assert len(copier.kept) == 203
    modes = {path: stat.S_IMODE(status.st_mode) for path, status in copier.statuses.items()}
    assert modes["tool"] == modes["empty"] == modes["d0/deeper"] == 0o755
    assert modes["private"] == modes["d0/deeper/0.txt"] == 0o644
    assert copier.targets == {"link": "/nowhere"}
    assert copier.skipped == []


def test_large_files_are_never_in_memory_as_a_whole(
    copier: Copier, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Files above the real limit are too large for a test.
    monkeypatch.setattr(copying, "_LARGE_BYTES", 1_000)
    (copier.source / "large").write_bytes(b"large" * 1_000)
    (copier.source / "small").write_bytes(b"small")
    copier.run()
    copier.assert_report_matches_target()
    assert copier.contents.n_large == 1


def test_large_files_are_copied_without_copy_file_range(
    copier: Copier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise OSError(errno.EXDEV, "not between these two")

    # Files above the real limit are too large for a test.
    monkeypatch.setattr(copying, "_LARGE_BYTES", 1_000)
    monkeypatch.setattr(os, "copy_file_range", refused)
    (copier.source / "large").write_bytes(b"large" * 1_000)
    copier.run()
    copier.assert_report_matches_target()


def test_file_that_grows_while_it_is_copied_equals_what_was_recorded(
    copier: Copier, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copier.source / "log"
    path.write_bytes(b"one\n")
    read = os.read

    def growing(file: int, n_bytes: int) -> bytes:
        if path.stat().st_size < 8:
            with path.open("ab") as stream:
                stream.write(b"two\n")
        return read(file, n_bytes)

    monkeypatch.setattr(os, "read", growing)
    copier.run()
    monkeypatch.undo()
    assert copier.kept["log"] == b"one\ntwo\n"
    copier.assert_report_matches_target()


def test_paths_that_the_original_hides_are_not_copied(copier: Copier) -> None:
    for name in (".git", "nested/.git"):
        (copier.source / name).mkdir(parents=True)
        (copier.source / name / "HEAD").write_bytes(b"ref\n")
    copier.run(hidden=OWN_REPOSITORY)
    assert copier.statuses.keys() == {"nested", "nested/.git", "nested/.git/HEAD"}


def test_unreadable_and_special_entries_are_skipped_and_listed(copier: Copier) -> None:
    os.mkfifo(copier.source / "pipe")
    (copier.source / "closed").mkdir(mode=0o000)
    (copier.source / "secret").write_bytes(b"x")
    (copier.source / "secret").chmod(0)
    (copier.source / "large secret").write_bytes(b"x" * (8 << 20))
    (copier.source / "large secret").chmod(0)
    (copier.source / "open").write_bytes(b"x")
    copier.run(as_root=False)
    copier.assert_report_matches_target()
    assert sorted(copier.skipped) == ["closed", "large secret", "pipe", "secret"]
    assert copier.statuses.keys() == {"closed", "open"}


def test_directory_that_cannot_be_read_at_all_is_not_copied(copier: Copier) -> None:
    copier.source.chmod(0o000)
    with pytest.raises(ReadOnlyError, match="source cannot be read"):
        copier.run(as_root=False)


@pytest.mark.parametrize("name", ["small", "large", "link", "directory"])
def test_copy_that_cannot_be_written_ends_with_the_reason(
    copier: Copier, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # Files above the real limit are too large for a test.
    monkeypatch.setattr(copying, "_LARGE_BYTES", 1_000)
    (copier.source / "small").write_bytes(b"x")
    (copier.source / "large").write_bytes(b"x" * 2_000)
    (copier.source / "link").symlink_to("small")
    (copier.source / "directory").mkdir()
    (copier.target / name).touch()
    with pytest.raises(FilesystemError, match=f"{name} exists already"):
        copier.run()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the owner of a file")
def test_copy_made_by_root_belongs_to_the_owner_of_its_directory(copier: Copier) -> None:
    (copier.source / "d").mkdir()
    (copier.source / "d" / "f").write_bytes(b"x")
    os.chown(copier.target, UNPRIVILEGED_UID, UNPRIVILEGED_UID)
    copier.run()
    copier.assert_report_matches_target()
    for name in ("d", "d/f"):
        status = (copier.target / name).stat()
        assert (status.st_uid, status.st_gid) == (UNPRIVILEGED_UID, UNPRIVILEGED_UID)
