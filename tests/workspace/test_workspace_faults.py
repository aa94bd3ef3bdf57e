"""Every system call on the way of a commit, a rollback and an undo fails in turn.

Afterwards the workspace is as before or as after; if an error was raised, it is once opened again.
"""

from __future__ import annotations

import errno
import io
import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
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

FAILING = [
    "open",
    "write",
    "pwrite",
    "read",
    "rename",
    "replace",
    "unlink",
    "fsync",
    "link",
    "symlink",
    "mkdir",
    "rmdir",
    "ftruncate",
    "stat",
    "lstat",
    "scandir",
    "listdir",
    "fstat",
    "readlink",
    "fdopen",
]
ERRNOS = (errno.ENOSPC, errno.EIO, errno.EACCES)
OURS = ("wink_workspace.ledger", "wink_workspace.filesystem", "wink_workspace.workspace", "pathlib")


class Faults:
    """Makes the n-th system call of our own modules fail and, with *on*, all that follow it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = -1
        self.on = False
        self.code = errno.EIO
        self.struck = ""
        for name in FAILING:
            monkeypatch.setattr(os, name, self._failing(name, getattr(os, name)))
        monkeypatch.setattr(io, "open", self._failing("io.open", io.open))

    def arm(self, nth: int, code: int, *, on: bool = False) -> None:
        """Let the *nth* call from now fail."""
        self.left, self.code, self.on, self.struck = nth, code, on, ""

    def disarm(self) -> None:
        """Let nothing fail."""
        self.left, self.on = -1, False

    def _failing(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def function(*args: Any, **kwargs: Any) -> Any:
            if self.left >= 0 and sys._getframe(1).f_globals["__name__"].startswith(OURS):
                self.left = max(self.left - 1, 0 if self.on else -1)
                if self.left == 0:
                    self.struck = self.struck or name
                    self.left = 0 if self.on else -1
                    raise OSError(self.code, os.strerror(self.code))
            return real(*args, **kwargs)

        return function


def furnished(directory: Path, *, durable: bool = False) -> Workspace:
    files = {"a.txt": b"one\n", "gone.txt": b"x", "sub/b.txt": b"b\n"}
    return made(directory, files, config=WorkspaceConfig(durable=durable))


def act_on(root: Path, n: int) -> None:
    (root / "a.txt").write_bytes(b"%d\n" % n)
    (root / f"new-{n % 2}").mkdir(exist_ok=True)
    (root / f"new-{n % 2}" / f"{n}.txt").write_bytes(b"new\n")
    gone = root / "gone.txt"
    gone.unlink() if gone.exists() else gone.symlink_to("a.txt")


@pytest.mark.parametrize(
    "on",
    [
        pytest.param(False, id="once"),
        pytest.param(True, id="from-then-on", marks=pytest.mark.soak),
    ],
)
@pytest.mark.parametrize("work", ["commit", "rollback", "undo"])
def test_any_failing_system_call_leaves_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str, on: bool
) -> None:
    workspace = furnished(tmp_path, durable=True)
    root = folder(tmp_path).files
    faults = Faults(monkeypatch)
    for n in itertools.count(1):
        tools = [
            doing(lambda n=n: act_on(root, n), name="commit"),
            doing(lambda n=n: act_on(root, n), name="rollback", fails=True),
        ]
        with calls(workspace, *tools) as call:
            if work == "undo":
                before_undone = picture(root)
                call("commit")
            before = picture(root)
            faults.arm(n, ERRNOS[n % 3], on=on)
            raised = None
            try:
                done = workspace.undo() if work == "undo" else call(work)
            except WinkError as error:
                raised, done = error, None
            faults.disarm()
        if not faults.struck:
            break
        if raised is not None:
            assert str(raised)
            workspace.close()
            workspace = reopened(tmp_path, config=WorkspaceConfig(durable=True))
        now = picture(root)
        if work == "undo":
            assert now in (before, before_undone), (n, faults.struck, raised)
        elif done is not None and done.result.success:
            assert now != before
        elif raised is None or work == "rollback":
            assert now == before, (n, faults.struck, raised, now.keys() ^ before.keys())
        with calls(workspace, *tools) as call:  # files and history agree, and work goes on
            n_entries = next(workspace.log()).number
            assert call("ls").result.success
            assert next(workspace.log()).number == n_entries + 1, (n, faults.struck, raised)
    workspace.close()
    assert n > 20
    assert_fsck_clean(folder(tmp_path).ledger)


@pytest.mark.behaviour(34)
def test_path_that_cannot_be_put_back_raises_after_all_others_were_and_recovers_later(
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
            assert {path for path, at in picture(root).items() if at[2] == b"after"} == {b"b.txt"}
            with pytest.raises(PoisonedError):
                call("ls")
            with pytest.raises(PoisonedError):
                workspace.undo()
            transactions_of(workspace.session).recover()
            assert_same(before, picture(root))
            assert call("ls").result.success


def test_failed_rollback_is_put_right_by_opening_the_workspace_again(
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
