"""Retention: what is dropped is gone, and every kept entry can be restored."""

from __future__ import annotations

import math
import random
from datetime import timedelta
from pathlib import Path

import pytest
from ledger_support import (
    NOW,
    assert_clean,
    call,
    contents,
    git,
    imported,
    new_ledger,
    reopened,
    tree,
)

from wink_workspace.clock import ManualClock
from wink_workspace.errors import EntryMissingError, LedgerDamagedError, UsageError
from wink_workspace.ledger import EMPTY_TREE_ID, BranchWriter, Ledger, LogEntry, Retention
from wink_workspace.ledger.store.objects import ObjectStore
from wink_workspace.ledger.store.packs import Packs, pack_index
from wink_workspace.ledger.upkeep.collection import disk_bytes

MIB = 1_048_576


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    with new_ledger(tmp_path, clock=ManualClock(NOW)) as ledger:
        yield ledger


def rewrite(writer: BranchWriter, content: bytes, days: float = 0) -> None:
    files = tree(writer.store, {"f": content}, writer.head.files)
    call(writer, files, call_id=str(writer.head.number), when=NOW + timedelta(days=days))


@pytest.mark.behaviour(37)
def test_many_rewrites_stay_within_the_budget_and_kept_entries_can_be_restored(
    ledger, tmp_path
) -> None:
    """Rewrite an incompressible file of 1 MiB 150 times, with a budget of 6 MiB."""
    noise, kept = random.Random(0).randbytes(2 * MIB), Retention(budget_bytes=6 * MIB)
    contents_of = {1: b"0"}
    with ledger.write() as writer:
        imported(writer, {"f": b"0", "other": b"never touched"})
        for _ in range(150):
            n = writer.head.number
            contents_of[n + 1] = noise[n * 3_000 : n * 3_000 + MIB]
            rewrite(writer, contents_of[n + 1])
            ledger.maintain_if_due(kept)
        assert ledger.disk_bytes() <= kept.budget_bytes + 2 * MIB
        entries = list(writer.log())
    assert len(entries) >= 4
    assert entries[0].number == 151
    for entry in entries:
        found = contents(ledger.store, entry.files)
        assert found == {"f": contents_of[entry.number], "other": b"never touched"}
    assert_clean(tmp_path)


@pytest.mark.behaviour(37)
def test_small_changes_to_a_text_take_little_room_once_packed(ledger, tmp_path) -> None:
    lines = [b"line %d of a text that compresses somewhat\n" % n for n in range(5_000)]
    with ledger.write() as writer:
        imported(writer, {"f": b"".join(lines), **{f"wide/{n}": b"" for n in range(600)}})
        for n in range(80):
            lines[n * 60] = b"changed %d\n" % n
            rewrite(writer, b"".join(lines))
        before = ledger.disk_bytes()
        done = ledger.maintain(Retention())
        assert done.n_entries_forgotten == 0
        assert done.disk_bytes == ledger.disk_bytes() < before / 10
        assert contents(ledger.store, writer.find(41).files)["f"].count(b"changed") == 40
    assert_clean(tmp_path)


def test_maintenance_reports_its_progress_and_the_total(ledger, tmp_path) -> None:
    reported: dict[str, list[tuple[int, int]]] = {}

    def steps(what: str, n_done: int, n_all: int) -> None:
        reported.setdefault(what, []).append((n_done, n_all))

    with ledger.write() as writer:
        imported(writer, {"f": b"0"})
        for n in range(40):
            rewrite(writer, b"%d" % n)
        ledger.fork("a", writer.find(20))
        discarded = tree(writer.store, {"f": b"discarded"}, writer.head.files)
        writer.discard(discarded, reason="rolled back", call_id="c", at=NOW)
        ledger.store.write_blob(random.Random(0).randbytes(20_000))
        ledger.maintain(Retention(), steps=steps)
    assert list(reported) == ["reading entries", "packing objects"]
    assert reported["reading entries"] == [(n, 42) for n in range(1, 43)]
    n_objects = len(reported["packing objects"]) - 1
    assert n_objects > 42 * 3
    assert reported["packing objects"] == [(n, n_objects) for n in range(n_objects + 1)]


def test_entries_older_than_the_age_are_forgotten(ledger, tmp_path) -> None:
    with ledger.write() as writer:
        imported(writer, {"f": b"0"})
        for day in (1, 2, 3, 40, 41):
            rewrite(writer, b"%d" % day, days=day)
        ledger._clock.moment = NOW + timedelta(days=60)
        assert ledger.maintain(Retention(max_age_days=30)).n_entries_forgotten == 4
        assert [entry.number for entry in writer.log()] == [6, 5]
        with pytest.raises(EntryMissingError, match="no entry that is kept"):
            writer.find(4)
        with pytest.raises(EntryMissingError, match="no entry before entry 5"):
            writer.reverted(writer.find(5))
    assert git(tmp_path, "log", "--format=%s").count("\n") == 2
    assert_clean(tmp_path)


def test_the_newest_entry_is_kept_whatever_its_age_and_size(ledger, tmp_path) -> None:
    with ledger.write() as writer:
        imported(writer, {"f": b"0" * 10_000})
        rewrite(writer, random.Random(1).randbytes(50_000))
        ledger._clock.moment = NOW + timedelta(days=600)
        ledger.maintain(Retention(max_age_days=1, budget_bytes=1))
        assert [entry.number for entry in writer.log()] == [2]
        rewrite(writer, b"it goes on")
        assert [entry.number for entry in writer.log()] == [3, 2]
    assert_clean(tmp_path)


def test_a_clock_that_went_back_neither_breaks_a_chain_nor_makes_it_old(ledger, tmp_path) -> None:
    """Entry 2 is young enough; entry 3, which only looks old, stays with it."""
    with ledger.write() as writer:
        imported(writer, {"f": b"0"})
        for day in (50, 5, 51, 52):
            rewrite(writer, b"%d" % day, days=day)
        ledger._clock.moment = NOW + timedelta(days=60)
        ledger.maintain(Retention(max_age_days=30))
        assert [entry.number for entry in writer.log()] == [5, 4, 3, 2]
        assert ledger.store.repository.boundary() == {writer.find(2).id}
        for day in (80, 81):
            rewrite(writer, b"%d" % day, days=day)
        ledger._clock.moment = NOW + timedelta(days=81)
        ledger.maintain(Retention(max_age_days=30))
        assert [entry.number for entry in writer.log()] == [7, 6, 5, 4]
    assert_clean(tmp_path)


@pytest.mark.parametrize("jump_days", [2, 29, 31, 4_000])
def test_a_clock_that_jumps_forward_makes_nothing_old(ledger, tmp_path, jump_days: int) -> None:
    """Neither do later calls, another jump, or the return of the clock."""
    kept = Retention(max_age_days=30)
    with ledger.write() as writer:
        imported(writer, {"f": b"0"})
        for day in range(1, 30):
            rewrite(writer, b"%d" % day, days=day)
        writer.discard(EMPTY_TREE_ID, reason="r", call_id="c", at=NOW)
        for jump in (jump_days, 2 * jump_days, 0):
            ledger._clock.moment = NOW + timedelta(days=29 + jump)
            for n in range(3):
                done = ledger.maintain(kept)
                assert (done.n_entries_forgotten, done.n_discards_forgotten) == (0, 0)
                rewrite(writer, b"%d and %d" % (jump, n), days=29 + jump + n / 100)


def test_a_long_pause_counts_after_a_day_of_calls(ledger, tmp_path) -> None:
    with ledger.write() as writer:
        imported(writer, {"f": b"0"})
        rewrite(writer, b"before", days=1)
        for day in (40, 40.5):
            rewrite(writer, b"%d" % day, days=day)
        ledger._clock.moment = NOW + timedelta(days=40.9)
        assert ledger.maintain(Retention()).forgotten == ""
        rewrite(writer, b"41", days=41)
        ledger._clock.moment = NOW + timedelta(days=41)
        done = ledger.maintain(Retention())
        assert [entry.number for entry in writer.log()] == [5, 4, 3]
        assert done.forgotten_up_to == NOW + timedelta(days=1)
        assert done.forgotten.startswith("2 entries up to ")
        assert done.forgotten.endswith(" and 0 discards forgotten: 2 older than 30 days")
        note = ledger.forgotten(writer)
        assert (note.up_to_number, note.up_to) == (2, NOW + timedelta(days=1))


def test_forgetting_can_be_repeated_and_keeps_numbers_and_ids(ledger, tmp_path) -> None:
    with ledger.write() as writer:
        imported(writer, {"f": b"0"})
        for round_ in range(3):
            for n in range(5):
                rewrite(writer, b"%d" % n, days=round_)
            ledger._clock.moment = now = NOW + timedelta(days=round_ + 0.5)
            young = [entry for entry in writer.log() if entry.at > now - timedelta(days=1)]
            ledger.maintain(Retention(max_age_days=1))
            assert list(writer.log()) == young
    assert writer.head.number == 16
    assert_clean(tmp_path)


def test_branches_keep_every_shared_entry_that_one_of_them_needs(ledger, tmp_path) -> None:
    with ledger.write() as writer:
        imported(writer, {"f": b"0"})
        for day in range(1, 6):
            rewrite(writer, b"%d" % day, days=day)
        ledger.fork("old", writer.find(2))
        ledger.fork("new", writer.find(5))
        with ledger.write("new") as fork:
            rewrite(fork, b"in the fork", days=6)
        ledger._clock.moment = NOW + timedelta(days=7)
        ledger.maintain(Retention(max_age_days=4))
        numbers = {
            name: [entry.number for entry in ledger.branch(name).log()]
            for name in ("main", "old", "new")
        }
        assert numbers == {"main": [6, 5, 4], "old": [2], "new": [6, 5, 4]}
        ledger.delete_fork("old")
        assert ledger.maintain(Retention(max_age_days=4)).n_entries_forgotten == 0
    assert_clean(tmp_path)


def test_discards_are_dropped_by_age_and_by_size(ledger, tmp_path) -> None:
    noise = random.Random(2)
    with ledger.write() as writer:
        imported(writer, {"f": b"0"})
        for day in range(26):
            rewrite(writer, b"%d" % day, days=day)
            if day in (0, 10, 20):
                lost = tree(ledger.store, {"lost": noise.randbytes(100_000)})
                writer.discard(lost, reason="r", call_id=str(day), at=NOW + timedelta(days=day))
        ledger._clock.moment = NOW + timedelta(days=25)
        assert ledger.maintain(Retention(max_age_days=20)).n_discards_forgotten == 1
        assert [found.call_id for found in ledger.discarded()] == ["20", "10"]
        assert ledger.maintain(Retention(budget_bytes=150_000)).n_discards_forgotten == 1
        assert [found.call_id for found in ledger.discarded()] == ["20"]
        assert len(contents(ledger.store, ledger.discarded()[0].files)["lost"]) == 100_000
    assert_clean(tmp_path)


def test_many_packs_are_joined_and_a_wasteful_one_is_written_again(ledger, tmp_path) -> None:
    packs = tmp_path / "ledger.git/objects/pack"
    with ledger.write() as writer:
        imported(writer, {"f": b"0"})
        for n in range(12):
            with ledger.store.bulk():
                root = tree(ledger.store, {f"g{n}": b"%d" % n * 99}, writer.head.files)
            call(writer, root)
        assert len(list(packs.glob("*.pack"))) == 12
        ledger.maintain(Retention())
        assert len(list(packs.glob("*.pack"))) <= 2
        with ledger.store.bulk():
            tree(ledger.store, {f"x{n}": b"%d" % n * 99 for n in range(90)})
        ledger.maintain(Retention())
        assert len(list(packs.glob("*.pack"))) <= 2
        assert len(contents(ledger.store, writer.head.files)) == 13
    assert_clean(tmp_path)


def test_packs_with_nothing_to_keep_are_deleted_before_a_new_pack_is_written(
    ledger, tmp_path, monkeypatch
) -> None:
    packs, noise = tmp_path / "ledger.git/objects/pack", random.Random(0)

    def texts(name: str) -> dict[str, bytes]:
        return {f"{name}{n}": noise.randbytes(MIB // 16).hex().encode() for n in range(16)}

    with ledger.write() as writer:
        imported(writer, {"f": b"0"})
        with ledger.store.bulk():
            tree(ledger.store, texts("unneeded"))
        with ledger.store.bulk():
            kept = tree(ledger.store, {"kept": b"1"}, writer.head.files)
            tree(ledger.store, texts("dropped"))
        call(writer, kept)
        assert len(list(packs.glob("*.pack"))) == 2
        real, sizes = ledger.store.repository.pack, []
        monkeypatch.setattr(
            ledger.store.repository,
            "pack",
            lambda *ids, **options: [sizes.append(ledger.disk_bytes()), real(*ids, **options)],
        )
        ledger.maintain(Retention())
        assert len(sizes) == 1
        assert MIB < sizes[0] < 2 * MIB
        assert ledger.disk_bytes() < MIB
    assert_clean(tmp_path)


def test_packs_rewritten_by_plain_git_can_be_maintained(ledger, tmp_path) -> None:
    with ledger.write() as writer:
        imported(writer, {"f": b"0"})
        for n in range(5):
            rewrite(writer, b"%d" % n)
        git(tmp_path, "gc", "-q", "--prune=now")
        git(tmp_path, "multi-pack-index", "write")
        git(tmp_path, "commit-graph", "write", "--reachable")
        ledger.store.forget()
        for n in range(5):
            rewrite(writer, b"more %d" % n)
        ledger.maintain(Retention(budget_bytes=1))
        assert [entry.number for entry in writer.log()] == [11]
        assert contents(ledger.store, writer.head.files) == {"f": b"more 4"}
    assert_clean(tmp_path)


def test_leftovers_of_dead_writers_are_deleted(ledger, tmp_path) -> None:
    objects = tmp_path / "ledger.git/objects"
    leftovers = [
        objects / "pack/tmp_pack_dead",
        objects / "pack/pack_git2_dead",
        objects / "pack/pack-x.idx.lock",
        objects / "pack/pack-x.pack",
    ]
    with ledger.write() as writer:
        imported(writer, {})
        for path in leftovers:
            path.write_bytes(b"half")
        ledger.maintain(Retention())
    assert not any(path.exists() for path in leftovers)


def test_nothing_is_deleted_if_a_kept_object_cannot_be_read(ledger, tmp_path) -> None:
    with ledger.write() as writer:
        imported(writer, {"f": b"0"})
        rewrite(writer, b"1")
        orphan = ledger.store.write_blob(b"nothing leads here")
        missing = "1" * 40
        call(writer, missing)
        with pytest.raises(LedgerDamagedError, match=missing):
            ledger.maintain(Retention())
        assert orphan in ledger.store.repository


def test_a_history_that_is_complete_again_has_no_boundary(ledger, tmp_path) -> None:
    repository = ledger.store.repository
    for ends in ({"a" * 40}, set()):
        repository.set_boundary(ends)
        assert repository.boundary() == ends
    assert not (tmp_path / "ledger.git/shallow").exists()


def test_nothing_is_deleted_if_the_new_pack_lacks_objects(ledger, monkeypatch) -> None:
    with ledger.write() as writer:
        imported(writer, {"f": b"0"})
        for n in range(30):
            rewrite(writer, b"%d" % n)
            if n in (14, 29):
                ledger.store.open_packs.seal()
        before = ledger.store.packs.paths()
        real = ledger.store.repository.pack
        monkeypatch.setattr(
            ledger.store.repository, "pack", lambda ids, **options: real(ids[1:], **options)
        )
        with pytest.raises(LedgerDamagedError, match="does not contain the objects"):
            ledger.maintain(Retention())
        assert set(ledger.store.packs.paths()) > set(before)


def test_the_empty_tree_is_kept_even_if_nothing_refers_to_it(ledger, tmp_path) -> None:
    with ledger.write() as writer:
        full = tree(ledger.store, {"f": b"1"})
        call(writer, full, session=full)
        ledger.maintain(Retention())
        call(writer, EMPTY_TREE_ID)
    assert_clean(tmp_path)


def test_a_file_that_is_not_a_pack_index_is_damage(ledger, tmp_path) -> None:
    (tmp_path / "ledger.git/objects/pack/pack-1.pack").write_bytes(b"x" * 40)
    (tmp_path / "ledger.git/objects/pack/pack-1.idx").write_bytes(b"x" * 40)
    with pytest.raises(LedgerDamagedError, match="not a pack index"):
        ledger.store.packs.listed()


def test_the_sizes_of_packed_objects_add_up_to_that_of_the_pack(ledger) -> None:
    with ledger.store.bulk():
        tree(ledger.store, {f"d/{n}": b"%d" % n * n for n in range(100)})
    (pack,) = ledger.store.packs.listed()
    frame = 12 + 20
    assert sum(pack.disk_bytes.values()) + frame == pack.path.with_suffix(".pack").stat().st_size


def test_offsets_beyond_two_gibibytes_are_kept_in_the_index(tmp_path) -> None:
    ids = [bytes([n]) * 20 for n in (3, 1, 2)]
    offsets = [12, 3 << 30, 5 << 30]
    index = pack_index({id_: (at, 0) for id_, at in zip(ids, offsets, strict=True)}, bytes(20))
    (tmp_path / "p.idx").write_bytes(index)
    with (tmp_path / "p.pack").open("wb") as pack:
        pack.truncate((5 << 30) + 120)
    room = Packs(tmp_path).load(tmp_path / "p.idx").disk_bytes
    assert [room[id_.hex()] for id_ in ids] == [(3 << 30) - 12, 2 << 30, 100]


@pytest.mark.parametrize("field", ["max_age_days", "budget_bytes"])
def test_a_retention_of_zero_is_refused(field) -> None:
    with pytest.raises(UsageError, match=f"{field} is 0"):
        Retention(**{field: 0})


@pytest.mark.parametrize("days", [math.inf, math.nan, 36_501, 740_000, 1e300])
def test_an_age_limit_that_no_date_can_express_is_refused(days: float) -> None:
    with pytest.raises(UsageError, match="max_age_days is"):
        Retention(max_age_days=days)


def test_the_longest_age_limit_keeps_everything(ledger, tmp_path) -> None:
    kept = Retention(max_age_days=36_500)
    with ledger.write() as writer:
        imported(writer, {"f": b"0"})
        rewrite(writer, b"1", days=1)
        ledger.maintain_if_due(kept)
        assert ledger.maintain(kept).n_entries_forgotten == 0


def test_a_budget_that_cannot_be_met_is_not_tried_again_after_every_call(ledger) -> None:
    kept = Retention(budget_bytes=100_000)
    with ledger.write() as writer:
        imported(writer, {"f": b"0"})
        assert not ledger.is_over_budget(kept)
        rewrite(writer, random.Random(2).randbytes(200_000))
        assert ledger.is_over_budget(kept)
        ledger.maintain(kept)
        assert not ledger.is_over_budget(kept)
        rewrite(writer, b"small")
        assert not ledger.is_over_budget(kept)
        rewrite(writer, random.Random(3).randbytes(200_000))
        assert ledger.is_over_budget(kept)


def test_a_reopened_ledger_knows_its_size_and_what_other_processes_added(tmp_path) -> None:
    kept = Retention(budget_bytes=100_000)
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        imported(writer, {"f": random.Random(3).randbytes(90_000)})
    with reopened(tmp_path) as ledger:
        assert not ledger.is_over_budget(kept)
        with reopened(tmp_path) as other, other.write():
            other.store.write_blob(random.Random(4).randbytes(20_000))
        assert ledger.is_over_budget(kept)


def test_a_history_is_measured_rarely_before_it_can_exceed_the_budget(
    tmp_path, monkeypatch
) -> None:
    n_measured = 0

    def counted(store: ObjectStore) -> int:
        nonlocal n_measured
        n_measured += 1
        return disk_bytes(store)

    monkeypatch.setattr("wink_workspace.ledger.ledger.disk_bytes", counted)
    kept = Retention(budget_bytes=4_096 * 40_000)
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        imported(writer, {"f": b"0"})
        for n in range(50):
            rewrite(writer, random.Random(n).randbytes(4_000))
            ledger.maintain_if_due(kept)
        assert 5 <= n_measured <= 8


def test_a_pack_that_is_being_sealed_is_measured_once(ledger, monkeypatch) -> None:
    sizes: list[int] = []

    def measure_then_index(*arguments: object) -> bytes:
        sizes.append(ledger.disk_bytes())
        return pack_index(*arguments)

    with ledger.write() as writer:
        imported(writer, {"f": b"0"})
        for n in range(16):
            rewrite(writer, random.Random(n).randbytes(MIB // 16).hex().encode())
        monkeypatch.setattr("wink_workspace.ledger.store.open_packs.pack_index", measure_then_index)
        ledger.store.open_packs.seal()
    assert len(sizes) == 1
    assert MIB < sizes[0] < 1.5 * MIB


def test_a_file_that_disappears_while_packs_are_measured_has_no_size(ledger) -> None:
    with ledger.store.bulk():
        ledger.store.write_blob(b"content")
    before = ledger.store.packs.file_sizes()
    (ledger.store.packs.directory / "tmp_pack_1").symlink_to("renamed")  # listed, but not there
    assert ledger.store.packs.file_sizes() == before
    assert before


# Entries found by their ids


def test_a_former_head_is_found_by_its_id_while_it_is_kept(ledger) -> None:
    """Also if the kept history of another branch begins at another entry."""
    with ledger.write() as main:
        first = imported(main, {"f": b"0"})
        ledger.fork("other", first)
        for n in range(4):
            rewrite(main, b"main %d" % n, days=50)
        of_main = list(main.log())
        with ledger.write("other") as fork:
            for n in range(5):
                rewrite(fork, b"other %d" % n, days=1)
            rewrite(fork, b"other", days=50)
            of_fork = list(fork.log())
            ledger._clock.moment = NOW + timedelta(days=51)
            ledger.maintain(Retention(max_age_days=30))
            numbers = sorted(found.number for found in map(main.kept, ids(of_main)) if found)
            assert numbers == [2, 3, 4, 5]
            assert [found.number for found in map(fork.kept, ids(of_fork)) if found] == [7]
        assert main.kept(main.head.files) is None
        assert main.kept("unfinished") is None
    assert ledger.store.repository.boundary() == {of_main[3].id, of_fork[0].id}


def ids(entries: list[LogEntry]) -> list[str]:
    return [entry.id for entry in entries]


def test_finding_a_former_head_reads_one_entry(ledger, monkeypatch) -> None:
    read: list[str] = []
    real = type(ledger.store.repository).read

    def reading(repository: object, object_id: str) -> object:
        read.append(object_id)
        return real(repository, object_id)

    with ledger.write() as writer:
        first = imported(writer, {"f": b"0"})
        for n in range(40):
            rewrite(writer, b"%d" % n)
        monkeypatch.setattr(type(ledger.store.repository), "read", reading)
        assert writer.kept(first.id) == first
    assert read[0] == first.id
    assert len(read) == 2  # with its tree
