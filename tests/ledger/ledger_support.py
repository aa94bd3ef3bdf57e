"""Helpers for tests of the ledger: files as values, entries, killed processes, plain git."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from wink_workspace._kill_points import KillPoint, calling
from wink_workspace.clock import ManualClock
from wink_workspace.filesystem.model import FileKind, FileState
from wink_workspace.filesystem.paths import WorkspacePath, parse_path
from wink_workspace.ledger import (
    EMPTY_TREE_ID,
    BranchWriter,
    Draft,
    EntryKind,
    Ledger,
    LogEntry,
    ObjectStore,
    TreeEntry,
    build,
    entry_of,
    file_state,
    walk,
)
from wink_workspace.session import Outcome

NOW = datetime(2025, 1, 1, tzinfo=UTC)
DIRECTORY = FileState(FileKind.DIRECTORY)

Files = Mapping[str, bytes | FileState]


def new_ledger(directory: Path, **options: object) -> Ledger:
    """Create and open a ledger in *directory*."""
    Ledger.create(directory / "ledger.git")
    return reopened(directory, **options)


def reopened(directory: Path, **options: object) -> Ledger:
    """Open the ledger in *directory*."""
    ledger = Ledger(directory / "ledger.git", **{"clock": ManualClock(NOW), **options})
    _opened.append(weakref.ref(ledger))
    return ledger


_opened: list[weakref.ref[Ledger]] = []


def make_readable_by_git(directory: Path) -> None:
    """Seal the open packs of this process and of dead ones, as closing and opening do."""
    for ledger in (reference() for reference in _opened):
        if ledger is not None:
            ledger.store.open_packs.seal()
    with Ledger(directory / "ledger.git") as ledger:
        ledger.store.open_packs.seal_dead()


def state(content: bytes | FileState) -> FileState:
    """The state itself, or an ordinary file with these bytes."""
    return content if isinstance(content, FileState) else FileState(FileKind.FILE, content)


def link(target: str) -> FileState:
    return FileState(FileKind.SYMLINK, target.encode())


def script(content: bytes) -> FileState:
    """An executable file."""
    return FileState(FileKind.FILE, content, executable=True)


def at(path: str) -> WorkspacePath:
    """A path by its text; names that callers may not use are allowed."""
    return WorkspacePath(tuple(path.split("/"))) if "\\" in path else parse_path(path)


def tree(store: ObjectStore, files: Files, base: str = EMPTY_TREE_ID) -> str:
    """The id of a root with these files and those of *base*."""
    return build(store, base, {at(path): stored(store, content) for path, content in files.items()})


def stored(store: ObjectStore, content: bytes | FileState) -> TreeEntry:
    return entry_of(store, state(content))


def contents(store: ObjectStore, root: str) -> dict[str, bytes | FileState]:
    """The files of a tree in the form that ``tree`` takes, with every directory."""
    found: dict[str, bytes | FileState] = {}
    for path, entry in walk(store, root):
        kept = file_state(store, entry)
        assert kept is not None
        plain = kept.kind is FileKind.FILE and not kept.executable
        found["/".join(path.parts)] = kept.data if plain else kept
    return found


def call(
    writer: BranchWriter,
    files: str,
    *,
    call_id: str = "call-1",
    session: str = EMPTY_TREE_ID,
    outcome: Outcome = Outcome.COMMITTED,
    when: datetime = NOW,
    record: object = None,
) -> LogEntry:
    """Append the entry of a call that left *files*."""
    return writer.append(
        Draft(
            kind=EntryKind.CALL,
            subject=f"write_file for {call_id}",
            files=files,
            session=session,
            record=record,
            at=when,
            tool="write_file",
            call_id=call_id,
            outcome=outcome,
        )
    )


def imported(writer: BranchWriter, files: Files) -> LogEntry:
    """Append the first entry."""
    return writer.append(
        Draft(
            kind=EntryKind.IMPORT,
            subject="import",
            files=tree(writer.store, files),
            session=EMPTY_TREE_ID,
            record=None,
            at=NOW,
        )
    )


def git(directory: Path, *arguments: str) -> str:
    """The output of plain git in the ledger of *directory*; the command must succeed."""
    make_readable_by_git(directory)
    done = subprocess.run(
        ["git", "-C", str(directory / "ledger.git"), *arguments],
        capture_output=True,
        env={
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
        },
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.decode("utf-8", "surrogateescape")


def assert_clean(directory: Path) -> None:
    """Check that plain git finds no fault; unreferenced objects are allowed."""
    found = git(directory, "fsck", "--strict", "--full", "--no-dangling")
    assert found == ""


def open_below(directory: Path) -> list[str]:
    """The files and directories below *directory* that this process has open."""
    found: list[str] = []
    for fd in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of this listing
            found.append(str(fd.readlink()))
    return sorted(path for path in found if path.startswith(f"{directory.resolve()}/"))


class KillAt:
    """A kill point that ends its process at the *n*-th step, counted from 1."""

    def __init__(self, n: int) -> None:
        self._left = n

    def __call__(self, point: KillPoint) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def killed_in_child(work: Callable[[], object], *, at_step: int = 0) -> bool:
    """Run *work* in a forked child that is killed at the given kill point, counted from 1.

    Returns whether the child was killed. Fails if *work* raises.
    """
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            with calling(KillAt(at_step)):
                work()
        except BaseException:  # noqa: BLE001 - a child must end here after any error
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0, "the child raised"
    return os.WIFSIGNALED(status)


__all__ = [
    "DIRECTORY",
    "NOW",
    "Files",
    "KillAt",
    "assert_clean",
    "at",
    "call",
    "contents",
    "git",
    "imported",
    "killed_in_child",
    "link",
    "new_ledger",
    "open_below",
    "reopened",
    "script",
    "state",
    "stored",
    "tree",
]
