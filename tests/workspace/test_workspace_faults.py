# ruff: noqa: PTH102, PTH106, PTH108, PTH123, PTH208, PTH211 - only pathlib is made to fail, not the handler
"""Every system call of a commit, a rollback and an undo fails in turn.

Afterwards the workspace has the state before or after the work. If an error was raised, it has
that state when it is opened again.
"""

from __future__ import annotations

import errno
import io
import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import pytest
import random_cases
from workspace_rig import (
    Picture,
    assert_fsck_clean,
    assert_same,
    calls,
    doing,
    folder,
    made,
    picture,
    reopened,
)

from wink_workspace.errors import PoisonedError, RollbackError, WinkError
from wink_workspace.filesystem.disk.tree import DiskTree
from wink_workspace.runtime import transactions_of
from wink_workspace.workspace import Workspace, WorkspaceConfig

CHANGING = (
    *("open", "write", "pwrite", "rename", "replace", "unlink", "fsync", "link", "symlink"),
    *("mkdir", "rmdir", "ftruncate", "fchmod"),
)
ERRNOS = (errno.EIO, errno.ENOSPC, errno.EACCES)
NEVER = 1_000_000
ALWAYS = {
    "commit": {"open", "pwrite", "rename", "fsync"},
    "rollback": {"open", "write", "rename", "mkdir", "fsync"},
    "undo": {"open", "write", "rename", "unlink", "fsync"},
}
"""The system calls that every run must include, however files are written."""
READING = ("read", "stat", "lstat", "scandir", "listdir", "fstat", "readlink", "fdopen")
Step = tuple[str, tuple[tuple[object, int], ...]]
"""A system call: its name, and the lines of the package on the stack."""
OURS = ("wink_workspace.ledger", "wink_workspace.filesystem", "wink_workspace.workspace", "pathlib")


class Faults:
    """Makes the n-th system call of the package fail and, with *on*, all later ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.left = -1
        self.on = False
        self.code = errno.EIO
        self.hit = ""
        self.seen: list[str] = []
        self.steps: list[Step] = []
        self.kind = ""
        for name in names:
            monkeypatch.setattr(os, name, self._failing(name, getattr(os, name)))
        monkeypatch.setattr(io, "open", self._failing("io.open", io.open))

    def arm(self, nth: int, code: int, *, on: bool = False, kind: str = "") -> None:
        """Make the *nth* call from now fail; with a *kind*, the nth of that name."""
        self.left, self.code, self.on, self.kind = nth, code, on, kind
        self.hit, self.seen, self.steps = "", [], []

    def disarm(self) -> None:
        """Stop making calls fail."""
        self.left, self.on = -1, False

    def _failing(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def function(*args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1)
            if self.left >= 0 and caller.f_globals["__name__"].startswith(OURS):
                self.seen.append(name)
                self.steps.append((name, callers(caller)))
                if self.kind in ("", name):
                    self.left = max(self.left - 1, 0 if self.on else -1)
                if self.left == 0:
                    self.hit = self.hit or name
                    self.left = 0 if self.on else -1
                    raise OSError(self.code, os.strerror(self.code))
            return real(*args, **kwargs)

        return function


def furnished(directory: Path, *, durable: bool = False) -> Workspace:
    files = {"a.txt": b"one\n", "link": b"no link yet", "new/0/x.txt": b"x", "sub/b.txt": b"b\n"}
    return made(directory, files, config=WorkspaceConfig(durable=durable))


def act_on(root: Path, n: int) -> None:
    """Change, delete and create files, directories and links: other paths for each *n*.

    The steps are the same in every round, so the sweep covers all of them. The system calls of
    this function do not fail.
    """
    for old in os.listdir(root / "new"):
        os.unlink(root / "new" / old / "x.txt")
        os.rmdir(root / "new" / old)
    os.mkdir(root / "new" / str(n))
    for path in (root / "a.txt", root / "new" / str(n) / "x.txt"):
        with open(path, "wb") as file:
            file.write(b"%d\n" % n)
    os.unlink(root / "link")
    os.symlink(str(n), root / "link")


def callers(frame: FrameType | None) -> tuple[tuple[object, int], ...]:
    """The lines of the package on the stack."""
    lines: list[tuple[object, int]] = []
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(OURS):
            lines.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return tuple(lines)


def distinct(steps: list[Step]) -> list[int]:
    """The numbers of the first and the last call with the same callers, counted from 1.

    A call between them, such as for the second of three objects, fails in the same code state.
    """
    first = {step: n for n, step in reversed(list(enumerate(steps, 1)))}
    last = {step: n for n, step in enumerate(steps, 1)}
    return sorted({*first.values(), *last.values()})


def some_of_each(names: list[str]) -> list[tuple[str, int]]:
    """The first, a middle and the last call of each name, as name and number."""
    chosen: set[tuple[str, int]] = set()
    for name in set(names):
        n_calls = names.count(name)
        chosen |= {(name, 1), (name, (n_calls + 1) // 2), (name, n_calls)}
    return sorted(chosen)


Extent = Literal["everywhere", "at-each-step", "at-each-kind"]


def failing(code: int, *, on: bool, extent: Extent) -> Any:
    """One test case: *extent* says which calls fail with the error *code*."""
    label = f"{errno.errorcode[code]}-{'from-then-on' if on else 'once'}"
    marks = pytest.mark.soak if extent == "everywhere" else ()
    return pytest.param(code, on, extent, id=f"{label}-{extent}", marks=marks)


@pytest.mark.parametrize(
    ("code", "on", "extent"),
    [
        failing(errno.EIO, on=False, extent="at-each-step"),
        *(failing(code, on=False, extent="at-each-kind") for code in ERRNOS if code != errno.EIO),
        *(failing(code, on=on, extent="everywhere") for code in ERRNOS for on in (False, True)),
    ],
)
@pytest.mark.parametrize("work", ["commit", "rollback", "undo"])
@pytest.mark.sweep
def test_any_failing_system_call_leaves_all_or_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    work: str,
    code: int,
    on: bool,
    extent: Extent,
) -> None:
    workspace = furnished(tmp_path, durable=True)
    root = folder(tmp_path).files
    for n in range(256):  # made on demand, they would make the rounds differ
        (folder(tmp_path).ledger / f"objects/{n:02x}").mkdir(exist_ok=True)
    faults = Faults(monkeypatch, *CHANGING, *(READING if code == errno.EIO else ()))
    hit: set[str] = set()
    rounds = itertools.count(1)

    def round_with(nth: int, kind: str = "") -> bool:
        """Make the *nth* call fail and check the result; False if there were fewer calls."""
        nonlocal workspace
        n = next(rounds)
        tools = [
            doing(lambda: act_on(root, n), name="commit"),
            doing(lambda: act_on(root, n), name="rollback", fails=True),
        ]
        with calls(workspace, *tools) as call:
            if work == "undo":
                before_undone = picture(root)
                call("commit")
            before = picture(root)
            faults.arm(nth, code, on=on, kind=kind)
            raised = None
            try:
                done = workspace.undo() if work == "undo" else call(work)
            except WinkError as error:
                raised, done = error, None
            faults.disarm()
        hit.add(faults.hit)
        if raised is not None:
            assert str(raised)
            workspace.close()
            workspace = reopened(tmp_path, config=WorkspaceConfig(durable=True))
        now = picture(root)
        if work == "undo":
            assert now in (before, before_undone), (nth, faults.hit, raised)
        elif done is not None and done.result.success:
            assert now != before
        elif raised is None or work == "rollback":
            assert now == before, (nth, faults.hit, raised, now.keys() ^ before.keys())
        else:
            assert now == before or now.keys() >= {b"new/%d" % n}
        with calls(workspace, *tools) as call:  # files and history agree, and calls work
            n_entries = next(workspace.log()).number
            assert call("ls").result.success
            assert next(workspace.log()).number == n_entries + 1, (nth, faults.hit, raised)
        return bool(faults.hit)

    for _ in range(2):  # to finish work that happens only once
        assert not round_with(NEVER)
    names = faults.seen
    failing = {
        "everywhere": [("", n) for n in range(1, len(names) + 1)],
        "at-each-step": [("", n) for n in random_cases.some(distinct(faults.steps), 30)],
        "at-each-kind": random_cases.some(some_of_each(names), 8),
    }
    for kind, nth in failing[extent]:
        if not round_with(nth, kind):  # the first round after a failure may have one call less
            round_with(nth, kind)
    for kind in ALWAYS[work] - hit:  # a slower round may have other steps
        round_with(1, kind)
    workspace.close()
    assert hit >= ALWAYS[work]
    assert_fsck_clean(folder(tmp_path).ledger)


@pytest.mark.behaviour(34)
def test_path_that_cannot_be_restored_raises_after_all_others_and_recovers_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"{name}.txt": b"before" for name in "abc"}
    with made(tmp_path, files) as workspace:
        root = folder(tmp_path).files
        before: Picture = picture(root)

        def overwrite() -> None:
            for name in files:
                (root / name).write_bytes(b"after")

        real = DiskTree.put_file

        def put_file(self: Any, path: Any, content: Any, **kwargs: Any) -> None:
            if str(path) == "b.txt":
                b"".join(content)
                raise WinkError("b.txt: the device is broken")
            real(self, path, content, **kwargs)

        with calls(workspace, doing(overwrite, fails=True)) as call:
            with monkeypatch.context() as broken:
                broken.setattr(DiskTree, "put_file", put_file)
                with pytest.raises(RollbackError, match=r"b\.txt"):
                    call("act")
            assert before.keys() - picture(root).keys() == {b"b.txt"}
            assert b"after" not in [content for _, _, content in picture(root).values()]
            with pytest.raises(PoisonedError):
                call("ls")
            with pytest.raises(PoisonedError):
                workspace.undo()
            transactions_of(workspace.session).recover()
            assert_same(before, picture(root))
            assert call("ls").result.success
        (found,) = workspace.discarded()
        assert [str(path) for path in workspace.discarded_paths(found)] == sorted(files)
        assert found.removed == ()


def test_opening_the_workspace_again_completes_a_failed_rollback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = made(tmp_path, {"a.txt": b"before"})
    root = folder(tmp_path).files
    before = picture(root)

    def fail(self: Any, path: Any, content: Any, **kwargs: Any) -> None:
        b"".join(content)
        raise WinkError("the device is broken")

    with calls(workspace, doing(lambda: (root / "a.txt").write_bytes(b"x"), fails=True)) as call:
        with monkeypatch.context() as broken:
            broken.setattr(DiskTree, "put_file", fail)
            with pytest.raises(RollbackError):
                call("act")
    workspace.close()
    with reopened(tmp_path):
        assert_same(before, picture(root))
