"""A kill at any step leaves the ledger as it was before or after that step."""

from __future__ import annotations

import errno
import json
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
    imported,
    killed_in_child,
    new_ledger,
    reopened,
    tree,
)

from wink_workspace._kill_points import KillPoint, calling
from wink_workspace.errors import LedgerError
from wink_workspace.ledger import EMPTY_TREE_ID, LARGE_BYTES, Ledger, PendingMark, Retention
from wink_workspace.ledger.entries.pending import PendingMarks
from wink_workspace.session import Outcome


def run_calls(directory: Path, n_calls: int, **options: object) -> None:
    """Make complete calls, each of which rewrites ``f`` and adds a file."""
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
def test_killing_a_commit_at_any_step_leaves_only_whole_calls(tmp_path, durable) -> None:
    """The mark shows whether the last call was committed."""
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        imported(writer, {"f": b"0"})
    outcomes = set()
    for n in count(1):
        before = reopened(tmp_path).branch().head.number
        killed = killed_in_child(lambda: run_calls(tmp_path, 2, durable=durable), at_step=n)
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
    assert n == 2 * 7 + 3 + 1  # two calls; closing seals the open pack
    assert outcomes == {True, False}


def test_recovery_that_is_killed_at_any_step_can_be_repeated(tmp_path) -> None:
    """The files are kept once and the outcome is recorded once, even after a kill."""

    def recover(directory: Path) -> None:
        with reopened(directory) as ledger, ledger.write() as writer:
            mark = writer.pending()
            if mark is not None and not writer.is_recorded(mark):
                found = tree(ledger.store, {"half": b"done"}, writer.head.files)
                writer.discard(found, reason="crash", call_id=mark.call_id, at=mark.started_at)
                same = writer.head.files
                call(writer, same, call_id=mark.call_id, outcome=Outcome.UNKNOWN)
            writer.finish_pending()

    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        imported(writer, {"f": b"0"})
        writer.begin("call-1", "shell", NOW)
    for n in count(1):
        copy = tmp_path / str(n)
        shutil.copytree(tmp_path / "ledger.git", copy / "ledger.git")
        killed = killed_in_child(lambda copy=copy: recover(copy), at_step=n)
        recover(copy)
        with reopened(copy) as ledger:
            assert [entry.outcome for entry in ledger.branch().log()] == [Outcome.UNKNOWN, None]
            assert [found.call_id for found in ledger.discarded()] == ["call-1"]
            assert contents(ledger.store, ledger.discarded()[0].files)["half"] == b"done"
            assert contents(ledger.store, ledger.branch().head.files) == {"f": b"0"}
        assert_clean(copy)
        if not killed:
            break
    # The ref to the files, the outcome's commit, the mark, sealing, the end
    assert n == 2 + 4 + 1 + 3 + 1


def test_killing_maintenance_at_any_step_loses_nothing_that_is_kept(tmp_path) -> None:
    """Unreferenced objects may remain; plain git accepts them."""
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
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
        killed = killed_in_child(maintain, at_step=n)
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
    assert n > 8


def grow(directory: Path) -> None:
    """Write unreferenced objects, so that every round has something to delete."""
    with reopened(directory) as ledger, ledger.write() as writer:
        for k in range(6):
            tree(ledger.store, {f"x{k}/y": os.urandom(64)}, writer.head.files)


# The pending mark


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    with new_ledger(tmp_path) as ledger:
        yield ledger


def test_a_mark_names_the_call_and_the_head_that_it_began_on(ledger) -> None:
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
def test_a_mark_that_cannot_be_read_still_means_that_a_call_was_running(tmp_path, text) -> None:
    (tmp_path / "pending").write_bytes(text)
    mark = PendingMarks(tmp_path / "pending").read()
    assert (mark.call_id, mark.parent) == ("", None)
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        assert not writer.is_recorded(mark)
        imported(writer, {})
        assert not writer.is_recorded(mark)


def test_a_mark_has_the_latest_time_of_earlier_calls_if_the_clock_was_set_back(tmp_path) -> None:
    """Also for other processes, and for marks after it; otherwise older programs can read it."""
    path = tmp_path / "pending"
    marks = PendingMarks(path)
    mark = PendingMark("call-1", "shell", None, NOW)
    marks.write(mark)
    marks.remove()
    unused = Path(f"{path}.new")
    ahead_ns = unused.stat().st_mtime_ns + 3_600_000_000_000
    os.utime(unused, ns=(ahead_ns, ahead_ns))
    for n in range(3):
        if n == 1:
            marks = PendingMarks(path)  # of another process
        marks.write(mark)
        for each in (marks, PendingMarks(path)):
            assert each.times().earlier_ns == ahead_ns
            assert each.read() == mark
        marks.remove()
    unused.unlink()
    marks = PendingMarks(path)
    for _ in range(2):
        marks.write(mark)
        assert marks.times().earlier_ns == -1
        assert json.loads(path.read_bytes()).keys() == {"call_id", "tool", "parent", "started_at"}
        marks.remove()


def test_maintenance_is_refused_while_a_call_is_running(ledger) -> None:
    with ledger.write() as writer:
        writer.begin("call-1", "shell", NOW)
        with pytest.raises(LedgerError, match="a call is in progress"):
            ledger.maintain(Retention())
        writer.finish_pending()
        assert ledger.maintain(Retention()).ran


# A full disk


def limit_files_to(n_bytes: int) -> None:
    """Limit the size of every file that this process writes, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))


@pytest.mark.parametrize("limit", [160, 200, 250, 300, 400])
def test_a_full_disk_fails_the_entry_and_changes_nothing(tmp_path, limit) -> None:
    """Each limit makes another kind of file too large."""
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        head = imported(writer, {"f": b"0" * 3_000})

    def attempt() -> None:
        limit_files_to(limit)  # the text of the lock fits
        with reopened(tmp_path) as own, own.write() as other:
            with pytest.raises(LedgerError) as caught:
                other.begin("call-1", "write_file", NOW)
                call(other, tree(own.store, {"f": os.urandom(400)}), record="x" * 200)
            assert caught.value.__cause__.errno == errno.EFBIG
            assert other.refresh() == head

    assert not killed_in_child(attempt)
    assert not list((tmp_path / "ledger.git").rglob("tmp_*"))
    assert_clean(tmp_path)


def test_a_bulk_write_to_a_full_disk_is_an_error_and_leaves_nothing(tmp_path) -> None:
    with new_ledger(tmp_path):
        pass

    def attempt(limit: int) -> None:
        limit_files_to(limit)
        with reopened(tmp_path) as ledger:
            with pytest.raises(LedgerError, match="a pack cannot be written"), ledger.store.bulk():
                for n in range(200):
                    ledger.store.write_blob(b"%d" % n)

    for limit in (0, 20, 1_000, 4_000):  # at the last one the pack fits, and its index does not
        assert not killed_in_child(lambda limit=limit: attempt(limit))
    assert not list((tmp_path / "ledger.git/objects/pack").iterdir())


def test_every_kill_point_of_the_ledger_is_reached(tmp_path) -> None:
    seen: list[KillPoint] = []
    with calling(seen.append), new_ledger(tmp_path) as ledger, ledger.write() as writer:
        imported(writer, {})
        writer.begin("c", "t", NOW)
        for n in range(60):
            call(writer, tree(ledger.store, {"f": os.urandom(100), "g": b"%d" % n * 9_999}))
        writer.discard(EMPTY_TREE_ID, reason="r", call_id="c", at=NOW)
        before = None
        for n in range(3):
            (tmp_path / "large").write_bytes(b"x" * LARGE_BYTES + b"%d" % n)
            with (tmp_path / "large").open("rb", buffering=0) as file:
                before = ledger.store.write_blob_from(file.fileno(), like=before)
        writer.finish_pending()
        ledger.fork("try", writer.head)
        ledger.delete_fork("try")
        ledger.maintain(Retention())
        ledger.maintain(Retention(budget_bytes=1))
    of_workspaces = "base bundle checkpoint container derived effect fold folder held layer objects source upper workspace"
    elsewhere = set(of_workspaces.split())
    assert set(seen) == {point for point in KillPoint if point.split("-")[0] not in elsewhere}
