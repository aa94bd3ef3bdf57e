# ruff: noqa: PTH103, PTH104, PTH118, PTH123, PTH211 - relative names and plain calls are the fastest
"""Swaps entries of a directory for links that lead outside, as fast as it can, until it is killed.

Run as a program::

    python disk_racer.py ROOT OUTSIDE

Below ROOT, ``dir`` is in turn a directory and a link to OUTSIDE, and ``file`` a file, a link
to a file there and a pipe. The number of swaps made so far is kept in the modification time
of ``ROOT/../swaps``, in seconds.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from contextlib import suppress


def main(root: str, outside: str) -> None:
    os.chdir(root)
    counter = os.path.join(root, "..", "swaps")
    for n in itertools.count():
        with suppress(OSError):  # the tested process deletes and moves entries, too
            if n % 50 == 0:
                renew(outside)
            rotate("dir", "spare/dir")
            rotate("file", "spare/file", "spare/pipe")
        if n % 10 == 0:
            os.utime(counter, (n, n))


def renew(outside: str) -> None:
    shutil.rmtree("spare", ignore_errors=True)
    os.makedirs("spare/dir/sub")
    for name in ("spare/dir/secret", "spare/dir/sub/secret", "spare/file"):
        with open(name, "w") as file:
            file.write("inside\n")
    os.mkfifo("spare/pipe")
    os.symlink(os.path.join(outside, "secret"), "spare/link")
    os.rename("spare/link", "file")
    os.symlink(outside, "spare/link")
    os.rename("spare/link", "dir")  # fails if it is a directory; that is as good


def rotate(*names: str) -> None:
    """Rename each entry to the next name."""
    os.rename(names[-1], "spare/last")
    for name, following in reversed(list(itertools.pairwise(names))):
        os.rename(name, following)
    os.rename("spare/last", names[0])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
