"""A TOML file, and the line at which each of its keys is set.

Rule 1: ``tomllib`` decides what the file says. The lines are for messages only, so that no second
opinion on the syntax can differ from the first.
Rule 2: a file that could cost much time or memory is refused before it is parsed.

A line number is found by parsing the file statement by statement: a group of lines that is a
document of its own is one statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

from wink_workspace.errors import UsageError

MOST_BYTES: Final = 65_536
_MOST_RETRIED_CHARS: Final = 262_144
_ENDS: Final = ("]", "}", '"""', "'''")
"""A value of several lines ends with one of these."""
_MOST_NESTED: Final = 16
_AT: Final = re.compile(r" \(at (?:line \d+, column \d+|end of document)\)")
_AT_LINE: Final = re.compile(r"\bline (\d+)")
_HINT: Final = "Correct the file; docs/configuration.md describes it."

KeyPath = tuple[str, ...]
"""The parts of a dotted key: ``("limits", "memory")``."""


@dataclass(frozen=True, slots=True)
class TomlFile:
    """The content of a file.

    Attributes:
        name: The file, as messages name it.
        table: What it contains.
        lines: The line of each key, counted from 1; of a table, the first one that names it.
    """

    name: str
    table: Mapping[str, object]
    lines: Mapping[KeyPath, int]

    @classmethod
    def parse(cls, name: str, content: bytes) -> TomlFile:
        """Parse *content*.

        Raises:
            UsageError: If it is not TOML in UTF-8, or too large; the message names the line.
        """
        if len(content) > MOST_BYTES:
            raise UsageError(
                f"{name} has {len(content):,} bytes", hint=f"Use at most {MOST_BYTES:,}."
            )
        try:
            text = content.decode().replace("\r\n", "\n")  # as tomllib does
        except UnicodeDecodeError as error:
            number = content.count(b"\n", 0, error.start) + 1
            raise UsageError(f"{name}, line {number}: this is not UTF-8", hint=_HINT) from error
        if text.startswith("\N{BYTE ORDER MARK}"):
            raise UsageError(
                f"{name}, line 1: the file begins with a byte order mark", hint="Remove it."
            )
        for number, line in enumerate(text.split("\n"), 1):
            if max(line.count("["), line.count("{"), line.count(".")) > MOST_BYTES // 64:
                raise UsageError(f"{name}, line {number}: it is too deeply nested", hint=_HINT)
        import tomllib  # on use: most projects have no such file

        try:
            table = tomllib.loads(text)
            lines = dict(_lines(text))
        except RecursionError as error:
            raise UsageError(f"{name}: it is too deeply nested", hint=_HINT) from error
        except ValueError as error:  # also an integer of more digits than Python converts
            raise UsageError(_located(name, text, str(error)), hint=_HINT) from error
        return cls(name, table, lines)

    def line(self, path: KeyPath) -> int:
        """The line that sets *path*, or the nearest table around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def place(self, path: KeyPath) -> str:
        """``FILE, line N``."""
        return f"{self.name}, line {self.line(path)}"


def _located(name: str, text: str, message: str) -> str:
    """*message* of the parser, after the file and the line that it names."""
    found = _AT_LINE.search(message)
    number = int(found[1]) if found else text.rstrip("\n").count("\n") + 1
    return f"{name}, line {number}: {_AT.sub('', message)}"


def key_text(path: KeyPath) -> str:
    """*path* as a dotted key, with characters other than ASCII escaped."""
    return ".".join(
        part if part.isascii() and part.replace("-", "").replace("_", "").isalnum() else ascii(part)
        for part in path
    )


def _lines(content: str) -> Iterator[tuple[KeyPath, int]]:
    """Each key with the line at which it first occurs."""
    import tomllib

    seen: set[KeyPath] = set()
    table: KeyPath = ()
    pending: list[str] = []
    n_failed = 0
    for number, line in enumerate(content.split("\n"), 1):
        pending.append(line)
        first = number - len(pending) + 1
        if not line.strip() or (len(pending) > 1 and not any(end in line for end in _ENDS)):
            pending = pending if len(pending) > 1 else []
            continue
        text = "\n".join(pending)
        try:
            statement = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:  # the value continues on the next line
            n_failed += len(text)
            if n_failed > _MOST_RETRIED_CHARS:
                message = f"too many lines with brackets (at line {first}, column 1)"
                raise ValueError(message) from error
            continue
        is_header = pending[0].lstrip().startswith("[")
        pending = []
        paths = list(_paths(statement))
        if is_header:
            table = paths[-1]
        for path in paths:
            if len(path) > _MOST_NESTED:
                raise ValueError(f"a key has too many parts (at line {first}, column 1)")
            whole = path if is_header else (*table, *path)
            if whole not in seen:
                seen.add(whole)
                yield whole, first


def _paths(table: Mapping[str, object], above: KeyPath = ()) -> Iterator[KeyPath]:
    """The keys of *table* and of the tables in it."""
    for name, value in table.items():
        yield (*above, name)
        if isinstance(value, dict):
            yield from _paths(cast("dict[str, object]", value), (*above, name))
