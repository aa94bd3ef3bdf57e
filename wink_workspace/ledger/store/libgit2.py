"""libgit2, for what we do not do ourselves: deltas of a whole pack, and merges of lines.

Rule 1: no other git configuration has any effect. The configuration of user and system is hidden
while the repository is opened, and libgit2 does not load it later.
Rule 2: the interface has ids as 40 hexadecimal digits, contents as bytes, failures as
``LedgerError``.
Rule 3: libgit2 writes every file under a temporary name first.
Rule 4: there are no loose objects but the empty tree, which is never read: libgit2 never returns
from a truncated file, which a loss of power can leave. It merges in memory.

Only functions import this module: to load pygit2 takes 80 ms.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pygit2
from pygit2.enums import (
    ConfigLevel,
    FileMode,
    MergeFileFlag,
    RepositoryOpenFlag,
)

from wink_workspace._module_lock import ModuleLock
from wink_workspace.errors import LedgerDamagedError, LedgerError

_FOREIGN_LEVELS = (
    ConfigLevel.PROGRAMDATA,
    ConfigLevel.SYSTEM,
    ConfigLevel.XDG,
    ConfigLevel.GLOBAL,
)

_search_paths = ModuleLock()
_hidden_paths: dict[ConfigLevel, str] = {}
"""What is hidden now; restored in a child that is forked meanwhile."""


@contextmanager
def own_configuration_only() -> Generator[None]:
    """Hide the configuration files of user and system from libgit2.

    The search path is global to the process, so it is changed only while a repository is opened.
    Outside of this block other users of pygit2 have their configuration. A repository that another
    thread opens with pygit2 during the block has none of it; pygit2 cannot hide it for one
    repository only.
    """
    paths = pygit2.settings.search_path
    with _search_paths.now:
        try:
            _hidden_paths.update({level: paths[level] for level in _FOREIGN_LEVELS})
            for level in _FOREIGN_LEVELS:
                paths[level] = ""
            yield
        finally:
            _restore_search_paths()


def _restore_search_paths() -> None:
    for level, path in _hidden_paths.items():
        pygit2.settings.search_path[level] = path
    _hidden_paths.clear()


os.register_at_fork(after_in_child=_restore_search_paths)


class git_failures(AbstractContextManager[None]):  # noqa: N801 - used as a function
    """Translate the errors of libgit2 (``KeyError`` for a missing object) into ``LedgerError``."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KeyError):
            cause = error.args[0] if error.args else error
            raise LedgerDamagedError(f"{self._what}: {cause}") from error
        if isinstance(error, (pygit2.GitError, OSError, ValueError)):
            raise LedgerError(
                f"{self._what}: {error}",
                hint="Fix the cause in this message; `git fsck` on the ledger reports damage.",
            ) from error


def _tree_of(git: pygit2.Repository, content: bytes) -> pygit2.Oid:
    builder = git.TreeBuilder()
    builder.insert("file", git.create_blob(content), FileMode.BLOB)
    return builder.write()


class _Memory(pygit2.OdbBackend):
    """Objects in memory."""

    def __init__(self) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType] - pygit2 has no types for it
        self._found: dict[str, tuple[int, bytes]] = {}

    def read_cb(self, oid: pygit2.Oid) -> tuple[int, bytes]:
        return self._found[str(oid)]

    def read_prefix_cb(self, oid: pygit2.Oid) -> tuple[int, bytes, pygit2.Oid]:
        return *self._found[str(oid)], oid

    def read_header_cb(self, oid: pygit2.Oid) -> tuple[int, int]:
        kind, content = self._found[str(oid)]
        return kind, len(content)

    def exists_cb(self, oid: pygit2.Oid) -> bool:
        return str(oid) in self._found

    def write_cb(self, oid: pygit2.Oid, content: bytes, kind: int) -> None:
        self._found[str(oid)] = kind, content

    def refresh_cb(self) -> None:
        """Do nothing: no other process adds any."""

    def __iter__(self) -> Iterator[pygit2.Oid]:
        return iter(())


def _opened(directory: Path) -> pygit2.Repository:
    with own_configuration_only():
        flags = RepositoryOpenFlag.NO_SEARCH | RepositoryOpenFlag.BARE
        return pygit2.Repository(str(directory), flags)


def write_pack(directory: Path, object_ids: Iterable[str]) -> None:
    """Write objects of packs to one new pack, with deltas where they help."""
    with git_failures("objects cannot be packed"):
        builder = pygit2.PackBuilder(_opened(directory))
        builder.set_threads(0)
        for object_id in object_ids:
            builder.add(pygit2.Oid(hex=object_id))
        builder.write()


def merged(
    directory: Path, base: bytes, ours: bytes, theirs: bytes, *, with_markers: bool
) -> bytes | None:
    """The merge of three contents; see ``GitRepository.merge_contents``."""
    with git_failures("two versions of a file cannot be merged"):
        git = _opened(directory)
        odb = pygit2.Odb()
        odb.add_backend(_Memory(), 0)
        git.set_odb(odb)
        flags = MergeFileFlag.ACCEPT_CONFLICTS if with_markers else MergeFileFlag.DEFAULT
        index = git.merge_trees(
            _tree_of(git, base), _tree_of(git, ours), _tree_of(git, theirs), file_flags=flags
        )
        if index.conflicts is not None and not with_markers:
            return None
        return bytes(git.odb.read(index["file"].id)[1])


def delete_ref(directory: Path, name: str) -> None:
    """Delete a ref, loose or packed; its commit stays."""
    with git_failures(f"ref {name} cannot be deleted"):
        _opened(directory).references.delete(name)
