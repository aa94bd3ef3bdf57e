"""Names of a package that are loaded when they are first used, not when it is imported.

A package imports them below ``if TYPE_CHECKING``, and says below ``if not TYPE_CHECKING`` where
they are: a type checker that saw a ``__getattr__`` would take every misspelt name for one of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

__all__ = ["lazy"]


def lazy(
    package: str, names: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The ``__getattr__`` and the ``__dir__`` of *package*, which has *names* by its module."""
    home = {name: module for module, theirs in names.items() for name in theirs}

    def get(name: str) -> object:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home[name]}"), name)

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home})

    return get, listed
