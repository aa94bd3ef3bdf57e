"""Names of a package that are loaded when they are first used, not when it is imported.

A package imports these names below ``if TYPE_CHECKING``, one on each line: ``from .module import
Name as Name``. This is their only list: type checkers, import-linter and ``lazy`` read the same
lines, and ``__all__`` is made of them. ``as`` says to a type checker that the name is public.
``lazy`` is called below ``if not TYPE_CHECKING``, because a type checker that saw a ``__getattr__``
would accept every misspelt name.
"""

from __future__ import annotations

import functools
import linecache
import sys
from collections.abc import Callable
from importlib import import_module  # noqa: TID251 - names come from import statements
from importlib.util import resolve_name
from itertools import dropwhile, islice, takewhile

__all__ = ["lazy"]


def lazy(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The ``__getattr__`` and the ``__dir__`` of *package*, which calls this at its end."""

    @functools.cache
    def modules() -> dict[str, str]:
        return _imported_for_type_checkers(package)

    def get(name: str) -> object:
        if name == "__all__":
            return sorted(modules())
        if name not in modules():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules()[name]), name)
        setattr(sys.modules[package], name, value)  # the next use finds it without this function
        return value

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules()})

    return get, listed


def _imported_for_type_checkers(package: str) -> dict[str, str]:
    """Each name that *package* imports below ``if TYPE_CHECKING``, and its module."""
    variables = vars(sys.modules[package])  # not inspect, which asks a package for other names
    source = linecache.getlines(variables["__file__"], variables)
    if not source:
        raise ImportError(f"cannot read the source of {package}; install it with its .py files")
    after = dropwhile(lambda line: line != "if TYPE_CHECKING:\n", source)
    block = takewhile(lambda line: line.startswith((" ", "\n")), islice(after, 1, None))
    statements = filter(None, map(str.split, block))  # not with ast, which takes a while
    return {name: resolve_name(module, package) for _, module, _, name, _, _ in statements}
