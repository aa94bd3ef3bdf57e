"""Jupyter notebooks as a model reads and edits them: numbered cells with bounded outputs.

Rule 1: an edit changes the source of cells; the JSON around it keeps its bytes. So a notebook whose
JSON would not be written again as it is counts as a text, like every other file.
Rule 2: outputs are shown and never edited.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Self, cast

from wink_workspace.counts import counted
from wink_workspace.errors import EditError

_MOST_OUTPUT_LINES: Final = 20
_INDENT: Final = re.compile(r'\{\n([ \t]+)"')


@dataclass(frozen=True, slots=True)
class Notebook:
    """A notebook, and the style of its JSON."""

    document: dict[str, Any]
    indent: str | None
    is_ascii: bool
    end: str

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The notebook with the JSON *text*; ``None`` for anything else, see rule 1."""
        try:
            document = _object(json.loads(text))
            indent = _INDENT.match(text)
            end = text[len(text.rstrip("\n")) :]
            style = None if indent is None else indent[1]
            found = cls(document, style, text.isascii(), end)
            is_notebook = isinstance(document.get("cells"), list)
            return found if is_notebook and found.dump() == text else None
        except (ValueError, RecursionError):
            return None

    def dump(self) -> str:
        """Its JSON."""
        text = json.dumps(self.document, indent=self.indent, ensure_ascii=self.is_ascii)
        return text + self.end

    def lines(self) -> list[str]:
        """Its cells as lines."""
        return [line for number, cell in self._cells() for line in _shown(number, cell)]

    def replace(self, old: str, new: str, *, replace_all: bool) -> int:
        """Replace *old* in the sources of its cells; how many times it occurred, perhaps 0.

        Raises:
            EditError: If *old* occurs several times, unless *replace_all* is set.
        """
        cells = [(n, cell) for n, cell in self._cells() if old in _text(cell.get("source"))]
        n_found = sum(_text(cell["source"]).count(old) for _, cell in cells)
        if n_found > 1 and not replace_all:
            where = ", ".join(str(number) for number, _ in cells)
            raise EditError(
                f"the text occurs {n_found:,} times, in these cells: {where}",
                hint="Add lines around it until it occurs once, or replace all.",
            )
        for _, cell in cells:
            after = _text(cell["source"]).replace(old, new)
            is_text = isinstance(cell["source"], str)
            cell["source"] = after if is_text else re.findall(r"[^\n]*\n|[^\n]+", after)
        return n_found

    def _cells(self) -> Iterator[tuple[int, dict[str, Any]]]:
        return enumerate(map(_object, self.document["cells"]), 1)


def _object(value: Any) -> dict[str, Any]:  # from JSON of any shape
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _text(value: Any) -> str:
    """A text of a notebook, which may be a list of lines."""
    return value if isinstance(value, str) else "".join(map(str, _list(value)))


def _shown(number: int, cell: dict[str, Any]) -> Iterator[str]:
    yield f"# Cell {number}, {cell.get('cell_type')}:"
    yield from _text(cell.get("source")).split("\n")
    lines = [line for each in _list(cell.get("outputs")) for line in _output(_object(each))]
    if lines:
        yield f"# Output of cell {number}:"
        yield from lines[:_MOST_OUTPUT_LINES]
    if len(lines) > _MOST_OUTPUT_LINES:
        yield f"# ({counted(len(lines) - _MOST_OUTPUT_LINES, 'more line')} of output)"


def _output(output: dict[str, Any]) -> list[str]:
    data = _object(output.get("data"))
    text = _text(output.get("text")) or _text(data.get("text/plain"))
    if output.get("output_type") == "error":
        text = f"{output.get('ename')}: {output.get('evalue')}"
    others = [f"(not shown: {kind})" for kind in data if kind != "text/plain"]
    return [*(text.removesuffix("\n").split("\n") if text else ()), *others]
