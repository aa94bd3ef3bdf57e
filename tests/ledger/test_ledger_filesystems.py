"""Filesystems without hard links, with other errors, or with a clock that is set."""

from __future__ import annotations

import errno
import os
import random
import signal
import time
from pathlib import Path

import pytest
from ledger_support import (
    NOW,
    assert_clean,
    at,
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
from wink_workspace.filesystem.model import FileKind
from wink_workspace.ledger import EMPTY_TREE_ID, Retention, TreeEntry, build
from wink_workspace.ledger.store.linking import link_objects
from wink_workspace.ledger.store.lock import LockFile

N_ENTRIES = 4


@pytest.fixture(params=[errno.EPERM, errno.ENOSYS])
def no_hard_links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_links(monkeypatch, request.param)


def fail_links(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", fail)


def write_entries(directory: Path, **options: object) -> None:
    """Write all entries and close the ledger, which seals the open pack."""
    with reopened(directory, **options) as ledger, ledger.write() as writer:
        imported(writer, {"f": b"1"})
        for n in range(2, N_ENTRIES + 1):
            call(writer, tree(ledger.store, {"f": b"%d" % n}))


def assert_whole(directory: Path) -> None:
    """Check every entry, after the next writer has sealed what was left."""
    with reopened(directory) as ledger, ledger.write() as writer:
        entries = list(writer.log())
        assert [entry.number for entry in entries] == list(range(N_ENTRIES, 0, -1))
        for entry in entries:
            assert contents(ledger.store, entry.files) == {"f": b"%d" % entry.number}
    assert not list((directory / "ledger.git/wink/open").iterdir())
    assert not list((directory / "ledger.git/objects/pack").glob("tmp_*"))
    assert_clean(directory)


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize(
    "point", [KillPoint.OPEN_PACK_LINKED, KillPoint.OPEN_PACK_SEALED, KillPoint.OPEN_PACK_DELETED]
)
def test_sealing_without_hard_links_may_be_killed_at_any_step(
    tmp_path: Path, no_hard_links: None, point: KillPoint, durable: bool
) -> None:
    with new_ledger(tmp_path):
        pass

    def kill(passed: KillPoint) -> None:
        if passed is point:
            os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        with calling(kill):
            write_entries(tmp_path, durable=durable)

    assert killed_in_child(work)
    assert_whole(tmp_path)


def test_a_full_disk_without_hard_links_leaves_the_open_pack(
    tmp_path: Path, no_hard_links: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_ledger(tmp_path):
        pass

    def fail(*_: object) -> bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        # The pack fits, and its index does not; a small disk needs the right to mount one
        full.setattr("wink_workspace.ledger.store.open_packs.pack_index", fail)
        write_entries(tmp_path)
    assert len(list((tmp_path / "ledger.git/wink/open").iterdir())) == 2
    assert_whole(tmp_path)


def test_a_link_that_fails_for_another_reason_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        imported(writer, {"f": b"1"})
        with monkeypatch.context() as failing:
            fail_links(failing, errno.EIO)
            with pytest.raises(LedgerError, match="an open pack cannot be sealed"):
                ledger.store.open_packs.seal()
            assert not ledger.store.packs.paths()
        ledger.store.open_packs.seal()
        assert len(ledger.store.packs.paths()) == 1


def test_the_objects_of_a_base_are_copied_without_hard_links(
    tmp_path: Path, no_hard_links: None
) -> None:
    for name in ("base", "other"):
        (tmp_path / name).mkdir()
        with new_ledger(tmp_path / name):
            pass
    with reopened(tmp_path / "base") as ledger:
        blob = ledger.store.write_blob(b"base")
    link_objects(tmp_path / "base/ledger.git", tmp_path / "other/ledger.git")
    with reopened(tmp_path / "other") as ledger:
        assert ledger.store.read(blob, "blob") == b"base"


def test_the_ids_of_objects_whose_data_is_missing_are_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They are the only sign of what was lost, and may help to find it again."""
    with new_ledger(tmp_path):
        pass

    def work() -> None:
        ledger = reopened(tmp_path)
        ledger.store.write_blob(b"lost")
        ledger.store.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    assert killed_in_child(work)
    data, rows = sorted((tmp_path / "ledger.git/wink/open").iterdir())
    content = data.read_bytes()
    data.unlink()
    with reopened(tmp_path) as ledger:
        ledger.write().close()
        assert rows.exists()
        assert f"The objects of {rows} are missing" in caplog.text
        data.write_bytes(content)
        ledger.write().close()
        assert not rows.exists()
        assert len(ledger.store.packs.paths()) == 1


# A ledger that cannot be written


@pytest.mark.parametrize(
    ("number", "hint"), [(errno.EROFS, "for writing"), (errno.EACCES, "Fix the permissions")]
)
def test_a_ledger_that_cannot_be_written_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, hint: str
) -> None:
    with new_ledger(tmp_path):
        pass
    write_entries(tmp_path)
    real = os.open

    def open_for_reading(path: str | Path, flags: int, *arguments: int, **options: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(number, os.strerror(number))
        return real(path, flags, *arguments, **options)

    # Mounting needs a right, and permissions do not stop root
    monkeypatch.setattr(os, "open", open_for_reading)
    with reopened(tmp_path) as ledger:
        entries = list(ledger.branch().log())
        assert [entry.number for entry in entries] == list(range(N_ENTRIES, 0, -1))
        assert contents(ledger.store, entries[0].files) == {"f": b"%d" % N_ENTRIES}
        with pytest.raises(LedgerError, match="cannot be opened") as caught:
            ledger.write()
        assert hint in str(caught.value.hint)
        assert "Make room" not in str(caught.value.hint)


# Locks that cannot be taken


def test_a_lock_in_a_directory_that_is_a_dangling_link_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "locks").symlink_to("nowhere")
    with pytest.raises(LedgerError, match="its directory cannot be found") as caught:
        LockFile(tmp_path / "locks" / "lock")
    assert str(tmp_path / "locks") in str(caught.value.hint)


@pytest.fixture
def other_inode_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filesystem that has other inode numbers for open files, as some in user space have."""
    n_compared = 0

    def differ(one: os.stat_result, other: os.stat_result) -> bool:
        nonlocal n_compared
        n_compared += 1
        assert n_compared < 1_000, "it never ends"
        return False

    monkeypatch.setattr("os.path.samestat", differ)


def test_a_branch_whose_lock_is_never_in_place_is_an_error(
    tmp_path: Path, other_inode_numbers: None
) -> None:
    with (
        new_ledger(tmp_path) as ledger,
        pytest.raises(LedgerError, match="never leads to") as error,
    ):
        ledger.write()
    assert "local filesystem" in str(error.value.hint)


def test_an_open_pack_whose_rows_are_never_in_place_is_an_error(
    tmp_path: Path, other_inode_numbers: None
) -> None:
    with new_ledger(tmp_path) as ledger:
        with pytest.raises(LedgerError, match="never leads to"):
            ledger.store.write_blob(b"new")
        assert not list((tmp_path / "ledger.git/wink/open").iterdir())


# A clock that is set


def set_age(path: Path, age_s: float) -> None:
    made = path.stat().st_mtime - age_s
    os.utime(path, (made, made))


def test_a_pack_that_is_being_sealed_is_kept_though_the_clock_was_set_back(tmp_path: Path) -> None:
    """Its data has a second link until it has an index."""
    with new_ledger(tmp_path) as ledger:
        blob = ledger.store.write_blob(b"new")
        packs = ledger.store.packs

        def collect(point: KillPoint) -> None:
            if point is KillPoint.OPEN_PACK_LINKED:
                (pack,) = packs.directory.glob("*.pack")
                packs.delete_unindexed(pack.stat().st_mtime + 3_600)

        with calling(collect):
            ledger.store.open_packs.seal()
        assert ledger.store.packs.paths()
        assert ledger.store.read(blob, "blob") == b"new"


def test_a_pack_that_is_deleted_before_it_has_an_index_is_published_again(tmp_path: Path) -> None:
    seen: list[KillPoint] = []
    with new_ledger(tmp_path) as ledger:
        blob = ledger.store.write_blob(b"new")

        def delete(point: KillPoint) -> None:
            seen.append(point)
            if seen == [KillPoint.OPEN_PACK_LINKED]:
                (pack,) = ledger.store.packs.directory.glob("*.pack")
                pack.unlink()

        with calling(delete):
            ledger.store.open_packs.seal()
        assert seen.count(KillPoint.OPEN_PACK_LINKED) == 2
    with reopened(tmp_path) as ledger:
        assert ledger.store.read(blob, "blob") == b"new"
    assert_clean(tmp_path)


def test_sealing_ends_with_an_error_if_the_pack_is_always_deleted(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger:
        blob = ledger.store.write_blob(b"new")

        def delete(point: KillPoint) -> None:
            if point is KillPoint.OPEN_PACK_LINKED:
                for pack in ledger.store.packs.directory.glob("*.pack"):
                    pack.unlink()

        with calling(delete), pytest.raises(LedgerError, match="disappears"):
            ledger.store.open_packs.seal()
        assert ledger.store.read(blob, "blob") == b"new"


def test_a_pack_of_a_writer_that_began_meanwhile_is_kept_without_hard_links(
    tmp_path: Path, no_hard_links: None
) -> None:
    """The collection began before the writer, and the clock was set back between."""
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        ledger.fork("other", imported(writer, {"f": b"0"}))
    with reopened(tmp_path) as collector, reopened(tmp_path) as other:
        job = collector._deleting(Retention(), NOW)
        next(job)
        with other.write("other") as writer:
            call(writer, tree(other.store, {"f": b"1"}))
            n_linked = 0

            def collect(point: KillPoint) -> None:
                nonlocal n_linked
                if point is KillPoint.OPEN_PACK_LINKED:
                    n_linked += 1
                    for pack in other.store.packs.directory.glob("*.pack"):
                        set_age(pack, 3_600)
                    for _ in job:
                        pass

            with calling(collect):
                other.store.open_packs.seal()
            assert n_linked == 1
    with reopened(tmp_path) as ledger:
        head = ledger.branch("other").head
        assert head is not None
        assert contents(ledger.store, head.files) == {"f": b"1"}
    assert_clean(tmp_path)


def noise(seed: int, n_bytes: int) -> bytes:
    return random.Random(seed).randbytes(n_bytes)


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("is_alone", [False, True])
def test_files_from_the_future_are_deleted_with_their_entries(
    tmp_path: Path, is_packed: bool, is_alone: bool
) -> None:
    """The clock was a year ahead and was set right."""
    kept = Retention(budget_bytes=200_000)
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        ledger.fork("other", imported(writer, {"f": b"0"}))
        for n in range(20):
            if is_packed:
                call(writer, tree(ledger.store, {"f": noise(n, 20_000)}))
            else:
                # This makes a pack of its own
                (tmp_path / "f").write_bytes(noise(n, 20_000))
                with (tmp_path / "f").open("rb", buffering=0) as file:
                    blob = ledger.store.write_blob_from(file.fileno())
                files = build(
                    ledger.store, EMPTY_TREE_ID, {at("f"): TreeEntry(FileKind.FILE, blob)}
                )
                call(writer, files)
        garbage = ledger.store.write_blob(noise(100, 20_000))
    for path in (tmp_path / "ledger.git/objects").rglob("*"):
        set_age(path, -365 * 86_400)
    with reopened(tmp_path) as ledger, reopened(tmp_path) as other:
        if not is_alone:
            other.write("other")
        done = ledger.maintain(kept)
        assert ledger.disk_bytes() <= kept.budget_bytes
        assert 0 < done.n_entries_forgotten < 15
        assert (garbage in ledger.store.repository) == (not is_alone)
        for path in (tmp_path / "ledger.git/objects/pack").iterdir():
            assert path.stat().st_mtime < time.time() + 3_600
    assert_clean(tmp_path)


def test_unfinished_packs_from_the_future_are_deleted(tmp_path: Path) -> None:
    """They count towards the size limit."""
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        imported(writer, {"f": b"0"})
        packs = ledger.store.packs.directory
        leftovers = [packs / "tmp_pack_dead", packs / "pack_git2_dead", packs / "pack-x.pack"]
        for path in leftovers:
            path.write_bytes(b"half")
            set_age(path, -365 * 86_400)
        ledger.maintain(Retention())
        assert not any(path.exists() for path in leftovers)
