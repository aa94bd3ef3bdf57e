"""Every kind of system call of a call, a rollback and an undo in place fails in turn.

Afterwards the user's directory has the state before or after the work, external edits are kept,
and calls work. If an error was raised, this holds when the workspace is opened again.
"""

from __future__ import annotations

import errno
import itertools
from pathlib import Path

import pytest
import random_cases
from in_place_rig import begun, files_of, source_of, unfinished_in
from test_workspace_faults import CHANGING, READING, Faults, some_of_each
from workspace_rig import assert_fsck_clean, calls, doing, folder, reopened

from wink_workspace.errors import WinkError
from wink_workspace.workspace import Workspace, WorkspaceConfig
from wink_workspace.workspace.in_place import in_place_tree as in_place_tree

FILES = {"a.txt": b"one\n", "link": b"no link yet", "new/0/x.txt": b"x", "sub/b.txt": b"b\n"}
NEVER = 1_000_000


def act_on(workspace: Workspace, n: int) -> None:
    """Change, delete, create and move; the same steps for each *n*."""
    files = workspace.files
    for entry in files.list("new"):
        files.delete(entry.path, recursive=True)
    files.write_text(f"new/{n}/y.txt", f"{n}\n")
    files.move(f"new/{n}/y.txt", f"new/{n}/x.txt")
    files.write_text("a.txt", f"{n}\n")
    files.set_executable("a.txt", bool(n % 2))
    files.delete("link")
    files.symlink("link", f"{n}")


@pytest.mark.sweep
@pytest.mark.parametrize("work", ["commit", "rollback", "undo"])
@pytest.mark.parametrize(
    "code",
    [errno.EIO, pytest.param(errno.ENOSPC, marks=pytest.mark.soak)],
    ids=errno.errorcode.get,
)
def test_any_failing_system_call_in_place_leaves_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str, code: int
) -> None:
    config = WorkspaceConfig(durable=True)
    workspace = begun(tmp_path, FILES, config=config)
    mine = source_of(tmp_path) / "mine.txt"
    for n in range(256):
        (folder(tmp_path).ledger / f"objects/{n:02x}").mkdir(exist_ok=True)
    faults = Faults(monkeypatch, *CHANGING, *READING)
    for name in ("exchange_names", "rename_to_free"):
        real = getattr(in_place_tree, name)
        monkeypatch.setattr(in_place_tree, name, faults._failing(name, real))
    hit: set[str] = set()
    rounds = itertools.count(1)

    def round_with(nth: int, kind: str = "") -> bool:
        """Make the *nth* call fail and check the result; False if there were fewer calls."""
        nonlocal workspace
        n = next(rounds)
        commit = doing(lambda: act_on(workspace, n), name="commit")
        rollback = doing(lambda: act_on(workspace, n), name="rollback", fails=True)
        with calls(workspace, commit, rollback) as call:
            mine.write_bytes(b"%d by hand\n" % n)
            states = [files_of(tmp_path)]
            if work == "undo":
                assert call("commit").result.success
                states.append(files_of(tmp_path))
            faults.arm(nth, code, kind=kind)
            raised = done = None
            try:
                done = workspace.undo() if work == "undo" else call(work)
            except WinkError as error:
                raised = error
            faults.disarm()
        hit.add(faults.hit)
        if raised is not None:
            workspace.close()
            workspace = reopened(tmp_path, config=config)
        now = files_of(tmp_path)
        if work == "commit" and done is not None and done.result.success:
            assert now.keys() >= {b"new/%d/x.txt" % n}
        elif work == "commit" and raised is not None:
            assert now in states or now.keys() >= {b"new/%d/x.txt" % n}
        else:
            assert now in states, (nth, kind, faults.hit, raised)
        assert mine.read_bytes() == b"%d by hand\n" % n
        assert unfinished_in(source_of(tmp_path)) == [], (nth, kind, faults.hit, raised)
        with calls(workspace) as call:  # files and history agree, and calls work
            assert call("ls").result.success
            n_entries = next(workspace.log()).number
            assert call("ls").result.success
            assert next(workspace.log()).number == n_entries + 1, (nth, faults.hit, raised)
        return bool(faults.hit)

    for _ in range(2):
        assert not round_with(NEVER)
    for kind, nth in random_cases.some(some_of_each(faults.seen), 12):
        if not round_with(nth, kind):
            round_with(nth, kind)
    for kind in {"open", "rename", "replace", "unlink", "fsync", "exchange_names"} - hit:
        round_with(1, kind)
    workspace.close()
    assert hit >= {"open", "rename", "replace", "unlink", "fsync", "exchange_names"}
    assert_fsck_clean(folder(tmp_path).ledger)
