"""Branches on overlays: what they share, how they begin, and what an interruption leaves."""

from __future__ import annotations

import errno
import gc
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import random_cases
from kill_rig import Server, assert_recovers, copied, staged_calls
from overlay_files import close_shown
from workspace_rig import assert_same, calls, doing, folder, made, picture, reopened, storage

from wink_workspace._kill_points import KillPoint, calling
from wink_workspace.errors import FilesystemError, LedgerBusyError, LedgerError, UsageError
from wink_workspace.filesystem import FileKind, WorkspacePath
from wink_workspace.filesystem.changes import FileIndex
from wink_workspace.filesystem.changes.index import status_of
from wink_workspace.filesystem.overlay.mounting import Mounter, overlay_support
from wink_workspace.ledger import Ledger, Retention, TreeEntry, build
from wink_workspace.workspace import Workspace, WorkspaceConfig, WorkspaceStorage
from wink_workspace.workspace.create.bases import Base, BaseStore
from wink_workspace.workspace.create.overlay_branches import trees_of_bases
from wink_workspace.workspace.files.seen_statuses import forget_last_seen
from wink_workspace.workspace.place.storage import MODE_VARIABLE

MOST_PACKS = 52
"""Maintenance joins packs at once when there are more than 48."""
PACKS_OF_A_BRANCH = 2
"""A pack of the objects of a closed branch, with its index; retention joins them."""
FILES = {f"d{n}/{k}.txt": b"content\n" for n in range(20) for k in range(5)}


@pytest.fixture(autouse=True)
def _supported(tmp_path: Path) -> None:
    if not (support := overlay_support(tmp_path)).available:
        pytest.skip(support.reason)


def overlay(directory: Path, files: dict[str, bytes] = FILES) -> Workspace:
    return made(directory, files, mode="overlay")


def write(workspace: Workspace, files: dict[str, str]) -> None:
    with workspace.call("write") as call:
        for path, text in files.items():
            call.files.write_text(path, text)


def branch(directory: Path, name: str) -> Workspace:
    return reopened(directory, branch=name)


def entries_below(directory: Path) -> int:
    return sum(len(names) + len(files) for _, names, files in os.walk(directory))


# Which form


def test_a_storage_with_a_relative_path_stays_where_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source").mkdir()
    monkeypatch.chdir(tmp_path)
    relative = WorkspaceStorage("state")
    monkeypatch.chdir("/")
    with Workspace.create(tmp_path / "source", storage=relative, mode="overlay") as workspace:
        assert relative.folder(workspace.info.id).path.is_relative_to(tmp_path / "state")


def test_the_mount_of_a_branch_keeps_times(tmp_path: Path) -> None:
    """Otherwise files that changed together would be read again for each fingerprint."""
    with overlay(tmp_path) as workspace:
        tree = workspace._opened.tree  # of the mount; nothing public leads to it
        assert tree.keeps_times


def test_the_mode_is_recorded_and_auto_is_an_overlay_where_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wanted, found in (("auto", "overlay"), ("copy", "copy"), ("overlay", "overlay")):
        directory = tmp_path / wanted
        directory.mkdir()
        monkeypatch.setenv(MODE_VARIABLE, wanted)
        with made(directory, {"a": b"a"}) as workspace:
            assert workspace.info.mode == found
        about = json.loads((folder(directory).path / "about.json").read_text())
        assert (about["mode"], about["version"]) == (found, 2)
    monkeypatch.setenv(MODE_VARIABLE, "reflink")
    with pytest.raises(UsageError, match=f"{MODE_VARIABLE} is 'reflink'"):
        made(tmp_path / "copy", {})


def test_a_workspace_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    with made(tmp_path, {"a": b"a"}, mode="copy") as workspace:
        which = workspace.info.id
    note = folder(tmp_path).path / "about.json"
    note.write_text(json.dumps({**json.loads(note.read_text()), "version": 3}))
    with pytest.raises(UsageError, match=f"{which} has format 3, and this program knows"):
        Workspace.open(which, storage=storage(tmp_path))


# Forks


def test_opening_a_fork_reads_no_status_of_the_base_and_makes_few_files(tmp_path: Path) -> None:
    with overlay(tmp_path) as workspace:
        before = entries_below(tmp_path)
        workspace.fork("try")
        with branch(tmp_path, "try") as fork:
            assert fork._opened.tracker.n_visited == 0
            assert_same(picture(tmp_path / "source"), picture(fork._opened.tree.root))
        assert entries_below(tmp_path) - before <= 25
        assert fork._opened.tracker.n_visited == 0


def test_a_fork_of_a_changed_branch_has_its_base_and_the_difference(tmp_path: Path) -> None:
    with overlay(tmp_path) as workspace:
        write(workspace, {"d1/1.txt": "changed\n", "new/deep": "new\n"})
        with workspace.call("rm") as call:
            call.files.delete("d2", recursive=True)
            call.files.move("d3", "moved")
        workspace.fork("try")
        with branch(tmp_path, "try") as fork:
            assert_same(picture(workspace._opened.tree.root), picture(fork._opened.tree.root))
            assert fork.diff() == workspace.diff()
        main, other = folder(tmp_path), folder(tmp_path).of_branch("try")
        assert main.base.read_text() == other.base.read_text()
        with branch(tmp_path, "try") as fork:
            write(fork, {"d1/1.txt": "again\n"})
        assert workspace.merge("try") is not None
        assert workspace.files.read_bytes("d1/1.txt") == b"again\n"


def test_the_layer_of_a_fork_has_every_kind_of_change(tmp_path: Path) -> None:
    with overlay(tmp_path) as workspace:
        with workspace.call("all") as call:
            for path in ("d4", "d5", "d6/1.txt", "d7/1.txt", "d8/2.txt"):
                call.files.delete(path, recursive=True)
            call.files.write_text("d4", "a file where a directory was\n")
            call.files.mkdir("d6/1.txt/deep")
            call.files.write_text("d6/1.txt/deep/file", "a directory where a file was\n")
            call.files.symlink("d7/1.txt", "2.txt")
            call.files.set_executable("d7/2.txt", True)
            call.files.mkdir("empty")
            for n in range(5):
                call.files.delete(f"d9/{n}.txt")
        workspace.fork("try")
        with branch(tmp_path, "try") as fork:
            assert_same(picture(workspace._opened.tree.root), picture(fork._opened.tree.root))
            assert fork.diff() == workspace.diff()
            write(fork, {"d8/2.txt": "again\n", "d5/new": "new\n"})
            assert [str(change.path) for change in fork.changes_of(fork.head)] == [
                "d5",
                "d5/new",
                "d8/2.txt",
            ]
            fork.undo()
            assert_same(picture(workspace._opened.tree.root), picture(fork._opened.tree.root))


def opened_calls(directory: Path, name: str) -> Counter[str]:
    """The calls of functions while a fork is opened for the first time."""
    calls: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls[frame.f_code.co_qualname] += 1
        elif event == "c_call":
            calls["C"] += 1

    gc.disable()  # its callbacks would be counted
    sys.setprofile(profile)
    try:
        fork = branch(directory, name)
    finally:
        sys.setprofile(None)
        gc.enable()
    fork.close()
    return calls


def test_opening_a_fork_costs_the_same_for_any_number_of_files_and_forks(tmp_path: Path) -> None:
    totals: dict[str, list[int]] = {"same": [], "changed": []}
    for n_directories in (2, 20):
        directory = tmp_path / str(n_directories)
        directory.mkdir()
        files = {
            f"d{n}/e{m}/{k}.txt": b"content\n"
            for n in range(20)
            for m in range(n_directories)
            for k in range(10)
        }
        with overlay(directory, files) as workspace:
            workspace.fork("warm")
            opened_calls(directory, "warm")
            for n in range(n_directories):
                workspace.fork(f"other{n}")
            workspace.fork("same")
            write(workspace, {f"d{n}/e0/1.txt": "changed\n" for n in range(10)})
            workspace.fork("changed")
            for name, found in totals.items():
                calls = opened_calls(directory, name)
                assert calls[Mounter.mount.__qualname__] == 1
                found.append(calls.total())
    for name, (few, many) in totals.items():
        assert many <= 1.25 * few, (name, few, many)


def test_a_fork_that_is_opened_and_deleted_leaves_nothing(tmp_path: Path) -> None:
    with overlay(tmp_path) as workspace:

        def present() -> tuple[Counter[str], int, bytes, int]:
            gc.collect()
            descriptors = Path("/proc/self/fd")
            links = [str(path.readlink()) for path in descriptors.iterdir() if path.is_symlink()]
            children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_bytes()
            mounts = Path("/proc/self/mounts").read_text().splitlines()
            own = sum(str(tmp_path) in mount for mount in mounts)  # others are of other processes
            return Counter(links), entries_below(tmp_path), children, own

        def used() -> weakref.ref[Workspace]:
            workspace.fork("try")
            with branch(tmp_path, "try") as fork:
                write(fork, {"d1/1.txt": "changed\n"})
                fork.undo()
            workspace.branches.delete("try")
            return weakref.ref(fork)

        used()
        descriptors, n_entries, children, n_mounts = present()
        forks = [used() for _ in range(5)]
        now = present()
        assert not any(fork() for fork in forks)
        assert (now[0], now[2], now[3]) == (descriptors, children, n_mounts)
        assert now[1] - n_entries == 5 * PACKS_OF_A_BRANCH


def test_an_open_fork_with_a_change_uses_less_than_a_mebibyte_of_disk(tmp_path: Path) -> None:
    def used() -> int:
        paths = (Path(top, name) for top, _, names in os.walk(tmp_path) for name in (".", *names))
        return sum(path.lstat().st_blocks * 512 for path in paths)

    with overlay(tmp_path) as workspace:
        before = used()
        workspace.fork("try")
        with branch(tmp_path, "try") as fork:
            write(fork, {"d1/1.txt": "changed\n"})
            assert used() - before < 1_048_576


def test_branches_do_not_see_the_changes_of_one_another(tmp_path: Path) -> None:
    with overlay(tmp_path) as workspace:
        for name in ("one", "two"):
            workspace.fork(name)
        with branch(tmp_path, "one") as one, branch(tmp_path, "two") as two:
            write(one, {"d0/0.txt": "one\n"})
            write(two, {"d0/0.txt": "two\n"})
            found = [each.files.read_bytes("d0/0.txt") for each in (workspace, one, two)]
        assert found == [b"content\n", b"one\n", b"two\n"]
        workspace.branches.delete("one")
        with branch(tmp_path, "two") as two:
            assert two.files.read_bytes("d0/0.txt") == b"two\n"


@pytest.mark.parametrize("n_forks", [50, pytest.param(1_000, marks=pytest.mark.soak)])
def test_forks_that_were_opened_and_deleted_leave_nothing(tmp_path: Path, n_forks: int) -> None:
    with overlay(tmp_path) as workspace:

        def use(name: str) -> None:
            workspace.fork(name)
            with branch(tmp_path, name) as fork:
                fork.files.write_text("d1/1.txt", f"{name}\n")
                write(fork, {"d1/2.txt": f"{name}\n"})
            workspace.branches.delete(name)

        use("first")
        before, program = held(tmp_path), Mounter.shared().pid
        for n in range(n_forks):
            use(f"f{n}")
        assert held(tmp_path) == before
        assert Mounter.shared().pid == program
        packs = list(folder(tmp_path).ledger.glob("objects/pack/*.pack"))
        assert len(packs) <= MOST_PACKS


@pytest.mark.parametrize("n_forks", [10, pytest.param(100, marks=pytest.mark.soak)])
def test_each_open_fork_costs_few_descriptors_and_closing_returns_them(
    tmp_path: Path, n_forks: int
) -> None:
    with overlay(tmp_path) as workspace, ExitStack() as opened:
        for n in range(n_forks):
            workspace.fork(f"f{n}")
        with branch(tmp_path, "f0") as fork:
            fork.files.write_text("own", "opens the pack of the base")
        before = held(tmp_path).descriptors
        for n in range(n_forks):
            fork = opened.enter_context(branch(tmp_path, f"f{n}"))
            fork.files.write_text("own", f"{n}\n")
        assert held(tmp_path).descriptors - before <= 30 * n_forks
        assert held(tmp_path).mounts == []
        opened.close()
        assert held(tmp_path).descriptors == before


@dataclass(frozen=True)
class Held:
    """What this process and a workspace hold."""

    paths: set[str]
    """All but those of objects, which maintenance deletes."""
    descriptors: int
    mounts: list[str]


def held(directory: Path) -> Held:
    state = directory / "state"
    found = {os.path.relpath(path, state) for path in state.rglob("*")}
    found = {path for path in found if "ledger.git/objects/" not in path}
    descriptors = [path for path in Path("/proc/self/fd").iterdir() if os.path.lexists(path)]
    tables = [Path(f"/proc/{pid}/mountinfo") for pid in ("self", Mounter.shared().pid)]
    lines = [line for table in tables for line in table.read_text().splitlines()]
    return Held(found, len(descriptors), [line for line in lines if str(state) in line])


def test_a_branch_that_is_open_is_not_mounted_a_second_time(tmp_path: Path) -> None:
    """Two mounts on one upper layer are undefined behaviour."""
    with overlay(tmp_path) as workspace:
        before = held(tmp_path).descriptors
        with pytest.raises(LedgerBusyError):
            reopened(tmp_path)
        assert held(tmp_path).descriptors == before
        program = f"import sys; sys.path[:0] = {sys.path!r}\n"
        program += "from test_workspace_overlay import *\nreopened(Path(sys.argv[1]))\n"
        done = subprocess.run(
            [sys.executable, "-c", program, tmp_path], capture_output=True, text=True
        )
        assert f"process {os.getpid()}" in done.stderr
        assert "LedgerBusyError" in done.stderr
        write(workspace, {"d1/1.txt": "changed\n"})


def test_a_program_that_dies_during_a_call_does_not_disturb_it(tmp_path: Path) -> None:
    with overlay(tmp_path) as workspace:
        with workspace.call("write") as call:
            call.files.write_text("d1/1.txt", "one\n")
            os.kill(Mounter.shared().pid or 0, signal.SIGKILL)
            call.files.move("d2", "moved")
        assert {str(each.path) for each in workspace.changes()} >= {"d1/1.txt", "moved/0.txt"}
        workspace.fork("after")
        with branch(tmp_path, "after") as fork:
            assert_same(picture(workspace.files.tree.root), picture(fork.files.tree.root))


ON_AN_OVERLAY = """
import sys; sys.path[:0] = sys.argv[2].split(":")
import os, subprocess
from test_workspace_overlay import *
from wink_workspace.errors import MountError
here = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "tmpfs", here], check=True)
for name in ("lower", "upper", "work", "disk"): (here / name).mkdir()
options = f"lowerdir={here}/lower,upperdir={here}/upper,workdir={here}/work"
subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", here / "disk"], check=True)
disk = here / "disk"
support = storage(disk).overlay_support()
assert not support.available and support.reason, support
os.environ[MODE_VARIABLE] = "auto"
with made(disk, {"a": b"a"}) as workspace:
    assert workspace.info.mode == "copy"
before = sorted(path.name for path in (disk / "state/workspaces").iterdir())
try:
    made(disk, {"a": b"a"}, mode="overlay")
except MountError as error:
    print(error.message, "|", error.hint)
assert before == sorted(path.name for path in (disk / "state/workspaces").iterdir())
"""


def test_where_overlays_are_refused_auto_makes_a_copy_and_asking_for_one_is_an_error(
    tmp_path: Path,
) -> None:
    """The kernel refuses an upper layer that is itself on an overlay."""
    here = Path(__file__).parent
    done = subprocess.run(
        [
            *("unshare", "--user", "--map-root-user", "--mount"),
            *(sys.executable, "-c", ON_AN_OVERLAY, tmp_path, f"{here}:{here.parent}"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode and ("unshare" in done.stderr or "mount:" in done.stderr):
        pytest.skip(done.stderr)
    assert "cannot be overlays: cannot mount the branch" in done.stdout, done.stderr
    assert 'Use the mode "copy"' in done.stdout


# Rollbacks


def test_a_rollback_renames_directories_of_the_base_aside_and_keeps_their_files(
    tmp_path: Path,
) -> None:
    with overlay(tmp_path) as workspace:
        root = workspace._opened.tree.root

        def damage() -> None:
            (root / "d1/1.txt").write_bytes(b"spoilt\n")
            (root / "d2").rename(root / "gone")
            (root / "junk/deep").mkdir(parents=True)
            (root / "junk/deep/file").write_bytes(b"junk\n")

        with calls(workspace, doing(damage, fails=True)) as call:
            call("act")
            assert_same(picture(tmp_path / "source"), picture(root))
            assert call("ls").result.success
        assert workspace.changes() == ()
        (discard,) = workspace.discarded()
        workspace.restore_discarded(discard.discard or discard.id)
        assert workspace.files.read_bytes("junk/deep/file") == b"junk\n"
        assert workspace.files.read_bytes("d1/1.txt") == b"spoilt\n"


IN_A_USER_NAMESPACE = """
import sys; sys.path[:0] = sys.argv[2].split(":")
from pathlib import Path
from test_workspace_overlay import *
directory = Path(sys.argv[1])
workspace = overlay(directory)
assert not workspace._opened.branch.mount.privileged
with workspace.call("mv") as call:
    call.files.move("d3", "moved")
root = workspace._opened.tree.root
before = picture(root)
assert not (root / "d3").exists() and len(list((root / "moved").iterdir())) == 5
def damage():
    (root / "d4").chmod(0o711)
    call = root / "d5" / "extra"
    call.write_bytes(b"x")
    workspace.files.move("d5", "d6/inside")
with calls(workspace, doing(damage, fails=True)) as call:
    call("act")
assert_same(before, picture(root))
workspace.undo()
assert_same(picture(directory / "source"), picture(root))
workspace.close()
assert list(folder(directory).upper.joinpath("held").iterdir()) == []
print("passed")
"""


def test_in_a_user_namespace_a_directory_of_the_base_is_copied_when_it_moves(
    tmp_path: Path,
) -> None:
    """There, the kernel refuses to rename it."""
    here = Path(__file__).parent
    done = subprocess.run(
        [
            *("unshare", "--user", "--map-root-user", "--mount"),
            *(sys.executable, "-c", IN_A_USER_NAMESPACE, tmp_path, f"{here}:{here.parent}"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(done.stderr)
    assert done.stdout == "passed\n", done.stderr


# The base


def test_a_large_layer_is_folded_into_a_base_when_the_branch_is_opened(tmp_path: Path) -> None:
    config = WorkspaceConfig(fold_above=10)
    with overlay(tmp_path) as workspace:
        with workspace.call("many") as call:
            call.files.move("d3", "moved")
            for n in range(20):
                call.files.write_text(f"made/{n}", "made\n")
        before, text = picture(workspace._opened.tree.root), workspace.diff()
        old = folder(tmp_path).base.read_text()
    with reopened(tmp_path, config=config) as workspace:
        assert folder(tmp_path).base.read_text() != old
        assert workspace._opened.tracker.n_visited == 0
        assert_same(before, picture(workspace._opened.tree.root))
        assert workspace.diff() == text
        workspace.undo()
        assert_same(picture(tmp_path / "source"), picture(workspace._opened.tree.root))


def test_a_large_layer_with_an_external_edit_is_not_folded_and_the_edit_is_kept(
    tmp_path: Path,
) -> None:
    with overlay(tmp_path) as workspace:
        for n in range(20):
            workspace.files.write_text(f"made{n}", "by hand\n")
        workspace.files.delete("d1", recursive=True)
    with reopened(tmp_path, config=WorkspaceConfig(fold_above=10)) as workspace:
        assert workspace._opened.tracker.n_visited > 10
        assert workspace.files.read_bytes("made7") == b"by hand\n"
        write(workspace, {"after": "after\n"})
        assert "by hand" in workspace.diff()
        assert not workspace.files.exists("d1")


def test_a_base_that_is_missing_is_made_again_from_the_history(tmp_path: Path) -> None:
    with overlay(tmp_path) as workspace:
        write(workspace, {"d1/1.txt": "changed\n"})
        before = picture(workspace._opened.tree.root)
    close_shown()
    bases = tmp_path / "state" / "bases"
    (bases / folder(tmp_path).base.read_text().strip()).rename(tmp_path / "lost")
    with reopened(tmp_path) as workspace:
        assert_same(before, picture(workspace._opened.tree.root))
        assert workspace.changes() != ()


@contextmanager
def unusable_claims(directory: Path) -> Iterator[None]:
    """The lock of the bases cannot be opened, as if no descriptor were left."""
    claims = directory / "state" / "bases" / "claims"
    claims.unlink()
    claims.mkdir()
    yield
    claims.rmdir()


@contextmanager
def unreadable_name(directory: Path) -> Iterator[None]:
    """The file that names the base cannot be read."""
    file = folder(directory).base
    file.rename(directory / "name")
    file.mkdir()
    yield
    file.rmdir()
    (directory / "name").rename(file)


@contextmanager
def unwritable_base(directory: Path) -> Iterator[None]:
    """The base is missing, and cannot be made again."""
    bases = directory / "state" / "bases"
    (bases / folder(directory).base.read_text().strip()).rename(directory / "lost")

    def fail(*_: object) -> Base:
        raise LedgerError("no file descriptor is left")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseStore, "build", fail)
        yield


@pytest.mark.parametrize("fault", [unusable_claims, unreadable_name, unwritable_base])
def test_an_opening_that_fails_keeps_the_edits_in_the_layer(
    tmp_path: Path, fault: Callable[[Path], AbstractContextManager[None]]
) -> None:
    overlay(tmp_path).close()
    (folder(tmp_path).upper / "files" / "edit").write_text("by hand\n")
    with fault(tmp_path), pytest.raises((FilesystemError, LedgerError)):
        reopened(tmp_path)
    with reopened(tmp_path) as workspace:
        assert workspace.files.read_text("edit").text == "by hand"


def test_a_file_of_the_base_that_the_disk_changed_is_not_served_after_a_restart(
    tmp_path: Path,
) -> None:
    overlay(tmp_path).close()
    (folder(tmp_path).upper / "files" / "edit").write_text("by hand\n")
    base = tmp_path / "state" / "bases" / folder(tmp_path).base.read_text().strip()
    about = json.loads((base / "complete").read_text())
    (base / "complete").write_text(json.dumps({**about, "boot": "an earlier start"}))
    file = base / "root/files/d7/3.txt"
    file.write_text("CONTENT\n")
    index = FileIndex.load(base / "index")
    assert index is not None
    index.put(("d7",), {"3.txt": status_of(file.lstat())}, sys.maxsize)
    index.save(base / "index")
    with reopened(tmp_path) as workspace:
        assert workspace.files.read_text("d7/3.txt").text == "content"
        assert workspace.files.read_text("edit").text == "by hand"


def test_a_full_disk_at_the_first_opening_after_a_restart_keeps_the_edits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overlay(tmp_path).close()
    (folder(tmp_path).upper / "files" / "edit").write_text("by hand\n")
    base = tmp_path / "state" / "bases" / folder(tmp_path).base.read_text().strip()
    about = json.loads((base / "complete").read_text())
    (base / "complete").write_text(json.dumps({**about, "boot": "an earlier start"}))
    real = Path.write_text

    def write_text(path: Path, *arguments: Any, **options: Any) -> int:
        n_chars = real(path, *arguments, **options)
        if path.name.startswith("complete."):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return n_chars

    monkeypatch.setattr(Path, "write_text", write_text)
    with reopened(tmp_path) as workspace:
        assert workspace.files.read_text("edit").text == "by hand"
    assert list(base.glob("complete.*")) == []


@pytest.mark.parametrize("content", [None, b"", b"\0" * 40, b"\xff\xfe", b"1-0-" + b"\0" * 40])
def test_a_branch_that_names_no_base_begins_again_with_the_newest_entry(
    tmp_path: Path, content: bytes | None
) -> None:
    with overlay(tmp_path) as workspace:
        write(workspace, {"d1/1.txt": "changed\n"})
        before = picture(workspace._opened.tree.root)
    close_shown()
    folder(tmp_path).base.unlink()
    if content is not None:
        folder(tmp_path).base.write_bytes(content)
    with reopened(tmp_path) as workspace:
        assert_same(before, picture(workspace._opened.tree.root))
        workspace.maintain()


def test_edits_in_the_layer_of_a_branch_whose_base_is_lost_become_a_discard(
    tmp_path: Path,
) -> None:
    with overlay(tmp_path, {"a.txt": b"a", "b.txt": b"b", "d/c.txt": b"c"}) as workspace:
        write(workspace, {"b.txt": "changed"})
    layer = folder(tmp_path).upper / "files"
    (layer / "d").mkdir(exist_ok=True)
    (layer / "d" / "edit").write_text("by hand")
    os.mknod(layer / "a.txt", stat.S_IFCHR, os.makedev(0, 0))  # as the kernel marks a deleted file
    folder(tmp_path).base.unlink()
    with reopened(tmp_path) as workspace:
        assert workspace.files.read_text("a.txt").text == "a"
        (found,) = workspace.discarded()
        changes = workspace.discarded_changes(found)
        kept = {str(each.path): each.after and each.after.data for each in changes}
        assert kept == {"a.txt": None, "d/edit": b"by hand"}
        workspace.restore_discarded(found.id, paths=["d/edit"])
        assert workspace.files.read_text("d/edit").text == "by hand"


def test_what_a_failed_call_discarded_outlives_the_loss_of_the_base(tmp_path: Path) -> None:
    with overlay(tmp_path) as workspace, workspace.call("act") as call:
        for n in range(300):
            call.files.write_text(f"work/f{n}", f"{n}\n")
        call.fail("it failed")
    assert list((folder(tmp_path).upper / "held").iterdir())  # too many to be recorded at once
    folder(tmp_path).base.unlink()
    with reopened(tmp_path) as workspace:
        (found,) = workspace.discarded()
        assert len(workspace.discarded_paths(found)) == 301


def test_a_layer_that_is_missing_begins_again_with_the_newest_entry(tmp_path: Path) -> None:
    with overlay(tmp_path) as workspace:
        write(workspace, {"d1/1.txt": "changed\n", "new": "new\n"})
        before = picture(workspace._opened.tree.root)
    close_shown()
    folder(tmp_path).upper.rename(tmp_path / "lost")
    with reopened(tmp_path) as workspace:
        assert_same(before, picture(workspace._opened.tree.root))


def test_edits_made_while_the_index_was_lost_are_found(tmp_path: Path) -> None:
    with overlay(tmp_path) as workspace:
        write(workspace, {"d1/1.txt": "changed\n"})
        workspace.files.write_text("d2/2.txt", "by hand\n")
        workspace.files.delete("d3", recursive=True)
    for index in folder(tmp_path).path.glob("index-*"):
        index.unlink()
    with reopened(tmp_path) as workspace:
        shown = workspace.diff()
        assert {"+by hand", "+changed"} <= set(shown.splitlines())
        assert shown.count("deleted file") == 5


# Kills


STEPS = {
    "fork": ("base-named", "upper-filled", "upper-in-place", "system-call"),
    "fold": ("fold-begun", "base-filled", "base-placed", "base-named", "upper-in-place"),
    "delete": ("system-call", "fork-deleted"),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("overlay")
    with overlay(directory) as workspace:
        with workspace.call("many") as call:
            call.files.move("d3", "moved")
            for n in range(12):
                call.files.write_text(f"made/{n}", "made\n")
        workspace.fork("old")
    with branch(directory, "old") as fork:
        write(fork, {"d1/1.txt": "old\n"})
    close_shown()
    return directory


@pytest.mark.sweep
@pytest.mark.parametrize("work", STEPS)
def test_a_branch_killed_at_a_step_of_its_making_folding_or_deletion_is_whole(
    server: Server, template: Path, tmp_path: Path, work: str
) -> None:
    wanted = copied(template, tmp_path / "reference")
    assert server.run(wanted, work) == 0
    passed = Counter(json.loads((wanted / "passed").read_text()))
    names = ("main", "old", "new") if work == "fork" else ("main", "old")
    with reopened(wanted) as workspace:
        states = {"main": picture(workspace._opened.tree.root)}
    for name in names[1:]:
        if work != "delete":
            with branch(wanted, name) as fork:
                states[name] = picture(fork._opened.tree.root)
    for point in STEPS[work]:
        assert passed[point], point
        every = 1 if point != "system-call" else max(1, passed[point] // 6)
        for nth in random_cases.some(range(1, passed[point] + 1, every), 2):
            directory = copied(template, tmp_path / "killed")
            assert server.run(directory, work, [point, nth]) == signal.SIGKILL
            assert_whole(directory, states)
            if work == "delete":
                assert_deletable(directory, "old")
            close_shown()


@pytest.mark.sweep
def test_calls_on_an_overlay_killed_at_a_step_leave_a_completed_state(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "mixed").mkdir()
    mixed = staged_calls(server, tmp_path / "mixed", "overlay")
    steps = (("damage", 2), ("held-moved", 2), ("held-kept", 1), ("commit-written", 7))
    last = ("system-call", mixed.passed["system-call"] // 2)
    for step in random_cases.some((*steps, ("ref-moved", 2), last), 3):
        directory = copied(mixed.template, tmp_path / "killed")
        assert server.run(directory, "calls", list(step)) == signal.SIGKILL
        assert_recovers(directory, mixed)


def assert_whole(directory: Path, states: dict[str, object]) -> None:
    """Every branch that exists has its files, and can be written."""
    with reopened(directory) as workspace:
        assert_same(states["main"], picture(workspace._opened.tree.root))
        forks = workspace.forks()
    for name in forks:
        with branch(directory, name) as fork:
            if name in states:
                assert_same(states[name], picture(fork._opened.tree.root))
            write(fork, {"after": "after\n"})
            assert fork.files.read_bytes("after") == b"after\n"


def assert_deletable(directory: Path, name: str) -> None:
    """A fork, made again if it is deleted, can be deleted with all its files."""
    with reopened(directory) as workspace:
        if name not in workspace.forks():
            workspace.fork(name)
        with branch(directory, name) as fork:
            write(fork, {"again": "again\n"})
        workspace.branches.delete(name)
    left = list((directory / "state/workspaces").rglob(f"{name}*"))
    assert left == []


@pytest.mark.parametrize("step", ["nearest", "named"])
def test_fork_does_not_begin_on_a_base_whose_tree_is_being_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    with overlay(tmp_path) as workspace:
        write(workspace, {"d0/new.txt": "new", "d1/new.txt": "new"})
        workspace.fork("try")
        head = workspace.head.files
    place = folder(tmp_path)
    with Ledger(place.ledger, other_trees=lambda: trees_of_bases(place)) as collector:
        entry = TreeEntry(FileKind.FILE, collector.store.write_blob(b"forgotten"))
        forgotten = build(collector.store, head, {WorkspacePath(("d2", "forgotten")): entry})
        collector.store.open_packs.seal()
        BaseStore(place.state_dir).build(collector.store, forgotten).release()
        job = collector._deleting(Retention(), datetime.now(UTC), with_deltas=True)
        next(job)

        def finish() -> None:
            for _ in job:
                pass

        real = BaseStore.nearest

        def nearest_then_deleted(*arguments: Any) -> Base | None:
            found = real(*arguments)
            assert found is not None
            assert found.tree == forgotten
            if step == "nearest":
                finish()
            return found

        monkeypatch.setattr(BaseStore, "nearest", nearest_then_deleted)
        with calling(lambda point: finish() if point is KillPoint.BASE_NAMED else None):
            branch(tmp_path, "try").close()
    forget_last_seen(place.of_branch("try").index)  # it is only a hint
    with branch(tmp_path, "try") as fork:
        write(fork, {"d3/new.txt": "new"})
        assert fork.files.read_text("d0/new.txt").text == "new"
        assert not fork.files.exists("d2/forgotten")
