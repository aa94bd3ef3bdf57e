"""The bare git repository of a ledger: the wrapper of pygit2.

Rule 1: no other git configuration has any effect. The configuration of user and system is hidden
while the repository is opened, and libgit2 does not load it later. The repository's own
configuration and ``info/attributes`` set everything else. Hooks, templates and environment
variables are never read.
Rule 2: the interface has ids as 40 hexadecimal digits, contents as bytes, failures as
``LedgerError``.
Rule 3: libgit2 writes every file under a temporary name first.
Rule 4: there are no loose objects but the empty tree, which is never read: libgit2 never returns
from a truncated file, which a loss of power can leave. libgit2 merges in memory.

``open_packs.py`` and ``refs.py`` write what is on the hot path: objects and one ref.
"""

from __future__ import annotations

import os
import re
import shutil
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

import pygit2
from pygit2.enums import (
    ConfigLevel,
    FileMode,
    MergeFileFlag,
    ObjectType,
    RepositoryOpenFlag,
)

from wink_workspace._module_lock import ModuleLock
from wink_workspace.errors import EntryMissingError, LedgerDamagedError, LedgerError

from .compression import ObjectKind
from .disk import sync, write_whole
from .git_tree import EMPTY_TREE_ID
from .large_files import LargeFiles
from .open_packs import OpenPacks
from .pack_reading import rebuild_indexes
from .packs import Packs

_KINDS: dict[int, ObjectKind] = {
    ObjectType.BLOB: "blob",
    ObjectType.TREE: "tree",
    ObjectType.COMMIT: "commit",
}

_T = TypeVar("_T")
_REF = re.compile(rb"[0-9a-f]{40}\n")
_REF_BYTES = 64

_FOREIGN_LEVELS = (
    ConfigLevel.PROGRAMDATA,
    ConfigLevel.SYSTEM,
    ConfigLevel.XDG,
    ConfigLevel.GLOBAL,
)

# Plain git can read the repository, so it gets the same configuration as libgit2. `gc.auto` is off
# because only our retention knows what to keep; the reflog, because it would keep deleted history.
_CONFIGURATION = f"""\
[core]
\tattributesFile = {os.devnull}
\tautocrlf = false
\tbare = true
\tbigFileThreshold = 8m
\texcludesFile = {os.devnull}
\tfilemode = true
\thooksPath = {os.devnull}
\tlogAllRefUpdates = false
\trepositoryformatversion = 0
[gc]
\tauto = 0
"""

# Has precedence over attributes files in trees and in the system's configuration.
_ATTRIBUTES = "* !text !eol !crlf !ident !filter !working-tree-encoding !diff !merge\n"

_search_paths = ModuleLock()
_hidden_paths: dict[ConfigLevel, str] = {}
"""What is hidden now; restored in a child that is forked meanwhile."""


@contextmanager
def _own_configuration_only() -> Generator[None]:
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


class _failures(AbstractContextManager[None]):  # noqa: N801 - used as a function
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


class GitRepository:
    """A bare repository without outside configuration.

    Args:
        directory: Its git directory, made by ``create``.
        durable: Whether files are synced to the device.
        have_others_deleted: Whether another process deleted objects meanwhile; asked if one is
            missing.

    Attributes:
        durable, have_others_deleted: As given.
        large_files: The contents that are read and written in pieces.
        open_packs: The new objects of all writers, which libgit2 does not know.

    Raises:
        LedgerError: If it does not exist or cannot be opened.
    """

    def __init__(
        self,
        directory: Path,
        *,
        durable: bool = False,
        have_others_deleted: Callable[[], bool] = bool,
    ) -> None:
        self.have_others_deleted = have_others_deleted
        self.directory = directory
        self.durable = durable
        self._packs = packs = Packs(directory / "objects", durable=durable)
        self.open_packs = OpenPacks(directory / "wink" / "open", packs, durable=durable)
        self.large_files = LargeFiles(packs, self.open_packs)
        self._git = self._open()

    @classmethod
    def create(cls, directory: Path) -> None:
        """Create an empty repository; *directory* must not exist, its parent must.

        It appears complete or not at all.

        Raises:
            LedgerError: If it cannot be created.
        """
        unfinished = directory.with_name(directory.name + ".new")
        with _failures(f"the ledger {directory} cannot be created"):
            if directory.exists():
                raise FileExistsError(f"{directory} exists already")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(mode=0o700)
            # As in gitrepository-layout(5); libgit2 also makes hooks and others, in 3 ms more
            for name in ("info", "objects", "objects/pack", "objects/4b", "refs", "refs/heads"):
                (unfinished / name).mkdir()
            (unfinished / "HEAD").write_text("ref: refs/heads/main\n")
            (unfinished / "config").write_text(_CONFIGURATION)
            (unfinished / "info" / "attributes").write_text(_ATTRIBUTES)
            # git fsck misses the empty tree if a tree has an empty directory
            empty_tree = unfinished / "objects" / EMPTY_TREE_ID[:2] / EMPTY_TREE_ID[2:]
            empty_tree.write_bytes(zlib.compress(b"tree 0\0"))
            unfinished.rename(directory)

    def reopen(self) -> None:
        """Clear libgit2's caches, after packs were deleted or the boundary moved."""
        self._git.free()
        self._git = self._open()
        self.large_files.forget()
        self.open_packs.find_others()  # else deleted objects would seem present

    def close(self) -> None:
        """Close every file; do not use the object afterwards."""
        self.open_packs.close()
        self._git.free()

    def _open(self, *, in_memory: bool = False) -> pygit2.Repository:
        """libgit2's repository; objects that are written *in_memory* are lost with it."""
        with _failures(f"the ledger {self.directory} cannot be opened"), _own_configuration_only():
            flags = RepositoryOpenFlag.NO_SEARCH | RepositoryOpenFlag.BARE
            git = pygit2.Repository(str(self.directory), flags)
            if in_memory:
                odb = pygit2.Odb()
                odb.add_backend(_Memory(), 0)
                git.set_odb(odb)
            return git

    # Objects

    def __contains__(self, object_id: str) -> bool:
        if object_id == EMPTY_TREE_ID:
            return True
        if not self._has(object_id):
            self.open_packs.find_others()
            if not self._has(object_id):  # its open pack may have been sealed in between
                return False
        base = self.open_packs.base_of(object_id)
        return not base or self._git.odb.exists(base)

    def _has(self, object_id: str) -> bool:
        return object_id in self.open_packs or self._git.odb.exists(object_id)

    def read(self, object_id: str) -> tuple[ObjectKind, bytes]:
        """An object's kind and its whole content.

        Raises:
            LedgerDamagedError: If it is missing or damaged.
            EntryMissingError: If it is missing, and another process has deleted old history.
            LedgerError: If it cannot be read.
        """
        if object_id == EMPTY_TREE_ID:
            return "tree", b""
        return self._found(object_id, self._read_open, lambda: self._git.odb.read(object_id))

    def _read_open(self, object_id: str) -> tuple[ObjectKind, bytes]:
        if not self.open_packs.base_of(object_id):
            return self.open_packs.read(object_id)
        return "blob", b"".join(self.large_files.chunks(object_id) or ())

    def header(self, object_id: str) -> tuple[ObjectKind, int]:
        """An object's kind and its size in bytes, without the content; raises as ``read``."""
        if object_id == EMPTY_TREE_ID:
            return "tree", 0
        return self._found(
            object_id, self.open_packs.header, lambda: self._git.odb.read_header(object_id)
        )

    def _found(
        self,
        object_id: str,
        read_open: Callable[[str], tuple[ObjectKind, _T]],
        read_packed: Callable[[], tuple[int, _T]],
    ) -> tuple[ObjectKind, _T]:
        """Read an object; if that fails, look again for what other processes changed.

        They may have added objects to their open packs, sealed these, or replaced packs that
        libgit2 still has open.
        """
        with _failures(f"object {object_id} cannot be read"):
            try:
                return self._look(object_id, read_open, read_packed)
            except (KeyError, pygit2.GitError):
                self.open_packs.find_others()
                if object_id not in self.open_packs:
                    rebuild_indexes(self._packs)
                    self.reopen()
            try:
                return self._look(object_id, read_open, read_packed)
            except KeyError as error:
                if not self.have_others_deleted():
                    raise
                raise EntryMissingError(
                    f"object {object_id} was deleted by the retention of another process",
                    hint="Close the workspace and open it again; its files are not affected. If "
                    "this repeats for an entry that is listed, `git fsck` on the ledger shows the "
                    "damage.",
                ) from error
            except pygit2.GitError as error:  # a failure of the system is an OSError
                raise LedgerDamagedError(f"object {object_id} is damaged: {error}") from error

    def _look(
        self,
        object_id: str,
        read_open: Callable[[str], tuple[ObjectKind, _T]],
        read_packed: Callable[[], tuple[int, _T]],
    ) -> tuple[ObjectKind, _T]:
        if object_id in self.open_packs:
            return read_open(object_id)
        kind, found = read_packed()
        return _KINDS[kind], found

    def pack(
        self, object_ids: Iterable[str], *, on_progress: Callable[[int], object] = bool
    ) -> None:
        """Write objects of packs to one new pack, with deltas where they help.

        The existing objects are not deleted. *on_progress* receives the number of objects read.
        """
        with _failures("objects cannot be packed"):
            builder = pygit2.PackBuilder(self._git)
            builder.set_threads(0)
            for n_read, object_id in enumerate(object_ids):
                on_progress(n_read)
                self.read(object_id)
                builder.add(pygit2.Oid(hex=object_id))
            packs = self.directory / "objects" / "pack"
            before = set(packs.iterdir())
            builder.write()
            # libgit2's option for this, ``core.fsyncObjectFiles``, causes warnings of git
            for path in (*(set(packs.iterdir()) - before), packs):
                sync(path)

    def merge_contents(
        self, base: bytes, ours: bytes, theirs: bytes, *, with_markers: bool = False
    ) -> bytes | None:
        """The merge of three contents by lines; ``None`` on a conflict.

        With *with_markers*, git's conflict markers are around conflicts instead. Runs git's merge
        of trees, over trees of one entry: unlike a merge of file contents, it does not change
        other bytes.
        """
        with _failures("two versions of a file cannot be merged"):
            git = self._open(in_memory=True)
            flags = MergeFileFlag.ACCEPT_CONFLICTS if with_markers else MergeFileFlag.DEFAULT
            index = git.merge_trees(
                _tree_of(git, base), _tree_of(git, ours), _tree_of(git, theirs), file_flags=flags
            )
            if index.conflicts is not None and not with_markers:
                return None
            return bytes(git.odb.read(index["file"].id)[1])

    # History

    def boundary(self) -> frozenset[str]:
        """The commits whose parents are no longer kept: git's own list of shallow commits."""
        with _failures("the boundary of the history cannot be read"):
            try:
                return frozenset(self._shallow.read_text().split())
            except FileNotFoundError:
                return frozenset()

    def set_boundary(self, commit_ids: Iterable[str]) -> None:
        """Make the history begin at these commits; older ones may then be deleted."""
        lines = "".join(f"{commit_id}\n" for commit_id in sorted(commit_ids))
        with _failures("the boundary of the history cannot be moved"):
            if not lines:
                self._shallow.unlink(missing_ok=True)
                return
            # What is older is deleted next
            write_whole(self._shallow, lines.encode(), durable=True)

    @property
    def _shallow(self) -> Path:
        return self.directory / "shallow"

    def ref(self, name: str) -> str | None:
        """The commit id of the ref *name*, ``None`` if it does not exist."""
        loose = self._loose_ref(name)  # the usual case, a tenth of the time that libgit2 takes
        if loose is not None:
            return loose
        with _failures(f"ref {name} cannot be read"):
            found = self._git.references.get(name)
            return None if found is None else str(found.target)

    def _loose_ref(self, name: str) -> str | None:
        """The id in the file of a ref; ``None`` if it has none, is packed, or names another ref."""
        try:
            fd = os.open(f"{self.directory}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            line = os.read(fd, _REF_BYTES)
        except OSError:
            return None
        finally:
            os.close(fd)
        return line[:40].decode() if _REF.fullmatch(line) else None

    def refs(self, prefix: str = "refs/") -> dict[str, str]:
        """The commit id of every ref below *prefix*, by name."""
        with _failures("refs cannot be read"):
            names = sorted(name for name in self._git.references if name.startswith(prefix))
        found = {name: self.ref(name) for name in names}
        # Without those that another process deleted meanwhile
        return {name: commit_id for name, commit_id in found.items() if commit_id is not None}

    def delete_ref(self, name: str) -> None:
        """Delete a ref, loose or packed; its commit stays."""
        with _failures(f"ref {name} cannot be deleted"):
            self._git.references.delete(name)
