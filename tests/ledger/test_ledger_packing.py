"""Open packs, and maintenance in steps between calls: bounded work, and nothing is lost."""

from __future__ import annotations

import errno
import gc
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import count, islice
from pathlib import Path
from types import FrameType

import pytest
import random_cases
from ledger_support import (
    NOW,
    assert_clean,
    call,
    contents,
    git,
    imported,
    killed_in_child,
    new_ledger,
    open_below,
    reopened,
    tree,
)

import wink_workspace.ledger
from wink_workspace._kill_points import KillPoint, calling
from wink_workspace.clock import ManualClock
from wink_workspace.errors import EntryMissingError, LedgerDamagedError, LedgerError
from wink_workspace.filesystem import FileKind
from wink_workspace.ledger import (
    SOME_DIRECTORY,
    BranchWriter,
    Ledger,
    Retention,
    TreeEntry,
    tree_steps,
)
from wink_workspace.ledger.store.compression import run_steps
from wink_workspace.ledger.store.packs import ENDED_CALLS
from wink_workspace.ledger.store.repository import GitRepository
from wink_workspace.ledger.upkeep.collection import joining

KIB = 1_024


@pytest.fixture(autouse=True)
def due_early(monkeypatch: pytest.MonkeyPatch) -> None:
    # The real limits take too many objects.
    monkeypatch.setattr("wink_workspace.ledger.store.open_packs._MAX_OBJECTS", 30)
    monkeypatch.setattr("wink_workspace.ledger.upkeep.collection._MAX_PACKS_BETWEEN_CALLS", 4)


class TickingClock(ManualClock):
    """A clock on which a millisecond passes whenever it is looked at."""

    def monotonic_s(self) -> float:
        self.advance(0.001)
        return super().monotonic_s()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    with new_ledger(tmp_path, clock=ManualClock(NOW)) as ledger:
        yield ledger


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the objects that are read."""
    read: list[str] = []
    real = GitRepository.read

    def reading(repository: GitRepository, object_id: str) -> object:
        read.append(object_id)
        return real(repository, object_id)

    monkeypatch.setattr(GitRepository, "read", reading)
    return read


def write(writer: BranchWriter, n: int, *, days: float = 0) -> None:
    """Write four objects: a file, the tree of the files, the tree of the entry, and the entry."""
    files = tree(writer.store, {"f": b"%d" % n}, writer.head.files)
    call(writer, files, call_id=str(n), when=NOW + timedelta(days=days))


def write_noise(writer: BranchWriter, n: int) -> None:
    files = tree(writer.store, {"f": random.Random(n).randbytes(20 * KIB)}, writer.head.files)
    call(writer, files, call_id=str(n))


def files_of(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def n_packs(ledger: Ledger) -> int:
    return len(ledger.store.packs.paths())


def assert_history(ledger: Ledger, numbers: range) -> None:
    """Check that the history has these entries, each but the oldest with the file it wrote."""
    entries = list(ledger.branch().log())
    assert [entry.number for entry in entries] == list(reversed(numbers))
    for entry in entries[: len(numbers) - 1]:
        assert contents(ledger.store, entry.files) == {"f": b"%d" % entry.number}


# Open packs


def test_processes_that_make_one_call_each_keep_the_number_of_packs_bounded(
    ledger: Ledger, tmp_path: Path
) -> None:
    """None of them has the time to join packs in short steps, or to wait for a lease to expire."""
    with ledger.write() as writer:
        imported(writer, {"f": b"1"})
    ledger.close()
    found: list[int] = []
    for n in range(2, 40):
        with reopened(tmp_path, clock=TickingClock(NOW)) as each, each.write() as writer:
            each.maintain_if_due(Retention(), seconds=0)
            write(writer, n)
        found.append(n_packs(each))
    assert max(found) <= 3 * 4 + 1
    with reopened(tmp_path) as each:
        assert_history(each, range(1, 40))


def test_calls_make_no_file_for_their_objects(ledger, tmp_path) -> None:
    with ledger.write() as writer:
        imported(writer, {"f": b"1"})
        write(writer, 2)
        write(writer, 3)
        before = files_of(tmp_path)
        for n in range(4, 60):
            write(writer, n)
        assert files_of(tmp_path) == before
        assert_history(ledger, range(1, 60))
    ledger.close()
    assert not files_of(tmp_path / "ledger.git/wink/open")
    assert_clean(tmp_path)


def test_other_processes_read_an_open_pack_and_what_becomes_of_it(ledger, tmp_path) -> None:
    with ledger.write() as writer, reopened(tmp_path) as reader:
        imported(writer, {"f": b"1"})
        for n in range(2, 10):
            write(writer, n)
            assert_history(reader, range(1, n + 1))
        ledger.store.open_packs.seal()
        write(writer, 10)
        assert_history(reader, range(1, 11))
        ledger.maintain(Retention())  # replaces the packs that the reader has open
        assert_history(reader, range(1, 11))


def test_the_next_writer_seals_what_a_killed_one_left(tmp_path) -> None:
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        imported(writer, {"f": b"1"})
    assert killed_in_child(lambda: write_and_die(tmp_path))
    assert len(files_of(tmp_path / "ledger.git/wink/open")) == 2
    with reopened(tmp_path) as ledger:
        assert_history(ledger, range(1, 4))  # also before that
        ledger.write().close()
        assert not files_of(tmp_path / "ledger.git/wink/open")
        assert_history(ledger, range(1, 4))
    assert_clean(tmp_path)


def write_and_die(directory: Path, **options: object) -> None:
    ledger = reopened(directory, **options)
    writer = ledger.write()
    write(writer, writer.head.number + 1)
    write(writer, writer.head.number + 1)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("function", "suffix"), [("unlink", ".pack"), ("unlink", ".rows"), ("utime", ".idx")]
)
def test_sealing_may_be_repeated_after_an_error_in_its_last_steps(
    ledger, tmp_path, monkeypatch, function: str, suffix: str
) -> None:
    def seal() -> None:
        for _ in ledger.store.open_packs.sealing(is_idle=True):
            pass

    real = getattr(os, function)

    def fail(path: str | Path, *rest: object, **options: object) -> None:
        if str(path).endswith(suffix):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(path, *rest, **options)

    with ledger.write() as writer:
        imported(writer, {"f": b"1"})
        with monkeypatch.context() as patched:
            patched.setattr(os, function, fail)
            with pytest.raises(LedgerError, match="Input/output error"):
                seal()
        assert_history(ledger, range(1, 2))
        seal()
        write(writer, 2)
        seal()
        assert not files_of(tmp_path / "ledger.git/wink/open")
        assert ledger.maintain(Retention()).ran
        assert_history(ledger, range(1, 3))
    assert_clean(tmp_path)


@pytest.mark.parametrize("step", ["create", "read", "sync"])
def test_an_open_pack_that_cannot_be_begun_leaves_nothing(tmp_path, monkeypatch, step: str) -> None:
    """Otherwise each failed write would leave a file, and keep a descriptor."""
    real = os.open

    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def opening(path: str | Path, flags: int, *rest: int) -> int:
        if str(path).endswith(".pack") and bool(flags & os.O_CREAT) == (step == "create"):
            fail()
        return real(path, flags, *rest)

    with new_ledger(tmp_path, durable=True) as ledger, ledger.write() as writer:
        before = open_below(tmp_path)
        with monkeypatch.context() as patched:
            if step == "sync":
                patched.setattr(os, "fsync", fail)
            else:
                patched.setattr(os, "open", opening)
            for n in range(2):
                with pytest.raises(LedgerError, match="Too many open files"):
                    ledger.store.write("blob", b"%d" % n)
        assert open_below(tmp_path) == before
        assert not files_of(tmp_path / "ledger.git/wink/open")
        imported(writer, {"f": b"1"})
        assert_history(ledger, range(1, 2))


def test_an_open_pack_of_a_live_writer_is_left_alone(ledger, tmp_path) -> None:
    with ledger.write() as writer:
        ledger.fork("other", imported(writer, {"f": b"1"}))
        write(writer, 2)
        with reopened(tmp_path) as other:
            other.write("other").close()
            other.maintain(Retention())
        write(writer, 3)
        assert_history(ledger, range(1, 4))


@pytest.mark.parametrize("damage", ["row", "data", "half a row", "length", "offset"])
def test_objects_that_a_loss_of_power_damaged_are_missing_and_older_ones_stay(
    tmp_path, damage: str
) -> None:
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        imported(writer, {"f": b"1"})
    assert killed_in_child(lambda: write_and_die(tmp_path))
    data, rows = files_of(tmp_path / "ledger.git/wink/open")
    n_objects = rows.stat().st_size // 40
    if damage == "data":
        os.truncate(data, data.stat().st_size - 1)
    elif damage == "row":
        content = bytearray(rows.read_bytes())
        content[-1] ^= 1
        rows.write_bytes(content)
    elif damage in ("length", "offset"):
        content = bytearray(rows.read_bytes())
        content[-12 if damage == "length" else -20] = 0xFF if damage == "offset" else 0x40
        rows.write_bytes(content)
    else:
        os.truncate(rows, rows.stat().st_size - 1)
    with reopened(tmp_path) as ledger:
        head = ledger.store.repository.ref("refs/heads/main")
        with pytest.raises(LedgerError, match=head):
            ledger.write()
        assert not files_of(tmp_path / "ledger.git/wink/open")
        packs = [each.disk_bytes for each in ledger.store.packs.listed()]
    assert n_objects - 1 in map(len, packs)
    assert not any(head in pack for pack in packs)


@pytest.mark.parametrize("damage", ["missing", "empty", "short", "of another pack"])
@pytest.mark.parametrize("with_deltas", [False, True])
def test_an_index_that_a_loss_of_power_took_is_rebuilt_from_its_pack(
    tmp_path: Path, damage: str, with_deltas: bool
) -> None:
    """Also by a process that only reads; the index is the one that was lost."""
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        imported(writer, {"f": b"1"})
        noise = random.Random(1).randbytes(9_000).hex().encode()
        for n in range(2, 30):
            call(writer, tree(writer.store, {"f": b"%d" % n + noise}), call_id=str(n))
        if with_deltas:
            ledger.maintain(Retention())
    packs = tmp_path / "ledger.git/objects/pack"
    for writes in (False, True):
        indexes = {path: path.read_bytes() for path in packs.glob("*.idx")}
        for path, content in indexes.items():
            if damage == "missing":
                path.unlink()
            elif damage == "of another pack":
                path.write_bytes(content[:-40] + b"\0" * 20 + content[-20:])
            else:
                path.write_bytes(content[: 0 if damage == "empty" else len(content) // 2])
        with reopened(tmp_path) as ledger:
            if writes:
                ledger.write().close()
            for entry in islice(ledger.branch().log(), 28):
                assert contents(ledger.store, entry.files) == {"f": b"%d" % entry.number + noise}
        assert {path: path.read_bytes() for path in packs.glob("*.idx")} == indexes
    assert_clean(tmp_path)


def test_data_that_was_sealed_before_a_loss_of_power_took_its_end_is_sealed_without_it(
    tmp_path: Path,
) -> None:
    """The pack that it was made has the same data, so it would have objects that are lost."""
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        imported(writer, {"f": b"1"})

    def work() -> None:
        own = reopened(tmp_path)
        write(own.write(), 2)
        own.store.write_blob(b"lost")
        with calling(KillBefore(KillPoint.OPEN_PACK_SEALED)):
            own.store.open_packs.seal()

    assert killed_in_child(work)
    data, _ = files_of(tmp_path / "ledger.git/wink/open")
    os.truncate(data, data.stat().st_size - 30)
    with reopened(tmp_path) as ledger, ledger.write():
        assert_history(ledger, range(1, 3))
        assert len(ledger.store.packs.listed()) == 2
    assert_clean(tmp_path)


@pytest.mark.parametrize("lost", ["the newest entry", "all since it was closed"])
def test_a_branch_continues_with_the_newest_entry_that_a_loss_of_power_left(
    tmp_path: Path, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        imported(writer, {"f": b"1"})
        write(writer, 2)
        closed = writer.head.id

    def work() -> None:
        writer = reopened(tmp_path).write()
        write(writer, 3)
        write(writer, 4)
        os.kill(os.getpid(), signal.SIGKILL)

    assert killed_in_child(work)
    lines = tmp_path / "ledger.git/wink/lines/main"
    os.truncate(lines / "lock", 0)  # with the name of its owner
    data, _ = files_of(tmp_path / "ledger.git/wink/open")
    if lost == "the newest entry":
        os.truncate(data, data.stat().st_size - 1)
    else:
        os.truncate(data, 0)
        (lines / "spare-1").write_text(f"{closed}\n")  # as ``close`` left it on the device
    with reopened(tmp_path) as ledger, ledger.write() as writer:
        assert_history(ledger, range(1, 4 if lost == "the newest entry" else 3))
        assert "lost with the power" in caplog.text
        write(writer, writer.head.number + 1)
    assert_clean(tmp_path)


@pytest.mark.sweep
@pytest.mark.parametrize("torn", ["data", "rows"])
def test_a_torn_write_of_a_killed_call_loses_that_call_only(tmp_path, torn: str) -> None:
    """Cut the open pack at each of many places behind the objects of the last entry."""
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        imported(writer, {"f": b"1"})
    sizes = tmp_path / "sizes"

    def work() -> None:
        own = reopened(tmp_path)
        writer = own.write()
        write(writer, 2)
        pack = files_of(tmp_path / "ledger.git/wink/open")
        sizes.write_text(" ".join(str(path.stat().st_size) for path in pack))
        with calling(KillBefore(KillPoint.REF_LOCKED)):
            write(writer, 3)

    assert killed_in_child(work)
    data, rows = files_of(tmp_path / "ledger.git/wink/open")
    n_data, n_rows = map(int, sizes.read_text().split())
    path, first = (data, n_data) if torn == "data" else (rows, n_rows)
    assert path.stat().st_size > first
    for n_bytes in random_cases.some(range(first, path.stat().st_size, 7), 10):
        copy = tmp_path / f"{n_bytes}"
        shutil.copytree(tmp_path / "ledger.git", copy / "ledger.git")
        os.truncate(copy / "ledger.git/wink/open" / path.name, n_bytes)
        with reopened(copy) as ledger, ledger.write() as writer:
            assert_history(ledger, range(1, 3))
            write(writer, 3)
            assert_history(ledger, range(1, 4))
    assert_clean(copy)


class KillBefore:
    """A kill point that ends its process at one step."""

    def __init__(self, point: KillPoint) -> None:
        self._point = point

    def __call__(self, point: KillPoint) -> None:
        if point is self._point:
            os.kill(os.getpid(), signal.SIGKILL)


def test_similar_contents_are_stored_as_short_chains_of_deltas(ledger, tmp_path) -> None:
    with ledger.write() as writer:
        imported(writer, {f"wide/{n}": b"%d" % n for n in range(500)})
        before = ledger.disk_bytes()
        for n in range(100):
            files = tree(ledger.store, {f"wide/{n}": b"changed %d" % n}, writer.head.files)
            call(writer, files)
        assert ledger.disk_bytes() - before < 100 * 1_600  # a tree of 500 files has 16,000 bytes
        for entry in writer.log(limit=40):
            found = contents(ledger.store, entry.files)
            changed = sum(data.startswith(b"changed") for data in found.values() if data != state())
            assert changed == entry.number - 1
    ledger.close()
    for pack in (tmp_path / "ledger.git/objects/pack").glob("*.idx"):
        lengths = [
            int(line.split()[3].rstrip(":"))
            for line in git(tmp_path, "verify-pack", "-v", str(pack)).splitlines()
            if line.startswith("chain length")
        ]
        assert max(lengths, default=0) <= 16
    assert_clean(tmp_path)


def state() -> object:
    from ledger_support import DIRECTORY

    return DIRECTORY


# Steps


def test_packs_stay_few_after_any_number_of_calls(ledger, tmp_path) -> None:
    most = 0
    with ledger.write() as writer:
        imported(writer, {"f": b"1"})
        for n in range(2, 250):
            write(writer, n)
            ledger.maintain_if_due(Retention())
            most = max(most, n_packs(ledger))
    assert most <= 5
    assert_history(ledger, range(1, 250))
    assert_clean(tmp_path)


def test_a_step_costs_the_same_for_a_long_history_and_the_next_one_continues(
    tmp_path, reads
) -> None:
    most: dict[int, int] = {}
    kept = Retention(max_age_days=1)
    for n_entries in (100, 400):
        (directory := tmp_path / f"{n_entries}").mkdir()
        with new_ledger(directory, clock=TickingClock(NOW)) as ledger, ledger.write() as writer:
            imported(writer, {"f": b"1"})
            for n in range(2, n_entries):
                write(writer, n, days=n / 10)
            ledger._clock.advance(days(n_entries / 10))
            n_steps = 0
            while oldest(writer) == 1 or ledger._job is not None:
                reads.clear()
                ledger.maintain_if_due(kept)
                most[n_entries] = max(most.get(n_entries, 0), len(reads))
                n_steps += 1
                assert n_steps < 2_000
            assert n_steps > 1
            assert oldest(writer) > n_entries - 15
        assert_clean(directory)
    assert most[400] <= most[100] + 20 < 200


def days(n: float) -> float:
    """Days in seconds."""
    return n * 86_400


def oldest(writer: BranchWriter) -> int:
    return [entry.number for entry in writer.log()][-1]


def test_closing_does_no_maintenance(ledger, tmp_path, reads) -> None:
    with ledger.write() as writer:
        imported(writer, {"f": b"1"})
        for n in range(2, 200):
            write_noise(writer, n)
    before = n_packs(ledger)
    reads.clear()
    ledger.close()
    assert reads == []
    with reopened(tmp_path) as again:
        assert n_packs(again) == before + 1


def test_entries_that_are_too_old_are_forgotten_between_calls(ledger, tmp_path) -> None:
    kept = Retention(max_age_days=30)
    with ledger.write() as writer:
        imported(writer, {"f": b"1"})
        for n in range(2, 40):
            write(writer, n, days=n)
        for at, first in ((29, 1), (39, 9), (40, 10)):
            ledger._clock.moment = NOW + timedelta(days=at)
            for n in range(31):
                ledger.store.write_blob(b"%d at %d" % (n, at))
            ledger.maintain_if_due(kept)
            assert_history(ledger, range(first, 40))
    assert_clean(tmp_path)


def test_one_process_at_a_time_does_maintenance_and_its_lease_expires(tmp_path) -> None:
    kept = Retention(budget_bytes=200 * KIB)
    clock = ManualClock(NOW)
    with (
        new_ledger(tmp_path, clock=TickingClock(NOW)) as one,
        reopened(tmp_path, clock=clock) as other,
        one.write() as writer,
    ):
        imported(writer, {"f": b"1"})
        for n in range(2, 12):
            write_noise(writer, n)
        one.maintain_if_due(kept, seconds=0)  # begins
        assert one._job is not None
        other.maintain_if_due(kept)
        assert oldest(writer) == 1
        clock.advance(11)
        other.maintain_if_due(kept)
        assert oldest(writer) > 1
        one.maintain_if_due(kept, seconds=0)  # it has lost the lease, and does not continue
        assert one._job is None
    assert_clean(tmp_path)


def test_old_entries_are_looked_for_again_if_another_process_did_not_finish(tmp_path) -> None:
    """It took over the lease of a slow process, and ended."""
    kept = Retention(max_age_days=30)
    clock = ManualClock(NOW)
    with new_ledger(tmp_path, clock=clock) as one, one.write() as writer:
        imported(writer, {"f": b"1"})
        for n in range(2, 40):
            write(writer, n, days=n)
        clock.moment = NOW + timedelta(days=39)
        with reopened(tmp_path, clock=clock) as other:
            one.maintain_if_due(kept, seconds=0)  # begins
            clock.advance(11)
            other.maintain_if_due(kept, seconds=0)  # begins again
            assert one._job is not None
            assert other._job is not None
            one.maintain_if_due(kept)  # it has lost the lease
            assert one._job is None
        assert oldest(writer) == 1
        clock.advance(11)
        one.maintain_if_due(kept)
        assert oldest(writer) == 10
    assert_clean(tmp_path)


def test_finding_the_first_entry_reads_few_others(tmp_path, reads) -> None:
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        imported(writer, {"f": b"1"})
        for n in range(2, 100):
            write(writer, n)
        ledger.maintain_if_due(Retention())
    with reopened(tmp_path) as ledger:
        reads.clear()
        ledger.maintain_if_due(Retention())
        assert 0 < len(reads) < 60


@pytest.mark.parametrize("job", ["joining", "collecting", "forgetting"])
def test_no_step_of_maintenance_is_longer_for_more_objects(tmp_path, job: str) -> None:
    """Counts the lines of Python between two pauses, in packs of several sizes."""
    longest: dict[int, int] = {}
    for n_objects in (500, 1_500):
        (directory := tmp_path / f"{n_objects}").mkdir()
        with new_ledger(directory) as ledger, ledger.write() as writer:
            imported(writer, {"f": b"1"})
            for part in range(4):
                with ledger.store.bulk():
                    files = {
                        f"{n // 100}/{n // 10}/{part}-{n}": b"%d %d" % (part, n)
                        for n in range(n_objects // 4)
                    }
                    root = tree(ledger.store, files, writer.head.files)
                call(writer, root)
            ledger.store.open_packs.seal()
            ledger.store.forget()
            longest[n_objects] = longest_step(job_of(ledger, job))
        assert_clean(directory)
    assert longest[1_500] < longest[500] * 1.7 + 100 < 10_000


def test_no_step_of_recording_a_directory_is_longer_for_more_files(tmp_path: Path) -> None:
    """Counts lines as above: a tree with many entries, and a pack with many objects."""
    longest: dict[int, int] = {}
    for n_files in (500, 1_500):
        (directory := tmp_path / f"{n_files}").mkdir()
        with new_ledger(directory) as ledger:
            with ledger.store.begin_pack() as pack:
                files = {
                    f"f{n}": TreeEntry(FileKind.FILE, pack.write("blob", b"%d" % n))
                    for n in range(n_files)
                }
                directories = {("d",): files, (): {"d": SOME_DIRECTORY}}
                trees = tree_steps(pack, directories)
                longest[n_files] = max(longest_step(trees), longest_step(pack.finish()))
            assert len(ledger.store.packs.paths()) == 1
        assert_clean(directory)
    assert longest[1_500] < longest[500] * 1.8 + 100 < 10_000


def job_of(ledger: Ledger, name: str) -> Iterator[None]:
    if name == "joining":
        return joining(ledger.store, time.time())
    budget_bytes = 10 * KIB if name == "forgetting" else 10_000 * KIB
    return ledger._deleting(Retention(budget_bytes=budget_bytes), NOW)


def longest_step(job: Iterator[None]) -> int:
    """The most lines of the ledger's Python that ran between two pauses of *job*.

    Modules that are loaded in a step, and objects of earlier tests that the garbage collector
    finalizes in it, do not count.
    """
    n_lines = 0
    ledger = str(Path(wink_workspace.ledger.__file__).parent)

    def count_line(frame: FrameType, event: str, argument: object) -> object:
        nonlocal n_lines
        n_lines += event == "line"
        return count_line if frame.f_code.co_filename.startswith(ledger) else None

    most, is_done = 0, False
    before = sys.gettrace()
    gc.collect()
    gc.disable()
    try:
        while not is_done:
            n_lines = 0
            sys.settrace(count_line)
            is_done = next(job, job) is job
            sys.settrace(before)
            most = max(most, n_lines)
    finally:
        sys.settrace(before)
        gc.enable()
    return most


def test_history_is_deleted_although_a_full_disk_prevents_packing(
    ledger, tmp_path, monkeypatch, caplog
) -> None:
    kept = Retention(budget_bytes=200 * KIB)
    with ledger.write() as writer:
        imported(writer, {"f": b"1"})
        for n in range(2, 20):
            write_noise(writer, n)
        assert ledger.store.open_packs.is_full(kept.budget_bytes)

        def fail(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        # A small disk needs the right to mount one.
        monkeypatch.setattr("wink_workspace.ledger.store.open_packs._publish", fail)
        ledger.maintain_if_due(kept)
        assert "New objects cannot be packed yet" in caplog.text
        assert oldest(writer) > 1
        monkeypatch.undo()
        write(writer, 20)
        ledger.close()
    assert not files_of(tmp_path / "ledger.git/wink/open")
    assert_clean(tmp_path)


# Beside other writers


def test_objects_of_a_call_in_another_process_are_not_deleted(ledger, tmp_path) -> None:
    noise = random.Random(1).randbytes(30 * KIB)
    with ledger.write() as writer:
        ledger.fork("other", imported(writer, {"f": b"1"}))
        with reopened(tmp_path) as other, other.write("other") as theirs:
            with other.store.bulk():
                root = tree(other.store, {"a": b"in a pack", "b": noise})
            assert ledger.maintain(Retention()).ran
            call(theirs, root)
            assert contents(other.store, root) == {"a": b"in a pack", "b": noise}
    assert_clean(tmp_path)


def test_what_ended_calls_left_in_a_full_pack_is_deleted_beside_other_writers(
    ledger, tmp_path, monkeypatch
) -> None:
    """It is in the open pack of another process when its entry is forgotten."""
    # Otherwise this takes 2,000 objects
    monkeypatch.setattr("wink_workspace.ledger.store.open_packs._MAX_OBJECTS", 50)
    with ledger.write() as writer:
        ledger.fork("other", imported(writer, {"f": b"1"}))
        with reopened(tmp_path) as other, other.write("other") as theirs:
            for n in range(25):
                write_noise(theirs, n)
            first = theirs.find(2).id
            ledger.maintain(Retention(budget_bytes=100 * KIB))
            assert first in other.store.repository
            other.maintain_if_due(Retention())
            assert other.store.open_packs.own is None
            ledger.maintain(Retention())
            with reopened(tmp_path) as third:
                assert first not in third.store.repository
                assert theirs.head.id in third.store.repository
    assert_clean(tmp_path)


def test_packs_are_joined_apart_from_those_with_objects_of_calls_in_progress(ledger) -> None:
    store = ledger.store
    for n in range(4):
        store.write_blob(b"ended %d" % n)
        for _ in store.open_packs.sealing(is_idle=n < 2):
            pass
    run_steps(joining(store, ledger._deletion.filesystem_time()))
    joined = sorted(store.packs.listed(), key=lambda pack: pack.made)
    assert [len(pack.disk_bytes) for pack in joined] == [2, 2]
    assert joined[0].made == ENDED_CALLS
    assert joined[1].made > time.time() - 60


def test_a_commit_that_uses_objects_that_were_just_deleted_is_refused(ledger, tmp_path) -> None:
    """A process that reads an old entry holds no lock, however long it takes."""
    with ledger.write() as writer:
        ledger.fork("other", imported(writer, {"f": b"1"}))
        write_noise(writer, 2)
        old = writer.head.files
        write(writer, 3)
        with reopened(tmp_path) as other, other.write("other") as theirs:
            head = theirs.head
            ledger.maintain(Retention(budget_bytes=10 * KIB))
            with pytest.raises(LedgerError, match="was deleted meanwhile") as caught:
                call(theirs, old)
            assert "open it again" in str(caught.value)
            assert other.branch("other").head == head
            call(theirs, tree(other.store, {"f": b"new"}, head.files))
    assert_clean(tmp_path)


def test_reading_an_entry_that_another_process_deleted_says_so(ledger, tmp_path) -> None:
    with ledger.write() as writer, reopened(tmp_path) as reader:
        imported(writer, {"f": b"1"})
        for n in range(2, 5):
            write_noise(writer, n)
        old = reader.branch().find(2)
        ledger.maintain(Retention(budget_bytes=10 * KIB))
        reader.store.forget()  # else it reads the deleted files that it has open
        message = "deleted by the retention of another process"
        with pytest.raises(EntryMissingError, match=message) as caught:
            contents(reader.store, old.files)
        assert "Close the workspace and open it again" in str(caught.value)
        assert oldest(reader.branch()) == 4
        with pytest.raises(LedgerDamagedError, match="cannot be read"):  # not by another process
            contents(ledger.store, old.files)


def test_a_snapshot_of_two_hours_ago_may_be_deleted_and_its_commit_is_refused(
    ledger, tmp_path
) -> None:
    """A process looks at changed files, and commits the same files later."""
    noise = random.Random(1).randbytes(40 * KIB)
    files = {"packed": noise[: 10 * KIB], "loose": noise[10 * KIB :]}
    with ledger.write() as writer:
        ledger.fork("other", imported(writer, {"f": b"1"}))
        with reopened(tmp_path) as other, other.write("other") as theirs:
            snapshot = tree(ledger.store, files)
            ledger.store.open_packs.seal()
            for age_h, is_kept in ((0.5, True), (2, False)):
                for path in files_of(tmp_path / "ledger.git/objects"):
                    when = path.stat().st_mtime - age_h * 3_600
                    os.utime(path, (when, when))
                other.maintain(Retention())
                assert (snapshot in other.store.repository) == is_kept
            with pytest.raises(LedgerError, match="was deleted meanwhile"):
                call(writer, snapshot)
            call(writer, tree(ledger.store, files))
            call(theirs, tree(other.store, files))
        assert contents(ledger.store, writer.head.files) == files
    assert_clean(tmp_path)


@pytest.mark.parametrize("n_pauses", [0, 10, 30, 50, 70, 90, 120])
def test_a_branch_made_at_an_entry_that_is_being_forgotten_is_complete_or_refused(
    ledger, tmp_path, n_pauses: int
) -> None:
    with ledger.write() as writer:
        imported(writer, {"f": b"1"})
        for n in range(2, 30):
            write_noise(writer, n)
        old = writer.find(9)
        ledger.store.open_packs.seal()
        job = ledger._deleting(Retention(budget_bytes=200 * KIB), NOW)
        for _ in zip(range(n_pauses), job, strict=False):
            pass
        with suppress(LedgerError):  # the entry is deleted already
            ledger.fork("late", old)
        for _ in job:
            pass
        for name in ("main", *ledger.forks()):
            for entry in ledger.branch(name).log():
                assert contents(ledger.store, entry.files)
    assert_clean(tmp_path)


# Kills and damage


@pytest.mark.sweep
def test_killing_maintenance_between_calls_at_any_step_loses_nothing(tmp_path) -> None:
    """Sealing, joining packs, and deleting what exceeds the budget."""
    kept = Retention(budget_bytes=60 * KIB)
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        imported(writer, {"f": b"1"})

    def work() -> None:
        with reopened(tmp_path) as own, own.write() as writer:
            for _ in range(8):
                write(writer, writer.head.number + 1)
                own.maintain_if_due(Retention())
            write_noise(writer, writer.head.number + 1)
            write(writer, writer.head.number + 1)
            own.maintain_if_due(kept)

    for step in count(1, 3 if random_cases.in_soak else 9):
        killed = killed_in_child(work, at_step=step)
        with reopened(tmp_path) as ledger:
            for entry in ledger.branch().log():
                assert contents(ledger.store, entry.files)
            with ledger.write() as writer:
                for _ in range(3):
                    write_noise(writer, writer.head.number + 1)
        assert_clean(tmp_path)
        if not killed:
            break
    assert step > 60


@pytest.mark.parametrize("sweep", ["maintain"])
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


def test_damaged_data_of_an_open_pack_is_noticed_when_it_is_read(ledger, tmp_path) -> None:
    with ledger.write() as writer:
        imported(writer, {"f": b"some text " * 20})
        ledger.store.sync()
        data, _ = files_of(tmp_path / "ledger.git/wink/open")
        content = data.read_bytes()
        with data.open("r+b") as file:
            file.write(b"\0" * len(content))
        with reopened(tmp_path) as other, pytest.raises(LedgerDamagedError, match="is damaged"):
            other.branch()
        data.write_bytes(content)


# Many branches


@pytest.mark.parametrize("seconds", [0.002, 100], ids=["short steps", "long steps"])
def test_the_budget_holds_with_many_branches_that_write_at_the_same_time(
    tmp_path, seconds: float
) -> None:
    """In short steps the others write while one measures and deletes."""
    n_branches, kept = 16, Retention(budget_bytes=1_000 * KIB)
    with new_ledger(tmp_path, clock=ManualClock(NOW)) as ledger, ledger.write() as writer:
        first = imported(writer, {"f": b"1"})
        for n in range(n_branches):
            ledger.fork(f"b{n}", first)
    ledgers = [reopened(tmp_path, clock=TickingClock(NOW)) for _ in range(n_branches)]
    writers = [ledger.write(f"b{n}") for n, ledger in enumerate(ledgers)]
    most = 0
    for n in range(8):
        for k, (ledger, writer) in enumerate(zip(ledgers, writers, strict=True)):
            write_noise(writer, n * n_branches + k + 2)
            ledger.maintain_if_due(kept, seconds=seconds)
            most = max(most, ledger.disk_bytes())
    # Nothing is deleted of the open packs of others
    assert most <= kept.budget_bytes * 9 / 8 + 200 * KIB
    for n, (ledger, writer) in enumerate(zip(ledgers, writers, strict=True)):
        newest = random.Random(7 * n_branches + n + 2).randbytes(20 * KIB)
        assert contents(ledger.store, writer.head.files) == {"f": newest}
        ledger.close()
    assert_clean(tmp_path)
