"""The history of a real project: the diff from each release of a package to the next.

``releases/itsdangerous.tar.xz`` holds, for each release of itsdangerous from 0.9 to 2.2.0 in
their order, the output of ``git diff --binary --full-index -M`` from the source
distribution before it, the first one from nothing. It was recorded once from the source
distributions of the package index, so that the tests need no network::

    python release_history.py DIRECTORY_OF_SOURCE_DISTRIBUTIONS releases/NAME.tar.xz

itsdangerous is copyright 2011 Pallets, under the BSD-3-Clause licence, whose text is among the
recorded files, unchanged (``LICENSE``, ``LICENSE.rst``, ``LICENSE.txt``).
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from workspace_support import GIT

RELEASES = Path(__file__).with_name("releases")
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

_NUMBERS = re.compile(r"-([0-9.]+)\.tar\.gz$")  # without pre-releases


def recorded(name: str) -> Iterator[tuple[str, bytes]]:
    """Each release of the package *name* with the diff from the one before."""
    with tarfile.open(RELEASES / f"{name}.tar.xz") as archive:
        for member in archive:
            content = archive.extractfile(member)
            assert content is not None
            yield member.name, content.read()


def record(distributions: Path, archive: Path) -> None:
    """Write the diffs between all releases in *distributions* into *archive*."""
    found = {
        tuple(map(int, numbers[1].split("."))): path
        for path in distributions.iterdir()
        if (numbers := _NUMBERS.search(path.name))
    }
    with tarfile.open(archive, "w:xz", preset=9) as diffs:
        before = EMPTY_TREE
        for version, path in sorted(found.items()):
            after, diff = _release(path, before)
            member = tarfile.TarInfo(".".join(map(str, version)))
            member.size = len(diff)
            diffs.addfile(member, io.BytesIO(diff))
            before = after


def _release(distribution: Path, before: str) -> tuple[str, bytes]:
    """The tree of a source distribution, and the diff from the tree *before* to it."""
    with tempfile.TemporaryDirectory() as extracted, tarfile.open(distribution) as sources:
        sources.extractall(extracted, filter="data")
        (top,) = Path(extracted).iterdir()
        _git(top, "add", "--all", "--force")
        tree = _git(top, "write-tree").decode().strip()
        return tree, _git(top, "diff", "--binary", "--full-index", "-M", before, tree)


def _git(work_tree: Path, *arguments: str) -> bytes:
    repository = Path(tempfile.gettempdir()) / "recording.git"  # keeps all trees
    if not repository.exists():
        subprocess.run(["git", "init", "-q", "--bare", repository], env=GIT, check=True)
    where = {"GIT_DIR": str(repository), "GIT_WORK_TREE": str(work_tree)}
    done = subprocess.run(["git", *arguments], env=GIT | where, check=True, capture_output=True)
    return done.stdout


if __name__ == "__main__":
    record(Path(sys.argv[1]), Path(sys.argv[2]))
