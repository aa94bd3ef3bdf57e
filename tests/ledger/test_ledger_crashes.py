"""Killed at any step: afterwards the ledger is as before the step or as after it."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
from itertools import count
from pathlib import Path

import pytest
from ledger_support import (
    NOW,
    assert_clean,
    call,
    contents,
    dies,
    imported,
    made,
    reopened,
    tree,
)

from wink_workspace._kill_points import KillPoint, calling
from wink_workspace.errors import LedgerError
from wink_workspace.ledger import EMPTY_TREE_ID, Ledger, PendingMark, Retention
from wink_workspace.ledger.pending import PendingMarks
from wink_workspace.session import Outcome


def run_calls(directory: Path, n_calls: int, **options: object) -> None:
    """Some calls by the whole protocol, each of which rewrites ``f`` and adds a file."""
    with reopened(directory, **options) as ledger, ledger.write() as writer:
        for _ in range(n_calls):
            n = writer.head.number
            writer.begin(f"call-{n}", "write_file", NOW)
            files = {"f": b"%d" % n, f"made/{n}": b"%d" % n}
            call(writer, tree(ledger.store, files, writer.head.files), call_id=f"call-{n}")
            writer.finish_pending()


def expected(number: int) -> dict[str, bytes]:
    """The files after entry *number*."""
    made_since = {f"made/{n}": b"%d" % n for n in range(1, number)}
    return {"f": b"%d" % (number - 1), **made_since}


def files_only(ledger: Ledger) -> dict[str, bytes]:
    found = contents(ledger.store, ledger.branch().head.files)
    return {name: data for name, data in found.items() if isinstance(data, bytes)}


@pytest.mark.parametrize("durable", [False, True])
def test_killed_at_any_step_of_a_commit_the_history_ends_at_a_whole_call(tmp_path, durable) -> None:
    """And the mark tells whether the last call was committed."""
    with made(tmp_path) as ledger, ledger.write() as writer:
        imported(writer, {"f": b"0"})
    outcomes = set()
    for n in count(1):
        before = reopened(tmp_path).branch().head.number
        killed = dies(lambda: run_calls(tmp_path, 2, durable=durable), at_step=n)
        with reopened(tmp_path) as ledger:
            after = ledger.branch().head.number
            assert before <= after <= before + 2
            assert files_only(ledger) == expected(after)
            with ledger.write() as writer:
                mark = writer.pending()
                if mark is not None:
                    is_committed = writer.head.call_id == mark.call_id
                    assert writer.is_recorded(mark) == is_committed
                    assert mark.call_id == f"call-{after - is_committed}"
                    outcomes.add(is_committed)
                writer.finish_pending()
                writer.finish_pending()
                assert writer.pending() is None
        assert_clean(tmp_path)
        assert not list((tmp_path / "ledger.git").rglob("*.lock"))
        if not killed:
            break
    assert n == 2 * 7 + 1
    assert outcomes == {True, False}


def test_killed_while_files_are_thrown_away_the_same_can_be_done_again(tmp_path) -> None:
    """However often it is killed, the files are kept once and the outcome is recorded once."""

    def recover(directory: Path) -> None:
        with reopened(directory) as ledger, ledger.write() as writer:
            mark = writer.pending()
            if mark is not None and not writer.is_recorded(mark):
                found = tree(ledger.store, {"half": b"done"}, writer.head.files)
                writer.discard(found, reason="crash", call_id=mark.call_id, at=mark.started_at)
                same = writer.head.files
                call(writer, same, call_id=mark.call_id, outcome=Outcome.UNKNOWN)
            writer.finish_pending()

    with made(tmp_path) as ledger, ledger.write() as writer:
        imported(writer, {"f": b"0"})
        writer.begin("call-1", "shell", NOW)
    for n in count(1):
        copy = tmp_path / str(n)
        shutil.copytree(tmp_path / "ledger.git", copy / "ledger.git")
        killed = dies(lambda copy=copy: recover(copy), at_step=n)
        recover(copy)
        with reopened(copy) as ledger:
            assert [entry.outcome for entry in ledger.branch().log()] == [Outcome.UNKNOWN, None]
            assert [found.call_id for found in ledger.discarded()] == ["call-1"]
            assert contents(ledger.store, ledger.discarded()[0].files)["half"] == b"done"
            assert contents(ledger.store, ledger.branch().head.files) == {"f": b"0"}
        assert_clean(copy)
        if not killed:
            break
    assert n == 2 + 4 + 1 + 1  # the ref to the files, the outcome's commit, the mark, the end


def test_killed_at_any_step_of_maintenance_nothing_that_is_kept_is_lost(tmp_path) -> None:
    """And what is left behind, objects that nothing leads to, is no fault to plain git."""
    with made(tmp_path) as ledger, ledger.write() as writer:
        imported(writer, {"f": b"0"})
        for n in range(3):
            lost = tree(ledger.store, {"lost": b"%d" % n * 100})
            writer.discard(lost, reason="old", call_id=str(n), at=NOW)
    run_calls(tmp_path, 12)
    head = reopened(tmp_path).branch().head
    small = Retention(budget_bytes=4_000)

    def maintain() -> None:
        with reopened(tmp_path) as ledger, ledger.write():
            ledger.maintain(small)

    for n in count(1, 3):
        killed = dies(maintain, at_step=n)
        with reopened(tmp_path) as ledger:
            entries = list(ledger.branch().log())
            assert entries[0] == head
            for entry in entries:
                assert contents(ledger.store, entry.files)["f"] == b"%d" % (entry.number - 1)
            for found in ledger.discarded():
                assert contents(ledger.store, found.files)
        assert_clean(tmp_path)
        if not killed:
            break
        grow(tmp_path)
    assert n > 20


def grow(directory: Path) -> None:
    """Something more to delete, so that every round has work to do: objects nothing leads to."""
    with reopened(directory) as ledger, ledger.write() as writer:
        for k in range(6):
            tree(ledger.store, {f"x{k}/y": os.urandom(64)}, writer.head.files)


# The pending mark


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    with made(tmp_path) as ledger:
        yield ledger


def test_a_mark_says_which_call_began_on_which_head(ledger) -> None:
    with ledger.write() as writer:
        assert writer.pending() is None
        first = writer.begin("call\n1", "shell", NOW)
        assert writer.pending() == first == PendingMark("call 1", "shell", None, NOW)
        entry = imported(writer, {})
        assert writer.begin("call-2", "shell", NOW).parent == entry.id


def test_a_mark_with_the_id_of_an_earlier_call_is_not_taken_for_that_one(ledger) -> None:
    """Some providers count their calls from one in every run."""
    with ledger.write() as writer:
        imported(writer, {})
        call(writer, EMPTY_TREE_ID, call_id="call-1")
        assert not writer.is_recorded(writer.begin("call-1", "shell", NOW))
        call(writer, EMPTY_TREE_ID, call_id="call-1")
        assert writer.is_recorded(writer.pending())


@pytest.mark.parametrize("text", [b"", b"\0\0", b"[]", b"{}", b'{"started_at": "then"}'])
def test_a_mark_that_cannot_be_read_still_says_that_a_call_was_under_way(tmp_path, text) -> None:
    (tmp_path / "pending").write_bytes(text)
    mark = PendingMarks(tmp_path / "pending").read()
    assert (mark.call_id, mark.parent) == ("", None)
    with made(tmp_path) as ledger, ledger.write() as writer:
        assert not writer.is_recorded(mark)
        imported(writer, {})
        assert not writer.is_recorded(mark)


def test_maintenance_waits_for_a_call_that_is_under_way(ledger) -> None:
    with ledger.write() as writer:
        writer.begin("call-1", "shell", NOW)
        with pytest.raises(LedgerError, match="a call is under way"):
            ledger.maintain(Retention())
        writer.finish_pending()
        assert ledger.maintain(Retention()).ran


# A disk that fails


def limit_files_to(n_bytes: int) -> None:
    """From now on this process can write no file longer than that, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))


@pytest.mark.parametrize("limit", [160, 200, 250, 300, 400])
def test_a_disk_that_takes_no_more_fails_the_entry_and_changes_nothing(tmp_path, limit) -> None:
    """At one size after the other, so that one kind of file after the other does not fit."""
    with made(tmp_path) as ledger, ledger.write() as writer:
        head = imported(writer, {"f": b"0" * 3_000})

    def attempt() -> None:
        limit_files_to(limit)  # of the lock's text, what is there fits
        with reopened(tmp_path) as own, own.write() as other:
            with pytest.raises(LedgerError) as caught:
                other.begin("call-1", "write_file", NOW)
                call(other, tree(own.store, {"f": os.urandom(400)}), record="x" * 200)
            assert caught.value.__cause__.errno == errno.EFBIG
            assert other.refresh() == head

    assert not dies(attempt)
    assert not list((tmp_path / "ledger.git").rglob("tmp_*"))
    assert_clean(tmp_path)


def test_a_bulk_on_a_disk_that_takes_no_more_is_an_error_and_leaves_nothing(tmp_path) -> None:
    with made(tmp_path):
        pass

    def attempt(limit: int) -> None:
        limit_files_to(limit)
        with reopened(tmp_path) as ledger:
            with pytest.raises(LedgerError, match="a pack cannot be written"), ledger.store.bulk():
                for n in range(200):
                    ledger.store.write_blob(b"%d" % n)

    for limit in (0, 20, 1_000, 4_000):  # at the last one the pack fits, and its index does not
        assert not dies(lambda limit=limit: attempt(limit))
    assert not list((tmp_path / "ledger.git/objects/pack").iterdir())


def test_every_kill_point_has_a_place(tmp_path) -> None:
    seen: list[KillPoint] = []
    with calling(seen.append), made(tmp_path) as ledger, ledger.write() as writer:
        imported(writer, {})
        writer.begin("c", "t", NOW)
        for n in range(60):
            call(writer, tree(ledger.store, {"f": os.urandom(100), "g": b"%d" % n * 9_999}))
        writer.discard(EMPTY_TREE_ID, reason="r", call_id="c", at=NOW)
        writer.finish_pending()
        ledger.maintain(Retention())
        ledger.maintain(Retention(budget_bytes=1))
    of_workspaces = ("effect-", "held-", "source-")
    assert set(seen) == {point for point in KillPoint if not point.startswith(of_workspaces)}
