"""No operation leaves the root while its entries are swapped for links that lead outside.

The swap is made once before each single system call, and repeatedly by another process.
"""

from __future__ import annotations

import itertools
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import pytest
import random_cases
from disk_disturbance import entries_below

from wink_workspace.errors import WinkError
from wink_workspace.filesystem import DiskFilesystem, DiskTree, parse_path
from wink_workspace.filesystem.disk.copying import TreeCopy
from wink_workspace.filesystem.disk.descriptors import TEMPORARY_PREFIX
from wink_workspace.filesystem.model import file_fingerprint
from wink_workspace.filesystem.overlay.mounting import Mounter, overlay_support

SECRET = b"nobody may read this\n" * 1_000
SECRET_NAME = "nobody-may-list-this"
RACER = Path(__file__).with_name("disk_racer.py")

FILESYSTEM_OPERATIONS: dict[str, Callable[[DiskFilesystem], object]] = {
    "stat": lambda files: files.stat("dir/secret"),
    "exists": lambda files: files.exists("dir/secret"),
    "list": lambda files: files.list("dir"),
    "walk": lambda files: list(files.walk()),
    "read_bytes": lambda files: files.read_bytes("dir/secret"),
    "read_bytes of a file": lambda files: files.read_bytes("file"),
    "read_text": lambda files: files.read_text("dir/secret"),
    "glob": lambda files: files.glob("dir/**"),
    "grep": lambda files: files.grep("nobody|inside"),
    "fingerprint": lambda files: files.fingerprint("dir/secret"),
    "identify": lambda files: files.identify("dir/secret"),
    "fingerprint of all": lambda files: files.fingerprint(),
    "write": lambda files: files.write_bytes("dir/secret", b"written"),
    "write to a file": lambda files: files.write_bytes("file", b"written"),
    "create": lambda files: files.write_bytes("dir/created", b"written", mode="create"),
    "append": lambda files: files.write_bytes("dir/secret", b"written", mode="append"),
    "edit": lambda files: files.edit("dir/secret", "s", "t", replace_all=True),
    "patch": lambda files: files.apply_patch(
        "*** Begin Patch\n*** Update File: dir/secret\n@@\n-inside\n+patched\n*** End Patch\n"
    ),
    "mkdir": lambda files: files.mkdir("dir/made/deeper"),
    "move": lambda files: files.move("dir/secret", "dir/sub/moved", overwrite=True),
    "move in": lambda files: files.move("file", "dir/moved", overwrite=True),
    "set_executable": lambda files: files.set_executable("dir/secret", True),
    "symlink": lambda files: files.symlink("dir/link", "secret"),
    "delete": lambda files: files.delete("dir/secret"),
    "delete recursively": lambda files: files.delete("dir/sub", recursive=True),
    "delete a directory": lambda files: files.delete("dir", recursive=True),
}

TREE_OPERATIONS: dict[str, Callable[[DiskTree], object]] = {
    "entries": lambda tree: tree.entries(parse_path("dir")),
    "walk": lambda tree: list(tree.walk()),
    "open": lambda tree: read_file(tree, "dir/secret"),
    "put_file": lambda tree: tree.put_file(parse_path("dir/secret"), [b"written"]),
    "put_symlink": lambda tree: tree.put_symlink(parse_path("dir/secret"), "x"),
    "put_directory": lambda tree: tree.put_directory(parse_path("dir/secret")),
    "put_mode": lambda tree: tree.put_mode(parse_path("dir/secret"), executable=True),
    "remove": lambda tree: tree.remove(parse_path("dir/secret")),
    "remove a directory": lambda tree: tree.remove(parse_path("dir")),
    "copy": lambda tree: contents_of_copy(tree),
}


def read_file(tree: DiskTree, path: str) -> bytes:
    with tree.open(parse_path(path)) as stream:
        return stream.read()


class Contents:
    """Returns contents unchanged."""

    def keep(self, content: bytes) -> bytes:
        return content

    def keep_large(self, file: int) -> bytes:
        return os.read(file, len(SECRET))


def contents_of_copy(tree: DiskTree) -> list[object]:
    with TemporaryDirectory() as directory, DiskTree(directory) as copy:
        parts = list(TreeCopy(tree, copy, Contents()).run())
    return [(entry.name, entry.kept) for part in parts for entry in part.entries]


def operations(files: DiskFilesystem, tree: DiskTree) -> dict[str, Callable[[], object]]:
    return {
        **{name: lambda call=call: call(files) for name, call in FILESYSTEM_OPERATIONS.items()},
        **{f"tree: {name}": lambda c=call: c(tree) for name, call in TREE_OPERATIONS.items()},
    }


class RootAndOutside:
    """A root, and a directory outside of it with secrets."""

    def __init__(self, top: Path, root: Path | None = None) -> None:
        self.root, self.outside, self.spare = top / "root", top / "outside", top / "spare"
        if root is None:
            self.root.mkdir()
        else:
            self.root = root
        (self.outside / "sub").mkdir(parents=True)
        for directory in (self.outside, self.outside / "sub"):
            (directory / "secret").write_bytes(SECRET)
            (directory / SECRET_NAME).touch()
        self._before = self._state_outside()

    def fill_root(self) -> None:
        for path in (self.spare, self.root):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        (self.root / "dir" / "sub").mkdir(parents=True)
        for name in ("file", "dir/secret", "dir/sub/secret"):
            (self.root / name).write_bytes(b"inside\n")

    def check_answer(self, what: str, answer: object) -> None:
        """Check that the answer contains nothing from outside."""
        text = repr(answer)
        for secret in (
            "nobody may read",
            SECRET_NAME,
            f"size_bytes={len(SECRET)}",
            file_fingerprint([SECRET], executable=False),
        ):
            assert secret not in text, f"{what} returned {secret}"

    def check_outside(self, what: str) -> None:
        assert self._state_outside() == self._before, f"{what} changed something outside"

    def _state_outside(self) -> list[tuple[str, bytes, int, int]]:
        found: list[tuple[str, bytes, int, int]] = []
        for entry in entries_below(self.outside):
            status = entry.stat(follow_symlinks=False)
            content = Path(entry.path).read_bytes() if stat.S_ISREG(status.st_mode) else b""
            found.append((entry.path, content, status.st_mode, status.st_ctime_ns))
        return found


# Before every system call

# Only a call that takes a name can follow a link under that name.
BY_NAME = frozenset(
    (
        *("open", "stat", "lstat", "readlink", "scandir", "listdir", "chmod", "mkdir", "rmdir"),
        *("rename", "replace", "link", "symlink", "unlink"),
    )
)


@contextmanager
def swapping_before(n: int, swap: Callable[[], None]) -> Iterator[list[object]]:
    """Call *swap* just before the *n*-th system call that takes a name; yield all such calls."""
    calls: list[object] = []

    def profile(frame: FrameType, event: str, function: object) -> None:
        if event == "call":  # a system call for which Python has no function
            by_name = frame.f_code.co_name == "open_beneath"
        else:
            by_name = event == "c_call" and getattr(function, "__module__", None) == "posix"
            by_name = by_name and getattr(function, "__name__", None) in BY_NAME
        if by_name:
            calls.append(frame.f_code if event == "call" else function)
            if len(calls) == n:
                swap()

    sys.setprofile(profile)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def swap_for_link(dirs: RootAndOutside, name: str, target: Path) -> None:
    with suppress(FileNotFoundError):
        (dirs.root / name).rename(dirs.spare)
    with suppress(FileNotFoundError):
        (dirs.root / name).symlink_to(target)


def swap_for_pipe(dirs: RootAndOutside, name: str) -> None:
    with suppress(FileNotFoundError, IsADirectoryError):
        (dirs.root / name).unlink()
    with suppress(FileNotFoundError, FileExistsError):
        os.mkfifo(dirs.root / name)


def swap_unfinished_for_link(dirs: RootAndOutside) -> None:
    for entry in entries_below(dirs.root):
        if entry.name.startswith(TEMPORARY_PREFIX):
            Path(entry.path).unlink()
            Path(entry.path).symlink_to(dirs.outside / "secret")


SWAPS: dict[str, Callable[[RootAndOutside], None]] = {
    "directory for a link": lambda dirs: swap_for_link(dirs, "dir", dirs.outside),
    "inner directory for a link": lambda dirs: swap_for_link(dirs, "dir/sub", dirs.outside / "sub"),
    "inner file for a link": lambda dirs: swap_for_link(
        dirs, "dir/secret", dirs.outside / "secret"
    ),
    "file for a link": lambda dirs: swap_for_link(dirs, "file", dirs.outside / "secret"),
    "unfinished file for a link": swap_unfinished_for_link,
    "inner file for a pipe": lambda dirs: swap_for_pipe(dirs, "dir/secret"),
}


@pytest.mark.sweep
@pytest.mark.behaviour(42)
@pytest.mark.parametrize("swap", SWAPS)
def test_nothing_outside_is_touched_if_a_link_appears_before_any_system_call(
    tmp_path: Path, swap: str
) -> None:
    dirs = RootAndOutside(tmp_path)
    names = [*FILESYSTEM_OPERATIONS, *(f"tree: {name}" for name in TREE_OPERATIONS)]
    for name in random_cases.some(names, 12):
        for n in itertools.count(1):
            dirs.fill_root()
            with DiskFilesystem(dirs.root) as files, DiskTree(dirs.root) as tree:
                call = operations(files, tree)[name]
                with (
                    suppress(WinkError),
                    swapping_before(n, lambda: SWAPS[swap](dirs)) as calls,
                ):
                    dirs.check_answer(name, call())
            dirs.check_outside(f"{name}, call {n}")
            if len(calls) < n:
                break
        assert n > 1, "no system call was seen"


# By another process


class Race(RootAndOutside):
    """The same, with another process that swaps entries."""

    def __init__(self, top: Path, root: Path | None = None) -> None:
        super().__init__(top, root)
        self._counter = self.root.parent / "swaps"
        self._counter.touch()
        os.utime(self._counter, (0, 0))

    @contextmanager
    def running(self) -> Iterator[None]:
        racer = subprocess.Popen([sys.executable, RACER, self.root, self.outside])
        try:
            while self.n_swaps < 100:
                assert racer.poll() is None
            yield
            assert racer.poll() is None
        finally:
            racer.kill()
            racer.wait()

    @property
    def n_swaps(self) -> int:
        return int(self._counter.stat().st_mtime)


def race(top: Path, n_swaps_each: int, root: Path | None = None) -> int:
    """Repeat every operation during *n_swaps_each* swaps; return how many calls succeeded."""
    dirs = Race(top, root)
    n_done = 0
    with (
        DiskFilesystem(dirs.root) as files,
        DiskTree(dirs.root, make_accessible=True) as tree,
        dirs.running(),
    ):
        for name, call in operations(files, tree).items():
            until = dirs.n_swaps + n_swaps_each
            while dirs.n_swaps < until:
                with suppress(WinkError):
                    dirs.check_answer(name, call())
                    n_done += 1
            dirs.check_outside(name)
    return n_done


@pytest.mark.behaviour(42)
def test_nothing_outside_is_touched_while_links_are_swapped_in(tmp_path: Path) -> None:
    assert race(tmp_path, n_swaps_each=100) > len(FILESYSTEM_OPERATIONS)


@pytest.mark.behaviour(42)
def test_nothing_outside_is_touched_while_links_are_swapped_in_a_mounted_branch(
    tmp_path: Path,
) -> None:
    support = overlay_support(tmp_path)
    if not support.available:
        pytest.skip(support.reason)
    for name in ("base/files", "branch/upper/files", "branch/work"):
        (tmp_path / name).mkdir(parents=True)
    branch = tmp_path / "branch"
    with Mounter.shared().mount([tmp_path / "base"], branch / "upper", branch / "work") as mount:
        # The racer is another process, so the path names this one.
        root = Path(f"/proc/{os.getpid()}/fd/{mount.path.name}/files")
        assert race(tmp_path, n_swaps_each=30, root=root) > len(FILESYSTEM_OPERATIONS)


@pytest.mark.soak
@pytest.mark.behaviour(42)
def test_nothing_outside_is_touched_in_a_minute_of_swapping(tmp_path: Path) -> None:
    assert race(tmp_path, n_swaps_each=24_000) > len(FILESYSTEM_OPERATIONS)
