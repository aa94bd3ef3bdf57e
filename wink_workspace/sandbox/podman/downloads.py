"""Directories of downloads, each kept under a hash of what was asked for.

Rule 1: a directory has its name only when it is complete.
Rule 2: one that was not completed has a name that begins with ``UNFINISHED``. The process with the
lock of builds may delete it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from .programs import Programs

__all__ = ["UNFINISHED", "Downloads"]

UNFINISHED: Final = "unfinished-"
"""How the names of incomplete directories and files of the cache begin."""


class Downloads:
    """What programs of this machine download.

    Args:
        programs: The programs.
        cache: The directory of downloads.
    """

    def __init__(self, programs: Programs, cache: Path) -> None:
        self._programs = programs
        self._cache = cache

    def _filled(self, kind: str, asked: str, fill: Callable[[Path], Path], *, again: bool) -> Path:
        """The directory for what was asked for; *fill* fills a new one, and returns what to keep.

        With *again*, an existing one is replaced.
        """
        folder = self._cache / f"{kind}-{hashlib.sha256(asked.encode()).hexdigest()[:24]}"
        if folder.is_dir() and not again:
            os.utime(folder)  # it is used
            return folder
        self._cache.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=self._cache, prefix=UNFINISHED))
        try:
            kept = fill(unfinished)
            kept.chmod(0o755)  # for the user of the sandbox
            if folder.is_dir():
                shutil.rmtree(folder)
            folder.unlink(missing_ok=True)
            kept.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        return folder
