"""Failures in the middle of an operation of the ``Filesystem`` protocol."""

from __future__ import annotations

import gc
import io
import itertools
from pathlib import Path

import pytest

from wink_workspace.errors import (
    FilesystemError,
    InvalidPathError,
    LimitExceededError,
    LinkError,
    PatchError,
    RollbackError,
    UsageError,
)
from wink_workspace.filesystem import (
    FileKind,
    FileStat,
    FileState,
    FilesystemLimits,
    MemoryFilesystem,
    WorkspacePath,
    WriteMode,
    parse_path,
)
from wink_workspace.testing import CrashError, FailingFilesystem
from wink_workspace.testing.filesystem_contract import contents

TWO_FILES = (
    "*** Begin Patch\n*** Update File: a\n@@\n-a\n+A\n*** Update File: b\n@@\n-b\n+B\n"
    "*** Add File: new/c\n+C\n*** End Patch\n"
)


class BrokenFilesystem(MemoryFilesystem):
    """Fails at the first write to *broken* and at all later writes to *stuck*."""

    broken = stuck = parse_path("none")
    failed = False

    def _write(self, path: WorkspacePath, data: bytes, *, mode: WriteMode) -> None:
        if path == self.broken or (self.failed and path == self.stuck):
            self.failed = True
            raise CrashError(f"{path} cannot be written")
        super()._write(path, data, mode=mode)


class CrowdedFilesystem(MemoryFilesystem):
    """Another user puts a file into each directory that is made."""

    def _mkdir(self, path: WorkspacePath) -> None:
        super()._mkdir(path)
        super()._write(path / "theirs", b"theirs", mode="create")


class GrowingFilesystem(MemoryFilesystem):
    """Its files grow between ``stat`` and the read."""

    def _stat(self, path: WorkspacePath) -> FileStat | None:
        there = super()._stat(path)
        if there is None or there.kind is FileKind.DIRECTORY:
            return there
        return FileStat(path, there.kind, 1)


@pytest.mark.behaviour(34)
def test_file_that_cannot_be_restored_is_reported_after_all_others_are_restored() -> None:
    files = BrokenFilesystem({"a": "a\n", "b": "b\n"})
    files.stuck, files.broken = parse_path("a"), parse_path("new/c")
    with pytest.raises(RollbackError, match="restored") as caught:
        files.apply_patch(TWO_FILES)
    assert [str(failure) for failure in caught.value.failures] == ["a cannot be written"]
    assert isinstance(caught.value.__cause__, CrashError)
    assert files.read_bytes("a") == b"A\n"
    assert files.read_bytes("b") == b"b\n"
    assert not files.exists("new")


def test_interrupt_during_a_patch_restores_the_files_and_is_raised() -> None:
    inner = MemoryFilesystem({"a": "a\n", "b": "b\n"})
    before = contents(inner)
    files = FailingFilesystem(inner, fail_at=2, error=KeyboardInterrupt(), afterwards=True)
    with pytest.raises(KeyboardInterrupt):
        files.apply_patch(TWO_FILES)
    assert contents(inner) == before


def test_parent_directory_made_for_a_failed_write_stays_if_it_has_other_files() -> None:
    files = CrowdedFilesystem()
    with pytest.raises(FilesystemError):
        files.move("missing", "x")
    failing = FailingFilesystem(files, fail_at=2)
    with pytest.raises(CrashError):
        failing.write_bytes("new/mine", b"mine")
    assert sorted(contents(files)) == ["new", "new/theirs"]


@pytest.mark.behaviour(42)
def test_patch_cannot_make_a_link_that_leaves_the_workspace() -> None:
    files = MemoryFilesystem()
    with pytest.raises(LinkError, match="outside"):
        files.apply_patch(
            "diff --git a/link b/link\nnew file mode 120000\n--- /dev/null\n+++ b/link\n"
            "@@ -0,0 +1 @@\n+../../etc/passwd\n\\ No newline at end of file\n"
        )
    assert contents(files) == {}


def test_patch_through_a_link_is_refused_by_name() -> None:
    files = MemoryFilesystem({"real/a": "a\n"})
    files.symlink("link", "real")
    with pytest.raises(PatchError, match="link"):
        files.apply_patch("--- a/link/a\n+++ b/link/a\n@@ -1 +1 @@\n-a\n+b\n")
    assert files.read_bytes("real/a") == b"a\n"


def test_patch_may_turn_a_link_into_a_directory() -> None:
    files = MemoryFilesystem({"real/a": "a\n"})
    files.symlink("d", "real")
    files.apply_patch(
        "diff --git a/d b/d\ndeleted file mode 120000\n--- a/d\n+++ /dev/null\n@@ -1 +0,0 @@\n"
        "-real\n\\ No newline at end of file\n"
        "diff --git a/d/a b/d/a\nnew file mode 100755\n--- /dev/null\n+++ b/d/a\n"
        "@@ -0,0 +1 @@\n+mine\n"
    )
    assert files.stat("d", follow=False).kind is FileKind.DIRECTORY
    assert files.stat("d/a").executable
    assert files.read_bytes("real/a") == b"a\n"


@pytest.mark.behaviour(22)
def test_directory_that_a_patch_turned_into_a_file_is_restored_when_it_fails() -> None:
    patch = (
        "diff --git a/d/a b/d\nrename from d/a\nrename to d\n"
        "diff --git a/e b/e\nnew file mode 100644\n--- /dev/null\n+++ b/e\n@@ -0,0 +1 @@\n+e\n"
    )
    for n in itertools.count(1):
        inner = MemoryFilesystem({"d/a": "a\n"})
        before = contents(inner)
        try:
            FailingFilesystem(inner, fail_at=n).apply_patch(patch)
        except CrashError:
            assert contents(inner) == before, f"a trace is left after change {n}"
        else:
            assert (n, inner.read_bytes("d")) == (5, b"a\n")
            break


@pytest.mark.behaviour(46)
def test_replacement_that_would_fill_the_memory_is_refused_before_it_is_made() -> None:
    files = MemoryFilesystem({"a": "e\r\n" * 200_000})
    with pytest.raises(
        LimitExceededError, match=r"200000000000 bytes for a, at most 1073741824.*Split"
    ):
        files.edit("a", "e\n", "x" * 1_000_000, replace_all=True)


@pytest.mark.behaviour(46)
def test_edit_of_a_file_that_grew_after_stat_is_refused() -> None:
    files = GrowingFilesystem({"a": "old " * 100}, limits=FilesystemLimits(write_bytes=100))
    with pytest.raises(LimitExceededError, match=r"101 bytes for a, at most 100"):
        files.edit("a", "old", "new")
    assert len(files.read_bytes("a")) == 400


def test_stream_supports_read_and_seek() -> None:
    with MemoryFilesystem({"a": "hello"}).open("a") as stream:
        assert stream.seek(1, io.SEEK_SET) == 1
        assert stream.read() == b"ello"


def test_collecting_an_unfinished_undo_block_restores_nothing() -> None:
    """Ctrl-C may arrive at the very end of a block, and its traceback may keep the block alive."""
    files = MemoryFilesystem({"a.txt": "old"})
    before = FileState(FileKind.FILE, b"old")
    block = files._undo_on_error()
    block.__enter__().append((parse_path("a.txt"), before))
    files.write_text("a.txt", "written by a later call")
    del block
    gc.collect()
    assert files.read_bytes("a.txt") == b"written by a later call"


def test_invalid_mode_or_path_is_refused_with_the_valid_forms() -> None:
    files = MemoryFilesystem()
    with pytest.raises(UsageError, match=r"'w' is not a write mode.* create, overwrite, append"):
        files.write_text("a", "b", mode="w")  # pyright: ignore[reportArgumentType] - wrong on purpose
    with pytest.raises(InvalidPathError, match=r"is not text.*POSIX path relative"):
        files.read_text(Path("a"))  # pyright: ignore[reportArgumentType] - as above
    assert not files.exists("a")
