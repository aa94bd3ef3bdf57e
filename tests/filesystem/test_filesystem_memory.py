"""What ``MemoryFilesystem`` does beyond the contract of filesystems."""

from __future__ import annotations

import subprocess
import sys

import pytest

from wink_workspace.clock import ManualClock
from wink_workspace.errors import (
    DirectoryExpectedError,
    DirectoryNotEmptyError,
    FileExpectedError,
    FileMissingError,
    LinkError,
    PathExistsError,
)
from wink_workspace.filesystem import Filesystem, MemoryFilesystem, parse_path
from wink_workspace.testing.filesystem_contract import contents


class UncachedFilesystem(MemoryFilesystem):
    """Computes fingerprints like a backend that does not store them."""

    _fingerprint = Filesystem._fingerprint


def test_instances_share_nothing() -> None:
    one, two = MemoryFilesystem({"a": "1"}), MemoryFilesystem({"a": "1"})
    one.write_text("a", "changed")
    one.write_text("b", "new")
    assert two.read_bytes("a") == b"1"
    assert not two.exists("b")


def test_files_may_be_text_or_bytes_and_need_no_directories_listed() -> None:
    files = MemoryFilesystem({"./a//b": "é", "c": b"\xff", "d/e/f": ""})
    assert files.read_bytes("a/b") == "é".encode()
    assert files.read_bytes("c") == b"\xff"
    assert [str(entry.path) for entry in files.walk()] == ["a", "a/b", "c", "d", "d/e", "d/e/f"]


def test_files_that_cannot_exist_together_are_refused() -> None:
    with pytest.raises(DirectoryExpectedError):
        MemoryFilesystem({"a": "", "a/b": ""})
    with pytest.raises(FileExpectedError):
        MemoryFilesystem({".": ""})


def test_given_bytes_are_not_shared_with_the_caller() -> None:
    data = bytearray(b"before")
    files = MemoryFilesystem({"given": data})  # type: ignore[dict-item] - callers do it
    files.write_bytes("written", data)
    data[:] = b"after!"
    assert files.read_bytes("given") == files.read_bytes("written") == b"before"


def test_initial_files_may_exceed_the_limits_and_still_be_read() -> None:
    files = MemoryFilesystem({"big": b"x" * 3_000_000})
    assert files.stat("big").size_bytes == len(files.read_bytes("big")) == 3_000_000


def test_stored_fingerprint_equals_the_computed_one() -> None:
    kept, computed = MemoryFilesystem(), UncachedFilesystem()
    for files in (kept, computed):
        files.write_bytes("d/big", b"x" * 1_000_000)
        files.write_bytes("d/run", b"#!/bin/sh")
        files.set_executable("d/run", True)
        files.symlink("link", "d/run")
        files.mkdir("empty")
    assert contents(kept) == contents(computed)
    for path in (".", "d", "d/big", "d/run", "link", "empty"):
        assert kept.fingerprint(path) == computed.fingerprint(path)


def test_primitive_refuses_a_path_that_changed_after_the_check() -> None:
    """A path may change between the check and the action of a public method."""
    files = MemoryFilesystem({"file": "x", "full/file": "x"})
    files.symlink("link", "file")
    file, full, link, gone = map(parse_path, ("file", "full", "link", "gone"))
    for error, call in [
        (DirectoryExpectedError, lambda: files._children(file)),
        (FileMissingError, lambda: files._children(gone)),
        (LinkError, lambda: files._open(link)),
        (FileExpectedError, lambda: files._open(full)),
        (LinkError, lambda: files._write(link, b"", mode="overwrite")),
        (FileExpectedError, lambda: files._write(full, b"", mode="append")),
        (PathExistsError, lambda: files._write(file, b"", mode="create")),
        (FileMissingError, lambda: files._write(gone / "x", b"", mode="create")),
        (DirectoryExpectedError, lambda: files._write(file / "x", b"", mode="create")),
        (DirectoryExpectedError, lambda: files._write(link / "x", b"", mode="create")),
        (DirectoryNotEmptyError, lambda: files._delete(full, recursive=False)),
        (FileMissingError, lambda: files._delete(gone, recursive=True)),
        (PathExistsError, lambda: files._mkdir(file)),
        (PathExistsError, lambda: files._symlink(link, "x")),
        (PathExistsError, lambda: files._move(file, full)),
        (FileMissingError, lambda: files._move(gone, file)),
        (LinkError, lambda: files._set_executable(link, executable=True)),
    ]:
        token = files.snapshot()
        with pytest.raises(error):
            call()
        assert files.snapshot() is token


def test_given_clock_is_used() -> None:
    clock = ManualClock()
    assert MemoryFilesystem(clock=clock).clock is clock


def test_importing_and_using_files_loads_neither_fsspec_nor_regex_nor_pydantic() -> None:
    code = (
        "import sys; from wink_workspace.filesystem import MemoryFilesystem;"
        "files = MemoryFilesystem({'a.py': 'x'}); files.glob('**/*.py'); files.edit('a.py','x','y');"
        "print([m for m in ('fsspec', 'regex', 'pydantic', 'pytest') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
