"""Packing of loose objects: the cost follows their number, and nothing is lost."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
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

from wink_workspace.clock import ManualClock
from wink_workspace.errors import LedgerError
from wink_workspace.ledger import BranchWriter, Ledger, Retention
from wink_workspace.ledger.repository import GitRepository

DUE = 30


@pytest.fixture(autouse=True)
def due_early(monkeypatch: pytest.MonkeyPatch) -> None:
    # Packing is due after 5,000 objects, which take too long to write.
    monkeypatch.setattr("wink_workspace.ledger.ledger._DUE_AFTER_OBJECTS", DUE)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    with new_ledger(tmp_path, clock=ManualClock(NOW)) as ledger:
        yield ledger


def write(writer: BranchWriter, n: int, *, days: float = 0) -> None:
    """Write four objects: a file, the tree of the files, the tree of the entry, and the entry."""
    files = tree(writer.store, {"f": b"%d" % n}, writer.head.files)
    call(writer, files, call_id=str(n), when=NOW + timedelta(days=days))


def n_loose(ledger: Ledger) -> int:
    return sum(1 for _ in ledger.store.loose.listed())


def n_packs(ledger: Ledger) -> int:
    return len(ledger.store.packs.listed())


def assert_history(ledger: Ledger, numbers: range) -> None:
    """Check that the history has these entries, each but the oldest with the file it wrote."""
    entries = list(ledger.branch().log())
    assert [entry.number for entry in entries] == list(reversed(numbers))
    for entry in entries[: len(numbers) - 1]:
        assert contents(ledger.store, entry.files) == {"f": b"%d" % entry.number}


def test_loose_objects_stay_few_after_any_number_of_calls(ledger, tmp_path) -> None:
    most = 0
    with ledger.write() as writer:
        imported(writer, {"f": b"1"})
        for n in range(2, 150):
            write(writer, n)
            ledger.maintain_if_due(Retention())
            most = max(most, n_loose(ledger))
    assert most <= DUE + 4 + 1  # the empty tree is there from the beginning
    assert n_packs(ledger) > 9  # joining them would make a call slow
    ledger.maintain_if_due(Retention(), at_end=True)
    assert n_packs(ledger) <= 2
    assert_history(ledger, range(1, 150))
    assert_clean(tmp_path)


@pytest.mark.parametrize("sweep", ["maintain_if_due", "maintain"])
def test_index_that_a_killed_writer_left_without_its_pack_is_deleted(
    ledger, tmp_path, sweep: str
) -> None:
    with ledger.write() as writer:
        imported(writer, {"f": b"1"})
        for n in range(2, 20):
            write(writer, n)
        ledger.maintain(Retention())
        packs = tmp_path / "ledger.git" / "objects" / "pack"
        orphan = packs / f"pack-{'0' * 40}.idx"
        shutil.copy(next(packs.glob("*.idx")), orphan)
        for n in range(20, 30):
            write(writer, n)
        getattr(ledger, sweep)(Retention())
    assert not orphan.exists()
    assert_history(ledger, range(1, 30))
    assert_clean(tmp_path)


def test_packing_reads_only_objects_that_are_not_packed(tmp_path, monkeypatch) -> None:
    read: list[str] = []
    real = GitRepository.read

    def reading(repository: GitRepository, object_id: str) -> object:
        read.append(object_id)
        return real(repository, object_id)

    monkeypatch.setattr(GitRepository, "read", reading)
    costs: list[int] = []
    for n_before in (16, 64):
        (directory := tmp_path / f"{n_before}").mkdir()
        with new_ledger(directory) as ledger, ledger.write() as writer:
            imported(writer, {"f": b"1"})
            for n in range(2, n_before):
                write(writer, n)
            ledger.maintain_if_due(Retention())
            assert n_loose(ledger) == 0
            for n in range(n_before, n_before + 10):
                write(writer, n)
            read.clear()
            ledger.maintain_if_due(Retention())
            costs.append(len(read))
            assert n_loose(ledger) == 0
    assert costs[0] == costs[1] < 40 + 5


def test_loose_objects_of_earlier_processes_are_packed_only_at_the_end(ledger, tmp_path) -> None:
    with ledger.write() as writer:
        imported(writer, {"f": b"1"})
        for n in range(2, 80):
            write(writer, n)
    ledger.close()
    with reopened(tmp_path) as again, again.write():
        again.maintain_if_due(Retention())
        assert n_loose(again) > DUE
        again.maintain_if_due(Retention(), at_end=True)
        assert n_loose(again) == 0
        assert_history(again, range(1, 80))
    assert_clean(tmp_path)


def test_packing_waits_for_other_writers_and_is_not_tried_at_every_call(
    ledger, tmp_path, monkeypatch
) -> None:
    tries: list[object] = []
    # Attempts that pack nothing can be counted in no other way.
    monkeypatch.setattr(Ledger, "_pack", lambda own, real=Ledger._pack: tries.append(real(own)))
    with ledger.write() as writer:
        imported(writer, {"f": b"1"})
        ledger.fork("other", writer.head)
        with reopened(tmp_path) as other, other.write("other"):
            for n in range(2, 40):
                write(writer, n)
                ledger.maintain_if_due(Retention())
            assert n_loose(ledger) > DUE
            assert 1 <= len(tries) <= 39 * 4 // DUE
        ledger.maintain_if_due(Retention(), at_end=True)
        assert n_loose(ledger) == 0


def test_entries_that_are_too_old_are_forgotten_when_many_objects_are_packed(
    ledger, tmp_path
) -> None:
    kept = Retention(max_age_days=30)
    with ledger.write() as writer:
        ledger.fork("imported", imported(writer, {"f": b"1"}))
        for n in range(2, 40):
            write(writer, n, days=n)
        for at, oldest in ((29, 1), (39, 9), (40, 10)):
            ledger._clock.moment = NOW + timedelta(days=at)
            for n in range(DUE + 1):
                ledger.store.write_blob(b"%d at %d" % (n, at))
            ledger.maintain_if_due(kept)
            assert n_loose(ledger) == 0
            assert_history(ledger, range(oldest, 40))
    assert_clean(tmp_path)


def test_many_packs_are_joined_except_one_that_is_larger_than_the_rest(
    ledger, tmp_path, monkeypatch
) -> None:
    # As many packs as the real limit take too long to write.
    monkeypatch.setattr("wink_workspace.ledger.collection._MAX_PACKS_BETWEEN_CALLS", 8)
    with ledger.write() as writer:
        with ledger.store.bulk():
            files = {f"{n}": b"%d" % n for n in range(900)}
            root = tree(ledger.store, files)
        call(writer, root)
        (large,) = ledger.store.packs.listed()
        sizes: list[int] = []
        for n in range(80):
            root = tree(ledger.store, {"0": b"changed %d" % n}, writer.head.files)
            call(writer, root)
            ledger.maintain_if_due(Retention())
            sizes.append(n_packs(ledger))
        assert max(sizes) == 9
        assert sizes[-1] < 9
        assert large.path in [pack.path for pack in ledger.store.packs.listed()]
        assert len(contents(ledger.store, writer.head.files)) == 900
    assert_clean(tmp_path)


def truncate_object(directory: Path, object_id: str) -> None:
    """Truncate the file of an object, as a power failure may."""
    (directory / "ledger.git/objects" / object_id[:2] / object_id[2:]).write_bytes(b"x\x9c")


def test_a_damaged_object_that_is_not_needed_does_not_stop_packing(ledger, tmp_path) -> None:
    with ledger.write() as writer:
        imported(writer, {"f": b"1"})
        for n in range(2, 20):
            write(writer, n)
        truncate_object(tmp_path, ledger.store.write_blob(b"of no entry" * 9))
        ledger.maintain_if_due(Retention())
        assert n_loose(ledger) == 0
        assert_history(ledger, range(1, 20))
    assert_clean(tmp_path)


def test_a_damaged_object_that_is_needed_is_named_and_nothing_is_deleted(ledger, tmp_path) -> None:
    with ledger.write() as writer:
        imported(writer, {"f": b"1"})
        for n in range(2, 20):
            write(writer, n)
        needed, before = writer.head.files, n_loose(ledger)
        truncate_object(tmp_path, needed)
        with pytest.raises(LedgerError, match=needed):
            ledger.maintain_if_due(Retention())
        assert n_loose(ledger) == before


def test_killing_packing_at_any_step_loses_nothing(tmp_path) -> None:
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        imported(writer, {"f": b"1"})

    def pack() -> None:
        with reopened(tmp_path) as own, own.write():
            own.store.n_written_loose += DUE + 1
            own.maintain_if_due(Retention())

    number = 1
    for step in count(1, 9):
        with reopened(tmp_path) as ledger, ledger.write() as writer:
            for _ in range(10):
                number += 1
                write(writer, number)
            ledger.store.write_blob(os.urandom(64))
        killed = killed_in_child(pack, at_step=step)
        with reopened(tmp_path) as ledger:
            assert_history(ledger, range(1, number + 1))
        assert_clean(tmp_path)
        if not killed:
            break
    assert step > 20
    with reopened(tmp_path) as ledger:
        assert n_loose(ledger) == 0
