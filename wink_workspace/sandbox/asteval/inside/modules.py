"""The modules that code may import: chosen names of the standard library.

Each one is a ``Namespace``, not a module. It has no loader, no ``__dict__`` and no reference to
modules that the real one uses, so code cannot reach anything else through it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import import_module  # noqa: TID251 - of modules that code may use
from typing import Any, Final

__all__ = ["MODULES", "Namespace", "namespaces"]


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


MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "base64": ("b64decode", "b64encode", "urlsafe_b64decode", "urlsafe_b64encode"),
    "bisect": ("bisect", "bisect_left", "bisect_right", "insort", "insort_left", "insort_right"),
    "collections": ("Counter", "OrderedDict", "defaultdict", "deque", "namedtuple"),
    "copy": ("copy", "deepcopy"),
    "csv": ("DictReader", "DictWriter", "QUOTE_ALL", "QUOTE_MINIMAL", "reader", "writer"),
    "datetime": ("MAXYEAR", "MINYEAR", "UTC", "date", "datetime", "time", "timedelta", "timezone"),
    "decimal": (
        *("Decimal", "DecimalException", "DivisionByZero", "InvalidOperation", "ROUND_CEILING"),
        *("ROUND_DOWN", "ROUND_FLOOR", "ROUND_HALF_DOWN", "ROUND_HALF_EVEN", "ROUND_HALF_UP"),
        *("ROUND_UP", "getcontext", "localcontext"),
    ),
    "fractions": ("Fraction",),
    "functools": ("cache", "cmp_to_key", "lru_cache", "partial", "reduce", "wraps"),
    "hashlib": ("md5", "sha1", "sha256", "sha512"),
    "heapq": ("heapify", "heappop", "heappush", "heapreplace", "merge", "nlargest", "nsmallest"),
    "io": ("BytesIO", "StringIO"),
    "itertools": (
        *("accumulate", "batched", "chain", "combinations", "combinations_with_replacement"),
        *("compress", "count", "cycle", "dropwhile", "filterfalse", "groupby", "islice"),
        *("pairwise", "permutations", "product", "repeat", "starmap", "takewhile", "tee"),
        "zip_longest",
    ),
    "json": ("JSONDecodeError", "dump", "dumps", "load", "loads"),
    "math": ("*",),
    "operator": ("add", "floordiv", "itemgetter", "mod", "mul", "neg", "sub", "truediv", "xor"),
    "pprint": ("pformat", "pp", "pprint"),
    "random": (
        *("Random", "betavariate", "choice", "choices", "expovariate", "gauss", "getrandbits"),
        *("normalvariate", "randint", "random", "randrange", "sample", "seed", "shuffle"),
        *("triangular", "uniform"),
    ),
    "re": (
        *("A", "ASCII", "DOTALL", "I", "IGNORECASE", "M", "MULTILINE", "Match", "Pattern", "S"),
        *("VERBOSE", "X", "compile", "error", "escape", "findall", "finditer", "fullmatch"),
        *("match", "search", "split", "sub", "subn"),
    ),
    "statistics": ("*",),
    "string": (
        *("ascii_letters", "ascii_lowercase", "ascii_uppercase", "capwords", "digits"),
        *("hexdigits", "octdigits", "printable", "punctuation", "whitespace"),
    ),
    "textwrap": ("dedent", "fill", "indent", "shorten", "wrap"),
    "time": ("monotonic", "perf_counter", "sleep", "strftime", "gmtime", "time"),
    "typing": (
        *("Any", "Callable", "Dict", "Iterable", "Iterator", "List", "Mapping", "Optional"),
        *("Sequence", "Set", "Tuple", "Union"),
    ),
    "urllib.parse": (
        *("parse_qs", "parse_qsl", "quote", "quote_plus", "unquote", "unquote_plus", "urldefrag"),
        *("urlencode", "urljoin", "urlparse", "urlsplit", "urlunparse", "urlunsplit"),
    ),
}
"""The names of each module; ``*`` is every public name that it has."""


def _wraps(wrapped: Any) -> Any:
    """As ``functools.wraps``, without its choice of attributes: some lead into the interpreter."""
    return functools.wraps(wrapped)


_REPLACED: Final[Mapping[str, Any]] = {"wraps": _wraps}


def namespaces() -> dict[str, Namespace]:
    """Import the modules of ``MODULES``; returns their namespaces and those of their packages."""
    modules = {name: Namespace(name, _names(name, wanted)) for name, wanted in MODULES.items()}
    packages: dict[str, dict[str, Namespace]] = {}
    for name, module in modules.items():
        package, _, inner = name.rpartition(".")
        if package:
            packages.setdefault(package, {})[inner] = module
    return modules | {name: Namespace(name, inside) for name, inside in packages.items()}


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
