# ruff: noqa: SLF001 - the wrapper calls the primitives of the inner filesystem
"""Inject a failure at a chosen step.

A *crash sweep* fails at the first step, then at the second, and so on until the work succeeds. It
checks the state after each failure::

    for n in itertools.count(1):
        files = FailingFilesystem(MemoryFilesystem({"a": "before"}), fail_at=n)
        try:
            work(files)
        except CrashError:
            assert files.read_bytes("a") == b"before"
        else:
            break
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from wink_workspace.filesystem import (
    FileChange,
    FileStat,
    Filesystem,
    WorkspacePath,
    WriteMode,
)


class CrashError(RuntimeError):
    """The injected failure; like a bug, it is not an error of this package."""


@dataclass(slots=True)
class CrashAt:
    """Counts steps and raises at one of them, once.

    Args:
        n: The step that raises, from 1; 0 for none.
        error: The exception; by default a ``CrashError``.
    """

    n: int
    error: BaseException | None = None
    n_steps: int = 0

    def step(self) -> None:
        """Count one more step."""
        self.n_steps += 1
        if self.n_steps == self.n:
            raise self.error or CrashError(f"injected failure at step {self.n}")


class FailingFilesystem(Filesystem):
    """A wrapper around a filesystem in which one change fails.

    Only primitives that change something are counted: write, delete, mkdir, move, symlink and
    set_executable. ``crash.n_steps`` is their number so far.

    Args:
        inner: The filesystem with the files.
        fail_at: Which change raises, counted from 1.
        error: The exception; by default a ``CrashError``.
        afterwards: Raise after the change is done, as if a signal interrupted it.
    """

    def __init__(
        self,
        inner: Filesystem,
        *,
        fail_at: int,
        error: BaseException | None = None,
        afterwards: bool = False,
    ) -> None:
        super().__init__(
            limits=inner.limits,
            read_only=inner.read_only,
            read_only_paths=inner.read_only_paths,
            clock=inner.clock,
        )
        self.crash = CrashAt(fail_at, error)
        self._inner = inner
        self._afterwards = afterwards

    def snapshot(self) -> object:
        """A snapshot of the inner filesystem."""
        return self._inner.snapshot()

    def restore(self, token: object) -> None:
        """Restore the inner filesystem."""
        self._inner.restore(token)

    def changes(self, before: object, after: object | None = None) -> tuple[FileChange, ...]:
        """The changes of the inner filesystem."""
        return self._inner.changes(before, after)

    def _stat(self, path: WorkspacePath) -> FileStat | None:
        return self._inner._stat(path)

    def _children(self, path: WorkspacePath) -> Iterable[FileStat]:
        return self._inner._children(path)

    def _open(self, path: WorkspacePath) -> BinaryIO:
        return self._inner._open(path)

    def _fingerprint(self, path: WorkspacePath) -> str:
        return self._inner._fingerprint(path)

    def _write(self, path: WorkspacePath, data: bytes, *, mode: WriteMode) -> None:
        with self._counted():
            self._inner._write(path, data, mode=mode)

    def _delete(self, path: WorkspacePath, *, recursive: bool) -> None:
        with self._counted():
            self._inner._delete(path, recursive=recursive)

    def _mkdir(self, path: WorkspacePath) -> None:
        with self._counted():
            self._inner._mkdir(path)

    def _move(self, source: WorkspacePath, destination: WorkspacePath) -> None:
        with self._counted():
            self._inner._move(source, destination)

    def _set_executable(self, path: WorkspacePath, *, executable: bool) -> None:
        with self._counted():
            self._inner._set_executable(path, executable=executable)

    def _symlink(self, path: WorkspacePath, target: str) -> None:
        with self._counted():
            self._inner._symlink(path, target)

    @contextmanager
    def _counted(self) -> Generator[None]:
        if not self._afterwards:
            self.crash.step()
        yield
        if self._afterwards:
            self.crash.step()
