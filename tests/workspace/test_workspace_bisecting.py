"""Bisect: the entry that broke a test, in few tests, without a trace in the workspace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from math import ceil, log2
from pathlib import Path

import pytest
from workspace_support import created, state

from wink_workspace.errors import EntryMissingError, UsageError
from wink_workspace.ledger import LogEntry
from wink_workspace.workspace import Verdict, Workspace, bisect

pytestmark = pytest.mark.behaviour(111)


def write(workspace: Workspace, text: str, path: str = "f") -> LogEntry:
    """Write a file in one call; its entry."""
    with workspace.call("write"):
        workspace.files.write_bytes(path, text.encode())
    return workspace.head


def value_below(limit: int) -> Callable[[Workspace], Verdict]:
    def test(fork: Workspace) -> Verdict:
        value = int(fork.files.read_bytes("f"))
        return Verdict.PASSED if value < limit else Verdict.FAILED

    return test


@pytest.mark.parametrize(
    ("mode", "n_calls"),
    [("copy", 60), ("overlay", 60), pytest.param("copy", 1_000, marks=pytest.mark.soak)],
)
def test_the_first_failing_entry_is_found_in_few_tests(
    tmp_path: Path, mode: str, n_calls: int
) -> None:
    with created(tmp_path, {"f": "0"}, mode=mode) as workspace:
        entries = [workspace.head, *(write(workspace, str(n)) for n in range(1, n_calls + 1))]
        before = [entry.id for entry in workspace.log()]
        for first in (1, 23, n_calls - 1, n_calls):
            found = bisect(workspace, value_below(first))
            assert found.suspects == (entries[first],)
            assert found.last_passed == entries[first - 1]
            assert found.n_tests <= 1 + ceil(log2(n_calls + 1))
        assert [entry.id for entry in workspace.log()] == before
        assert workspace.forks() == ()


def test_a_thousand_calls_take_at_most_eleven_tests() -> None:
    """The search alone, over numbers: each answer takes at most 1 + 10 tests."""
    from wink_workspace.workspace.bisecting import _middle

    for first in range(1_001):
        low, high, n_tests = -1, 1_000, 1
        while (n := _middle(low, high, set())) is not None:
            n_tests += 1
            low, high = (low, n) if n >= first else (n, high)
        assert high == first
        assert n_tests <= 11


def test_only_entries_that_changed_files_are_tested(tmp_path: Path) -> None:
    tested: list[int] = []
    with created(tmp_path, {"f": "0"}) as workspace:
        broken = write(workspace, "1")
        for _ in range(20):
            with workspace.call("look"):
                workspace.files.read_bytes("f")
        found = bisect(
            workspace, value_below(1), on_verdict=lambda entry, _: tested.append(entry.number)
        )
        assert found.suspects == (broken,)
        assert tested == [22, 1]


def test_an_edit_outside_of_calls_can_be_the_answer(tmp_path: Path) -> None:
    with created(tmp_path, {"f": "0"}) as workspace:
        write(workspace, "1")
        (state(tmp_path).folder(workspace.info.id).files / "f").write_text("7")
        found = bisect(workspace, value_below(5))
        assert [entry.kind.value for entry in found.suspects] == ["external"]


def test_skipped_entries_are_suspects_only_where_nothing_else_was_tested(tmp_path: Path) -> None:
    with created(tmp_path, {"f": "0"}) as workspace:
        entries = [workspace.head, *(write(workspace, str(n)) for n in range(1, 9))]

        def test(fork: Workspace) -> Verdict:
            value = int(fork.files.read_bytes("f"))
            return Verdict.SKIPPED if value in (4, 5) else value_below(6)(fork)

        found = bisect(workspace, test)
        assert found.suspects == tuple(entries[4:7])
        assert found.last_passed == entries[3]


def test_a_test_that_fails_at_every_entry_blames_the_oldest(tmp_path: Path) -> None:
    with created(tmp_path, {"f": "9"}) as workspace:
        imported = workspace.head
        write(workspace, "10")
        found = bisect(workspace, value_below(5))
        assert (found.suspects, found.last_passed) == ((imported,), None)


def test_a_good_entry_is_not_tested_and_nothing_before_it(tmp_path: Path) -> None:
    tested: list[int] = []
    with created(tmp_path, {"f": "9"}) as workspace:
        good = write(workspace, "1")
        broken = write(workspace, "10")
        write(workspace, "11")
        found = bisect(
            workspace,
            value_below(5),
            good=good.number,
            on_verdict=lambda entry, _: tested.append(entry.number),
        )
        assert (found.suspects, found.last_passed) == ((broken,), good)
        assert good.number not in tested
        with pytest.raises(UsageError, match="no entry after 4 changed files"):
            bisect(workspace, value_below(5), good=4)
        tested.clear()
        with pytest.raises(EntryMissingError):
            bisect(
                workspace,
                value_below(5),
                good=99,
                on_verdict=lambda entry, _: tested.append(entry.number),
            )
        assert tested == []


def test_a_test_that_passes_now_is_refused(tmp_path: Path) -> None:
    with created(tmp_path, {"f": "0"}) as workspace:
        with pytest.raises(UsageError, match="does not fail at the newest entry, 1: it passed"):
            bisect(workspace, value_below(5))
        assert workspace.forks() == ()


def test_a_test_that_changes_and_raises_leaves_no_trace(tmp_path: Path) -> None:
    with created(tmp_path, {"f": "0"}) as workspace:

        def test(fork: Workspace) -> Verdict:
            write(fork, "changed")
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            bisect(workspace, test)
        assert workspace.files.read_bytes("f") == b"0"
        assert workspace.forks() == ()


KILLED = """
import os, signal, sys
from wink_workspace.workspace import Workspace, WorkspaceStorage
w = Workspace.open(sys.argv[2], storage=WorkspaceStorage(sys.argv[1]))
with w.branches.temporary() as fork:
    with fork.call("write"):
        fork.files.write_bytes("f", b"changed")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_fork_of_a_killed_process_is_deleted_by_the_next_one(tmp_path: Path) -> None:
    with created(tmp_path, {"f": "0"}) as workspace:
        workspace.fork("temporary-mine")  # not such a name
    command = [sys.executable, "-c", KILLED, str(tmp_path / "state"), workspace.info.id]
    done = subprocess.run(command, check=False, env=dict(os.environ))
    assert done.returncode == -signal.SIGKILL
    with Workspace.open(workspace.info.id, storage=state(tmp_path)) as opened:
        assert len(opened.forks()) == 2
        with opened.branches.temporary() as fork:
            assert fork.files.read_bytes("f") == b"0"
            assert len(opened.forks()) == 2
        assert opened.forks() == ("temporary-mine",)
        assert opened.files.read_bytes("f") == b"0"
