"""The object store of a ledger: blobs, trees and commits, by the hash of their content.

Rule 1: this module only adds objects. Only ``collection.py`` deletes them.
Rule 2: memory is bounded. A content of ``LARGE_BYTES`` or more is written and read in pieces, and
the cache of trees is limited by its number of entries.

Use a store from one thread at a time.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, TypeAlias

from wink_workspace.errors import LedgerDamagedError, LedgerError

from .compression import CHUNK_BYTES, ObjectKind, run_steps
from .disk import ledger_failures
from .git_tree import EMPTY_TREE, EMPTY_TREE_ID, GitTree
from .large_files import LARGE_BYTES
from .open_packs import Like
from .packs import PackedObject, Packs, PackWriter, encode_object

if TYPE_CHECKING:
    from .repository import GitRepository


PreparedBlob: TypeAlias = PackedObject
"""A content encoded for a pack."""

_MAX_CACHED_ENTRIES: Final = 200_000


class ObjectStore:
    """Reads and adds the objects of one repository.

    Attributes:
        repository: The git repository.
        open_packs: The objects that were added since, until they are packed.
        packs: The packed objects.
        n_written: How many objects were added.
        written_bytes: The total size of all contents added, for the retention.
        durable: Whether added objects survive a loss of power.
        epoch: Increased whenever objects may have been deleted; see ``forget``.
        most_cached: The most entries of directories in the cache, which take about 300 bytes each.
    """

    def __init__(self, repository: GitRepository) -> None:
        self.repository = repository
        self.open_packs = repository.open_packs
        self.packs = Packs(repository.directory / "objects", durable=repository.durable)
        self.durable = repository.durable
        self.n_written = 0
        self.written_bytes = 0
        self.epoch = 0
        self.most_cached = _MAX_CACHED_ENTRIES
        self._bulk: PackWriter | None = None
        self._bases: dict[str, str] = {}
        self._trees: OrderedDict[str, GitTree] = OrderedDict()
        self._n_cached_entries = 0

    # Writing

    def write(self, kind: ObjectKind, content: bytes, *, like: Like | None = None) -> str:
        """Add an object; return its id.

        *like* is the id and the content of a similar object, such as the version before. If that
        is recent, only the difference is stored.

        Raises:
            LedgerError: If it cannot be written; nothing was added.
        """
        self.n_written += 1
        self.written_bytes += len(content)
        if self._bulk is not None:
            made = encode_object(kind, content)
            self._bulk.write(made)
            return made.id
        try:
            own = self.open_packs.own
            if own is None or own.lock.fd < 0:  # a forked child has its parent's pack
                own = self.open_packs.begin()
            return own.add(kind, content, like)
        except LedgerError:
            self.forget()  # other new objects may have been dropped, too
            raise

    def prepare_blob(self, content: bytes) -> PreparedBlob:
        """Encode *content* for ``write_prepared``; may run in any thread."""
        return encode_object("blob", content)

    def write_prepared(self, prepared: PreparedBlob) -> str:
        """Add a prepared blob inside a ``bulk``; return its id. Raises as ``write``."""
        if self._bulk is None:
            raise LedgerError(
                "a blob prepared for a pack can only be written inside a bulk",
                hint="Begin a bulk first.",
            )
        self.n_written += 1
        self.written_bytes += prepared.size_bytes
        self._bulk.write(prepared)
        return prepared.id

    def write_blob(self, content: bytes) -> str:
        """Add a blob with *content*; return its id. Raises as ``write``."""
        return self.write("blob", content)

    def write_blob_from(self, fd: int, *, like: str | None = None) -> str:
        """Add the regular file *fd* from its position to its end as a blob; return its id.

        *like* is the version before, if there is one: a large file is stored as what changed.

        Raises:
            LedgerError: If it cannot be read or written, or its size changes meanwhile.
        """
        return run_steps(self.blob_steps(fd, like=like))

    def blob_steps(
        self, fd: int, *, piece_bytes: int = CHUNK_BYTES, like: str | None = None
    ) -> Generator[None, None, str]:
        """As ``write_blob_from``, a piece of a large file for each step.

        Raises:
            LedgerError: As ``write_blob_from``.
        """
        with ledger_failures("a file cannot be read"):
            size_bytes = os.fstat(fd).st_size - os.lseek(fd, 0, os.SEEK_CUR)
            if size_bytes < LARGE_BYTES:
                with open(fd, "rb", closefd=False) as file:
                    return self.write("blob", file.read())
        self.n_written += 1
        self.written_bytes += size_bytes
        return (
            yield from self.repository.large_files.writing(
                fd, size_bytes, piece_bytes=piece_bytes, like=like
            )
        )

    def write_tree(self, tree: GitTree, *, before: tuple[str, GitTree] | None = None) -> str:
        """Add a tree; return its id. *before* is a similar tree. Raises as ``write``."""
        like = None if before is None else (before[0], b"".join(before[1].rows))
        tree_id = self.write("tree", b"".join(tree.rows), like=like)
        if tree_id not in self._trees:
            self._trees[tree_id] = tree
            self._n_cached_entries += len(tree.rows) + 1
            if self._n_cached_entries > self.most_cached:
                self._drop_oldest()
        return tree_id

    def bulk(self) -> AbstractContextManager[None]:
        """Write the objects that the block adds into one pack; for some hundred objects or more.

        Much faster than a file each. The objects cannot be read before the block ends; if it
        raises, none is added. A nested block writes to the pack of the outer one.
        """
        return _Bulk(self)

    def begin_bulk(self) -> bool:
        """Begin a pack; ``False`` if one is open already. For ``bulk``."""
        if self._bulk is not None:
            return False
        self._bulk = PackWriter(self.packs)
        return True

    def end_bulk(self, *, keep: bool) -> None:
        """Finish the pack or, without *keep*, discard it. For ``bulk``."""
        writer, self._bulk = self._bulk, None
        if writer is not None:
            (writer.finish if keep else writer.abandon)()

    def begin_pack(self) -> SeparatePack:
        """Begin a pack; see ``SeparatePack``.

        Raises:
            LedgerError: If it cannot be written.
        """
        return SeparatePack(self, PackWriter(self.packs))

    def sync(self) -> None:
        """Write everything added so far; if the store is durable, call fsync.

        Call it before moving a ref to any of these objects.

        Raises:
            LedgerError: If a ``bulk`` is open, or the disk fails.
        """
        if self._bulk is not None:
            raise LedgerError(
                "a commit inside a bulk would refer to objects that cannot be read yet",
                hint="End the bulk first.",
            )
        self.flush()

    def flush(self) -> None:
        """Write everything added so far; it is in memory until then.

        Raises:
            LedgerError: If it cannot be written; what was added since the last time was dropped.
        """
        try:
            self.open_packs.flush()
        except LedgerError:
            self.forget()
            raise

    # Reading

    def read(self, object_id: str, kind: ObjectKind = "blob") -> bytes:
        """An object's whole content.

        Raises:
            LedgerDamagedError: If it is missing, damaged, or of another kind.
        """
        found, content = self.repository.read(object_id)
        if found != kind:
            raise LedgerDamagedError(f"object {object_id} is a {found}, not a {kind}")
        return content

    def size_bytes(self, object_id: str) -> int:
        """The size of an object's content, without reading it; raises as ``read``."""
        return self.repository.header(object_id)[1]

    def chunks(self, object_id: str) -> Iterator[bytes]:
        """A blob's content in pieces; a large one uses bounded memory.

        Use the pieces only after all of them were read: damage is found at the end.

        Raises:
            LedgerDamagedError: If it is missing or damaged.
        """
        pieces = None
        if self.size_bytes(object_id) >= LARGE_BYTES:
            pieces = self.repository.large_files.chunks(object_id)
        return iter((self.read(object_id),)) if pieces is None else pieces

    def tree(self, tree_id: str) -> GitTree:
        """A tree; raises as ``read``."""
        if tree_id == EMPTY_TREE_ID:
            return EMPTY_TREE
        tree = self._trees.get(tree_id)
        if tree is not None:
            self._trees.move_to_end(tree_id)
            return tree
        tree = self.read_tree(tree_id)
        self._trees[tree_id] = tree
        self._n_cached_entries += len(tree.rows) + 1
        self._drop_oldest()
        return tree

    def read_tree(self, tree_id: str) -> GitTree:
        """A tree, without the cache: for callers that read many trees once; raises as ``read``."""
        try:
            return GitTree.parse(self.read(tree_id, "tree"))
        except ValueError as error:
            raise LedgerDamagedError(
                f"object {tree_id} is not a tree of a ledger: {error}"
            ) from error

    def base_of(self, object_id: str) -> str | None:
        """The blob for which a large blob is a delta, as of the last ``find_bases``."""
        return self._bases.get(object_id)

    def find_bases(self) -> None:
        """Look for the large blobs that are deltas, of every process."""
        self._bases = self.open_packs.bases()

    def free_bytes(self) -> int:
        """The free space of the disk with the ledger, in bytes.

        Raises:
            LedgerError: If the system cannot say how much is free.
        """
        with ledger_failures("the free space cannot be read"):
            found = os.statvfs(self.repository.directory)
        return found.f_bavail * found.f_frsize

    def close(self) -> None:
        """Close every file and release the memory; do not use the object afterwards.

        A closed ledger is part of a reference cycle, which Python may keep for a long time.
        """
        self._trees.clear()
        self._n_cached_entries = 0
        self.repository.close()

    def forget(self) -> None:
        """Clear all caches, because this or another process may have deleted objects.

        Callers that keep ids must compare ``epoch`` before they use them.
        """
        self.epoch += 1
        self._trees.clear()
        self._n_cached_entries = 0
        self.repository.reopen()

    def _drop_oldest(self) -> None:
        while self._n_cached_entries > self.most_cached:
            _, oldest = self._trees.popitem(last=False)
            self._n_cached_entries -= len(oldest) + 1


class _Bulk(AbstractContextManager[None]):
    """See ``ObjectStore.bulk``.

    Not a generator: Ctrl-C can leave one suspended until a traceback is released, and it would
    then abandon the pack of a later bulk.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._is_outermost = False

    def __enter__(self) -> None:
        self._is_outermost = self._store.begin_bulk()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._is_outermost:
            self._store.end_bulk(keep=error is None)


class SeparatePack(AbstractContextManager["SeparatePack"]):
    """A pack that is filled in steps, between which other objects are added as usual.

    Its objects cannot be read before ``finish``; a block that ends without it discards them.
    Maintenance may delete it meanwhile, and objects that it refers to: begin again if the store's
    ``epoch`` changes.
    """

    def __init__(self, store: ObjectStore, writer: PackWriter) -> None:
        self._store = store
        self._writer = writer

    def write(self, kind: ObjectKind, content: bytes) -> str:
        """Add an object with *content*; return its id. Raises as ``ObjectStore.write``."""
        self._store.n_written += 1
        self._store.written_bytes += len(content)
        made = encode_object(kind, content)
        self._writer.write(made)
        return made.id

    def write_tree(self, tree: GitTree) -> str:
        """Add a tree; return its id. Raises as ``ObjectStore.write``."""
        return self.write("tree", b"".join(tree.rows))

    def finish(self) -> Generator[None, None, None]:
        """Put the pack in place, in steps.

        Raises:
            LedgerError: If it cannot be written; nothing was added.
        """
        yield from self._writer.finish_steps()

    def __exit__(self, *_: object) -> None:
        self._writer.abandon()
