"""Damaged files of a workspace are named in an error: no hang, no wrong data, no traceback."""

from __future__ import annotations

import base64
import random
import subprocess
import sys
from pathlib import Path

import pytest
from workspace_support import created, git, state, write

from wink_workspace.errors import LedgerDamagedError, LedgerError, UsageError
from wink_workspace.ledger import Ledger, Retention
from wink_workspace.workspace import Workspace, WorkspaceReader

_WATCHDOG_S = 60
_WORDS = base64.b85encode(random.Random(0).randbytes(60_000))  # it is not worth compressing

_LIST = "print(len(list(workspace.log())))"
_COMPARE = "print(workspace.diff())"
_COLLECT = "print(workspace.maintain())"
_SCRIPT = """
import sys
from wink_workspace.errors import LedgerError
from wink_workspace.workspace import Workspace, WorkspaceStorage
try:
    with Workspace.open(sys.argv[1], storage=WorkspaceStorage(sys.argv[2])) as workspace:
        exec(sys.argv[3])
except LedgerError as error:
    print(error)
"""


def _output_of(which: str, tmp_path: Path, act: str) -> str:
    """The output of a process that opens the workspace and acts; it is killed if it hangs."""
    command = [sys.executable, "-c", _SCRIPT, which, str(tmp_path / "state"), act]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_WATCHDOG_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _cut(path: Path) -> None:
    content = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize("act", [_LIST, _COMPARE, _COLLECT])
def test_object_of_a_truncated_pack_is_named_and_reading_it_does_not_hang(
    tmp_path: Path, act: str
) -> None:
    """A loss of power can leave such a file."""
    with created(tmp_path, {}) as workspace:
        write(workspace, **{"a.txt": _WORDS.decode()})
        which, ledger, newest = workspace.info.id, workspace._folder.ledger, workspace.head.id
    for pack in ledger.glob("objects/pack/*.pack"):
        _cut(pack)
    assert newest in _output_of(which, tmp_path, act)


def test_maintenance_rebuilds_the_index_of_a_pack_without_one(tmp_path: Path) -> None:
    """A writer that dies can leave such a pack, too, but then no object is missing."""
    with created(tmp_path, {f"{n}.txt": f"{n}\n" for n in range(60)}) as workspace:
        folder = workspace._folder.ledger
    pack = max(folder.glob("objects/pack/*.pack"), key=lambda path: path.stat().st_size)
    pack.with_suffix(".idx").unlink()
    with Ledger(folder) as ledger:
        assert ledger.maintain(Retention()).ran
    assert git(folder, "fsck", "--strict", "--no-dangling") == ""


@pytest.mark.parametrize("n_bytes", [9, 1_040, 1_100])
def test_truncated_pack_index_is_named(tmp_path: Path, n_bytes: int) -> None:
    with created(tmp_path, {f"{n}.txt": f"{n}\n" for n in range(60)}) as workspace:
        index, *_ = workspace._folder.ledger.glob("objects/pack/*.idx")
        content = index.read_bytes()
        index.unlink()  # the old one may be mapped
        index.write_bytes(content[:n_bytes])
        with pytest.raises(LedgerDamagedError, match=index.name):
            workspace._ledger.store.packs.listed()
        index.write_bytes(content)


@pytest.mark.parametrize("damaged", ["refs/heads/main", "refs/wink/forks/imported"])
def test_damaged_file_of_the_ledger_is_named_with_a_hint(tmp_path: Path, damaged: str) -> None:
    with created(tmp_path, {"a.txt": "a\n"}) as workspace:
        which, ledger = workspace.info.id, workspace._folder.ledger
    (ledger / damaged).write_bytes(b"\xff\0garbage\n")
    with (
        pytest.raises(LedgerError, match=r"git fsck") as caught,
        Workspace.open(which, storage=state(tmp_path)) as workspace,
    ):
        workspace.diff()
    assert damaged in str(caught.value) or str(ledger) in str(caught.value)


@pytest.mark.parametrize("text", ["", "{}"])
def test_workspace_without_readable_metadata_is_not_reported_as_missing(
    tmp_path: Path, text: str
) -> None:
    with created(tmp_path, {"a.txt": "a\n"}, mode="copy") as workspace:
        which, files = workspace.info.id, workspace._folder.files
    (files.parent / "about.json").write_text(text)
    with pytest.raises(UsageError, match=r"cannot read .*about\.json") as caught:
        Workspace.open(which, storage=state(tmp_path))
    assert str(files) in caught.value.hint


def test_objects_are_kept_while_the_ref_of_the_main_branch_is_missing(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": "a\n"}) as workspace:
        workspace.fork("other")
        write(workspace, **{"b.txt": "b\n"})
        ledger, newest = workspace._folder.ledger, workspace.head.id
    (ledger / "refs/heads/main").unlink()
    with (
        Ledger(ledger) as opened,
        pytest.raises(LedgerDamagedError, match="so nothing of the history is deleted"),
    ):
        opened.maintain(Retention())
    for open_it in (WorkspaceReader, Workspace):
        with pytest.raises(LedgerDamagedError, match="ref of the branch main is missing") as caught:
            open_it(workspace._folder)
        assert "spare-1" in caught.value.hint
    (ledger / "refs/heads/main").write_text(f"{newest}\n")
    with Workspace.open(workspace.info.id, storage=state(tmp_path)) as workspace:
        assert workspace.files.read_bytes("b.txt") == b"b\n"
        assert [entry.number for entry in workspace.log()] == [2, 1]
