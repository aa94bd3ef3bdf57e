"""The modules that code may import: chosen names of the standard library.

Each one is a ``Namespace``, not a module. It has no loader, no ``__dict__`` and no reference to
modules that the real one uses, so code cannot reach anything else through it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import import_module  # noqa: TID251 - of modules that code may use
from typing import Any, Final


class Namespace:
    """Read-only attributes."""

    __slots__ = ("_name", "_names")

    def __init__(self, name: str, names: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_names", names)

    def __getattr__(self, name: str) -> Any:
        names: Mapping[str, Any] = object.__getattribute__(self, "_names")
        if name not in names:
            raise AttributeError(f"module {self._name!r} has no attribute {name!r} here")
        return names[name]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"module {self._name!r} cannot be changed")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"module {self._name!r} cannot be changed")

    @property
    def __all__(self) -> list[str]:
        return sorted(self._names)

    def __dir__(self) -> list[str]:
        return sorted(self._names)

    def __repr__(self) -> str:
        return f"<module {self._name!r}>"


_EVERYTHING: Final = (
    *("base64", "bisect", "copy", "csv", "datetime", "decimal", "fractions", "heapq", "itertools"),
    *("json", "math", "pprint", "random", "re", "statistics", "textwrap", "urllib.parse"),
)
MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(_EVERYTHING, ("*",)),
    "collections": ("ChainMap", "Counter", "OrderedDict", "defaultdict", "deque", "namedtuple"),
    "functools": ("cache", "cmp_to_key", "lru_cache", "partial", "reduce", "wraps"),
    "hashlib": ("md5", "sha1", "sha256", "sha512"),
    "io": ("BytesIO", "StringIO"),
    "operator": ("add", "floordiv", "itemgetter", "mod", "mul", "neg", "sub", "truediv", "xor"),
    "string": (
        *("ascii_letters", "ascii_lowercase", "ascii_uppercase", "capwords", "digits"),
        *("hexdigits", "octdigits", "printable", "punctuation", "whitespace"),
    ),
    "time": ("monotonic", "perf_counter", "sleep", "strftime", "gmtime", "time"),
    "typing": (
        *("Any", "Callable", "Dict", "Iterable", "Iterator", "List", "Mapping", "Optional"),
        *("Sequence", "Set", "Tuple", "Union"),
    ),
}
"""The names of each module; ``*`` is every public name that it has.

A module has a list of its own if one of its public names reads attributes by their names, which
would pass the guards.
"""


def _wraps(wrapped: Any) -> Any:
    """As ``functools.wraps``, without its choice of attributes: some lead into the interpreter."""
    return functools.wraps(wrapped)


_REPLACED: Final[Mapping[str, Any]] = {"wraps": _wraps}


def namespaces() -> dict[str, Namespace]:
    """Import the modules of ``MODULES``; returns their namespaces and that of ``urllib``."""
    modules = {name: Namespace(name, _names(name, wanted)) for name, wanted in MODULES.items()}
    return modules | {"urllib": Namespace("urllib", {"parse": modules["urllib.parse"]})}


def _names(name: str, wanted: tuple[str, ...]) -> dict[str, Any]:
    module = import_module(name)
    if wanted == ("*",):
        public = getattr(module, "__all__", None) or dir(module)
        wanted = tuple(each for each in public if not each.startswith("_"))
    return {
        each: _REPLACED.get(each) or getattr(module, each)
        for each in wanted
        if hasattr(module, each)
    }
