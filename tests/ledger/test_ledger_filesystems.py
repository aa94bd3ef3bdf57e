"""Filesystems without hard links, with other errors, or with a clock that is set."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest
from ledger_support import (
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
from wink_workspace.ledger.linking import link_objects

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
        full.setattr("wink_workspace.ledger.open_packs.pack_index", fail)
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
