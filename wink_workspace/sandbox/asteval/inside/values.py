"""Encoding of a value for the host: a bounded ``repr``, and JSON if the value allows it.

Lists and tuples are both arrays in JSON. A value that is too large, too deep, or of another type
has only a ``repr``. The ``repr`` may be the code's own function, and raise an exception.
"""

from __future__ import annotations

import math
import reprlib
from itertools import chain
from typing import Any, Final, cast

__all__ = ["as_fields", "bounded_repr"]

_MOST_ITEMS: Final = 2_000
_MOST_LEVELS: Final = 20
_MOST_BITS: Final = 1_024


def as_fields(value: object, *, most_chars: int) -> dict[str, object]:
    """The fields of *value* in a frame: ``repr``, ``n_missing`` and, if possible, ``json``."""
    text, n_missing = bounded_repr(value, most_chars=most_chars)
    fields: dict[str, object] = {"repr": text, "n_missing": n_missing}
    if _room_left(value, most_chars) and _is_json(value):
        fields["json"] = value
    return fields


def bounded_repr(value: object, *, most_chars: int) -> tuple[str, int]:
    """The ``repr``, cut to *most_chars*, and the least number of characters that are missing."""
    n_beyond = 0
    if type(value) is str and len(value) > most_chars:
        n_beyond = len(value) - most_chars
        value = value[:most_chars]
    try:
        # Python's own repr, unless it would be far longer than the limit
        text = repr(value) if _room_left(value, most_chars * 4) else _repr(most_chars).repr(value)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - the code's own __repr__ may raise anything
        text = f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"
    return _printable(text[:most_chars]), max(0, len(text) - most_chars) + n_beyond


def _room_left(value: object, room: int, level: int = 0) -> int:
    """The characters of *room* that remain after *value*; 0 if it does not fit."""
    if room <= 0 or level > _MOST_LEVELS:
        return 0
    kind = type(value)
    if isinstance(value, str | bytes | bytearray):
        return max(0, room - len(value))
    if isinstance(value, int):
        return max(0, room - value.bit_length() // 3 - 1)
    if kind is dict:
        items: Any = chain.from_iterable(cast("dict[object, object]", value).items())
    elif kind in (list, tuple, set, frozenset):
        items = value
    else:
        return max(0, room - 8)
    for item in items:
        room = _room_left(item, room - 2, level + 1)
        if not room:
            return 0
    return room


def _repr(most_chars: int) -> reprlib.Repr:
    """A ``Repr`` with limits near *most_chars*."""
    bounded = reprlib.Repr()
    bounded.maxlevel = _MOST_LEVELS
    for name in ("list", "tuple", "dict", "set", "frozenset", "deque", "array"):
        setattr(bounded, f"max{name}", _MOST_ITEMS)
    for name in ("string", "long", "other"):
        setattr(bounded, f"max{name}", most_chars + 1)
    return bounded


def _printable(text: str) -> str:
    """*text* with lone surrogates escaped, because files and terminals cannot encode them."""
    return text.encode("utf-8", "backslashreplace").decode()


def _is_json(value: Any) -> bool:
    kind = cast("type[object]", type(value))
    if kind is int:
        return value.bit_length() <= _MOST_BITS
    if kind is float:
        return math.isfinite(value)
    if kind is str:
        return value.isascii() or _printable(value) == value
    if kind is dict:
        return all(type(key) is str and _is_json(key) for key in value) and all(
            map(_is_json, value.values())
        )
    return value is None or kind is bool or (kind in (list, tuple) and all(map(_is_json, value)))
