"""Texts that look the same but differ: normalize them, and describe the difference.

Rule 1: ``plain_line`` removes exactly the differences that a patch may have: trailing white
space, the line end, Unicode punctuation with an ASCII equivalent, and no-break and other
typographic spaces. Tabs, the number of spaces and indentation count.
Rule 2: a difference is described by the names of the characters on both sides.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

_PUNCTUATION: Final[Mapping[int, str]] = {
    **dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"), "-"),
    **dict.fromkeys(map(ord, "\u2018\u2019\u201a\u201b\u2032"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u201f\u2033"), '"'),
    ord("\u2026"): "...",
}
_SPACES: Final[Mapping[int, str]] = dict.fromkeys(
    [0xA0, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000], " "
)
_PLAIN: Final = {**_PUNCTUATION, **_SPACES}
_TRAILING: Final = " \t\r\n\x0b\x0c"
_BOM: Final = b"\xef\xbb\xbf"
_MAX_NAMED: Final = 3
_MAX_CHARS: Final = 40
_WORD: Final = re.compile(r"\w+\Z")


def plain_line(line: bytes) -> bytes:
    """*line* without the differences that a patch may have, ended by a newline."""
    line = line.removeprefix(_BOM)
    if not line.isascii():
        text = line.decode("utf-8", "surrogateescape").translate(_PLAIN)
        line = text.encode("utf-8", "surrogateescape")
    return line.rstrip(_TRAILING.encode()) + b"\n"


def kinds_of_difference(sent: bytes, there: bytes) -> tuple[str, ...]:
    """The kinds of difference between two lines with equal ``plain_line``."""
    kinds: list[str] = []
    ends = [line.endswith(b"\r\n") for line in (sent, there)]
    if ends[0] != ends[1]:
        kinds.append("line endings")
    one, other = (
        line.removeprefix(_BOM).decode("utf-8", "surrogateescape") for line in (sent, there)
    )
    one, other = one.rstrip("\r\n"), other.rstrip("\r\n")
    stripped = one.translate(_SPACES).rstrip(_TRAILING), other.translate(_SPACES).rstrip(_TRAILING)
    if one[len(stripped[0]) :] != other[len(stripped[1]) :]:
        kinds.append("trailing white space")
    one, other = one[: len(stripped[0])], other[: len(stripped[1])]
    if stripped[0] != stripped[1] and _has(stripped, _PUNCTUATION):
        kinds.append("Unicode punctuation")
    if one != stripped[0] or other != stripped[1]:
        kinds.append("no-break spaces")
    return tuple(kinds)


def _has(texts: Sequence[str], table: Mapping[int, str]) -> bool:
    return any(ord(char) in table for text in texts for char in text)


def plain_text(text: str) -> str:
    """*text* with Unicode punctuation and spaces replaced by their ASCII equivalents."""
    return text if text.isascii() else text.translate(_PLAIN)


def named_differences(
    sent: Sequence[str], there: Sequence[str], *, first_line: int, sender: str
) -> tuple[str, ...]:
    """The first difference of each of the first few lines that differ, with line and column.

    Args:
        sent: The lines that were expected.
        there: The file's lines.
        first_line: The line number of the first of them.
        sender: Where *sent* came from, such as ``"the patch"``.
    """
    pairs = enumerate(zip(sent, there, strict=False), first_line)
    differing = ((n, named_difference(one, other, sender)) for n, (one, other) in pairs)
    named = (f"line {n}, column {found[0]}: {found[1]}" for n, found in differing if found)
    return tuple(islice(named, _MAX_NAMED))


def named_difference(sent: str, there: str, sender: str) -> tuple[int, str] | None:
    """The first column, from 1, at which two lines differ, and what each of them has there."""
    if sent == there:
        return None
    pairs = zip(sent, there, strict=False)
    at = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(sent), len(there)))
    if sent.rstrip(_TRAILING) == there.rstrip(_TRAILING):
        at = len(there.rstrip(_TRAILING))
        ours, theirs = _line_ends(there[at:], sent[at:])
        return at + 1, f"the file has {ours} here, {sender} has {theirs}"
    if _is_space(sent[at : at + 1]) or _is_space(there[at : at + 1]):
        while at and _is_space(there[at - 1]):
            at -= 1
        ours, theirs = _spaces(there[at:]), _spaces(sent[at:])
    elif there[at : at + 1].isascii() and sent[at : at + 1].isascii():
        word = _WORD.search(there, 0, at)
        at = word.start() if word and at - word.start() < _MAX_CHARS else at
        ours, theirs = _visible(there[at:]), _visible(sent[at:])
    else:
        ours, theirs = _character(there[at : at + 1]), _character(sent[at : at + 1])
    return at + 1, f"the file has {ours} here, {sender} has {theirs}"


def _is_space(char: str) -> bool:
    return char != "" and (char.isspace() or unicodedata.category(char) in ("Zs", "Cf"))


def _line_ends(there: str, sent: str) -> tuple[str, str]:
    """Descriptions of the line ends, or of the trailing white space, of two lines."""
    spaces = [text.rstrip("\r\n") for text in (there, sent)]
    if spaces[0] == spaces[1]:
        return ("CRLF", "LF") if "\r" in there else ("LF", "CRLF")
    ours, theirs = (
        f"trailing white space ({_spaces(text)})" if text else "no trailing white space"
        for text in spaces
    )
    return ours, theirs


def _spaces(text: str) -> str:
    """A description of the white space at the start of *text*."""
    runs: list[tuple[str, int]] = []
    for char in text:
        if not _is_space(char):
            break
        if runs and runs[-1][0] == char:
            runs[-1] = (char, runs[-1][1] + 1)
        else:
            runs.append((char, 1))
    named = [_run(char, n) for char, n in runs[:_MAX_NAMED]]
    if len(runs) > _MAX_NAMED:
        named.append("more")
    if named:
        return " and ".join(named)
    return _visible(text) if text else "the end of the line"


def _run(char: str, n: int) -> str:
    if char == " ":
        return "a space" if n == 1 else f"{n} spaces"
    if char == "\t":
        return "a tab" if n == 1 else f"{n} tabs"
    if char == "\r":
        return "a carriage return (CRLF)"
    return _character(char) if n == 1 else f"{n} times {_character(char)}"


def _character(char: str) -> str:
    if not char:
        return "the end of the line"
    if "\udc80" <= char <= "\udcff":
        return f"the byte {ord(char) - 0xDC00:02X}, which is not UTF-8,"
    name = unicodedata.name(char, "").lower()
    code = f"U+{ord(char):04X}"
    return f"{code} ({name})" if name else code


def _visible(text: str) -> str:
    text = text.rstrip("\r\n")
    if not text:
        return "the end of the line"
    return repr(text if len(text) <= _MAX_CHARS else text[:_MAX_CHARS] + "…")
