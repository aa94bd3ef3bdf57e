"""The files of a project that build steps see: a copy without secrets, history and caches.

Set-up steps see all of it. The steps before them, which install packages, see only the lists of
packages, so that a change of another file does not repeat them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from wink_workspace.errors import UsageError
from wink_workspace.filesystem.ignoring import PathPatterns
from wink_workspace.filesystem.path_names import DERIVED_NAMES, PUBLIC_NAMES, SECRET_NAMES

__all__ = ["Filter", "copy_source", "package_lists", "source_digest"]

_EXCLUDED: Final = PathPatterns(
    # Certificates and keys by suffix stay: tests of a project need its own.
    (".git", *DERIVED_NAMES, *(name for name in SECRET_NAMES if not name.startswith("*")))
)
_PUBLIC: Final = PathPatterns(PUBLIC_NAMES)
_MOST_FILES: Final = 500_000
_MOST_BYTES: Final = 10 * 1_073_741_824

_LIST: Final = re.compile(
    r"(.*/)?(requirements/.*|[^/]*(requirements|constraints)[^/]*\.(txt|in|pip)|pyproject\.toml"
    r"|uv\.lock|package(-lock)?\.json|npm-shrinkwrap\.json|pnpm-(lock|workspace)\.yaml|yarn\.lock)"
)

Parts = tuple[str, ...]
Filter = Callable[[str], bool]
"""Whether a step sees the file at a path relative to the source."""


def package_lists(named: Collection[str]) -> Filter:
    """Accepts files that list packages by their names, those *named*, and those beside these.

    The latter have the same suffix in the same directory, because the named ones may include them.
    """
    beside = {(path.parent, path.suffix) for path in map(PurePosixPath, named)}

    def accepts(path: str) -> bool:
        pure = PurePosixPath(path)
        return bool(_LIST.fullmatch(path)) or (pure.parent, pure.suffix) in beside

    return accepts


def source_digest(source: Path, accepts: Filter | None = None) -> str:
    """A digest of the paths, kinds, contents and executable bits that ``copy_source`` copies."""
    digest = hashlib.sha256()
    for parts, entry, status in _entries(source, accepts):
        path = "/".join(parts).encode("utf-8", "surrogateescape")
        if stat.S_ISLNK(status.st_mode):
            content = os.readlink(entry.path).encode("utf-8", "surrogateescape")  # noqa: PTH115 - the text itself
        elif stat.S_ISREG(status.st_mode):
            with Path(entry.path).open("rb") as file:
                content = hashlib.file_digest(file, "sha256").digest()
        else:
            content = b""
        kind = f"{stat.S_IFMT(status.st_mode):o} {status.st_mode & 0o100:o} {len(content)}"
        digest.update(b"%d %s %s " % (len(path), path, kind.encode()) + content)
    return digest.hexdigest()


def copy_source(source: Path, to: Path, owner: int | None, accepts: Filter | None = None) -> None:
    """Copy the files to the new directory *to*, for the host's user *owner* if that is not ours.

    With *accepts*, only files and links at such paths are copied.

    Left out are ``.git``, ``.env`` and other secrets by name, ``node_modules``, virtual
    environments and caches, and everything that is not a file, directory or link.

    Raises:
        UsageError: If it is too large.
    """
    to.mkdir()
    _give(to, owner)
    for parts, entry, status in _entries(source, accepts):
        target = to.joinpath(*parts)
        for above in reversed(target.parents[: len(parts) - 1]):
            if not above.exists():
                above.mkdir()
                _give(above, owner)
        if stat.S_ISDIR(status.st_mode):
            target.mkdir()
        elif stat.S_ISLNK(status.st_mode):
            target.symlink_to(os.readlink(entry.path))  # noqa: PTH115 - the text itself
        else:
            shutil.copyfile(entry.path, target, follow_symlinks=False)
            target.chmod(0o755 if status.st_mode & 0o100 else 0o644)
        _give(target, owner)


def _give(path: Path, owner: int | None) -> None:
    if owner is not None:
        os.chown(path, owner, owner, follow_symlinks=False)


def _entries(
    source: Path, accepts: Filter | None
) -> Iterator[tuple[Parts, os.DirEntry[str], os.stat_result]]:
    """All directories, files and links, in the order of their names; directories come first."""
    n_files = n_bytes = 0
    todo: list[Parts] = [()]
    while todo:
        directory = todo.pop()
        with os.scandir(source.joinpath(*directory)) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
        names = [entry.name for entry in entries]
        left_out = _EXCLUDED.matching(directory, names) - _PUBLIC.matching(directory, names)
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if entry.name in left_out or not _is_copied(status):
                continue
            parts = (*directory, entry.name)
            if entry.is_dir(follow_symlinks=False):
                todo.append(parts)
            if accepts is not None and (
                stat.S_ISDIR(status.st_mode) or not accepts("/".join(parts))
            ):
                continue
            n_files, n_bytes = n_files + 1, n_bytes + status.st_size
            if n_files > _MOST_FILES or n_bytes > _MOST_BYTES:
                raise UsageError(
                    f"{source} has more than {_MOST_FILES:,} files or {_MOST_BYTES:,} bytes",
                    hint="Build the image from a smaller directory.",
                )
            yield parts, entry, status


def _is_copied(status: os.stat_result) -> bool:
    mode = status.st_mode
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode) or stat.S_ISLNK(mode)
