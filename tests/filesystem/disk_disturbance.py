"""Random changes of a directory tree by plain system calls, as any program makes them.

Run as a program it changes a tree from another process::

    python disk_disturbance.py ROOT OUTSIDE SEED N_CHANGES
"""

from __future__ import annotations

import mmap
import os
import random
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

NAMES = ("a", "b", "c", "d", "e")


class Disturbance:
    """Makes random changes below *root*; *outside* is beside it, on the same filesystem.

    Files and directories also move out and in. Hard links outside to files inside are left out:
    no event reports writes through them, and sandboxed code cannot make them.
    """

    def __init__(self, root: Path, outside: Path, rng: random.Random) -> None:
        self.root = root
        self.outside = outside
        self.rng = rng
        self._n = 0
        self.kinds: tuple[Callable[[], object], ...] = (
            self.create,
            self.create,
            self.overwrite,
            self.overwrite,
            self.write_in_place,
            self.truncate,
            self.write_mapped,
            self.delete,
            self.rename,
            self.rename,
            self.replace_by_rename,
            self.make_directory,
            self.make_deep_directory,
            self.remove_directory,
            self.exchange_directories,
            self.link,
            self.link,
            self.write_through_temporary_link,
            self.write_through_link_in_temporary_directory,
            self.write_to_unlinked_link,
            self.symlink,
            self.change_mode,
            self.make_pipe,
            self.move_out,
            self.move_in,
            self.write_through_link_in_directory_that_moved_in,
        )

    def change(self, n_times: int) -> None:
        for _ in range(n_times):
            # The path may be missing, or the new one may exist.
            with suppress(OSError, IndexError, ValueError):
                self.rng.choice(self.kinds)()

    # Choosing paths

    def _entries(self) -> list[os.DirEntry[str]]:
        return list(entries_below(self.root))

    def _directory(self) -> Path:
        found = [Path(e.path) for e in self._entries() if e.is_dir(follow_symlinks=False)]
        return self.rng.choice([self.root, *found])

    def _file(self) -> Path:
        return Path(
            self.rng.choice([e.path for e in self._entries() if e.is_file(follow_symlinks=False)])
        )

    def _any_entry(self) -> Path:
        return Path(self.rng.choice([e.path for e in self._entries()]))

    def _new_path(self) -> Path:
        return self._directory() / self.rng.choice(NAMES)

    def _content(self) -> bytes:
        self._n += 1
        return f"{self._n:06} {self.rng.random():.9f}\n".encode()

    # Changes

    def create(self) -> None:
        with self._new_path().open("xb") as file:
            file.write(self._content())

    def overwrite(self) -> None:
        self._file().write_bytes(self._content())

    def write_in_place(self) -> None:
        with self._file().open("r+b") as file:
            file.write(self._content()[:4])

    def truncate(self) -> None:
        os.truncate(self._file(), self.rng.randrange(3))

    def write_mapped(self) -> None:
        with self._file().open("r+b") as file:
            mapped = mmap.mmap(file.fileno(), 0)
        mapped[0] ^= 1
        mapped.close()

    def delete(self) -> None:
        self._file().unlink()

    def rename(self) -> None:
        self._any_entry().rename(self._new_path())

    def replace_by_rename(self) -> None:
        target = self._file()
        unfinished = target.with_name("unfinished")
        unfinished.write_bytes(self._content())
        unfinished.rename(target)

    def make_directory(self) -> None:
        self._new_path().mkdir()

    def make_deep_directory(self) -> None:
        deep = self._new_path().joinpath(*"deeply" * 3)
        deep.mkdir(parents=True)
        (deep / "file").write_bytes(self._content())

    def remove_directory(self) -> None:
        found = self._directory()
        if found != self.root:
            shutil.rmtree(found)

    def exchange_directories(self) -> None:
        one, other = self._directory(), self._directory()
        spare = self.root / "spare"
        one.rename(spare)
        try:
            other.rename(one)
        except OSError:  # one is inside the other
            spare.rename(one)
            raise
        spare.rename(other)

    def link(self) -> None:
        self._new_path().hardlink_to(self._file())

    def write_through_temporary_link(self) -> None:
        file, link = self._file(), self._directory() / "temporary"
        link.hardlink_to(file)
        self._rewrite(link)
        link.unlink()

    def write_through_link_in_temporary_directory(self) -> None:
        file, directory = self._file(), self._directory() / "temporary"
        directory.mkdir()
        (directory / "link").hardlink_to(file)
        self._rewrite(directory / "link")
        shutil.rmtree(directory)

    def write_to_unlinked_link(self) -> None:
        file, link = self._file(), self._new_path()
        link.hardlink_to(file)
        with link.open("r+b") as opened:
            link.unlink()
            opened.write(self._content()[:5])

    def symlink(self) -> None:
        self._new_path().symlink_to(self.rng.choice(("a", "../b", "missing", "/etc")))

    def change_mode(self) -> None:
        found = self._any_entry()
        mode = self.rng.choice((0o700, 0o644, 0o755, 0o600)) | 0o700 * self._n % 2
        if not found.is_symlink():  # chmod would follow the link, perhaps to /etc
            found.chmod(mode)

    def make_pipe(self) -> None:
        os.mkfifo(self._new_path())

    def move_out(self) -> None:
        self._any_entry().rename(self.outside / self.rng.choice(NAMES))

    def move_in(self) -> None:
        moved = self.rng.choice(list(self.outside.iterdir()))
        if moved.is_file() and not moved.is_symlink():
            moved.write_bytes(self._content())
        moved.rename(self._new_path())

    def write_through_link_in_directory_that_moved_in(self) -> None:
        file, made, path = self._file(), self.outside / "made", self._new_path()
        made.mkdir(exist_ok=True)
        (made / "file").write_bytes(self._content())
        made.rename(path)
        (path / "link").hardlink_to(file)
        self._rewrite(path / "link")
        (path / "link").unlink()

    def _rewrite(self, file: Path) -> None:
        with file.open("r+b") as opened:
            opened.write(self._content()[:6])


def entries_below(root: Path) -> Iterator[os.DirEntry[str]]:
    """All entries below a directory, parents first."""
    with os.scandir(root) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        yield entry
        if entry.is_dir(follow_symlinks=False):
            yield from entries_below(Path(entry.path))


def all_content(root: Path) -> dict[str, tuple[int, bytes]]:
    """The mode and content of everything below a directory, to find out what changed."""
    content: dict[str, tuple[int, bytes]] = {}
    for entry in entries_below(root):
        mode = entry.stat(follow_symlinks=False).st_mode
        data = b""
        if stat.S_ISREG(mode):
            data = Path(entry.path).read_bytes()
        elif stat.S_ISLNK(mode):
            data = os.fsencode(Path(entry.path).readlink())
        content[os.path.relpath(entry.path, root)] = mode, data
    return content


if __name__ == "__main__":
    Disturbance(Path(sys.argv[1]), Path(sys.argv[2]), random.Random(int(sys.argv[3]))).change(
        int(sys.argv[4])
    )
