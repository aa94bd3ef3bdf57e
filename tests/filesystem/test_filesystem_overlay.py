"""Overlay mounts without a mount point: made, attached elsewhere, and gone with their descriptor.

They need a kernel and a filesystem with overlays; ``overlay_support`` says why not.
"""

from __future__ import annotations

import errno
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from disk_fixtures import covers, later

from wink_workspace.errors import MountError, UsageError
from wink_workspace.filesystem import DiskTree, parse_path
from wink_workspace.filesystem.changes import Dirty
from wink_workspace.filesystem.overlay.mounting import Mounter, OverlayMount, overlay_support
from wink_workspace.filesystem.overlay.tracking import OverlayTracker

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def layers(tmp_path: Path) -> Path:
    """Return a folder with a base of two files and one directory, and an empty upper layer."""
    support = overlay_support(tmp_path)
    if not support.available:
        pytest.skip(support.reason)
    make_layers(tmp_path)
    return tmp_path


def make_layers(folder: Path) -> None:
    for name in ("base/files/sub", "base/held", "upper/files", "upper/held", "work"):
        (folder / name).mkdir(parents=True)
    (folder / "base/files/a").write_text("a")
    (folder / "base/files/sub/b").write_text("b")


@pytest.fixture
def mount(layers: Path) -> Iterator[OverlayMount]:
    with mounted(layers) as mount:
        yield mount


def mounted(folder: Path) -> OverlayMount:
    return Mounter.shared().mount([folder / "base"], folder / "upper", folder / "work")


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_full_disk_is_not_remembered_as_a_filesystem_without_overlays(
    layers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        # What this process found out for the filesystem of the test
        patch.setattr("wink_workspace.filesystem.overlay.mounting._support", {})
        with monkeypatch.context() as disk:
            disk.setattr(tempfile, "mkdtemp", full)
            support = overlay_support(layers)
        assert not support.available
        assert "No space left" in support.reason
        assert overlay_support(layers).available


def test_a_mount_shows_the_base_and_its_changes_go_to_the_upper_layer(
    layers: Path, mount: OverlayMount
) -> None:
    (mount.path / "files/a").write_text("changed")
    (mount.path / "files/sub/b").unlink()
    (mount.path / "files/new").write_text("new")

    assert names(mount.path / "files") == ["a", "new", "sub"]
    assert names(mount.path / "files/sub") == []
    assert names(layers / "upper/files") == ["a", "new", "sub"]
    assert (layers / "base/files/a").read_text() == "a"
    assert names(layers / "base/files/sub") == ["b"]


def test_a_mount_is_in_no_mount_table(layers: Path, mount: OverlayMount) -> None:
    table = Path("/proc/self/mountinfo").read_text()
    assert (mount.path / "files/a").read_text() == "a"
    assert str(layers) not in table
    assert "wink" not in re.sub(r"\S*pytest\S*", "", table)


def test_a_renamed_directory_moves_to_the_discards_within_one_mount(
    layers: Path, mount: OverlayMount
) -> None:
    (mount.path / "files/made/deep").mkdir(parents=True)
    (mount.path / "files/made").rename(mount.path / "held/0")
    assert names(layers / "upper/held/0") == ["deep"]

    if mount.privileged:
        (mount.path / "files/sub").rename(mount.path / "held/1")
        assert names(mount.path / "held/1") == ["b"]
    else:
        with pytest.raises(OSError) as failure:
            (mount.path / "files/sub").rename(mount.path / "held/1")
        assert failure.value.errno == errno.EXDEV


def test_a_subtree_shows_one_directory_and_outlives_the_mount(mount: OverlayMount) -> None:
    subtree = mount.subtree("files")
    mount.close()
    try:
        here = Path(f"/proc/self/fd/{subtree}")
        assert names(here) == ["a", "sub"]
        assert names(here / "..") == ["a", "sub"]
    finally:
        os.close(subtree)


def test_a_closed_mount_is_refused(mount: OverlayMount) -> None:
    mount.close()
    with pytest.raises(UsageError, match="this mount is closed"):
        mount.subtree("files")


def test_an_upper_layer_that_does_not_exist_is_an_error(layers: Path) -> None:
    shutil.rmtree(layers / "upper")
    with pytest.raises(MountError, match="No such file or directory"):
        mounted(layers)


def test_the_reason_of_the_kernel_is_in_the_error(layers: Path) -> None:
    shutil.rmtree(layers / "work")
    (layers / "upper/files/work").mkdir()
    with pytest.raises(MountError, match="EINVAL") as failure:
        Mounter.shared().mount([layers / "base"], layers / "upper", layers / "upper/files/work")
    assert failure.value.hint is not None


def test_a_filesystem_without_overlays_is_named_as_the_reason() -> None:
    support = overlay_support(Path("/proc/self"))
    assert not support.available
    assert support.reason


# Tracking


def test_a_write_through_a_link_in_a_directory_that_another_program_copied_up_is_reported(
    layers: Path, mount: OverlayMount
) -> None:
    """Also if this process changes that directory later, and then watches it.

    The kernel reports a write for the name by which it knows the file. It may forget the first one
    at any time, for lack of memory.
    """
    upper, files = layers / "upper/files", mount.path / "files"
    (files / "linked").write_text("before")
    tracker = OverlayTracker(
        layers / "base/files", upper, forget_names=mount.forget_names, clock=later()
    )
    with closing(tracker), DiskTree(files, tracker=tracker) as tree:
        tracker.drain()
        (files / "sub/link").hardlink_to(files / "linked")
        mount.forget_names()
        (files / "sub/link").write_text("after")
        (files / "sub/link").unlink()
        tree.put_file(parse_path("sub/b"), [b"ours"])
        assert covers(tracker.drain(), parse_path("linked"))


def test_a_directory_that_this_process_copies_up_causes_no_scan(
    layers: Path, mount: OverlayMount
) -> None:
    upper, files = layers / "upper/files", mount.path / "files"
    tracker = OverlayTracker(
        layers / "base/files", upper, forget_names=mount.forget_names, clock=later()
    )
    with closing(tracker), DiskTree(files, tracker=tracker) as tree:
        tracker.drain()
        tree.put_file(parse_path("sub/b"), [b"ours"])
        found = tracker.drain()
        assert covers(found, parse_path("sub/b"))
        assert found.reason is None


def test_names_are_forgotten_by_a_drain_with_a_scan_or_when_its_caller_has_finished(
    layers: Path,
) -> None:
    forgotten: list[str] = []
    tracker = OverlayTracker(
        layers / "base/files",
        layers / "upper/files",
        forget_names=lambda: forgotten.append("names"),
        clock=later(),
    )
    with closing(tracker):
        tracker.drain()
        tracker.finish()
        forgotten.clear()
        for number, finishes in enumerate((False, True)):
            (layers / f"upper/files/new{number}").mkdir()
            assert tracker.drain(finishes=finishes).reason is not None
            assert len(forgotten) == 1
            tracker.finish()
            assert len(forgotten) == 1 + finishes


def test_a_file_that_changed_before_is_reported_without_what_is_below_its_name(
    layers: Path, mount: OverlayMount
) -> None:
    files = mount.path / "files"
    tracker = OverlayTracker(layers / "base/files", layers / "upper/files", clock=later())
    with closing(tracker):
        tracker.drain()
        (files / "a").write_text("copied up")
        first = tracker.drain()
        (files / "a").write_text("changed again")
        assert first.prefixes == {parse_path("a")}  # only the mount knows what the base has
        assert tracker.drain() == Dirty(paths=frozenset([parse_path("a")]))


@pytest.mark.parametrize("drains_between", [True, False])
def test_a_file_whose_directory_was_replaced_by_one_of_the_base_stands_for_what_is_below(
    layers: Path, mount: OverlayMount, drains_between: bool
) -> None:
    """The name was a file before, then a directory of the base shows through there."""
    if not mount.privileged:
        pytest.skip("a directory of the base cannot be renamed here")
    (layers / "base/files/other/b").mkdir(parents=True)
    (layers / "base/files/other/b/below").write_text("of the base")
    files = mount.path / "files"
    tracker = OverlayTracker(layers / "base/files", layers / "upper/files", clock=later())
    with closing(tracker):
        for text in ("copied up", "changed again"):
            (files / "sub/b").write_text(text)
            tracker.drain()
        (files / "sub/b").unlink()
        (files / "sub").rmdir()
        (files / "other").rename(files / "sub")
        if drains_between:
            tracker.drain()
        assert (files / "sub/b/below").read_text() == "of the base"
        (files / "sub/b/below").unlink()
        (files / "sub/b").rmdir()
        (files / "sub/b").write_text("a file again")
        assert covers(tracker.drain(), parse_path("sub/b/below"))


# Attaching

WAITS = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(int(sys.argv[1])): sys.exit(os.strerror(ctypes.get_errno()))
print(flush=True)
sys.stdin.readline()
print(sorted(os.listdir(sys.argv[2])), flush=True)
with open("/proc/self/mountinfo") as table:
    print([line.split()[3] for line in table if line.split()[4] == sys.argv[2]], flush=True)
open(sys.argv[2] + "/from-inside", "w").close()
"""
NEW_USER, NEW_MOUNTS = 0x1000_0000, 0x0002_0000


@pytest.mark.parametrize("spaces", [NEW_MOUNTS, NEW_MOUNTS | NEW_USER])
@ROOT_ONLY
def test_an_attached_mount_shows_only_the_files_in_another_mount_namespace(
    layers: Path, mount: OverlayMount, spaces: int
) -> None:
    target = layers / "target"
    target.mkdir()
    inside = subprocess.Popen(
        [sys.executable, "-c", WAITS, str(spaces), str(target)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert inside.stdout is not None
    assert inside.stderr is not None
    assert inside.stdout.readline() == "\n", inside.stderr.read()

    mount.attach(inside.pid, str(target))
    output, errors = inside.communicate("go\n", timeout=30)

    assert output.splitlines()[:2] == ["['a', 'sub']", "['/files']"], errors
    assert names(target) == []
    if spaces == NEW_MOUNTS:  # otherwise the process has no id for the owner of the files
        assert inside.returncode == 0, errors
        assert names(layers / "upper/files") == ["from-inside"]


def test_attaching_to_a_process_that_ended_is_an_error(mount: OverlayMount) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    with pytest.raises(MountError, match=rf"/x in process {ended.pid}: No such"):
        mount.attach(ended.pid, "/x")


@ROOT_ONLY
def test_a_failing_podman_unshare_is_named_when_a_container_cannot_get_the_mount(
    layers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    podman = programs / "podman"
    podman.write_text("#!/bin/sh\necho 'cannot set up namespace' >&2\nexit 125\n")
    podman.chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    mounter = Mounter()
    assert mounter.own_namespace is not None
    assert "cannot set up namespace" in mounter.own_namespace
    with mounter.mount([layers / "base"], layers / "upper", layers / "work") as mount:
        before = mounter.pid
        with pytest.raises(MountError, match=r"another user namespace .*cannot set up") as raised:
            mount.attach(os.getpid(), str(layers))
        assert "podman unshare true" in str(raised.value.hint)
        assert names(mount.path / "files") == ["a", "sub"], "the mount itself stays usable"
    podman.write_text('#!/bin/sh\nshift\nexec "$@"\n')  # it works again
    for name in ("upper/files", "work"):
        (layers / f"later-{name}").mkdir(parents=True)
    with mounter.mount([layers / "base"], layers / "later-upper", layers / "later-work"):
        assert mounter.own_namespace is None
        assert mounter.pid not in (None, before), "another program"


# Processes


def test_mounts_stay_usable_when_the_program_dies_and_the_next_request_starts_another(
    layers: Path,
) -> None:
    mounter = Mounter()
    with mounter.mount([layers / "base"], layers / "upper", layers / "work") as mount:
        assert mounter.pid is not None
        before = mounter.pid
        os.kill(before, signal.SIGKILL)
        (mount.path / "files/after").write_text("written")
        subtree = mount.subtree("files")
        assert names(Path(f"/proc/self/fd/{subtree}")) == ["a", "after", "sub"]
        os.close(subtree)
        assert mounter.pid not in (None, before)


def test_threads_share_one_program(layers: Path, mount: OverlayMount) -> None:
    mounter, made = Mounter.shared(), []

    def work() -> None:
        made.extend(mount.subtree("files") for _ in range(20))

    before = mounter.pid
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 80
    assert mounter.pid == before
    for each in made:
        os.close(each)


OPENS = """
import os, sys, time
from pathlib import Path
from wink_workspace.filesystem.overlay.mounting import Mounter
folder = Path(sys.argv[1])
mount = Mounter.shared().mount([folder / "base"], folder / "upper", folder / "work")
(mount.path / "files/new").write_text("new")
"""


def test_kill_9_leaves_neither_the_program_nor_the_mount(layers: Path) -> None:
    script = OPENS + "print(Mounter.shared().pid, flush=True)\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(layers)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as host:
        assert host.stdout is not None
        watch = os.pidfd_open(int(host.stdout.readline()))
        host.kill()
    ready, _, _ = select.select([watch], [], [], 30)
    os.close(watch)
    assert ready, "the program still runs"
    with mounted(layers) as again:
        assert (again.path / "files/new").read_text() == "new"


def test_a_forked_child_has_neither_the_mount_nor_the_program(layers: Path) -> None:
    script = OPENS + (
        "pid = Mounter.shared().pid\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try: mount.path\n"
        "    except Exception as error: print(type(error).__name__, flush=True)\n"
        "    held = [os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')\n"
        "            if os.path.lexists(f'/proc/self/fd/{n}')]\n"
        "    print(sum('socket' in each for each in held), Mounter.shared().pid != pid, flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print((mount.path / 'files/new').read_text(), Mounter.shared().pid == pid)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(layers)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines() == ["UsageError", "0 True", "new True"], done.stderr


# Rights

FILLS = """
import ctypes, os, sys
path, owner = sys.argv[1], int(sys.argv[2])
os.chdir(path)
os.setgroups([]); os.setgid(owner); os.setuid(owner)
n_bytes = 0
file = os.open("fill", os.O_WRONLY | os.O_CREAT, 0o644)
try:
    while True: n_bytes += os.write(file, bytes(65536))
except OSError as error: print(n_bytes, error.errno)
"""
ON_A_SMALL_DEVICE = """
import os, subprocess, sys
from pathlib import Path
from test_filesystem_overlay import FILLS, make_layers, mounted
folder, owner = Path(sys.argv[1]), 2_100_001_000
subprocess.run(["mount", "-o", "loop", folder / "image", folder / "disk"], check=True)
disk = folder / "disk"
make_layers(disk)
subprocess.run(["chown", "-R", f"{owner}:{owner}", *disk.iterdir()], check=True)
room = os.statvfs(disk)
with mounted(disk) as mount:
    files = os.open(mount.path / "files", os.O_RDONLY)
    done = subprocess.run(
        [sys.executable, "-c", FILLS, f"/proc/self/fd/{files}", str(owner)],
        pass_fds=[files], capture_output=True, text=True, check=True)
print(room.f_bavail * room.f_frsize, room.f_bfree * room.f_frsize, done.stdout)
"""


@ROOT_ONLY
def test_a_confined_user_cannot_use_the_blocks_that_ext4_reserves_for_root(tmp_path: Path) -> None:
    """Through a mount that keeps all rights of root the user writes all free blocks."""
    if not shutil.which("mkfs.ext4") or not Path("/dev/loop-control").exists():
        pytest.skip("needs mkfs.ext4 and loop devices")
    with (tmp_path / "image").open("wb") as image:
        image.truncate(32 * 2**20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "30", tmp_path / "image"], check=True)
    (tmp_path / "disk").mkdir()
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", ON_A_SMALL_DEVICE, tmp_path],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )
    assert done.returncode == 0, done.stderr
    available, free, written, number = (int(each) for each in done.stdout.split())
    assert number == errno.ENOSPC
    assert free - available > 5 * 2**20
    assert written <= available
