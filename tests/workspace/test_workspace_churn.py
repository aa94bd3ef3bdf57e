"""A history stays within its budget automatically, and the kept part is complete."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest
from workspace_rig import assert_fsck_clean, calls, doing, folder, made, picture, reopened

from wink_workspace.errors import LedgerError
from wink_workspace.ledger import Ledger, Retention, file_state, walk
from wink_workspace.workspace import Workspace, WorkspaceConfig

MIB = 1_048_576


def churn(directory: Path, *, n_calls: int, budget_bytes: int) -> None:
    """Rewrite incompressible files of 1 MiB, one in each call, and check the kept history."""
    noise = random.Random(0).randbytes(4 * MIB)
    config = WorkspaceConfig(retention=Retention(budget_bytes=budget_bytes))
    contents: dict[int, bytes] = {}
    most_bytes = 0
    with made(directory, {"other": b"never touched"}, config=config) as workspace:
        root = folder(directory).files
        number = 1

        def rewrite() -> None:
            (root / f"{number % 3}.bin").write_bytes(contents[number])

        with calls(workspace, doing(rewrite)) as call:
            for number in range(2, n_calls + 2):
                at = number * 3_001 % (3 * MIB)
                contents[number] = number.to_bytes(8, "big") + noise[at : at + MIB - 8]
                assert call("act").result.success
                contents.pop(number - 200, None)  # ten thousand of them do not fit into memory
                most_bytes = max(most_bytes, workspace._ledger.disk_bytes())
        assert_kept(workspace, contents)
    assert most_bytes <= budget_bytes * 9 / 8 + 2 * MIB
    assert_fsck_clean(folder(directory).ledger)


def assert_kept(workspace: Workspace, contents: dict[int, bytes]) -> None:
    """Every kept entry has its content, and can be restored."""
    entries = list(workspace.log())
    assert [entry.number for entry in entries] == list(
        range(entries[0].number, entries[0].number - len(entries), -1)
    )
    assert len(entries) > 6
    store = workspace._ledger.store
    for entry in entries[:-3]:
        kept = {str(path): file_state(store, found) for path, found in walk(store, entry.files)}
        for number in range(entry.number - 2, entry.number + 1):
            file = kept[f"{number % 3}.bin"]
            assert file is not None
            assert file.data == contents[number]
    oldest = entries[len(entries) // 2]  # older ones may be forgotten meanwhile
    workspace.restore(oldest.number)
    restored = picture(workspace._folder.files)[b"%d.bin" % (oldest.number % 3)]
    assert restored[2] == contents[oldest.number]


@pytest.mark.behaviour(37)
@pytest.mark.parametrize(
    ("n_calls", "budget_mib"), [(80, 16), pytest.param(10_000, 100, marks=pytest.mark.soak)]
)
def test_calls_that_rewrite_large_files_keep_the_ledger_within_its_budget(
    tmp_path: Path, n_calls: int, budget_mib: int
) -> None:
    churn(tmp_path, n_calls=n_calls, budget_bytes=budget_mib * MIB)


@pytest.mark.behaviour(37)
@pytest.mark.parametrize("mode", ["copy", "overlay"])
def test_an_import_larger_than_the_budget_leaves_the_whole_budget_to_the_history(
    tmp_path: Path, mode: str
) -> None:
    noise, kept = random.Random(1), Retention(budget_bytes=MIB)
    files = {f"d/{n}.bin": noise.randbytes(MIB // 4) for n in range(8)}
    files["large.bin"] = noise.randbytes(9 * MIB)
    config = WorkspaceConfig(retention=kept)
    with made(tmp_path, files, mode=mode, config=config) as workspace:
        for n in range(30):
            with workspace.call(f"{n}"):
                workspace.files.write_bytes("d/0.bin", noise.randbytes(25_000))
        assert [entry.number for entry in workspace.log()] == [*range(31, 0, -1)]
        assert workspace.maintain().n_entries_forgotten == 0
    with reopened(tmp_path, config=config) as workspace:
        for n in range(30):
            with workspace.call(f"{n}"):
                workspace.files.write_bytes("d/1.bin", noise.randbytes(25_000))
        assert workspace.maintain().disk_bytes <= kept.budget_bytes
        assert 25 <= len(list(workspace.log())) < 50
        workspace.restore(next(reversed(list(workspace.log()))).number)
        assert workspace.files.read_bytes("d/2.bin") == files["d/2.bin"]
    assert_fsck_clean(folder(tmp_path).ledger)


def test_an_import_in_place_does_not_count_towards_the_budget(tmp_path: Path) -> None:
    files = {"a.bin": random.Random(1).randbytes(MIB)}
    made(tmp_path, files, mode="in_place").close()
    with reopened(tmp_path) as workspace:  # the files are so new that they were stored again
        assert workspace.maintain().disk_bytes < 10_000


def test_objects_of_a_snapshot_without_an_entry_survive_maintenance(
    tmp_path: Path,
) -> None:
    with made(tmp_path, {"a.txt": b"one\n"}) as workspace:
        (folder(tmp_path).files / "a.txt").write_bytes(b"by hand\n")
        assert "by hand" in workspace.diff()
        workspace.maintain()
        with calls(workspace) as call:
            call("write_file", file_path="b.txt", content="b")
        workspace.undo()
        assert (folder(tmp_path).files / "a.txt").read_bytes() == b"by hand\n"
    with reopened(tmp_path) as workspace:
        assert "by hand" in workspace.diff()
    assert_fsck_clean(folder(tmp_path).ledger)


def test_failed_deletion_of_old_history_is_logged_once_and_calls_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = WorkspaceConfig(retention=Retention(budget_bytes=1))

    def fail(self: Ledger, *_: object, **__: object) -> None:
        raise LedgerError("the device is broken")

    with made(tmp_path, config=config) as workspace, calls(workspace) as call:
        # The deletion itself cannot be made to fail from outside.
        monkeypatch.setattr(Ledger, "_deleting", fail)
        with caplog.at_level(logging.WARNING):
            for n in range(3):
                assert call("write_file", file_path=f"{n}.txt", content="x").result.success
    assert caplog.text.count("Old history cannot be deleted") == 1


def test_new_objects_are_packed_between_calls_and_at_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An open pack is sealed after 2,000 objects, which take too long to write.
    monkeypatch.setattr("wink_workspace.ledger.store.open_packs._MAX_OBJECTS", 100)
    with made(tmp_path) as workspace, calls(workspace) as call:
        for n in range(30):
            call("write_file", file_path=f"{n}/{n}.txt", content=f"{n}")
        assert len(workspace._ledger.store.packs.paths()) > 3
    with Ledger(folder(tmp_path).ledger) as ledger:
        assert not ledger.store.open_packs.file_sizes()
