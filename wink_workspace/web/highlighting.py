"""Code with colours, as markup in which the library escapes every character of the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import pygments
from pygments import lexers
from pygments.formatters.html import HtmlFormatter
from pygments.util import ClassNotFound

from wink_workspace._module_lock import ModuleLock

__all__ = ["code_style", "highlighted"]

_pygments: Final = cast("Any", pygments)  # its types leave out most parameters
_lexers: Final = cast("Any", lexers)
_OPTIONS: Final = {"stripnl": False, "ensurenl": False}
_lock: Final = ModuleLock()
"""The library builds the rules of a language at its first use; two threads would mix them up."""


def highlighted(path: str, lines: Sequence[str]) -> list[str]:
    """The markup of the lines of a file; its name decides the language."""
    formatter = HtmlFormatter[str](nowrap=True)
    with _lock.now:
        try:
            lexer = _lexers.get_lexer_for_filename(path, **_OPTIONS)
        except (ClassNotFound, ValueError):
            lexer = _lexers.get_lexer_by_name("text", **_OPTIONS)
        markup: str = _pygments.highlight("\n".join(lines), lexer, formatter)
    found = markup.split("\n")[: len(lines)]
    return found + [""] * (len(lines) - len(found))


def code_style(name: str) -> str:
    """The rules of a colour scheme for elements of the class ``code``."""
    formatter: Any = HtmlFormatter[str](style=name)
    return str(formatter.get_style_defs(".code"))
