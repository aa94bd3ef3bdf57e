"""Fault injection fails exactly at the chosen step."""

from __future__ import annotations

import pytest

from wink_workspace.filesystem import MemoryFilesystem
from wink_workspace.testing import CrashAt, CrashError, FailingFilesystem


def test_crash_happens_once_at_its_step() -> None:
    crash = CrashAt(2)
    crash.step()
    with pytest.raises(CrashError, match="step 2"):
        crash.step()
    crash.step()
    assert crash.n_steps == 3


def test_crash_raises_the_given_exception() -> None:
    with pytest.raises(KeyboardInterrupt):
        CrashAt(1, KeyboardInterrupt()).step()


@pytest.mark.parametrize(("afterwards", "kept"), [(False, b"one"), (True, b"two")])
def test_change_fails_before_or_after_it_is_done(afterwards: bool, kept: bytes) -> None:
    inner = MemoryFilesystem({"a": "zero"})
    files = FailingFilesystem(inner, fail_at=2, afterwards=afterwards)
    files.write_text("a", "one")
    with pytest.raises(CrashError):
        files.write_text("a", "two")
    assert inner.read_bytes("a") == kept
    files.write_text("a", "three")
    assert inner.read_bytes("a") == b"three"


def test_only_changes_count_as_steps() -> None:
    files = FailingFilesystem(MemoryFilesystem({"a": "x"}), fail_at=1)
    files.read_text("a")
    files.restore(files.snapshot())
    assert files.grep("x").n_files == 1
    assert files.crash.n_steps == 0


def test_wrapped_filesystem_keeps_its_limits_and_read_only_parts() -> None:
    inner = MemoryFilesystem(read_only=True)
    files = FailingFilesystem(inner, fail_at=1)
    assert (files.limits, files.read_only, files.clock) == (inner.limits, True, inner.clock)
    with pytest.raises(PermissionError):
        files.write_text("a", "x")
    assert files.crash.n_steps == 0
