"""Calls that change many files: one pack, one rename for each new directory, work in steps."""

from __future__ import annotations

import errno
import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from kill_rig import copied
from workspace_rig import (
    assert_fsck_clean,
    assert_same,
    calls,
    die,
    doing,
    folder,
    made,
    picture,
    reopened,
)

from wink_workspace._kill_points import KillPoint, calling
from wink_workspace.clock import ManualClock
from wink_workspace.errors import FilesystemError, LedgerError
from wink_workspace.filesystem import DiskTree, WorkspacePath
from wink_workspace.filesystem.changes import Dirty
from wink_workspace.filesystem.overlay.mounting import OverlayMount, overlay_support
from wink_workspace.ledger import Retention
from wink_workspace.workspace import Workspace, WorkspaceConfig
from wink_workspace.workspace.files.disk_entries import capture_all
from wink_workspace.workspace.files.pending_discards import DiscardCause, DiscardPlan
from wink_workspace.workspace.files.tree_history import TreeHistory

N_DIRECTORIES, WIDTH = 6, 50
N_FILES = N_DIRECTORIES * WIDTH
ADMINISTRATION = 6
"""The objects of one entry besides those of its files, at most."""


class TickingClock(ManualClock):
    """A clock on which 0.1 ms pass with each look at it."""

    def __init__(self) -> None:
        super().__init__(datetime.now(UTC) + timedelta(hours=1))

    def monotonic_s(self) -> float:
        self.advance(0.000_1)
        return super().monotonic_s()


def fill(root: Path, *, tag: str = "") -> None:
    """Make new directories with files, two levels deep."""
    for n in range(N_FILES):
        path = root / "new" / f"d{n // WIDTH}" / f"f{n % WIDTH}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{tag}{n}\n" * 20)


def object_files(workspace: Workspace) -> set[str]:
    objects = workspace._folder.ledger / "objects"
    return {str(path.relative_to(objects)) for path in objects.rglob("*") if path.is_file()}


def files_in(directory: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(directory))


def shapes(root: Path) -> None:
    """Many files of all kinds and modes, and changes of old ones."""
    chance = random.Random(14)
    for n in range(120):
        directory = root / "/".join(chance.choices("abc", k=chance.randint(1, 4)))
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"f{n}"
        if n % 7 == 0:
            path.symlink_to("../nowhere")
        elif n % 11 == 0:
            path.mkdir()
        elif n % 13 == 0:
            os.mkfifo(path)
        else:
            path.write_bytes(chance.randbytes(chance.choice((0, 3, 300, 70_000))))
            path.chmod(chance.choice((0o644, 0o755, 0o600)))
    (root / "a" / os.fsdecode(b"\xff\n")).write_bytes(b"odd")
    for n in range(80):
        if n % 3 == 0:
            (root / f"old/{n}").unlink()
        else:
            (root / f"old/{n}").write_text(f"{n} is new")


OLD = {f"old/{n}": b"old" for n in range(100)}


def test_commit_of_many_new_files_adds_one_pack_and_its_index(tmp_path: Path) -> None:
    with made(tmp_path) as workspace:
        root = folder(tmp_path).files
        with calls(workspace, doing(lambda: fill(root))) as call:
            before = object_files(workspace)
            assert call("act").result.success
            new = object_files(workspace) - before
            packed = sorted(Path(path).suffix for path in new if path.startswith("pack"))
            assert packed == [".idx", ".pack"]
            assert len(new) <= 2 + ADMINISTRATION, new
        committed = picture(root)
        workspace.undo()
        assert list(root.iterdir()) == []
        workspace.redo()
        assert_same(committed, picture(root))
    assert_fsck_clean(folder(tmp_path).ledger)


def test_many_changed_files_are_committed_like_a_few(tmp_path: Path) -> None:
    with made(tmp_path, OLD) as workspace:
        root = folder(tmp_path).files
        with calls(workspace, doing(lambda: shapes(root))) as call:
            assert call("act").result.success
        for path in root.rglob("*"):
            if path.is_fifo():  # the history has none
                path.unlink()
        with DiskTree(root) as tree:
            one_by_one = capture_all(tree, workspace._ledger.store, known=workspace.head.files)
        assert workspace.head.files == one_by_one
    assert_fsck_clean(folder(tmp_path).ledger)


def test_rollback_of_many_changed_files_restores_contents_kinds_and_modes(tmp_path: Path) -> None:
    with made(tmp_path, OLD) as workspace:
        root = folder(tmp_path).files
        before = picture(root)
        with calls(workspace, doing(lambda: shapes(root), fails=True)) as call:
            call("act")
            assert_same(before, picture(root))
            workspace.restore_discarded(1)
        assert (root / "a" / os.fsdecode(b"\xff\n")).read_bytes() == b"odd"
        assert (root / "old/1").read_text() == "1 is new"
    assert_fsck_clean(folder(tmp_path).ledger)


def test_rollback_resets_the_mode_of_the_root_beside_many_files_that_just_changed(
    tmp_path: Path,
) -> None:
    files = {f"d/{n}": b"1" for n in range(100)}
    with made(tmp_path, files, config=WorkspaceConfig(force_scan=True)) as workspace:
        root = folder(tmp_path).files
        with workspace.call("rewrite"):
            for name in files:
                (root / name).write_bytes(b"2")
        with pytest.raises(RuntimeError, match="no"), workspace.call("chmod"):
            root.chmod(0o700)
            raise RuntimeError("no")
        assert root.stat().st_mode & 0o777 == 0o755
        assert workspace.files.read_bytes("d/99") == b"2"


def test_rollback_renames_a_new_directory_once_and_reads_nothing_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed: list[object] = []
    rename = os.rename

    def renaming(old: object, new: object, **where: object) -> None:
        if where:
            renamed.append(old)
        rename(old, new, **where)  # type: ignore[arg-type] - what the system call takes

    with made(tmp_path, {"a.txt": b"a"}) as workspace:
        root, tracker = folder(tmp_path).files, workspace._opened.tracker
        with calls(workspace, doing(lambda: fill(root), fails=True)) as call:
            call("ls")
            monkeypatch.setattr(os, "rename", renaming)
            before = tracker.n_visited
            call("act")
            assert renamed == ["new"]
            assert tracker.n_visited - before < 10
            monkeypatch.undo()
            before = tracker.n_visited
            call("ls")
            assert tracker.n_visited - before < 5
            (root / "a.txt").write_text("still watched")
            call("ls")
            external = [entry for entry in workspace.log() if entry.kind == "external"]
            assert len(external) == 1


IN_OLD_DIRECTORIES = {"many/keep": b"keep", "many/sub/f": b"f", "other/keep": b"keep"}


def fill_old_directories(root: Path) -> None:
    """Add many entries to directories that exist, and change one of the old ones."""
    for n in range(200):
        (root / f"many/f{n}").write_text(f"{n}\n")
        (root / f"other/f{n}").write_text(f"{n}\n")
    (root / "many/link").symlink_to("keep")
    (root / "many/keep").write_text("changed")


def count_calls(counts: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, add the calls of these functions of ``os``."""

    def count(name: str) -> None:
        real = getattr(os, name)

        def counting(*args: object, **options: object) -> object:
            counts[name] += 1
            return real(*args, **options)

        monkeypatch.setattr(os, name, counting)

    for name in counts:
        count(name)


SCANNING = WorkspaceConfig(force_scan=True)  # as after more events than the kernel queues


@pytest.mark.behaviour(97)
@pytest.mark.parametrize("mode", ["copy", "overlay"])
def test_rollback_of_many_new_files_that_a_scan_finds_renames_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    if mode == "overlay" and not overlay_support(tmp_path).available:
        pytest.skip("no overlays here")
    counts = {"rename": 0, "open": 0}

    with made(tmp_path, IN_OLD_DIRECTORIES, mode=mode, config=SCANNING) as workspace:
        root = workspace._opened.tree.root
        before = picture(root)
        with workspace.call("act") as call:
            fill_old_directories(root)
            for n in range(100):
                (root / f"top{n}").write_text(f"{n}\n")
            call.fail("it failed")
            count_calls(counts, monkeypatch)
        monkeypatch.undo()
        assert 500 <= counts["rename"] < 520
        assert counts["open"] < 100
        assert_same(before, picture(root))
        (found,) = workspace.discarded()
        workspace.restore_discarded(found.id)
        assert (root / "top99").read_text() == "99\n"
        assert files_in(root) == len(IN_OLD_DIRECTORIES) + 500 + 1
    assert_fsck_clean(folder(tmp_path).ledger)


@pytest.mark.parametrize("mode", ["copy", "overlay"])
@pytest.mark.parametrize("config", [WorkspaceConfig(), SCANNING])
def test_commit_of_many_new_files_opens_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, config: WorkspaceConfig
) -> None:
    if mode == "overlay" and not overlay_support(tmp_path).available:
        pytest.skip("no overlays here")
    counts = {"fstat": 0, "open": 0}

    with made(tmp_path, IN_OLD_DIRECTORIES, mode=mode, config=config) as workspace:
        root, tracker = workspace._opened.tree.root, workspace._opened.tracker
        with workspace.call("act"):
            fill_old_directories(root)
            fill(root)
            n_visited = tracker.n_visited
            count_calls(counts, monkeypatch)
        monkeypatch.undo()
        n_new = 400 + N_FILES
        # a snapshot and the commit
        n_scans = 2 if config is SCANNING else 1
        assert tracker.n_visited - n_visited < n_scans * (n_new + 60)
        assert n_new <= counts["fstat"] < n_new + 120
        assert n_new <= counts["open"] < n_new + 120
        committed = picture(root)
        workspace.undo()
        assert files_in(root) == len(IN_OLD_DIRECTORIES)
        workspace.redo()
        assert_same(committed, picture(root))


def test_names_of_an_overlay_are_forgotten_after_new_files_were_read_also_if_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before: each name would have to be found again."""
    if not overlay_support(tmp_path).available:
        pytest.skip("no overlays here")
    steps: list[str] = []
    forget, read = OverlayMount.forget_names, TreeHistory._write_tree
    fails = False

    def forgetting(mount: OverlayMount) -> None:
        steps.append("forget")
        forget(mount)

    def reading(history: TreeHistory, dirty: Dirty) -> str:
        steps.append("read")
        if fails:
            raise LedgerError("the disk is full")
        return read(history, dirty)

    monkeypatch.setattr(OverlayMount, "forget_names", forgetting)
    # the only step of a snapshot that reads files
    monkeypatch.setattr(TreeHistory, "_write_tree", reading)
    with made(tmp_path, mode="overlay") as workspace:
        root = workspace._opened.tree.root
        with workspace.call("act"):
            steps.clear()
            fill(root)
        assert steps == ["read", "forget"]
        (root / "other").mkdir()
        (root / "other/f").touch()
        steps.clear()
        fails = True
        with pytest.raises(LedgerError), workspace.call("fails"):
            pass
        assert steps[:2] == ["read", "forget"]
        fails = False


@pytest.mark.behaviour(97)
def test_call_after_a_rollback_reads_no_status_of_files_that_stayed(tmp_path: Path) -> None:
    old = {f"many/old{n}": b"old" for n in range(300)}
    with made(tmp_path, {**old, **IN_OLD_DIRECTORIES}) as workspace:
        root, tracker = folder(tmp_path).files, workspace._opened.tracker
        act = doing(lambda: fill_old_directories(root), fails=True)
        with calls(workspace, act) as call:
            call("act")
            n_visited = tracker.n_visited
            call("ls")
            assert tracker.n_visited - n_visited < 5
            (root / "many/old7").unlink()
            (root / "many/f3").write_text("new")
            call("ls")
            external = [entry for entry in workspace.log() if entry.kind == "external"]
            assert [entry.subject for entry in external] == ["2 paths changed outside of any call"]


@pytest.mark.parametrize("mode", ["copy", "overlay"])
def test_rollback_of_many_new_files_in_old_directories_enters_each_directory_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    if mode == "overlay" and not overlay_support(tmp_path).available:
        pytest.skip("no overlays here")
    entered: list[object] = []
    moving_out = DiskTree.moving_out

    def entering(tree: DiskTree, path: WorkspacePath, directory: int) -> object:
        entered.append(path)
        return moving_out(tree, path, directory)

    monkeypatch.setattr(DiskTree, "moving_out", entering)
    with made(tmp_path, IN_OLD_DIRECTORIES, mode=mode) as workspace:
        root, tracker = workspace._opened.tree.root, workspace._opened.tracker
        before = picture(root)
        act = doing(lambda: fill_old_directories(root), fails=True)
        with calls(workspace, act) as call:
            call("ls")
            n_visited = tracker.n_visited
            call("act")
            assert sorted(map(str, entered)) == ["many", "other"]
            assert tracker.n_visited - n_visited < 3 * 402
            assert_same(before, picture(root))
            n_visited = tracker.n_visited
            call("ls")
            assert tracker.n_visited - n_visited < 5
            (root / "many/f1").write_text("still watched")
            call("ls")
            external = [entry for entry in workspace.log() if entry.kind == "external"]
            assert len(external) == 1
            (found,) = workspace.discarded()
            workspace.restore_discarded(found.id)
        assert (root / "many/keep").read_text() == "changed"
        assert (root / "other/f199").read_text() == "199\n"
        assert (root / "many/link").is_symlink()
        assert files_in(root) == len(IN_OLD_DIRECTORIES) + 400 + 1


@pytest.mark.parametrize("config", [WorkspaceConfig(), SCANNING])
def test_file_that_cannot_be_moved_aside_among_many_is_deleted_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: WorkspaceConfig
) -> None:
    rename = os.rename

    def failing(old: object, new: object, **where: object) -> None:
        if where and old == "f7":
            raise OSError(errno.EIO, "it is refused")
        rename(old, new, **where)  # type: ignore[arg-type] - what the system call takes

    with made(tmp_path, IN_OLD_DIRECTORIES, config=config) as workspace:
        root = folder(tmp_path).files
        before = picture(root)
        act = doing(lambda: fill_old_directories(root), fails=True)
        with calls(workspace, act) as call:
            monkeypatch.setattr(os, "rename", failing)
            call("act")
            monkeypatch.undo()
        assert_same(before, picture(root))
        (found,) = workspace.discarded()
        assert [each.path for each in found.dropped.named] == ["many/f7", "other/f7"]
        assert "many/f8" in map(str, workspace.discarded_paths(found))


def test_files_that_a_failed_rollback_left_are_found_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither moved nor deleted: the tracker, which knows that they leave, does not forget."""

    def refusing(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "it is refused")

    with made(tmp_path, IN_OLD_DIRECTORIES, config=SCANNING) as workspace:
        root, history = folder(tmp_path).files, workspace._history
        before, token = picture(root), workspace._history.snapshot()
        fill_old_directories(root)
        with monkeypatch.context() as failing:
            failing.setattr(os, "rename", refusing)
            failing.setattr(os, "unlink", refusing)
            with pytest.raises(FilesystemError, match="could not be restored"):
                history.restore(token)
        assert len(list((root / "many").iterdir())) > 200
        history.restore(token)
        assert_same(before, picture(root))


@pytest.mark.parametrize("config", [WorkspaceConfig(), SCANNING])
@pytest.mark.parametrize("n_moved", [1, 150, 401])
def test_rollback_killed_while_it_moves_many_files_is_completed_by_the_next_process(
    tmp_path: Path, n_moved: int, config: WorkspaceConfig
) -> None:
    left = tmp_path / "left"
    moved = 0

    def hook(point: KillPoint) -> None:
        nonlocal moved
        moved += point is KillPoint.HELD_MOVED
        if point is KillPoint.HELD_MOVED and moved == n_moved:
            copied(tmp_path / "run", left)  # what the death of the process would leave

    (tmp_path / "run").mkdir()
    with made(tmp_path / "run", IN_OLD_DIRECTORIES, config=config) as workspace:
        root = folder(tmp_path / "run").files
        before = picture(root)
        with calling(hook), workspace.call("act") as call:
            fill_old_directories(root)
            call.fail("it failed")
    root = folder(left).files
    with reopened(left) as again:
        assert_same(before, picture(root))
        kept = {str(path) for each in again.discarded() for path in again.discarded_paths(each)}
        for n in range(200):
            assert {f"many/f{n}", f"other/f{n}"} <= kept
    assert_fsck_clean(folder(left).ledger)


def test_files_that_leave_an_old_directory_are_recorded_by_another_process(tmp_path: Path) -> None:
    """It knows only the plan; some are over the limit."""
    left = tmp_path / "left"
    limited = WorkspaceConfig(retention=Retention(discard_bytes=N_FILES * 4))
    (tmp_path / "run").mkdir()
    with made(tmp_path / "run", {"many/keep": b"keep"}, config=limited) as workspace:
        root = folder(tmp_path / "run").files
        with workspace.call("act") as call:
            for n in range(N_FILES):
                (root / f"many/f{n}").write_bytes(b"12345" if n == 0 else b"1234")
            call.fail("it failed")
        copied(tmp_path / "run", left)
    with reopened(left, config=limited) as again:
        (found,) = again.discarded()
        assert [each.path for each in found.dropped.named] == ["many/f0"]
        kept = {str(path) for path in again.discarded_paths(found)}
        assert kept >= {f"many/f{n}" for n in range(1, N_FILES)}
        assert "many/f0" not in kept
        again.restore_discarded(found.id)
        assert files_in(folder(left).files) == N_FILES
    assert_fsck_clean(folder(left).ledger)


@pytest.mark.parametrize("mode", ["copy", "overlay"])
def test_many_files_of_an_old_directory_are_kept_with_the_reserved_space(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After more changes than the kernel queues, it also forgets names of an overlay."""
    if mode == "overlay" and not overlay_support(tmp_path).available:
        pytest.skip("no overlays here")
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    real_rename = os.rename

    with made(tmp_path, IN_OLD_DIRECTORIES, mode=mode) as workspace:
        root, reserve = workspace._opened.tree.root, folder(tmp_path).reserve
        with workspace.call("copy up") as call:
            for name in ("many/keep", "other/keep"):
                call.files.write_text(name, "new")
        before = picture(root)

        def rename(path: Any, *rest: Any, **options: Any) -> None:
            if path == "f0" and reserve.exists():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real_rename(path, *rest, **options)

        with monkeypatch.context() as failing, workspace.call("act") as call:
            fill_old_directories(root)
            for n in range(limit + 10):
                (root / ("many/keep", "other/keep")[n % 2]).chmod(0o600 + n % 8)
            failing.setattr(os, "rename", rename)
            call.fail("it failed")
        assert_same(before, picture(root))
        (found,) = workspace.discarded()
        kept = {str(path) for path in workspace.discarded_paths(found)}
        assert not found.dropped
        assert kept >= {f"{each}/f{n}" for each in ("many", "other") for n in range(200)}


def test_plan_is_read_as_it_was_written() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    cause = DiscardCause(reason="rolled back", call_id="c", number=1, files="f" * 40, at=at)
    plan = DiscardPlan(base="b" * 40, wanted="a" * 40)
    for number, paths in enumerate((plan.moves, plan.gone, plan.same, plan.flipped)):
        paths.append(WorkspacePath(("d", f"f{number}")))
    plan.drop(WorkspacePath(("large",)), 7, "over the limit")
    assert DiscardPlan.from_json(plan.to_json(cause)) == (plan, cause)


def test_discard_of_many_files_is_recorded_and_deleted_in_steps_between_calls(
    tmp_path: Path,
) -> None:
    clock = TickingClock()
    with made(tmp_path, clock=clock) as workspace:
        root, store = folder(tmp_path).files, workspace._ledger.store
        with calls(workspace, doing(lambda: fill(root), fails=True)) as call:
            call("act")
            discards = folder(tmp_path).discarded
            costs: list[tuple[int, int]] = []
            while list(discards.iterdir()):
                before = store.n_written, files_in(discards)
                assert call("ls").result.success
                costs.append((store.n_written - before[0], before[1] - files_in(discards)))
                assert len(costs) < N_FILES
        assert max(n_written for n_written, _ in costs) < 40
        assert max(n_deleted for _, n_deleted in costs) < 40
        assert len(costs) > 2 * N_FILES // 40
        (found,) = workspace._ledger.discarded()
        assert len(workspace.discarded_paths(found)) == N_FILES + N_DIRECTORIES + 1
    assert_fsck_clean(folder(tmp_path).ledger)


def test_discard_of_many_files_is_recorded_from_the_second_call_on(tmp_path: Path) -> None:
    with made(tmp_path, clock=TickingClock()) as workspace:
        root, packs = folder(tmp_path).files, folder(tmp_path).ledger / "objects/pack"
        with calls(workspace, doing(lambda: fill(root), fails=True)) as call:
            call("act")
            call("ls")
            assert not list(packs.glob("tmp_pack_*")), "the kernel still frees the memory of names"
            call("ls")
            assert list(packs.glob("tmp_pack_*"))


def test_discards_of_many_files_are_recorded_although_each_call_fails(tmp_path: Path) -> None:
    with made(tmp_path, clock=TickingClock()) as workspace:
        root, discards = folder(tmp_path).files, folder(tmp_path).discarded
        with calls(workspace, doing(lambda: fill(root), fails=True)) as call:
            call("act")
            first = min(discards.iterdir())
            for _ in range(N_FILES):
                call("act")
                if not first.exists():
                    break
        assert not first.exists()


@pytest.mark.parametrize("n_calls", [0, 1, 2, 13, 21])
def test_discard_whose_recording_is_interrupted_is_recorded_by_the_next_process(
    tmp_path: Path, n_calls: int
) -> None:
    workspace = made(tmp_path, clock=TickingClock())
    root = folder(tmp_path).files
    with calls(workspace, doing(lambda: fill(root), fails=True)) as call:
        call("act")
        for _ in range(n_calls):
            assert call("ls").result.success
    die(workspace)
    with reopened(tmp_path) as again:
        (found,) = again.discarded()
        again.restore_discarded(found.id)
        assert (root / "new/d5/f49").read_text() == f"{N_FILES - 1}\n" * 20
        assert files_in(root) == N_FILES
        again.maintain()
        assert list(folder(tmp_path).discarded.iterdir()) == []
    assert_fsck_clean(folder(tmp_path).ledger)


def test_garbage_collection_during_a_recording_loses_nothing_of_the_discard(
    tmp_path: Path,
) -> None:
    with made(tmp_path, clock=TickingClock()) as workspace:
        root = folder(tmp_path).files

        def act() -> None:
            fill(root)
            (root / "new/large").write_bytes(os.urandom(300_000))

        with calls(workspace, doing(act, fails=True)) as call:
            call("act")
            for _ in range(5):
                call("ls")
            assert workspace._ledger.maintain(Retention()).ran
            for _ in range(4):
                call("ls")
        (found,) = workspace.discarded()
        assert len(workspace.discarded_paths(found)) == N_FILES + N_DIRECTORIES + 2
    assert_fsck_clean(folder(tmp_path).ledger)


def test_limit_on_waiting_discards_drops_files_of_the_oldest_first(tmp_path: Path) -> None:
    limit_bytes = 5_000_000
    config = WorkspaceConfig(retention=Retention(discard_bytes=limit_bytes))
    with made(tmp_path, config=config, clock=TickingClock()) as workspace:
        root = folder(tmp_path).files

        def act(n: int) -> None:
            (root / "new").mkdir()
            for k in range(3):
                (root / f"new/{n}-{k}").write_bytes(os.urandom(1_000_000 + k))

        for n in (1, 2):
            with calls(workspace, doing(lambda n=n: act(n), fails=True)) as call:
                call("act")
        notes = workspace.record(workspace.head).event.notes
        oldest, newest = workspace.find_discarded(1), workspace.find_discarded(2)
        dropped = [each.path for each in oldest.dropped.named]
        assert dropped == ["new/1-2", "new/1-1"]
        assert not newest.dropped
        assert ["new/1-2 (1,000,002 bytes, over the limit" in note for note in notes] == [True]
