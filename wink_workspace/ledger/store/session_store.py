"""A session's STATE as a git tree: a directory for each slice, a file for each 64 values.

::

    session/schema                            2
    session/module:Class/00000000             values 0 to 63, each one line of JSON
    session/module:Class/00000001             ...
    session/module:Class/field.map            a ``ChunkedMap`` of the only value, one key a line
    session/module:Class/field.map/3f/05      the same with more keys: a file for each of its parts

More than 64 files of values are in directories of 64 each, ``00000000/00000000`` and so on. Schema
1 has neither these directories nor maps; it is read, too.

Rule 1: only changes are written. A slice whose view is the same object as last time costs nothing.
In other slices, chunks of values and parts of maps are compared by identity, and only files with a
change are written. This is correct because both are immutable.
Rule 2: a class is found by name among the slices that the session knows; a file never causes an
import. A slice that the session does not know stays in the tree unchanged.

A session's children are not stored, as in ``Session.dump_state``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from json.encoder import encode_basestring
from operator import is_
from typing import Final

from wink_workspace import serde
from wink_workspace.errors import (
    LedgerDamagedError,
    LedgerError,
    SessionError,
    SnapshotError,
    SnapshotVersionError,
    UsageError,
)
from wink_workspace.filesystem.model import FileKind
from wink_workspace.session import CHUNK_VALUES, ChunkedMap, Leaf, MapPart, Session, SliceView
from wink_workspace.session.session_document import SCHEMA_VERSION

from .git_tree import EMPTY_TREE, GitTree, TreeEntry
from .names import stored_name, workspace_name
from .objects import ObjectStore

_SCHEMA: Final = b"schema"
_SCHEMA_VERSION: Final = 2
_READ_VERSIONS: Final = ("1", "2")
_NUMBER: Final = b"%08x"
_GROUP_CHUNKS: Final = 64
_MAP_SUFFIX: Final = b".map"


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Some values and the blob that holds them."""

    values: tuple[object, ...]
    entry: TreeEntry

    def holds(self, values: tuple[object, ...]) -> bool:
        if values is self.values:
            return True
        return len(values) == len(self.values) and all(map(is_, values, self.values))


@dataclass(frozen=True, slots=True)
class _WrittenPart:
    """A part of a map, and the blob or tree that holds it with everything below."""

    part: MapPart[object]
    entry: TreeEntry
    tree: GitTree = EMPTY_TREE
    below: tuple[_WrittenPart | None, ...] = ()


@dataclass(frozen=True, slots=True)
class _WrittenSlice:
    """A slice as of the last write."""

    view: SliceView[object]
    chunks: tuple[_Chunk, ...]
    groups: tuple[TreeEntry, ...]
    maps: Mapping[str, _WrittenPart]
    entry: TreeEntry


class SessionStore:
    """Writes one session's STATE repeatedly, and reads it back.

    Args:
        store: The objects.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._epoch = store.epoch
        self._written: dict[str, _WrittenSlice] = {}
        self._unknown: dict[str, TreeEntry] = {}
        self._schema: TreeEntry | None = None
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
            content = b"%d\n" % _SCHEMA_VERSION
            self._schema = TreeEntry(FileKind.FILE, self._store.write("blob", content))
        entries: dict[bytes, TreeEntry | None] = {_SCHEMA: self._schema}
        for name in list(self._unknown):
            if name in views:
                del self._unknown[name]
            else:
                entries[stored_name(name)] = self._unknown[name]
        before, self._written = self._written, {}
        for name, view in views.items():
            written = before.get(name)
            if written is None or written.view is not view:
                written = self._write_slice(name, view, written)
            self._written[name] = written
            entries[stored_name(name)] = written.entry
        return self._store.write_tree(EMPTY_TREE.changed(entries))

    def _write_slice(
        self, name: str, view: SliceView[object], old: _WrittenSlice | None
    ) -> _WrittenSlice:
        entries: dict[bytes, TreeEntry | None] = {}
        before, known = ((), ()) if old is None else (old.chunks, old.groups)
        maps: dict[str, _WrittenPart] = {}
        if found := _maps_of(view):
            for field_name, map_ in found.items():
                written = None if old is None else old.maps.get(field_name)
                maps[field_name] = part = self._write_part(name, map_.root, written)
                entries[_map_name(field_name)] = part.entry
            chunks = (self._write_rest(name, view, maps, old),)
        else:
            chunks = tuple(
                self._write_chunk(name, values, before[n] if n < len(before) else None)
                for n, values in enumerate(view.chunks)
            )
        groups: list[TreeEntry] = []
        for start in range(0, len(chunks) if len(chunks) > _GROUP_CHUNKS else 0, _GROUP_CHUNKS):
            part, n = chunks[start : start + _GROUP_CHUNKS], len(groups)
            if n < len(known) and part == before[start : start + _GROUP_CHUNKS]:
                groups.append(known[n])
            else:
                groups.append(self._directory(_numbered((each.entry for each in part), start)))
        made = self._directory(entries | _numbered(groups or (each.entry for each in chunks)))
        return _WrittenSlice(view, chunks, tuple(groups), maps, made)

    def _directory(self, entries: Mapping[bytes, TreeEntry | None]) -> TreeEntry:
        tree_id = self._store.write_tree(EMPTY_TREE.changed(entries))
        return TreeEntry(FileKind.DIRECTORY, tree_id)

    def _write_rest(
        self,
        name: str,
        view: SliceView[object],
        maps: Mapping[str, _WrittenPart],
        old: _WrittenSlice | None,
    ) -> _Chunk:
        """Write the only value of *view* without its maps."""
        value = view.chunks[0][0]
        if old is not None and old.maps.keys() == maps.keys():
            before = old.chunks[0].values[0]
            for each in _field_keys(view.slice_type).keys() - maps.keys():
                if getattr(value, each) is not getattr(before, each):
                    break
            else:
                return _Chunk(view.chunks[0], old.chunks[0].entry)
        rest = copy(value)
        for each in maps:
            object.__setattr__(rest, each, ChunkedMap[object]())
        text = _dump_value(name, rest) + b"\n"
        return _Chunk(view.chunks[0], TreeEntry(FileKind.FILE, self._store.write("blob", text)))

    def _write_chunk(self, name: str, values: tuple[object, ...], old: _Chunk | None) -> _Chunk:
        if old is not None and old.holds(values):
            return old if old.values is values else _Chunk(values, old.entry)
        lines: dict[int, bytes] = {}
        if old is not None and not {*map(id, old.values)}.isdisjoint(map(id, values)):
            stored = self._store.read(old.entry.id).split(b"\n")[:-1]
            lines = dict(zip(map(id, old.values), stored, strict=True))
        text = bytearray()
        for value in values:
            text += lines.get(id(value)) or _dump_value(name, value)
            text += b"\n"
        return _Chunk(values, TreeEntry(FileKind.FILE, self._store.write("blob", bytes(text))))

    def _write_part(
        self, name: str, part: MapPart[object], old: _WrittenPart | None
    ) -> _WrittenPart:
        if old is not None and old.part is part:
            return old
        if isinstance(part, Leaf):
            text = "\n".join((*_map_lines(name, part), "")).encode()
            return _WrittenPart(part, TreeEntry(FileKind.FILE, self._store.write("blob", text)))
        tree = EMPTY_TREE
        below: list[_WrittenPart | None] = [None] * len(part.parts)
        if old is not None and old.below:
            tree, below = old.tree, list(old.below)
        changes: dict[bytes, TreeEntry | None] = {}
        for n, each in enumerate(part.parts):
            known = below[n]
            if each is not (None if known is None else known.part):
                made = None if each is None else self._write_part(name, each, known)
                below[n] = made
                changes[b"%02x" % n] = None if made is None else made.entry
        tree = tree.changed(changes)
        entry = TreeEntry(FileKind.DIRECTORY, self._store.write_tree(tree))
        return _WrittenPart(part, entry, tree, tuple(below))

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
        if version not in _READ_VERSIONS:
            raise SnapshotVersionError(
                f"the stored state has schema version {version}, this reads "
                + " and ".join(_READ_VERSIONS)
            )
        known = {name: entry for name, entry in stored.items() if _knows(session, name)}
        before = session.snapshot()
        session.load_state(self._document(known))
        views = _by_name(session.snapshot().state.values())
        try:
            written = {name: self._read_slice(name, views[name], at) for name, at in known.items()}
        except LedgerError:
            session.restore(before)
            raise
        self._epoch, self._written = self._store.epoch, written
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

    def _document(self, slices: dict[str, TreeEntry]) -> str:
        """The input of ``Session.load_state``, assembled from the stored lines without parsing."""
        parts = (
            f"{json.dumps(name)}: [{', '.join(self._lines(at))}]" for name, at in slices.items()
        )
        return f'{{"schema": {SCHEMA_VERSION}, "slices": {{{", ".join(parts)}}}}}'

    def _lines(self, entry: TreeEntry) -> Iterator[str]:
        """The values of a slice as JSON."""
        tree = self._store.tree(entry.id)
        chunks = [self._blob_lines(chunk) for chunk in self._chunks_of(tree)]
        if any(len(chunk) != CHUNK_VALUES for chunk in chunks[:-1]):
            raise LedgerDamagedError(f"a file of a stored slice has not {CHUNK_VALUES} values")
        lines = [line for chunk in chunks for line in chunk]
        maps = {name: at for name, at in tree if name.endswith(_MAP_SUFFIX)}
        if not maps:
            return iter(lines)
        if len(lines) != 1:
            raise LedgerDamagedError(f"a stored slice has a map beside {len(lines)} values, not 1")
        value: dict[str, object] = json.loads(lines[0])
        for name, at in maps.items():
            key = name.removesuffix(_MAP_SUFFIX).decode()
            if key not in value or value[key] != {}:
                raise LedgerDamagedError(f"a stored map belongs to no empty field {key!r}")
            value[key] = json.loads(f"{{{', '.join(self._part_lines(at))}}}")
        return iter((json.dumps(value),))

    def _chunks_of(self, tree: GitTree) -> Iterator[TreeEntry]:
        for name, entry in tree:
            if name.endswith(_MAP_SUFFIX):
                continue
            if entry.is_tree:
                yield from (chunk for _, chunk in self._store.tree(entry.id))
            else:
                yield entry

    def _part_lines(self, entry: TreeEntry) -> Iterator[str]:
        if not entry.is_tree:
            yield from self._blob_lines(entry)
            return
        for _, below in self._store.tree(entry.id):
            yield from self._part_lines(below)

    def _blob_lines(self, entry: TreeEntry) -> list[str]:
        return self._store.read(entry.id).decode().split("\n")[:-1]

    def _read_slice(self, name: str, view: SliceView[object], entry: TreeEntry) -> _WrittenSlice:
        """The slice as if it was just written, so that only later changes are written."""
        tree = self._store.tree(entry.id)
        stored = {each: at for each, at in tree if each.endswith(_MAP_SUFFIX)}
        found = _maps_of(view) if stored else {}
        maps = {
            each: self._read_part(name, map_.root, stored.pop(_map_name(each), None))
            for each, map_ in found.items()
        }
        if stored:
            raise LedgerDamagedError(f"slice {name!r} has no map for {sorted(stored)}")
        entries = tuple(self._chunks_of(tree))
        if len(entries) != len(view.chunks):
            raise LedgerDamagedError(
                f"slice {name!r} has {len(entries)} files for {len(view)} values"
            )
        chunks = tuple(map(_Chunk, view.chunks, entries))
        groups = () if maps else tuple(each for _, each in tree if each.is_tree)
        return _WrittenSlice(view, chunks, groups, maps, entry)

    def _read_part(self, name: str, part: MapPart[object], entry: TreeEntry | None) -> _WrittenPart:
        """Check that a stored part has the form in which *part* would be written."""
        if entry is not None and isinstance(part, Leaf):
            if not entry.is_tree and self._blob_lines(entry) == _map_lines(name, part):
                return _WrittenPart(part, entry)
        elif entry is not None and entry.is_tree and not isinstance(part, Leaf):
            tree = self._store.tree(entry.id)
            entries = dict(tree)
            below = tuple(
                None
                if each is None
                else self._read_part(name, each, entries.pop(b"%02x" % n, None))
                for n, each in enumerate(part.parts)
            )
            if not entries:
                return _WrittenPart(part, entry, tree, below)
        raise LedgerDamagedError(f"a map of slice {name!r} is not divided as it was written")


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


@lru_cache(maxsize=256)
def _field_keys(slice_type: type[object]) -> dict[str, str]:
    """The fields of a dataclass, each with its key in JSON."""
    if not is_dataclass(slice_type):
        return {}
    return {
        each.name: str(each.metadata.get("alias", each.name))
        for each in fields(slice_type)
        if each.init
    }


def _maps_of(view: SliceView[object]) -> dict[str, ChunkedMap[object]]:
    """The maps of the only value of *view* that have a form of their own, by field.

    One whose key in JSON is another name is written within the value.
    """
    if len(view.chunks) != 1 or len(view.chunks[0]) != 1:
        return {}
    value = view.chunks[0][0]
    found: dict[str, ChunkedMap[object]] = {}
    for name, key in _field_keys(view.slice_type).items():
        field_value = getattr(value, name)
        if name == key and isinstance(field_value, ChunkedMap):
            found[name] = field_value
    return found


def _map_name(field_name: str) -> bytes:
    return stored_name(field_name) + _MAP_SUFFIX


def _map_lines(name: str, leaf: Leaf[object]) -> list[str]:
    """A line for each key, in the order of the keys: the key and its value, as in a JSON object."""
    lines: list[str] = []
    for key in sorted(leaf.items):
        value = leaf.items[key]
        # Most values are texts, which ``serde`` would encode in the same way, with more calls
        line = f"{encode_basestring(key)}: {encode_basestring(value)}" if type(value) is str else ""
        if not line.isascii() or not line:
            line = f"{_dump_value(name, key).decode()}: {_dump_value(name, value).decode()}"
        lines.append(line)
    return lines


def _numbered(entries: Iterable[TreeEntry], start: int = 0) -> dict[bytes, TreeEntry | None]:
    return {_NUMBER % n: entry for n, entry in enumerate(entries, start)}


def _dump_value(name: str, value: object) -> bytes:
    try:
        return serde.dump_json(value).encode()
    except UsageError as error:
        raise SessionError(
            f"slice {name!r} cannot be stored: {error.message}",
            hint="Use only values that JSON can represent in STATE slices; declare others as LOG.",
        ) from error
