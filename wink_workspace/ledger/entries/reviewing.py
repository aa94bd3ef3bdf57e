"""Diffs of trees in the ledger: contents are read on demand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING

from wink_workspace.filesystem import diff
from wink_workspace.filesystem.model import Change, FileKind
from wink_workspace.ledger.store.trees import TreeChange, TreeEntry

if TYPE_CHECKING:
    from wink_workspace.filesystem.diff import Diff, DiffLimits, Side
    from wink_workspace.ledger.store.objects import ObjectStore


def tree_diff(
    store: ObjectStore,
    changes: Iterable[TreeChange],
    *,
    limits: DiffLimits | None = None,
) -> Diff:
    """*changes* as a diff, for as long as *store* is open.

    Its methods raise ``LedgerError`` if a content cannot be read.
    """
    return diff.Diff(
        (
            Change(change.path, _side(store, change.before), _side(store, change.after))
            for change in changes
        ),
        limits=limits or diff.DEFAULT_DIFF_LIMITS,
    )


class _Blob:
    """A blob of the ledger; implements ``Content``."""

    def __init__(self, store: ObjectStore, object_id: str) -> None:
        self.id = object_id
        self._store = store
        self._size_bytes: int | None = None

    @property
    def size_bytes(self) -> int:
        if self._size_bytes is None:
            self._size_bytes = self._store.size_bytes(self.id)
        return self._size_bytes

    def read(self) -> bytes:
        whole = BytesIO()  # its ``getvalue`` makes no copy
        for chunk in self.chunks():
            whole.write(chunk)
        return whole.getvalue()

    def chunks(self) -> Iterator[bytes]:
        return self._store.chunks(self.id)


def _side(store: ObjectStore, entry: TreeEntry | None) -> Side | None:
    if entry is None or entry.kind is FileKind.DIRECTORY:
        return None
    return diff.Side(entry.kind, _Blob(store, entry.id), entry.executable)
