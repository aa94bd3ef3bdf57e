"""A persistent map with string keys, divided into parts by the hash of the key.

It is for a field of a STATE slice that grows, such as the files that a model has read. A change
makes new parts only from the root to the changed key, so a snapshot costs nothing, and the ledger
writes only the parts that changed (``ledger/store/session_store.py``).

The parts depend on the keys alone, not on the order of changes: a part with at most 64 keys is a
``Leaf``; a larger one is a ``InnerNode`` of 64 parts, by the next 6 bits of the hash. The hash is
BLAKE2b, the same in every process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Generic, TypeAlias, TypeVar, cast, overload

V = TypeVar("V")

T = TypeVar("T")

_BITS = 6
_WIDTH = 1 << _BITS
_MAX_LEAF = 64
_HASH_BYTES = 8
_HASH_BITS = 8 * _HASH_BYTES


@dataclass(frozen=True, slots=True, eq=False)
class Leaf(Generic[V]):
    """The values in ``items``, by key; the mapping is never changed."""

    items: Mapping[str, V]

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True, slots=True, eq=False)
class InnerNode(Generic[V]):
    """64 parts; ``None`` for one without keys. ``n`` is the number of keys below."""

    parts: tuple[MapPart[V] | None, ...]
    n: int

    def __len__(self) -> int:
        return self.n


MapPart: TypeAlias = "Leaf[V] | InnerNode[V]"


class ChunkedMap(Mapping[str, V]):
    """An immutable mapping; ``updated`` and ``without`` make another one that shares its parts.

    It iterates in an order that depends on the keys alone. Equal to any mapping with equal items.

    Args:
        items: The values by key; a ``ChunkedMap`` is shared, not copied.
    """

    __slots__ = ("root",)

    root: MapPart[V]
    """Read only."""

    def __init__(self, items: Mapping[str, V] | Iterable[tuple[str, V]] = ()) -> None:
        if isinstance(items, ChunkedMap):
            self.root = items.root
        else:
            self.root = _divided([(_hash(key), key, value) for key, value in dict(items).items()])

    def __getitem__(self, key: str) -> V:
        return self._leaf_items(key)[key]

    @overload
    def get(self, key: str, /) -> V | None: ...
    @overload
    def get(self, key: str, /, default: V | T) -> V | T: ...
    def get(self, key: str, /, default: V | T | None = None) -> V | T | None:
        """The value of *key*; *default* if it is missing."""  # inherited, it is slow
        root = self.root
        items = root.items if isinstance(root, Leaf) else self._leaf_items(key)
        return items.get(key, default)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key in self._leaf_items(key)

    def _leaf_items(self, key: str) -> Mapping[str, V]:
        """The items of the leaf that would have *key*."""
        part: MapPart[V] | None = self.root
        if isinstance(part, InnerNode):
            digits = _hash(key)
            while isinstance(part, InnerNode):
                part = part.parts[digits % _WIDTH]
                digits >>= _BITS
        return part.items if part is not None else {}

    def __len__(self) -> int:
        return len(self.root)

    def __iter__(self) -> Iterator[str]:
        return (key for leaf in _leaves(self.root) for key in sorted(leaf.items))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return dict(self) == dict(cast("Mapping[object, object]", other))

    def __hash__(self) -> int:
        return hash(frozenset(self.items()))

    def __repr__(self) -> str:
        return f"ChunkedMap({dict(self)!r})"

    def updated(self, items: Mapping[str, V]) -> ChunkedMap[V]:
        """A map with *items* set by key; costs their number. This object if nothing differs."""
        root = self.root
        for key, value in items.items():
            root = _with(root, 0, (_hash(key), key, value))
        return self if root is self.root else _of(root)

    def without(self, keys: Iterable[str]) -> ChunkedMap[V]:
        """A map without *keys*, which may be missing; this object if none is in it."""
        root: MapPart[V] | None = self.root
        for key in keys:
            root = None if root is None else _without(root, 0, _hash(key), key)
        return self if root is self.root else _of(root or Leaf({}))


_Item: TypeAlias = "tuple[int, str, V]"
"""The rest of the key's hash, the key and the value."""


def _of(root: MapPart[V]) -> ChunkedMap[V]:
    made = cast("ChunkedMap[V]", object.__new__(ChunkedMap))
    made.root = root
    return made


def _hash(key: str) -> int:
    data = key.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=_HASH_BYTES).digest(), "little")


def _divided(items: list[_Item[V]], bits: int = 0) -> MapPart[V]:
    if len(items) <= _MAX_LEAF or bits >= _HASH_BITS:
        return Leaf({key: value for _, key, value in items})
    parts: list[list[_Item[V]]] = [[] for _ in range(_WIDTH)]
    for digits, key, value in items:
        parts[digits % _WIDTH].append((digits >> _BITS, key, value))
    divided = tuple(_divided(part, bits + _BITS) if part else None for part in parts)
    return InnerNode(divided, len(items))


def _with(part: MapPart[V], bits: int, item: _Item[V]) -> MapPart[V]:
    digits, key, value = item
    if isinstance(part, Leaf):
        if key in part.items and part.items[key] == value:
            return part
        items = {**part.items, key: value}
        if len(items) <= _MAX_LEAF or bits >= _HASH_BITS:
            return Leaf(items)
        return _divided([(_hash(each) >> bits, each, items[each]) for each in items], bits)
    at = digits % _WIDTH
    before = part.parts[at]
    below = (digits >> _BITS, key, value)
    after = Leaf({key: value}) if before is None else _with(before, bits + _BITS, below)
    if after is before:
        return part
    n_more = len(after) - (0 if before is None else len(before))
    return InnerNode((*part.parts[:at], after, *part.parts[at + 1 :]), part.n + n_more)


def _without(part: MapPart[V], bits: int, digits: int, key: str) -> MapPart[V] | None:
    """*part* without *key*; ``None`` if nothing is left."""
    if isinstance(part, Leaf):
        if key not in part.items:
            return part
        items = {each: value for each, value in part.items.items() if each != key}
        return Leaf(items) if items else None
    at = digits % _WIDTH
    before = part.parts[at]
    after = None if before is None else _without(before, bits + _BITS, digits >> _BITS, key)
    if after is before:
        return part
    parts = (*part.parts[:at], after, *part.parts[at + 1 :])
    if part.n - 1 > _MAX_LEAF:
        return InnerNode(parts, part.n - 1)
    below = (leaf.items.items() for each in parts if each is not None for leaf in _leaves(each))
    return Leaf({key: value for items in below for key, value in items})


def _leaves(part: MapPart[V]) -> Iterator[Leaf[V]]:
    if isinstance(part, Leaf):
        yield part
        return
    for below in part.parts:
        if below is not None:
            yield from _leaves(below)
