"""How a value leaves the child: as a bounded ``repr``, and as JSON where that is exact enough.

Lists and tuples are both arrays in JSON. A value that is too large, too deep, or of another
type has its ``repr`` alone. What a ``repr`` does is the code's own affair: it may raise.
"""

from __future__ import annotations

import contextlib
import math
import reprlib
from itertools import chain
from typing import Any, Final, cast

__all__ = ["as_fields", "bounded_repr"]

_MOST_ITEMS: Final = 2_000
_MOST_LEVELS: Final = 20
_MOST_BITS: Final = 1_024


def as_fields(value: object, *, most_chars: int) -> dict[str, object]:
    """What a frame says of *value*: ``repr``, how much of it is missing, and ``json`` if it can."""
    text, n_missing = bounded_repr(value, most_chars=most_chars)
    fields: dict[str, object] = {"repr": text, "n_missing": n_missing}
    with contextlib.suppress(_NotJsonError):
        fields["json"] = _Json(most_chars).of(value)
    return fields


def bounded_repr(value: object, *, most_chars: int) -> tuple[str, int]:
    """The ``repr``, cut to *most_chars*, and how many characters are missing at least."""
    n_beyond = 0
    if type(value) is str and len(value) > most_chars:
        n_beyond = len(value) - most_chars
        value = value[:most_chars]
    try:
        # Python's own, unless it would write far more than could be shown
        text = repr(value) if _room_left(value, most_chars * 4) else _repr(most_chars).repr(value)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - the code's own __repr__ may raise anything
        text = f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"
    return _printable(text[:most_chars]), max(0, len(text) - most_chars) + n_beyond


def _room_left(value: object, room: int, level: int = 0) -> int:
    """What is left of *room*, in characters, after *value*; 0 when it does not fit."""
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
    """One that stops at what could not be shown anyway, and sorts what it shows."""
    bounded = reprlib.Repr()
    bounded.maxlevel = _MOST_LEVELS
    for name in ("list", "tuple", "dict", "set", "frozenset", "deque", "array"):
        setattr(bounded, f"max{name}", _MOST_ITEMS)
    for name in ("string", "long", "other"):
        setattr(bounded, f"max{name}", most_chars + 1)
    return bounded


def _printable(text: str) -> str:
    """*text* without lone surrogates, which no file or terminal takes."""
    return text.encode("utf-8", "backslashreplace").decode()


class _NotJsonError(Exception):
    """The value is not JSON, or too much of it."""


class _Json:
    """Copies a value while there is room for it."""

    def __init__(self, room_chars: int) -> None:
        self._room = room_chars

    def of(self, value: Any, level: int = 0) -> object:
        kind = cast("type[object]", type(value))
        if value is None or kind is bool:
            return self._taking(4, value)
        if kind is int and value.bit_length() <= _MOST_BITS:
            return self._taking(value.bit_length() // 3 + 1, value)
        if kind is float and math.isfinite(value):
            return self._taking(8, value)
        if kind is str and value.isascii():
            return self._taking(len(value), value)
        if kind is str:
            return self._taking(len(value), self._unicode(value))
        if level == _MOST_LEVELS:
            raise _NotJsonError
        if kind in (list, tuple):
            return [self.of(item, level + 1) for item in value]
        if kind is dict:
            return {self._key(key): self.of(item, level + 1) for key, item in value.items()}
        raise _NotJsonError

    def _key(self, key: object) -> str:
        if type(key) is not str:
            raise _NotJsonError
        return self._taking(len(key), self._unicode(key))

    def _unicode(self, text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _NotJsonError from None
        return text

    def _taking(self, n_chars: int, value: Any) -> Any:
        self._room -= n_chars + 1
        if self._room < 0:
            raise _NotJsonError
        return value
