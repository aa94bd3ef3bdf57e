"""Names of values, types and paths in messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["clause", "described", "first_sentence", "path_text", "quoted", "type_name"]

_QUOTED_LENGTH = 60
"""Characters of a string that a message quotes."""

_WRITTEN_BITS = 200
"""Up to this many bits a message shows an integer in digits."""


def quoted(value: object) -> str:
    """``repr`` of *value*, shortened if it is long."""
    if isinstance(value, int) and value.bit_length() > _WRITTEN_BITS:
        return f"of {value.bit_length()} bits"
    if isinstance(value, str) and len(value) > _QUOTED_LENGTH:
        return f"{value[:_QUOTED_LENGTH]!r}… ({len(value)} characters)"
    return repr(value)


def described(value: object) -> str:
    """JSON data by its JSON type, other values by their Python type: ``the string 'x'``."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the string {quoted(value)}"
        case int():
            return f"the integer {quoted(value)}"
        case float():
            return f"the number {value}"
        case Mapping():
            return "an object"
        case list() | tuple():
            return "an array"
        case _:
            return f"a Python {type(value).__name__}"


def path_text(path: Iterable[object]) -> str:
    """``steps[2].title``; a key that is not an identifier is quoted: ``env['a b']``."""
    text = ""
    for step in path:
        if isinstance(step, str) and _is_plain(step):
            text += f".{step}" if text else step
        else:
            text += f"[{quoted(step)}]"
    return text


def _is_plain(key: str) -> bool:
    return len(key) <= _QUOTED_LENGTH and key.replace("-", "_").isidentifier()


def type_name(type_: object) -> str:
    """The qualified name of a class, or the source form of another type."""
    return type_.__qualname__ if isinstance(type_, type) else str(type_)


def clause(error: Exception) -> str:
    """An exception's message as a clause of a sentence."""
    return str(error).strip().removesuffix(".") or f"was refused with {type(error).__name__}"


def first_sentence(error: Exception) -> str:
    """The first sentence of an exception's message as a clause."""
    return clause(error).partition("\n")[0].partition(". ")[0]
