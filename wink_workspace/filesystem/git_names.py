r"""File names as git writes them in a patch: plain, or as a quoted C string.

The rule is git's with ``core.quotePath=false``. Names with a space are quoted as well, since
GNU patch needs that, and so are names with a character that is not printable.
"""

from __future__ import annotations

import re

_QUOTED = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPE = re.compile(rb"\\([0-3][0-7]{2}|.)", re.DOTALL)
_CHAR_OF_ESCAPE = {
    b"a": b"\a",
    b"b": b"\b",
    b"t": b"\t",
    b"n": b"\n",
    b"v": b"\v",
    b"f": b"\f",
    b"r": b"\r",
    b'"': b'"',
    b"\\": b"\\",
}
_ESCAPE_OF_CHAR = {char.decode(): "\\" + name.decode() for name, char in _CHAR_OF_ESCAPE.items()}

_SPECIAL = re.compile(r'[ "\\]')


def quote_name(name: str) -> str:
    """*name* as written in a patch; bytes that are not UTF-8 are surrogate escapes."""
    if name.isprintable() and not _SPECIAL.search(name):
        return name
    return '"' + "".join(map(_quote_char, name)) + '"'


def _quote_char(char: str) -> str:
    if char in _ESCAPE_OF_CHAR:
        return _ESCAPE_OF_CHAR[char]
    if char.isprintable():
        return char
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape"))


def unquote_name(text: bytes) -> tuple[bytes, bytes] | None:
    """The name in the C string at the start of *text*, and the rest of *text*.

    ``None`` if there is no C string, or if it has an unknown escape.
    """
    quoted = _QUOTED.match(text)
    if quoted is None:
        return None
    try:
        return _ESCAPE.sub(_unescape, quoted[1]), text[quoted.end() :]
    except KeyError:
        return None


def _unescape(escape: re.Match[bytes]) -> bytes:
    what = escape[1]
    return bytes([int(what, 8)]) if len(what) > 1 else _CHAR_OF_ESCAPE[what]
