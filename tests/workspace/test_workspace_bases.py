"""Bases: checkouts of one tree that all workspaces of a state directory share."""

from __future__ import annotations

import errno
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import random_cases
from kill_rig import Server, spread
from workspace_rig import assert_fsck_clean, assert_same, picture
from workspace_support import make_tree

from wink_workspace.clock import SYSTEM_CLOCK, Clock, ManualClock
from wink_workspace.errors import FilesystemError, MountError
from wink_workspace.filesystem import WorkspacePath
from wink_workspace.filesystem.changes import FileIndex
from wink_workspace.filesystem.changes.index import status_of
from wink_workspace.filesystem.disk import descriptors
from wink_workspace.filesystem.disk.tree import DiskTree
from wink_workspace.filesystem.overlay.mounting import overlay_support
from wink_workspace.ledger import EMPTY_TREE_ID, Ledger, Retention, diff, entry_at, walk
from wink_workspace.sandbox.git_directory import host_owner
from wink_workspace.workspace import Workspace, WorkspaceStorage
from wink_workspace.workspace.create import bases as bases_module
from wink_workspace.workspace.create.bases import Base, BaseStore, ImportedBase, collect_bases
from wink_workspace.workspace.create.importing import begin_history
from wink_workspace.workspace.create.overlay_branches import _is_near
from wink_workspace.workspace.create.source_survey import SourceWalk, Survey
from wink_workspace.workspace.files.checkout import write_files
from wink_workspace.workspace.place.path_rules import ImportConfig

FILES: dict[str, str | bytes | None] = {
    "a.txt": "one\n",
    "run.sh": "#!/bin/sh\n",
    "d/b.txt": "b\n",
    "d/sub/large.bin": bytes(range(256)) * 40_000,
    "d/sub/noise.bin": random.Random(1).randbytes(40_000),
    "link": "-> a.txt",
    "empty": None,
    ".git/HEAD": "ref: refs/heads/main\n",
    "nested/.git/HEAD": "ref: refs/heads/main\n",
    "\udcff odd": "not UTF-8\n",
}


class Machine:
    """A source, a state directory, and ledgers that get the objects."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.source = make_tree(top / "source", FILES)
        self.clock: Clock = SYSTEM_CLOCK
        self.config = ImportConfig()
        self._numbers = count(1)
        self.ledger = Path()

    @property
    def store(self) -> BaseStore:
        return BaseStore(self.top / "state", self.clock)

    @property
    def bases(self) -> list[str]:
        """The names of everything that is kept, without what every state directory has."""
        root = self.top / "state" / "bases"
        return sorted({path.name for path in root.glob("*")} - {"claims", "sources"})

    def new_ledger(self) -> Path:
        self.ledger = self.top / f"ledger-{next(self._numbers)}.git"
        Ledger.create(self.ledger)
        return self.ledger

    def imported(self, store: BaseStore | None = None) -> ImportedBase:
        """As ``new`` does it."""
        return (store or self.store).import_source(
            self.source, self.new_ledger(), config=self.config
        )

    def let_an_hour_pass(self) -> None:
        """Nothing on disk is racily clean any more."""
        self.clock = ManualClock(datetime.now(UTC) + timedelta(hours=1))

    def checked_out(self, tree: str) -> dict[bytes, tuple[str, int, bytes]]:
        """The files of a tree of the newest ledger."""
        directory = self.top / f"out-{next(self._numbers)}"
        directory.mkdir()
        with Ledger(self.ledger) as ledger, DiskTree(directory) as files:
            write_files(files, ledger.store, tree)
        found = picture(directory)
        shutil.rmtree(directory)
        return found

    def original(self) -> dict[bytes, tuple[str, int, bytes]]:
        """The files of the source, without its own repository and what cannot be imported."""
        found = picture(self.source)
        return {
            path: entry
            for path, entry in found.items()
            if entry[0] != "other" and path.split(b"/")[0] != b".git"
        }


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The paths of the files whose content is read from now on, after the first import."""
    found: list[str] = []
    real = DiskTree.open

    def counted(tree: DiskTree, path: WorkspacePath) -> BinaryIO:
        found.append(str(path))
        return real(tree, path)

    monkeypatch.setattr(DiskTree, "open", counted)
    return found


# Making


def test_a_base_has_the_files_of_its_source_and_every_ledger_has_its_objects(
    machine: Machine,
) -> None:
    done = machine.imported()
    assert_same(machine.original(), picture(done.base.files))
    assert picture(done.base.lower / "held") == {}
    owner = host_owner()
    assert {path.lstat().st_uid for path in done.base.files.rglob("*.txt")} == {
        os.geteuid() if owner is None else owner
    }
    assert (done.report.n_files, done.report.skipped) == (7, ())
    assert done.changed == ()
    assert done.base.name == machine.bases[0]
    again = machine.imported()
    assert (again.tree, again.base.path, again.report) == (done.tree, done.base.path, done.report)
    assert_same(machine.original(), machine.checked_out(again.tree))
    assert_fsck_clean(machine.ledger)


def test_a_second_import_of_an_unchanged_source_reads_no_file(
    machine: Machine, reads: list[str]
) -> None:
    machine.let_an_hour_pass()
    machine.imported()
    machine.imported()
    assert reads == []


def test_a_second_workspace_of_an_unchanged_source_reads_each_status_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not overlay_support(tmp_path).available:
        pytest.skip("no overlays here")
    tag = b"Signature: 8a477f597d28d172789f06886806bc55"
    files = {f"d{n % 10}/f{n}": "old\n" for n in range(300)} | {
        "cache/CACHEDIR.TAG": tag,
        "cache/f": "derived",
        "node_modules/f": "derived",
    }
    source = make_tree(tmp_path / "source", files)
    storage = WorkspaceStorage(tmp_path / "state")
    clock = ManualClock(datetime.now(UTC) + timedelta(hours=1))  # so that no file is racily clean

    def create() -> Workspace:
        return Workspace.create(source, storage=storage, mode="overlay", clock=clock)

    create().close()
    n_listed = n_statuses = 0
    listed, status = descriptors.entries_of, os.stat

    def listing(directory: int) -> list[tuple[str, os.stat_result]]:
        nonlocal n_listed
        found = listed(directory)
        n_listed += len(found)
        return found

    def reading(*args: object, **options: object) -> os.stat_result:
        nonlocal n_statuses
        n_statuses += "dir_fd" in options  # others are of modules that are loaded
        return status(*args, **options)  # type: ignore[arg-type] - what the system call takes

    monkeypatch.setattr(descriptors, "entries_of", listing)
    monkeypatch.setattr(os, "stat", reading)
    with create() as workspace:
        monkeypatch.undo()
        assert 300 <= n_listed < 300 + 60
        assert n_statuses < 20
        assert workspace.files.read_bytes("d0/f0") == b"old\n"
    (index,) = (tmp_path / "state/bases/sources").iterdir()
    before = index.stat().st_ino
    create().close()
    assert index.stat().st_ino == before  # nothing looked changed


def test_files_that_just_changed_are_read_once_more_and_then_trusted(
    machine: Machine, reads: list[str]
) -> None:
    machine.imported()
    machine.let_an_hour_pass()
    machine.imported()
    assert sorted(reads) == sorted(
        os.fsdecode(path) for path, entry in machine.original().items() if entry[0] == "file"
    )
    reads.clear()
    machine.imported()
    assert reads == []


def test_files_that_changed_last_are_read_again_if_a_server_sets_their_times(
    machine: Machine, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clock may be late and coarse, so the next change may get the same time."""
    monkeypatch.setattr(DiskTree, "keeps_times", False)
    machine.let_an_hour_pass()
    for _ in range(2):  # the statuses are those of the first import, then of the second one
        machine.imported()
        reads.clear()
        machine.imported()
        assert sorted(reads) == sorted(
            os.fsdecode(path) for path, entry in machine.original().items() if entry[0] == "file"
        )


def test_only_changed_files_are_read_and_reported(machine: Machine, reads: list[str]) -> None:
    machine.let_an_hour_pass()
    first = machine.imported()
    (machine.source / "a.txt").write_text("two\n")
    (machine.source / "touched").touch()
    (machine.source / "empty" / "new").write_text("new\n")
    os.utime(machine.source / "d" / "b.txt")
    (machine.source / "run.sh").unlink()
    for _ in range(2):
        done = machine.imported()
        assert set(reads) <= {"a.txt", "touched", "empty/new", "d/b.txt"}
        assert [str(path) for path in done.changed] == ["a.txt", "empty/new", "run.sh", "touched"]
        assert done.base.path == first.base.path
        assert done.report.n_files == first.report.n_files + 1
        assert_same(machine.original(), machine.checked_out(done.tree))
        assert_fsck_clean(machine.ledger)
        reads.clear()


def test_any_edits_of_a_source_give_the_tree_of_a_new_import(machine: Machine) -> None:
    """Random edits, also several within one tick of the filesystem's clock."""
    chosen = random.Random(7)
    done = machine.imported()
    for n in range(25):
        for _ in range(chosen.randint(0, 3)):
            edit(machine.source, chosen)
        done = machine.imported()
        assert_same(machine.original(), machine.checked_out(done.tree))
        with Ledger(machine.ledger) as ledger:
            differing = diff(ledger.store, done.base.tree, done.tree)
            assert done.changed == tuple(change.path for change in differing)
        fresh = BaseStore(machine.top / f"fresh-{n}")
        whole = machine.imported(fresh)
        assert (whole.tree, whole.report) == (done.tree, done.report)
        shutil.rmtree(machine.top / f"fresh-{n}")
    assert done.changed


@pytest.mark.parametrize("place", ["in the source", "beside it"])
def test_a_directory_that_is_moved_between_the_walk_and_the_comparison_is_compared_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Its statuses stay the same in both places, so nothing else shows that it was moved."""
    places = [machine.source / "moved", machine.top / "moved"]
    if place == "beside it":
        places.reverse()
    make_tree(places[0], {"f": "1", "sub/f": "2"})
    machine.let_an_hour_pass()
    for _ in range(2):
        machine.imported()
    walk = SourceWalk.run

    def run(self: SourceWalk, **options: Any) -> Survey:
        found = walk(self, **options)
        places[1].rename(places[0])
        return found

    places[0].rename(places[1])
    # No other program can be made to move it at this moment
    with monkeypatch.context() as patch:
        patch.setattr(SourceWalk, "run", run)
        machine.imported()
    for _ in range(2):
        places[0].rename(places[1])
        places.reverse()
        assert_same(machine.original(), machine.checked_out(machine.imported().tree))


def test_a_directory_that_is_made_again_between_imports_has_its_new_files(machine: Machine) -> None:
    machine.let_an_hour_pass()
    machine.imported()
    empty = machine.source / "empty"
    empty.rmdir()
    os.utime(machine.source / "a.txt")  # equal, so that the new statuses are stored
    assert [str(path) for path in machine.imported().changed] == ["empty"]
    empty.mkdir()
    (empty / "f").write_text("1")
    assert [str(path) for path in machine.imported().changed] == ["empty/f"]


def edit(source: Path, chosen: random.Random) -> None:
    """One change of the kinds that editors and build tools make."""
    paths = [path for path in source.rglob("*") if ".git" not in path.parts]
    path = chosen.choice(paths)
    other = source / chosen.choice(["new", "d/new", "a.txt", "empty", "d/sub"])
    match chosen.randrange(8):
        case 0 if path.is_file() and not path.is_symlink():
            path.write_bytes(path.read_bytes()[:100].swapcase())  # mostly of the same size
        case 1 if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        case 2 if not path.is_dir():
            path.unlink()
        case 3 if path.is_file():
            path.chmod(path.stat().st_mode ^ 0o111)
        case 4 if not path.is_dir():
            path.unlink()
            path.mkdir()
            (path / "inside").write_text("x")
        case 5 if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
            path.symlink_to("a.txt")
        case 6 if not os.path.lexists(other) and other.parent.is_dir():
            path.rename(other) if path not in other.parents else None
        case _ if path.is_file():
            os.utime(path)


RULE_CHANGES: dict[str, Callable[[Machine], object]] = {
    "an ignored name": lambda at: (at.source / ".gitignore").write_text("build\n"),
    "a tag": lambda at: make_tree(at.source / "nested", {"CACHEDIR.TAG": CACHE_TAG}),
    "a tag that is gone": lambda at: (at.source / "cache/CACHEDIR.TAG").unlink(),
    "no longer tracked": lambda at: git(at.source, "rm", "-q", "--cached", "-r", "tracked"),
    "tracked now": lambda at: git(at.source, "add", "-f", "untracked/node_modules/f"),
    "excluded": lambda at: setattr(at, "config", ImportConfig(exclude=("b.txt",))),
    "derived": lambda at: setattr(at, "config", ImportConfig(derived=("b.txt",))),
    "not proposed": lambda at: setattr(at, "config", ImportConfig(propose_derived=False)),
}
CACHE_TAG = b"Signature: 8a477f597d28d172789f06886806bc55"


@pytest.mark.parametrize("change", RULE_CHANGES)
def test_other_rules_count_in_directories_that_did_not_change(
    machine: Machine, change: str
) -> None:
    for name in (".git", "d/sub"):
        shutil.rmtree(machine.source / name)
    unrecorded = {
        "build/f": "1",
        "cache/CACHEDIR.TAG": CACHE_TAG,
        "cache/f": "1",
        "tracked/node_modules/f": "1",
        "untracked/node_modules/f": "1",
    }
    make_tree(machine.source, unrecorded)
    git(machine.source, "init", "-q")
    git(machine.source, "add", "-f", "a.txt", "d", "tracked")
    machine.let_an_hour_pass()
    for _ in range(2):
        before = machine.imported()
    RULE_CHANGES[change](machine)
    done = machine.imported()
    whole = machine.imported(BaseStore(machine.top / "fresh", machine.clock))
    assert done.found.rules == whole.found.rules != before.found.rules
    assert done.found.derived == whole.found.derived
    assert (done.tree, done.report) == (whole.tree, whole.report)


def git(source: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=source, check=True)


def test_a_source_with_many_changes_gets_a_base_of_its_own(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Four changed files in place of a thousand
    monkeypatch.setattr("wink_workspace.workspace.create.bases._MAX_CHANGED_FILES", 3)
    first = machine.imported()
    for n in range(4):
        (machine.source / f"new-{n}").write_text("x")
    second = machine.imported()
    assert second.changed == ()
    assert second.base.tree == second.tree != first.tree
    assert len(machine.bases) == 2
    third = machine.imported()
    assert third.base.path == second.base.path


def test_paths_that_cannot_be_imported_are_reported_each_time(machine: Machine) -> None:
    os.mkfifo(machine.source / "pipe")
    first = machine.imported()
    assert first.report.skipped == ("pipe",)
    assert machine.imported().report == first.report
    machine.let_an_hour_pass()
    assert machine.imported().report == first.report
    assert machine.imported().report == first.report


def test_a_source_that_is_not_a_directory_is_refused_and_leaves_nothing(machine: Machine) -> None:
    with pytest.raises(MountError, match="cannot copy"):
        machine.store.import_source(machine.source / "a.txt", machine.new_ledger())
    assert not (machine.top / "state").exists()


def test_two_sources_with_equal_files_share_a_base(machine: Machine) -> None:
    first = machine.imported()
    shutil.copytree(machine.source, machine.top / "clone", symlinks=True)
    machine.source = machine.top / "clone"
    second = machine.imported()
    assert second.base.path == first.base.path
    assert len(machine.bases) == 1
    assert_fsck_clean(machine.ledger)


def test_processes_that_make_the_same_base_at_once_all_get_it(machine: Machine) -> None:
    ledgers = [machine.new_ledger() for _ in range(4)]
    barrier = threading.Barrier(len(ledgers))
    done: list[ImportedBase] = []

    def make(ledger: Path) -> None:
        barrier.wait()
        done.append(machine.store.import_source(machine.source, ledger))

    threads = [threading.Thread(target=make, args=(ledger,)) for ledger in ledgers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({each.base.path for each in done}) == 1
    assert len(done) == len(ledgers)
    assert machine.bases == [done[0].base.name]
    for ledger in ledgers:
        assert_fsck_clean(ledger)


def test_a_base_built_from_a_ledger_equals_one_made_of_the_source(machine: Machine) -> None:
    tree = machine.imported().tree
    with Ledger(machine.ledger) as ledger:
        built = BaseStore(machine.top / "other").build(ledger.store, tree)
    assert_same(machine.original(), picture(built.files))
    assert not built.has_objects


def test_the_nearest_base_is_the_one_with_the_fewest_differences(machine: Machine) -> None:
    first = machine.imported()
    for n in range(5):
        (machine.source / f"new-{n}").write_text("x")
    second = machine.imported()
    (machine.source / "new-4").unlink()
    third = machine.imported()
    with Ledger(machine.ledger) as ledger:
        far = machine.store.nearest(third.tree, ledger.store)
        assert far is not None
        assert far.tree == first.tree
        with Ledger(machine.top / "ledger-2.git") as both:
            machine.store.build(both.store, second.tree).release()
        near = machine.store.nearest(third.tree, ledger.store)
        assert near is not None
        assert near.tree == first.tree  # this ledger does not have the tree of the second


def test_a_base_that_is_collected_while_the_nearest_one_is_looked_for_is_passed_over(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = machine.imported().base
    listed = list(machine.store._all())
    gone = base.path.with_name(f"{base.name[:-40]}{'0' * 40}")
    # As listed before another process retired it
    monkeypatch.setattr(BaseStore, "_all", lambda _: iter([gone, *listed]))
    (machine.source / "new").write_text("x")
    with Ledger(machine.ledger) as ledger:
        near = machine.store.nearest("1" * 40, ledger.store)
    assert near is not None
    assert near.tree == base.tree


@pytest.mark.parametrize("n_others", [0, 1])
def test_a_base_whose_tree_the_history_has_no_more_as_a_whole_is_not_near(
    machine: Machine, n_others: int
) -> None:
    """Retention may delete the tree of a directory and keep that of the directory above."""
    other = BaseStore(machine.top / "other")
    forgotten = machine.imported(other).tree
    (machine.source / "d/b.txt").write_text("later\n")
    later = machine.imported(other).tree
    with Ledger(machine.ledger) as whole, Ledger(machine.new_ledger()) as ledger:
        machine.store.build(whole.store, forgotten).release()
        if n_others:
            machine.store.build(whole.store, EMPTY_TREE_ID).release()
        for each in (forgotten, later, *(entry.id for _, entry in walk(whole.store, later))):
            ledger.store.write(*whole.store.repository.read(each))
        near = machine.store.nearest(later, ledger.store)
        assert near is not None
        assert near.tree == (EMPTY_TREE_ID if n_others else forgotten)
        assert _is_near(near, later, ledger.store) == bool(n_others)


# Garbage collection


def test_only_bases_that_no_branch_names_and_no_process_uses_are_collected(
    machine: Machine,
) -> None:
    used = machine.imported().base
    named = used.name
    assert machine.store.collect(lambda: {named}) == 0
    assert machine.store.collect(set) == 0
    assert machine.bases == [named]
    used.release()
    assert machine.store.collect(lambda: {named}) == 0
    assert machine.store.disk_bytes() > 40_000
    assert machine.store.collect(set) == 1
    assert machine.bases == []
    assert list((machine.top / "state" / "bases" / "sources").iterdir()) == []
    assert_fsck_clean(machine.ledger)
    assert_same(machine.original(), machine.checked_out(used.tree))
    assert machine.imported().base.tree == used.tree


def test_deleting_a_workspace_deletes_the_base_that_no_other_one_uses(machine: Machine) -> None:
    storage = WorkspaceStorage(machine.top / "state")
    base = machine.imported().base
    base.release()
    with (
        Workspace.create(machine.source, storage=storage) as one,
        Workspace.create(machine.source, storage=storage) as other,
    ):
        pass
    (storage.folder(other.info.id).path / "base").write_text(f"{base.name}\n")
    Workspace.delete(one.info.id, storage=storage)
    assert machine.bases == [base.name]
    Workspace.delete(other.info.id, storage=storage)
    assert machine.bases == []


def test_nothing_is_collected_while_it_is_unknown_which_bases_are_used(machine: Machine) -> None:
    base = machine.imported().base
    base.release()
    (machine.top / "state" / "workspaces" / "0" / "base").mkdir(parents=True)
    with pytest.raises(FilesystemError):
        machine.store.collect(machine.store.named_by_branches)
    assert machine.bases == [base.name]


def test_a_collection_that_fails_keeps_no_lock_of_a_base(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = machine.imported().base
    base.release()

    def rename(path: Path, target: object) -> Path:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path), None, str(target))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", rename)
        with pytest.raises(FilesystemError, match="Input/output error"):
            machine.store.collect(set)
    assert machine.store.collect(set) == 1, "its lock can be taken"


def test_a_collection_that_fails_keeps_no_lock_of_what_dead_processes_left(
    machine: Machine,
) -> None:
    bases = machine.top / "state" / "bases"
    (bases / "new-left").mkdir(parents=True)
    (bases / "old-left" / "lock").mkdir(parents=True)
    with pytest.raises(FilesystemError):
        machine.store.collect(set)
    (bases / "old-left" / "lock").rmdir()
    machine.store.collect(set)
    assert machine.bases == []


def test_a_base_whose_name_cannot_be_synced_is_not_in_use(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        if path == machine.top / "state" / "bases":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(bases_module, "sync", fail)
        store = BaseStore(machine.top / "state", machine.clock, durable=True)
        with pytest.raises(FilesystemError, match="Input/output error"):
            machine.imported(store)
    assert machine.store.collect(set) == 1, "its lock can be taken"


def test_collecting_in_a_state_directory_without_bases_does_nothing(machine: Machine) -> None:
    assert machine.store.collect(set) == 0
    assert not (machine.top / "state").exists()


# Damage


def damaged(base: Base, how: str) -> None:
    match how:
        case "missing":
            (base.files / "a.txt").unlink()
        case "changed":
            (base.files / "a.txt").write_text("two\n")
        case "touched":
            os.utime(base.files / "a.txt")
        case "mode":
            (base.files / "d").chmod(0o700)
        case "index":
            (base.path / "index").write_bytes((base.path / "index").read_bytes()[:-1])
        case "note":
            (base.path / "complete").write_bytes(b"")
        case "added":
            (base.files / "d" / "added").touch()


@pytest.mark.parametrize("how", ["missing", "changed", "touched", "mode", "index", "note"])
def test_a_damaged_base_is_not_used_and_is_made_again(
    machine: Machine, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    base = machine.imported().base
    base.release()
    damaged(base, how)
    with caplog.at_level(logging.WARNING), Ledger(machine.ledger) as ledger:
        again = machine.store.build(ledger.store, base.tree)
    assert "is damaged" in caplog.text
    assert again.tree == base.tree
    assert_same(machine.original(), picture(again.files))
    machine.store.collect(lambda: {again.name})
    assert machine.bases == [again.name]


def changed_behind_its_status(base: Base) -> None:
    """Change one file as a fault of the disk would: its status stays that of the index."""
    damaged(base, "changed")
    index = FileIndex.load(base.path / "index")
    assert index is not None
    index.put((), {"a.txt": status_of((base.files / "a.txt").lstat())}, sys.maxsize)
    index.save(base.path / "index")


def restarted(base: Base) -> None:
    """Make the last check of a base one of an earlier boot."""
    note = base.path / "complete"
    note.write_text(note.read_text().replace('"boot": "', '"boot": "an earlier one '))


def test_a_changed_content_behind_an_unchanged_status_is_found_by_its_hash(
    machine: Machine,
) -> None:
    base = machine.imported().base
    base.release()
    changed_behind_its_status(base)
    assert machine.store.verify() == {}
    assert machine.store.verify(contents=True).keys() == {base.name}
    assert machine.store.find(base.tree) is None
    again = machine.imported()
    assert_same(machine.original(), picture(again.base.files))
    assert machine.store.verify(contents=True) == {}


def damaged_objects(base: Base, how: str) -> None:
    """Replace the pack of its objects; ledgers keep the former one, which is a link."""
    packs = (base.objects / "objects" / "pack").glob("*.pack")
    pack = min(packs, key=lambda path: path.stat().st_size)  # the other one has the large file
    content = bytearray(pack.read_bytes())
    pack.unlink()
    if how == "cut":
        pack.write_bytes(content[: len(content) // 2])
    elif how == "changed":
        content[len(content) // 2] ^= 1
        pack.write_bytes(content)


@pytest.mark.parametrize("how", ["cut", "missing"])
def test_a_source_whose_base_lost_objects_is_imported_again(machine: Machine, how: str) -> None:
    base = machine.imported().base
    base.release()
    damaged_objects(base, how)
    again = machine.imported()
    assert_same(machine.original(), machine.checked_out(again.tree))
    assert machine.store.verify(contents=True) == {}
    machine.store.collect(lambda: {again.base.name})
    assert machine.bases == [base.name]


def test_a_changed_byte_of_an_object_is_found_by_its_hash_and_the_base_is_made_again(
    machine: Machine,
) -> None:
    base = machine.imported().base
    base.release()
    damaged_objects(base, "changed")
    assert machine.store.verify() == {}
    assert machine.store.verify(contents=True).keys() == {base.name}
    again = machine.imported()
    assert_same(machine.original(), machine.checked_out(again.tree))
    assert machine.store.verify(contents=True) == {}


def test_verifying_contents_names_the_damaged_file_of_a_base(machine: Machine) -> None:
    base = machine.imported().base
    base.release()
    changed_behind_its_status(base)
    state = base.path.parent.parent
    assert collect_bases(state, checks_contents=True).damaged == {base.name: ("a.txt",)}


def test_verifying_contents_names_the_files_of_a_damaged_object(machine: Machine) -> None:
    machine.source.joinpath("large").write_bytes(random.Random(1).randbytes(100_000))
    base = machine.imported().base
    base.release()
    with Ledger(base.objects) as ledger:
        entry = entry_at(ledger.store, base.tree, WorkspacePath(("large",)))
        assert entry is not None
        (pack,) = (each for each in ledger.store.packs.listed() if entry.id in each.disk_bytes)
    stored = pack.path.with_suffix(".pack")
    content = bytearray(stored.read_bytes())
    content[pack.offsets[entry.id] + pack.disk_bytes[entry.id] // 2] ^= 1
    stored.unlink()
    stored.write_bytes(content)
    state = base.path.parent.parent
    assert collect_bases(state, checks_contents=True).damaged == {base.name: ("large",)}


@pytest.mark.parametrize("how", ["missing", "changed", "touched", "mode", "index", "added"])
def test_verifying_finds_every_damage(machine: Machine, how: str) -> None:
    base = machine.imported().base
    assert machine.store.verify() == {}
    damaged(base, how)
    assert machine.store.verify() == {base.name: ()}
    assert machine.store.find(base.tree) is None


def test_a_base_of_which_a_process_uses_the_damaged_files_stays_for_that_process(
    machine: Machine,
) -> None:
    base = machine.imported().base
    with (base.files / "d" / "b.txt").open("rb") as used:
        damaged(base, "missing")
        machine.store.verify()
        machine.store.collect(set)
        assert machine.bases == [base.name]
        assert machine.store.find(base.tree) is None
        assert used.read() == b"b\n"
    base.release()
    machine.store.collect(set)
    assert machine.bases == []


def test_a_base_that_another_process_has_made_again_during_the_check_stays(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = machine.imported().base
    damaged(base, "missing")
    base.release()
    real, again = Base.has_changed, [machine.imported]

    def make_again_after(checked: Base) -> bool:
        has_changed = real(checked)
        if again:
            assert again.pop()().base.name == base.name
        return has_changed

    monkeypatch.setattr(Base, "has_changed", make_again_after)
    machine.store.verify()
    assert base.name in machine.bases


def test_the_first_use_after_a_restart_checks_every_file(machine: Machine) -> None:
    for n in range(200):  # more than a sample
        (machine.source / "many").mkdir(exist_ok=True)
        (machine.source / "many" / f"{n}").write_text("x")
    base = machine.imported().base
    base.release()
    note = base.path / "complete"
    note.write_text(note.read_text().replace('"boot": "', '"boot": "an earlier one '))
    found = machine.store.find(base.tree)
    assert found is not None
    assert "an earlier one" not in note.read_text()
    found.release()
    (base.files / "many" / "7").write_text("y")
    note.write_text(note.read_text().replace('"boot": "', '"boot": "an earlier one '))
    assert machine.store.find(base.tree) is None


def test_a_changed_byte_behind_an_unchanged_status_is_never_served_after_a_restart(
    machine: Machine,
) -> None:
    base = machine.imported().base
    base.release()
    changed_behind_its_status(base)
    restarted(base)
    with Ledger(machine.ledger) as ledger:
        again = machine.store.build(ledger.store, base.tree)
    assert_same(machine.original(), picture(again.files))


def test_the_first_use_after_a_restart_reads_every_file_once(
    machine: Machine, reads: list[str]
) -> None:
    base = machine.imported().base
    base.release()
    reads.clear()
    restarted(base)
    for _ in range(3):
        found = machine.store.find(base.tree)
        assert found is not None
        found.release()
    n_files = sum(entry[0] == "file" for entry in machine.original().values())
    assert len(reads) == n_files > 1


def test_two_processes_may_be_the_first_to_use_a_base_after_a_restart(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = machine.imported().base
    note = base.path / "complete"
    note.write_text(note.read_text().replace('"boot": "', '"boot": "an earlier one '))
    real, others = Path.replace, [lambda: machine.store.find(base.tree)]

    def replace_later(unfinished: Path, target: Path) -> Path:
        if others:
            assert others.pop()() is not None
        return real(unfinished, target)

    monkeypatch.setattr(Path, "replace", replace_later)
    assert machine.store.find(base.tree) is not None
    assert others == []
    assert "an earlier one" not in note.read_text()
    assert list(base.path.glob("complete?*")) == []


# Kills


def prepared(directory: Path, work: str) -> Machine:
    """What the work needs, in a new directory."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    machine = Machine(directory)
    (machine.source / "d" / "sub" / "large.bin").unlink()
    if work == "import_base":
        return machine
    done = machine.imported()
    if work == "reimport_base":
        (machine.source / "a.txt").write_text("two\n")
        (machine.source / "new").write_text("new\n")
    if work == "build_base":
        machine.ledger.rename(directory / "kept.git")
        (directory / "tree").write_text(done.tree)
        done.base.release()
        machine.store.collect(set)
    return machine


@pytest.mark.sweep
@pytest.mark.parametrize("work", ["import_base", "reimport_base", "build_base", "collect_bases"])
def test_work_on_bases_that_is_killed_at_any_step_can_be_repeated(
    server: Server, tmp_path: Path, work: str
) -> None:
    directory = tmp_path / "machine"
    name = work.replace("reimport", "import")
    prepared(directory, work)
    assert server.run(directory, name) == 0
    passed: dict[str, int] = json.loads((directory / "passed").read_text())
    assert {"system-call"} < passed.keys()
    for point, n_times in passed.items():
        for n in random_cases.some(
            spread(n_times, 8 if point == "system-call" else 2), 3 if point == "system-call" else 1
        ):
            machine = prepared(directory, work)
            assert server.run(directory, name, [point, n]) == signal.SIGKILL
            machine.store.collect(machine.store.named_by_branches)
            assert not [each for each in machine.bases if each.startswith(("new-", "old-"))]
            done = machine.imported()
            assert_same(machine.original(), machine.checked_out(done.tree))
            assert_fsck_clean(machine.ledger)
            assert machine.store.verify() == {}
            done.base.release()
            assert machine.store.collect(set) == 1
            assert machine.bases == []


# Objects


def test_shared_packs_are_not_counted_and_survive_the_maintenance_of_the_history(
    machine: Machine,
) -> None:
    """Deleting history cannot free them, so they must not use up the history's budget."""
    done = machine.imported()
    packs = list((done.base.objects / "objects" / "pack").glob("*.pack"))
    assert len(packs) == 2  # a large file has its own
    shared = machine.ledger / "objects" / "pack"
    assert all(pack.samefile(shared / pack.name) for pack in packs)
    with Ledger(machine.ledger) as ledger, ledger.write() as writer:
        entry = begin_history(ledger, writer, done.tree, done.report, SYSTEM_CLOCK)
        n_bytes = ledger.disk_bytes()
        assert n_bytes < 10_000 < done.report.n_bytes
        assert ledger.maintain(Retention(budget_bytes=n_bytes)).n_entries_forgotten == 0
        assert [each.id for each in ledger.branch().log()] == [entry.id]
    assert all(pack.samefile(shared / pack.name) for pack in packs)
    assert_fsck_clean(machine.ledger)
    done.base.release()
    assert machine.store.collect(set) == 1
    with Ledger(machine.ledger) as ledger:
        assert ledger.maintain(Retention()).ran
    assert_fsck_clean(machine.ledger)
    assert_same(machine.original(), machine.checked_out(done.tree))
