"""The bare git repository of a ledger: its objects, its refs, and the boundary of its history.

The repository's own configuration and ``info/attributes`` set everything for plain git. No other
configuration, hook, template or environment variable has any effect. ``open_packs.py`` and
``refs.py`` write what is on the hot path: objects and one ref.

There are no loose objects but the empty tree, which is never read.
"""

from __future__ import annotations

import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from wink_workspace.errors import EntryMissingError, LedgerDamagedError, LedgerError

from .compression import ObjectKind
from .disk import ledger_failure, ledger_failures, sync, write_whole
from .git_tree import EMPTY_TREE_ID
from .large_files import LargeFiles
from .open_packs import OpenPacks
from .pack_reading import rebuild_indexes
from .packed_objects import PackedObjects
from .packs import Packs

_T = TypeVar("_T")
_REF: Final = re.compile(rb"[0-9a-f]{40}\n")
_REF_BYTES: Final = 64

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
        open_packs: The new objects of all writers.

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
        self._packed = PackedObjects(packs)
        if not (directory / "HEAD").is_file():
            raise LedgerError(
                f"the ledger {directory} cannot be opened: it is not a repository",
                hint="Restore it from a copy.",
            )

    @classmethod
    def create(cls, directory: Path) -> None:
        """Create an empty repository; *directory* must not exist, its parent must.

        It appears complete or not at all.

        Raises:
            LedgerError: If it cannot be created.
        """
        unfinished = directory.with_name(directory.name + ".new")
        with ledger_failures(f"the ledger {directory} cannot be created"):
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
        """Clear caches, after packs were deleted or the boundary moved."""
        self._packed.forget()
        self.open_packs.find_others()  # else deleted objects would seem present

    def close(self) -> None:
        """Close every file; do not use the object afterwards."""
        self.open_packs.close()
        self._packed.forget()

    # Objects

    def __contains__(self, object_id: str) -> bool:
        if object_id == EMPTY_TREE_ID:
            return True
        if not self._has(object_id):
            self.open_packs.find_others()
            if not self._has(object_id):  # its open pack may have been sealed in between
                return False
        base = self.open_packs.base_of(object_id)
        return not base or base in self._packed

    def _has(self, object_id: str) -> bool:
        return object_id in self.open_packs or object_id in self._packed

    def read(self, object_id: str) -> tuple[ObjectKind, bytes]:
        """An object's kind and its whole content.

        Raises:
            LedgerDamagedError: If it is missing or damaged.
            EntryMissingError: If it is missing, and another process has deleted old history.
            LedgerError: If it cannot be read.
        """
        if object_id == EMPTY_TREE_ID:
            return "tree", b""
        return self._found(object_id, self._read_open, self._packed.read)

    def _read_open(self, object_id: str) -> tuple[ObjectKind, bytes]:
        """As ``read``, for an object of an open pack; ``KeyError`` if it is in none."""
        if not self.open_packs.base_of(object_id):
            return self.open_packs.read(object_id)
        return "blob", b"".join(self.large_files.chunks(object_id) or ())

    def header(self, object_id: str) -> tuple[ObjectKind, int]:
        """An object's kind and its size in bytes, without the content; raises as ``read``."""
        if object_id == EMPTY_TREE_ID:
            return "tree", 0
        return self._found(object_id, self.open_packs.header, self._packed.header)

    def _found(
        self, object_id: str, read_open: Callable[[str], _T], read_packed: Callable[[str], _T]
    ) -> _T:
        """Read an object; if that fails, look again for what other processes changed.

        They may have added objects to their open packs, sealed these, or replaced packs that are
        still open here.
        """
        if object_id in self.open_packs:
            return read_open(object_id)
        try:
            return read_packed(object_id)
        except (KeyError, LedgerDamagedError):
            self.open_packs.find_others()
        if object_id not in self.open_packs:
            self.reopen()
            with suppress(KeyError, LedgerDamagedError):  # another process has just sealed it
                return read_packed(object_id)
            rebuild_indexes(self._packs)
            self.reopen()
        try:
            return (read_open if object_id in self.open_packs else read_packed)(object_id)
        except KeyError as error:
            if not self.have_others_deleted():
                raise LedgerDamagedError(
                    f"object {object_id} cannot be read: it is missing"
                ) from error
            raise EntryMissingError(
                f"object {object_id} was deleted by the retention of another process",
                hint="Close the workspace and open it again; its files are not affected. If this "
                "repeats for an entry that is listed, `git fsck` on the ledger shows the damage.",
            ) from error

    def pack(
        self, object_ids: Iterable[str], *, on_progress: Callable[[int], object] = bool
    ) -> None:
        """Write objects of packs to one new pack, with deltas where they help.

        The existing objects are not deleted. *on_progress* receives the number of objects read.
        """
        from .libgit2 import write_pack

        packs = self._packs.directory
        before = set(packs.iterdir())

        def readable() -> Iterator[str]:
            for n_read, object_id in enumerate(object_ids):
                on_progress(n_read)
                self.read(object_id)
                yield object_id

        write_pack(self.directory, readable())
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
        from .libgit2 import merged

        return merged(self.directory, base, ours, theirs, with_markers=with_markers)

    # History

    def boundary(self) -> frozenset[str]:
        """The commits whose parents are no longer kept: git's own list of shallow commits."""
        with ledger_failures("the boundary of the history cannot be read"):
            try:
                return frozenset(self._shallow.read_text().split())
            except FileNotFoundError:
                return frozenset()

    def set_boundary(self, commit_ids: Iterable[str]) -> None:
        """Make the history begin at these commits; older ones may then be deleted."""
        lines = "".join(f"{commit_id}\n" for commit_id in sorted(commit_ids))
        with ledger_failures("the boundary of the history cannot be moved"):
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
        try:
            fd = os.open(f"{self.directory}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return self._packed_refs().get(name)
        except OSError as error:
            raise ledger_failure(f"ref {name} cannot be read", error) from error
        try:
            line = os.read(fd, _REF_BYTES)
        except IsADirectoryError:
            return None
        except OSError as error:
            raise ledger_failure(f"ref {name} cannot be read", error) from error
        finally:
            os.close(fd)
        if not _REF.fullmatch(line):
            raise LedgerError(
                f"ref {name} cannot be read: it is not a commit id",
                hint=f"`git fsck` in {self.directory} reports damage; try `wink-workspace repair`.",
            )
        return line[:40].decode()

    def refs(self, prefix: str = "refs/") -> dict[str, str]:
        """The commit id of every ref below *prefix*, by name."""
        with ledger_failures("refs cannot be read"):
            names = {name for name in self._packed_refs() if name.startswith(prefix)}
            for directory, _, files in os.walk(f"{self.directory}/{prefix}"):
                below = os.path.relpath(directory, self.directory)
                names |= {f"{below}/{file}" for file in files if not file.endswith(".lock")}
        found = {name: self.ref(name) for name in sorted(names)}
        # Without those that another process deleted meanwhile
        return {name: commit_id for name, commit_id in found.items() if commit_id is not None}

    def _packed_refs(self) -> dict[str, str]:
        """The refs in the file that plain git may have made."""
        with ledger_failures("refs cannot be read"):
            try:
                lines = (self.directory / "packed-refs").read_text().splitlines()
            except FileNotFoundError:
                return {}
        pairs = (line.split() for line in lines if line[:1] not in ("#", "^"))
        return {name: commit_id for commit_id, name in pairs}

    def delete_ref(self, name: str) -> None:
        """Delete a ref, loose or packed; its commit stays."""
        from .libgit2 import delete_ref

        delete_ref(self.directory, name)
