"""Versions of a large file: each is stored as what changed, and all of them stay readable."""

from __future__ import annotations

import random
import tracemalloc
import warnings
from itertools import count, islice
from pathlib import Path

import pytest
import random_cases
from ledger_support import (
    NOW,
    assert_clean,
    call,
    git,
    imported,
    killed_in_child,
    new_ledger,
    reopened,
)

from wink_workspace.errors import LedgerDamagedError
from wink_workspace.filesystem.model import FileKind
from wink_workspace.filesystem.paths import parse_path
from wink_workspace.ledger import (
    LARGE_BYTES,
    BranchWriter,
    Ledger,
    Retention,
    TreeEntry,
    build,
    entry_at,
)

F = parse_path("f")
LOG = b"".join(
    b"%07d %07d a line\n" % (n, n * 7_919 % 9_999_991) for n in range(LARGE_BYTES // 23 + 9_000)
)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    with new_ledger(tmp_path) as ledger:
        yield ledger


@pytest.fixture
def writer(ledger: Ledger) -> BranchWriter:
    with ledger.write() as writer:
        imported(writer, {})
        yield writer


def write(writer: BranchWriter, directory: Path, content: bytes) -> str:
    """Append the entry of a call that left *content* in ``f``; return its blob."""
    store, files = writer.store, writer.head.files
    path = directory / "content"
    path.write_bytes(content)
    before = entry_at(store, files, F)
    with path.open("rb", buffering=0) as file:
        blob = store.write_blob_from(file.fileno(), like=None if before is None else before.id)
    files = build(store, files, {F: TreeEntry(FileKind.FILE, blob)})
    call(writer, files, call_id=str(writer.head.number), when=NOW)
    return blob


def begin(writer: BranchWriter, directory: Path, content: bytes = LOG) -> None:
    """Write two versions in full: the second one is the base of the later ones."""
    write(writer, directory, content)
    write(writer, directory, content + b"once more\n")


def versions(ledger: Ledger, n_newest: int = 1_000) -> list[bytes]:
    """The contents of ``f`` in the history, oldest first."""
    entries = list(islice(ledger.branch().log(), n_newest))
    found = [entry_at(ledger.store, entry.files, F) for entry in reversed(entries)]
    return [b"".join(ledger.store.chunks(each.id)) for each in found if each is not None]


def n_deltas(directory: Path) -> int:
    """How many packs of deltas wait for ``gc``."""
    return len(list((directory / "ledger.git/wink/open").glob("*-*.rows")))


@pytest.mark.behaviour(54)
def test_a_large_file_that_grows_by_a_line_per_call_costs_little_more_than_the_line(
    ledger, writer, tmp_path
) -> None:
    begin(writer, tmp_path)
    before, expected = ledger.disk_bytes(), [LOG, LOG + b"once more\n"]
    for n in range(12):
        expected.append(expected[-1] + b"line %d\n" % n)
        write(writer, tmp_path, expected[-1])
    assert ledger.disk_bytes() - before < 12 * 4_096
    assert versions(ledger) == expected


EDITS = {
    "appended": lambda log: log + b"x",
    "inserted": lambda log: log[:5_000_000] + b"something new" * 3_000 + log[5_000_000:],
    "removed": lambda log: log[:70_000] + log[90_000:],
    "at the beginning": lambda log: b"new" + log,
    "rotated": lambda log: log[100_000:],
    "changed in several places": lambda log: (
        log[:9] + b"?" + log[10:8_000_000] + b"!" * 99 + log[8_000_099:]
    ),
    "changed and appended": lambda log: b"?" + log[1:] + b"x",
    "across blocks": lambda log: log[: 1 << 20] + b"\0" * 40_000 + log[(1 << 20) + 5 :],
    "the same": lambda log: log,
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edit_of_a_large_file_is_stored_as_a_delta_that_git_can_read_after_gc(
    ledger, writer, tmp_path, edit
) -> None:
    begin(writer, tmp_path)
    base = LOG + b"once more\n"
    before = ledger.disk_bytes()
    blob = write(writer, tmp_path, edit(base))
    assert ledger.disk_bytes() - before < 50_000
    assert b"".join(ledger.store.chunks(blob)) == edit(base)
    assert ledger.store.size_bytes(blob) == len(edit(base))
    ledger.maintain(Retention())
    assert n_deltas(tmp_path) == 0
    assert b"".join(ledger.store.chunks(blob)) == edit(base)
    assert int(git(tmp_path, "cat-file", "-s", blob)) == len(edit(base))
    assert_clean(tmp_path)


@pytest.mark.parametrize(
    "other",
    [b"small", random.Random(1).randbytes(LARGE_BYTES), LOG[::-1], LOG[: len(LOG) // 2] * 3],
    ids=["small", "noise", "reversed", "rearranged"],
)
def test_a_version_that_differs_much_is_stored_in_full(ledger, writer, tmp_path, other) -> None:
    begin(writer, tmp_path)
    write(writer, tmp_path, other)
    assert n_deltas(tmp_path) == 0
    write(writer, tmp_path, LOG)
    assert versions(ledger) == [LOG, LOG + b"once more\n", other, LOG]


def test_versions_after_gc_are_deltas_for_the_packed_base(ledger, writer, tmp_path) -> None:
    begin(writer, tmp_path)
    expected = [LOG, LOG + b"once more\n"]
    for n in range(3):
        for _ in range(2):
            expected.append(expected[-1] + b"line %d\n" % n)
            before = ledger.disk_bytes()
            write(writer, tmp_path, expected[-1])
            assert ledger.disk_bytes() - before < 4_096
        ledger.maintain(Retention())
        assert ledger.disk_bytes() < 2 * LARGE_BYTES
        assert versions(ledger) == expected
    assert_clean(tmp_path)


def test_versions_are_read_and_written_in_bounded_memory(ledger, writer, tmp_path) -> None:
    begin(writer, tmp_path)
    blob = write(writer, tmp_path, LOG + b"x")
    path = tmp_path / "content"
    with path.open("ab") as file:
        file.write(b"y")
    for _ in range(2):
        with path.open("rb", buffering=0) as file:
            tracemalloc.start()
            ledger.store.write_blob_from(file.fileno(), like=blob)
            n_bytes = sum(len(piece) for piece in ledger.store.chunks(blob))
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert (n_bytes, peak < LARGE_BYTES) == (len(LOG) + 1, True)
        ledger.maintain(Retention())


def test_a_base_stays_until_its_last_delta_is_forgotten(ledger, writer, tmp_path) -> None:
    begin(writer, tmp_path)
    expected = [LOG + b"once more\n" + b"x" * n for n in (1, 2)]
    for content in expected:
        write(writer, tmp_path, content)
    ledger.maintain(Retention(budget_bytes=1))
    assert versions(ledger) == expected[1:]
    write(writer, tmp_path, b"small")
    ledger.maintain(Retention(budget_bytes=1))
    assert versions(ledger) == [b"small"]
    assert ledger.disk_bytes() < 10_000
    assert_clean(tmp_path)


def test_many_deltas_are_followed_by_a_new_base(ledger, writer, tmp_path, monkeypatch) -> None:
    # The real limit takes hundreds of versions.
    monkeypatch.setattr("wink_workspace.ledger.store.large_files._MOST_WASTE", 0.01)
    noise = random.Random(2)
    begin(writer, tmp_path)
    expected = [LOG, LOG + b"once more\n"]
    bases = set()
    for _ in range(8):
        expected.append(expected[-1] + noise.randbytes(30_000))
        write(writer, tmp_path, expected[-1])
        bases |= set(ledger.store.open_packs.bases().values())
    assert len(bases) == 3
    assert versions(ledger) == expected


def test_another_process_reads_versions_before_and_after_gc(ledger, writer, tmp_path) -> None:
    begin(writer, tmp_path)
    with reopened(tmp_path) as reader:
        blob = write(writer, tmp_path, LOG + b"x")
        assert blob in reader.store.repository
        assert b"".join(reader.store.chunks(blob)) == LOG + b"x"
        ledger.maintain(Retention())
        assert blob in reader.store.repository
        assert b"".join(reader.store.chunks(blob)) == LOG + b"x"


@pytest.mark.parametrize("packed", [False, True])
def test_a_damaged_version_is_reported(ledger, writer, tmp_path, packed) -> None:
    begin(writer, tmp_path)
    blob = write(writer, tmp_path, LOG + b"x")
    if packed:
        ledger.maintain(Retention())
    path = max((tmp_path / "ledger.git/objects/pack").glob("*.pack"), key=_size)
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(LARGE_BYTES // 2)
        file.write(b"?")
    with pytest.raises(LedgerDamagedError, match="damaged"):
        list(ledger.store.chunks(blob))


def _size(path: Path) -> int:
    return path.stat().st_size


@pytest.mark.sweep
def test_a_kill_at_any_step_loses_no_version(tmp_path) -> None:
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        imported(writer, {})
        begin(writer, tmp_path)
    expected = [LOG, LOG + b"once more\n"]

    def work() -> None:
        with reopened(tmp_path) as own, own.write() as other:
            write(other, tmp_path, expected[-1] + b"x")
            own.maintain(Retention())

    for n in count(1, 2 if random_cases.in_soak else 4):
        killed = killed_in_child(work, at_step=n)
        with reopened(tmp_path) as ledger:
            (found,) = versions(ledger, 1)
            assert found in (expected[-1], expected[-1] + b"x")
            if found != expected[-1]:
                expected.append(found)
        if not killed:
            break
    assert n > 8
    with reopened(tmp_path) as ledger:
        assert versions(ledger) == expected
    assert_clean(tmp_path)


def test_pieces_that_are_not_read_leave_no_file_open(ledger, tmp_path) -> None:
    (tmp_path / "f").write_bytes(LOG)
    with (tmp_path / "f").open("rb") as file:
        blob = ledger.store.write_blob_from(file.fileno())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pieces = ledger.store.chunks(blob)
        del pieces
    assert caught == []
    assert b"".join(ledger.store.chunks(blob)) == LOG
