"""Small JSON documents in the ledger, each changed by compare-and-swap on one ref.

A document is a commit without parents whose tree has ``document.json``, under the ref
``refs/wink/documents/<kind>/<name>``. Retention keeps them; ``delete`` removes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from wink_workspace.errors import LedgerDamagedError
from wink_workspace.filesystem.model import FileKind
from wink_workspace.ledger.store.disk import ledger_failures
from wink_workspace.ledger.store.git_tree import GitTree, TreeEntry
from wink_workspace.ledger.store.objects import ObjectStore
from wink_workspace.ledger.store.refs import RefMover

from .commits import Commit, format_commit, parse_commit

DOCUMENT_REFS: Final = "refs/wink/documents/"


@dataclass(frozen=True, slots=True)
class Document:
    """A stored document: its ``content`` by keys, as from JSON; ``id`` identifies this version."""

    id: str
    content: Mapping[str, Any]


class Documents:
    """The documents of one kind.

    Args:
        store: The objects.
        refs: Moves the refs.
        kind: One or more names with ``/`` between them.
    """

    def __init__(self, store: ObjectStore, refs: RefMover, kind: str) -> None:
        self._store = store
        self._refs = refs
        self._prefix = f"{DOCUMENT_REFS}{kind}/"

    def versions(self) -> dict[str, str]:
        """The id of the present version of every document by its name, without reading it."""
        refs = self._store.repository.refs(self._prefix)
        return {ref.removeprefix(self._prefix): id_ for ref, id_ in refs.items()}

    def read_all(self) -> dict[str, Document]:
        """Every document by its name.

        Raises:
            LedgerDamagedError: If one cannot be read.
        """
        return {name: self._read(self._prefix + name, id_) for name, id_ in self.versions().items()}

    def _read(self, ref: str, commit_id: str) -> Document:
        tree = parse_commit(commit_id, self._store.read(commit_id, "commit")).tree
        entry = self._store.tree(tree).get(b"document.json")
        try:
            content = json.loads(b"" if entry is None else self._store.read(entry.id))
        except ValueError as error:
            raise LedgerDamagedError(f"the document {ref} cannot be read: {error}") from error
        return Document(commit_id, content)

    def write(
        self, name: str, content: Mapping[str, Any], *, expected: str | None, at: datetime
    ) -> str:
        """Replace the version with the id *expected*, ``None`` to create the document; the new id.

        *content* is what JSON can hold, by its keys.

        Raises:
            LedgerMovedError: If it is another version; it was not changed.
            LedgerError: If it cannot be written.
        """
        blob = self._store.write_blob(json.dumps(content, sort_keys=True).encode())
        tree = self._store.write_tree(
            GitTree.of({b"document.json": TreeEntry(FileKind.FILE, blob)})
        )
        # The number makes each version a commit of its own, so that no old one counts as the new
        version = 1 + (0 if expected is None else self._version(expected))
        commit = Commit(tree, None, at, f"document {name}", {"Version": str(version)})
        commit_id = self._store.write("commit", format_commit(commit))
        self._store.sync()
        self._refs.move(self._prefix + name, expected=expected, target=commit_id)
        return commit_id

    def _version(self, commit_id: str) -> int:
        commit = parse_commit(commit_id, self._store.read(commit_id, "commit"))
        return int(commit.trailers.get("Version", "0"))

    def delete(self, name: str) -> None:
        """Delete a document."""
        self._store.repository.delete_ref(self._prefix + name)

    def delete_stale_locks(self) -> None:
        """Delete the locks that a dead process left; the caller is the only writer."""
        directory = self._store.repository.directory / self._prefix
        with ledger_failures("a dead process's lock cannot be deleted"):
            for lock in directory.glob("*.lock"):
                lock.unlink(missing_ok=True)
