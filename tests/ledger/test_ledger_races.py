"""Two processes at one ledger, of which one is stopped at the worst instant."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import pytest
from ledger_support import (
    DIRECTORY,
    NOW,
    assert_clean,
    call,
    contents,
    imported,
    new_ledger,
    reopened,
    tree,
)

from wink_workspace._kill_points import KillPoint, calling
from wink_workspace.errors import LedgerDamagedError
from wink_workspace.ledger import BranchWriter, Retention
from wink_workspace.ledger.entries.history import read_entry
from wink_workspace.ledger.store import open_packs
from wink_workspace.ledger.store.open_packs import OpenPacks
from wink_workspace.ledger.upkeep import retention as retention_module


def noise(seed: int, n_bytes: int) -> bytes:
    return random.Random(seed).randbytes(n_bytes).hex().encode()


def test_a_pack_that_another_process_is_sealing_is_not_deleted(tmp_path: Path) -> None:
    """It began to write after the collection found that it was alone."""
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        fork = ledger.fork("other", imported(writer, {"f": b"0"}))
        assert fork.head is not None
    with reopened(tmp_path) as collector, reopened(tmp_path) as other:
        job = collector._deleting(Retention(), NOW)
        next(job)
        with other.write("other") as writer:
            files = tree(other.store, {"f": b"1", "g": b"new"})
            call(writer, files)

            def collect(point: KillPoint) -> None:
                if point is KillPoint.OPEN_PACK_LINKED:
                    for _ in job:
                        pass

            with calling(collect):
                other.store.open_packs.seal()
    with reopened(tmp_path) as ledger:
        head = ledger.branch("other").head
        assert head is not None
        assert contents(ledger.store, head.files) == {"f": b"1", "g": b"new"}
    assert_clean(tmp_path)


@pytest.mark.parametrize("n_steps", [1, 24, 48])
def test_maintenance_begins_again_if_another_process_did_it_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_steps: int
) -> None:
    """The other one begins after this process saw that it still has the lease."""
    with new_ledger(tmp_path) as ledger, reopened(tmp_path) as other, ledger.write() as writer:
        files = {"f": b"0"}
        imported(writer, files)
        for n in range(20):
            files[f"{n}"] = noise(n, 1_000)
            with ledger.store.bulk():
                root = tree(ledger.store, files)
            call(writer, root)
        for _ in range(n_steps):
            ledger.maintain_if_due(Retention(), seconds=0)
        assert ledger._job is not None
        real = ledger._is_over

        def measure_slowly(*arguments: object, **options: object) -> bool:
            slowly.undo()
            assert other.maintain(Retention()).ran
            return real(*arguments, **options)

        with monkeypatch.context() as slowly:
            # The other process works between two steps of one method
            slowly.setattr(ledger, "_is_over", measure_slowly)
            ledger.maintain_if_due(Retention(), seconds=0)
        while ledger._job is not None:
            ledger.maintain_if_due(Retention(), seconds=0)
        root = writer.head.files if writer.head else ""
        assert contents(ledger.store, root) == files
    assert_clean(tmp_path)


class _DiedError(Exception):
    """Stands for the end of the process."""


def test_the_boundary_of_a_deleted_branch_can_be_read_while_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays if a fork is made at an entry that maintenance is about to remove."""
    retention = Retention(budget_bytes=120_000)

    def die(point: KillPoint) -> None:
        if point is KillPoint.BOUNDARY_MOVED:
            raise _DiedError

    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        entries = [imported(writer, {"f": b"0"})]
        entries += [call(writer, tree(ledger.store, {"f": noise(n, 2_000)})) for n in range(60)]
        ledger.fork("other", entries[-1])
        ledger.fork("old", entries[10])
        with reopened(tmp_path) as other, other.write("other"):
            with calling(die), pytest.raises(_DiedError):
                ledger.maintain(retention)
            assert entries[10].id in ledger.store.repository.boundary()
            other.delete_fork("old")
            for n in range(60, 75):
                call(writer, tree(ledger.store, {"f": noise(n, 2_000)}))
            oldest = list(ledger.branch().log())[-1]
            real = retention_module._note_forgotten

            def fork_and_note(*arguments: Any) -> None:
                real(*arguments)
                if not other.has_fork("new"):
                    other.fork("new", oldest)

            # Nothing else happens between the choice of the entries and the move of the boundary
            monkeypatch.setattr(retention_module, "_note_forgotten", fork_and_note)
            for _ in range(2):
                ledger.maintain(retention)
                for end in ledger.store.repository.boundary():
                    assert read_entry(ledger.store, end).number > 0
                assert other.branch("new").head == oldest
    assert_clean(tmp_path)


def test_a_tree_that_another_process_refers_to_during_a_collection_is_kept(tmp_path: Path) -> None:
    referenced: set[str] = set()
    files = {"d/f": noise(1, 1_000), "g": b"1"}
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        imported(writer, {"f": b"0"})
        root = tree(ledger.store, files)
    with reopened(tmp_path, other_trees=lambda: frozenset(referenced)) as ledger:
        job = ledger._deleting(Retention(), NOW, with_deltas=True)
        next(job)
        referenced.add(root)
        for _ in job:
            pass
        assert contents(ledger.store, root) == {**files, "d": DIRECTORY}


def test_discards_of_two_processes_have_different_numbers(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger, reopened(tmp_path) as other, ledger.write() as writer:
        ledger.fork("other", imported(writer, {"f": b"0"}))

        def discard(branch: BranchWriter, n: int) -> None:
            files = tree(branch.store, {"f": b"%d" % n})
            branch.discard(files, reason="rolled back", call_id=f"call-{n}", at=NOW)

        with other.write("other") as fork:
            for n in range(2):
                discard(writer, 2 * n)
                discard(fork, 2 * n + 1)
        assert sorted(each.discard for each in ledger.discarded()) == [1, 2, 3, 4]


@pytest.mark.parametrize("damaged", [b"", b"garbage", b"\xff" * 20, b"-7", b"0" * 4_000])
def test_discards_have_new_numbers_though_their_file_is_damaged(
    tmp_path: Path, damaged: bytes
) -> None:
    for n in range(1, 4):
        with reopened(tmp_path) if n > 1 else new_ledger(tmp_path) as ledger:
            with ledger.write() as writer:
                if n == 1:
                    imported(writer, {"f": b"0"})
                files = tree(ledger.store, {"f": b"%d" % n})
                writer.discard(files, reason="rolled back", call_id=f"call-{n}", at=NOW)
            assert [each.discard for each in ledger.discarded()].count(n) == 1
            assert len(ledger.discarded()) == n
        (tmp_path / "ledger.git/wink/discards").write_bytes(damaged)


def test_an_object_is_found_while_its_open_pack_is_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_ledger(tmp_path) as ledger, reopened(tmp_path) as other:
        blob = other.store.write_blob(b"new")
        other.store.flush()
        repository = ledger.store.repository
        real = repository.open_packs.find_others

        def seal_first() -> None:
            other.store.open_packs.seal()
            real()

        monkeypatch.setattr(repository.open_packs, "find_others", seal_first)
        assert blob in repository


def test_what_another_process_sealed_and_deleted_is_not_present_any_more(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger, reopened(tmp_path) as other:
        blob = other.store.write_blob(b"new")
        other.store.flush()
        assert blob in ledger.store.repository  # it has the open pack open from now on
        other.store.open_packs.seal()
        (index,) = other.store.packs.paths()
        other.store.packs.delete(index)
        ledger.store.forget()
        assert blob not in ledger.store.repository
        with pytest.raises(LedgerDamagedError):
            ledger.store.read(blob)


def test_threads_with_a_ledger_each_share_the_files_of_open_packs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them opens a file while another, its last user, is closing it."""
    with new_ledger(tmp_path) as ledger:
        blob = ledger.store.write_blob(b"new")
        ledger.store.flush()
        directory, packs = tmp_path / "ledger.git/wink/open", ledger.store.packs

        def read(n_reads: int) -> set[bytes]:
            found: set[bytes] = set()
            for _ in range(n_reads):
                others = OpenPacks(directory, packs)
                others.find_others()
                found.add(others.read(blob)[1])
                others.close()
            return found

        interval_s = sys.getswitchinterval()
        monkeypatch.setattr(open_packs, "_data_files", WeakValueDictionary())  # not the writer's
        sys.setswitchinterval(1e-6)
        try:
            with ThreadPoolExecutor(3) as threads:
                assert list(threads.map(read, [300] * 3)) == [{b"new"}] * 3
        finally:
            sys.setswitchinterval(interval_s)


def test_what_an_interrupted_maintenance_left_is_deleted_though_others_write(
    tmp_path: Path,
) -> None:
    retention = Retention(budget_bytes=200_000)
    with new_ledger(tmp_path) as ledger, reopened(tmp_path) as other, ledger.write() as writer:
        ledger.fork("other", imported(writer, {"f": b"0"}))
        for n in range(40):
            call(writer, tree(ledger.store, {"f": noise(n, 10_000)}))
        ledger.store.open_packs.seal()
        ledger._deletion.wait_for_next_tick()
        with other.write("other"):

            def interrupt(point: KillPoint) -> None:
                if point is KillPoint.BOUNDARY_MOVED:
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt), calling(interrupt):
                ledger.maintain(retention)
            assert ledger.disk_bytes() > retention.budget_bytes
            assert ledger.maintain(retention).n_entries_forgotten == 0
            assert ledger.disk_bytes() <= retention.budget_bytes
    assert_clean(tmp_path)
