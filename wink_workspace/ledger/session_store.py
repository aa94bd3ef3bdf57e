"""A session's STATE as a git tree: a directory for each slice, a file for each 64 values.

::

    session/schema                            1
    session/module:Class/00000000             values 0 to 63, each one line of JSON
    session/module:Class/00000001             ...

Rule 1: only changes are written. A slice whose view is the same object as last time costs nothing.
In other slices, values are compared by identity, and only files with a changed value are written.
This is correct because values are immutable.
Rule 2: a class is found by name among the slices that the session knows; a file never causes an
import. A slice that the session does not know stays in the tree unchanged.

A session's children are not stored, as in ``Session.dump_state``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import is_
from typing import Final

from wink_workspace import serde
from wink_workspace.errors import SessionError, SnapshotError, SnapshotVersionError, UsageError
from wink_workspace.session import Session, SliceView
from wink_workspace.session.stored import SCHEMA_VERSION

from .git_tree import EMPTY_TREE, GitEntry
from .names import stored_name, workspace_name
from .objects import ObjectStore

__all__ = ["SessionStore"]

_VALUES_PER_CHUNK: Final = 64
_SCHEMA: Final = b"schema"


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Some values and the blob that holds them."""

    values: tuple[object, ...]
    id: str

    def holds(self, values: tuple[object, ...]) -> bool:
        return len(values) == len(self.values) and all(map(is_, values, self.values))


@dataclass(frozen=True, slots=True)
class _WrittenSlice:
    """A slice as of the last write."""

    view: SliceView[object]
    chunks: tuple[_Chunk, ...]
    entry: GitEntry


class SessionStore:
    """Writes one session's STATE repeatedly, and reads it back.

    Args:
        store: The objects.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._epoch = store.epoch
        self._written: dict[str, _WrittenSlice] = {}
        self._unknown: dict[str, GitEntry] = {}
        self._schema: GitEntry | None = None
        self._last: tuple[object, str] | None = None  # a STATE, by reference, and its root

    @property
    def unknown(self) -> tuple[str, ...]:
        """The names of the stored slices that the session does not know."""
        return tuple(sorted(self._unknown))

    # Writing

    def write(self, session: Session) -> str:
        """Write the session's present STATE; return the root of its tree.

        Raises:
            SessionError: If a value has no JSON form, or two slices' classes have the same name.
            LedgerError: If it cannot be written.
        """
        if self._epoch != self._store.epoch:
            self._epoch, self._written, self._last = self._store.epoch, {}, None
            self._schema = None
        state = session.snapshot().state
        if self._last is None or self._last[0] is not state:
            self._last = (state, self._write_views(_by_name(state.values())))
        return self._last[1]

    def _write_views(self, views: dict[str, SliceView[object]]) -> str:
        if self._schema is None:
            content = b"%d\n" % SCHEMA_VERSION
            self._schema = GitEntry(b"100644", self._store.write("blob", content))
        entries: dict[bytes, GitEntry | None] = {_SCHEMA: self._schema}
        for name in list(self._unknown):
            if name in views:
                del self._unknown[name]
            else:
                entries[stored_name(name)] = self._unknown[name]
        before, self._written = self._written, {}
        for name, view in views.items():
            written = before.get(name)
            if written is None or written.view is not view:
                written = self._write_slice(name, view, () if written is None else written.chunks)
            self._written[name] = written
            entries[stored_name(name)] = written.entry
        return self._store.write_tree(EMPTY_TREE.changed(entries))

    def _write_slice(
        self, name: str, view: SliceView[object], old: tuple[_Chunk, ...]
    ) -> _WrittenSlice:
        chunks: list[_Chunk] = []
        entries: dict[bytes, GitEntry | None] = {}
        values = view.all()
        for n, start in enumerate(range(0, len(values), _VALUES_PER_CHUNK)):
            part = values[start : start + _VALUES_PER_CHUNK]
            chunk = self._write_chunk(name, part, old[n] if n < len(old) else None)
            chunks.append(chunk)
            entries[b"%08x" % n] = GitEntry(b"100644", chunk.id)
        tree = self._store.write_tree(EMPTY_TREE.changed(entries))
        return _WrittenSlice(view, tuple(chunks), GitEntry(b"40000", tree))

    def _write_chunk(self, name: str, values: tuple[object, ...], old: _Chunk | None) -> _Chunk:
        if old is not None and old.holds(values):
            return old
        lines: dict[int, bytes] = {}
        if old is not None and not {*map(id, old.values)}.isdisjoint(map(id, values)):
            stored = self._store.read(old.id).split(b"\n")[:-1]
            lines = dict(zip(map(id, old.values), stored, strict=True))
        text = bytearray()
        for value in values:
            text += lines.get(id(value)) or _dump_value(name, value)
            text += b"\n"
        return _Chunk(values, self._store.write("blob", bytes(text)))

    # Reading

    def load(self, session: Session, root: str) -> tuple[str, ...]:
        """Replace the session's STATE with the tree *root*, all or nothing.

        Returns:
            The names of the slices that the session does not know. They are kept and written
            again; ``adopt`` loads them once the session knows them.

        Raises:
            SnapshotVersionError: If it has another schema version.
            SnapshotError: If a value does not fit its class.
            LedgerError: If it cannot be read.
        """
        stored = {workspace_name(name): entry for name, entry in self._store.tree(root)}
        schema = stored.pop(_SCHEMA.decode(), None)
        version = "none" if schema is None else self._store.read(schema.id).decode().strip()
        if version != str(SCHEMA_VERSION):
            raise SnapshotVersionError(
                f"the stored state has schema version {version}, this reads {SCHEMA_VERSION}"
            )
        known = {name: entry for name, entry in stored.items() if _knows(session, name)}
        session.load_state(self._document(known))
        views = _by_name(session.snapshot().state.values())
        self._epoch = self._store.epoch
        self._written = {name: self._read_slice(views[name], at) for name, at in known.items()}
        self._unknown = {name: entry for name, entry in stored.items() if name not in known}
        self._last = (session.snapshot().state, root)
        return self.unknown

    def adopt(self, session: Session) -> tuple[str, ...]:
        """Load kept slices that the session knows by now and that are empty in it.

        Returns:
            Their names.

        Raises:
            SnapshotError: If a value does not fit its class.
            LedgerError: If it cannot be read.
        """
        taken = set(_by_name(session.snapshot().state.values()))
        known = {
            name: entry
            for name, entry in self._unknown.items()
            if name not in taken and _knows(session, name)
        }
        reader = session.clone()
        reader.load_state(self._document(known))
        for name, view in _by_name(reader.snapshot().state.values()).items():
            session[view.slice_type].seed(view.all())
            del self._unknown[name]
        return tuple(sorted(known))

    def _document(self, slices: dict[str, GitEntry]) -> str:
        """The input of ``Session.load_state``, assembled from the stored lines without parsing."""
        parts = (
            f"{json.dumps(name)}: [{', '.join(self._lines(at))}]" for name, at in slices.items()
        )
        return f'{{"schema": {SCHEMA_VERSION}, "slices": {{{", ".join(parts)}}}}}'

    def _lines(self, entry: GitEntry) -> Iterator[str]:
        for _, chunk in self._store.tree(entry.id):
            yield from self._store.read(chunk.id).decode().split("\n")[:-1]

    def _read_slice(self, view: SliceView[object], entry: GitEntry) -> _WrittenSlice:
        ids = (chunk.id for _, chunk in self._store.tree(entry.id))
        chunks = tuple(_Chunk(values, id_) for values, id_ in zip(_chunks(view), ids, strict=True))
        return _WrittenSlice(view, chunks, entry)


def _by_name(views: Iterable[SliceView[object]]) -> dict[str, SliceView[object]]:
    """The non-empty views, by the name of their class."""
    named: dict[str, SliceView[object]] = {}
    for view in views:
        slice_type = view.slice_type
        name = f"{slice_type.__module__}:{slice_type.__qualname__}"
        if len(view) and named.setdefault(name, view) is not view:
            raise SessionError(
                f"two slices are called {name!r}, so their stored form would be ambiguous",
                hint="Rename one of the classes.",
            )
    return named


def _knows(session: Session, name: str) -> bool:
    """Whether *session* has a STATE slice of that name, tested by loading an empty one."""
    empty = json.dumps({"schema": SCHEMA_VERSION, "slices": {name: []}})
    try:
        session.clone().load_state(empty)
    except SnapshotError:
        return False
    return True


def _chunks(view: SliceView[object]) -> Iterator[tuple[object, ...]]:
    values = view.all()
    for start in range(0, len(values), _VALUES_PER_CHUNK):
        yield values[start : start + _VALUES_PER_CHUNK]


def _dump_value(name: str, value: object) -> bytes:
    try:
        return serde.dump_json(value).encode()
    except UsageError as error:
        raise SessionError(
            f"slice {name!r} cannot be stored: {error.message}",
            hint="Use only values that JSON can represent in STATE slices; declare others as LOG.",
        ) from error
