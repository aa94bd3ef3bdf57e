"""Python with asteval's guards: the code is rewritten, and Python compiles and runs it.

asteval gives the names that need no import, and the attributes that lead into the interpreter. An
attribute becomes a call of a guard: ``a.b`` becomes ``guard(a, "b")``. Scopes, functions, control
flow, operators and errors are Python's own.

Rule 1: only the kinds of nodes in ``_SUPPORTED`` run. Any other one, also of a newer Python, is a
syntax error that names it, before the code starts. Nothing is ignored.
Rule 2: a guard has a name that is not an identifier, so that no code can use or replace it.
Rule 3: no guard returns a module, code, a frame or a traceback.
Rule 4: none of this isolates the code. Code that escapes from the guards is still in the child,
which the module ``restrictions`` confines.
"""

from __future__ import annotations

import ast
import string
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module  # noqa: TID251 - for functions written in C
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any, ClassVar, Final, NoReturn, cast

import asteval.astutils  # pyright: ignore[reportMissingTypeStubs] - it has none

from .files import SOURCE, WorkspaceFiles
from .main_program import MainProgram
from .modules import Namespace, namespaces

_astutils: Any = asteval.astutils  # asteval has no types

_ADDED_BUILTINS: Final = (
    *("FileExistsError", "FileNotFoundError", "IsADirectoryError", "ModuleNotFoundError"),
    *("NotADirectoryError", "PermissionError", "RecursionError", "StopIteration", "TimeoutError"),
    *("ascii", "callable", "issubclass", "iter", "next", "object", "print"),
)
_FILES_OF_NUMPY: Final = frozenset(
    {
        *("DataSource", "fromfile", "fromregex", "genfromtxt", "load", "loadtxt", "memmap"),
        *("open_memmap", "save", "savetxt", "savez", "savez_compressed"),
    }
)
_READABLE_DUNDERS: Final = frozenset({"__name__", "__qualname__", "__doc__"})
"""Readable if their value is a string or ``None``."""
_CHAIN: Final = frozenset({"__cause__", "__context__"})
"""Also readable on an exception."""
_INTERNAL: Final = (ModuleType, CodeType, FrameType, TracebackType)
_DEPTH: Final = 6_000  # of the rewriting, as deep as Python's parser accepts
_SUPPORTED: Final = frozenset(
    {
        *("AnnAssign", "Assert", "Assign", "Attribute", "AugAssign", "BinOp", "BoolOp", "Break"),
        *("Call", "Compare", "Constant", "Continue", "Delete", "Dict", "DictComp"),
        *("ExceptHandler", "Expr", "For", "FormattedValue", "FunctionDef", "GeneratorExp"),
        *("Global", "If", "IfExp", "Import", "ImportFrom", "JoinedStr", "Lambda", "List"),
        *("ListComp", "Module", "Name", "NamedExpr", "Nonlocal", "Pass", "Raise", "Return"),
        *("Set", "SetComp", "Slice", "Starred", "Subscript", "Try", "TryStar", "Tuple", "UnaryOp"),
        *("While", "With", "Yield", "YieldFrom", "alias", "arg", "arguments", "comprehension"),
        *("keyword", "withitem"),
    }
)
_PARTS: Final = (ast.boolop, ast.cmpop, ast.expr_context, ast.operator, ast.unaryop)
_RESERVED: Final = frozenset({"__builtins__", "__import__"})
_BINDING: Final = (ast.FunctionDef, ast.ExceptHandler, ast.alias, ast.arg)
_WORDS: Final = {"ClassDef": "class definitions", "Match": "match statements"}


def _without_files(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name not in _FILES_OF_NUMPY}


class Interpreter(MainProgram):
    """An interpreter, for one evaluation.

    Names without an import are those of asteval and our additions. A name that Python has means the
    same as in Python, also if numpy has it.

    Args:
        use_numpy: Whether numpy is available, without what accesses files.
    """

    warm_up_code: ClassVar[str] = (
        "def f(x, y=1):\n    return [x + y for x in range(x)]\nf(2), f'{len([])}'"
    )

    def __init__(self, *, use_numpy: bool) -> None:
        python = cast("Mapping[str, Any]", _astutils.builtins)
        self._modules = namespaces()
        if use_numpy:
            self._modules["numpy"] = Namespace("numpy", _without_files(_astutils.NUMPY_TABLE))
        table = _without_files(_astutils.make_symbol_table(use_numpy=use_numpy))
        self._own_names = table.keys() - python.keys()
        self.builtins: dict[str, Any] = {
            **table,
            **{name: python[name] for name in (*_astutils.FROM_PY, *_ADDED_BUILTINS)},
            "type": _type_of,  # asteval's returns a string, which is not equal to any type
            "getattr": _getattr,
            "hasattr": _hasattr,
            "<attribute>": _attribute,
            "<attributes>": _Attributes,
            "__import__": self._imported,
        }
        self.clear()

    def clear(self) -> None:
        """Start with new global names."""
        self.names = {"__name__": "__main__", "__builtins__": self.builtins}

    def provide(self, given: Mapping[str, Any], files: WorkspaceFiles) -> None:
        """Set the global names *given*, and the functions for files."""
        self.builtins |= {
            "open": files.open,
            "read_text": files.read_text,
            "write_text": files.write_text,
        }
        self.names.update(given)

    def evaluate(self, tree: ast.Module) -> tuple[Any, bool]:
        """Run *tree*; returns the value of its last statement, and whether that is an expression.

        Raises:
            SyntaxError: The code is not Python, or uses what is not supported. Nothing has run.
            Exception: What the code raises.
        """
        compile(tree, SOURCE, "exec", dont_inherit=True)  # raises all syntax errors
        guarding = _Guarding()
        depth = sys.getrecursionlimit()
        sys.setrecursionlimit(_DEPTH)
        try:
            guarded = ast.fix_missing_locations(guarding.visit(tree))
        finally:
            sys.setrecursionlimit(depth)
        for name in guarding.bound & self._own_names:
            self.builtins.pop(name, None)  # asteval's own, such as `e`, is hidden everywhere
        return super().evaluate(guarded)

    def _imported(
        self,
        name: str,
        globals_: object = None,
        locals_: object = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Namespace:
        """As ``__import__``, which the code's statements and Python's own C code call."""
        del globals_, locals_
        if isinstance(fromlist, list):  # from C, which ignores the result
            import_module(name)
            return Namespace(name, {})
        name = "." * level + name
        if name not in self._modules:
            offered = ", ".join(self._modules)
            raise ModuleNotFoundError(f"no module {name!r} here; available: {offered}")
        module = self._modules[name]
        if not fromlist:
            return self._modules[name.partition(".")[0]]
        for each in fromlist:
            if each != "*" and each not in dir(module):
                raise ImportError(f"cannot import {each!r} from {name!r}")
        return module


# Guards


def _is_hidden(value: object, name: str) -> bool:
    """Whether asteval hides the attribute."""
    kinds = cast("Mapping[type, tuple[str, ...]]", _astutils.UNSAFE_ATTRS_DTYPES)
    owner = value if isinstance(value, type) else type(value)
    return (
        name.startswith("_" if isinstance(value, Namespace) else "__")
        or name in _astutils.UNSAFE_ATTRS
        or isinstance(value, _INTERNAL)
        or any(issubclass(owner, kind) and name in names for kind, names in kinds.items())
    )


def _refuse(value: object, name: str) -> NoReturn:
    raise AttributeError(f"attribute {name!r} of {type(value).__name__} cannot be used here")


def _attribute(value: Any, name: str) -> Any:
    """An attribute, unless it gives access to the interpreter."""
    if isinstance(value, str) and name in ("format", "format_map"):
        return getattr(_Formatter(value), name)
    is_text = name in _READABLE_DUNDERS and not isinstance(value, Namespace)
    is_chain = name in _CHAIN and isinstance(value, BaseException)
    if not is_text and not is_chain and _is_hidden(value, name):
        _refuse(value, name)
    found = getattr(value, name)
    if isinstance(found, _INTERNAL) or (is_text and not isinstance(found, str | None)):
        _refuse(value, name)
    return found


class _Attributes:
    """The attributes of *holder* as items, so that a target can be guarded anywhere."""

    __slots__ = ("_holder",)

    def __init__(self, holder: Any) -> None:
        self._holder = holder

    def __getitem__(self, name: str) -> Any:
        return _attribute(self._holder, name)

    def __setitem__(self, name: str, value: object) -> None:
        if _is_hidden(self._holder, name) and not isinstance(self._holder, Namespace):
            _refuse(self._holder, name)
        setattr(self._holder, name, value)

    def __delitem__(self, name: str) -> None:
        _refuse(self._holder, name)


class _Formatter(string.Formatter):
    """``str.format``, with a check of every attribute that the text names."""

    def __init__(self, text: str) -> None:
        self._text = text

    def format(self, /, *args: Any, **named: Any) -> str:  # pyright: ignore[reportIncompatibleMethodOverride] - the text is given
        return self.vformat(self._text, args, named)

    def format_map(self, mapping: Mapping[str, Any], /) -> str:
        return self.vformat(self._text, (), mapping)

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
        first, rest = _astutils.formatter_field_name_split(field_name)
        found = self.get_value(first, args, kwargs)
        for is_attribute, key in rest:
            found = _attribute(found, key) if is_attribute else found[key]
        return found, first


def _getattr(*args: Any) -> Any:
    """``getattr``, for the attributes that can be read with a dot."""
    if len(args) not in (2, 3) or not isinstance(args[1], str):
        return getattr(*args)  # raises the error for wrong arguments
    try:
        return _attribute(args[0], str(args[1]))
    except AttributeError:
        if len(args) == 2:
            raise
        return args[2]


def _hasattr(*args: Any) -> bool:
    """``hasattr``, for the attributes that can be read with a dot."""
    if len(args) != 2 or not isinstance(args[1], str):
        return hasattr(*args)
    missing = object()
    return _getattr(*args, missing) is not missing


def _type_of(value: object, /) -> type:
    if isinstance(value, type):
        raise TypeError("type() of a class cannot be used here")  # the result could make classes
    return type(value)


# Rewriting


class _Guarding(ast.NodeTransformer):
    """Checks each node of a program, and puts the guards into it.

    ``bound`` has the names that the program binds anywhere.
    """

    def __init__(self) -> None:
        self.bound: set[str] = set()

    def visit(self, node: ast.AST) -> Any:
        kind = type(node).__name__
        if kind not in _SUPPORTED and not isinstance(node, _PARTS):
            _refuse_node(node, _WORDS.get(kind, kind))
        if not isinstance(node, ast.Constant):
            names = {each for each in vars(node).values() if isinstance(each, str)}
            for name in names & _RESERVED:
                _refuse_node(node, name)
            if isinstance(node, _BINDING) or not isinstance(getattr(node, "ctx", _LOAD), ast.Load):
                self.bound |= names
        return super().visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        is_read = isinstance(node.ctx, ast.Load)
        guard = ast.Name("<attribute>" if is_read else "<attributes>", _LOAD)
        value, name = self.visit(node.value), ast.Constant(node.attr)
        call = ast.Call(guard, [value, name] if is_read else [value], [])
        return ast.copy_location(call if is_read else ast.Subscript(call, name, node.ctx), node)


_LOAD: Final = ast.Load()


def _refuse_node(node: ast.AST, what: str) -> NoReturn:
    line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", -1) + 1
    raise SyntaxError(f"{what} cannot be used here", (SOURCE, line, column, None))
