"""What a rollback, a recovery or an undo threw away, kept until the retention drops it.

Each is one commit without parents, so that it keeps nothing alive but its own files, under
``refs/wink/discarded/<time>-<call>``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Final

from wink_workspace.errors import LedgerDamagedError

from .commits import Commit, format_commit, one_line, parse_commit
from .git_tree import EMPTY_TREE, GitEntry
from .objects import ObjectStore
from .refs import RefMover

__all__ = ["DISCARDED_REFS", "Discarded", "discarded_at", "keep_discarded"]

DISCARDED_REFS: Final = "refs/wink/discarded/"
_MAX_CALL_CHARS: Final = 100
_NOT_IN_REFS = re.compile(rb"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """Files that were thrown away.

    ``files`` is their root, ``number`` that of the entry they were found after (0 for none).
    """

    ref: str
    id: str
    at: datetime
    call_id: str
    reason: str
    number: int
    files: str


def keep_discarded(
    store: ObjectStore, refs: RefMover, files: str, *, trailers: Mapping[str, str], at: datetime
) -> Discarded:
    """Keep the tree *files* under a ref; doing it again with the same gives the same ref.

    Args:
        store: Where to keep it.
        refs: What makes the ref.
        files: The root of the files.
        trailers: ``Reason``, ``Call`` and ``Number``, as in ``Discarded``.
        at: When they were thrown away.

    Raises:
        LedgerError: If it cannot be written.
    """
    tree = store.write_tree(EMPTY_TREE.changed({b"files": GitEntry(b"40000", files)}))
    commit = Commit(tree, None, at, f"discarded: {trailers['Reason']}", trailers)
    commit_id = store.write("commit", format_commit(commit))
    store.sync()
    names = _names(trailers["Call"], at)
    ref = next(ref for ref in names if _is_free_for(store, ref, commit_id))
    if store.repository.ref(ref) is None:
        refs.move(ref, expected=None, target=commit_id)
    return discarded_at(store, ref, commit_id)


def _is_free_for(store: ObjectStore, ref: str, commit_id: str) -> bool:
    return store.repository.ref(ref) in (None, commit_id)


def _names(call_id: str, at: datetime) -> Iterator[str]:
    """The name for it, and those to take when something else has that one."""
    time = at.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    call = _NOT_IN_REFS.sub(
        lambda found: b"%%%02X" % found[0][0], one_line(call_id, _MAX_CALL_CHARS).encode()
    )
    name = f"{DISCARDED_REFS}{time}-{call.decode() or 'unknown'}"
    yield name
    yield from (f"{name}-{n}" for n in count(2))


def discarded_at(store: ObjectStore, ref: str, commit_id: str) -> Discarded:
    """What the commit under *ref* keeps.

    Raises:
        LedgerDamagedError: If ``keep_discarded`` did not make it.
    """
    commit = parse_commit(commit_id, store.read(commit_id, "commit"))
    files = store.tree(commit.tree).get(b"files")
    if files is None:
        raise LedgerDamagedError(f"{ref} keeps no files")
    return Discarded(
        ref=ref,
        id=commit_id,
        at=commit.at,
        call_id=commit.trailers.get("Call", ""),
        reason=commit.trailers.get("Reason", ""),
        number=int(commit.trailers.get("Number", "0")),
        files=files.id,
    )
